//! Tests of the history: rows, ends of days, and the file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::days::Days;
use super::minutes::{Minutes, ROWS};
use super::*;
use crate::strategy::Decision;
use crate::telemetry::{PartLabels, ReachLabels, ReachedDevice};
use rtad_core::device::DeviceKey;

/// Noon of 2026-11-25 in Shanghai.
const NOON: u64 = 1_795_579_200;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn count(telemetry: &Telemetry, decisions: u64) {
    let counters = telemetry.decisions("tencent", "new-users", false);
    (0..decisions).for_each(|_| counters.count(Decision::CAPPED));
}

#[test]
fn hour_has_a_row_per_minute_and_columns_with_counts() {
    let (telemetry, mut minutes) = (Telemetry::default(), Minutes::default());
    let mut push = |minute: u64, decisions| {
        count(&telemetry, decisions);
        minutes.push(&telemetry, 60 * minute);
        serde_json::to_value(minutes.columns()).unwrap()
    };
    assert_eq!(push(1, 0)["decisions"], json!([]));
    push(2, 3);
    let seen = push(3, 4);
    let column = json!([{
        "platform": "tencent", "strategy": "new-users", "decision": "no_bid", "reason": "capped",
        "counts": [0, 3, 4],
    }]);
    assert_eq!(
        (&seen["minutes"], &seen["decisions"]),
        (&json!([60, 120, 180]), &column)
    );
    for minute in 4..=ROWS as u64 + 2 {
        push(minute, 0);
    }
    let seen = push(ROWS as u64 + 3, 0);
    assert_eq!(seen["minutes"].as_array().unwrap().len(), ROWS);
    assert_eq!(seen["minutes"][0], 240);
    assert_eq!(
        seen["decisions"],
        json!([]),
        "the counts are older than an hour"
    );
}

/// Counts of today and of yesterday, and its date.
fn seen(days: &Days) -> (Option<u64>, Option<(String, Option<u64>)>) {
    let (today, yesterday) = days.counts(Vec::new());
    let count = |day: &Value| day["decisions"][0]["count"].as_u64();
    let yesterday = yesterday.map(|day| {
        let day = serde_json::to_value(day).unwrap();
        (day["date"].as_str().unwrap().to_owned(), count(&day))
    });
    (count(&serde_json::to_value(today).unwrap()), yesterday)
}

#[test]
fn days_end_at_midnight_of_their_zone_and_survive_a_restart() {
    let telemetry = Telemetry::default();
    let mut days = Days::new("Asia/Shanghai", at(NOON));
    let midnight = NOON + 12 * 3600;
    count(&telemetry, 5);
    days.observe(&telemetry, at(midnight - 1));
    assert_eq!(seen(&days), (Some(5), None));
    count(&telemetry, 1);
    assert!(days.is_over(at(midnight)));
    days.observe(&telemetry, at(midnight));
    count(&telemetry, 2);
    days.observe(&telemetry, at(midnight + 1));
    let yesterday = Some(("2026-11-25".to_owned(), Some(6)));
    assert_eq!(seen(&days), (Some(2), yesterday.clone()));

    let saved = days.to_json(Vec::new());
    let restored = |zone: &str, wall| {
        let mut days = Days::new(zone, at(wall));
        days.restore(&saved, at(wall)).unwrap();
        seen(&days)
    };
    assert_eq!(
        restored("Asia/Shanghai", midnight + 9),
        (Some(2), yesterday)
    );
    let tomorrow = Some(("2026-11-26".to_owned(), Some(2)));
    assert_eq!(
        restored("Asia/Shanghai", midnight + 86_400),
        (None, tomorrow)
    );
    assert_eq!(
        restored("Asia/Shanghai", midnight + 3 * 86_400),
        (None, None)
    );
    assert_eq!(restored("UTC", midnight + 9), (None, None));
    days.restore(b"{}", at(midnight)).unwrap_err();
}

