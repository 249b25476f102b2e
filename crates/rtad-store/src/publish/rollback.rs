//! Going back: an older generation, with every change that was made since.

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::PutMode;

use super::super::{StoreError, chunk_path, manifest_path};
use super::{Carried, Publication};
use rtad_core::snapshot::{ChunkError, Current, State};

/// Chunks whose sizes are asked for at a time.
const PARALLEL_LOOKUPS: usize = 16;

impl Publication<'_> {
    /// Makes an older generation live again, after looking that every chunk of it is there. Deltas that came since it was built
    /// apply to it, also those that later generations have taken up, and tombstones stay.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] or [`StoreError::Chunk`] if the generation is not whole, [`StoreError::Conflict`] if somebody
    /// else published meanwhile, or a gc is removing it, [`StoreError::NotLive`] if the audience was deleted.
    pub async fn roll_back(self, generation: u64) -> Result<(), StoreError> {
        self.go_back(generation, true).await
    }

    /// The same without the deltas that later generations have taken up: what was appended before those were built is lost. For
    /// when their manifests cannot be read.
    ///
    /// # Errors
    ///
    /// As of [`Publication::roll_back`].
    pub async fn roll_back_without_deltas(self, generation: u64) -> Result<(), StoreError> {
        self.go_back(generation, false).await
    }

    async fn go_back(self, generation: u64, takes_deltas: bool) -> Result<(), StoreError> {
        let audience = &self.base.audience;
        // Its files are going, if they are not gone.
        if let Some(state) =
            self.base.current().map(|current| current.state).filter(|state| *state == State::Deleted)
        {
            return Err(StoreError::NotLive { audience: audience.clone(), state });
        }
        let (manifest, bytes) = self.store.manifest_of(audience, generation).await?;
        if !self.store.is_directory() {
            // Written again as it is, it is new to a gc, which leaves alone what is new, and all that it names.
            self.store.refresh_signature(audience, &manifest_path(audience, generation)).await?;
            self.put(&manifest_path(audience, generation), bytes.clone(), PutMode::Overwrite).await?;
            self.is_not_condemned(&manifest).await?;
        }
        let mut lookups = Vec::new();
        for entry in manifest.chunks() {
            lookups.push(async move {
                Ok::<_, StoreError>((entry, self.store.chunk_size(audience, entry).await?))
            });
        }
        let mut sizes = stream::iter(lookups).buffered(PARALLEL_LOOKUPS);
        while let Some((entry, found)) = sizes.try_next().await? {
            if found != entry.size_bytes {
                let source = ChunkError::Length { found, expected: entry.size_bytes };
                return Err(StoreError::Chunk { path: chunk_path(audience, entry).to_string(), source });
            }
        }
        // A reader may still hold what was live before an earlier rollback, so that stays the mark. Only going forward again,
        // to what was rolled back from, is no rollback.
        let from = self.base.current().map(Current::highest_generation).filter(|from| *from > generation);
        let mut carried = Carried::over(&manifest);
        let apart = self.base.current().and_then(|current| current.no_merge_through);
        let mut through = carried.no_merge_through.max(apart);
        if takes_deltas {
            let since = self.store.deltas_since(&manifest, self.base.current()).await?;
            carried.older.extend(since.groups);
            carried.left_out = since.residuals;
            through = through.max(Some(since.through));
        } else if let Some(current) = self.base.current().filter(|live| live.rolled_back_from.is_none()) {
            // Its residual is all that is kept apart: it restates a part of what is lost.
            let residual = current.deltas.iter().filter(|delta| Some(delta.last) <= apart);
            carried.left_out = residual.cloned().collect();
        }
        if from.is_some() {
            carried.no_merge_through = through;
        }
        self.deltas_survive_gc(carried.older.concat()).await?;
        self.point_at(generation, &bytes, from, &carried).await
    }
}
