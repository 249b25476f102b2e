//! Unique caps: at most so many distinct devices get a bid of a cap's strategies in a day or an
//! hour.
//!
//! A cap is asked only if a strategy would bid. A device that was counted in the period gets its
//! bid even when the limit is reached.
//!
//! * The device of a request is its smallest key: the same for any order of its ids.
//! * A request without a usable id is not counted. It gets its bid until the limit is reached.
//!
//! # Periods
//!
//! A request compares its time with the end of the period, in monotonic time. The table of the next
//! period is allocated seconds before, so the first request after the end is counted in it. A
//! background task reads the clock every second, follows its steps, and drops the old table; sync
//! puts the tables into the catalog, so that requests load no further pointer. After a pause of the
//! process over the end there is no next table: until the task runs, no device gets a bid.
//!
//! The period's number only grows: a clock that is set back extends the period. A clock set back by
//! more than a day was wrong before, and starts the period of the new time.
//!
//! | file | job |
//! |---|---|
//! | `keeper` | all caps of a pod: reload, background tasks |
//! | `grants` | parts of caps from the store |
//! | `demand` | rate of new devices, sizes of parts |

mod demand;
mod grants;
mod keeper;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rtad_core::cap::{CapSeed, CapTable, Counted, Sought};
use rtad_core::device::DeviceKey;
use rtad_core::period::{Calendar, Period};
use rtad_core::random;
use tokio::time::Instant;

pub use grants::GrantState;
use grants::Grants;
pub use keeper::Caps;

use crate::config::CapConfig;
use crate::strategy::Decision;

/// Time before a period's end at which the next table is allocated.
const LEAD: Duration = Duration::from_secs(30);
/// Time over which pods take their first blocks of the next period.
const SPREAD: Duration = Duration::from_secs(15);
/// Longest time for which a `capped` answer holds while pods may give back what they do not use.
const RETURN_POLL: Duration = Duration::from_secs(60);
/// A clock that is set back by more was wrong before.
pub(crate) const MAX_SET_BACK: Duration = Duration::from_secs(24 * 3600);
/// Smaller differences between the clocks change nothing around the end of a period.
const TOLERANCE: Duration = Duration::from_millis(1);

/// A cap.
#[derive(Debug)]
pub struct Cap {
    config: CapConfig,
    calendar: Calendar,
    state: ArcSwap<CapTables>,
    /// Replaced states. Requests may still read them, and must not free their tables.
    replaced: Mutex<Vec<Arc<CapTables>>>,
}

/// The tables of a cap that requests use: of the current period and, around its end, of the next
/// one.
#[derive(Debug)]
pub struct CapTables {
    current: Dated,
    next: Option<Dated>,
    /// Devices of all pods together.
    of_all_pods: u64,
}

/// A table, and the end of its period in monotonic time.
#[derive(Debug, Clone)]
struct Dated {
    period_table: Arc<PeriodTable>,
    ends: Instant,
}

#[derive(Debug)]
struct PeriodTable {
    period: Period,
    /// Its limit is what the pod was granted.
    table: CapTable,
    grants: Arc<Grants>,
}

/// The devices of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Distinct devices counted.
    pub devices: u64,
    /// Most of them on this pod, by now: what it was granted grows.
    pub limit: u64,
    /// The period.
    pub period: Period,
}

impl PeriodTable {
    /// An empty table, which admits no device yet. Its first block is due at this time.
    fn new(period: Period, config: &CapConfig, due: Instant) -> Arc<Self> {
        Arc::new(Self {
            period,
            table: CapTable::new(config.limit, CapSeed::random()),
            grants: Arc::new(Grants::due_at(due)),
        })
    }

    /// The table for another configuration: another one, if it has no room for it. Then the old one
    /// is closed, as requests use it until the new one is in the catalog. What was granted stays
    /// granted. If the table is in use, the caller holds the lock of the served caps.
    fn reconfigured(this: &Arc<Self>, config: &CapConfig) -> Arc<Self> {
        if this.table.has_room(config.limit) {
            return Arc::clone(this);
        }

        let larger = CapTable::new(config.limit, CapSeed::random());
        let rest = this.table.close();
        let count = this.table.count();
        Arc::new(Self {
            period: this.period,
            table: larger.with_carried(count, count + rest),
            grants: Arc::clone(&this.grants),
        })
    }
}

/// A device that asks for a bid.
#[derive(Debug)]
pub enum Applicant<'a> {
    /// Its place in the table.
    Device(Sought<'a>),
    /// A request without a usable id.
    Unknown(&'a CapTable),
    /// The period has ended, and there is no table of the next one.
    TooLate,
}

impl Applicant<'_> {
    /// Whether the device may get a bid. Counts it if it is new. Costs a read of memory; no
    /// allocation, lock or system call.
    #[inline]
    pub fn admit(self) -> bool {
        match self {
            Self::Device(sought) => sought.count() != Counted::Full,
            Self::Unknown(table) => !table.is_full(),
            Self::TooLate => false,
        }
    }
}

