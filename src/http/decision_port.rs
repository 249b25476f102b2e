//! The decision port: a service that answers the hot paths, and an axum router for all others.
//!
//! [`DecisionService`] answers the paths of platforms, which are in the catalog, and
//! `GET /v1/check`: the router would cost more than their answers.
//!
//! # The path of a request of Tencent
//!
//! `answer_platform` takes its steps in this order. Other platforms differ in the adapter alone.
//! Paths are below `src/`, those that begin with the name of a crate below `crates/`.
//!
//! | step | file | job |
//! |---|---|---|
//! | port | `http/decision_port.rs` | finds the platform of a path |
//! | body | `rtad-http/src/body.rs` | reads a body, within limits of size and time |
//! | answer | `platform/respond.rs` | access, adapter, decision, adapter; answers to failures too |
//! | adapter | `platform/adapter.rs` | the trait: a body to data, data and verdicts to an answer |
//! | | `platform/tencent.rs` | the protocol of Tencent |
//! | | `platform/tencent/bytes.rs` | its bytes: fields of a request, fields of an answer |
//! | | `platform/read.rs` | a request as data |
//! | ids | `platform/ids.rs` | reads and counts ids |
//! | | `rtad-core/src/device/key_maker.rs` | an id to a key: trims, checks, hashes |
//! | facts | `catalog/decide.rs` | keys of the device; facts, verdicts, caps and counts in turn |
//! | | `catalog.rs` | what the pod serves: audiences, strategies, platforms |
//! | | `rtad-core/src/snapshot.rs` | membership of keys in an audience |
//! | | `strategy/facts.rs` | all that a decision depends on |
//! | | `strategy/experiment.rs` | the device's bucket |
//! | verdicts | `strategy.rs` | a decision by the facts alone |
//! | | `strategy/rule.rs` | conditions, and the one that decides |
//! | | `strategy/value.rs` | the value of a bid |
//! | caps | `catalog/strategies.rs` | caps, experiments and counters by strategy |
//! | | `cap.rs` | the table of this moment |
//! | | `rtad-core/src/cap.rs` | a table of counted devices |
//! | counters | `telemetry/counters.rs` | counters of each worker |
//! | bytes | as adapter | the answer |
//! | log | `log/tap.rs` | whether a request is logged, and its way to the log's thread |
//! | | `log/key.rs` | the sample of devices |
//! | | `log/facts.rs` | a request and its verdicts as a row |
//! | | `rtad-log/src/row.rs` | the row, and its bytes |

mod check;
mod decide;

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use rtad_http::body::{self, BodyLimits, ReadBody};
use rtad_http::connections::{RequestService, RouterService};
use rtad_http::request_error::RequestError;
use rtad_http::room::{BodyPermit, BodyRoom, Share};
use rtad_log::Raw;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::catalog::{Catalog, Serving};
use crate::log::{DecidedRead, LogTap, LoggedAnswer};
use crate::platform::{Admission, Failure, IdReader, Purpose, Read, RequestHead, Verdicts};
use crate::sync::Readiness;
use crate::telemetry::{Route, RouteMetrics, Telemetry};

/// Path of the check of one device.
const CHECK_ONE: &str = "/v1/check/{audience}/{id}";
/// Path of the check of many.
const CHECK_MANY: &str = "/v1/check/{audience}";
/// Path of decisions.
const DECIDE: &str = "/v1/decide";

/// The decision port's own routes, for errors.
const ROUTES: &str = "/v1/check/{audience}/{id}, /v1/check/{audience}, /v1/decide";

/// Largest header map of a request that an answer reuses, in headers. Connections keep the map.
const MAX_REUSED_HEADERS: usize = 32;

/// State that the decision port's handlers share. Each worker has its own copy, so cores do not
/// contend for its reference count.
#[derive(Debug, Clone)]
pub struct App {
    /// The served catalog.
    pub serving: Arc<Serving>,
    /// Reads ids into keys.
    pub ids: Arc<IdReader>,
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// Readiness and draining of the process.
    pub readiness: Arc<Readiness>,
    /// Largest body in bytes.
    pub max_body: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// The turn of the worker's batches, which yield to other requests: without it, lists of any
    /// number of them would be in memory at a time.
    pub batch_turn: Arc<Mutex<()>>,
    /// Memory for incomplete bodies; a request whose body finds no room is shed.
    pub room: Arc<BodyRoom>,
    /// The decision log of the worker.
    pub log: Option<Arc<LogTap>>,
}

/// The service of one worker. The paths of platforms, and the access to rtad's own routes, are in
/// the catalog, which a reload replaces.
#[derive(Debug)]
pub struct DecisionService {
    app: Arc<App>,
    router: RouterService<Router>,
}

