//! Rollback to an older generation, with the changes appended since.

use super::live::{Candidate, RetainedDeltas, go_live};
use super::publish::{Publication, Published};
use crate::error::StoreError;
use crate::layout::{chunk_path, delta_path};
use crate::read::Store;
use futures_util::{StreamExt, TryStreamExt, stream};
use rtad_core::snapshot::{
    AudienceName, ChunkError, Current, DeltaEntry, DeltaError, Manifest, State,
};

/// Concurrent lookups of chunk sizes.
const PARALLEL_LOOKUPS: usize = 16;

impl Publication<'_> {
    /// Makes an older generation live again, after checking that its files exist. Later deltas
    /// apply to it, including those folded into later generations; tombstones stay.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the record does not name the generation, or a file is missing;
    /// [`StoreError::Chunk`] or [`StoreError::Delta`] if a file is cut short;
    /// [`StoreError::Conflict`] if another loader published meanwhile; [`StoreError::NotLive`] if
    /// the audience was deleted; [`StoreError::Unsigned`].
    pub async fn roll_back(self, generation: u64) -> Result<Published, StoreError> {
        self.roll_back_to(generation, true).await
    }

    /// Rolls back without the deltas folded into later generations: those changes are lost. Needed
    /// if a later generation's manifest is unreadable.
    ///
    /// # Errors
    ///
    /// Those of [`Publication::roll_back`].
    pub async fn roll_back_without_deltas(self, generation: u64) -> Result<Published, StoreError> {
        self.roll_back_to(generation, false).await
    }

    async fn roll_back_to(
        self,
        generation: u64,
        takes_deltas: bool,
    ) -> Result<Published, StoreError> {
        let store = self.writer.store();
        let audience = self.audience();
        let current = self.base.current();
        // The files of a deleted audience are being removed.
        if let Some(state) = current
            .map(|current| current.state)
            .filter(|state| *state == State::Deleted)
        {
            return Err(StoreError::NotLive {
                audience: audience.clone(),
                state,
            });
        }

        let entry = current
            .and_then(|current| current.entry(generation))
            .ok_or_else(|| StoreError::NotFound {
                path: format!("{audience} generation {generation}"),
            })?;
        let (manifest, bytes) = store.manifest_and_file(audience, &entry).await?;
        check_chunks(store, &manifest).await?;
        // A reader may still serve the generation from before an earlier rollback, so its number is
        // kept. Only a return to that generation is no rollback.
        let from = current
            .map(Current::highest_generation)
            .filter(|from| *from > generation);
        let deltas = self
            .retained_deltas(&manifest, takes_deltas, from.is_some())
            .await?;
        if let Some(current) = current {
            let groups = deltas.groups(&current.deltas);
            let needed = current.tombstones.iter().chain(groups.iter().flatten());
            check_delta_files(store, audience, needed).await?;
        }

        let candidate = Candidate {
            generation,
            manifest: &bytes,
            rolled_back_from: from,
            deltas,
            pods_per_million: None,
            old_deltas: Vec::new(),
        };

        let current = go_live(self.writer, &self.base, &candidate).await?;
        Ok(Published { manifest, current })
    }

    async fn retained_deltas(
        &self,
        manifest: &Manifest,
        takes_deltas: bool,
        is_rollback: bool,
    ) -> Result<RetainedDeltas, StoreError> {
        let current = self.base.current();
        let mut retained = RetainedDeltas::over(manifest);
        let unmerged = current.and_then(|current| current.no_merge_through);
        let mut through = unmerged;
        if takes_deltas {
            let later = LaterDeltas::read(self.writer.store(), manifest, current).await?;
            retained.older = later.groups;
            through = through.max(Some(later.through));
        }

        if is_rollback {
            retained.no_merge_through = through;
        }
        Ok(retained)
    }
}

/// Checks that every chunk exists, with its size.
pub async fn check_chunks(store: &Store, manifest: &Manifest) -> Result<(), StoreError> {
    let audience = manifest.audience();
    let mut lookups = Vec::new();
    for entry in manifest.chunks() {
        lookups.push(async move {
            Ok::<_, StoreError>((entry, store.chunk_size(audience, entry).await?))
        });
    }

    let mut sizes = stream::iter(lookups).buffered(PARALLEL_LOOKUPS);
    while let Some((entry, found)) = sizes.try_next().await? {
        if found != entry.size_bytes {
            let source = ChunkError::Length {
                found,
                expected: entry.size_bytes,
            };
            return Err(StoreError::Chunk {
                path: chunk_path(audience, entry).to_string(),
                source,
            });
        }
    }

    Ok(())
}

/// Checks that every delta exists, with its size.
async fn check_delta_files(
    store: &Store,
    audience: &AudienceName,
    entries: impl Iterator<Item = &DeltaEntry>,
) -> Result<(), StoreError> {
    for entry in entries {
        let found = store.delta_size(audience, entry).await?;
        let expected = entry.size_bytes();
        if found != expected {
            return Err(StoreError::Delta {
                path: delta_path(audience, entry).to_string(),
                source: DeltaError::Length { found, expected },
            });
        }
    }
    Ok(())
}

/// Deltas that were published after an older generation was built.
struct LaterDeltas {
    /// Grouped by the generation that they are folded into, oldest first.
    groups: Vec<Vec<DeltaEntry>>,
    /// The highest sequence folded into any of them.
    through: u64,
}

impl LaterDeltas {
    /// Reads the deltas that were published after `target` was built and are folded into later
    /// generations.
    async fn read(
        store: &Store,
        target: &Manifest,
        live: Option<&Current>,
    ) -> Result<Self, StoreError> {
        let audience = target.audience();
        let built_through = target.folded().map_or(0, |folded| folded.through);
        let mut since = Self {
            groups: Vec::new(),
            through: built_through,
        };

        for later in live.map(Current::generations).unwrap_or_default() {
            if later.generation <= target.generation() {
                continue;
            }
            let manifest = store.manifest(audience, &later).await?;
            let Some(folded) = manifest.folded() else {
                continue;
            };
            let newer = folded
                .deltas
                .iter()
                .filter(|delta| delta.last > built_through);
            since.groups.push(newer.cloned().collect());
            since.through = since.through.max(folded.through);
        }

        Ok(since)
    }
}