impl CapTables {
    /// The table of the time `at`; `None` after the end of the period without a next table.
    #[inline]
    fn at(&self, at: Instant) -> Option<&Dated> {
        if at < self.current.ends {
            return Some(&self.current);
        }
        self.next.as_ref().filter(|next| at < next.ends)
    }

    /// The table of the time `at`, or the last one before.
    fn last_at(&self, at: Instant) -> &Dated {
        match &self.next {
            Some(next) if at >= self.current.ends => next,
            _ => &self.current,
        }
    }

    /// Begins [`Applicant::admit`] for a device with these keys at the time `at`, without counting:
    /// call it before other work, beside which the wait for the table's memory passes.
    #[inline]
    pub fn seek(&self, keys: &[DeviceKey], at: Instant) -> Applicant<'_> {
        let Some(dated) = self.at(at) else {
            return Applicant::TooLate;
        };
        let table = &dated.period_table.table;
        match keys.iter().min() {
            Some(key) => Applicant::Device(table.seek(key)),
            None => Applicant::Unknown(table),
        }
    }

    /// The answer that [`Applicant::admit`] would give, without counting.
    pub fn would_admit(&self, keys: &[DeviceKey], at: Instant) -> bool {
        let Some(dated) = self.at(at) else {
            return false;
        };
        let table = &dated.period_table.table;
        match keys.iter().min() {
            Some(key) => table.look_up(key) != Counted::Full,
            None => !table.is_full(),
        }
    }

    /// The decision about a device that is not admitted at the time `at`.
    pub fn refusal(&self, at: Instant) -> Decision {
        match self.at(at) {
            Some(dated) if dated.period_table.grants.by_all() >= self.of_all_pods => {
                Decision::CAPPED
            }
            _ => Decision::NO_GRANT,
        }
    }

    /// [`Self::refusal`] of a device that asked for a bid: the pod needs a block.
    pub fn refuse(&self, at: Instant) -> Decision {
        if let Some(dated) = self.at(at) {
            dated.period_table.grants.note_refusal();
        }
        self.refusal(at)
    }

    fn current(&self) -> &PeriodTable {
        &self.current.period_table
    }

    fn period_tables(&self) -> impl Iterator<Item = Arc<PeriodTable>> {
        let tables = [Some(&self.current), self.next.as_ref()];
        let tables = tables.into_iter().flatten();
        tables.map(|dated| Arc::clone(&dated.period_table))
    }

    /// The devices counted in the period of the time `at`, or in the last one before.
    pub fn usage(&self, at: Instant) -> Usage {
        let PeriodTable { period, table, .. } = &*self.last_at(at).period_table;
        Usage {
            devices: table.count(),
            limit: table.limit(),
            period: *period,
        }
    }

    /// Time from `at` to the end of its period.
    #[inline]
    pub fn ends_in(&self, at: Instant) -> Duration {
        self.last_at(at).ends.saturating_duration_since(at)
    }

    /// Time from `at` for which a refusal as [`Decision::CAPPED`] holds: until the end of the
    /// period, but not for long while pods may give back what they do not use.
    pub fn capped_ends_in(&self, at: Instant) -> Duration {
        let grants = &self.last_at(at).period_table.grants;
        let ends_in = self.ends_in(at);
        if grants.may_be_given_back(at) {
            ends_in.min(RETURN_POLL)
        } else {
            ends_in
        }
    }
}

impl Cap {
    /// An empty cap at the time `wall`, which is `now` in monotonic time.
    pub fn new(config: &CapConfig, wall: SystemTime, now: Instant) -> Self {
        let calendar = config.calendar();
        let period_table = PeriodTable::new(calendar.at(wall), config, now);
        let current = Dated::new(period_table, wall, now);
        Self {
            config: config.clone(),
            calendar,
            state: ArcSwap::from_pointee(CapTables {
                current,
                next: None,
                of_all_pods: config.limit,
            }),
            replaced: Mutex::default(),
        }
    }

    /// Admits so many devices more in the current period, without the store: for tests and
    /// benchmarks.
    pub fn raise_limit(&self, devices: u64) {
        self.state.load().current().table.raise_limit(devices);
    }

    /// Whether a configuration has the same periods.
    fn has_periods_of(&self, config: &CapConfig) -> bool {
        self.config.period == config.period && self.config.time_zone == config.time_zone
    }

