//! Window: batches of events on a table, and statistics.

use std::hint::black_box;

use rtad_core::random;

use crate::Key;
use crate::position::Secret;
use crate::spec::{TICKS, WindowSpec};
use crate::table::{Change, RegionClock, Stored, Table, count_of, key_of};

/// Events whose buckets are read together.
const TOUCHED: usize = 64;

/// Outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The first event of its key within the window.
    New,
    /// A further event; the count includes it and ends at the window's highest.
    Duplicate(u16),
}

/// Fill of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WindowStats {
    /// Live entries.
    pub entries: u64,
    /// Expected part of new keys that are taken for duplicates, at this fill.
    pub expected_fpr: f64,
    /// Memory of the table.
    pub memory_bytes: u64,
    /// Events that found both their buckets full, since the process started. They were answered as
    /// new ones, and are not in the window.
    pub full: u64,
}

/// Events of keys within a number of ticks, for one thread.
///
/// ```
/// use rtad_window::{Seen, Window, WindowSpec};
///
/// let spec =
///     WindowSpec { capacity: 1000, fpr: 1e-5, count: 1, whole_keys: false, lifetime: 129 };
/// let mut window = Window::new(spec, 0).unwrap();
/// assert_eq!(window.observe(&[[1; 16], [1; 16]]), [Seen::New, Seen::Duplicate(1)]);
/// window.set_tick(129);
/// assert_eq!(window.observe(&[[1; 16]]), [Seen::New]);
/// ```
pub struct Window {
    spec: WindowSpec,
    table: Table,
    tick: u64,
    /// Entries by the value of their tick. Statistics: not part of any decision.
    by_tick: [u64; TICKS as usize],
    /// Events without room.
    full: u64,
}

impl Window {
    /// Makes an empty window at a tick, with a random hash secret.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range, or there is no memory for the table.
    ///
    /// # Panics
    ///
    /// The system has no random numbers.
    pub fn new(spec: WindowSpec, tick: u64) -> Result<Self, crate::SpecError> {
        spec.validate()?;
        let secret = std::array::from_fn(|_| random::number());
        Self::with_secret(spec, tick, secret)
    }

    pub(crate) fn with_secret(
        spec: WindowSpec,
        tick: u64,
        secret: Secret,
    ) -> Result<Self, crate::SpecError> {
        let table = Table::new(spec.layout(), spec.lifetime, secret, tick)?;
        Ok(Self {
            spec,
            table,
            tick,
            by_tick: [0; TICKS as usize],
            full: 0,
        })
    }

    /// The spec.
    pub const fn spec(&self) -> &WindowSpec {
        &self.spec
    }

    pub(crate) const fn secret(&self) -> &Secret {
        self.table.secret()
    }

    /// Changes the secret of an empty window.
    pub(crate) const fn set_secret(&mut self, secret: Secret) {
        self.table.set_secret(secret);
    }

    /// The current tick.
    pub const fn tick(&self) -> u64 {
        self.tick
    }

    /// Moves to a tick; an earlier one than the current changes nothing.
    pub fn set_tick(&mut self, tick: u64) {
        // The values of the new ticks belonged to entries that are long expired.
        for passed in (self.tick + 1..=tick).take(TICKS as usize) {
            self.by_tick[(passed % TICKS) as usize] = 0;
        }
        self.tick = self.tick.max(tick);
    }

    /// Counts events in their order; one outcome each. Exactly one of several events of a key is
    /// `New`, unless the key finds both its buckets full: then each is, and none is counted.
    ///
    /// Cost: some 100 ns per event in batches, dominated by two cache misses that overlap.
    pub fn observe(&mut self, keys: &[Key]) -> Vec<Seen> {
        self.observe_with(keys, &mut Vec::new())
    }

    /// Counts events like `observe`, and replaces `changes` by those of the slots.
    pub(crate) fn observe_with(&mut self, keys: &[Key], changes: &mut Vec<Change>) -> Vec<Seen> {
        changes.clear();
        let mut seen = Vec::with_capacity(keys.len());
        let mut news = 0;

        for keys in keys.chunks(TOUCHED) {
            let mut positions = [None; TOUCHED];
            let mut read = 0;
            for (position, key) in positions.iter_mut().zip(keys) {
                let found = self.table.position(key);
                read ^= self.table.touch(&found);
                *position = Some(found);
            }
            black_box(read);

            for (key, position) in keys.iter().zip(positions.iter().flatten()) {
                let mut region = self.table.region_at(position.region, self.tick);
                match region.observe(position, key, self.spec.count) {
                    Stored::New(change) => {
                        news += 1;
                        seen.push(Seen::New);
                        changes.push(change);
                    }
                    Stored::Known(count, change) => {
                        seen.push(Seen::Duplicate(count));
                        changes.extend(change);
                    }
                    Stored::Full => {
                        self.full += 1;
                        seen.push(Seen::New);
                    }
                }
            }
        }

        self.by_tick[(self.tick % TICKS) as usize] += news;
        seen
    }

    /// Counts of keys, without a change: 0 for keys that are not in the window.
    pub fn counts(&mut self, keys: &[Key]) -> Vec<u16> {
        let count = |key| {
            let position = self.table.position(key);
            let count = self
                .table
                .region_at(position.region, self.tick)
                .count_of(&position, key);
            count.min(self.spec.count)
        };
        keys.iter().map(count).collect()
    }

