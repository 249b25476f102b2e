//! Shard index: the chunk of each shard.

use std::sync::Arc;

use crate::device::SHARDS;

/// The index of each shard's chunk in a list, or [`NO_CHUNK`]. A builder aligns chunks to powers of
/// two, so one entry covers as many shards as possible. 256 chunks take 1 KiB, which stays in the
/// L1 cache.
#[derive(Debug, Clone)]
pub struct ShardIndex {
    chunks: Arc<[u32]>,
    /// Binary logarithm of the number of shards per entry.
    shift: u32,
}

/// An index past the end of any list.
const NO_CHUNK: u32 = u32::MAX;

impl ShardIndex {
    /// An argument of [`ShardIndex::new`] without chunks.
    pub fn empty() -> Vec<Option<usize>> {
        vec![None; SHARDS]
    }

    /// `chunk_of_shard` has the index of every shard's chunk.
    pub fn new(chunk_of_shard: &[Option<usize>]) -> Self {
        let index = |index: usize| u32::try_from(index).expect("at most 65,536 chunks");
        let mut chunks: Vec<u32> = chunk_of_shard
            .iter()
            .map(|chunk| chunk.map_or(NO_CHUNK, index))
            .collect();
        let mut shift = 0;
        while chunks.len() > 1 && chunks.as_chunks::<2>().0.iter().all(|[a, b]| a == b) {
            chunks = chunks.into_iter().step_by(2).collect();
            shift += 1;
        }
        Self {
            chunks: chunks.into(),
            shift,
        }
    }

    /// The index of a shard's chunk; past the end of the list if there is none.
    #[inline]
    pub fn chunk_of(&self, shard: u16) -> usize {
        self.chunks[usize::from(shard) >> self.shift] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_maps_to_its_chunk() {
        let cuts: [&[usize]; 5] = [
            &[0],
            &[0, 32_768],
            &[0, 256, 512, 768],
            &[3, 65_535],
            &[0, 1, 2, 3, 40_000],
        ];
        for (cuts, entries) in cuts.into_iter().zip([1, 2, 256, 65_536, 65_536]) {
            let mut chunk_of_shard = ShardIndex::empty();
            for (index, first) in cuts.iter().enumerate() {
                chunk_of_shard[*first..].fill(Some(index));
            }
            let made = ShardIndex::new(&chunk_of_shard);
            assert_eq!(made.chunks.len(), entries, "{cuts:?}");
            for shard in 0..=u16::MAX {
                let expected = chunk_of_shard[usize::from(shard)].unwrap_or(NO_CHUNK as usize);
                assert_eq!(made.chunk_of(shard), expected, "{cuts:?}");
            }
        }
        assert_eq!(ShardIndex::new(&ShardIndex::empty()).chunks.len(), 1);
    }
}
