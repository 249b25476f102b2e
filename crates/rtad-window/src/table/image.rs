//! Copies of regions.

#[cfg(test)]
use super::key_of;
use super::{RegionClock, SLOTS, Table};
#[cfg(test)]
use crate::Key;

impl Table {
    /// Copies a region, in the layout of `load`, without what has expired at `tick`.
    pub fn copy(&mut self, region: usize, tick: u64, into: &mut Vec<u8>) -> RegionClock {
        let region = self.region_at(region, tick);
        into.clear();
        for bucket in region.lanes.chunks(SLOTS * region.layout.format.lanes()) {
            let heads = bucket.first_chunk::<SLOTS>().expect("a whole bucket");
            let mask = heads.map(|head| if region.is_live(head) { u32::MAX } else { 0 });
            for (word, mask) in bucket.iter().zip(mask.iter().cycle()) {
                into.extend_from_slice(&(word & mask).to_le_bytes());
            }
        }
        let tick = region.tick();
        RegionClock { tick, swept: tick }
    }

    /// Bytes of a copied region.
    pub fn region_bytes(&self) -> usize {
        self.layout.buckets * SLOTS * self.layout.format.lanes() * 4
    }

    /// Whether any slot holds a whole key, live or not.
    #[cfg(test)]
    pub fn holds(&mut self, key: &Key) -> bool {
        (0..self.layout.regions).any(|region| {
            let region = self.region(region);
            let slots = region.first..region.first + (region.layout.buckets * SLOTS) as u64;
            slots
                .into_iter()
                .any(|slot| key_of(&region.words(region.lane_of(slot))) == *key)
        })
    }

    /// Replaces a region by a copy of `region_bytes()` bytes.
    pub fn load(&mut self, region: usize, clock: RegionClock, copy: &[u8]) {
        let region = self.region(region);
        for (lane, bytes) in region.lanes.iter_mut().zip(copy.as_chunks().0) {
            *lane = u32::from_le_bytes(*bytes);
        }
        *region.clock = clock;
    }
}
