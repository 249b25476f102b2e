//! Tests of calendar periods, against instants written in UTC.

use proptest::prelude::*;

use super::*;

fn utc(text: &str) -> SystemTime {
    let timestamp: Timestamp = text.parse().unwrap();
    instant(timestamp.as_second())
}

fn calendar(unit: PeriodUnit, zone: &str) -> Calendar {
    Calendar::new(unit, Some(zone)).unwrap()
}

/// Days from 1970-01-01 to a date.
fn date(text: &str) -> u64 {
    utc(&format!("{text}T00:00:00Z"))
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        / 86_400
}

/// Asserts the periods that follow each other from an instant on: their starts in UTC.
fn assert_starts(calendar: &Calendar, starts: &[&str]) {
    let mut period = calendar.at(utc(starts[0]));
    for (index, start) in starts.iter().enumerate() {
        assert_eq!(period.start, utc(start), "{start}");
        assert_eq!(calendar.at(utc(start)), period);
        assert_eq!(calendar.at(period.end - Duration::from_nanos(1)), period);
        if index + 1 < starts.len() {
            let next = calendar.at(period.end);
            assert!(next.number > period.number, "after {start}");
            period = next;
        }
    }
}

#[test]
fn utc_is_the_default() {
    for unit in PeriodUnit::ALL {
        let default = Calendar::new(unit, None).unwrap();
        let named = calendar(unit, "UTC");
        let time = utc("2026-05-04T12:34:56Z");
        assert_eq!(default.at(time), named.at(time));
        assert_eq!(default.zone_name(), "UTC");
    }
}

#[test]
fn a_day_has_the_number_of_its_local_date() {
    let shanghai = calendar(PeriodUnit::Day, "Asia/Shanghai");
    let day = shanghai.at(utc("2026-05-04T15:59:59Z"));
    assert_eq!(day.number, date("2026-05-04"));
    assert_eq!(day.start, utc("2026-05-03T16:00:00Z"));
    assert_eq!(day.end, utc("2026-05-04T16:00:00Z"));
    assert_eq!(shanghai.at(day.end).number, date("2026-05-05"));
}

