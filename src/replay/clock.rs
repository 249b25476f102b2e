//! A schedule at the times of rows.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use crate::strategy::Scheduled;

/// A pod sets the bit of a schedule once a second, so that it follows the clock within this time.
const DELAY: Duration = Duration::from_secs(2);
const DAY: Duration = Duration::from_secs(86_400);

/// A schedule that follows the rows' times in place of the clock.
#[derive(Debug)]
pub struct RowClock {
    schedule: Scheduled,
    /// Whether it holds at the time of the last row.
    holds: bool,
    /// Times without a change nearby, at which it does so too.
    known: Range<SystemTime>,
}

impl RowClock {
    pub const fn new(schedule: Scheduled) -> Self {
        Self {
            schedule,
            holds: false,
            known: SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH,
        }
    }

    /// Whether the schedule holds for a row. `logged` is the pod's bit, which counts near a change.
    pub fn holds(&mut self, at: SystemTime, logged: Option<bool>) -> bool {
        if self.known.contains(&at) {
            return self.holds;
        }

        self.holds = self.schedule.holds_at(at);
        let before = at.checked_sub(DELAY).unwrap_or(at);
        match self.schedule.next_change(before) {
            Some(change) if change <= at + DELAY => {
                self.holds = logged.unwrap_or(self.holds);
                self.known = at..at;
            }
            Some(change) => self.known = at..change - DELAY,
            // A day at a time, as the times of rows may go back.
            None => self.known = at..at + DAY,
        }
        self.holds
    }
}
