//! Errors of a store, and their causes as metrics count them.

use std::time::Duration;

use object_store::path::Path;

use super::layout::MAX_TOMBSTONES;
use super::trust::SignatureError;
use super::url::UrlError;
use rtad_core::snapshot::{
    AudienceName, ChunkError, DeltaError, Fault, MAX_DELTA_KEYS, ManifestError, State,
};

/// A failed operation on a store, or a refused object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store's URL is not accepted.
    #[error(transparent)]
    Url(UrlError),
    /// The environment lacks settings for the store, or they contradict each other.
    #[error("store {url:?} cannot be opened")]
    Open {
        /// The URL as it was given.
        url: String,
        /// The fault.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A write to a read-only store.
    #[error("store {url:?} is read-only: nothing can be published or removed over plain HTTP")]
    ReadOnly {
        /// The URL as it was given.
        url: String,
    },
    /// A listing of a store that only serves objects by name.
    #[error(
        "store {url:?} cannot be listed over plain HTTP: name the audiences ([[audience]], \
         --audience) or the generation (--generation)"
    )]
    NoListing {
        /// The URL as it was given.
        url: String,
    },
    /// The store's directory is missing: never created, removed, or not mounted.
    #[error(
        "the store's directory {} does not exist: check the path and the mount",
        root.display()
    )]
    NoDirectory {
        /// The directory.
        root: std::path::PathBuf,
    },
    /// The store's directory has lost all audiences and windows that this process found in it.
    #[error(
        "the store's directory {} is empty, and had audiences or windows before: check the mount; \
         a restart of this process accepts the empty directory",
        root.display()
    )]
    LostMount {
        /// The directory.
        root: std::path::PathBuf,
    },
    /// The directory of caps has nothing in it.
    #[error(
        "the caps' directory {} is empty: expected .caps, an audience or a window in it; check the \
         mount, or create {}/.caps for the first pods",
        root.display(),
        root.display()
    )]
    EmptyCaps {
        /// The directory.
        root: std::path::PathBuf,
    },
    /// Work on an audience whose deltas are named by no record.
    #[error(
        "{audience}/records is empty, and the files in {audience}/deltas have appends, removals or \
         erasures: restore the records; or give them up by build --max-change any, or by moving \
         that folder away"
    )]
    LostRecords {
        /// The audience.
        audience: AudienceName,
    },
    /// A record or a segment that was created is gone, and no later one is there.
    #[error(
        "{path} is gone, and {hint} names it: an erasure may be lost; restore the file, or remove \
         {hint} to go on from the newest one that is left"
    )]
    LostRecord {
        /// Its path in the store.
        path: String,
        /// The path of the hint.
        hint: String,
    },
    /// The server ignores the condition of a create.
    #[error(
        "store {url:?} created an object twice that may be created once, so writers would overwrite \
         each other: use a server that refuses this, and a bucket without versions where versions \
         lift the condition"
    )]
    Conditions {
        /// The URL as it was given.
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
        /// The object's path.
        path: String,
        /// The store's reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A record or manifest is refused.
    #[error("{path}")]
    Manifest {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: ManifestError,
    },
    /// A signature is missing or refused.
    #[error("{path}")]
    Signature {
        /// Its path in the store.
        path: String,
        /// The fault.
        #[source]
        source: SignatureError,
    },
    /// An unsigned change of a signed audience.
    #[error(
        "{audience} is signed, and pods with public keys refuse unsigned changes to it; nothing \
         was changed; sign them with --sign-key"
    )]
    Unsigned {
        /// The audience.
        audience: AudienceName,
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
    /// A window's table was not copied to its end.
    #[error("{path} was not written: its copy ended early")]
    Table {
        /// Its path in the store.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A cap's record is refused.
    #[error("{path}: {what}")]
    Quota {
        /// Its path in the store.
        path: String,
        /// The fault.
        what: String,
    },
    /// More changes than deltas may hold.
    #[error(
        "{audience}: {keys} keys in one delta, the limit is {MAX_DELTA_KEYS}; nothing was changed; \
         fold the deltas into a generation first, with `rtad-loader build`"
    )]
    TooManyDeltas {
        /// The audience.
        audience: AudienceName,
        /// Their number after the change.
        keys: u64,
    },
    /// More tombstones than an audience may have.
    #[error(
        "{audience}: expected at most {MAX_TOMBSTONES} tombstones, found {keys}; nothing was \
         changed; no build lowers their number, only lifting those of devices that no export \
         contains any more"
    )]
    TooManyTombstones {
        /// The audience.
        audience: AudienceName,
        /// Their number after the change.
        keys: u64,
    },
    /// There is no staged generation, or nothing to stage it beside.
    #[error("{audience}: {reason}; nothing was changed")]
    NothingStaged {
        /// The audience.
        audience: AudienceName,
        /// The reason.
        reason: &'static str,
    },
    /// The audience was disabled or deleted.
    #[error("{audience} is {}; nothing was changed", state.as_str())]
    NotLive {
        /// The audience.
        audience: AudienceName,
        /// Its state.
        state: State,
    },
    /// The file was replaced while it was being read.
    #[error("{path} was replaced while it was read")]
    Replaced {
        /// Its path in the store.
        path: String,
    },
    /// A read made too little progress.
    #[error("{path}: read stalled: expected 1 MiB or the end in {} s", timeout.as_secs_f32())]
    Stalled {
        /// Its path in the store.
        path: String,
        /// The time-out.
        timeout: Duration,
    },
    /// The store gave no answer to the last write of a publish.
    #[error(
        "{audience}: the store did not answer for 30 s: the change may be live, or become it; \
         see `rtad-loader list`, and repeat the command only if it is not"
    )]
    Unanswered {
        /// The audience.
        audience: AudienceName,
        /// The last error.
        #[source]
        source: Box<Self>,
    },
    /// Another writer was faster.
    #[error("{audience}: {reason}; nothing was changed")]
    Conflict {
        /// The audience.
        audience: AudienceName,
        /// The reason.
        reason: String,
        /// A retry may succeed: another writer is at work, or a gc removed a file that can be
        /// written again.
        is_transient: bool,
    },
}

