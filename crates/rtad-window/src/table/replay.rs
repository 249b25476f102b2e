//! Replaying changes of slots.

use super::{Change, LANES, RegionMut, age, tick_value};

impl RegionMut<'_> {
    /// Replays a change of a log; `tick` is that of its frame, at most the region's.
    ///
    /// The contents replace those of the slot. A checkpoint's image of the slot may be of a later
    /// time than the record: of a higher count, or of another key. It is then repaired by the
    /// records that follow. There are such records, because one thread writes a slot's changes in
    /// their order, and a checkpoint becomes valid after the log of all that its image holds is
    /// durable. An entry that has expired at the region's tick is not written: its tick value could
    /// mean a later tick.
    pub fn redo(&mut self, change: &Change, tick: u64) {
        let stored = change.words[0] & 0xff;
        let age_then = u64::from(age(tick_value(tick), stored));
        let passed = self.clock.tick.saturating_sub(tick);
        if stored != 0 && age_then + passed < self.lifetime {
            self.write(self.lane_of(change.slot), change.words);
        }
    }

    /// Replays an erasure.
    pub fn redo_forget(&mut self, change: &Change) {
        self.write(self.lane_of(change.slot), [0; LANES]);
    }
}
