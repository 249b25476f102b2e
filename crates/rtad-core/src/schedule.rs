//! Schedules: the times at which something holds.
//!
//! A schedule has an absolute beginning and end, and weekly hours in a time zone. All intervals are
//! half-open: the first instant belongs to them, the last one does not.
//!
//! * Hours are those of the local clock. A skipped hour never comes, a repeated one comes twice.
//! * Hours over midnight belong to the day on which they begin.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

use serde::{Deserialize, Serialize};

use crate::period::{UnknownTimeZone, zone_named};

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// Days in which weekly hours come: two weeks, as a change of the clock may skip those of one, and
/// one day more on each side.
const SEARCHED_DAYS: i64 = 16;

/// An absolute time with an offset from UTC, such as `2026-12-01T00:00:00+08:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Moment(Timestamp);

/// Hours of a day: from a minute of the local clock to another one, also over midnight. The text is
/// `09:00-18:00`, `22:00-02:00` or, up to the end of the day, `18:00-24:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hours {
    start: u16,
    end: u16,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// A text that is no time of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTime {
    /// No [`Moment`].
    #[error("time: expected a date and time with an offset, such as 2026-12-01T00:00:00+08:00")]
    Moment,
    /// No [`Hours`].
    #[error("hours: expected hours of a day such as 09:00-18:00, 22:00-02:00 or 18:00-24:00")]
    Hours,
}

impl TryFrom<String> for Moment {
    type Error = InvalidTime;

    fn try_from(text: String) -> Result<Self, InvalidTime> {
        text.parse().map(Self).map_err(|_| InvalidTime::Moment)
    }
}

impl FromStr for Moment {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        text.to_owned().try_into()
    }
}

impl From<Moment> for SystemTime {
    fn from(moment: Moment) -> Self {
        // A time before 1970 is at its beginning.
        system_time(moment.0).unwrap_or(UNIX_EPOCH)
    }
}

impl From<Moment> for String {
    fn from(moment: Moment) -> Self {
        moment.0.to_string()
    }
}

impl TryFrom<String> for Hours {
    type Error = InvalidTime;

    fn try_from(text: String) -> Result<Self, InvalidTime> {
        let minutes = text.split_once('-').and_then(|(start, end)| {
            let start = minute(start)?;
            let end = minute(end)?;
            (start < DAY && start != end).then_some(Self { start, end })
        });
        minutes.ok_or(InvalidTime::Hours)
    }
}

impl From<Hours> for String {
    fn from(hours: Hours) -> Self {
        let [start, end] =
            [hours.start, hours.end].map(|minute| format!("{:02}:{:02}", minute / 60, minute % 60));
        format!("{start}-{end}")
    }
}

impl Hours {
    const fn is_over_midnight(self) -> bool {
        self.end <= self.start
    }
}

/// The minute of a day that `09:30` names, up to `24:00`.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let minute = two_digits(hour, 24)? * 60 + two_digits(minute, 59)?;
    if minute <= DAY { Some(minute) } else { None }
}

/// A number of two digits, up to `most`.
fn two_digits(text: &str, most: u16) -> Option<u16> {
    if text.len() != 2 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse().ok()?;
    if number <= most { Some(number) } else { None }
}

/// Weekly hours in a time zone.
#[derive(Debug, Clone, PartialEq)]
struct Weekly {
    /// From Monday on.
    days: [bool; 7],
    hours: Vec<Hours>,
    zone: TimeZone,
}

/// Times at which something holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schedule {
    from: Option<Moment>,
    until: Option<Moment>,
    weekly: Option<Weekly>,
}

impl Schedule {
    /// A time in the schedule's zone, with its offset from UTC; in UTC without weekly hours.
    pub fn local(&self, time: SystemTime) -> String {
        let weekly = self.weekly.as_ref();
        let zone = weekly.map_or(TimeZone::UTC, |weekly| weekly.zone.clone());
        let time = timestamp(time).unwrap_or(Timestamp::MAX);
        let offset = zone.to_offset(time).seconds();
        let sign = if offset < 0 { '-' } else { '+' };
        let minutes = offset.unsigned_abs() / 60;
        format!(
            "{}{sign}{:02}:{:02}",
            zone.to_datetime(time),
            minutes / 60,
            minutes % 60
        )
    }

