//! A configured platform: access to it, and its answer to every request, including unreadable
//! bodies, unauthorized callers and panics.
//!
//! Platforms do not always read an invalid answer as a no-bid, so every failure gets a valid one.
//! Serving and explaining use the same function, so their answers are equal. Failures are returned,
//! not counted.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use rtad_http::body::{has_encoding, is_compressed};
use rtad_http::tokens::bearer_token;
use smallvec::SmallVec;
use subtle::Choice;

use super::adapter::{Adapter, Admission, Request, RequestHead, Verdict, Verdicts};
use super::describe::describe_answer;
use super::ids::{MAX_IDS, MAX_READ_IDS};
use super::read::{Failure, Purpose, Read, ReadError};
use crate::config::Secret;

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

/// Headers of which a request must carry one; an empty list admits every request.
#[derive(Debug, Clone, Default)]
pub struct Access(Vec<(HeaderName, Secret)>);

impl Access {
    /// Admits a request with any of these headers. Two secrets for one name allow rotation.
    pub const fn any_of(headers: Vec<(HeaderName, Secret)>) -> Self {
        Self(headers)
    }

    /// Whether every request is admitted.
    pub const fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the request carries any of these headers, with any value.
    pub fn is_tried(&self, headers: &HeaderMap) -> bool {
        self.0.iter().any(|(name, _)| headers.contains_key(name))
    }

    /// Whether a request with these headers is admitted. Compares every value with every secret, so
    /// the time does not depend on the match.
    #[inline]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let mut admitted = Choice::from(0);
        for (name, secret) in &self.0 {
            for value in headers.get_all(name) {
                admitted |= secret.is(value.as_bytes());
                if let Some(value) = with_canonical_scheme(name, value) {
                    admitted |= secret.is(&value);
                }
            }
        }
        admitted.into()
    }
}

/// Bearer credentials that are not written as `Bearer TOKEN`.
fn with_canonical_scheme(name: &HeaderName, value: &HeaderValue) -> Option<Vec<u8>> {
    if name != AUTHORIZATION {
        return None;
    }
    let token = bearer_token(value.as_bytes())?;
    let canonical = [b"Bearer ", token].concat();
    (canonical != value.as_bytes()).then_some(canonical)
}

/// An answer, and the failure if it does not depend on the request's ids.
#[derive(Debug)]
pub struct Answered {
    /// The answer's bytes.
    pub bytes: Bytes,
    /// The cause of an answer that ignores the ids.
    pub error: Option<ReadError>,
}

impl Answered {
    /// The failure that is counted.
    pub fn failure(&self) -> Option<Failure> {
        self.error.as_ref().map(ReadError::failure)
    }
}

impl Platform {
    /// Answers a request: reads it into `read`, which is empty before, calls `decide`, and writes
    /// the answer. After a failure, every configured strategy gives its `unavailable` answer. An
    /// unauthorized caller gets a refusal, even with a broken body, as does everyone after a second
    /// failure.
    #[inline]
    pub fn respond<'a>(
        &'a self,
        admission: Admission,
        head: RequestHead<'a>,
        body: &'a Result<Bytes, Failure>,
        read: &mut Read<'a>,
        mut decide: impl FnMut(&Read<'a>, &mut Verdicts),
    ) -> Answered {
        let answered = caught(|| {
            if admission == Admission::ByHeaders && !self.access.admits(head.headers) {
                return Err(Failure::Unauthorized.into());
            }
            let body = body.as_ref().map_err(|failure| *failure)?;
            read.body = Some(body);
            let read_error = self
                .adapter
                .read(
                    &Request {
                        admission,
                        head,
                        body,
                    },
                    read,
                )
                .err();
            if let Some(error) = read_error {
                return Err(with_encoding(error, head, body));
            }

            let mut verdicts = Verdicts::new();
            match read.purpose {
                Purpose::Devices => decide_each(read, &mut decide),
                _ => decide(read, &mut verdicts),
            }
            Ok(self.adapter.write(read, &verdicts))
        });

        let error = match answered {
            Some(Ok(bytes)) => return Answered { bytes, error: None },
            Some(Err(error)) => error,
            None => ReadError::Failed(Failure::Internal),
        };

        read.give_up(self.adapter.strategies());
        let bytes = if error.failure().is_auth_failure() {
            None
        } else {
            caught(|| {
                let mut verdicts = Verdicts::new();
                decide(read, &mut verdicts);
                self.adapter.write(read, &verdicts)
            })
        };

        Answered {
            bytes: bytes.unwrap_or_else(|| self.adapter.refusal()),
            error: Some(error),
        }
    }