impl DecisionService {
    /// The service of a worker with this state.
    pub fn new(app: App) -> Self {
        let app = Arc::new(app);
        let router = Router::new()
            .route(CHECK_ONE, get(check::head))
            .route(CHECK_MANY, post(check::many))
            .route(DECIDE, post(decide::decide))
            .fallback(async || RequestError::NotFound(ROUTES))
            .method_not_allowed_fallback(async || RequestError::MethodNotAllowed)
            .layer(from_fn_with_state(Arc::clone(&app), observe))
            .with_state(Arc::clone(&app));
        let router = RouterService(router);
        Self { app, router }
    }

    /// Answers `GET /v1/check/{audience}/{id}`. A panic becomes a 500 and affects no other request.
    fn check(
        &self,
        catalog: &Catalog,
        mut request: Request<Incoming>,
        started: Instant,
    ) -> DecisionAnswer {
        let app = &self.app;
        let in_flight = app.telemetry.begin();
        let headers = std::mem::take(request.headers_mut());
        let checked = catch_unwind(AssertUnwindSafe(|| check::one(app, catalog, request.uri())))
            .unwrap_or(Err(RequestError::Internal.into()));
        drop(in_flight);

        let mut answer = match checked {
            Ok(content) => content.into_answer(headers),
            Err(error) => error.into_response().map(DecisionBody::Right),
        };
        let route = app.telemetry.route(Route::CheckOne);
        app.finish(route, started, &mut answer);
        answer
    }
}

/// The future of a request that is not answered at once.
type Answering<'a> = Pin<Box<dyn Future<Output = DecisionAnswer> + Send + 'a>>;

impl RequestService for DecisionService {
    type Body = DecisionBody;

    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = DecisionAnswer> + Send {
        let started = Instant::now();
        let catalog = self.app.serving.load();
        if catalog.platform_at(request.uri().path()).is_some() {
            let (head, body) = request.into_parts();
            let answer: Answering<'_> = Box::pin(answer_platform(&self.app, head, body, started));
            return future::Either::Right(answer);
        }

        let is_check = request.method() == Method::GET && check::is_of_one(request.uri().path());
        if is_check && refusal(&catalog, &request).is_none() {
            return future::Either::Left(ready(self.check(&catalog, request, started)));
        }

        let routed = async move {
            let answer = self.router.answer(request).await;
            answer.map(DecisionBody::Right)
        };
        future::Either::Right(Box::pin(routed))
    }
}

/// The error of a request that may not use rtad's own routes.
fn refusal<B>(catalog: &Catalog, request: &Request<B>) -> Option<RequestError> {
    if !catalog.has_api() {
        // The answer names no route.
        return Some(RequestError::NotFound("the paths of platforms"));
    }
    if !catalog.admits(request.headers()) {
        return Some(RequestError::Unauthorized("server.api.token_files"));
    }
    None
}

/// Checks the access to a request of the router, and counts it. A panic becomes a 500 and affects
/// no other request.
async fn observe(
    State(app): State<Arc<App>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> axum::response::Response {
    let started = Instant::now();
    let in_flight = app.telemetry.begin();
    let refusal = refusal(&app.serving.load(), &request);
    let mut route = Route::Unknown;
    let mut answer = if let Some(error) = refusal {
        error.into_response()
    } else {
        route = route_at(path.as_ref().map(MatchedPath::as_str));
        AssertUnwindSafe(next.run(request))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| RequestError::Internal.into_response())
    };
    drop(in_flight);

    app.finish(app.telemetry.route(route), started, &mut answer);
    answer
}

fn route_at(path: Option<&str>) -> Route {
    match path {
        Some(CHECK_ONE) => Route::CheckOne,
        Some(CHECK_MANY) => Route::CheckMany,
        Some(DECIDE) => Route::Decide,
        _ => Route::Unknown,
    }
}

