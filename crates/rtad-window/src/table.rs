//! Regions of buckets: both buckets of a key are in the same region.
//!
//! A bucket has sixteen slots, stored by lane: the first lanes of all slots, then the second lanes.
//! The first lane holds 24 bits of fingerprint and the tick as `tick mod 255 + 1`; 0 is empty. Wide
//! slots have 16 further bits of fingerprint and a 16-bit count in the second lane, whole slots the
//! count there and the key in four more.
//!
//! Each region knows the latest tick that it has seen, and the tick up to which it was swept. A
//! region is swept before tick values could repeat, whatever the callers do: correctness needs no
//! background work.
//!
//! Whole keys that expire are reported to the caller. Those that leave their slots before the
//! caller's next sweep wait for it in a list.

mod expiry;
mod image;
mod replay;

use rtad_core::memory::{Pages, Region as Memory};

use crate::Key;
use crate::position::{Position, Secret};
use crate::spec::{Format, Layout, SLOTS, SpecError, TICKS};

pub use expiry::Evicted;

/// Most lanes of a slot.
pub const LANES: usize = 6;

/// Contents of a slot; lanes beyond the format's are 0.
pub type Words = [u32; LANES];

/// A slot and its contents after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Index of the slot in the table.
    pub(crate) slot: u64,
    pub(crate) words: Words,
}

/// Outcome of an event within a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    New(Change),
    /// The count after the event, and the change if the count grew.
    Known(u16, Option<Change>),
    Full,
}

pub struct Table {
    pub(crate) layout: Layout,
    lifetime: u64,
    secret: Secret,
    /// Lanes of all regions, as native 32-bit words. Large pages: nearly each event reads two cache
    /// lines at random places of gigabytes, and would miss the TLB twice.
    memory: Memory,
    /// Clock of each region.
    clocks: Box<[RegionClock]>,
    /// Whole slots only.
    evicted: Evicted,
}

/// Ticks of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionClock {
    /// Latest tick seen.
    pub(crate) tick: u64,
    /// Entries that had expired at this tick are gone.
    pub(crate) swept: u64,
}

/// A region at a tick.
pub struct RegionMut<'a> {
    layout: Layout,
    lifetime: u64,
    /// By index: that of a slot's first lane plus `SLOTS` for each further one.
    lanes: &'a mut [u32],
    clock: &'a mut RegionClock,
    evicted: &'a mut Evicted,
    /// First slot of the region.
    first: u64,
}

/// Representation of a tick in a slot.
pub const fn tick_value(tick: u64) -> u32 {
    (tick % TICKS) as u32 + 1
}

/// Ticks from an entry's tick to `now`, both as stored.
const fn age(now: u32, stored: u32) -> u32 {
    if stored > now {
        now + TICKS as u32 - stored
    } else {
        now - stored
    }
}

impl Table {
    pub fn new(
        layout: Layout,
        lifetime: u16,
        secret: Secret,
        tick: u64,
    ) -> Result<Self, SpecError> {
        let bytes = layout.slots() * layout.format.slot_bytes();
        let length = usize::try_from(bytes).expect("a table is smaller than the address space");
        // All of it now: a large page takes long to zero, and the first events of a window would
        // each wait for some.
        let memory = Memory::zeroed(length, Pages::Large)
            .and_then(|memory| memory.populate().map(|()| memory))
            .map_err(|error| SpecError::Memory {
                bytes,
                reason: error.to_string(),
            })?;
        let clocks = vec![RegionClock { tick, swept: tick }; layout.regions].into();
        let lifetime = u64::from(lifetime);
        Ok(Self {
            layout,
            lifetime,
            secret,
            memory,
            clocks,
            evicted: Evicted::default(),
        })
    }

    pub const fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Changes the secret of an empty table.
    pub const fn set_secret(&mut self, secret: Secret) {
        self.secret = secret;
    }

    pub fn position(&self, key: &Key) -> Position {
        Position::new(key, &self.secret, &self.layout)
    }

    /// Reads the first lanes of both buckets: the cache misses of a batch overlap.
    pub fn touch(&self, position: &Position) -> u32 {
        let lanes: &[u32] = bytemuck::cast_slice(&self.memory);
        let bucket_lanes = SLOTS * self.layout.format.lanes();
        let region = position.region * self.layout.buckets;
        let first = |bucket: usize| lanes[(region + bucket) * bucket_lanes];
        first(position.buckets[0]) ^ first(position.buckets[1])
    }

