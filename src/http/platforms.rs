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
use rtad_http::timing::RequestTiming;
use tower_service::Service;

use super::decision_app::{App, Load};
use crate::catalog::Live;
use crate::platform::{Admission, Failure, Head};

/// Answers platforms' requests, and passes all others to a router. It looks up platforms' paths in
/// the catalog, which a reload replaces.
#[derive(Debug, Clone)]
pub struct PlatformService {
    app: Arc<App>,
    router: Router,
}

impl PlatformService {
    pub(super) const fn new(app: Arc<App>, router: Router) -> Self {
        Self { app, router }
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

    fn call(&mut self, TimedRequest { mut request, timing }: TimedRequest) -> Self::Future {
        if self.app.serving.load().platform_at(request.uri().path()).is_some() {
            let app = Arc::clone(&self.app);
            return Either::Left(Box::pin(async move { Ok(answer(&app, timing, request).await) }));
        }
        request.extensions_mut().insert(timing);
        Either::Right(self.router.call(request))
    }
}

async fn answer(app: &App, timing: RequestTiming, request: Request<Incoming>) -> Response {
    let (head, body) = request.into_parts();
    let in_flight = app.telemetry.begin();
    let load = app.load();
    let body = match load {
        Load::Normal => app.read_body(body, app.max_body).await.map_err(failure_of),
        // Does not wait for a body.
        Load::TooHigh => app.take_body(body).await.ok_or(Failure::Overload),
    };
    // Loaded after the last await: a slow body holds no generation.
    let catalog = app.serving.load();
    let Some(served) = catalog.platform_at(head.uri.path()) else {
        // A reload has removed the platform.
        drop(in_flight);
        return app.no_route(timing).await;
    };
    let head = Head { headers: &head.headers, query: head.uri.query() };
    let mut decider = match load {
        Load::Normal => Live::new(&catalog, served, &app.ids),
        Load::TooHigh => {
            served.count_failure(Failure::Overload);
            Live::unavailable(&catalog, served, &app.ids)
        }
    };
    let answered = served.platform.respond(Admission::ByHeaders, &head, body, &mut decider);
    // A shed request was counted above.
    let is_counted = |failure: &Failure| load == Load::TooHigh && *failure == Failure::Overload;
    if let Some(failure) = answered.failure.filter(|failure| !is_counted(failure)) {
        served.count_failure(failure);
    }
    let mut response = Response::new(answered.bytes.into());
    if let Some(content_type) = served.platform.content_type() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    drop(in_flight);
    app.close_if_draining(&mut response);
    let status = response.status().as_u16();
    app.telemetry.request(&served.route, status, timing.started.elapsed());
    response
}

fn failure_of(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge(_) => Failure::TooLarge,
        BodyError::Overloaded => Failure::Overload,
        BodyError::Timeout | BodyError::Broken => Failure::BodyLost,
    }
}
