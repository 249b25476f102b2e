//! Overlap: the share of the live generation's devices that stay members in a new one.
//!
//! Filters hold no keys, so the new keys are looked up in live filters: in some chunks of a large
//! generation, as a fair sample. False positives add a little. Changes by deltas are not counted.

use std::ops::Range;

use serde::Serialize;

use rtad_cli::exit;
use rtad_core::device::SHARDS;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{ChunkEntry, Manifest};
use rtad_store::write::Base;
use rtad_store::{Store, StoreError};

use super::context::default_threads;
use crate::live_filters::{LiveFilters, sample};

/// Most bytes of filters to read: two chunks of usual size, some ten million keys.
const MAX_FILTER_BYTES: u64 = 36 << 20;

/// Keys of the sampled live chunks, and those of them that stay members.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Overlap {
    live_keys_checked: u64,
    kept: u64,
    pub ratio: f64,
}

/// The sampled chunks of the live generation.
pub struct LiveSample {
    pub filters: LiveFilters,
}

impl LiveSample {
    /// Reads the sample. `None` without live keys, or if their files are damaged or missing: a
    /// build must be able to replace them.
    ///
    /// # Errors
    ///
    /// An outage of the store: it must not hide that the input is another list.
    pub async fn read(store: &Store, base: &Base) -> Result<Option<Self>, StoreError> {
        Self::read_shards(store, base, 0..SHARDS as u32).await
    }

    /// The same, but only the chunks of the sample that have one of these shards.
    pub async fn read_shards(
        store: &Store,
        base: &Base,
        shards: Range<u32>,
    ) -> Result<Option<Self>, StoreError> {
        let live = base.with_generation();
        let Some(current) = live else { return Ok(None) };

        let read = async {
            let manifest = store
                .manifest(base.audience(), &current.live_entry())
                .await?;
            let mut entries = sampled(&manifest);
            entries.retain(|entry| {
                let end = entry.first_shard + entry.shard_count;
                entry.first_shard < shards.end && shards.start < end
            });
            let threads = default_threads();
            LiveFilters::read(store, manifest, &entries, threads).await
        };

        match read.await {
            Ok(filters) if filters.manifest().keys() == 0 => Ok(None),
            Ok(filters) => Ok(Some(Self { filters })),
            Err(error) if error.is_outage() => Err(error),
            Err(error) => {
                warn_unreadable(base, &error);
                Ok(None)
            }
        }
    }

    /// The overlap, from the number of new keys that the filters contain.
    pub fn overlap(&self, kept: u64) -> Overlap {
        let checked = sampled(self.filters.manifest())
            .iter()
            .map(|entry| entry.keys)
            .sum();
        Overlap::of(checked, kept)
    }
}

/// The chunks that every task of a build samples.
pub fn sampled(live: &Manifest) -> Vec<ChunkEntry> {
    sample(live, MAX_FILTER_BYTES)
}

fn warn_unreadable(base: &Base, error: &StoreError) {
    exit::write_warning(&format!(
        "{}: the live filters are unreadable, so the overlap is unknown: {}",
        base.audience(),
        error_chain(error)
    ));
}

impl Overlap {
    pub fn of(checked: u64, kept: u64) -> Self {
        let kept = kept.min(checked);
        Self {
            live_keys_checked: checked,
            kept,
            ratio: kept as f64 / checked.max(1) as f64,
        }
    }
}
