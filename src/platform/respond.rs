//! A configured platform, and an answer whatever happens: to a body that does not parse, to a
//! caller who is not the platform, and when the code panics.
//!
//! A platform reads anything but an answer of its protocol as it pleases, and not always as a
//! no-bid. So every failure has an answer here, and one function makes it for serving and for
//! explaining: the two cannot come to differ.
//!
//! A failure is returned, not counted.

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

/// An answer, and what went wrong if it is not made of the request's ids.
#[derive(Debug)]
pub struct Answered {
    /// The answer's bytes.
    pub bytes: Bytes,
    /// Why it is not the answer that the ids would have got.
    pub failure: Option<Failure>,
}

impl Platform {
    /// Answers a request. If that fails the decider is told to give up and every configured
    /// strategy gives its `unavailable` answer; a caller who is not the platform gets a refusal,
    /// and so does everybody if even that fails.
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

    /// Answers a request: reads the body's ids into `decider`, asks it about the strategies that
    /// the request asks about, and writes the answer.
    ///
    /// # Errors
    ///
    /// Why the ids were not asked for; [`Platform::respond`] has an answer to that too. A body that
    /// failed is reported only to an admitted caller: others learn nothing by a broken one.
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

    /// The answers' media type, where the platform wants one.
    pub fn content_type(&self) -> Option<&'static str> {
        self.adapter.content_type()
    }

    /// Its strategy ids as text, in the config's order, with the indices of the strategies that
    /// they stand for.
    pub fn strategy_ids(&self) -> Vec<(String, usize)> {
        self.adapter.strategy_ids()
    }

    /// Indices of the strategies that its ids stand for; one that several stand for comes as often.
    pub fn strategies(&self) -> impl Iterator<Item = usize> {
        self.strategy_ids().into_iter().map(|(_, strategy)| strategy)
    }

    /// The word for its protocol in the config.
    pub fn kind(&self) -> &'static str {
        self.adapter.kind()
    }

    /// An answer's bytes in words: a line for each field that is set.
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

/// What `work` returns, unless it panics; the panic has been logged by its location. A decider that
/// saw it happen is used once more: it has nothing that half a step could leave inconsistent.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;
    use crate::platform::{CacheTimes, Id, Secret, StrategyIds, Tencent};
    use crate::strategy::{Decision, Outcome, Reason};

    /// Panics when asked to decide; if `recovers`, no more once it has been told to give up.
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
    fn every_failure_has_an_answer_of_the_protocol() {
        for (admission, body, recovers, failure, answer) in [
            (Admission::Granted, Ok(&b""[..]), true, Failure::Internal, UNAVAILABLE),
            (Admission::Granted, Ok(b""), false, Failure::Internal, REFUSAL),
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
