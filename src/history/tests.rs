//! Tests of the history: rows, ends of days, and the file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::days::Days;
use super::minutes::{Minutes, ROWS};
use super::*;
use crate::strategy::Decision;

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
    assert_eq!((&seen["minutes"], &seen["decisions"]), (&json!([60, 120, 180]), &column));
    for minute in 4..=ROWS as u64 + 2 {
        push(minute, 0);
    }
    let seen = push(ROWS as u64 + 3, 0);
    assert_eq!(seen["minutes"].as_array().unwrap().len(), ROWS);
    assert_eq!(seen["minutes"][0], 240);
    assert_eq!(seen["decisions"], json!([]), "the counts are older than an hour");
}

/// Counts of today and of yesterday, and its date.
fn seen(days: &Days) -> (Option<u64>, Option<(String, Option<u64>)>) {
    let (today, yesterday) = days.counts();
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
    days.observe(telemetry.decision_totals(), at(midnight - 1));
    assert_eq!(seen(&days), (Some(5), None));
    count(&telemetry, 1);
    assert!(days.is_over(at(midnight)));
    days.observe(telemetry.decision_totals(), at(midnight));
    count(&telemetry, 2);
    days.observe(telemetry.decision_totals(), at(midnight + 1));
    let yesterday = Some(("2026-11-25".to_owned(), Some(6)));
    assert_eq!(seen(&days), (Some(2), yesterday.clone()));

    let saved = days.to_json();
    let restored = |zone: &str, wall| {
        let mut days = Days::new(zone, at(wall));
        days.restore(&saved, at(wall)).unwrap();
        seen(&days)
    };
    assert_eq!(restored("Asia/Shanghai", midnight + 9), (Some(2), yesterday));
    let tomorrow = Some(("2026-11-26".to_owned(), Some(2)));
    assert_eq!(restored("Asia/Shanghai", midnight + 86_400), (None, tomorrow));
    assert_eq!(restored("Asia/Shanghai", midnight + 3 * 86_400), (None, None));
    assert_eq!(restored("UTC", midnight + 9), (None, None));
    days.restore(b"{}", at(midnight)).unwrap_err();
}