    /// Reads all lanes of a slot: the cache misses of replayed changes overlap.
    pub fn touch_slot(&self, slot: u64) -> u32 {
        let lanes: &[u32] = bytemuck::cast_slice(&self.memory);
        let slot_lanes = self.layout.format.lanes();
        let slot = slot as usize;
        let first = slot / SLOTS * SLOTS * slot_lanes + slot % SLOTS;
        let mut read = 0;
        for lane in 0..slot_lanes {
            read ^= lanes[first + lane * SLOTS];
        }
        read
    }

    /// A region, moved to `tick` if that is later than its own.
    pub fn region_at(&mut self, region: usize, tick: u64) -> RegionMut<'_> {
        let mut region = self.region(region);
        region.advance(tick);
        region
    }

    /// A region, at its own tick.
    pub fn region(&mut self, region: usize) -> RegionMut<'_> {
        let first = region as u64 * (self.layout.buckets * SLOTS) as u64;
        let lanes = bytemuck::cast_slice_mut(&mut self.memory);
        let length = self.layout.buckets * SLOTS * self.layout.format.lanes();
        let lanes = &mut lanes[region * length..][..length];
        let clock = &mut self.clocks[region];
        let (layout, lifetime, evicted) = (self.layout, self.lifetime, &mut self.evicted);
        RegionMut {
            layout,
            lifetime,
            lanes,
            clock,
            evicted,
            first,
        }
    }

    /// Expired keys that left their slots since the last call.
    pub fn take_evicted(&mut self) -> Evicted {
        std::mem::take(&mut self.evicted)
    }

    /// Region of a slot.
    pub fn region_of(&self, slot: u64) -> usize {
        (slot / (self.layout.buckets * SLOTS) as u64) as usize
    }
}

