//! The decision port: a service that answers the hot paths, and an axum router for all others.
//!
//! [`DecisionService`] answers the paths of platforms, which are in the catalog, and
//! `GET /v1/check`: the router would cost more than their answers.

use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::FutureExt as _;
use futures_util::future::Either;
use hyper::body::Incoming;
use rtad_http::connections::{RequestService, RouterService};
use rtad_http::request_error::RequestError;

use super::decision_app::{App, DecisionAnswer, DecisionBody, ROUTES};
use super::{check, decide, platforms};
use crate::catalog::Catalog;
use crate::telemetry::Route;

/// Path of the check of one device.
const CHECK_ONE: &str = "/v1/check/{audience}/{id}";
/// Path of the check of many.
const CHECK_MANY: &str = "/v1/check/{audience}";
/// Path of decisions.
const DECIDE: &str = "/v1/decide";

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
            let answer: Answering<'_> = Box::pin(platforms::answer(&self.app, head, body, started));
            return Either::Right(answer);
        }

        let is_check = request.method() == Method::GET && check::is_of_one(request.uri().path());
        if is_check && refusal(&catalog, &request).is_none() {
            return Either::Left(ready(self.check(&catalog, request, started)));
        }

        let routed = async move {
            let answer = self.router.answer(request).await;
            answer.map(DecisionBody::Right)
        };
        Either::Right(Box::pin(routed))
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
) -> Response {
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
