//! Filters of the live generation, for the membership check of `add_if_absent`.
//!
//! The filters are loaded on first use, concurrently with other writes, and kept. A new generation
//! loads only its new chunks, after unused ones were dropped, so an audience takes memory once.
//! Each batch applies the current deltas; loaded deltas are shared.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use rtad_core::snapshot::{AudienceName, Chunk, ChunkEntry, Current, Digest, Overlay, Snapshot};
use rtad_store::write::Ledger;
use rtad_store::{Store, StoreError};

const PARALLEL_CHUNKS: usize = 2;

/// A loaded generation, and the digest of its manifest.
struct LoadedGeneration {
    manifest: Digest,
    snapshot: Arc<Snapshot>,
}

#[derive(Default)]
pub struct Members {
    held: Option<LoadedGeneration>,
    /// The load that is running, if any.
    loading: JoinSet<Result<LoadedGeneration, StoreError>>,
}

impl Members {
    /// Whether the generation of `current` is loaded.
    pub fn are_of(&self, current: &Current) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| held.manifest == current.manifest_sha256)
    }

    pub fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// The loaded generation, which must be the ledger's, with all its deltas.
    pub async fn over(&mut self, ledger: &mut Ledger) -> Result<Arc<Snapshot>, StoreError> {
        let current = ledger.current().clone();
        let held = self.held.as_mut().expect("the caller checked `are_of`");
        if held.snapshot.overlay().sequence() != current.sequence {
            let mut files = Vec::new();
            for entry in current.delta_entries() {
                files.push(ledger.delta(entry).await?);
            }
            held.snapshot = Arc::new(held.snapshot.with_overlay(Overlay::new(&current, files)));
        }
        Ok(Arc::clone(&held.snapshot))
    }

    /// Starts loading the generation of `current`, unless a load is running.
    pub fn load(&mut self, store: &Store, audience: &AudienceName, current: &Current) {
        if self.is_loading() {
            return;
        }
        let old = self.held.take();
        let load = load(store.clone(), audience.clone(), current.clone(), old);
        self.loading.spawn(load);
    }

    /// Stands for a load in progress.
    #[cfg(test)]
    pub fn hold(&mut self) {
        self.loading.spawn(std::future::pending());
    }

    /// Waits for the running load, or forever without one. Cancel-safe.
    pub async fn loaded(&mut self) -> Result<(), StoreError> {
        match self.loading.join_next().await {
            None => std::future::pending().await,
            Some(Ok(held)) => self.held = Some(held?),
            Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
        }
        Ok(())
    }
}

async fn load(
    store: Store,
    audience: AudienceName,
    current: Current,
    old: Option<LoadedGeneration>,
) -> Result<LoadedGeneration, StoreError> {
    let manifest = store.manifest(&audience, &current.live_entry()).await?;
    let old: HashMap<Digest, Arc<Chunk>> = old
        .iter()
        .flat_map(|held| held.snapshot.chunks())
        .map(|chunk| (*chunk.digest(), Arc::clone(chunk)))
        .collect();
    let shared = |entry: &ChunkEntry| {
        old.get(&entry.digest)
            .filter(|chunk| chunk.matches(manifest.filter(), entry))
    };
    let mut chunks: HashMap<Digest, Arc<Chunk>> = manifest
        .chunks()
        .iter()
        .filter_map(|entry| Some((entry.digest, Arc::clone(shared(entry)?))))
        .collect();
    drop(old);
    let missing: Vec<ChunkEntry> = manifest
        .chunks()
        .iter()
        .filter(|entry| !chunks.contains_key(&entry.digest))
        .cloned()
        .collect();
    let arrived = |entry: &ChunkEntry, chunk| drop(chunks.insert(entry.digest, Arc::new(chunk)));
    store
        .chunks(&manifest, &missing, PARALLEL_CHUNKS, arrived)
        .await?;
    let in_order = manifest
        .chunks()
        .iter()
        .map(|entry| Arc::clone(&chunks[&entry.digest]))
        .collect();
    Ok(LoadedGeneration {
        manifest: current.manifest_sha256,
        snapshot: Arc::new(Snapshot::assemble(manifest, in_order)),
    })
}
