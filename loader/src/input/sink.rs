//! Key sinks, and the counts of rows, values, keys and rejects they receive.

use serde::{Deserialize, Serialize};

use rtad_core::device::DeviceKey;

use super::rejects::Reason;

/// Receiver of one parser's keys. Each parser has its own, so no lock is needed.
pub(crate) trait KeySink: Send {
    fn take(&mut self, keys: &[DeviceKey]);

    /// Called after all keys of a block were taken, with the block's counts.
    fn parsed(&mut self, _source: usize, _counts: &Counts) {}

    /// Called at the end of a source of `blocks` blocks. Other sinks may still be parsing some.
    fn ended(&mut self, _source: usize, _blocks: u64) {}

    /// Whether reading may end early.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Counts of an input. A value is one row in one column, so one column has as many values as rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    /// Keys passed to the sinks, duplicates included.
    pub(crate) keys: u64,
    pub(crate) rejected: [u64; Reason::ALL.len()],
}

impl Counts {
    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize]
    }

    /// Rejected values except blank ones, which are valid and mean "no id".
    pub(crate) fn malformed(&self) -> u64 {
        self.rejected.iter().sum::<u64>() - self.of(Reason::Blank)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
    }
}
