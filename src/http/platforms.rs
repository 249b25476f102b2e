//! Requests of platforms: every answer has status 200 and follows the platform's protocol.
//!
//! Platforms do not always read another status, or an empty body, as a no-bid. So every failure,
//! from an unreadable body to a panic, becomes the strategies' `unavailable` decision
//! ([`crate::platform::Platform::respond`]). A counter records the cause.

use std::time::Instant;

use axum::http::request::Parts;
use hyper::body::Incoming;
use rtad_http::request_error::RequestError;
use rtad_http::room::Share;
use rtad_log::Raw;

use super::decision_app::{AnswerBody, App, DecisionAnswer, ROUTES};
use crate::catalog::PlatformRequest;
use crate::log::LoggedAnswer;
use crate::platform::{Admission, Failure, Purpose, Read, RequestHead};
use crate::telemetry::Route;

/// Answers a request to the path of a platform.
pub fn answer(
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
        let wait = |length| {
            let catalog = app.serving.load();
            let served = catalog.platform_at(head.uri.path())?;
            served
                .platform
                .access
                .admits(&head.headers)
                .then(|| app.permit(length, Share::Whole))?
        };
        let body = app
            .read_body(body, app.max_body, wait)
            .await
            .map(|read| read.bytes)
            .map_err(failure_of);
        // Loaded after the last await: a slow body holds no generation.
        let catalog = app.serving.load();
        let Some(served) = catalog.platform_at(head.uri.path()) else {
            // A reload has removed the platform.
            drop(in_flight);
            let unknown = app.telemetry.route(Route::Unknown);
            return app.finish(
                unknown,
                started,
                head.headers,
                Err(RequestError::NotFound(ROUTES).into()),
            );
        };
        let seen = RequestHead {
            headers: &head.headers,
            query: head.uri.query(),
        };
        let answered = {
            let mut read = Read::default();
            let mut logged = app.log.as_ref().map(|log| log.begin());
            let platform = &served.platform.name;
            let answer_of = |failure, raw| LoggedAnswer {
                platform,
                failure,
                raw,
                started,
            };
            let answered = served.platform.respond(
                Admission::ByHeaders,
                seen,
                &body,
                &mut read,
                |read, verdicts| {
                    let (reader, at) = (&*app.ids, started);
                    let request = PlatformRequest {
                        served,
                        reader,
                        read,
                        at,
                    };
                    catalog.decide_request(&request, verdicts, |keys, assignments, verdicts| {
                        if let Some(entry) = &mut logged {
                            entry.decided(&catalog, &request, keys, assignments, verdicts);
                            if read.is_of_batch() {
                                // The body has the ids of other devices.
                                entry.finish_device(&catalog, &answer_of(None, None));
                            }
                        }
                    });
                },
            );
            if let Some(entry) = logged {
                let bytes = body.as_ref().map_or(&b""[..], |body| body);
                let raw = Raw {
                    query: seen.query,
                    body: bytes,
                };
                let raw = Some(raw).filter(|_| read.purpose != Purpose::Devices);
                entry.finish(&catalog, &answer_of(answered.failure(), raw));
            }
            answered
        };
        if let Some(failure) = answered.failure() {
            served.count_failure(failure);
        }
        drop(in_flight);
        let content = AnswerBody {
            media_type: served.platform.content_type(),
            bytes: answered.bytes,
        };
        app.finish(&served.route, started, head.headers, Ok(content))
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
