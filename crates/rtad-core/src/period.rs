//! Calendar periods: local days and hours in a time zone, numbered in order of time.
//!
//! Time zones come from the IANA database inside the program, so every pod of a version divides
//! time alike, whatever its image contains.
//!
//! | unit | starts | number |
//! |---|---|---|
//! | day | at the first instant of a local date | days from 1970-01-01 to that date |
//! | hour | when the local clock reads a full hour, or skips one | whole hours of Unix time at its start |
//!
//! Changes of a zone's offset make periods longer or shorter:
//!
//! * A day with a change of daylight saving time has 23 or 25 hours. Without a local midnight it
//!   starts at the first instant that the local clock shows. A date that the zone skips has no
//!   period, so its number is missing.
//! * Once a date has begun, a clock set back to the date before does not reopen that day.
//! * A repeated hour is a second period. A repeated part of an hour belongs to the hour that the
//!   clock already shows: 30 minutes on Lord Howe Island make an hour of 90 minutes.
//! * After a skipped part of an hour the rest is a period of its own, except where two starts fall
//!   into the same hour of Unix time. Then it belongs to the next period.
//!
//! Unix time has no leap seconds, and neither have periods: 2016-12-31T23:59:60 UTC has no Unix
//! time of its own. A clock that repeats 23:59:59 counts it in December, one that repeats 00:00:00
//! in January, and one that spreads the second over a day never shows it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Length of a period on most days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeriodUnit {
    /// An hour of the local clock.
    Hour,
    /// A local date.
    Day,
}

impl PeriodUnit {
    /// All units, shortest first.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The word in configurations: `hour` or `day`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Seconds, unless the zone changes its offset.
    const fn seconds(self) -> i64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
        }
    }

    /// Time searched on each side of an instant: longer than any two periods.
    const fn reach(self) -> i64 {
        match self {
            Self::Hour => 8 * HOUR,
            Self::Day => 6 * DAY,
        }
    }
}

/// One period of a [`Calendar`]: `start` is its first instant, `end` the first of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Period {
    /// Grows strictly with time; equal for all instants of a period.
    pub number: u64,
    /// Its first instant.
    pub start: SystemTime,
    /// Start of the next period.
    pub end: SystemTime,
}

impl Period {
    /// The date of a day, such as `2026-11-25`.
    pub fn date(&self) -> String {
        let days = i64::try_from(self.number).unwrap_or(i64::MAX);
        let epoch = jiff::civil::date(1970, 1, 1);
        epoch
            .saturating_add(jiff::Span::new().try_days(days).unwrap_or_default())
            .to_string()
    }

    /// Whether the instant lies in the period.
    pub fn contains(&self, time: SystemTime) -> bool {
        (self.start..self.end).contains(&time)
    }
}

/// The name is not in the database of time zones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {name:?}: expected a name of the IANA database, such as Asia/Shanghai")]
pub struct UnknownTimeZone {
    /// The name as given.
    pub name: String,
}

/// Divides time into days or hours of a time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Calendar {
    unit: PeriodUnit,
    zone: TimeZone,
}

/// A zone of the IANA database inside the program.
pub(crate) fn zone_named(name: &str) -> Result<TimeZone, UnknownTimeZone> {
    let zone = TimeZoneDatabase::bundled()
        .get(name)
        .ok()
        .filter(|zone| !zone.is_unknown());
    zone.ok_or_else(|| UnknownTimeZone {
        name: name.to_owned(),
    })
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Bounds in seconds of Unix time. Earlier and later clocks are wrong, and read as these: local
/// dates before 1970 would have negative numbers, years after 9999 have no local time.
const EARLIEST: i64 = 7 * DAY;
const LATEST: i64 = 253_000_000_000;

impl Calendar {
    /// Periods in a zone of the IANA database, in any case; `None` is UTC.
    ///
    /// # Errors
    ///
    /// The database has no such zone.
    pub fn new(unit: PeriodUnit, zone: Option<&str>) -> Result<Self, UnknownTimeZone> {
        let zone = zone.map_or(Ok(TimeZone::UTC), zone_named)?;
        Ok(Self { unit, zone })
    }

    /// The zone's name in the database's spelling.
    pub fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The period of an instant. Takes microseconds: compare with its bounds until it ends.
    pub fn at(&self, time: SystemTime) -> Period {
        let now = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(LATEST),
            Err(_) => EARLIEST,
        };

        let now = now.clamp(EARLIEST, LATEST);
        let mut current = Start {
            at: EARLIEST,
            number: 0,
        };

        let mut end = LATEST;
        for start in self.starts(now - self.unit.reach(), now + self.unit.reach()) {
            if start.at > now {
                end = start.at;
                break;
            }
            current = start;
        }

        Period {
            number: current.number as u64,
            start: instant(current.at),
            end: instant(end),
        }
    }

    /// The starts of periods in `[from, until)`, ascending. The first may be no start, because
    /// nothing is known of the time before.
    fn starts(&self, from: i64, until: i64) -> Vec<Start> {
        let mut starts: Vec<Start> = Vec::new();
        // A number that is reached again, after the clock was set back, starts no period.
        let mut add = |at: i64, number: i64| {
            if starts.last().is_none_or(|last| last.number < number) {
                starts.push(Start { at, number });
            }
        };

        let unit = self.unit.seconds();
        let mut offset_before: Option<i64> = None;
        for Span {
            from,
            until,
            offset,
        } in self.spans(from, until)
        {
            // The first instant with a new offset, if the local clock skipped a start.
            let skipped = offset_before.is_some_and(|before| {
                (from - 1 + before).div_euclid(unit) < (from + offset).div_euclid(unit)
            });
            let first = (from + offset + unit - 1).div_euclid(unit) * unit - offset;
            let regular = (first..until).step_by(unit as usize);
            for at in skipped.then_some(from).into_iter().chain(regular) {
                match self.unit {
                    PeriodUnit::Hour => add(at, at.div_euclid(HOUR)),
                    PeriodUnit::Day => add(at, (at + offset).div_euclid(DAY)),
                }
            }
            offset_before = Some(offset);
        }

        starts
    }

    /// The zone's offsets from UTC in `[from, until)`, in seconds.
    fn spans(&self, from: i64, until: i64) -> Vec<Span> {
        // Both are bounded, so no timestamp is out of range.
        let timestamp = |second| Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
        let offset = i64::from(self.zone.to_offset(timestamp(from)).seconds());
        let mut spans = vec![Span {
            from,
            until,
            offset,
        }];

        for change in self.zone.following(timestamp(from)) {
            let at = change.timestamp().as_second();
            if at >= until {
                break;
            }
            if let Some(last) = spans.last_mut() {
                last.until = at;
            }
            spans.push(Span {
                from: at,
                until,
                offset: i64::from(change.offset().seconds()),
            });
        }

        spans
    }
}

/// Start of a period, in seconds of Unix time.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: i64,
    number: i64,
}

/// Time with one offset from UTC, all in seconds.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: i64,
    until: i64,
    offset: i64,
}

fn instant(second: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(second.unsigned_abs())
}

#[cfg(test)]
mod tests;
