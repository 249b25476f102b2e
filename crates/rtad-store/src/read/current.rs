//! `CURRENT`: the live generation of an audience, and the version of the file that was read.

use std::time::{Duration, Instant};

use object_store::{GetOptions, UpdateVersion};

use super::small::read_small_by;
use super::store::Store;
use crate::error::StoreError;
use crate::layout::current_path;
use rtad_core::snapshot::{AudienceName, Current, MAX_CURRENT_BYTES};

/// Coarsest time in an entity tag: FAT's. nginx tags files by the second and the size.
const TAG_UNIT: Duration = Duration::from_secs(2);

/// `CURRENT`, with the version that a conditional put needs to replace exactly this one.
#[derive(Debug, Clone)]
pub struct Live {
    /// The file's content.
    pub current: Current,
    pub(crate) version: UpdateVersion,
    tag: TagAge,
}

/// Age of an entity tag at a read. Two writes within one unit of the tag's time may share it.
#[derive(Debug, Clone, Copy)]
struct TagAge {
    /// When the tag was first seen.
    seen: Instant,
    /// When the content was read last.
    read: Instant,
}

impl TagAge {
    /// Whether the content was read after the last write that may have this tag.
    fn is_final(self) -> bool {
        self.read.saturating_duration_since(self.seen) > TAG_UNIT
    }
}

impl Live {
    /// A `CURRENT` that was just written.
    pub(crate) fn written(current: Current, version: UpdateVersion) -> Self {
        let now = Instant::now();
        Self {
            current,
            version,
            tag: TagAge {
                seen: now,
                read: now,
            },
        }
    }
}

impl Store {
    /// The live `CURRENT`; `None` if nothing of this audience was ever published.
    ///
    /// # Errors
    ///
    /// A store error, or a refused `CURRENT`. A missing directory is [`StoreError::NoDirectory`],
    /// one that was emptied is [`StoreError::LostMount`].
    pub async fn live(&self, audience: &AudienceName) -> Result<Option<Live>, StoreError> {
        self.live_since(audience, None).await
    }

    /// Reads `CURRENT`; an error if this audience was never published.
    pub(crate) async fn require_live(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Live, StoreError> {
        let path = current_path(audience).to_string();
        match self.live_since(audience, last).await {
            Ok(None) => Err(StoreError::NotFound { path }),
            Ok(Some(live)) => Ok(live),
            Err(error) => Err(error),
        }
    }

    /// Reads the live generation like [`Store::live`], with a conditional request; returns `last`
    /// if nothing has changed.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::live`].
    pub async fn live_since(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Option<Live>, StoreError> {
        let path = current_path(audience);
        let objects = self.objects(&path).await?;
        // A local file's tag is its inode, size and time, which two quick publishes may share.
        let last = last.filter(|_| self.is_remote());
        let is_final = |live: &&Live| live.tag.is_final();
        let if_none_match = last
            .filter(is_final)
            .and_then(|live| live.version.e_tag.clone());
        let is_conditional = if_none_match.is_some();
        let options = GetOptions {
            if_none_match,
            ..GetOptions::default()
        };
        let begun = Instant::now();
        let read = read_small_by(
            &*objects,
            &path,
            MAX_CURRENT_BYTES,
            "CURRENT",
            options,
            self.stall_timeout,
        )
        .await;
        let (bytes, version) = match read {
            Err(StoreError::NotFound { .. }) => {
                self.refuse_lost_mount().await?;
                return Ok(None);
            }
            Err(error) => {
                // A server that answers 304 to a request without a condition is faulty.
                return match last.filter(|_| is_conditional && is_not_modified(&error)) {
                    Some(last) => Ok(Some(last.clone())),
                    None => Err(error),
                };
            }
            Ok(read) => read,
        };
        self.note_content();
        let current = Current::parse(&bytes).map_err(|source| StoreError::Manifest {
            path: path.to_string(),
            source,
        })?;
        let same = |last: &&Live| last.version.e_tag == version.e_tag && last.current == current;
        let seen = last
            .filter(same)
            .map_or_else(Instant::now, |last| last.tag.seen);
        Ok(Some(Live {
            current,
            version,
            tag: TagAge { seen, read: begun },
        }))
    }
}

fn is_not_modified(error: &StoreError) -> bool {
    let StoreError::Backend { source, .. } = error else {
        return false;
    };
    matches!(
        source.downcast_ref(),
        Some(object_store::Error::NotModified { .. })
    )
}
