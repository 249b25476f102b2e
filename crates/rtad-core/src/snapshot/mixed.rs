//! Mixed snapshot: shards of two generations, while one replaces the other chunk by chunk. It
//! serves a pod without memory for both.
//!
//! ```text
//! shards   0 ────────────────────────────────────────────── 65,535
//! old      [ A        ][ B       ]      [ C                ]
//! new      [ a    ][ b       ]  [ c  ]        [ d     ]
//! step 1    a a a a A A B B B B B        C C C C C C C C C
//! step 2    a a a a b b b b b B B        C C C C C C C C C       A is freed
//! step 3    a a a a b b b b b   c c c c  C C C C C C C C C       B is freed
//! step 4    a a a a b b b b b   c c c c        d d d d d         C is freed
//! ```
//!
//! * Each shard, and so each key's answer, belongs to one generation.
//! * A chunk stays in memory while a shard uses it. The generations may have different chunk
//!   boundaries and filters.
//! * Until the last step, a mixed snapshot has the old generation's manifest and the deltas of both
//!   generations ([`Newer::Deltas`]).
//!
//! Only [`Snapshot::with_chunks`] makes mixed snapshots.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::Snapshot;
use super::chunk::Chunk;
use super::overlay::{Newer, Overlay};
use super::shard_index::ShardIndex;

impl Snapshot {
    /// Whether some shards belong to another generation than the manifest.
    pub const fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// The same snapshot with `shards` replaced by those of `chunks`; shards in none of the chunks
    /// become empty. Drops unused chunks. Costs a few passes over all shards.
    ///
    /// # Panics
    ///
    /// If a chunk has shards outside of `shards`: an error of the caller, not of a file.
    #[must_use]
    pub fn with_chunks(&self, shards: Range<usize>, chunks: &[Arc<Chunk>]) -> Self {
        // None for empty shards.
        let used = |shard| {
            self.chunk_of(shard)
                .filter(|chunk| !chunk.filter(shard).is_empty())
        };

        let mut chunk_of_shard: Vec<Option<&Arc<Chunk>>> = (0..=u16::MAX).map(used).collect();
        chunk_of_shard[shards.clone()].fill(None);
        for chunk in chunks {
            for shard in chunk.shards() {
                let is_empty = chunk.filter(shard).is_empty();
                let shard = usize::from(shard);
                assert!(
                    shards.contains(&shard),
                    "chunks replace only the given shards"
                );
                chunk_of_shard[shard] = (!is_empty).then_some(chunk);
            }
        }

        // Renumber the chunks still in use, in shard order.
        let mut kept = Vec::new();
        let mut indexes = HashMap::new();
        let chunk_of_shard: Vec<Option<usize>> = chunk_of_shard
            .into_iter()
            .map(|chunk| {
                let chunk = chunk?;
                Some(*indexes.entry(Arc::as_ptr(chunk)).or_insert_with(|| {
                    kept.push(Arc::clone(chunk));
                    kept.len() - 1
                }))
            })
            .collect();
        Self {
            manifest: self.manifest.clone(),
            chunks: kept,
            shard_index: ShardIndex::new(&chunk_of_shard),
            overlay: Overlay::over(&self.overlay, Newer::Filters),
            is_mixed: true,
        }
    }
}
