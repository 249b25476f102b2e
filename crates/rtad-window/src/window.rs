//! Window: batches of events on a table, and statistics.

use std::hint::black_box;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::AtomicI64;

use crate::Key;
use crate::position::Secret;
use crate::spec::{TICKS, WindowSpec};
use crate::sync::{Acquire, AtomicU64, Relaxed, Release, guard};
use crate::table::{Change, RegionClock, Stored, Table, count_of, key_of};

/// Events whose buckets are read together, before the first lock.
const TOUCHED: usize = 64;

/// Outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// The first event of its key within the window.
    New,
    /// A further event; the count includes it and ends at the window's highest.
    Duplicate(u16),
    /// A new key whose two buckets are full: not stored.
    Full,
}

/// Fill of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WindowStats {
    /// Live entries.
    pub entries: u64,
    /// Age of the oldest live entry in ticks.
    pub oldest_ticks: Option<u64>,
    /// Expected part of new keys that are taken for duplicates, at this fill.
    pub expected_fpr: f64,
    /// Memory of the table.
    pub memory_bytes: u64,
}

/// Events of keys within a number of ticks. All methods may be called from any number of threads.
///
/// ```
/// use rtad_window::{Seen, Window, WindowSpec};
///
/// let spec =
///     WindowSpec { capacity: 1000, fpr: 1e-5, count: 1, whole_keys: false, lifetime: 129 };
/// let window = Window::new(spec, 0).unwrap();
/// assert_eq!(window.observe(&[[1; 16], [1; 16]]), [Seen::New, Seen::Duplicate(1)]);
/// window.set_tick(129);
/// assert_eq!(window.observe(&[[1; 16]]), [Seen::New]);
/// ```
pub struct Window {
    spec: WindowSpec,
    table: Table,
    tick: AtomicU64,
    /// Entries by the value of their tick. Statistics: not part of any decision.
    by_tick: Box<[AtomicI64]>,
    /// Held while the tick moves.
    moving: StdMutex<()>,
}

impl Window {
    /// Makes an empty window at a tick, with a random hash secret.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range.
    ///
    /// # Panics
    ///
    /// The system has no random numbers.
    pub fn new(spec: WindowSpec, tick: u64) -> Result<Self, crate::SpecError> {
        spec.validate()?;
        let mut secret = [0; 4];
        for word in &mut secret {
            *word = getrandom::u64().expect("random numbers of the system");
        }
        Ok(Self::with_secret(spec, tick, secret))
    }

    /// A window with a chosen secret, for model checking.
    #[cfg(feature = "model")]
    pub fn with_fixed_secret(spec: WindowSpec, tick: u64) -> Self {
        Self::with_secret(spec, tick, [3, 5, 7, 11])
    }

    pub(crate) fn with_secret(spec: WindowSpec, tick: u64, secret: Secret) -> Self {
        Self {
            spec,
            table: Table::new(spec.layout(), spec.lifetime, secret, tick),
            tick: AtomicU64::new(tick),
            by_tick: (0..TICKS).map(|_| AtomicI64::new(0)).collect(),
            moving: StdMutex::new(()),
        }
    }

    /// The spec.
    pub const fn spec(&self) -> &WindowSpec {
        &self.spec
    }

    pub(crate) const fn secret(&self) -> &Secret {
        self.table.secret()
    }

    /// The current tick.
    pub fn tick(&self) -> u64 {
        self.tick.load(Acquire)
    }

    /// Moves to a tick; an earlier one than the current changes nothing. Returns the current tick.
    pub fn set_tick(&self, tick: u64) -> u64 {
        let _moving = guard(self.moving.lock());
        let current = self.tick.load(Acquire);
        if tick <= current {
            return current;
        }
        // The values of the new ticks belonged to entries that are long expired.
        for passed in (current + 1..=tick).take(TICKS as usize) {
            self.tick_counter(passed).store(0, Relaxed);
        }
        self.tick.store(tick, Release);
        tick
    }

    fn tick_counter(&self, tick: u64) -> &AtomicI64 {
        &self.by_tick[(tick % TICKS) as usize]
    }

    /// Counts events in their order; one outcome each.
    ///
    /// Exactly one of several events of a key is `New`, in one batch or in several threads. Cost:
    /// some 100 ns per event in batches, dominated by two cache misses that overlap.
    pub fn observe(&self, keys: &[Key]) -> Vec<Seen> {
        let mut seen = Vec::with_capacity(keys.len());
        self.observe_with(keys, |outcome| seen.push(outcome), |_| {});
        seen
    }

