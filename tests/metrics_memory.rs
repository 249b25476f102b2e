//! Metrics that nobody scrapes: memory stays flat, because somebody drains them anyway.

#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod sync_support;

use std::sync::Arc;
use std::time::Duration;

use rtad::telemetry::{Route, Telemetry};
use sync_support::anonymous_bytes;

const ROUNDS: u64 = 6;
const REQUESTS_PER_ROUND: u64 = 800_000;
/// What the exporter keeps of each until it is drained: a duration as an f64, at least.
const BYTES_PER_REQUEST: u64 = 8;

/// Counts as many requests as 16 seconds of full load; returns by how much memory has grown since the second round, when
/// the allocator has what a round needs.
fn growth(telemetry: &Telemetry, mut pause: impl FnMut()) -> u64 {
    let mut settled = 0;
    for round in 1..=ROUNDS {
        for request in 0..REQUESTS_PER_ROUND {
            telemetry.request(
                telemetry.route(Route::CheckOne),
                200,
                Duration::from_nanos(3000 + request % 100_000),
            );
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
    let round_bytes = REQUESTS_PER_ROUND * BYTES_PER_REQUEST;
    let telemetry = Arc::new(Telemetry::default());
    let kept = Arc::clone(&telemetry);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(kept.upkeep());
    });
    // Longer than upkeep's second. A machine that sleeps through one drain has two rounds to drain at the next.
    let grown = growth(&telemetry, || std::thread::sleep(Duration::from_millis(1200)));
    assert!(grown < 2 * round_bytes, "grew by {grown} bytes; a round is {round_bytes}");

    // Nothing is lost by it.
    let requests = ROUNDS * REQUESTS_PER_ROUND;
    let text = telemetry.render();
    for name in [
        "rtad_requests_total{route=\"check_one\",code=\"200\"}",
        "rtad_request_duration_seconds_count{route=\"check_one\"}",
    ] {
        let count = text.lines().find(|line| line.starts_with(name)).unwrap().rsplit(' ').next().unwrap();
        assert_eq!(count.parse::<u64>().unwrap(), requests, "{name}");
    }

    // And without it, this very way of measuring sees memory grow.
    let grown = growth(&Telemetry::default(), || {});
    assert!(grown > (ROUNDS - 3) * round_bytes, "grew by {grown} bytes; a round is {round_bytes}");
}
