//! Undoing and replaying changes of slots.

use super::{Change, LANES, Locked, Words, age, tick_value};
use crate::spec::Format;
use crate::sync::Relaxed;

impl Locked<'_> {
    /// Takes back one event that stored `change`. The events since may have counted the same entry.
    ///
    /// Returns whether the entry is gone.
    pub(crate) fn undo(&mut self, change: &Change) -> bool {
        let at = self.lane_of(change.slot);
        if !self.is_same_entry(at, &change.words) {
            return false;
        }
        match self.count(at) {
            0 | 1 => {
                self.write(at, [0; LANES]);
                true
            }
            count => {
                self.set_count(at, count - 1);
                false
            }
        }
    }

    /// Puts a forgotten entry back; `false` if its slot is in use again.
    pub(crate) fn restore(&mut self, change: &Change) -> bool {
        let at = self.lane_of(change.slot);
        let is_free = !self.is_live(self.lanes[at].load(Relaxed));
        if is_free {
            if self.table.layout.format == Format::Whole {
                self.evict(at);
            }
            self.write(at, change.words);
        }
        is_free
    }

    /// Replays a change of a log; `tick` is that of its frame, at most the region's.
    ///
    /// Changes of one entry may arrive in any order: the later tick wins, then the higher count.
    pub(crate) fn redo(&mut self, change: &Change, tick: u64) {
        let stored = change.words[0] & 0xff;
        let age_then = u64::from(age(tick_value(tick), stored));
        let passed = self.clock.tick.saturating_sub(tick);
        if stored == 0 || age_then + passed >= self.table.lifetime {
            return;
        }
        let at = self.lane_of(change.slot);
        let held = self.lanes[at].load(Relaxed);
        let replaces = if self.is_same_entry(at, &change.words) {
            self.count(at) < change.words[1] as u16
        } else {
            !self.is_live(held) || age_then + passed <= u64::from(age(self.now(), held & 0xff))
        };
        if replaces {
            self.write(at, change.words);
        }
    }

    /// Replays an erasure.
    pub(crate) fn redo_forget(&mut self, change: &Change) {
        let at = self.lane_of(change.slot);
        if self.is_same_key(at, &change.words) {
            self.write(at, [0; LANES]);
        }
    }

    /// Same key and same tick: everything but the count.
    fn is_same_entry(&self, at: usize, words: &Words) -> bool {
        self.lanes[at].load(Relaxed) == words[0] && self.is_same_key(at, words)
    }

    fn is_same_key(&self, at: usize, words: &Words) -> bool {
        let held = self.words(at);
        held[0] & 0xff != 0
            && (held[0] ^ words[0]) & !0xff == 0
            && (held[1] ^ words[1]) & 0xffff_0000 == 0
            && held[2..] == words[2..]
    }
}
