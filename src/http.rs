//! The two ports: routes, limits, and answers in HTTP's words. The only place that knows hyper and axum.
//!
//! The admin port is axum's. The decision port has four routes, which stand below, and nothing between hyper and them: a router boxes
//! its futures and bodies, for each request.
//!
//! | file | job |
//! |---|---|
//! | `server` | sockets, the acceptor, workers |
//! | `connections` | connections of one runtime: idle time-out, draining |
//! | `turn` | how long a request has waited for its worker |
//! | `body` | a request's body, whole and bounded |
//! | `check`, `decide` | rtad's own routes of the decision port |
//! | `rta` | the platforms' routes of the decision port |
//! | `admin` | the routes of the admin port |
//! | `explain` | why a captured request of a platform, or an id, gets the answer it gets |
//! | `shards` | how many keys each shard has |
//! | `console` | the page for people, in `http/console/` |
//! | `tagged` | answers that a client may keep |
//! | `origin` | requests that another site's page has a browser send |
//! | `error` | what goes wrong, as `application/problem+json` |

mod admin;
mod body;
mod check;
pub mod connections;
mod console;
mod decide;
mod error;
mod explain;
mod origin;
mod rta;
pub mod server;
mod shards;
mod tagged;
mod turn;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::service::Service as _;
use hyper::{Method, Request, Response};
use hyper_util::service::TowerToHyperService;

use admin::admin_router;
pub use admin::{AdminApp, Reload, Reloaded};
use connections::Handler;
use error::ApiError;
use turn::Turn;

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
    /// A batch whose head has waited so long for its turn is shed.
    pub max_wait: Duration,
    /// Requests that wait for their bodies; one more is shed.
    pub max_in_flight: usize,
}

/// An answer of the decision port: all of it is there at once.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Of a path, the route that is rtad's own.
#[derive(Debug, PartialEq, Eq)]
enum Own<'a> {
    CheckOne { audience: &'a str, id: &'a str },
    CheckMany { audience: &'a str },
    Decide,
}

impl<'a> Own<'a> {
    fn of(path: &'a str) -> Option<Self> {
        if path == "/v1/decide" {
            return Some(Self::Decide);
        }
        let rest = path.strip_prefix("/v1/check/")?;
        let (audience, id) = rest.split_once('/').map_or((rest, None), |(audience, id)| (audience, Some(id)));
        match id {
            _ if audience.is_empty() => None,
            None => Some(Self::CheckMany { audience }),
            Some(id) => (!id.is_empty() && !id.contains('/')).then_some(Self::CheckOne { audience, id }),
        }
    }
}

/// Answers what comes to the decision port.
#[derive(Debug, Clone)]
pub struct DecisionPort(pub Arc<App>);

impl Handler for DecisionPort {
    type Body = Full<Bytes>;

    async fn answer(&self, request: Request<Incoming>, turn: Turn) -> Answer {
        answer(&self.0, request, turn).await
    }
}

/// Answers what comes to the admin port.
#[derive(Debug, Clone)]
pub struct AdminPort(Router);

impl AdminPort {
    /// Its routes.
    pub fn new(app: Arc<AdminApp>) -> Self {
        Self(admin_router(app))
    }
}

impl Handler for AdminPort {
    type Body = axum::body::Body;

    async fn answer(&self, request: Request<Incoming>, _: Turn) -> Response<axum::body::Body> {
        if origin::is_cross_site(request.method(), request.headers()) {
            return ApiError::CrossSite.into_response();
        }
        let answered = TowerToHyperService::new(self.0.clone()).call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// Answers a request of the decision port. Platforms' paths come and go with the catalog, so they are looked up in it.
async fn answer(app: &App, request: Request<Incoming>, turn: Turn) -> Answer {
    let (head, body) = request.into_parts();
    match (Own::of(head.uri.path()), &head.method) {
        (Some(Own::CheckOne { audience, id }), &Method::GET | &Method::HEAD) => {
            check::one(app, turn, audience, id, head.uri.query()).await
        }
        (Some(Own::CheckOne { .. }), _) => error::wrong_method(app, turn, "GET, HEAD").await,
        (Some(Own::CheckMany { audience }), &Method::POST) => {
            check::many(app, turn, audience, &head.headers, body).await
        }
        (Some(Own::Decide), &Method::POST) => decide::decide(app, turn, body).await,
        (Some(_), _) => error::wrong_method(app, turn, "POST").await,
        (None, _) => rta::answer(app, turn, &head, body).await,
    }
}

impl App {
    /// Answers a request under the in-flight limit and counts it. `answer` is told whether it is one too many, and then does no
    /// work that a late answer would not be worth. A panic in it becomes a 500 and costs no other request anything.
    async fn observed<F: Future<Output = Result<Answer, ApiError>>>(
        &self,
        route: Route,
        turn: Turn,
        answer: impl FnOnce(Load) -> F,
    ) -> Answer {
        let in_flight = self.telemetry.begin();
        let load = match route {
            Route::CheckMany => self.load_of_bulk(turn),
            _ => self.load(),
        };
        let answered = AssertUnwindSafe(answer(load)).catch_unwind().await;
        let mut response = answered.unwrap_or(Err(ApiError::Internal)).unwrap_or_else(Answer::from);
        drop(in_flight);
        self.close_if_draining(&mut response);
        self.telemetry.request(self.telemetry.route(route), response.status().as_u16(), turn.begun.elapsed());
        response
    }

    /// Whether a request that has just come is one too many.
    fn load(&self) -> Load {
        if self.telemetry.is_full(self.max_in_flight) { Load::TooHigh } else { Load::Normal }
    }

    /// The same of what is asked in bulk: that gives way to what is asked before an impression, whose worker it would keep.
    fn load_of_bulk(&self, turn: Turn) -> Load {
        if turn.waited > self.max_wait {
            self.telemetry.shed();
            return Load::TooHigh;
        }
        self.load()
    }

    /// A request's body. While it has still to come, it is one of those that `max_in_flight` limits.
    async fn read_body(&self, body: Incoming, limit: usize) -> Result<Bytes, ApiError> {
        body::read(body, limit, self.body_timeout, || self.telemetry.wait(self.max_in_flight)).await
    }

    /// Asks the client of a process that is on its way out to come back elsewhere.
    fn close_if_draining(&self, response: &mut Answer) {
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
fn json(body: impl Into<Bytes>) -> Answer {
    let mut response = Answer::new(Full::new(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtads_own_routes_are_told_from_all_other_paths() {
        let one = |audience, id| Some(Own::CheckOne { audience, id });
        for (path, route) in [
            ("/v1/decide", Some(Own::Decide)),
            ("/v1/check/a", Some(Own::CheckMany { audience: "a" })),
            ("/v1/check/a/b", one("a", "b")),
            ("/v1/check/a%2Fb/c%2Fd", one("a%2Fb", "c%2Fd")),
            ("/v1/check/a/b/", None),
            ("/v1/check/a/b/c", None),
            ("/v1/check/a/", None),
            ("/v1/check//b", None),
            ("/v1/check/", None),
            ("/v1/check", None),
            ("/v1/decide/", None),
            ("/V1/decide", None),
            ("//v1/decide", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(Own::of(path), route, "{path}");
        }
    }
}
