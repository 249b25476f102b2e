//! Decision interface of the platform adapters: they pass ids and get decisions. Also the causes
//! of platform failures.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::strategy::Decision;

/// Label of the note that holds the decoder's error for an unreadable body.
pub const UNREADABLE: &str = "unreadable";

/// An id as a request carries it.
#[derive(Clone, Copy)]
pub struct Id<'a> {
    /// Path of its field, such as `device.imei_md5sum`.
    pub path: &'a str,
    /// Index in [`rtad_core::device::IdField::ALL`].
    pub field: usize,
    /// Its value.
    pub value: &'a [u8],
}

/// Omits the value: ids must not reach a log.
impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Displays bytes as text. The conversion runs only when the note is displayed.
pub(super) struct Lossy<'a>(pub(super) &'a [u8]);

impl Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// Implements `Debug` for generated messages that hold ids: prints the type's name only.
macro_rules! hide {
    ($($message:path),+) => {$(
        impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($message), "(hidden)"))
            }
        }
    )+};
}
pub(super) use hide;

/// Collects a request's ids and decides about its device.
pub trait Decider {
    /// Takes an id, usable or not. Adapters skip absent fields.
    fn id(&mut self, id: Id<'_>);

    /// Records an id that the platform marks as doubtful. It does not affect the decision.
    fn doubtful(&mut self, id: Id<'_>);

    /// Returns true if adapters must report skipped ids with [`Decider::skipped`].
    fn wants_skipped(&self) -> bool {
        false
    }

    /// Records an id whose type the config does not map. It does not count towards
    /// [`super::MAX_READ_IDS`].
    fn skipped(&mut self, path: &str, why: &dyn Display) {
        let _ = (path, why);
    }

    /// Records another field of the request, for `rtad explain`.
    fn note(&mut self, what: &'static str, value: &dyn Display) {
        let _ = (what, value);
    }

    /// Records a requested strategy id and the strategy's index; `None` if the id is not
    /// configured.
    fn requested_strategy(&mut self, id: &dyn Display, strategy: Option<usize>) {
        let _ = (id, strategy);
    }

    /// Records a failure in a request that still gets a regular answer.
    fn report_failure(&mut self, failure: Failure) {
        let _ = failure;
    }

    /// Decides with the catalog's strategy at this index about the ids collected so far.
    fn decide(&mut self, strategy: usize) -> Decision;

    /// Time until the strategy's cap counts anew; `None` without a cap. No answer of the strategy
    /// may be cached for longer.
    fn cap_ends_in(&self, strategy: usize) -> Option<Duration> {
        let _ = strategy;
        None
    }

    /// Marks the request as unreadable: each further decision is the strategy's `unavailable`
    /// answer.
    fn give_up(&mut self);
}

/// Cause of an answer that is not based on the request's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is over `server.max_body`.
    TooLarge,
    /// The body was incomplete or arrived too late.
    BodyLost,
    /// No header carries a configured value.
    Unauthorized,
    /// The signature is missing or wrong.
    BadSignature,
    /// The timestamp is too far from the current time.
    BadTimestamp,
    /// Too many requests in flight.
    Overload,
    /// More than [`super::MAX_IDS`] usable ids or [`super::MAX_READ_IDS`] ids. The others can still
    /// prove membership.
    TooManyIds,
    /// Internal error of rtad.
    Internal,
}

impl Failure {
    /// All failures, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::BadBody,
        Self::TooLarge,
        Self::BodyLost,
        Self::Unauthorized,
        Self::BadSignature,
        Self::BadTimestamp,
        Self::Overload,
        Self::TooManyIds,
        Self::Internal,
    ];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadBody => "bad_body",
            Self::TooLarge => "too_large",
            Self::BodyLost => "body_lost",
            Self::Unauthorized => "unauthorized",
            Self::BadSignature => "bad_signature",
            Self::BadTimestamp => "bad_timestamp",
            Self::Overload => "overload",
            Self::TooManyIds => "too_many_ids",
            Self::Internal => "internal",
        }
    }

    /// Returns true for authentication failures. Their answer must not reveal the config.
    pub const fn is_auth_failure(self) -> bool {
        matches!(self, Self::Unauthorized | Self::BadSignature | Self::BadTimestamp)
    }
}

#[cfg(test)]
mod tests {
    use testkit::reference::assert_listed;

    use super::*;

    #[test]
    fn error_reference_lists_every_failure() {
        let rows = Failure::ALL.map(|failure| [failure.as_str().to_owned()]);
        assert_listed("errors.md", "Platform failures", rows);
    }
}
