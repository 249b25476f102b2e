//! The platforms' routes: each is answered in its platform's own words, with 200, whatever happens.
//!
//! A platform reads any other status, and an empty body too, as it pleases, and not always as a no-bid. So what goes wrong here, from
//! a body that does not parse to a panic, becomes the strategies' `unavailable` decision ([`crate::platform::Platform::respond`]), and
//! a counter says what it was.

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;

use super::error::{self, ApiError};
use super::turn::Turn;
use super::{Answer, App, Load, body};
use crate::catalog::Live;
use crate::platform::{Admission, Failure, Head};

/// Whatever no other route has matched: a platform's request, if one asks at this path.
pub(super) async fn answer(app: &App, turn: Turn, head: &Parts, body: Incoming) -> Answer {
    if app.serving.load().platform_at(head.uri.path()).is_none() {
        return error::no_route(app, turn).await;
    }
    let in_flight = app.telemetry.begin();
    let load = app.load();
    let body = match load {
        Load::Normal => app.read_body(body, app.max_body).await.map_err(failure_of),
        // One whose body has still to come is not read.
        Load::TooHigh => {
            body::take_or_drop(body, app.max_body, app.body_timeout).await.ok_or(Failure::Overload)
        }
    };
    // Loaded after the last await: no generation is held while a slow body trickles in.
    let catalog = app.serving.load();
    let Some(served) = catalog.platform_at(head.uri.path()) else {
        // A reload has taken it away meanwhile.
        return error::problem_of_no_route();
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
    // What is shed has been counted so.
    let is_counted = |failure: &Failure| load == Load::TooHigh && *failure == Failure::Overload;
    if let Some(failure) = answered.failure.filter(|failure| !is_counted(failure)) {
        served.count_failure(failure);
    }
    let mut response = Answer::new(answered.bytes.into());
    if let Some(content_type) = served.platform.content_type() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    drop(in_flight);
    app.close_if_draining(&mut response);
    app.telemetry.request(&served.route, response.status().as_u16(), turn.begun.elapsed());
    response
}

fn failure_of(error: ApiError) -> Failure {
    match error {
        ApiError::TooLarge(_) => Failure::TooLarge,
        ApiError::Overloaded => Failure::Overload,
        _ => Failure::BodyLost,
    }
}
