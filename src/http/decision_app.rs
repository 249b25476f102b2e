//! State of the decision port, and load, metrics and draining of each request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{ALLOW, CONNECTION};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::FutureExt as _;
use hyper::body::Body;
use rtad_http::body::{self, BodyError, BodyLimits};
use rtad_http::timing::RequestTiming;

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
    /// Requests that may wait for their bodies; a further one is shed.
    pub max_in_flight: usize,
}

/// The load: a request is answered or shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    Normal,
    TooHigh,
}

impl App {
    /// Answers a request under the in-flight limit and counts it. Under [`Load::TooHigh`] `answer`
    /// sheds the request. A panic in `answer` becomes a 500 and affects no other request.
    pub(super) async fn with_metrics<F: Future<Output = Result<Response, ApiError>>>(
        &self,
        route: Route,
        timing: RequestTiming,
        answer: impl FnOnce(Load) -> F,
    ) -> Response {
        let in_flight = self.telemetry.begin();
        let load = match route {
            Route::CheckMany => self.load_of_batch(timing),
            _ => self.load(),
        };
        let answered = AssertUnwindSafe(answer(load)).catch_unwind().await;
        let answered = answered.unwrap_or(Err(ApiError::Internal));
        let mut response = answered.unwrap_or_else(ApiError::into_response);
        drop(in_flight);
        self.close_if_draining(&mut response);
        let status = response.status().as_u16();
        self.telemetry.request(self.telemetry.route(route), status, timing.started.elapsed());
        response
    }

    /// The load for a new request.
    pub(super) fn load(&self) -> Load {
        match self.telemetry.is_full(self.max_in_flight) {
            true => Load::TooHigh,
            false => Load::Normal,
        }
    }

    /// The load for a batch. A batch with a long queueing delay is shed, in favor of bid requests
    /// on the same worker.
    fn load_of_batch(&self, timing: RequestTiming) -> Load {
        if timing.queued > self.max_wait {
            self.telemetry.shed();
            return Load::TooHigh;
        }
        self.load()
    }

    /// Reads a request's body. While it is incomplete, it counts towards `max_in_flight`.
    pub(super) async fn read_body<B>(&self, body: B, max_bytes: usize) -> Result<Bytes, BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let limits = self.body_limits(max_bytes);
        body::read(body, limits, || self.telemetry.wait(self.max_in_flight)).await
    }

    /// Takes a body that has already arrived.
    pub(super) async fn take_body<B>(&self, body: B) -> Option<Bytes>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        body::take_or_discard(body, self.body_limits(self.max_body)).await
    }

    const fn body_limits(&self, max_bytes: usize) -> BodyLimits {
        BodyLimits { max_bytes, timeout: self.body_timeout }
    }

    /// The answer to an unknown path.
    pub(super) async fn no_route(&self, timing: RequestTiming) -> Response {
        self.with_metrics(Route::Unknown, timing, async |_| Err(ApiError::NotFound(ROUTES))).await
    }

    /// The answer to a method that is not in `allowed`.
    pub(super) async fn wrong_method(
        &self,
        timing: RequestTiming,
        allowed: &'static str,
    ) -> Response {
        let answer = async |_| Err(ApiError::MethodNotAllowed);
        let mut response = self.with_metrics(Route::Unknown, timing, answer).await;
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
