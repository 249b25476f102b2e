//! Causes of answers that are not based on a request's ids, or not on all of them.

use strum::VariantArray as _;

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
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    strum::IntoStaticStr,
    strum::VariantArray,
    strum::VariantNames,
)]
#[strum(serialize_all = "snake_case")]
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
    pub const ALL: [Self; 10] = *Self::VARIANTS.as_array().expect("every variant");

    /// The label value in metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
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
