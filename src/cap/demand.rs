//! Demand of a cap on a pod: the rate of new devices, and the block that it needs.

use std::time::Duration;

use rtad_core::cap::CapTable;
use tokio::time::Instant;

/// Interval of the polls of the counts.
pub const TICK: Duration = Duration::from_millis(250);
/// Time over which the rate is averaged.
const MEMORY_SECONDS: f64 = 30.0;
/// A pod with less than this takes a block.
const LOW_SECONDS: f64 = 20.0;
/// It takes what it lacks of this: with [`LOW_SECONDS`], a block lasts for a minute.
const FULL_SECONDS: f64 = 80.0;
/// A pod takes up to one part of what is left in so many: others need some, too.
const LARGEST_PART: u64 = 16;
/// Then it takes a block when it has less than one part of that in so many.
const LOW_PART: u64 = 4;
/// But one part of the cap in so many is worth a record.
const SMALLEST_PART: u64 = 10_000;
/// A pod that has used up its block takes at most so many times as much.
const GROWTH: f64 = 16.0;

/// Average rate of new devices, with exponential weights.
#[derive(Debug, Default)]
pub struct Demand {
    devices: f64,
    seconds: f64,
    last_poll: Option<Poll>,
}

/// A poll of a table's count.
#[derive(Debug, Clone, Copy)]
struct Poll {
    period: u64,
    count: u64,
    at: Instant,
}

impl Demand {
    /// Measures the rate of the table of a period.
    pub fn measure(&mut self, period: u64, table: &CapTable, now: Instant) {
        let count = table.count();
        let at = now;
        let Some(before) = self.last_poll.replace(Poll { period, count, at }) else {
            return;
        };

        let counted = count.saturating_sub(before.count);
        // A full table shows nothing of the demand.
        let shows_demand = counted > 0 || !table.is_full();
        let passed = now.duration_since(before.at).as_secs_f64();
        if before.period == period && passed > 0.0 && shows_demand {
            let kept = (-passed / MEMORY_SECONDS).exp();
            self.devices = self.devices * kept + counted as f64;
            self.seconds = self.seconds * kept + passed;
        }
    }

    /// New devices per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.devices / self.seconds
        } else {
            0.0
        }
    }
}

/// The need of a table.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Devices of all pods together.
    pub cap: u64,
    /// Devices that the pod may count without a further block.
    pub rest: u64,
    /// New devices per second.
    pub rate: f64,
    /// Whether the table has had no block yet.
    pub is_first: bool,
    /// Whether a device was refused.
    pub was_refused: bool,
    /// Devices of its last block.
    pub last_block: u64,
    /// Time since the last block.
    pub since_block: Duration,
}

impl Need {
    /// Whether the table needs a block if so many are left of the cap, as far as the pod knows.
    pub fn is_any(&self, left: u64) -> bool {
        self.is_urgent() || self.block(left) > 0
    }

    /// Others may have given back since the pod knew of what is left.
    const fn is_urgent(&self) -> bool {
        self.is_first || (self.rest == 0 && self.was_refused)
    }

    /// Devices to take if so many are left of the cap.
    pub fn block(&self, left: u64) -> u64 {
        let smallest = (self.cap / SMALLEST_PART).max(2);
        let largest = (left / LARGEST_PART).max(smallest).min(left);
        let mut full = devices_in(FULL_SECONDS, self.rate).max(smallest);
        if self.rest == 0 && !self.is_first {
            // The rate is that of the block, not of the requests.
            let since = self.since_block.max(TICK).as_secs_f64();
            let growth = GROWTH.min(FULL_SECONDS / since);
            full = full.max((self.last_block as f64 * growth) as u64);
        }
        let full = full.min(largest);

        let low = devices_in(LOW_SECONDS, self.rate).min(full.div_ceil(LOW_PART));
        if self.is_urgent() || self.rest < low {
            full.saturating_sub(self.rest)
        } else {
            0
        }
    }

    /// Devices that others need more, while nothing is left of the cap.
    pub fn surplus(&self) -> u64 {
        let kept = devices_in(FULL_SECONDS, self.rate);
        // Less is not worth a record.
        if self.rest > 2 * kept {
            self.rest - kept
        } else {
            0
        }
    }
}

