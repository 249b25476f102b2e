//! Account of a cap's leases: what the server has recorded, and what to lease next.

use std::collections::HashMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rtad_core::period::Period;
use rtad_redis::Lease;

use super::super::PeriodTable;
use super::LeaseState;

/// Time between calls that only ask what others have leased, and whether the server lost data.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a lease should last.
const AHEAD: Duration = Duration::from_secs(10);
/// Smallest block: one part of the cap in so many.
const MIN_BLOCK: u64 = 1000;
/// Pause after the server lost data: until the other pods have asked too.
const LOSS_PAUSE: Duration = Duration::from_secs(10);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The leases of a strategy's cap.
#[derive(Debug)]
pub(super) struct Account {
    /// The count when it was last looked at, and its period.
    seen: (u64, u64, Instant),
    /// New devices per second: follows a rise at once, a fall within seconds.
    rate: f64,
    /// By the start of the period.
    periods: HashMap<u64, Record>,
    pub(super) state: LeaseState,
}

/// What the server has recorded for a period.
#[derive(Debug, Default)]
struct Record {
    /// Units of this process; `None` before the first answer.
    recorded: Option<u64>,
    /// The last call had no answer. The server may have recorded its units.
    is_uncertain: bool,
    all: u64,
    last_block: u64,
    next_call: Option<Instant>,
    asked: Option<Instant>,
}

/// A call to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// Units of this process that the server has recorded, as of its last answer.
    pub(super) recorded: Option<u64>,
    /// Units to lease; 0 only asks.
    pub(super) units: u64,
}

impl Account {
    pub(super) fn new(now: Instant) -> Self {
        let (seen, state) = ((0, 0, now), LeaseState::default());
        Self { seen, rate: 0.0, periods: HashMap::new(), state }
    }

    /// Measures the rate.
    pub(super) fn look(&mut self, counted: &PeriodTable, now: Instant) {
        let (period, count, at) = self.seen;
        let found = (counted.period.number, counted.table.count());
        let passed = now.duration_since(at).as_secs_f64();
        if found.0 == period && passed > 0.0 {
            let rate = found.1.saturating_sub(count) as f64 / passed;
            let kept = self.rate * (-passed / AHEAD.as_secs_f64()).exp();
            self.rate = rate.max(kept);
        }
        self.seen = (found.0, found.1, now);
    }

    /// Forgets all periods but these; returns what all pods have leased of the first one.
    pub(super) fn keep(&mut self, periods: [Option<Period>; 2]) -> u64 {
        let starts = periods.map(|period| period.map(start));
        self.periods.retain(|period, _| starts.contains(&Some(*period)));
        let [current, _] = starts;
        current.and_then(|current| self.periods.get(&current)).map_or(0, |record| record.all)
    }

    /// Units of this process that the server has recorded for a period.
    pub(super) fn recorded(&self, period: Period) -> Option<u64> {
        self.periods.get(&start(period))?.recorded
    }

    /// The call to make for a period now.
    pub(super) fn call(&mut self, counted: &PeriodTable, total: u64, now: Instant) -> Option<Call> {
        let record = self.periods.entry(start(counted.period)).or_default();
        if record.next_call.is_some_and(|at| now < at) {
            return None;
        }
        let (count, limit) = (counted.table.count(), counted.table.limit());
        let mut ahead = (total / MIN_BLOCK).max((self.rate * AHEAD.as_secs_f64()) as u64).max(1);
        if count >= limit {
            // The rate is that of the lease, not of the requests.
            ahead = ahead.max(record.last_block.saturating_mul(2));
        }
        let wanted = (count + ahead).saturating_sub(limit);
        let left = total.saturating_sub(record.all);
        let units = if wanted * 2 > ahead { wanted.min(left) } else { 0 };
        let is_due = record.asked.is_none_or(|asked| now.duration_since(asked) >= ASK_INTERVAL);
        let recorded = record.recorded;
        if record.is_uncertain {
            return Some(Call { recorded, units: 0 });
        }
        (units > 0 || is_due).then_some(Call { recorded, units })
    }

    /// Keeps an answer. Returns whether the call before had failed.
    pub(super) fn answered(&mut self, period: Period, lease: &Lease, now: Instant) -> bool {
        let record = self.periods.entry(start(period)).or_default();
        *record = Record {
            recorded: Some(lease.recorded),
            is_uncertain: false,
            all: lease.all,
            last_block: lease.granted,
            next_call: lease.was_lost.then(|| now + LOSS_PAUSE),
            asked: Some(now),
        };
        self.state.answered += 1;
        self.state.failing.take().is_some()
    }

    /// Keeps a failure. Returns whether the call before had not failed.
    pub(super) fn failed(&mut self, period: Period, cause: &'static str, now: Instant) -> bool {
        let record = self.periods.entry(start(period)).or_default();
        record.is_uncertain = true;
        record.asked = Some(now);
        record.next_call = Some(now + FAILURE_PAUSE);
        self.state.failed += 1;
        self.state.failing.replace(cause).is_none()
    }
}

