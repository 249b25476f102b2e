//! Leases of a cap: what the server has recorded, and what to lease next.

use std::time::{Duration, Instant};

use rtad_core::random;
use rtad_redis::{Lease, Member, RedisError};

use super::super::PeriodTable;
use super::LeaseState;

/// Time between calls that only ask what others have leased, and whether the server lost data.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a lease should last.
const AHEAD: Duration = Duration::from_secs(10);
/// Smallest block: one part of the cap in so many. A thousand idle pods keep a hundredth of the cap
/// from the others.
const MIN_BLOCK: u64 = 100_000;
/// Pause after the server lost data: until the other pods have asked too.
const LOSS_PAUSE: Duration = Duration::from_secs(10);
/// Pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// A poll of a table's count.
#[derive(Debug)]
struct Poll {
    period: u64,
    count: u64,
    at: Instant,
}

/// Rate of a cap's new devices, and the state of its calls.
#[derive(Debug)]
pub struct Account {
    last_poll: Poll,
    /// New devices per second: follows a rise at once, a fall within seconds.
    rate: f64,
    pub(super) state: LeaseState,
}

/// The server's record of a cap's period. It lives as long as the table that counts with it, also
/// while the cap has a share: a server that loses its data learns from it what was leased.
#[derive(Debug)]
pub struct Record {
    /// Name of the record at the server: a random number. A table that starts anew has a new one,
    /// so it is never granted what an earlier table has used.
    id: u64,
    /// Units that the server has recorded, as of its last answer.
    recorded: u64,
    last_call: LastCall,
    last_block: u64,
    next_call: Option<Instant>,
    asked: Option<Instant>,
}

/// Outcome of the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastCall {
    Answered,
    /// The server may have recorded its units. They are used after the next answer.
    Unanswered,
    /// The server refused it, and may have recorded its units in part. They are wasted.
    Refused,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            id: random::number(),
            recorded: 0,
            last_call: LastCall::Answered,
            last_block: 0,
            next_call: None,
            asked: None,
        }
    }
}

impl Account {
    pub fn new(now: Instant) -> Self {
        let last_poll = Poll {
            period: 0,
            count: 0,
            at: now,
        };
        Self {
            last_poll,
            rate: 0.0,
            state: LeaseState::default(),
        }
    }

    /// Measures the rate.
    pub fn measure_rate(&mut self, period_table: &PeriodTable, now: Instant) {
        let period = period_table.period.number;
        let count = period_table.table.count();
        let before = std::mem::replace(
            &mut self.last_poll,
            Poll {
                period,
                count,
                at: now,
            },
        );

        let passed = now.duration_since(before.at).as_secs_f64();
        if period == before.period && passed > 0.0 {
            let rate = count.saturating_sub(before.count) as f64 / passed;
            let kept = self.rate * (-passed / AHEAD.as_secs_f64()).exp();
            self.rate = rate.max(kept);
        }
    }

    /// Units to lease for a period now; 0 only asks, `None` makes no call.
    pub fn units(&self, period_table: &PeriodTable, total: u64, now: Instant) -> Option<u64> {
        let record = period_table.record();
        if record.next_call.is_some_and(|at| now < at) {
            return None;
        }

        let count = period_table.table.count();
        let limit = period_table.table.limit();
        let mut ahead = (total / MIN_BLOCK)
            .max((self.rate * AHEAD.as_secs_f64()) as u64)
            .max(1);
        if count >= limit {
            // The rate is that of the lease, not of the requests.
            ahead = ahead.max(record.last_block.saturating_mul(2));
        }

        let wanted = (count + ahead).saturating_sub(limit);
        // A server that lost its data may know of less than this pod has.
        let left = total.saturating_sub(period_table.leased_by_all().max(limit));
        let units = if wanted * 2 > ahead {
            wanted.min(left)
        } else {
            0
        };

        let is_due = record
            .asked
            .is_none_or(|asked| now.duration_since(asked) >= ASK_INTERVAL);
        if record.last_call != LastCall::Answered {
            return Some(0);
        }
        (units > 0 || is_due).then_some(units)
    }

