//! Dispatch of the decision port: the paths of platforms first, then rtad's own routes.
//!
//! Three routes need no router: it would cost more than the answer to `GET /v1/check`. A request
//! without a body is answered at once; its future is ready.

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Instant;

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use rtad_http::body::has_encoding;
use rtad_http::connections::RequestService;
use rtad_http::request_error::RequestError;

use super::decision_app::{App, DecisionAnswer, ROUTES};
use super::{check, decide, platforms};
use crate::telemetry::Route;

/// The service of one worker. Each worker has its own [`App`]. The paths of platforms, and the
/// access to rtad's own routes, are in the catalog, which a reload replaces.
#[derive(Debug)]
pub struct DecisionService {
    /// State of the port.
    pub app: App,
}

/// One of rtad's own routes, with the undecoded segments of its path.
#[derive(Debug, Clone, Copy)]
enum ApiTarget<'a> {
    CheckOne { audience: &'a str, id: &'a str },
    CheckMany { audience: &'a str },
    Decide,
}

impl<'a> ApiTarget<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let Some(segments) = path.strip_prefix(check::PATH) else {
            return (path == "/v1/decide").then_some(Self::Decide);
        };
        let (audience, id) = match segments.split_once('/') {
            Some((audience, id)) => (audience, Some(id)),
            None => (segments, None),
        };
        match id {
            _ if audience.is_empty() => None,
            None => Some(Self::CheckMany { audience }),
            Some(id) if id.is_empty() || id.contains('/') => None,
            Some(id) => Some(Self::CheckOne { audience, id }),
        }
    }

    /// The accepted methods, as in `Allow`.
    const fn methods(self) -> &'static str {
        match self {
            Self::CheckOne { .. } => "GET, HEAD",
            Self::CheckMany { .. } | Self::Decide => "POST",
        }
    }

    fn accepts(self, method: &Method) -> bool {
        self.methods()
            .split(", ")
            .any(|accepted| accepted == method.as_str())
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = DecisionAnswer> + Send + 'a>>;

impl RequestService for DecisionService {
    type Body = Full<Bytes>;

    fn answer(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = DecisionAnswer> + Send {
        let started = Instant::now();
        let app = &self.app;
        let refuse = |error: RequestError| {
            let route = app.telemetry.route(Route::Unknown);
            Either::Left(ready(app.finish(
                route,
                started,
                HeaderMap::new(),
                Err(error.into()),
            )))
        };
        let catalog = app.serving.load();
        let path = request.uri().path();
        if catalog.platform_at(path).is_some() {
            let (head, body) = request.into_parts();
            let answer: Answering<'_> = Box::pin(platforms::answer(app, head, body, started));
            return Either::Right(answer);
        }
        if !catalog.has_api() {
            // The answer names no route.
            return refuse(RequestError::NotFound("the paths of platforms"));
        }
        if !catalog.admits(request.headers()) {
            return refuse(RequestError::Unauthorized("server.api.token_files"));
        }
        let Some(target) = ApiTarget::of(path) else {
            return refuse(RequestError::NotFound(ROUTES));
        };
        if !target.accepts(request.method()) {
            return refuse(RequestError::MethodNotAllowed(Some(target.methods())));
        }
        let ApiTarget::CheckOne { audience, id } = target else {
            if has_encoding(request.headers()) {
                return refuse(RequestError::BadEncoding);
            }
            let (head, body) = request.into_parts();
            return Either::Right(Box::pin(answer_post(app, head, body, started)));
        };
        let in_flight = app.telemetry.begin();
        let query = request.uri().query();
        let check = || check::one(app, &catalog, audience, id, query);
        let answered =
            catch_unwind(AssertUnwindSafe(check)).unwrap_or(Err(RequestError::Internal.into()));
        drop(in_flight);
        let headers = std::mem::take(request.headers_mut());
        let route = app.telemetry.route(Route::CheckOne);
        Either::Left(ready(app.finish(route, started, headers, answered)))
    }
}

/// Answers a request with a body. A panic becomes a 500 and affects no other request.
fn answer_post(
    app: &App,
    head: Parts,
    body: Incoming,
    started: Instant,
) -> impl Future<Output = DecisionAnswer> + Send {
    let in_flight = app.telemetry.begin();
    // The future of an `async fn` would have its arguments twice.
    async move {
        let (route, answered) = match ApiTarget::of(head.uri.path()) {
            Some(ApiTarget::CheckMany { audience }) => {
                let answer = check::many(app, audience, (head.uri.query(), &head.headers), body);
                (
                    Route::CheckMany,
                    AssertUnwindSafe(answer).catch_unwind().await,
                )
            }
            _ => {
                let answer = decide::decide(app, started, body);
                (Route::Decide, AssertUnwindSafe(answer).catch_unwind().await)
            }
        };
        drop(in_flight);
        let answered = answered.unwrap_or(Err(RequestError::Internal.into()));
        app.finish(app.telemetry.route(route), started, head.headers, answered)
    }
}
