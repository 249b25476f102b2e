//! A configured platform, and its answer to every request, including unreadable bodies,
//! unauthorized callers and panics.
//!
//! Platforms do not always read an invalid answer as a no-bid, so every failure gets a valid one.
//! Serving and explaining use the same function, so their answers are equal. Failures are returned,
//! not counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::access::Access;
use super::adapter::{Adapter, Admission, Head};
use super::decider::{Decider, Failure};

/// One configured platform.
#[derive(Debug)]
pub struct Platform {
    /// Its name in metrics, and for `explain`.
    pub name: String,
    /// The path of its requests.
    pub path: String,
    /// The headers that admit a caller.
    pub access: Access,
    /// Its protocol.
    pub adapter: Box<dyn Adapter>,
}

/// An answer, and the failure if it does not depend on the request's ids.
#[derive(Debug)]
pub struct Answered {
    /// The answer's bytes.
    pub bytes: Bytes,
    /// The cause of an answer that ignores the ids.
    pub failure: Option<Failure>,
}

impl Platform {
    /// Answers a request. After a failure, every configured strategy gives its `unavailable`
    /// answer. An unauthorized caller gets a refusal, as does everyone after a second failure.
    #[inline]
    pub fn respond(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Result<Bytes, Failure>,
        decider: &mut dyn Decider,
    ) -> Answered {
        let answered = caught(|| match admission {
            Admission::ByHeaders => self.answer(head, body, decider),
            Admission::Granted => self.adapter.answer(admission, head, body?, decider),
        });
        match answered {
            Some(Ok(bytes)) => Answered { bytes, failure: None },
            Some(Err(failure)) => self.failed(failure, decider),
            None => self.failed(Failure::Internal, decider),
        }
    }

    /// Answers a request: passes the body's ids to `decider`, gets the decisions of the requested
    /// strategies, and writes the answer.
    ///
    /// # Errors
    ///
    /// The reason why the ids were not used, which [`Platform::respond`] turns into an answer. For
    /// an unauthorized caller this is always [`Failure::Unauthorized`], even with a broken body.
    #[inline]
    pub fn answer(
        &self,
        head: &Head<'_>,
        body: Result<Bytes, Failure>,
        decider: &mut dyn Decider,
    ) -> Result<Bytes, Failure> {
        if !self.access.admits(head.headers) {
            return Err(Failure::Unauthorized);
        }
        self.adapter.answer(Admission::ByHeaders, head, body?, decider)
    }

    /// The answers' media type, if the platform requires one.
    pub fn content_type(&self) -> Option<&'static str> {
        self.adapter.content_type()
    }

    /// Its strategy ids as text, in the config's order, with the indexes of their strategies.
    pub fn strategy_ids(&self) -> Vec<(String, usize)> {
        self.adapter.strategy_ids()
    }

    /// Indexes of its ids' strategies, one per id.
    pub fn strategies(&self) -> impl Iterator<Item = usize> {
        self.strategy_ids().into_iter().map(|(_, strategy)| strategy)
    }

    /// The protocol's `kind` in the config.
    pub fn kind(&self) -> &'static str {
        self.adapter.kind()
    }

    /// An answer as text: one line per field that is set.
    pub fn describe_answer(&self, answer: &[u8]) -> String {
        let described = self.adapter.describe_answer(answer);
        described.unwrap_or_else(|error| format!("not an answer of this protocol: {error}"))
    }

    fn failed(&self, failure: Failure, decider: &mut dyn Decider) -> Answered {
        let bytes = if failure.is_auth_failure() {
            self.adapter.refusal()
        } else {
            let unavailable = || {
                decider.give_up();
                self.adapter.unavailable(decider)
            };
            caught(unavailable).unwrap_or_else(|| self.adapter.refusal())
        };
        Answered { bytes, failure: Some(failure) }
    }
}

/// The result of `work`; `None` if it panics, which the panic hook logs. The decider may be used
/// again: no interrupted step leaves it inconsistent.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;
    use crate::platform::{CacheTimes, Id, Secret, StrategyIds, Tencent};
    use crate::strategy::{Decision, Outcome, Reason};

    /// Panics on every decision; if `recovers`, only until `give_up`.
    struct Faulty {
        recovers: bool,
        gave_up: bool,
    }

    impl Decider for Faulty {
        fn id(&mut self, _: Id<'_>) {}

        fn doubtful(&mut self, _: Id<'_>) {}

        fn decide(&mut self, _: usize) -> Decision {
            assert!(self.recovers && self.gave_up, "a fault");
            Decision { outcome: Outcome::Bid, reason: Reason::Unavailable }
        }

        fn give_up(&mut self) {
            self.gave_up = true;
        }
    }

    fn responded(
        admission: Admission,
        body: Result<&'static [u8], Failure>,
        recovers: bool,
    ) -> Answered {
        let ids = StrategyIds::new(vec![(Bytes::from_static(b"T"), 0)]);
        let platform = Platform {
            name: "tencent".to_owned(),
            path: "/rta".to_owned(),
            access: Access::any_of(vec![(HeaderName::from_static("x-key"), Secret::new("k"))]),
            adapter: Box::new(Tencent::new(ids, CacheTimes::default())),
        };
        let head = Head { headers: &HeaderMap::new(), query: None };
        platform.respond(
            admission,
            &head,
            body.map(Bytes::from_static),
            &mut Faulty { recovers, gave_up: false },
        )
    }

    const UNAVAILABLE: &[u8] = b"\x10\x00\x52\x01T";
    const REFUSAL: &[u8] = b"\x10\x01";

    #[test]
    fn every_failure_gets_a_valid_answer() {
        for (admission, body, recovers, failure, answer) in [
            (Admission::Granted, Ok(&b"\x18\x01"[..]), true, Failure::Internal, UNAVAILABLE),
            (Admission::Granted, Ok(b"\x18\x01"), false, Failure::Internal, REFUSAL),
            (Admission::Granted, Ok(b""), true, Failure::BadBody, UNAVAILABLE),
            (Admission::Granted, Ok(b"\xff"), true, Failure::BadBody, UNAVAILABLE),
            (Admission::Granted, Err(Failure::TooLarge), true, Failure::TooLarge, UNAVAILABLE),
            (Admission::ByHeaders, Ok(b""), true, Failure::Unauthorized, REFUSAL),
            (Admission::ByHeaders, Err(Failure::TooLarge), true, Failure::Unauthorized, REFUSAL),
        ] {
            let answered = responded(admission, body, recovers);
            assert_eq!((answered.failure, &answered.bytes[..]), (Some(failure), answer));
        }
    }
}
