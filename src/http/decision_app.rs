//! State of the decision port, and bodies, metrics and draining of its requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::{Either, Full};
use rtad_http::body::{self, BodyLimits, ReadBody};
use rtad_http::request_error::RequestError;
use rtad_http::room::{BodyPermit, BodyRoom, Share};
use tokio::sync::Mutex;

use crate::catalog::Serving;
use crate::log::LogTap;
use crate::platform::IdReader;
use crate::sync::Readiness;
use crate::telemetry::{RouteMetrics, Telemetry};

/// The decision port's own routes, for errors.
pub(super) const ROUTES: &str = "/v1/check/{audience}/{id}, /v1/check/{audience}, /v1/decide";

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

/// The body of an answer: of the hot paths, or of the router.
pub(super) type DecisionBody = Either<Full<Bytes>, Body>;

/// An answer of the decision port.
pub(super) type DecisionAnswer = Response<DecisionBody>;

/// The body of a 200, and its media type.
#[derive(Debug)]
pub(super) struct AnswerBody {
    pub(super) media_type: Option<&'static str>,
    pub(super) bytes: Bytes,
}

impl AnswerBody {
    pub(super) fn json(bytes: impl Into<Bytes>) -> Self {
        Self {
            media_type: Some("application/json"),
            bytes: bytes.into(),
        }
    }

    /// An answer in the header map of its request: hyper reads the connection's next request into
    /// the same map, so that nearly no request allocates one.
    pub(super) fn into_answer(self, mut headers: HeaderMap) -> DecisionAnswer {
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
    pub(super) fn finish<B>(
        &self,
        route: &RouteMetrics,
        started: Instant,
        answer: &mut Response<B>,
    ) {
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
    pub(super) fn read_body<'a, B>(
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
    pub(super) fn permit(&self, length: usize, share: Share) -> Option<BodyPermit<'_>> {
        let permit = self.room.take(length, share);
        if permit.is_none() {
            self.telemetry.shed();
        }
        permit
    }
}
