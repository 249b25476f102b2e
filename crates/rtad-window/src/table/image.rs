//! Copies of regions.

#[cfg(test)]
use super::key_of;
use super::{Line, RegionClock, SLOTS, Table};
#[cfg(test)]
use crate::Key;

impl Table {
    /// Copies a region, in the layout of `load`, without what has expired at `tick`.
    pub(crate) fn copy(&mut self, region: usize, tick: u64, into: &mut Vec<u8>) -> RegionClock {
        let region = self.region(region, tick);
        into.clear();
        for lines in region.lanes.0.chunks(region.layout.format.lanes()) {
            let mask = lines[0].0.map(|head| if region.is_live(head) { u32::MAX } else { 0 });
            for Line(line) in lines {
                for (word, mask) in line.iter().zip(mask) {
                    into.extend_from_slice(&(word & mask).to_le_bytes());
                }
            }
        }
        let tick = region.tick();
        RegionClock { tick, swept: tick }
    }

    /// Bytes of a copied region.
    pub(crate) fn region_bytes(&self) -> usize {
        self.layout.buckets * SLOTS * self.layout.format.lanes() * 4
    }

    /// Whether any slot holds a whole key, live or not.
    #[cfg(test)]
    pub(crate) fn holds(&mut self, key: &Key) -> bool {
        (0..self.layout.regions).any(|region| {
            let region = self.region_unmoved(region);
            let slots = region.first..region.first + (region.layout.buckets * SLOTS) as u64;
            slots.into_iter().any(|slot| key_of(&region.words(region.lane_of(slot))) == *key)
        })
    }

    /// Replaces a region by a copy of `region_bytes()` bytes.
    pub(crate) fn load(&mut self, region: usize, clock: RegionClock, copy: &[u8]) {
        let region = &mut self.regions[region];
        let lanes = region.lanes.0.iter_mut().flat_map(|line| &mut line.0);
        for (lane, bytes) in lanes.zip(copy.chunks_exact(4)) {
            *lane = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        region.clock = clock;
    }
}