    /// The answers' media type, if the platform requires one.
    pub fn content_type(&self) -> Option<&'static str> {
        self.adapter.content_type()
    }

    /// Its strategy ids as text, sorted, with the indexes of their strategies.
    pub fn strategy_ids(&self) -> impl Iterator<Item = (String, usize)> {
        let ids = self.adapter.strategies().iter();
        ids.filter_map(|asked| Some((asked.id.to_string(), asked.known?.strategy)))
    }

    /// Indexes of its ids' strategies, one per id.
    pub fn strategies(&self) -> impl Iterator<Item = usize> {
        self.strategy_ids().map(|(_, strategy)| strategy)
    }

    /// The protocol's `kind` in the config.
    pub fn kind(&self) -> &'static str {
        self.adapter.kind()
    }

    /// An answer as text: one line per field that is set.
    pub fn describe_answer(&self, answer: &[u8]) -> String {
        describe_answer(self.adapter.answer_message(), answer)
    }
}

/// Decides about each id as a device of its own, and marks those that a strategy bids for. Ids
/// beyond [`MAX_IDS`] get every strategy's `unavailable` decision, those beyond [`MAX_READ_IDS`]
/// none.
#[inline(never)]
fn decide_each<'a>(read: &mut Read<'a>, decide: &mut dyn FnMut(&Read<'a>, &mut Verdicts)) {
    let ids = std::mem::take(&mut read.ids);
    let observed = read.observed;
    let mut decided = SmallVec::with_capacity(ids.len());
    let mut verdicts = Verdicts::new();

    if ids.is_empty() {
        // Without asked strategies, `decide` counts the failed check alone.
        let asked = std::mem::take(&mut read.asked);
        decide(read, &mut verdicts);
        read.asked = asked;
    }

    for (index, id) in ids.into_iter().enumerate() {
        if index == MAX_READ_IDS {
            decided.push(id);
            break;
        }
        if index == MAX_IDS {
            read.purpose = Purpose::Fallback;
            read.observed = Some(Failure::TooManyIds);
        }

        read.ids.push(id);
        verdicts.clear();
        decide(read, &mut verdicts);
        // A failed check and an unknown `os` are counted once per request.
        read.observed = None;
        read.has_unknown_os = false;
        for mut id in read.ids.drain(..) {
            id.is_accepted = verdicts.iter().any(Verdict::bids);
            decided.push(id);
        }
    }

    (read.ids, read.observed, read.purpose) = (decided, observed, Purpose::Devices);
}

/// The error of an unreadable body, which may be unreadable only because it is compressed. Readable
/// bodies are not checked: some proxies keep the header of a body that they have decoded.
fn with_encoding(error: ReadError, head: RequestHead<'_>, body: &[u8]) -> ReadError {
    let is_unreadable = matches!(error, ReadError::Protobuf(_) | ReadError::Mapped(_));
    if is_unreadable && (has_encoding(head.headers) || is_compressed(body)) {
        ReadError::Encoded
    } else {
        error
    }
}

