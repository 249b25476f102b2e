//! A schedule at the times of rows.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use crate::strategy::Scheduled;

/// A pod sets the bit of a schedule once a second, so that it follows the clock within this time.
const DELAY: Duration = Duration::from_secs(2);

/// A schedule that follows the rows' times in place of the clock.
#[derive(Debug)]
pub struct RowClock {
    schedule: Scheduled,
    /// Times without a change nearby, at which the schedule holds or not as the bit says.
    known: Range<SystemTime>,
}

impl RowClock {
    pub const fn new(schedule: Scheduled) -> Self {
        let known = SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH;
        Self { schedule, known }
    }

    /// Sets the schedule's bit for a row. `logged` is the pod's bit, which counts near a change.
    pub fn set(&mut self, at: SystemTime, logged: Option<bool>) {
        if self.known.contains(&at) {
            return;
        }
        let before = at.checked_sub(DELAY).unwrap_or(at);
        let change = self.schedule.next_change(before);
        let is_near = change.is_some_and(|change| change <= at + DELAY);
        let holds = self.schedule.holds_at(at);
        self.schedule.set(if is_near {
            logged.unwrap_or(holds)
        } else {
            holds
        });
        self.known = match change {
            _ if is_near => at..at,
            Some(change) => at..change - DELAY,
            // No change comes: a day at a time, as times may go back.
            None => at..at + Duration::from_secs(86_400),
        };
    }
}
