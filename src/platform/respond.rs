//! An answer whatever happens: what is said when a body does not parse, when a stranger asks, and when the code panics.
//!
//! A platform reads anything but an answer of its protocol as it pleases, and not always as a no-bid. So every failure has one here,
//! and one function makes it for whoever serves and for whoever explains: the two cannot come to differ.
//!
//! What went wrong is returned, not counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::{Decider, Failure, Head, Platform};

/// How it is settled whether a caller may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// By the headers that the platform sends.
    ByHeaders,
    /// Somebody who may read the config explains a captured body: nothing is asked of its headers, and what is wrong with its signature
    /// is told but decides nothing.
    Granted,
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
    /// Answers a request. If that fails the decider is told to give up and every configured strategy gives its `unavailable` answer; a
    /// stranger gets a refusal, and so does everybody if even that fails.
    #[inline]
    pub fn respond(
        &self,
        admission: Admission,
        head: &Head<'_>,
        body: Result<Bytes, Failure>,
        decider: &mut impl Decider,
    ) -> Answered {
        let answered = caught(|| match admission {
            Admission::ByHeaders => self.answer(head, body, decider),
            Admission::Granted => body.and_then(|body| self.admitted(admission, head, body, decider)),
        });
        match answered {
            Some(Ok(bytes)) => Answered { bytes, failure: None },
            Some(Err(failure)) => self.failed(failure, decider),
            None => self.failed(Failure::Internal, decider),
        }
    }

    #[cold]
    fn failed(&self, failure: Failure, decider: &mut impl Decider) -> Answered {
        let bytes = if failure.is_of_a_stranger() {
            self.refusal()
        } else {
            let unavailable = || {
                decider.give_up();
                self.unavailable(decider)
            };
            caught(unavailable).unwrap_or_else(|| self.refusal())
        };
        Answered { bytes, failure: Some(failure) }
    }
}

/// What `work` returns, unless it panics; the panic has been logged by its place. A decider that saw it happen is used once more: it
/// has nothing that half a step could leave inconsistent.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName};

    use super::*;
    use crate::platform::{Access, Adapter, CacheTimes, Id, Secret, StrategyIds, Tencent};
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

    fn responded(admission: Admission, body: Result<&'static [u8], Failure>, recovers: bool) -> Answered {
        let ids = StrategyIds::new(vec![(Bytes::from_static(b"T"), 0)]);
        let platform = Platform {
            name: "tencent".to_owned(),
            path: "/rta".to_owned(),
            access: Access::any_of(vec![(HeaderName::from_static("x-key"), Secret::new("k"))]),
            adapter: Adapter::Tencent(Tencent::new(ids, CacheTimes::default())),
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
