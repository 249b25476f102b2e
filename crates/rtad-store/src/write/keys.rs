//! Publication of keys in memory, for callers that have no build of their own.

use std::sync::Arc;

use super::publish::{Publication, Published};
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::manifests_path;
use rtad_core::device::DeviceKey;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{
    BuiltChunk, GenerationFacts, ManifestBuilder, chunk_runs, shards_per_chunk,
};

impl Publication<'_> {
    /// Publishes distinct keys in any order, without values. One chunk at a time is in memory.
    ///
    /// # Errors
    ///
    /// Those of [`Publication::commit`].
    ///
    /// # Panics
    ///
    /// If the keys have duplicates, or the filters hold values.
    pub async fn commit_keys(
        self,
        mut keys: Vec<DeviceKey>,
        filter: FilterSpec,
        target_fpr: f64,
        facts: GenerationFacts,
    ) -> Result<Published, StoreError> {
        let sorted = blocking(move || {
            keys.sort_unstable();
            Arc::new(keys)
        });
        let keys = sorted.await;

        let shards = shards_per_chunk(&filter, keys.len() as u64);
        let mut chunks = ManifestBuilder::new(filter, target_fpr);
        let mut stored = 0;
        while stored < keys.len() {
            let keys = Arc::clone(&keys);
            let built = blocking(move || {
                let run = chunk_runs(&keys[stored..], shards).next();
                BuiltChunk::build(&filter, run.expect("keys are left"))
            });
            let chunk = built.await;
            stored += chunk.entry.keys as usize;
            chunks.add(&chunk);
            self.put_chunk(chunk).await?;
        }

        let manifest = chunks
            .finish(self.audience().clone(), facts)
            .map_err(|source| StoreError::Manifest {
                path: manifests_path(self.audience()).to_string(),
                source,
            })?;
        self.commit(manifest).await
    }
}
