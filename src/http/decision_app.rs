//! State of the decision port, and bodies, metrics and draining of each request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{ALLOW, CONNECTION, WWW_AUTHENTICATE};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::Body;
use rtad_http::body::{self, BodyError, BodyLimits};
use rtad_http::timing::Arrival;
use rtad_http::unfinished::{Unfinished, UnfinishedPermit};

use super::error::ApiError;
use crate::catalog::Serving;
use crate::platform::IdReader;
use crate::sync::Readiness;
use crate::telemetry::{Route, Telemetry};

/// The decision port's own routes, for errors.
const ROUTES: &str = "/v1/check/{audience}/{id}, /v1/check/{audience}, /v1/decide";

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
    /// Longest queueing delay of a batch; one that waited longer is shed.
    pub max_wait: Duration,
    /// Requests that wait for the rest of their bodies; over a limit, a further one is shed.
    pub unfinished: Arc<Unfinished>,
    /// Whether rtad's own routes have a port of their own.
    pub has_api_port: bool,
}

impl App {
    /// Answers a request and counts it. A panic in `answer` becomes a 500 and affects no other
    /// request.
    pub(super) async fn with_metrics(
        &self,
        route: Route,
        arrival: Arrival,
        answer: impl Future<Output = Result<Response, ApiError>>,
    ) -> Response {
        let in_flight = self.telemetry.begin();
        let answered = AssertUnwindSafe(answer).catch_unwind().await;
        let answered = answered.unwrap_or(Err(ApiError::Internal));
        let mut response = answered.unwrap_or_else(ApiError::into_response);
        drop(in_flight);
        self.close_if_draining(&mut response);
        let status = response.status().as_u16();
        self.telemetry.request(self.telemetry.route(route), status, arrival.started.elapsed());
        response
    }

    /// Reads a request's body. Waiting for the rest of an incomplete one needs a permit.
    ///
    /// # Errors
    ///
    /// [`BodyError`], [`BodyError::Overloaded`] without a permit.
    pub(super) async fn read_body<B>(
        &self,
        body: B,
        max_bytes: usize,
        arrival: Arrival,
    ) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
    {
        self.read_body_if(body, max_bytes, || self.permit(arrival)).await
    }

    /// Reads a body. Waits for an incomplete one only with a permit from `wait`.
    pub(super) async fn read_body_if<B, P>(
        &self,
        body: B,
        max_bytes: usize,
        wait: impl FnOnce() -> Option<P>,
    ) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
    {
        body::read(body, BodyLimits { max_bytes, timeout: self.body_timeout }, wait).await
    }

    /// A permit to wait for a body; `None`, counted as shed, at a limit.
    pub(super) fn permit(&self, arrival: Arrival) -> Option<UnfinishedPermit<'_>> {
        let permit = self.unfinished.permit(arrival.peer);
        if permit.is_none() {
            self.telemetry.shed();
        }
        permit
    }

    /// The answer to an unknown path.
    pub(super) async fn no_route(&self, arrival: Arrival) -> Response {
        self.with_metrics(Route::Unknown, arrival, async { Err(ApiError::NotFound(ROUTES)) }).await
    }

    /// The answer to a path that is not a platform's, if the port has no other routes. It names no
    /// route.
    pub(super) async fn no_api(&self, arrival: Arrival) -> Response {
        let answer = async { Err(ApiError::NotFound("the paths of platforms")) };
        self.with_metrics(Route::Unknown, arrival, answer).await
    }

    /// The answer to a request for rtad's own routes without an accepted token.
    pub(super) async fn no_token(&self, arrival: Arrival) -> Response {
        let answer = async { Err(ApiError::Unauthorized) };
        let mut response = self.with_metrics(Route::Unknown, arrival, answer).await;
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    }

    /// The answer to a method that is not in `allowed`.
    pub(super) async fn wrong_method(&self, arrival: Arrival, allowed: &'static str) -> Response {
        let answer = async { Err(ApiError::MethodNotAllowed) };
        let mut response = self.with_metrics(Route::Unknown, arrival, answer).await;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        response
    }

    /// Adds `Connection: close` while the process drains.
    pub(super) fn close_if_draining(&self, response: &mut Response) {
        if self.readiness.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}