    /// A schedule from one time until another; unbounded without them.
    pub const fn between(from: Option<Moment>, until: Option<Moment>) -> Self {
        Self {
            from,
            until,
            weekly: None,
        }
    }

    /// Limits it to some days and hours of a zone of the IANA database. An empty list stands for
    /// every day, or for the whole day.
    ///
    /// # Errors
    ///
    /// The database has no such zone.
    pub fn weekly(
        self,
        days: &[Day],
        hours: &[Hours],
        zone: &str,
    ) -> Result<Self, UnknownTimeZone> {
        let zone = zone_named(zone)?;
        let mut chosen = [days.is_empty(); 7];
        for day in days {
            chosen[*day as usize] = true;
        }
        let whole_day = Hours { start: 0, end: DAY };
        let hours = if hours.is_empty() {
            vec![whole_day]
        } else {
            hours.to_vec()
        };

        Ok(Self {
            weekly: Some(Weekly {
                days: chosen,
                hours,
                zone,
            }),
            ..self
        })
    }

    /// Whether it holds at a time. Takes a microsecond.
    pub fn holds_at(&self, time: SystemTime) -> bool {
        timestamp(time).is_some_and(|time| self.holds(time))
    }

    fn holds(&self, time: Timestamp) -> bool {
        self.from.is_none_or(|from| time >= from.0)
            && self.until.is_none_or(|until| time < until.0)
            && self.weekly.as_ref().is_none_or(|weekly| weekly.holds(time))
    }

    /// Whether it has a beginning, and holds at no time from there on.
    pub fn never_holds(&self) -> bool {
        let Some(from) = self.from.map(|from| from.0) else {
            return false;
        };
        !self.holds(from) && system_time(from).is_some_and(|from| self.next_change(from).is_none())
    }

    /// The first change after a time; `None` if there is none. Takes milliseconds.
    pub fn next_change(&self, time: SystemTime) -> Option<SystemTime> {
        let now = timestamp(time)?;
        let holds_now = self.holds(now);
        let bounds = [self.from, self.until]
            .into_iter()
            .flatten()
            .map(|bound| bound.0);
        let mut start = now;
        loop {
            let weekly = self
                .weekly
                .as_ref()
                .map_or_else(Vec::new, |weekly| weekly.bounds(start));
            let candidates = weekly.into_iter().chain(bounds.clone());
            let changes = candidates.filter(|at| *at > now && self.holds(*at) != holds_now);
            if let Some(change) = changes.min() {
                return system_time(change);
            }
            // The weeks until a bound are alike.
            start = bounds.clone().filter(|bound| *bound > start).min()?;
        }
    }
}

impl Weekly {
    fn holds(&self, time: Timestamp) -> bool {
        let local = self.zone.to_datetime(time);
        let now = local.hour() as u16 * 60 + local.minute() as u16;
        let today = local.weekday().to_monday_zero_offset() as usize;
        let yesterday = (today + 6) % 7;
        self.hours.iter().any(|hours| {
            if hours.is_over_midnight() {
                self.days[today] && now >= hours.start || self.days[yesterday] && now < hours.end
            } else {
                self.days[today] && (hours.start..hours.end).contains(&now)
            }
        })
    }

