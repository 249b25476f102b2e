//! Causes of answers that are not based on a request's ids, or not on all of them.

use super::ids::MAX_ASKED;

/// The reason why a request's ids are not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The body is empty. An empty message is valid protobuf, but no platform sends one: it is a
    /// probe, or a request whose body was lost on the way.
    #[error("it is empty")]
    Empty,
    /// The body is not a message of the protocol.
    #[error(transparent)]
    Protobuf(#[from] prost::DecodeError),
    /// The body does not have the mapped form.
    #[error("it is not {0}, or a mapped field has another type")]
    Mapped(&'static str),
    /// The body is compressed, by its header or its first bytes.
    #[error("it is compressed; platforms send it as it is")]
    Encoded,
    /// The request names too many strategies or ads. An answer to some would accept or reject the
    /// others.
    #[error("it names {0} strategies or ads, {MAX_ASKED} are allowed")]
    TooManyAsked(usize),
    /// Another failure.
    #[error("{}", .0.as_str())]
    Failed(Failure),
}

impl ReadError {
    /// The failure that is counted.
    pub const fn failure(&self) -> Failure {
        match self {
            Self::Failed(failure) => *failure,
            Self::Encoded => Failure::BadEncoding,
            _ => Failure::BadBody,
        }
    }
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Cause of an answer that is not based on the request's ids, or not on all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The body does not parse.
    BadBody,
    /// The body is compressed.
    BadEncoding,
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
    /// More than [`super::MAX_IDS`] usable ids or [`super::MAX_READ_IDS`] ids. Those up to the
    /// limit can still prove membership.
    TooManyIds,
    /// Internal error of rtad.
    Internal,
}

impl Failure {
    /// All failures, in the order of their counters.
    pub const ALL: [Self; 10] = [
        Self::BadBody,
        Self::BadEncoding,
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
            Self::BadEncoding => "bad_encoding",
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
        matches!(
            self,
            Self::Unauthorized | Self::BadSignature | Self::BadTimestamp
        )
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