/// Answers a request to the path of a platform, with status 200 and by the platform's protocol.
///
/// Platforms do not always read another status, or an empty body, as a no-bid. So every failure,
/// from an unreadable body to a panic, becomes the strategies' `unavailable` decision
/// ([`crate::platform::Platform::respond`]). A counter records the cause.
fn answer_platform(
    app: &App,
    head: Parts,
    body: Incoming,
    started: Instant,
) -> impl Future<Output = DecisionAnswer> + Send {
    let in_flight = app.telemetry.begin();
    // The future of an `async fn` would have its arguments twice.
    async move {
        // Only an incomplete body is awaited, and only of a caller with credentials. The others get
        // their refusal below.
        let body = app
            .read_body(body, app.max_body, |length| {
                let catalog = app.serving.load();
                let served = catalog.platform_at(head.uri.path())?;
                let has_credentials = served.platform.access.admits(&head.headers);
                if !has_credentials {
                    return None;
                }
                app.permit(length, Share::Whole)
            })
            .await
            // The bytes are whole: their permit ends here.
            .map(|read| read.bytes)
            .map_err(failure_of);

        // Loaded after the last await: a slow body holds no generation.
        let catalog = app.serving.load();
        let Some(served) = catalog.platform_at(head.uri.path()) else {
            // A reload has removed the platform.
            drop(in_flight);
            let error = RequestError::NotFound(ROUTES);
            let mut answer = error.into_response().map(DecisionBody::Right);
            let unknown = app.telemetry.route(Route::Unknown);
            app.finish(unknown, started, &mut answer);
            return answer;
        };

        let seen = RequestHead {
            headers: &head.headers,
            query: head.uri.query(),
        };

        let mut row = app.log.as_ref().map(|log| log.begin());
        let mut logged = LoggedAnswer {
            platform: &served.platform.name,
            failure: None,
            raw: None,
            started,
        };

        let mut read = Read::default();
        // Called once per device: again after a failure, not at all of a refused caller.
        let decide_and_record = |read: &Read<'_>, verdicts: &mut Verdicts| {
            let mut keys = catalog.no_keys();
            catalog.add_keys(served, &app.ids, read, &mut keys);
            // The memory of the caps is read while the audiences are looked up.
            catalog.prefetch_caps(&keys, started, read.strategies());

            let mut facts = catalog.no_facts(&keys);
            catalog.add_facts(&keys, read, &mut facts);

            catalog.decide(read.strategies(), &facts, verdicts);
            catalog.admit(&keys, started, verdicts);
            catalog.count(served, &facts, verdicts);

            if let Some(row) = &mut row {
                let decided = DecidedRead {
                    read,
                    keys: &keys,
                    facts: &facts,
                    verdicts,
                    at: started,
                };
                row.decided(&catalog, &decided);
                if read.is_of_batch() {
                    // The body has the ids of other devices.
                    row.finish_device(&catalog, &logged);
                }
            }
            catalog.remove_shadow(verdicts);
        };
        let answered = served.platform.respond(
            Admission::ByHeaders,
            seen,
            &body,
            &mut read,
            decide_and_record,
        );

        if let Some(row) = row {
            logged.failure = answered.failure();
            if read.purpose != Purpose::Devices {
                logged.raw = Some(Raw {
                    query: seen.query,
                    body: body.as_deref().unwrap_or_default(),
                });
            }
            row.finish(&catalog, &logged);
        }
        drop(read);

        if let Some(failure) = answered.failure() {
            served.count_failure(failure);
        }
        drop(in_flight);

        let content = AnswerBody {
            media_type: served.platform.content_type(),
            bytes: answered.bytes,
        };
        let mut answer = content.into_answer(head.headers);
        app.finish(&served.route, started, &mut answer);
        answer
    }
}

/// The failure of a body that was not read.
fn failure_of(error: RequestError) -> Failure {
    match error {
        RequestError::TooLarge(_) => Failure::TooLarge,
        RequestError::Overloaded => Failure::Overload,
        _ => Failure::BodyLost,
    }
}

/// The body of an answer: of the hot paths, or of the router.
type DecisionBody = Either<Full<Bytes>, Body>;

/// An answer of the decision port.
type DecisionAnswer = Response<DecisionBody>;

/// The body of a 200, and its media type.
#[derive(Debug)]
struct AnswerBody {
    media_type: Option<&'static str>,
    bytes: Bytes,
}

impl AnswerBody {
    fn json(bytes: impl Into<Bytes>) -> Self {
        Self {
            media_type: Some("application/json"),
            bytes: bytes.into(),
        }
    }

    /// An answer in the header map of its request: hyper reads the connection's next request into
    /// the same map, so that nearly no request allocates one.
    fn into_answer(self, mut headers: HeaderMap) -> DecisionAnswer {
        let mut answer = DecisionAnswer::new(Either::Left(self.bytes.into()));
        if headers.capacity() <= MAX_REUSED_HEADERS {
            headers.clear();
            *answer.headers_mut() = headers;
        }
        if let Some(media_type) = self.media_type {
            answer
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        }
        answer
    }
}

impl IntoResponse for AnswerBody {
    fn into_response(self) -> axum::response::Response {
        self.into_answer(HeaderMap::new()).map(Body::new)
    }
}

impl App {
    /// Counts an answered request, and asks the client of a draining process for another
    /// connection.
    fn finish<B>(&self, route: &RouteMetrics, started: Instant, answer: &mut Response<B>) {
        if self.readiness.is_draining() {
            answer
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }

        let status = answer.status().as_u16();
        self.telemetry.request(route, status, started.elapsed());
    }

    /// Reads a request's body. Waiting for the rest of an incomplete one needs a permit from
    /// `wait`.
    ///
    /// # Errors
    ///
    /// Those of [`body::read`].
    fn read_body<'a, B>(
        &self,
        body: B,
        max_bytes: usize,
        wait: impl FnOnce(usize) -> Option<BodyPermit<'a>>,
    ) -> impl Future<Output = Result<ReadBody<'a>, RequestError>>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        body::read(
            body,
            BodyLimits {
                max_bytes,
                timeout: self.body_timeout,
            },
            wait,
        )
    }

    /// A permit to wait for a body of `length` bytes; `None`, counted as shed, without room.
    fn permit(&self, length: usize, share: Share) -> Option<BodyPermit<'_>> {
        let permit = self.room.take(length, share);
        if permit.is_none() {
            self.telemetry.shed();
        }
        permit
    }
}