    /// Every time in the days after `start` at which it may change: the starts and the ends of
    /// hours, and the changes of the zone's offset.
    fn bounds(&self, start: Timestamp) -> Vec<Timestamp> {
        let first = self.zone.to_datetime(start).date();
        let mut bounds = Vec::new();
        for day in -1..SEARCHED_DAYS {
            let Ok(date) = first.checked_add(day.days()) else {
                continue;
            };
            for minute in self.hours.iter().flat_map(|hours| [hours.start, hours.end]) {
                let hour = minute / 60 % 24;
                let minute = minute % 60;
                let Ok(time) = Time::new(hour as i8, minute as i8, 0, 0) else {
                    continue;
                };
                bounds.extend(self.instants(date.to_datetime(time)));
            }
        }

        let end = start
            .checked_add(((SEARCHED_DAYS + 1) * 24).hours())
            .unwrap_or(Timestamp::MAX);
        let changes = self.zone.following(start).map(|change| change.timestamp());
        bounds.extend(changes.take_while(|at| *at < end));
        bounds
    }

    /// The times at which the local clock reads this: two while an hour is repeated.
    fn instants(&self, local: DateTime) -> impl Iterator<Item = Timestamp> {
        let offsets = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => [Some(offset), None],
            AmbiguousOffset::Fold { before, after } => [Some(before), Some(after)],
            AmbiguousOffset::Gap { .. } => [None, None],
        };
        offsets
            .into_iter()
            .flatten()
            .filter_map(move |offset| offset.to_timestamp(local).ok())
    }
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(since.as_secs().try_into().ok()?).ok()
}

