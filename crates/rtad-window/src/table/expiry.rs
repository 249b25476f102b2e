//! Expiry: sweeps of a region, and keys that leave their slots before the caller's next sweep.

use super::{LANES, RegionClock, RegionMut, Words, age, count_of, key_of};
use crate::Key;
use crate::spec::{Format, SLOTS, TICKS};

/// Maximum number of expired keys that wait for the next sweep: 18 MiB. A follower of the window
/// lists all of its keys again rather than so many changes.
const MAX_EVICTED: usize = 1 << 20;

/// Expired whole keys that left their slots since the last sweep.
#[derive(Default)]
pub struct Evicted {
    /// Keys with their counts.
    pub(crate) keys: Vec<(Key, u16)>,
    /// Further keys were dropped.
    pub(crate) is_truncated: bool,
}

impl Evicted {
    fn add(&mut self, words: &Words) {
        if self.keys.len() < MAX_EVICTED {
            self.keys.push((key_of(words), count_of(words)));
        } else {
            self.is_truncated = true;
        }
    }
}

impl RegionMut<'_> {
    /// Moves the region's tick forward. Sweeps first, if a stored tick could repeat otherwise.
    pub fn advance(&mut self, tick: u64) {
        if tick <= self.clock.tick {
            return;
        }
        // The oldest stored tick is `swept - lifetime + 1`; its age must stay below TICKS.
        if tick - self.clock.swept + self.lifetime > TICKS {
            self.sweep_within_event(tick);
        }
        self.clock.tick = tick;
    }

    #[cold]
    fn sweep_within_event(&mut self, tick: u64) {
        if self.layout.format == Format::Whole {
            let mut evicted = std::mem::take(self.evicted);
            self.sweep(tick, |words| evicted.add(&words));
            *self.evicted = evicted;
        } else {
            self.sweep(tick, |_| {});
        }
    }

    /// Notes the whole key of an expired slot, before the slot is used again.
    pub fn evict(&mut self, at: usize) {
        let words = self.words(at);
        if words[0] & 0xff != 0 {
            self.evicted.add(&words);
        }
    }

    /// Clears what has expired at `tick`, which becomes the region's; reports each cleared slot.
    pub fn sweep(&mut self, tick: u64, mut cleared: impl FnMut(Words)) {
        let tick = tick.max(self.clock.tick);
        let passed = tick - self.clock.tick;
        let now = self.now();
        let lanes = self.layout.format.lanes();
        for bucket in 0..self.layout.buckets {
            for slot in 0..SLOTS {
                let at = bucket * SLOTS * lanes + slot;
                let stored = self.lanes[at] & 0xff;
                if stored == 0 {
                    continue;
                }
                let age = u64::from(age(now, stored)) + passed;
                if age >= self.lifetime {
                    cleared(self.words(at));
                    self.write(at, [0; LANES]);
                }
            }
        }
        *self.clock = RegionClock { tick, swept: tick };
    }
}