impl RegionMut<'_> {
    /// The region's tick.
    pub fn tick(&self) -> u64 {
        self.clock.tick
    }

    const fn bucket_start(&self, bucket: usize) -> usize {
        bucket * SLOTS * self.layout.format.lanes()
    }

    fn now(&self) -> u32 {
        tick_value(self.clock.tick)
    }

    fn is_live(&self, head: u32) -> bool {
        let stored = head & 0xff;
        stored != 0 && u64::from(age(self.now(), stored)) < self.lifetime
    }

    /// Index of a slot's first lane.
    fn lane_of(&self, slot: u64) -> usize {
        let slot = (slot - self.first) as usize;
        slot / SLOTS * SLOTS * self.layout.format.lanes() + slot % SLOTS
    }

    fn slot_of(&self, lane: usize) -> u64 {
        let lanes = self.layout.format.lanes();
        self.first + (lane / (SLOTS * lanes) * SLOTS + lane % SLOTS) as u64
    }

    fn words(&self, at: usize) -> Words {
        let mut words = [0; LANES];
        for (lane, word) in words[..self.layout.format.lanes()].iter_mut().enumerate() {
            *word = self.lanes[at + lane * SLOTS];
        }
        words
    }

    fn write(&mut self, at: usize, words: Words) {
        for (lane, word) in words[..self.layout.format.lanes()].iter().enumerate() {
            self.lanes[at + lane * SLOTS] = *word;
        }
    }

    /// The further lanes of a slot belong to the key.
    fn is_of(&self, at: usize, position: &Position, key: &Key) -> bool {
        match self.layout.format {
            Format::Narrow => true,
            Format::Wide => (self.lanes[at + SLOTS] >> 16) as u16 == position.tail,
            Format::Whole => {
                let words = key_words(key);
                (0..4).all(|word| self.lanes[at + (2 + word) * SLOTS] == words[word])
            }
        }
    }

    /// Finds the live slot of a key, or the free slot for it: in the emptier bucket.
    fn find(&self, position: &Position, key: &Key) -> Result<usize, Option<usize>> {
        let (now, lifetime, wrap) = (self.now(), self.lifetime as u32, TICKS as u32);
        let mut free = [(0, 0); 2];
        for (bucket, free) in position.buckets.iter().zip(&mut free) {
            let start = self.bucket_start(*bucket);
            let heads = self.lanes[start..]
                .first_chunk::<SLOTS>()
                .expect("a whole bucket");
            let (mut matches, mut live) = (0_u32, 0_u32);
            // The loop has no branches, so the compiler compares several slots at once.
            for (slot, head) in heads.iter().enumerate() {
                let stored = head & 0xff;
                let age = now
                    .wrapping_sub(stored)
                    .wrapping_add(wrap * u32::from(stored > now));
                matches |= u32::from(head & !0xff == position.head) << slot;
                live |= u32::from((stored != 0) & (age < lifetime)) << slot;
            }
            let mut candidates = matches & live;
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                if self.is_of(start + slot, position, key) {
                    return Ok(start + slot);
                }
                candidates &= candidates - 1;
            }
            *free = (
                SLOTS as u32 - live.count_ones(),
                start + live.trailing_ones() as usize,
            );
        }
        let (slots, at) = if free[1].0 > free[0].0 {
            free[1]
        } else {
            free[0]
        };
        Err((slots > 0).then_some(at))
    }

    /// Counts one event of a key, up to `max`.
    pub fn observe(&mut self, position: &Position, key: &Key, max: u16) -> Stored {
        match self.find(position, key) {
            Ok(at) => {
                let count = self.count(at);
                if self.layout.format == Format::Narrow || count >= max {
                    return Stored::Known(count.saturating_add(1).min(max), None);
                }
                self.set_count(at, count + 1);
                Stored::Known(count + 1, Some(self.change(at)))
            }
            Err(None) => Stored::Full,
            Err(Some(at)) => {
                let mut words = [0; LANES];
                words[0] = position.head | self.now();
                match self.layout.format {
                    Format::Narrow => {}
                    Format::Wide => words[1] = u32::from(position.tail) << 16 | 1,
                    Format::Whole => {
                        self.evict(at);
                        words[1] = 1;
                        words[2..].copy_from_slice(&key_words(key));
                    }
                }
                self.write(at, words);
                Stored::New(Change {
                    slot: self.slot_of(at),
                    words,
                })
            }
        }
    }

    /// Count of a key; 0 if it has no live entry.
    pub fn count_of(&self, position: &Position, key: &Key) -> u16 {
        self.find(position, key).map_or(0, |at| self.count(at))
    }

    /// Clears a key's entry, if it is live; returns the former contents. Clears its expired slots
    /// too.
    pub fn forget(&mut self, position: &Position, key: &Key) -> Option<Change> {
        for bucket in position.buckets {
            let start = self.bucket_start(bucket);
            for at in start..start + SLOTS {
                let head = self.lanes[at];
                let is_expired = head & 0xff != 0 && !self.is_live(head);
                if is_expired && head & !0xff == position.head && self.is_of(at, position, key) {
                    self.write(at, [0; LANES]);
                }
            }
        }
        let at = self.find(position, key).ok()?;
        let change = self.change(at);
        self.write(at, [0; LANES]);
        Some(change)
    }

    fn count(&self, at: usize) -> u16 {
        match self.layout.format {
            Format::Narrow => 1,
            Format::Wide | Format::Whole => self.lanes[at + SLOTS] as u16,
        }
    }

    fn set_count(&mut self, at: usize, count: u16) {
        let lane = &mut self.lanes[at + SLOTS];
        *lane = *lane & !0xffff | u32::from(count);
    }

    fn change(&self, at: usize) -> Change {
        Change {
            slot: self.slot_of(at),
            words: self.words(at),
        }
    }

    /// Calls `each` with every live entry: contents, and ticks since its first event.
    pub fn for_each_live(&self, mut each: impl FnMut(Words, u64)) {
        let lanes = self.layout.format.lanes();
        let now = self.now();
        for bucket in 0..self.layout.buckets {
            for slot in 0..SLOTS {
                let at = bucket * SLOTS * lanes + slot;
                let head = self.lanes[at];
                if self.is_live(head) {
                    each(self.words(at), u64::from(age(now, head & 0xff)));
                }
            }
        }
    }
}

fn key_words(key: &Key) -> [u32; 4] {
    let key = u128::from_le_bytes(*key);
    [
        key as u32,
        (key >> 32) as u32,
        (key >> 64) as u32,
        (key >> 96) as u32,
    ]
}

/// Count in the contents of a wide or whole slot.
pub const fn count_of(words: &Words) -> u16 {
    words[1] as u16
}

/// Key in the contents of a whole slot.
pub fn key_of(words: &Words) -> Key {
    let word = |n: usize| u128::from(words[2 + n]) << (32 * n);
    (word(0) | word(1) | word(2) | word(3)).to_le_bytes()
}
