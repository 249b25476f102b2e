//! The schedule of a strategy: one bit per schedule, so that no request reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rtad_core::schedule::Schedule;

/// A schedule, and its state at the current time, which copies share.
#[derive(Debug, Clone)]
pub struct Scheduled {
    schedule: Arc<Schedule>,
    state: Arc<ScheduleState>,
}

#[derive(Debug)]
struct ScheduleState {
    began: Instant,
    /// Seconds from `began` to the next change, `NEVER` without one; over them [`HOLDS`]. In one
    /// word, so that a request around a change reads both of one time.
    word: AtomicU64,
}

/// Bit of a schedule that holds.
const HOLDS: u64 = 1 << 63;
const NEVER: u64 = HOLDS - 1;

impl Scheduled {
    /// A schedule at the current time.
    pub fn new(schedule: Schedule) -> Self {
        let state = ScheduleState {
            began: Instant::now(),
            word: AtomicU64::new(NEVER),
        };
        let scheduled = Self {
            schedule: Arc::new(schedule),
            state: Arc::new(state),
        };

        scheduled.follow(SystemTime::now(), Instant::now());
        scheduled
    }

    /// Whether it holds, as of the last call of [`Self::follow`].
    #[inline]
    pub fn holds(&self) -> bool {
        self.state.word.load(Ordering::Relaxed) & HOLDS != 0
    }

    /// Time from `at` to the next change of a schedule that a request found to hold or not; zero if
    /// it has changed since, `None` if it never changes.
    pub fn changes_in(&self, held: bool, at: Instant) -> Option<Duration> {
        let word = self.state.word.load(Ordering::Relaxed);
        if (word & HOLDS != 0) != held {
            return Some(Duration::ZERO);
        }

        let changes_at = word & !HOLDS;
        let since = at.saturating_duration_since(self.state.began);
        (changes_at != NEVER).then(|| Duration::from_secs(changes_at).saturating_sub(since))
    }

    /// Sets its state for a time. Returns whether it begins or ends to hold. Takes up to a
    /// millisecond.
    pub fn follow(&self, wall: SystemTime, now: Instant) -> bool {
        let left = self
            .next_change(wall)
            .and_then(|at| at.duration_since(wall).ok());
        let changes_at = left.map_or(NEVER, |left| (now + left - self.state.began).as_secs());

        let holds = self.schedule.holds_at(wall);
        let word = if holds {
            changes_at | HOLDS
        } else {
            changes_at
        };
        let before = self.state.word.swap(word, Ordering::Relaxed);
        (before & HOLDS != 0) != holds
    }

    /// Whether the schedule holds at a time.
    pub fn holds_at(&self, time: SystemTime) -> bool {
        self.schedule.holds_at(time)
    }

    /// A time with the offset of the schedule's zone.
    pub fn local(&self, time: SystemTime) -> String {
        self.schedule.local(time)
    }

    /// The first change after a time; `None` if there is none.
    pub fn next_change(&self, now: SystemTime) -> Option<SystemTime> {
        self.schedule.next_change(now)
    }
}

/// By the schedule alone.
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }
}

impl Eq for Scheduled {}

#[cfg(test)]
mod tests {
    use super::*;
    use rtad_core::schedule::Moment;

    #[test]
    fn state_follows_the_wall_clock_and_is_shared() {
        let [from, until] = ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00Z"]
            .map(|text| Moment::try_from(text.to_owned()).ok());
        let scheduled = Scheduled::new(Schedule::between(from, until));
        let copy = scheduled.clone();
        assert!(!scheduled.holds());
        let start = scheduled.next_change(SystemTime::now()).unwrap();
        let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
        let now = Instant::now();
        assert!(!scheduled.follow(start - second, now));
        assert!(scheduled.changes_in(false, now).unwrap() <= second);
        assert!(scheduled.follow(start, now) && copy.holds());
        // A request that began before the change.
        assert_eq!(copy.changes_in(false, now), Some(Duration::ZERO));
        let left = copy.changes_in(true, now + second).unwrap();
        assert!(
            left <= hour - second && left > hour - 3 * second,
            "{left:?}"
        );
        // The clock is set back.
        assert!(scheduled.follow(start - hour, now) && !copy.holds());
        assert!(!scheduled.follow(start + hour, now) && copy.changes_in(false, now).is_none());
    }
}
