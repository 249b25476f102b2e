//! Errors of sync, and their classes: outage or refusal.

use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;

/// A failed poll of an audience.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(test, derive(documented::DocumentedFieldsOpt))]
#[non_exhaustive]
pub enum SyncError {
    /// The store failed, or a file in it is refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store delivers too slowly.
    #[error("{what} could not be read within {seconds} s")]
    Late {
        /// The file or files, with the audience.
        what: String,
        /// The limit.
        seconds: f64,
    },
    /// Nothing of this audience was ever published.
    #[error(
        "audience {audience} is not in the store: \
         publish it with `rtad-loader build --audience {audience}`"
    )]
    NotPublished {
        /// The audience.
        audience: AudienceName,
    },
    /// A served audience has no record any more. A deletion leaves one.
    #[error(
        "{audience}/records is empty, and generation {served} stays served: check the store's \
         mount, or restore the records"
    )]
    Gone {
        /// The audience.
        audience: AudienceName,
        /// Generation being served.
        served: u64,
    },
    /// The audience was deleted.
    #[error("audience {audience} was deleted: take it out of the config, or publish it again")]
    Deleted {
        /// The audience.
        audience: AudienceName,
    },
    /// The record is older than one that was read before, or another one with its number.
    #[error(
        "the store is an old copy: its newest record has number {found_sequence} and generation \
         {found}, but number {known_sequence} with generation {known} was read before, and no \
         rollback is recorded; if the store was created anew, restart without the cache's folder \
         of this audience"
    )]
    Stale {
        /// Generation that the record names.
        found: u64,
        /// Its number.
        found_sequence: u64,
        /// Generation of the newest record that was read before.
        known: u64,
        /// Its number.
        known_sequence: u64,
    },
    /// A panic while polling.
    #[error("internal error; its source location is in the log")]
    Internal,
    /// The snapshot does not fit into memory beside the served one.
    #[error(
        "the snapshot needs {needed_bytes} bytes beside the served one, the container has \
         {available_bytes} left: raise its memory limit, set store.swap = \"rolling\", or publish \
         a smaller one"
    )]
    InsufficientMemory {
        /// Memory needed at once.
        needed_bytes: u64,
        /// Memory left under the cgroup's limit.
        available_bytes: u64,
    },
    /// The snapshot has expired.
    #[error(
        "generation {generation} expired {} s ago: publish a new one with `rtad-loader build`, \
         or correct the clock",
        now_unix_seconds - expires_unix_seconds
    )]
    Expired {
        /// Its generation.
        generation: u64,
        /// Its expiry, in seconds since 1970.
        expires_unix_seconds: u64,
        /// This machine's clock, at or after the expiry.
        now_unix_seconds: u64,
    },
    /// A rolling swap could not write its chunks to the cache.
    #[error(
        "store.swap = \"rolling\" needs all chunks in the cache, and {} could not be written",
        folder.display()
    )]
    Cache {
        /// The audience's folder in the cache.
        folder: std::path::PathBuf,
        /// The kernel's reason.
        #[source]
        source: std::io::Error,
    },
    /// The snapshot is larger than the config allows.
    #[error("the snapshot has {size_bytes} bytes, store.max_snapshot_size is {limit_bytes}")]
    TooLarge {
        /// Its size.
        size_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
}

impl SyncError {
    /// The cause as `rtad_sync_total{result}` counts it.
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Store(error) => error.cause(),
            Self::Late { .. } => "store",
            Self::NotPublished { .. } | Self::Gone { .. } | Self::Deleted { .. } => "not_found",
            Self::Stale { .. } => "stale",
            Self::Expired { .. } => "expired",
            Self::TooLarge { .. } | Self::InsufficientMemory { .. } => "too_large",
            Self::Cache { .. } => "cache",
            Self::Internal => "internal",
        }
    }

    /// Whether the store is unavailable, as opposed to a bad file in it.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Late { .. }) && self.cause() == "store"
    }

    /// Whether an early retry would fail again: the snapshot is refused, or does not fit this pod.
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Store(error) => matches!(
                error,
                StoreError::Manifest { .. }
                    | StoreError::Signature { .. }
                    | StoreError::Chunk { .. }
                    | StoreError::Delta { .. }
                    | StoreError::Replaced { .. }
            ),
            Self::Expired { .. }
            | Self::TooLarge { .. }
            | Self::InsufficientMemory { .. }
            | Self::Internal
            | Self::Cache { .. } => true,
            Self::Late { .. }
            | Self::NotPublished { .. }
            | Self::Gone { .. }
            | Self::Deleted { .. }
            | Self::Stale { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use documented::DocumentedFieldsOpt as _;
    use rtad_core::error_chain::error_chain;
    use rtad_core::snapshot::{Fault, ManifestError};
    use testkit::reference::{assert_every_variant, assert_listed, assert_texts};

    use super::*;

    #[test]
    fn error_reference_lists_every_cause() {
        let audience: AudienceName = "a".parse().unwrap();
        let (folder, source) = (std::path::PathBuf::new(), std::io::ErrorKind::Other.into());
        let errors = [
            SyncError::Store(StoreError::Stalled {
                path: String::new(),
                timeout: std::time::Duration::ZERO,
            }),
            SyncError::Late {
                what: String::new(),
                seconds: 0.0,
            },
            SyncError::NotPublished {
                audience: audience.clone(),
            },
            SyncError::Gone {
                audience: audience.clone(),
                served: 1,
            },
            SyncError::Deleted { audience },
            SyncError::Stale {
                found: 1,
                found_sequence: 1,
                known: 2,
                known_sequence: 2,
            },
            SyncError::Internal,
            SyncError::InsufficientMemory {
                needed_bytes: 0,
                available_bytes: 0,
            },
            SyncError::Expired {
                generation: 1,
                expires_unix_seconds: 0,
                now_unix_seconds: 0,
            },
            SyncError::Cache { folder, source },
            SyncError::TooLarge {
                size_bytes: 0,
                limit_bytes: 0,
            },
        ];
        assert_every_variant(SyncError::FIELD_NAMES, &errors);
        let faults = [
            Fault::Digest,
            Fault::Truncated,
            Fault::Format,
            Fault::TooLarge,
        ];
        let of_files = faults.map(Fault::as_str).into_iter().chain(["signature"]);
        let causes: Vec<_> = errors
            .iter()
            .map(SyncError::cause)
            .chain(of_files)
            .collect();
        assert_texts("sync", causes.iter().chain(&["ok", "unchanged"]));
        assert_texts("do", &causes);
        assert_listed(
            "errors.md",
            "Sync results",
            causes.iter().map(|&cause| [cause.to_owned()]),
        );
    }

    #[test]
    fn store_error_chain_names_file_and_remedy() {
        let source = ManifestError::Version { found: 2 };
        let error = StoreError::Manifest {
            path: "a/records/00000000000000000001.json".to_owned(),
            source,
        };
        let line = error_chain(&SyncError::Store(error));
        assert_eq!(
            line,
            "a/records/00000000000000000001.json: version is 2, this rtad reads version 1: upgrade rtad"
        );
    }
}
