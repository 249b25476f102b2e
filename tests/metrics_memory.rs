//! Memory of metrics without a scraper: stays flat, because the service drains them.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

use std::time::Duration;

use rtad::telemetry::{Route, Telemetry};
use testkit::process::anonymous_bytes;

const ROUNDS: u64 = 6;
const PER_ROUND: u64 = 100_000;
/// Lower bound of the exporter's memory per sync until it is drained: a duration as f64.
const BYTES_EACH: u64 = 8;

/// Counts as many requests as two seconds of full load. Returns the growth of memory since the
/// second round, when the allocator is warm.
fn growth(mut count: impl FnMut(Duration), mut pause: impl FnMut()) -> u64 {
    let mut settled = 0;
    for round in 1..=ROUNDS {
        for number in 0..PER_ROUND {
            count(Duration::from_nanos(3000 + number % 100_000));
        }
        pause();
        if round == 2 {
            settled = anonymous_bytes();
        }
    }
    anonymous_bytes().saturating_sub(settled)
}

#[test]
fn memory_stays_flat_when_nobody_scrapes() {
    let telemetry = Telemetry::default();
    let route = telemetry.route(Route::CheckOne);
    let grown = growth(|duration| telemetry.request(route, 200, duration), || {});
    assert!(grown < PER_ROUND / 8, "requests: grew by {grown} bytes");

    let drain = || telemetry.exporter.drain();
    let grown = growth(
        |duration| telemetry.sync("old_users", "ok", duration),
        drain,
    );
    assert!(
        grown < 2 * PER_ROUND * BYTES_EACH,
        "syncs: grew by {grown} bytes"
    );

    // No sample is lost.
    let text = telemetry.render();
    for name in [
        "rtad_requests_total{route=\"check_one\",code=\"200\"}",
        "rtad_request_duration_seconds_count{route=\"check_one\"}",
        "rtad_sync_duration_seconds_count{audience=\"old_users\"}",
    ] {
        let count = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .rsplit(' ')
            .next()
            .unwrap();
        assert_eq!(count.parse::<u64>().unwrap(), ROUNDS * PER_ROUND, "{name}");
    }

    // Memory grows if nothing drains it: the measurement works.
    let grown = growth(
        |duration| telemetry.sync("old_users", "ok", duration),
        || {},
    );
    assert!(
        grown > (ROUNDS - 3) * PER_ROUND * BYTES_EACH,
        "grew by {grown} bytes"
    );
}