/// Start of a period in seconds since 1970.
pub(super) fn start(period: Period) -> u64 {
    period.start.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use rtad_core::device::DeviceKey;
    use rtad_core::period::{Calendar, PeriodUnit};

    use super::*;
    use crate::config::CapConfig;

    const TOTAL: u64 = 100_000;

    fn table() -> Arc<PeriodTable> {
        let config = CapConfig {
            unique_devices: TOTAL,
            per: PeriodUnit::Day,
            time_zone: "UTC".to_owned(),
            share: None,
            leased: true,
        };
        let period = Calendar::new(PeriodUnit::Day, None).unwrap().at(SystemTime::now());
        PeriodTable::new(period, &config)
    }

    fn count(table: &PeriodTable, devices: std::ops::Range<u64>) {
        for n in devices {
            table.table.count_device(&DeviceKey::of_canonical(&n.to_le_bytes()));
        }
    }

    /// An answered call.
    fn lease(account: &mut Account, table: &PeriodTable, granted: u64, all: u64, now: Instant) {
        let recorded = account.recorded(table.period).unwrap_or(0) + granted;
        account.answered(table.period, &Lease { granted, all, recorded, was_lost: false }, now);
        table.raise(granted);
    }

    /// A call that leases units.
    fn units(recorded: u64, units: u64) -> Option<Call> {
        Some(Call { recorded: Some(recorded), units })
    }

    #[test]
    fn leases_stay_ten_seconds_ahead() {
        let (table, begun) = (table(), Instant::now());
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let mut account = Account::new(begun);
        account.look(&table, begun);
        assert_eq!(
            account.call(&table, TOTAL, begun),
            Some(Call { recorded: None, units: 100 }),
            "a thousandth at first"
        );
        lease(&mut account, &table, 100, 100, begun);
        assert_eq!(account.call(&table, TOTAL, begun), None);
        // 50 of 100 are enough, 49 are not.
        count(&table, 0..50);
        assert_eq!(account.call(&table, TOTAL, begun), None);
        count(&table, 50..51);
        assert_eq!(account.call(&table, TOTAL, begun), units(100, 51));
        // The rest within half a second: the rate may be higher than the lease allowed.
        count(&table, 51..120);
        account.look(&table, after(0.5));
        assert_eq!(account.call(&table, TOTAL, after(0.5)), units(100, 2_000));
        lease(&mut account, &table, 2_000, 2_100, after(0.5));
        // 1,000 per second, then nothing: the rate falls.
        count(&table, 120..1_100);
        account.look(&table, after(1.5));
        assert!(account.call(&table, TOTAL, after(1.5)).unwrap().units > 8_000);
        account.look(&table, after(60.0));
        assert_eq!(account.call(&table, TOTAL, after(60.0)), units(2_100, 0), "only asks");
    }

    #[test]
    fn no_more_is_asked_for_than_is_left() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        account.call(&table, TOTAL, now);
        lease(&mut account, &table, 100, TOTAL - 7, now);
        count(&table, 0..100);
        assert_eq!(account.call(&table, TOTAL, now), units(100, 7));
        lease(&mut account, &table, 7, TOTAL, now);
        count(&table, 100..107);
        assert_eq!(account.call(&table, TOTAL, now), None, "all is leased");
        // A larger cap, by a reload.
        assert_eq!(account.call(&table, TOTAL + 5, now), units(107, 5));
        // Or another pod gave back.
        let later = now + ASK_INTERVAL;
        assert_eq!(account.call(&table, TOTAL, later), units(107, 0));
    }

    #[test]
    fn what_was_counted_without_a_lease_is_leased_too() {
        let (table, now) = (table(), Instant::now());
        table.table.set_limit(5_000);
        count(&table, 0..5_000);
        table.table.set_limit(0);
        let mut account = Account::new(now);
        assert_eq!(account.call(&table, TOTAL, now), Some(Call { recorded: None, units: 5_100 }));
    }

    /// The server may have executed the call: only one block may be wasted.
    #[test]
    fn nothing_is_leased_until_a_failed_call_is_answered() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        assert_eq!(account.call(&table, TOTAL, now).map(|call| call.units), Some(100));
        for second in 0..20 {
            let at = now + second * FAILURE_PAUSE;
            assert_eq!(account.failed(table.period, "timeout", at), second == 0);
            assert_eq!(account.call(&table, TOTAL, at), None);
            let call = account.call(&table, TOTAL, at + FAILURE_PAUSE);
            assert_eq!(call, Some(Call { recorded: None, units: 0 }));
        }
        let answer = Lease { granted: 0, all: 100, recorded: 100, was_lost: false };
        assert!(account.answered(table.period, &answer, now));
        assert_eq!(account.call(&table, TOTAL, now), units(100, 100));
    }
}