    /// Keeps an answer, with the units that the pod may use in addition. Returns whether the call
    /// before had failed.
    pub fn answered(&mut self, period_table: &PeriodTable, lease: &Lease, now: Instant) -> bool {
        period_table.set_leased_by_all(lease.all);
        let mut record = period_table.record();
        *record = Record {
            id: record.id,
            recorded: lease.recorded,
            last_call: LastCall::Answered,
            last_block: lease.granted,
            next_call: lease.was_lost.then(|| now + LOSS_PAUSE),
            asked: Some(now),
        };

        self.state.answered += 1;
        self.state.failing.take().is_some()
    }

    /// Keeps a failure. Returns whether the call before had not failed.
    pub fn failed(&mut self, period_table: &PeriodTable, error: &RedisError, now: Instant) -> bool {
        let mut record = period_table.record();
        let is_unanswered = matches!(
            error,
            RedisError::Unreachable { .. } | RedisError::Timeout { .. }
        );

        if !is_unanswered {
            record.last_call = LastCall::Refused;
        } else if record.last_call == LastCall::Answered {
            record.last_call = LastCall::Unanswered;
        }

        record.asked = Some(now);
        record.next_call = Some(now + FAILURE_PAUSE);
        self.state.failed += 1;
        self.state.failing.replace(error.cause()).is_none()
    }
}

impl Record {
    /// The pod at the server.
    pub fn member(&self) -> Member {
        let is_doubtful = self.last_call == LastCall::Refused;
        Member {
            id: self.id,
            recorded: self.recorded,
            is_doubtful,
        }
    }

    /// Whether the server may have recorded units of calls without an answer.
    pub fn is_unanswered(&self) -> bool {
        self.last_call == LastCall::Unanswered
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use rtad_core::device::DeviceKey;
    use rtad_core::period::{Calendar, PeriodUnit};

    use super::*;
    use crate::config::CapConfig;

    /// Devices of all pods together.
    const TOTAL: u64 = 10_000_000;
    /// Devices of the table.
    const ROOM: u64 = 100_000;

    fn table() -> Arc<PeriodTable> {
        let config = CapConfig {
            name: "daily".to_owned(),
            unique_devices: ROOM,
            per: PeriodUnit::Day,
            time_zone: Some("UTC".to_owned()),
            share: None,
            leased: true,
        };
        let period = Calendar::new(PeriodUnit::Day, None)
            .unwrap()
            .at(SystemTime::now());
        PeriodTable::new(period, &config)
    }

    fn count(table: &PeriodTable, devices: std::ops::Range<u64>) {
        for n in devices {
            table
                .table
                .seek(&DeviceKey::of_canonical(&n.to_le_bytes()))
                .count();
        }
    }

    /// An answered call.
    fn lease(account: &mut Account, table: &PeriodTable, granted: u64, all: u64, now: Instant) {
        let recorded = table.record().recorded + granted;
        let lease = Lease {
            granted,
            all,
            recorded,
            was_lost: false,
        };
        account.answered(table, &lease, now);
        table.add_leased(granted, true);
    }

    fn timeout() -> RedisError {
        RedisError::Timeout {
            server: "redis://host".to_owned(),
            stage: "answer",
        }
    }

    #[test]
    fn leases_stay_ten_seconds_ahead() {
        let (table, begun) = (table(), Instant::now());
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let mut account = Account::new(begun);
        account.measure_rate(&table, begun);
        assert_eq!(
            account.units(&table, TOTAL, begun),
            Some(100),
            "a hundred-thousandth at first"
        );
        lease(&mut account, &table, 100, 100, begun);
        assert_eq!(account.units(&table, TOTAL, begun), None);
        // 50 of 100 are enough, 49 are not.
        count(&table, 0..50);
        assert_eq!(account.units(&table, TOTAL, begun), None);
        count(&table, 50..51);
        assert_eq!(account.units(&table, TOTAL, begun), Some(51));
        // The rest within half a second: the rate may be higher than the lease allowed.
        count(&table, 51..120);
        account.measure_rate(&table, after(0.5));
        assert_eq!(account.units(&table, TOTAL, after(0.5)), Some(2_000));
        lease(&mut account, &table, 2_000, 2_100, after(0.5));
        // 1,000 per second, then nothing: the rate falls.
        count(&table, 120..1_100);
        account.measure_rate(&table, after(1.5));
        assert!(account.units(&table, TOTAL, after(1.5)).unwrap() > 8_000);
        account.measure_rate(&table, after(60.0));
        assert_eq!(
            account.units(&table, TOTAL, after(60.0)),
            Some(0),
            "only asks"
        );
    }

    #[test]
    fn calls_ask_for_no_more_than_is_left() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        account.units(&table, TOTAL, now);
        lease(&mut account, &table, 100, TOTAL - 7, now);
        count(&table, 0..100);
        assert_eq!(account.units(&table, TOTAL, now), Some(7));
        lease(&mut account, &table, 7, TOTAL, now);
        count(&table, 100..107);
        assert_eq!(account.units(&table, TOTAL, now), None, "all is leased");
        // A reload makes the cap larger.
        assert_eq!(account.units(&table, TOTAL + 5, now), Some(5));
        // Another pod gave units back.
        let later = now + ASK_INTERVAL;
        assert_eq!(account.units(&table, TOTAL, later), Some(0));
    }

