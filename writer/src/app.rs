//! Shared state of the handlers, and middleware: credentials, timeout, metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, Path, RawPathParams, Request, State};
use axum::http::header::CONNECTION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use rtad_core::device::KeyMaker;
use rtad_core::snapshot::AudienceName;
use rtad_http::body::has_encoding;
use rtad_http::origin::OwnHosts;
use rtad_http::request_error::RequestError;
use rtad_http::room::BodyRoom;

use super::audience::Writers;
use super::error::ApiError;
use super::scopes::{Area, Scope};
use super::telemetry::Telemetry;
use super::tokens::{NotAdmitted, Tokens};
use super::windows::Windows;

/// Time limit of a request; a slow store or loading large filters can take long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Setting of tokens, for errors.
pub const TOKENS: &str = "--token-file or of a [[token]] of --config";

/// Hosts of a port without tokens.
static NO_HOSTS: OwnHosts = OwnHosts::new("--admin-host (admin port)", Vec::new());

/// Status in metrics of requests whose client left before the answer.
const CLIENT_CLOSED: u16 = 499;

pub struct App {
    pub(super) tokens: Tokens,
    pub(super) writers: Arc<Writers>,
    pub(super) windows: Arc<Windows>,
    pub(super) keys: Arc<KeyMaker>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) draining: AtomicBool,
    /// Memory for bodies that arrive in parts.
    pub(super) room: BodyRoom,
}

impl App {
    /// Checks the token, its scope, and the origin.
    pub fn admit(
        &self,
        method: &Method,
        headers: &HeaderMap,
        needed: Option<&Scope>,
    ) -> Result<(), ApiError> {
        // A browser on this machine reaches the port too, for any page.
        if self.tokens.are_disabled() {
            NO_HOSTS.check(method, headers)?;
        }
        self.tokens
            .admit(headers, needed)
            .map_err(|refusal| Self::refused(&refusal, needed))
    }

    /// Checks a token in a URL, its scope, and the origin.
    pub fn admit_url(
        &self,
        headers: &HeaderMap,
        token: &[u8],
        needed: &Scope,
    ) -> Result<(), ApiError> {
        if self.tokens.are_disabled() {
            NO_HOSTS.check(&Method::POST, headers)?;
        }
        let admitted = self.tokens.admit_url(token, needed);
        admitted.map_err(|refusal| Self::refused(&refusal, Some(needed)))
    }

    fn refused(refusal: &NotAdmitted, needed: Option<&Scope>) -> ApiError {
        match (refusal, needed) {
            (NotAdmitted::MissingScope, Some(needed)) => ApiError::MissingScope(needed.to_string()),
            _ => RequestError::Unauthorized(TOKENS).into(),
        }
    }

    /// Runs `answer` with a timeout if the request is admitted, and counts the request. A panic
    /// becomes a 500 and affects no other request.
    pub async fn run(
        &self,
        route: &'static str,
        admitted: Result<(), ApiError>,
        answer: impl Future<Output = Result<Response, ApiError>>,
    ) -> Response {
        let mut counted = CountedRequest {
            telemetry: &self.telemetry,
            route,
            code: CLIENT_CLOSED,
        };
        let answered = match admitted {
            Ok(()) => {
                let caught = AssertUnwindSafe(answer).catch_unwind();
                let answered = tokio::time::timeout(ANSWER_TIMEOUT, caught).await;
                answered
                    .unwrap_or(Ok(Err(ApiError::NoAnswer)))
                    .unwrap_or(Err(RequestError::Internal.into()))
            }
            Err(refusal) => Err(refusal),
        };
        let mut response = answered.unwrap_or_else(|error| error.into_response());
        if self.draining.load(Ordering::Relaxed) {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        counted.code = response.status().as_u16();
        response
    }
}

/// Counts a request on drop, also if its client has left.
struct CountedRequest<'a> {
    telemetry: &'a Telemetry,
    route: &'static str,
    code: u16,
}

impl Drop for CountedRequest<'_> {
    fn drop(&mut self) {
        self.telemetry.request(self.route, self.code);
    }
}

/// Scope that a route needs: that of the area for the window or audience in the path, or of an
/// admin. A path without a valid name needs the scope of all names.
fn scope(area: Option<Area>, path: Option<&RawPathParams>) -> Scope {
    let name = || path?.iter().next().and_then(|(_, name)| name.parse().ok());
    area.map_or(Scope::Admin, |area| Scope::Area(area, name()))
}

/// Admits requests of one route by their scope, and runs them with its label in metrics.
pub async fn authorize(
    State((app, route, area)): State<(Arc<App>, &'static str, Option<Area>)>,
    // A path that is not UTF-8 names nothing. axum would answer it before the token is checked.
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let needed = scope(area, path.as_ref().ok());
    let admitted = app.admit(request.method(), request.headers(), Some(&needed));
    let admitted = admitted.and_then(|()| match has_encoding(request.headers()) {
        true => Err(RequestError::BadEncoding.into()),
        false => Ok(()),
    });
    app.run(route, admitted, async { Ok(next.run(request).await) })
        .await
}

/// The audience in a path.
pub struct NamedAudience(pub AudienceName);

impl<S: Send + Sync> FromRequestParts<S> for NamedAudience {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let name = path.ok().and_then(|Path(name)| name.parse().ok());
        name.map(Self).ok_or(ApiError::BadAudience)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use rtad_core::device::DeviceKey;
    use rtad_core::filter::{FilterKind, FilterSpec};
    use rtad_store::Store;
    use rtad_store::write::StoreWriter;

    use super::super::audience::{AudienceChange, WriteLimits, WriteRequest};
    use super::super::op::Op;
    use super::*;

    fn add(text: &str) -> WriteRequest {
        let keys = vec![DeviceKey::of_canonical(text.as_bytes())];
        WriteRequest {
            op: Op::Add,
            keys,
            values: Vec::new(),
            window: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn write_without_an_answer_is_refused_and_counted() {
        let telemetry = Arc::new(Telemetry::default());
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        // The writer pauses after each write for longer than a request may take.
        let limits = WriteLimits {
            every: ANSWER_TIMEOUT * 2,
            max_batch: 1000,
        };
        let app = App {
            tokens: Tokens::disabled(),
            writers: Arc::new(Writers::new(store, limits, Arc::clone(&telemetry))),
            windows: Arc::default(),
            keys: Arc::default(),
            telemetry: Arc::clone(&telemetry),
            draining: AtomicBool::new(false),
            room: BodyRoom::new(1 << 20),
        };
        let audience: AudienceName = "a".parse().unwrap();
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        app.writers
            .change(&audience, AudienceChange::Create(filter, 0.0001))
            .await
            .unwrap();
        app.writers.write(&audience, add("1")).await.unwrap();

        let is_counted = |count: u8| {
            let labels = "{audience=\"a\",op=\"add\",result=\"no_answer\"}";
            telemetry
                .exporter
                .render()
                .contains(&format!("rtad_writer_writes_total{labels} {count}\n"))
        };
        assert!(is_counted(0));
        let answer = async {
            app.writers.write(&audience, add("2")).await?;
            Ok(StatusCode::OK.into_response())
        };
        let response = app.run("/devices", Ok(()), answer).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(is_counted(1), "{}", telemetry.exporter.render());

        // The client has left.
        let left = app
            .run("/devices", Ok(()), std::future::pending())
            .now_or_never();
        assert!(left.is_none());
        let counted = "rtad_writer_requests_total{route=\"/devices\",code=\"499\"} 1\n";
        assert!(
            telemetry.exporter.render().contains(counted),
            "{}",
            telemetry.exporter.render()
        );
    }
}