    /// Erases a key; returns the erased entry.
    ///
    /// A table of fingerprints may have erased the entry of another key, with the probability of a
    /// false positive.
    pub(crate) fn forget(&mut self, key: &Key) -> Option<Change> {
        let position = self.table.position(key);
        let forgotten = self
            .table
            .region_at(position.region, self.tick)
            .forget(&position, key)?;
        self.by_tick[(forgotten.words[0] & 0xff) as usize - 1] -= 1;
        Some(forgotten)
    }

    pub(crate) const fn lanes(&self) -> usize {
        self.table.layout.format.lanes()
    }

    /// Replays the changes of a frame, of its tick. `None` if one is of a slot that the window has
    /// not; those before it are then replayed.
    pub(crate) fn replay(
        &mut self,
        tick: u64,
        mut changes: impl Iterator<Item = Change>,
        is_forget: bool,
    ) -> Option<()> {
        self.set_tick(tick);
        let slots = self.table.layout.slots();
        let mut batch = Vec::with_capacity(TOUCHED);
        loop {
            batch.clear();
            batch.extend(changes.by_ref().take(TOUCHED));
            if batch.is_empty() {
                return Some(());
            }

            let mut read = 0;
            for change in &batch {
                if change.slot >= slots {
                    return None;
                }
                read ^= self.table.touch_slot(change.slot);
            }
            black_box(read);

            for change in &batch {
                self.redo(change, tick, is_forget);
            }
        }
    }

    fn redo(&mut self, change: &Change, tick: u64, is_forget: bool) {
        let region = self.table.region_of(change.slot);
        let mut region = self.table.region_at(region, tick);
        let replayed = if is_forget {
            region.redo_forget(change)
        } else {
            region.redo(change, tick)
        };
        // The window may be at a later tick than the region.
        if let Some(first) = replayed.before.filter(|first| self.is_live(*first)) {
            self.by_tick[(first % TICKS) as usize] -= 1;
        }
        if let Some(first) = replayed.after.filter(|first| self.is_live(*first)) {
            self.by_tick[(first % TICKS) as usize] += 1;
        }
    }

    /// Whether an entry of this tick has not expired.
    fn is_live(&self, first: u64) -> bool {
        self.tick.saturating_sub(first) < u64::from(self.spec.lifetime)
    }

    /// Number of regions.
    pub(crate) const fn regions(&self) -> usize {
        self.table.layout.regions
    }

    pub(crate) fn region_bytes(&self) -> usize {
        self.table.region_bytes()
    }

    /// Copies a region without what has expired: erased keys may be among it.
    pub(crate) fn copy_region(&mut self, region: usize, into: &mut Vec<u8>) -> RegionClock {
        self.table.copy(region, self.tick, into)
    }

    /// Replaces an empty region by a copy, and moves to its tick.
    pub(crate) fn load_region(&mut self, region: usize, clock: RegionClock, copy: &[u8]) {
        self.set_tick(clock.tick);
        self.table.load(region, clock, copy);
        let (tick, lifetime) = (self.tick, u64::from(self.spec.lifetime));
        let by_tick = &mut self.by_tick;
        self.table.region(region).for_each_live(|_, age| {
            let first = clock.tick.saturating_sub(age);
            if tick.saturating_sub(first) < lifetime {
                by_tick[(first % TICKS) as usize] += 1;
            }
        });
    }

    #[cfg(test)]
    pub(crate) fn holds(&mut self, key: &Key) -> bool {
        self.table.holds(key)
    }

    /// Computes the statistics again from all entries. Reads the whole table.
    #[cfg(test)]
    pub(crate) fn recount(&mut self) {
        self.by_tick = [0; TICKS as usize];
        for region in 0..self.regions() {
            let region = self.table.region_at(region, self.tick);
            let (tick, by_tick) = (self.tick, &mut self.by_tick);
            region.for_each_live(|_, age| by_tick[((tick - age) % TICKS) as usize] += 1);
        }
    }

    /// Clears the expired entries of a region. A window of whole keys reports each with its count;
    /// the key may be in the window again.
    pub(crate) fn expire_region(&mut self, region: usize, mut expired: impl FnMut(Key, u16)) {
        let is_whole = self.spec.whole_keys;
        self.table.region(region).sweep(self.tick, |words| {
            if is_whole {
                expired(key_of(&words), count_of(&words));
            }
        });
    }

    /// Reports the expired keys that left their slots since the last call, before a region was
    /// swept. Returns whether these are all: 2^20 are kept.
    #[must_use]
    pub(crate) fn take_evicted(&mut self, mut expired: impl FnMut(Key, u16)) -> bool {
        let evicted = self.table.take_evicted();
        evicted
            .keys
            .into_iter()
            .for_each(|(key, count)| expired(key, count));
        !evicted.is_truncated
    }

    /// Calls `each` with every live key of a region and its count. A table of fingerprints has no
    /// keys to list.
    pub(crate) fn list_region(&mut self, region: usize, mut each: impl FnMut(Key, u16)) {
        if self.spec.whole_keys {
            let region = self.table.region_at(region, self.tick);
            region.for_each_live(|words, _| each(key_of(&words), count_of(&words)));
        }
    }

    /// Fill and expected rate. Cost: reads 255 numbers.
    pub fn stats(&self) -> WindowStats {
        let mut entries = 0;
        for age in 0..u64::from(self.spec.lifetime).min(self.tick + 1) {
            entries += self.by_tick[((self.tick - age) % TICKS) as usize];
        }
        let format = self.table.layout.format;
        let load = entries as f64 / self.table.layout.slots() as f64;
        WindowStats {
            entries,
            expected_fpr: format.fpr_at(load),
            memory_bytes: self.table.layout.slots() * format.slot_bytes(),
            full: self.full,
        }
    }
}

#[cfg(test)]
mod tests;