    #[test]
    fn devices_counted_before_are_leased() {
        let (table, now) = (table(), Instant::now());
        table.table.set_limit(5_000);
        count(&table, 0..5_000);
        table.table.set_limit(0);
        let account = Account::new(now);
        assert_eq!(account.units(&table, TOTAL, now), Some(5_100));
    }

    /// The server may have executed the call: only one block may be wasted.
    #[test]
    fn nothing_is_leased_until_a_failed_call_is_answered() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        assert_eq!(account.units(&table, TOTAL, now), Some(100));
        for second in 0..20 {
            let at = now + second * FAILURE_PAUSE;
            assert_eq!(account.failed(&table, &timeout(), at), second == 0);
            assert_eq!(account.units(&table, TOTAL, at), None);
            assert_eq!(account.units(&table, TOTAL, at + FAILURE_PAUSE), Some(0));
        }
        let answer = Lease {
            granted: 100,
            all: 100,
            recorded: 100,
            was_lost: false,
        };
        assert!(account.answered(&table, &answer, now));
        table.add_leased(100, true);
        count(&table, 0..60);
        assert_eq!(account.units(&table, TOTAL, now), Some(60));
    }

    /// The member's record may have units that the sum lacks.
    #[test]
    fn refused_call_is_doubtful_until_an_answer() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        let full = RedisError::OutOfMemory {
            server: "redis://host".to_owned(),
        };
        account.failed(&table, &timeout(), now);
        assert!(table.record().is_unanswered() && !table.record().member().is_doubtful);
        account.failed(&table, &full, now);
        account.failed(&table, &timeout(), now);
        assert!(table.record().member().is_doubtful);
        let answer = Lease {
            granted: 7,
            all: 200,
            recorded: 200,
            was_lost: false,
        };
        assert!(account.answered(&table, &answer, now));
        let member = table.record().member();
        assert_eq!((member.recorded, member.is_doubtful), (200, false));
    }

    #[test]
    fn loss_of_data_pauses_leasing() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        lease(&mut account, &table, 100, 100, now);
        count(&table, 0..100);
        let answer = Lease {
            granted: 0,
            all: 150,
            recorded: 150,
            was_lost: true,
        };
        account.answered(&table, &answer, now);
        let at = |time| account.units(&table, TOTAL, now + time);
        assert_eq!(at(LOSS_PAUSE - Duration::from_millis(1)), None);
        assert_eq!(at(LOSS_PAUSE), Some(100));
    }

    /// The server lost data and knows of less than the pod has.
    #[test]
    fn pod_never_leases_more_than_the_cap() {
        let (table, now) = (table(), Instant::now());
        let mut account = Account::new(now);
        table.add_leased(ROOM - 1, true);
        count(&table, 0..ROOM - 1);
        assert_eq!(account.units(&table, ROOM, now), Some(1));
        lease(&mut account, &table, 1, 1, now);
        count(&table, ROOM - 1..ROOM);
        assert_eq!(account.units(&table, ROOM, now), None);
    }
}
