//! The trait between adapters and their callers: ids in, decisions out; and the causes of failures.

use std::fmt::{self, Display};

use crate::strategy::Decision;

/// Label of the note with the decoder's message about an unreadable body.
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

/// Hides the value.
impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Id").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Bytes as text; converted only if a note is read.
pub(super) struct Lossy<'a>(pub(super) &'a [u8]);

impl Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// `Debug` for generated messages that hold ids: prints the name only.
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

/// Receives a request's ids and decides about the device.
pub trait Decider {
    /// Takes an id, usable or not. Adapters skip absent fields.
    fn id(&mut self, id: Id<'_>);

    /// Records an id that the platform marks as unreliable; it is not used.
    fn doubtful(&mut self, id: Id<'_>);

    /// Whether adapters call [`Decider::skipped`].
    fn wants_skipped(&self) -> bool {
        false
    }

    /// Records an id whose type the config does not map. It does not count towards
    /// [`super::MAX_READ_IDS`].
    fn skipped(&mut self, path: &str, why: &dyn Display) {
        let _ = (path, why);
    }

    /// Records another field of the request, for an explanation.
    fn note(&mut self, what: &'static str, value: &dyn Display) {
        let _ = (what, value);
    }

    /// Records a requested strategy id and the strategy's index; `None` if the id is not
    /// configured.
    fn asked(&mut self, id: &dyn Display, strategy: Option<usize>) {
        let _ = (id, strategy);
    }

    /// Records a fault of a request that is answered all the same.
    fn report_failure(&mut self, failure: Failure) {
        let _ = failure;
    }

    /// The decision of the catalog's strategy at this index about the ids taken so far.
    fn decide(&mut self, strategy: usize) -> Decision;

    /// Makes every further decision the strategy's `unavailable` answer, as the request is
    /// unreadable.
    fn give_up(&mut self);
}

/// The cause of an answer that does not depend on the request's ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is over `server.max_body`.
    TooLarge,
    /// The body was incomplete or too late.
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

    /// Whether the caller is unauthorized; its answer reveals nothing of the config.
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