#[test]
fn days_with_a_change_of_daylight_saving_time_have_23_and_25_hours() {
    let berlin = calendar(PeriodUnit::Day, "Europe/Berlin");
    assert_starts(&berlin, &["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
    assert_starts(&berlin, &["2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"]);
}

#[test]
fn a_day_without_midnight_starts_with_its_first_instant() {
    let sao_paulo = calendar(PeriodUnit::Day, "America/Sao_Paulo");
    let day = sao_paulo.at(utc("2018-11-04T12:00:00Z"));
    assert_eq!(day.number, date("2018-11-04"));
    assert_eq!(day.start, utc("2018-11-04T03:00:00Z"));
    assert_eq!(day.end, utc("2018-11-05T02:00:00Z"));

    let beirut = calendar(PeriodUnit::Day, "Asia/Beirut");
    let day = beirut.at(utc("2022-03-27T09:00:00Z"));
    assert_eq!(day.number, date("2022-03-27"));
    assert_eq!(day.start, utc("2022-03-26T22:00:00Z"));
    assert_eq!(day.end, utc("2022-03-27T21:00:00Z"));
}

/// The clock of St. John's went back at 00:01, from the new date to the old one.
#[test]
fn a_date_that_has_begun_is_not_left_again() {
    let st_johns = calendar(PeriodUnit::Day, "America/St_Johns");
    let starts = [
        "2010-11-06T02:30:00Z",
        "2010-11-07T02:30:00Z",
        "2010-11-08T03:30:00Z",
    ];
    assert_starts(&st_johns, &starts);
    // The local clock shows 23:30 on the 6th.
    assert_eq!(
        st_johns.at(utc("2010-11-07T03:00:00Z")).number,
        date("2010-11-07")
    );
}

#[test]
fn a_skipped_date_has_no_period() {
    let apia = calendar(PeriodUnit::Day, "Pacific/Apia");
    let day = apia.at(utc("2011-12-30T09:59:59Z"));
    assert_eq!(day.number, date("2011-12-29"));
    assert_eq!(day.end, utc("2011-12-30T10:00:00Z"));
    assert_eq!(apia.at(day.end).number, date("2011-12-31"));
}

#[test]
fn hours_start_at_full_hours_of_zones_with_parts_of_an_hour() {
    let kolkata = calendar(PeriodUnit::Hour, "Asia/Kolkata");
    assert_starts(&kolkata, &["2026-05-04T11:30:00Z", "2026-05-04T12:30:00Z"]);
    let kathmandu = calendar(PeriodUnit::Hour, "Asia/Kathmandu");
    assert_starts(
        &kathmandu,
        &["2026-05-04T11:15:00Z", "2026-05-04T12:15:00Z"],
    );
    let unix_hours = utc("2026-05-04T11:00:00Z")
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    assert_eq!(
        kathmandu.at(utc("2026-05-04T12:14:59Z")).number,
        unix_hours / 3600
    );
}

#[test]
fn repeated_and_skipped_hours_leave_the_others_at_60_minutes() {
    let new_york = calendar(PeriodUnit::Hour, "America/New_York");
    let repeated = [
        "2026-11-01T05:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-11-01T07:00:00Z",
    ];
    assert_starts(&new_york, &repeated);
    let skipped = [
        "2026-03-08T06:00:00Z",
        "2026-03-08T07:00:00Z",
        "2026-03-08T08:00:00Z",
    ];
    assert_starts(&new_york, &skipped);
}

/// 02:00 becomes 02:30 in October, and 02:00 becomes 01:30 in April.
#[test]
fn changes_by_30_minutes_make_hours_of_30_and_of_90_minutes() {
    let lord_howe = calendar(PeriodUnit::Hour, "Australia/Lord_Howe");
    let skipped = [
        "2026-10-03T14:30:00Z",
        "2026-10-03T15:30:00Z",
        "2026-10-03T16:00:00Z",
    ];
    assert_starts(&lord_howe, &skipped);
    let repeated = [
        "2026-04-04T14:00:00Z",
        "2026-04-04T15:30:00Z",
        "2026-04-04T16:30:00Z",
    ];
    assert_starts(&lord_howe, &repeated);
    let days = calendar(PeriodUnit::Day, "Australia/Lord_Howe");
    assert_starts(&days, &["2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"]);
    assert_starts(&days, &["2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"]);
}

#[test]
fn instants_before_the_first_and_after_the_last_period_read_as_those() {
    for unit in PeriodUnit::ALL {
        let calendar = Calendar::new(unit, None).unwrap();
        let first = calendar.at(UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(first, calendar.at(UNIX_EPOCH));
        assert!(first.number < calendar.at(utc("1970-02-01T00:00:00Z")).number);
        let last = calendar.at(UNIX_EPOCH + Duration::from_secs(u64::MAX / 2));
        assert!(last.number > calendar.at(utc("9000-01-01T00:00:00Z")).number);
    }
}

#[test]
fn names_outside_the_database_are_refused() {
    for name in [
        "",
        "Shanghai",
        "Asia/Shangai",
        "UTC+8",
        "Etc/Unknown",
        "../etc/passwd",
    ] {
        let error = Calendar::new(PeriodUnit::Day, Some(name)).unwrap_err();
        assert_eq!(error.name, name);
        assert!(
            error
                .to_string()
                .contains("expected a name of the IANA database"),
            "{error}"
        );
    }
    assert_eq!(
        calendar(PeriodUnit::Day, "asia/shanghai").zone_name(),
        "Asia/Shanghai"
    );
}

/// Its start is the first instant of its date on the local clock, at midnight or later.
fn assert_starts_its_date(day: &Period, zone: &TimeZone) {
    let date = |time: SystemTime| {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let timestamp = Timestamp::from_second(seconds as i64).unwrap();
        zone.to_datetime(timestamp).date()
    };
    let first = date(day.start);
    let before = date(day.start - Duration::from_secs(1));
    let name = zone.iana_name();
    assert_eq!(first.to_string(), day.date(), "{name:?}");
    assert!(before < first, "{name:?}: {day:?}");
}

/// Every change of every zone since 1970: periods follow each other without gaps, their numbers
/// grow, and dates are those of the local clock unless it was set back.
#[test]
fn periods_are_contiguous_around_all_changes_of_all_zones() {
    let database = TimeZoneDatabase::bundled();
    let mut changes = 0;
    for name in database.available() {
        let zone = database.get(name.as_str()).unwrap();
        for unit in PeriodUnit::ALL {
            let calendar = Calendar {
                unit,
                zone: zone.clone(),
            };
            let from = Timestamp::from_second(30 * DAY).unwrap();
            let until = Timestamp::from_second(70 * 365 * DAY).unwrap();
            for change in zone
                .following(from)
                .take_while(|change| change.timestamp() < until)
            {
                changes += 1;
                let at = change.timestamp().as_second();
                let mut period = calendar.at(instant(at - 3 * unit.seconds()));
                while period.start < instant(at + 3 * unit.seconds()) {
                    let length = period.end.duration_since(period.start).unwrap().as_secs() as i64;
                    assert!(
                        (1..=3 * unit.seconds()).contains(&length),
                        "{name}: {period:?}"
                    );
                    let last = period.end - Duration::from_nanos(1);
                    for time in [period.start, period.start + Duration::from_secs(1), last] {
                        assert_eq!(calendar.at(time), period, "{name}");
                    }
                    if unit == PeriodUnit::Day {
                        assert_starts_its_date(&period, &zone);
                    }
                    let next = calendar.at(period.end);
                    assert_eq!(next.start, period.end, "{name}");
                    assert!(next.number > period.number, "{name}: {period:?} {next:?}");
                    period = next;
                }
            }
        }
    }
    assert!(changes > 10_000, "{changes}");
}

proptest! {
    #[test]
    fn periods_of_distant_instants_agree(
        zone in prop::sample::select(vec![
            "UTC", "Asia/Shanghai", "Asia/Kathmandu", "America/New_York", "Africa/Casablanca",
            "America/Santiago", "Australia/Lord_Howe", "Pacific/Chatham", "Asia/Gaza",
        ]),
        hour in any::<bool>(),
        seconds in 1_000_000_000_u64..3_000_000_000,
        later in 0_u64..1_000_000,
    ) {
        let calendar = calendar(if hour { PeriodUnit::Hour } else { PeriodUnit::Day }, zone);
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        let period = calendar.at(time);
        prop_assert!(period.contains(time));
        prop_assert_eq!(calendar.at(period.start), period);
        let later = time + Duration::from_secs(later);
        let other = calendar.at(later);
        prop_assert!(other.number >= period.number);
        prop_assert_eq!(other.number == period.number, period.contains(later));
    }
}
