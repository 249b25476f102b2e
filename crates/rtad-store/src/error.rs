//! Errors of a store, and the words by which they are counted.

use std::time::Duration;

use object_store::path::Path;

use super::client::{self, Busy};
use super::trust::SignatureError;
use super::url::UrlError;
use rtad_core::snapshot::{
    AudienceName, ChunkError, DeltaError, Fault, MAX_DELTA_KEYS, ManifestError, State,
};

/// A store that does not answer, or an object in it that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store's URL is not one that can be opened.
    #[error(transparent)]
    Url(UrlError),
    /// The environment does not say what the store needs, or contradicts itself.
    #[error("store {url:?} cannot be opened")]
    Open {
        /// As it was given.
        url: String,
        /// The fault.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Writing to a store that can only be read.
    #[error("store {url:?} is read-only: nothing can be published or removed over plain HTTP")]
    ReadOnly {
        /// As it was given.
        url: String,
    },
    /// Listing a store that can only be asked for what one knows.
    #[error(
        "store {url:?} cannot be listed over plain HTTP: name the audiences ([[audience]], --audience) \
         or the generation (--generation)"
    )]
    NoListing {
        /// As it was given.
        url: String,
    },
    /// There is no such object.
    #[error("{path} does not exist")]
    NotFound {
        /// Its path in the store.
        path: String,
    },
    /// The store failed.
    #[error("could not {action} {path}")]
    Backend {
        /// The operation.
        action: &'static str,
        /// On which object.
        path: String,
        /// The store's reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A `CURRENT` or manifest is refused.
    #[error("{path}")]
    Manifest {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: ManifestError,
    },
    /// A file is not signed as it should be.
    #[error("{path}")]
    Signature {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: SignatureError,
    },
    /// A file could not be signed.
    #[error("could not sign {path}")]
    Sign {
        /// Its path in the store.
        path: String,
        /// The signer's reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A chunk is refused.
    #[error("{path}")]
    Chunk {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: ChunkError,
    },
    /// A delta is refused.
    #[error("{path}")]
    Delta {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: DeltaError,
    },
    /// More changes than deltas may hold.
    #[error(
        "{audience}: {keys} keys in one delta, the limit is {MAX_DELTA_KEYS}; nothing was changed; fold the deltas \
         into a generation first, with `rtad-loader build`"
    )]
    TooManyDeltas {
        /// The audience.
        audience: AudienceName,
        /// Their number after the change.
        keys: u64,
    },
    /// The audience was disabled or deleted.
    #[error("{audience} is {}; nothing was changed", state.as_str())]
    NotLive {
        /// The audience.
        audience: AudienceName,
        /// Its state.
        state: State,
    },
    /// Another file came in its place while it was being read.
    #[error("{path} was replaced while it was read")]
    Replaced {
        /// Its path in the store.
        path: String,
    },
    /// The bytes stopped coming.
    #[error("{path} came to a standstill: under {bytes} bytes in {} s", timeout.as_secs_f32())]
    Stalled {
        /// Its path in the store.
        path: String,
        /// The least progress.
        bytes: u64,
        /// The time-out.
        timeout: Duration,
    },
    /// Somebody else published meanwhile.
    #[error("{audience}: {reason}; nothing was changed")]
    Conflict {
        /// The audience.
        audience: AudienceName,
        /// The reason.
        reason: String,
        /// Nothing was published: somebody else is at work, or a gc has removed what can be written
        /// again. What was to be published may be, later.
        passes: bool,
    },
}

impl StoreError {
    /// The cause as `rtad_sync_total{result}` counts it; one of a closed set of words.
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Url(..)
            | Self::Open { .. }
            | Self::ReadOnly { .. }
            | Self::NoListing { .. }
            | Self::Backend { .. }
            | Self::Stalled { .. }
            | Self::Sign { .. }
            | Self::TooManyDeltas { .. }
            | Self::NotLive { .. }
            | Self::Conflict { .. } => "store",
            Self::Replaced { .. } => Fault::Digest.as_str(),
            Self::NotFound { .. } => "not_found",
            Self::Signature { .. } => "signature",
            Self::Manifest { source, .. } => source.fault().as_str(),
            Self::Chunk { source, .. } => source.fault().as_str(),
            Self::Delta { source, .. } => source.fault().as_str(),
        }
    }

    /// Whether the store did not answer, or with nothing of use: it may at another time.
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Backend { .. } | Self::Stalled { .. })
    }

    /// Whether the same may go well at another time: it is an outage, or somebody else at work.
    pub const fn passes(&self) -> bool {
        self.is_outage() || matches!(self, Self::Conflict { passes: true, .. })
    }

    /// For how long the store asks to be left alone, as it says with a 429 or 503.
    pub fn retry_after(&self) -> Option<Duration> {
        client::find(self).map(|busy: &Busy| busy.after)
    }

    pub(crate) fn backend(action: &'static str, path: &Path, source: object_store::Error) -> Self {
        match source {
            object_store::Error::NotFound { .. } => Self::NotFound { path: path.to_string() },
            source => Self::Backend { action, path: path.to_string(), source: Box::new(source) },
        }
    }
}