#[test]
fn day_of_a_clock_that_was_ahead_ends_when_it_is_set_back() {
    let telemetry = Telemetry::default();
    let ahead = NOON + 3 * 86_400;
    let mut days = Days::new("Asia/Shanghai", at(ahead));
    count(&telemetry, 5);
    days.observe(&telemetry, at(ahead));
    // Corrections over midnight change nothing.
    assert!(!days.is_over(at(ahead - 13 * 3600)));
    assert!(days.is_over(at(NOON)));
    days.observe(&telemetry, at(NOON));
    count(&telemetry, 2);
    days.observe(&telemetry, at(NOON + 1));
    assert_eq!(seen(&days), (Some(2), None));
    assert_eq!(json!(days.counts(Vec::new()).0)["date"], "2026-11-25");
}

/// Counts devices of a strategy, and of a bucket.
fn reach(telemetry: &Telemetry, devices: std::ops::Range<u8>) {
    let part = PartLabels {
        experiment: "test".to_owned(),
        bucket: "high".to_owned(),
    };
    for part in [None, Some(part)] {
        let labels = ReachLabels {
            strategy: "new-users".to_owned(),
            part,
        };
        let sketch = telemetry.reach().sketch(labels);
        for device in devices.clone() {
            sketch.count(&ReachedDevice::new(Some(&DeviceKey::of_canonical(&[
                device,
            ]))));
        }
    }
}

/// Devices by strategy and bucket.
fn reached(devices: u64) -> Value {
    json!([
        { "strategy": "new-users", "devices": devices },
        { "strategy": "new-users", "experiment": "test", "bucket": "high", "devices": devices },
    ])
}

#[test]
fn devices_of_a_day_end_with_it() {
    let telemetry = Telemetry::default();
    let mut days = Days::new("Asia/Shanghai", at(NOON));
    let midnight = NOON + 12 * 3600;
    reach(&telemetry, 0..5);
    assert!(days.observe(&telemetry, at(midnight - 1)).is_none());
    let ended = days.observe(&telemetry, at(midnight)).unwrap();
    assert_eq!(json!(ended.counts()), reached(5));
    reach(&telemetry, 4..6);
    let today = days.sketches(telemetry.reach().sketches());
    assert_eq!(
        (&*today.date, json!(today.counts())),
        ("2026-11-26", reached(2))
    );
    assert!(days.is_today(&today) && !days.is_today(&ended));
    let yesterday = |days: &Days| json!(days.counts(Vec::new()).1)["reach"].clone();
    assert_eq!(yesterday(&days), reached(5));
    let mut restored = Days::new("Asia/Shanghai", at(midnight + 1));
    restored
        .restore(&days.to_json(today.counts()), at(midnight + 1))
        .unwrap();
    assert_eq!(yesterday(&restored), reached(5));

    let folder = tempfile::tempdir().unwrap();
    ended.write(folder.path(), "pod-1", "pod-1-7").unwrap();
    let lines = std::fs::read(folder.path().join("day=2026-11-25/pod-1-7.jsonl")).unwrap();
    let line: Value =
        serde_json::from_slice(lines.split(|it| *it == b'\n').next().unwrap()).unwrap();
    assert_eq!(
        (&line["date"], &line["time_zone"]),
        (&json!("2026-11-25"), &json!("Asia/Shanghai"))
    );
    assert_eq!(
        (&line["pod"], &line["devices"]),
        (&json!("pod-1"), &json!(5))
    );
    let read = DaySketches::read(&lines).unwrap().unwrap();
    assert_eq!(json!(read.counts()), reached(5));
    assert!(DaySketches::read(b"").unwrap().is_none());
    DaySketches::read(&lines[..lines.len() / 2]).unwrap_err();
}

#[test]
fn sketches_of_another_day_go_into_its_folder() {
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let caps = Caps::in_cache(Some(cache.path()));
    let telemetry = Telemetry::default();
    reach(&telemetry, 0..3);
    let sketches = telemetry.reach().take();
    let (date, time_zone) = ("2026-11-25".to_owned(), "UTC".to_owned());
    let day = DaySketches {
        date,
        time_zone,
        sketches,
    };
    caps.write_file(REACH_FILE, &day.to_lines("pod-1")).unwrap();
    let history = History::new("UTC", Some(folder.path().to_owned()), "pod-1");
    history.restore(&telemetry, &caps);
    history.save(&telemetry, &caps);
    let written = folder
        .path()
        .join(format!("day=2026-11-25/{}.jsonl", history.name));
    let read = DaySketches::read(&std::fs::read(written).unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(json!(read.counts()), reached(3));
    assert!(telemetry.reach().sketches().is_empty());
}
