//! The two ports: routes, limits, and answers in HTTP's words. The only place that knows axum.
//!
//! | file | job |
//! |---|---|
//! | `server` | sockets, connections, time-outs, draining |
//! | `body` | a request's body, whole and bounded |
//! | `check`, `decide` | rtad's own routes of the decision port |
//! | `rta` | the platforms' routes of the decision port |
//! | `admin` | the routes of the admin port |
//! | `explain` | why a platform's captured request gets its answer |
//! | `error` | what goes wrong, as `application/problem+json` |

mod admin;
mod body;
mod check;
mod decide;
mod error;
mod explain;
mod rta;
pub mod server;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::FutureExt as _;

pub use admin::{AdminApp, Reload, Reloaded, admin_router};
use error::ApiError;

use crate::catalog::Serving;
use crate::platform::IdReader;
use crate::sync::Readiness;
use crate::telemetry::{Route, Telemetry};

/// What the decision port's handlers share.
#[derive(Debug)]
pub struct App {
    /// What is served.
    pub serving: Arc<Serving>,
    /// Reads ids into keys.
    pub ids: Arc<IdReader>,
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// Whether the process is on its way out.
    pub readiness: Arc<Readiness>,
    /// Largest body in bytes.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Requests being answered; one more is shed.
    pub max_in_flight: usize,
}

/// The decision port's routes: the whole list. Platforms' paths come and go with the catalog, so they are looked up in it.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/check/{audience}/{id}", get(check::one))
        .route("/v1/check/{audience}", post(check::many))
        .route("/v1/decide", post(decide::decide))
        .fallback(rta::answer)
        .method_not_allowed_fallback(error::wrong_method)
        .with_state(app)
}

impl App {
    /// Answers a request under the in-flight limit and counts it. `answer` is told whether it is one too many, and then does no
    /// work that a late answer would not be worth. A panic in it becomes a 500 and costs no other request anything.
    async fn observed<F: Future<Output = Result<Response, ApiError>>>(
        &self,
        route: Route,
        answer: impl FnOnce(Load) -> F,
    ) -> Response {
        let begun = Instant::now();
        let place = self.telemetry.enter(self.max_in_flight);
        let load = if place.is_some() { Load::Normal } else { Load::TooHigh };
        let answered = AssertUnwindSafe(answer(load)).catch_unwind().await;
        let mut response =
            answered.unwrap_or(Err(ApiError::Internal)).unwrap_or_else(|error| error.into_response());
        drop(place);
        self.close_if_draining(&mut response);
        self.telemetry.request(self.telemetry.route(route), response.status().as_u16(), begun.elapsed());
        response
    }

    /// Asks the client of a process that is on its way out to come back elsewhere.
    fn close_if_draining(&self, response: &mut Response) {
        if self.readiness.is_draining() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Whether a request is one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Normal,
    TooHigh,
}

/// A 200 with a JSON body.
fn json(body: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