    /// Counts events like `observe`; `changed` gets each changed slot. Returns the latest tick of
    /// the changes.
    pub(crate) fn observe_with(
        &self,
        keys: &[Key],
        mut seen: impl FnMut(Seen),
        mut changed: impl FnMut(Change),
    ) -> u64 {
        let mut latest = 0;
        let (mut tick, mut news) = (0, 0);
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
                // Read under the region's lock at the latest: a region never goes back.
                let mut region = self.table.lock(position.region, self.tick());
                let stored = region.observe(position, key, self.spec.count);
                if region.tick() != tick {
                    self.tick_counter(tick).fetch_add(news, Relaxed);
                    (tick, news) = (region.tick(), 0);
                    latest = latest.max(tick);
                }
                drop(region);
                seen(match stored {
                    Stored::New(change) => {
                        news += 1;
                        changed(change);
                        Seen::New
                    }
                    Stored::Known(count, change) => {
                        change.map(&mut changed);
                        Seen::Duplicate(count)
                    }
                    Stored::Full => Seen::Full,
                });
            }
        }
        self.tick_counter(tick).fetch_add(news, Relaxed);
        latest
    }

    /// Counts of keys, without a change: 0 for keys that are not in the window.
    pub fn counts(&self, keys: &[Key]) -> Vec<u16> {
        let count = |key| {
            let position = self.table.position(key);
            self.table.lock(position.region, self.tick()).count_of(&position, key)
        };
        keys.iter().map(count).collect()
    }

    /// Erases keys. Returns whether each had an entry.
    ///
    /// A table of fingerprints may have erased the entry of another key, with the probability of a
    /// false positive.
    pub fn forget(&self, keys: &[Key]) -> Vec<bool> {
        keys.iter().map(|key| self.forget_one(key).is_some()).collect()
    }

    /// Erases a key; returns the erased entry and the tick.
    pub(crate) fn forget_one(&self, key: &Key) -> Option<(Change, u64)> {
        let position = self.table.position(key);
        let mut region = self.table.lock(position.region, self.tick());
        let forgotten = region.forget(&position, key)?;
        let tick = region.tick();
        drop(region);
        self.uncount(&forgotten, -1);
        Some((forgotten, tick))
    }

    /// Corrects the statistics by one entry.
    fn uncount(&self, change: &Change, by: i64) {
        let value = change.words[0] & 0xff;
        self.by_tick[value as usize - 1].fetch_add(by, Relaxed);
    }

    /// Takes back one event per change.
    pub(crate) fn undo(&self, change: &Change) {
        let mut region = self.table.lock(self.table.region_of(change.slot), 0);
        if region.undo(change) {
            self.uncount(change, -1);
        }
    }

    /// Puts back what `forget_one` erased.
    pub(crate) fn restore(&self, change: &Change) {
        let mut region = self.table.lock(self.table.region_of(change.slot), 0);
        if region.restore(change) {
            self.uncount(change, 1);
        }
    }

    /// Number of slots: the bound of `Change::slot`.
    pub(crate) fn slots(&self) -> u64 {
        self.table.layout.slots()
    }

    pub(crate) const fn lanes(&self) -> usize {
        self.table.layout.format.lanes()
    }

    /// Replays a change of a log, at the tick of its frame. `recount` must follow the last one.
    pub(crate) fn redo(&self, change: &Change, tick: u64, is_forget: bool) {
        let mut region = self.table.lock(self.table.region_of(change.slot), tick);
        if is_forget { region.redo_forget(change) } else { region.redo(change, tick) }
    }

    /// Number of regions of `copy_region` and `load_region`.
    pub(crate) const fn regions(&self) -> usize {
        self.table.layout.regions
    }

    pub(crate) fn region_bytes(&self) -> usize {
        self.table.region_bytes()
    }

    /// Copies a region without what has expired: erased keys may be among it.
    pub(crate) fn copy_region(&self, region: usize, into: &mut Vec<u8>) -> RegionClock {
        self.table.copy(region, self.tick(), into)
    }

    pub(crate) fn load_region(&self, region: usize, clock: RegionClock, copy: &[u8]) {
        self.table.load(region, clock, copy);
    }

    #[cfg(test)]
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.table.holds(key)
    }

    /// Computes the statistics again from all entries. Reads the whole table.
    pub(crate) fn recount(&self) {
        let mut counts = [0_i64; TICKS as usize];
        for region in 0..self.regions() {
            let region = self.table.lock(region, self.tick());
            let tick = region.tick();
            region.for_each_live(|_, age| counts[((tick - age) % TICKS) as usize] += 1);
        }
        for (counter, count) in self.by_tick.iter().zip(counts) {
            counter.store(count, Relaxed);
        }
    }

    /// Clears expired entries everywhere. A window of whole keys reports each expired entry once:
    /// its key, which may be in the window again, and its count. Reads the first lane of the whole
    /// table.
    ///
    /// Returns whether all were reported. The window keeps 2^20 keys that leave their slots between
    /// two calls; after more, list it with `for_each_key`.
    #[must_use]
    pub fn expire(&self, mut expired: impl FnMut(Key, u16)) -> bool {
        let is_whole = self.spec.whole_keys;
        for region in 0..self.regions() {
            self.table.lock(region, 0).sweep(self.tick(), |words| {
                if is_whole {
                    expired(key_of(&words), count_of(&words));
                }
            });
        }
        let evicted = self.table.take_evicted();
        evicted.keys.into_iter().for_each(|(key, count)| expired(key, count));
        !evicted.is_truncated
    }

    /// Forgets which keys expired while the files were read.
    pub(crate) fn discard_evicted(&self) {
        self.table.take_evicted();
    }

    /// Calls `each` with every live key and its count, region by region. A table of fingerprints
    /// has no keys to list.
    pub fn for_each_key(&self, mut each: impl FnMut(Key, u16)) {
        if !self.spec.whole_keys {
            return;
        }
        for region in 0..self.regions() {
            let region = self.table.lock(region, self.tick());
            region.for_each_live(|words, _| each(key_of(&words), count_of(&words)));
        }
    }

    /// Fill, oldest entry, expected rate. Cost: 255 atomic reads.
    pub fn stats(&self) -> WindowStats {
        let now = self.tick();
        let mut entries = 0;
        let mut oldest_ticks = None;
        for age in 0..u64::from(self.spec.lifetime).min(now + 1) {
            let count = self.tick_counter(now - age).load(Relaxed).max(0);
            if count > 0 {
                entries += count as u64;
                oldest_ticks = Some(age);
            }
        }
        let format = self.table.layout.format;
        let load = entries as f64 / self.table.layout.slots() as f64;
        WindowStats {
            entries,
            oldest_ticks,
            expected_fpr: format.fpr_at(load),
            memory_bytes: self.table.layout.slots() * format.slot_bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