fn devices_in(seconds: f64, rate: f64) -> u64 {
    (seconds * rate).round() as u64
}

#[cfg(test)]
mod tests {
    use rtad_core::cap::CapSeed;
    use rtad_core::device::DeviceKey;

    use super::*;

    const CAP: u64 = 1_000_000;

    fn need(rest: u64, rate: f64) -> Need {
        Need {
            cap: CAP,
            rest,
            rate,
            is_first: false,
            was_refused: false,
            last_block: 100,
            since_block: Duration::from_secs(60),
        }
    }

    #[test]
    fn block_lasts_for_a_minute() {
        assert_eq!(need(200, 10.0).block(CAP), 0);
        assert_eq!(need(199, 10.0).block(CAP), 601);
        // An idle pod needs a block only when it has none, and somebody asks.
        assert_eq!(need(0, 0.0).block(CAP), 0);
        let refused = Need {
            was_refused: true,
            since_block: Duration::from_secs(3_600),
            ..need(0, 0.0)
        };
        assert_eq!(refused.block(CAP), CAP / SMALLEST_PART);
        let first = Need {
            is_first: true,
            ..refused
        };
        assert_eq!(first.block(CAP), CAP / SMALLEST_PART);
    }

    #[test]
    fn block_that_was_used_up_soon_is_followed_by_a_larger_one() {
        let used_up = Need {
            was_refused: true,
            since_block: Duration::from_millis(10),
            ..need(0, 0.0)
        };
        assert_eq!(used_up.block(CAP), 1_600);
        let slowly = Need {
            since_block: Duration::from_secs(40),
            ..used_up
        };
        assert_eq!(slowly.block(CAP), 200);
    }

    #[test]
    fn little_is_taken_when_little_is_left() {
        let starved = need(0, 1_000.0);
        for (left, block) in [
            (CAP, 62_500),
            (16_000, 1_000),
            (1_600, 100),
            (160, 100),
            (17, 17),
            (1, 1),
            (0, 0),
        ] {
            assert_eq!(starved.block(left), block, "{left}");
        }
    }

    /// However fast it counts: a pod that is killed must not take most of the cap with it.
    #[test]
    fn pod_holds_a_sixteenth_of_what_is_left_at_most() {
        for rest in [15_625, 62_500, 100_000] {
            assert_eq!(need(rest, 1e9).block(CAP), 0, "{rest}");
        }
        assert_eq!(need(15_624, 1e9).block(CAP), 62_500 - 15_624);
        // A pod with nothing left asks, also if it knows of nothing that is left.
        assert!(!need(0, 1e9).is_any(0));
        let refused = Need {
            was_refused: true,
            ..need(0, 1e9)
        };
        assert!(refused.is_any(0));
    }

    #[test]
    fn surplus_is_what_lasts_for_long() {
        assert_eq!(need(100, 0.0).surplus(), 100);
        assert_eq!(need(1_600, 10.0).surplus(), 0);
        assert_eq!(need(1_700, 10.0).surplus(), 900);
    }

    #[test]
    fn rate_is_an_average_which_a_full_table_leaves_as_it_is() {
        let table = CapTable::new(10_000, CapSeed::random());
        table.raise_limit(600);
        let begun = Instant::now();
        let mut demand = Demand::default();
        let mut devices = 0..600_u64;
        for tick in 0..240 {
            for n in devices.by_ref().take(5) {
                table
                    .seek(&DeviceKey::of_canonical(&n.to_le_bytes()))
                    .count();
            }
            demand.measure(1, &table, begun + tick * TICK);
        }
        // 20 per second for 30 seconds, then nothing is left.
        assert!((19.0..21.0).contains(&demand.rate()), "{}", demand.rate());

        table.raise_limit(1);
        for tick in 240..1_000 {
            demand.measure(1, &table, begun + tick * TICK);
        }
        assert!(demand.rate() < 0.1, "{}", demand.rate());
        // The count of another period.
        demand.measure(
            2,
            &CapTable::new(9, CapSeed::random()),
            begun + 1_001 * TICK,
        );
        assert!(demand.rate() < 0.1, "{}", demand.rate());
    }
}
