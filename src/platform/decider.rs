//! The contract between adapters and their callers: ids in, decisions out, failures by name.

use std::fmt::{self, Display};

use crate::strategy::Decision;

/// The note beside a [`Failure::BadBody`]: the fault of the body, in its decoder's words.
pub const UNREADABLE: &str = "unreadable";

/// An id as a request carries it.
#[derive(Clone, Copy)]
pub struct Id<'a> {
    /// What the platform calls its field, such as `device.imei_md5sum`.
    pub path: &'a str,
    /// What it is: an index of [`rtad_core::device::IdField::ALL`].
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

/// Bytes as text, made only when a note is read.
pub(super) struct Lossy<'a>(pub(super) &'a [u8]);

impl Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

/// `Debug` for generated messages that hold ids: their names, and nothing of what is in them.
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

/// The receiver of a request's ids, who decides about the device that they name.
pub trait Decider {
    /// Takes an id; whether it is usable is the decider's to see. Adapters leave out fields that are
    /// not there.
    fn id(&mut self, id: Id<'_>);

    /// Takes note of an id that the platform itself holds for junk: it decides nothing.
    fn doubtful(&mut self, id: Id<'_>);

    /// Whether [`Decider::skipped`] is of use to it: adapters remember skipped ids only then.
    fn wants_skipped(&self) -> bool {
        false
    }

    /// Takes note of an id that is not handed over, because the config does not say what it is. It
    /// does not count towards [`super::MAX_IDS`].
    fn skipped(&mut self, path: &str, why: &dyn Display) {
        let _ = (path, why);
    }

    /// Takes note of something else that the request says, for an explanation.
    fn note(&mut self, what: &'static str, value: &dyn Display) {
        let _ = (what, value);
    }

    /// Takes note that the request asks about a strategy by an id of the platform's, and of the
    /// index of that strategy; `None` if the id is not configured.
    fn asked(&mut self, id: &dyn Display, strategy: Option<usize>) {
        let _ = (id, strategy);
    }

    /// Takes note of a fault of a request that is answered all the same.
    fn report_failure(&mut self, failure: Failure) {
        let _ = failure;
    }

    /// The decision of the catalog's strategy at that index about the ids taken so far.
    fn decide(&mut self, strategy: usize) -> Decision;

    /// Is told that the request cannot be read: from now on every decision is the one for want of an
    /// audience.
    fn give_up(&mut self);
}

/// Why a request is not answered by its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is over `server.max_body`.
    TooLarge,
    /// The body did not arrive in time, or broke off.
    BodyLost,
    /// None of the headers that admit a caller is there.
    Unauthorized,
    /// The signature is not there or not right.
    BadSignature,
    /// The timestamp is further from now than may be.
    BadTimestamp,
    /// More requests than are answered at a time.
    Overload,
    /// More than [`super::MAX_IDS`] ids.
    TooManyIds,
    /// A fault of rtad's own.
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

    /// The word in metrics.
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

    /// Whether the caller is not the platform, as far as one can tell: then it learns nothing of
    /// what is configured.
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