fn system_time(time: Timestamp) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_secs(time.as_second().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(words: &[&str]) -> Vec<T> {
        serde_json::from_value(words.into()).unwrap()
    }

    fn moment(text: &str) -> Moment {
        text.to_owned().try_into().unwrap()
    }

    fn at(text: &str) -> SystemTime {
        system_time(moment(text).0).unwrap()
    }

    fn weekly(days: &[&str], hours: &[&str], zone: &str) -> Schedule {
        let days: Vec<Day> = read(days);
        let hours: Vec<Hours> = read(hours);
        Schedule::default().weekly(&days, &hours, zone).unwrap()
    }

    #[test]
    fn bounds_are_half_open() {
        let [from, until] = ["2026-12-01T00:00:00+08:00", "2026-12-24T00:00:00Z"];
        let schedule = Schedule::between(Some(moment(from)), Some(moment(until)));
        let holds = |text| schedule.holds_at(at(text));
        assert!(!holds("2026-11-30T15:59:59Z") && holds("2026-11-30T16:00:00Z"));
        assert!(holds("2026-12-23T23:59:59Z") && !holds("2026-12-24T00:00:00Z"));
        assert_eq!(
            schedule.next_change(at("2026-01-01T00:00:00Z")),
            Some(at(from))
        );
        assert_eq!(schedule.next_change(at(from)), Some(at(until)));
        assert_eq!(schedule.next_change(at(until)), None);
    }

    #[test]
    fn hours_over_midnight_belong_to_the_day_on_which_they_begin() {
        // 2026-11-27 is a Friday.
        let schedule = weekly(&["fri"], &["22:00-02:00"], "Asia/Shanghai");
        let holds = |text| schedule.holds_at(at(text));
        assert!(!holds("2026-11-27T01:00:00+08:00") && !holds("2026-11-27T21:59:59+08:00"));
        assert!(holds("2026-11-27T22:00:00+08:00") && holds("2026-11-28T01:59:59+08:00"));
        assert!(!holds("2026-11-28T02:00:00+08:00") && !holds("2026-11-28T22:00:00+08:00"));
    }

    /// Both changes of daylight saving time, hours over midnight, and a beginning in the future:
    /// the changes are those that a walk over all minutes finds.
    #[test]
    fn changes_are_those_of_a_walk_over_all_minutes() {
        let cases = [
            (
                "America/New_York",
                vec![],
                vec!["02:30-03:30"],
                "2026-03-07T12:00:00Z",
            ),
            (
                "America/New_York",
                vec![],
                vec!["01:15-01:45"],
                "2026-10-31T12:00:00Z",
            ),
            (
                "America/New_York",
                vec!["sun"],
                vec!["00:00-24:00"],
                "2026-10-31T12:00:00Z",
            ),
            (
                "Europe/Berlin",
                vec!["sat"],
                vec!["22:00-02:30"],
                "2026-03-27T12:00:00Z",
            ),
            (
                "Australia/Lord_Howe",
                vec![],
                vec!["01:40-02:10"],
                "2026-10-02T12:00:00Z",
            ),
            (
                "Asia/Shanghai",
                vec!["mon", "tue"],
                vec!["09:00-12:00", "11:00-18:00"],
                "2026-12-31T00:00:00Z",
            ),
        ];
        for (zone, days, hours, start) in cases {
            let mut schedule = weekly(&days, &hours, zone);
            for delay in [None, Some(40)] {
                let start = at(start);
                let day = Duration::from_secs(86_400);
                schedule.from = delay.map(|days| Moment(timestamp(start + day * days).unwrap()));
                let mut now = start;
                for _ in 0..6 {
                    let before = schedule.holds_at(now);
                    let mut walked = now;
                    while schedule.holds_at(walked) == before {
                        walked += Duration::from_secs(60);
                    }
                    assert_eq!(
                        schedule.next_change(now),
                        Some(walked),
                        "{zone} {hours:?} {now:?}"
                    );
                    now = walked;
                }
            }
        }
    }

    #[test]
    fn hours_that_do_not_come_between_the_bounds_never_hold() {
        let never = |[from, until]: [&str; 2], days: &[&str], hours: &[&str]| {
            let bounds = (Some(moment(from)), Some(moment(until)));
            let weekly = weekly(days, hours, "America/New_York");
            Schedule {
                from: bounds.0,
                until: bounds.1,
                ..weekly
            }
            .never_holds()
        };
        // From a Monday to a Wednesday.
        let days = ["2026-12-07T00:00:00-05:00", "2026-12-09T00:00:00-05:00"];
        assert!(never(days, &["sat"], &[]) && !never(days, &["tue"], &[]));
        let morning = ["2026-12-07T08:00:00-05:00", "2026-12-07T12:00:00-05:00"];
        assert!(never(morning, &[], &["18:00-20:00"]) && !never(morning, &[], &["11:59-20:00"]));
        // A night in which the hour from 2 to 3 does not come, and the next one.
        let [night, next] = ["2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00"];
        let week = "2026-03-16T00:00:00-04:00";
        assert!(never([night, next], &[], &["02:00-03:00"]));
        assert!(!never([night, week], &["sun"], &["02:00-03:00"]));
        let sundays = Schedule {
            from: Some(moment(night)),
            ..weekly(&["sun"], &["02:00-03:00"], "America/New_York")
        };
        assert_eq!(
            sundays.next_change(at(night)),
            Some(at("2026-03-15T02:00:00-04:00"))
        );
    }

    #[test]
    fn a_schedule_without_hours_left_never_changes_again() {
        let schedule = weekly(&["mon"], &[], "UTC");
        let schedule = Schedule {
            until: Some(moment("2020-01-01T00:00:00Z")),
            ..schedule
        };
        assert_eq!(schedule.next_change(at("2026-01-01T00:00:00Z")), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "9:00-18:00",
            "09:00",
            "09:00-24:01",
            "24:00-09:00",
            "09:00-09:00",
            "09:60-10:00",
            "+9:00-10:00",
        ] {
            assert_eq!(
                Hours::try_from(text.to_owned()),
                Err(InvalidTime::Hours),
                "{text}"
            );
        }
        for text in ["2026-12-01", "2026-12-01T00:00:00", "tomorrow"] {
            assert_eq!(
                Moment::try_from(text.to_owned()),
                Err(InvalidTime::Moment),
                "{text}"
            );
        }
        for text in ["00:00-24:00", "22:05-02:00"] {
            assert_eq!(
                String::from(Hours::try_from(text.to_owned()).unwrap()),
                text
            );
        }
        assert!(Schedule::default().weekly(&[], &[], "Asia/Peking").is_err());
    }
}
