//! A snapshot between two generations: how one becomes the other chunk by chunk, for a pod that
//! cannot hold both.
//!
//! ```text
//! shards   0 ────────────────────────────────────────────── 65,535
//! old      [ A        ][ B       ]      [ C                ]
//! new      [ a    ][ b       ]  [ c  ]        [ d     ]
//! step 1    a a a a A A B B B B B        C C C C C C C C C
//! step 2    a a a a b b b b b B B        C C C C C C C C C       A is freed
//! step 3    a a a a b b b b b   c c c c  C C C C C C C C C       B is freed; its last shards are empty in the new one
//! step 4    a a a a b b b b b   c c c c        d d d d d         C is freed
//! ```
//!
//! * Each shard is wholly of one generation, and so is each key's answer.
//! * A chunk is held for as long as a shard lies in it. The generations may be cut differently and
//!   have different filters.
//! * Until the last step a mixed snapshot has the old generation's manifest, and the deltas of both
//!   ([`Overlay::over`]).
//!
//! [`Overlay::over`]: super::Overlay::over
//!
//! [`Snapshot::with_chunks`] is the one place where a mixed snapshot is made.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Chunk, ShardIndex, Snapshot};

impl Snapshot {
    /// Whether some of its shards are of another generation than its manifest's.
    pub const fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// The same snapshot, but `shards` lie in these chunks; those of them that are in none of the
    /// chunks are empty. Chunks that no shard lies in any more are let go. Costs a few passes over
    /// all shards.
    ///
    /// # Panics
    ///
    /// If a chunk has shards outside of `shards`: a mistake of the caller, not of a file.
    #[must_use]
    pub fn with_chunks(&self, shards: Range<usize>, chunks: &[Arc<Chunk>]) -> Self {
        // None if the shard is empty.
        let holder = |shard| self.holder(shard).filter(|chunk| !chunk.filter(shard).is_empty());
        let mut holding: Vec<Option<&Arc<Chunk>>> = (0..=u16::MAX).map(holder).collect();
        holding[shards.clone()].fill(None);
        for chunk in chunks {
            for (shard, range) in chunk.shards() {
                let shard = usize::from(shard);
                assert!(
                    shards.contains(&shard),
                    "a chunk replaces no other shards than those that are named"
                );
                holding[shard] = (!range.is_empty()).then_some(chunk);
            }
        }
        // Numbered anew, in shard order: only what is still used is kept.
        let (mut kept, mut numbers, mut holders) =
            (Vec::new(), HashMap::new(), ShardIndex::empty());
        for (holder, chunk) in holders.iter_mut().zip(holding) {
            *holder = chunk.map(|chunk| {
                *numbers.entry(Arc::as_ptr(chunk)).or_insert_with(|| {
                    kept.push(Arc::clone(chunk));
                    kept.len() - 1
                })
            });
        }
        let (manifest, overlay) = (self.manifest.clone(), self.overlay.clone());
        Self { manifest, chunks: kept, holders: ShardIndex::new(&holders), overlay, is_mixed: true }
    }
}
