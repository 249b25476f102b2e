//! Which chunk each shard lies in.

use std::sync::Arc;

use crate::device::SHARDS;

/// Of each shard the place of its chunk in a list, or [`NO_CHUNK`]. Neighbours mostly lie in one
/// chunk, and a builder cuts chunks at multiples of a power of two: so one entry stands for as many
/// shards as all entries allow. 256 chunks make a kilobyte, which stays in the first-level cache.
#[derive(Debug, Clone)]
pub(super) struct ShardIndex {
    places: Arc<[u32]>,
    /// The binary logarithm of how many shards an entry stands for.
    shift: u32,
}

/// Beyond the end of any list.
const NO_CHUNK: u32 = u32::MAX;

impl ShardIndex {
    /// No shard lies anywhere: what to begin with.
    pub(super) fn empty() -> Vec<Option<usize>> {
        vec![None; SHARDS]
    }

    /// `holders` are of all shards, in their order.
    pub(super) fn new(holders: &[Option<usize>]) -> Self {
        let place = |place: usize| u32::try_from(place).expect("there are at most 65,536 chunks");
        let mut places: Vec<u32> =
            holders.iter().map(|holder| holder.map_or(NO_CHUNK, place)).collect();
        let mut shift = 0;
        while places.len() > 1 && places.as_chunks::<2>().0.iter().all(|[a, b]| a == b) {
            places = places.into_iter().step_by(2).collect();
            shift += 1;
        }
        Self { places: places.into(), shift }
    }

    /// The place of the chunk that a shard lies in; beyond the end of the list if there is none.
    #[inline]
    pub(super) fn of(&self, shard: u16) -> usize {
        self.places[usize::from(shard) >> self.shift] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_finds_its_chunk_however_they_are_cut() {
        let cuts: [&[usize]; 5] =
            [&[0], &[0, 32_768], &[0, 256, 512, 768], &[3, 65_535], &[0, 1, 2, 3, 40_000]];
        for (cuts, entries) in cuts.into_iter().zip([1, 2, 256, 65_536, 65_536]) {
            let mut holders = ShardIndex::empty();
            for (place, first) in cuts.iter().enumerate() {
                holders[*first..].fill(Some(place));
            }
            let made = ShardIndex::new(&holders);
            assert_eq!(made.places.len(), entries, "{cuts:?}");
            for shard in 0..=u16::MAX {
                let expected = holders[usize::from(shard)].unwrap_or(NO_CHUNK as usize);
                assert_eq!(made.of(shard), expected, "{cuts:?}");
            }
        }
        assert_eq!(ShardIndex::new(&ShardIndex::empty()).places.len(), 1);
    }
}
