//! The platforms' routes: each is answered in its platform's own words, with 200, whatever happens.
//!
//! A platform reads any other status, and an empty body too, as it pleases, and not always as a no-bid. So what goes wrong here, from
//! a body that does not parse to a panic, becomes the strategies' `unavailable` decision, and a counter says what it was.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Request};
use axum::response::Response;
use bytes::Bytes;

use super::error::{self, ApiError};
use super::{App, body};
use crate::catalog::{Catalog, Live, ServedPlatform};
use crate::platform::{Failure, Head, IdReader};

/// Whatever no other route has matched: a platform's request, if one asks at this path.
pub(super) async fn answer(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    if app.serving.load().platform_at(request.uri().path()).is_none() {
        return error::no_route(State(app)).await;
    }
    let begun = Instant::now();
    let place = app.telemetry.enter(app.max_in_flight);
    let (head, body) = request.into_parts();
    let body = match &place {
        Some(_) => body::read(body, app.max_body, app.body_timeout).await.map_err(failure_of),
        // One whose body has still to come is not waited for.
        None => body::take_if_here(body, app.max_body).await.ok_or(Failure::Overload),
    };
    // Loaded after the last await: no generation is held while a slow body trickles in.
    let catalog = app.serving.load();
    let Some(served) = catalog.platform_at(head.uri.path()) else {
        // A reload has taken it away meanwhile.
        return error::problem_of_no_route();
    };
    let question = Question { catalog: &catalog, served, ids: &app.ids };
    let head = Head { headers: &head.headers, query: head.uri.query() };
    let answer = question.answered(|| match &place {
        Some(_) => served.platform.answer(&head, body, &mut question.live()),
        None => {
            served.count_failure(Failure::Overload);
            served.platform.answer(&head, body, &mut question.unavailable())
        }
    });
    let mut response = Response::new(answer.into());
    if let Some(content_type) = served.platform.content_type() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    drop(place);
    app.close_if_draining(&mut response);
    app.telemetry.request(&served.route, response.status().as_u16(), begun.elapsed());
    response
}

fn failure_of(error: ApiError) -> Failure {
    match error {
        ApiError::TooLarge(_) => Failure::TooLarge,
        _ => Failure::BodyLost,
    }
}

/// A platform's request, and all that its answer is made of.
struct Question<'a> {
    catalog: &'a Catalog,
    served: &'a ServedPlatform,
    ids: &'a IdReader,
}

impl Question<'_> {
    fn live(&self) -> Live<'_> {
        Live::new(self.catalog, self.served, self.ids)
    }

    fn unavailable(&self) -> Live<'_> {
        Live::unavailable(self.catalog, self.served, self.ids)
    }

    /// The answer's bytes, or those that stand for it when it fails.
    fn answered(&self, answer: impl FnOnce() -> Result<Bytes, Failure>) -> Bytes {
        let platform = &self.served.platform;
        let failure = match caught(answer) {
            Some(Ok(answer)) => return answer,
            Some(Err(failure)) => failure,
            None => Failure::Internal,
        };
        // An overload has been counted when it was found.
        if failure != Failure::Overload {
            self.served.count_failure(failure);
        }
        if failure.is_of_a_stranger() {
            return platform.refusal();
        }
        caught(|| platform.unavailable(&mut self.unavailable())).unwrap_or_else(|| platform.refusal())
    }
}

/// What `work` returns, unless it panics; the panic has been logged by its place.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Audience;
    use crate::device::KeyMaker;
    use crate::platform::{Access, Adapter, CacheTimes, Platform, StrategyIds, Tencent};
    use crate::strategy::{Outcome, Strategy};
    use crate::telemetry::Telemetry;

    fn strategy(name: &str, unavailable: Outcome) -> Strategy {
        let (exclude, include, no_device) = (vec![0], Vec::new(), Outcome::NoBid);
        Strategy { name: name.to_owned(), exclude, include, no_device, unavailable }
    }

    /// What is answered when `answer` fails, and the metrics after that.
    fn after(answer: impl FnOnce() -> Result<Bytes, Failure>, last_place: usize) -> (String, String) {
        let telemetry = Telemetry::default();
        let audience = Audience::unloaded("old_users".parse().unwrap(), false, None);
        let strategies = vec![strategy("careful", Outcome::NoBid), strategy("bold", Outcome::Bid)];
        let ids = [(Bytes::from_static(b"c"), 0), (Bytes::from_static(b"b"), last_place)].to_vec();
        let platform = Platform {
            name: "tencent".to_owned(),
            path: "/rta".to_owned(),
            access: Access::default(),
            adapter: Adapter::Tencent(Tencent::new(StrategyIds::new(ids), CacheTimes::default())),
        };
        let catalog = Catalog::new(vec![audience], strategies, vec![Arc::new(platform)], &telemetry);
        let reader = IdReader::new(KeyMaker::default(), &telemetry);
        let served = &catalog.platforms()[0];
        let bytes = Question { catalog: &catalog, served, ids: &reader }.answered(answer);
        (const_hex::encode(bytes), telemetry.render())
    }

    fn count(metrics: &str, series: &str) -> Option<u64> {
        metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    #[test]
    fn a_panic_is_answered_by_each_strategys_own_word_and_counted() {
        for (last_place, expected) in [(0, "1001"), (1, "1000520162")] {
            let (answer, metrics) = after(|| panic!("for a test"), last_place);
            assert_eq!(answer, expected);
            let series = r#"rtad_platform_failures_total{platform="tencent",cause="internal"}"#;
            assert_eq!(count(&metrics, series), Some(1), "{metrics}");
            let labels = r#"platform="tencent",strategy="careful",decision="no_bid",reason="unavailable""#;
            assert_eq!(count(&metrics, &format!("rtad_decisions_total{{{labels}}}")), Some(1), "{metrics}");
        }
    }

    #[test]
    fn every_failure_is_answered_and_counted_and_a_stranger_learns_nothing() {
        for failure in Failure::ALL {
            let (answer, metrics) = after(|| Err(failure), 1);
            let expected = if failure.is_of_a_stranger() { "1001" } else { "1000520162" };
            assert_eq!(answer, expected, "{failure:?}");
            let series =
                format!(r#"rtad_platform_failures_total{{platform="tencent",cause="{}"}}"#, failure.as_str());
            let expected = u64::from(failure != Failure::Overload);
            assert_eq!(count(&metrics, &series), Some(expected), "{failure:?}");
        }
    }
}
