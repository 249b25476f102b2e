//! Requests of platforms: every answer has status 200 and follows the platform's protocol.
//!
//! Platforms do not always read another status, or an empty body, as a no-bid. So every failure,
//! from an unreadable body to a panic, becomes the strategies' `unavailable` decision
//! ([`crate::platform::Platform::respond`]). A counter records the cause.

use std::time::Instant;

use axum::http::request::Parts;
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use rtad_http::request_error::RequestError;
use rtad_http::room::Share;
use rtad_log::Raw;

use super::decision_app::{AnswerBody, App, DecisionAnswer, DecisionBody, ROUTES};
use crate::log::{DecidedRead, LoggedAnswer};
use crate::platform::{Admission, Failure, Purpose, Read, RequestHead, Verdicts};
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
        let body = app
            .read_body(body, app.max_body, |length| {
                let catalog = app.serving.load();
                let served = catalog.platform_at(head.uri.path())?;
                let has_credentials = served.platform.access.admits(&head.headers);
                if !has_credentials {
                    return None;
                }
                app.permit(length, Share::Whole)
            })
            .await
            // The bytes are whole: their permit ends here.
            .map(|read| read.bytes)
            .map_err(failure_of);

        // Loaded after the last await: a slow body holds no generation.
        let catalog = app.serving.load();
        let Some(served) = catalog.platform_at(head.uri.path()) else {
            // A reload has removed the platform.
            drop(in_flight);
            let error = RequestError::NotFound(ROUTES);
            let mut answer = error.into_response().map(DecisionBody::Right);
            let unknown = app.telemetry.route(Route::Unknown);
            app.finish(unknown, started, &mut answer);
            return answer;
        };

        let seen = RequestHead {
            headers: &head.headers,
            query: head.uri.query(),
        };

        let mut row = app.log.as_ref().map(|log| log.begin());
        let mut logged = LoggedAnswer {
            platform: &served.platform.name,
            failure: None,
            raw: None,
            started,
        };

        let mut read = Read::default();
        // Called once per device: again after a failure, not at all of a refused caller.
        let decide_and_record = |read: &Read<'_>, verdicts: &mut Verdicts| {
            let mut keys = catalog.no_keys();
            catalog.add_keys(served, &app.ids, read, &mut keys);
            // The memory of the caps is read while the audiences are looked up.
            catalog.prefetch_caps(&keys, started, read.strategies());

            let mut facts = catalog.no_facts(&keys);
            catalog.add_facts(&keys, read, &mut facts);

            catalog.decide(read.strategies(), &facts, verdicts);
            catalog.admit(&keys, started, verdicts);
            catalog.count(served, &facts, verdicts);

            if let Some(row) = &mut row {
                let decided = DecidedRead {
                    read,
                    keys: &keys,
                    facts: &facts,
                    verdicts,
                    at: started,
                };
                row.decided(&catalog, &decided);
                if read.is_of_batch() {
                    // The body has the ids of other devices.
                    row.finish_device(&catalog, &logged);
                }
            }
            catalog.remove_shadow(verdicts);
        };
        let answered = served.platform.respond(
            Admission::ByHeaders,
            seen,
            &body,
            &mut read,
            decide_and_record,
        );

        if let Some(row) = row {
            logged.failure = answered.failure();
            if read.purpose != Purpose::Devices {
                logged.raw = Some(Raw {
                    query: seen.query,
                    body: body.as_deref().unwrap_or_default(),
                });
            }
            row.finish(&catalog, &logged);
        }
        drop(read);

        if let Some(failure) = answered.failure() {
            served.count_failure(failure);
        }
        drop(in_flight);

        let content = AnswerBody {
            media_type: served.platform.content_type(),
            bytes: answered.bytes,
        };
        let mut answer = content.into_answer(head.headers);
        app.finish(&served.route, started, &mut answer);
        answer
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