/// The result of `work`; `None` if it panics, which the panic hook logs. The request may be used
/// again: no interrupted step leaves it inconsistent.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::testing::{BID_UNAVAILABLE, verdicts};
    use crate::platform::{CacheTimes, Tencent};

    /// Panics on every decision; if `recovers`, only before the fallback.
    fn responded(
        admission: Admission,
        body: Result<&'static [u8], Failure>,
        recovers: bool,
    ) -> Answered {
        let platform = Platform {
            name: "tencent".to_owned(),
            path: "/rta".to_owned(),
            access: Access::any_of(vec![(HeaderName::from_static("x-key"), Secret::new("k"))]),
            adapter: Box::new(Tencent::new(
                vec![("T".to_owned(), 0)],
                CacheTimes::default(),
            )),
        };
        let (headers, body) = (HeaderMap::new(), body.map(Bytes::from_static));
        let head = RequestHead {
            headers: &headers,
            query: None,
        };
        platform.respond(
            admission,
            head,
            &body,
            &mut Read::default(),
            |read, answered| {
                assert!(recovers && read.purpose == Purpose::Fallback, "a fault");
                *answered = verdicts(read, &[BID_UNAVAILABLE]);
            },
        )
    }

    const UNAVAILABLE: &[u8] = b"\x10\x00\x52\x01T";
    const REFUSAL: &[u8] = b"\x10\x01";

    #[test]
    fn every_failure_gets_a_valid_answer() {
        for (admission, body, recovers, failure, answer) in [
            (
                Admission::Granted,
                Ok(&b"\x18\x01"[..]),
                true,
                Failure::Internal,
                UNAVAILABLE,
            ),
            (
                Admission::Granted,
                Ok(b"\x18\x01"),
                false,
                Failure::Internal,
                REFUSAL,
            ),
            (
                Admission::Granted,
                Ok(b""),
                true,
                Failure::BadBody,
                UNAVAILABLE,
            ),
            (
                Admission::Granted,
                Ok(b"\xff"),
                true,
                Failure::BadBody,
                UNAVAILABLE,
            ),
            (
                Admission::Granted,
                Err(Failure::TooLarge),
                true,
                Failure::TooLarge,
                UNAVAILABLE,
            ),
            (
                Admission::ByHeaders,
                Ok(b""),
                true,
                Failure::Unauthorized,
                REFUSAL,
            ),
            (
                Admission::ByHeaders,
                Err(Failure::TooLarge),
                true,
                Failure::Unauthorized,
                REFUSAL,
            ),
        ] {
            let answered = responded(admission, body, recovers);
            assert_eq!(
                (answered.failure(), &answered.bytes[..]),
                (Some(failure), answer)
            );
        }
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn any_configured_header_admits_a_request() {
        let header = |name, secret: &str| (HeaderName::from_static(name), Secret::new(secret));
        let access = Access::any_of(vec![
            header("x-rta-token", "old"),
            header("x-rta-token", "new"),
            header("x-key", "k"),
        ]);
        for good in [
            &[("x-rta-token", "old")][..],
            &[("x-rta-token", "new")],
            &[("x-key", "k")],
            &[("x-rta-token", "wrong"), ("x-rta-token", "new")],
            &[("x-rta-token", "wrong"), ("x-key", "k")],
        ] {
            assert!(access.admits(&headers(good)), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("x-rta-token", "")],
            &[("x-rta-token", "ol")],
            &[("x-rta-token", "older")],
            &[("x-rta-token", "k")],
            &[("x-key", "old")],
            &[("authorization", "old")],
        ] {
            assert!(!access.admits(&headers(bad)), "{bad:?}");
        }
        assert!(Access::default().admits(&headers(&[])));
        assert!(Access::default().is_open() && !access.is_open());
        assert!(access.is_tried(&headers(&[("x-key", "wrong")])));
        assert!(!access.is_tried(&headers(&[("authorization", "old")])));
    }

    #[test]
    fn bearer_scheme_has_no_case_and_any_spaces() {
        let access = Access::any_of(vec![(AUTHORIZATION, Secret::new("Bearer Token"))]);
        for good in ["Bearer Token", "bearer Token", "BEARER   Token"] {
            assert!(
                access.admits(&headers(&[("authorization", good)])),
                "{good}"
            );
        }
        for bad in ["Bearer token", "bearer", "Basic Token", "BearerToken"] {
            assert!(!access.admits(&headers(&[("authorization", bad)])), "{bad}");
        }
    }

    #[test]
    fn debug_output_hides_secrets() {
        let access = Access::any_of(vec![(
            HeaderName::from_static("x-key"),
            Secret::new("hush"),
        )]);
        assert!(!format!("{access:?}").contains("hush"));
        assert!(!format!("{access:?}").contains(&format!("{:?}", b"hush")));
    }
}
