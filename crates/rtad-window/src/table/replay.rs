//! Replaying changes of slots.

use super::{Change, LANES, RegionMut, age, tick_value};

/// First ticks of the live entries that a slot had before a change, and has after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub(crate) before: Option<u64>,
    pub(crate) after: Option<u64>,
}

impl RegionMut<'_> {
    /// Replays a change of a log; `tick` is that of its frame, at most the region's.
    ///
    /// The contents replace those of the slot. A table's image of the slot may be of a later time
    /// than the record: of a higher count, or of another key. It is then repaired by the records
    /// that follow. There are such records, because one thread writes a slot's changes in their
    /// order, and a table is completed after the log of all that its image holds is durable. An
    /// entry that has expired at the region's tick is not written: its tick value could mean a later
    /// tick.
    pub fn redo(&mut self, change: &Change, tick: u64) -> Replayed {
        let stored = change.words[0] & 0xff;
        let age_then = u64::from(age(tick_value(tick), stored));
        let passed = self.clock.tick.saturating_sub(tick);
        if stored == 0 || age_then + passed >= self.lifetime {
            return Replayed::default();
        }
        let at = self.lane_of(change.slot);
        let before = self.first_tick(at);
        self.write(at, change.words);
        Replayed {
            before,
            after: Some(tick.saturating_sub(age_then)),
        }
    }

    /// Replays an erasure.
    pub fn redo_forget(&mut self, change: &Change) -> Replayed {
        let at = self.lane_of(change.slot);
        let before = self.first_tick(at);
        self.write(at, [0; LANES]);
        Replayed {
            before,
            after: None,
        }
    }

    /// Tick of the first event of the entry in a slot, if it is live.
    fn first_tick(&self, at: usize) -> Option<u64> {
        let head = self.lanes[at];
        let age = age(self.now(), head & 0xff);
        self.is_live(head)
            .then(|| self.clock.tick.saturating_sub(u64::from(age)))
    }
}
