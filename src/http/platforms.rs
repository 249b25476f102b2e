//! Requests of platforms: every answer has status 200 and follows the platform's protocol.
//!
//! Platforms do not always read another status, or an empty body, as a no-bid. So every failure,
//! from an unreadable body to a panic, becomes the strategies' `unavailable` decision
//! ([`crate::platform::Platform::respond`]). A counter records the cause.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use futures_util::future::Either;
use hyper::Request;
use hyper::body::Incoming;
use rtad_http::body::BodyError;
use rtad_http::connections::TimedRequest;
use rtad_http::timing::Arrival;
use tower_service::Service;

use super::decision_app::App;
use crate::catalog::Live;
use crate::platform::{Admission, Failure, Head};

/// Answers platforms' requests, and passes all others to a router if they are admitted. It looks up
/// platforms' paths, and the access to rtad's own routes, in the catalog, which a reload replaces.
#[derive(Debug, Clone)]
pub struct PlatformService {
    app: Arc<App>,
    router: Router,
    port: Port,
}

/// A port that answers decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Platforms, and rtad's own routes if they have no port of their own.
    Decision,
    /// rtad's own routes alone.
    Api,
}

impl PlatformService {
    pub(super) const fn new(app: Arc<App>, router: Router, port: Port) -> Self {
        Self { app, router, port }
    }
}

type PlatformFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

impl Service<TimedRequest> for PlatformService {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<PlatformFuture, RouteFuture<Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A router is always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, TimedRequest { mut request, arrival }: TimedRequest) -> Self::Future {
        let catalog = self.app.serving.load();
        let is_decision_port = self.port == Port::Decision;
        let app = || Arc::clone(&self.app);
        if is_decision_port && catalog.platform_at(request.uri().path()).is_some() {
            let app = app();
            return Either::Left(Box::pin(async move { Ok(answer(&app, arrival, request).await) }));
        }
        if is_decision_port && (self.app.has_api_port || !catalog.has_api()) {
            let app = app();
            return Either::Left(Box::pin(async move { Ok(app.no_api(arrival).await) }));
        }
        if !catalog.admits(request.headers()) {
            let app = app();
            return Either::Left(Box::pin(async move { Ok(app.no_token(arrival).await) }));
        }
        request.extensions_mut().insert(arrival);
        Either::Right(self.router.call(request))
    }
}

async fn answer(app: &App, arrival: Arrival, request: Request<Incoming>) -> Response {
    let (head, body) = request.into_parts();
    let in_flight = app.telemetry.begin();
    // Only an incomplete body is awaited, and only of a caller with credentials. The others get
    // their refusal below.
    let wait = || {
        let catalog = app.serving.load();
        let served = catalog.platform_at(head.uri.path())?;
        served.platform.access.admits(&head.headers).then(|| app.permit(arrival))?
    };
    let body = app.read_body_if(body, app.max_body, wait).await.map_err(failure_of);
    // Loaded after the last await: a slow body holds no generation.
    let catalog = app.serving.load();
    let Some(served) = catalog.platform_at(head.uri.path()) else {
        // A reload has removed the platform.
        drop(in_flight);
        return app.no_route(arrival).await;
    };
    let head = Head { headers: &head.headers, query: head.uri.query() };
    let mut decider = Live::new(&catalog, served, &app.ids, arrival.started);
    let answered = served.platform.respond(Admission::ByHeaders, &head, body, &mut decider);
    if let Some(failure) = answered.failure {
        served.count_failure(failure);
    }
    let mut response = Response::new(answered.bytes.into());
    if let Some(content_type) = served.platform.content_type() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    drop(in_flight);
    app.close_if_draining(&mut response);
    let status = response.status().as_u16();
    app.telemetry.request(&served.route, status, arrival.started.elapsed());
    response
}

fn failure_of(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge(_) => Failure::TooLarge,
        BodyError::Overloaded => Failure::Overload,
        BodyError::Timeout | BodyError::Broken => Failure::BodyLost,
    }
}