    /// The cap with another configuration of the same periods. It keeps the counts: the limit
    /// changes, or a larger table starts with the number of devices counted so far.
    fn changed(&self, config: &CapConfig, wall: SystemTime, now: Instant) -> Self {
        let old = self.state.load_full();
        let next = old.next.as_ref();
        let state = CapTables {
            current: old.current.reconfigured(config),
            next: next.map(|next| next.reconfigured(config)),
            of_all_pods: config.limit,
        };
        let cap = Self {
            config: config.clone(),
            calendar: config.calendar(),
            state: ArcSwap::from_pointee(state),
            replaced: Mutex::default(),
        };

        cap.follow(wall, now);
        cap
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// The configuration.
    pub const fn config(&self) -> &CapConfig {
        &self.config
    }

    /// The devices counted in the current period.
    pub fn usage(&self) -> Usage {
        self.state.load().usage(Instant::now())
    }

    /// Adds devices that were granted for a table, if the cap has it or its successor. Returns
    /// whether it has.
    fn grant(&self, period_table: &PeriodTable, devices: u64) -> bool {
        for own in self.state.load().period_tables() {
            if Arc::ptr_eq(&own.grants, &period_table.grants) {
                own.table.raise_limit(devices);
                return true;
            }
        }
        false
    }

    /// The tables that requests use until they change.
    #[inline]
    pub fn tables(&self) -> Arc<CapTables> {
        self.state.load_full()
    }

    /// Follows the clock: ends a period, prepares the next one, and adopts steps of the clock.
    /// `wall` is `now` in monotonic time. Call every second, from one thread. Allocates a table
    /// once per period.
    pub fn follow(&self, wall: SystemTime, now: Instant) {
        let old = self.state.load_full();
        let mut current = Arc::clone(&old.current.period_table);
        let mut next = old.next.as_ref().map(|next| Arc::clone(&next.period_table));

        let period = self.calendar.at(wall);
        let is_wrong = current.period.start > wall + MAX_SET_BACK;
        if period.number > current.period.number || is_wrong {
            let cap = self.name();
            let devices = current.table.count();
            let limit = current.table.limit();
            if is_wrong {
                tracing::warn!(cap, "the clock was set back by days: the cap counts anew");
            } else {
                tracing::info!(cap, devices, limit, "the cap's period ended");
            }
            let prepared = next
                .take()
                .filter(|next| next.period.number == period.number);
            current = prepared.unwrap_or_else(|| PeriodTable::new(period, &self.config, now));
        }

        let left = current.period.end.duration_since(wall).unwrap_or_default();
        next = match next {
            None if left <= LEAD => {
                let period = self.calendar.at(current.period.end);
                let due = now + SPREAD.min(left / 2).mul_f64(random::fraction());
                Some(PeriodTable::new(period, &self.config, due))
            }
            // The clock was set back: the table is not needed for long.
            Some(unused) if left > 2 * LEAD && unused.table.limit() == 0 => None,
            next => next,
        };

        let state = CapTables {
            current: Dated::new(current, wall, now),
            next: next.map(|next| Dated::new(next, wall, now)),
            of_all_pods: old.of_all_pods,
        };

        // Slow drift of the clocks matters at the end only.
        let tolerance = if left <= 2 * LEAD {
            TOLERANCE
        } else {
            100 * TOLERANCE
        };

        if !state.is_nearly(&old, tolerance) {
            drop(old);
            let old = self.state.swap(Arc::new(state));
            let mut replaced = self.replaced.lock();
            replaced.push(old);
        }

        let mut replaced = self.replaced.lock();
        replaced.retain(|state| Arc::strong_count(state) > 1);
    }
}

impl CapTables {
    /// Whether the tables are the same, and their ends differ by less than a time.
    fn is_nearly(&self, other: &Self, tolerance: Duration) -> bool {
        let is_next_nearly = match (&self.next, &other.next) {
            (Some(a), Some(b)) => a.is_nearly(b, tolerance),
            (a, b) => a.is_none() && b.is_none(),
        };
        is_next_nearly && self.current.is_nearly(&other.current, tolerance)
    }
}

impl Dated {
    fn new(period_table: Arc<PeriodTable>, wall: SystemTime, now: Instant) -> Self {
        let left = period_table
            .period
            .end
            .duration_since(wall)
            .unwrap_or_default();
        Self {
            period_table,
            ends: now + left,
        }
    }

    /// The same period under another configuration.
    fn reconfigured(&self, config: &CapConfig) -> Self {
        Self {
            period_table: PeriodTable::reconfigured(&self.period_table, config),
            ends: self.ends,
        }
    }

    fn is_nearly(&self, other: &Self, tolerance: Duration) -> bool {
        let apart = self.ends.max(other.ends) - self.ends.min(other.ends);
        Arc::ptr_eq(&self.period_table, &other.period_table) && apart < tolerance
    }
}

#[cfg(test)]
mod tests;