impl StoreError {
    /// The cause as `rtad_sync_total{result}` counts it, from a closed set.
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Url(..)
            | Self::Open { .. }
            | Self::ReadOnly { .. }
            | Self::NoListing { .. }
            | Self::LostRecords { .. }
            | Self::Conditions { .. }
            | Self::NoDirectory { .. }
            | Self::LostMount { .. }
            | Self::EmptyCaps { .. }
            | Self::Backend { .. }
            | Self::Stalled { .. }
            | Self::Unanswered { .. }
            | Self::Sign { .. }
            | Self::TooManyDeltas { .. }
            | Self::TooManyTombstones { .. }
            | Self::NotLive { .. }
            | Self::NothingStaged { .. }
            | Self::Table { .. }
            | Self::Conflict { .. } => "store",
            Self::Replaced { .. } => Fault::Digest.as_str(),
            Self::Quota { .. } => Fault::Format.as_str(),
            Self::NotFound { .. } | Self::LostRecord { .. } => "not_found",
            Self::Signature { .. } | Self::Unsigned { .. } => "signature",
            Self::Manifest { source, .. } => source.fault().as_str(),
            Self::Chunk { source, .. } => source.fault().as_str(),
            Self::Delta { source, .. } => source.fault().as_str(),
        }
    }

    /// Whether the store is unavailable: a later retry may succeed.
    pub const fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::NoDirectory { .. }
                | Self::LostMount { .. }
                | Self::EmptyCaps { .. }
                | Self::Backend { .. }
                | Self::Stalled { .. }
        )
    }

    /// Whether a write may have succeeded, or may still do so.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Self::Backend { source, .. } => !is_forbidden(&**source),
            _ => self.is_outage(),
        }
    }

    /// Whether a later retry may succeed: after an outage, or while another writer is at work.
    pub const fn is_transient(&self) -> bool {
        self.is_outage()
            || matches!(
                self,
                Self::Conflict {
                    is_transient: true,
                    ..
                }
            )
    }

    pub(crate) fn conflict(
        audience: &AudienceName,
        reason: impl Into<String>,
        is_transient: bool,
    ) -> Self {
        Self::Conflict {
            audience: audience.clone(),
            reason: reason.into(),
            is_transient,
        }
    }

    /// The same error; of a 403 it says that it may stand for a record that does not exist yet.
    pub(crate) fn for_next_record(self) -> Self {
        match self {
            Self::Backend {
                action,
                path,
                source,
            } if is_forbidden(&*source) => Self::Backend {
                action,
                path,
                source: Box::new(Unlisted { source }),
            },
            error => error,
        }
    }

    /// The error of a request that was given up.
    pub fn no_answer(action: &'static str, path: String) -> Self {
        Self::Backend {
            action,
            path,
            source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        }
    }

    pub(crate) fn backend(action: &'static str, path: &Path, source: object_store::Error) -> Self {
        match source {
            object_store::Error::NotFound { .. } => Self::NotFound {
                path: path.to_string(),
            },
            source => {
                let path = match path.as_ref() {
                    "" => "the store".to_owned(),
                    path => path.to_owned(),
                };
                let source: Box<dyn std::error::Error + Send + Sync> = if asks_metadata(&source) {
                    Box::new(NoCredentials { source })
                } else {
                    Box::new(source)
                };
                Self::Backend {
                    action,
                    path,
                    source,
                }
            }
        }
    }
}

/// Credentials are neither in the environment nor at the cloud's metadata service, which is asked
/// last.
#[derive(Debug, thiserror::Error)]
#[error(
    "no credentials in the environment, and this machine's metadata service gave none; accepted: \
     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_SERVICE_ACCOUNT, \
     AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or an identity of the machine"
)]
struct NoCredentials {
    source: object_store::Error,
}

/// A record that may not exist yet is answered with 403.
#[derive(Debug, thiserror::Error)]
#[error(
    "a record that does not exist must be answered with 404; many buckets answer 403 unless the \
     reader may list them (s3:ListBucket)"
)]
struct Unlisted {
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn is_forbidden(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(
        error.downcast_ref(),
        Some(object_store::Error::PermissionDenied { .. })
    )
}

/// Whether a request for credentials failed, by the addresses of the clouds' metadata services.
fn asks_metadata(error: &object_store::Error) -> bool {
    let text = error.to_string();
    [
        "//169.254.169.254/",
        "//[fd00:ec2::254]/",
        "//169.254.170.",
        "//metadata.google.internal/",
    ]
    .iter()
    .any(|address| text.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_credentials_are_named() {
        let of = |message: &str| {
            let source = object_store::Error::Generic {
                store: "S3",
                source: message.into(),
            };
            let error = StoreError::backend("list", &Path::default(), source);
            assert!(error.is_outage());
            std::error::Error::source(&error).unwrap().to_string()
        };
        for address in [
            "http://169.254.169.254/latest/api/token",
            "http://metadata.google.internal/x",
        ] {
            let message = of(&format!("Error performing PUT {address}: timed out"));
            assert!(
                message.starts_with("no credentials in the environment"),
                "{message}"
            );
        }
        let other = of("Error performing GET https://bucket.s3.amazonaws.com/: 403 AccessDenied");
        assert!(
            other.contains("AccessDenied") && !other.contains("environment"),
            "{other}"
        );
    }
}
