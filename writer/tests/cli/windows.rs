//! Event windows: a service with windows, and what their tests share.

mod audiences;
mod callbacks;
mod disks;
mod events;
mod owners;
mod start;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use serde_json::Value;
use testkit::client::Answer;
use testkit::sandbox::Sandbox;
use testkit::store::Depot;

use crate::process::{Api, Serve};

/// A zone in which it is about noon: no test runs over midnight.
static ZONE: LazyLock<String> = LazyLock::new(|| {
    let hour = (now_unix_seconds() / 3600 % 24) as i64;
    // Names of this family have the opposite sign.
    format!("Etc/GMT{:+}", hour - 12)
});

/// A window of days with counts.
fn day() -> String {
    let zone = &*ZONE;
    format!(
        "[[window]]\nname = \"day\"\nlength = \"day\"\ntime_zone = \"{zone}\"\ncapacity = \
         100_000\ncount = 3\n"
    )
}

const WINDOW: &str = "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = 5_000_000\n\
                      count = 2\n";

/// A running service with windows, on a directory.
fn serve(sandbox: &Sandbox, windows: &str) -> Serve {
    serve_over(sandbox, "{}/s", windows)
}

fn serve_over(sandbox: &Sandbox, store: &str, windows: &str) -> Serve {
    let state = sandbox.path().join("state").display().to_string();
    sandbox.file("writer.toml", format!("state_dir = {state:?}\n{windows}"));
    Serve::over(sandbox, store, "--every 5ms --config {}/writer.toml").until_owner()
}

fn keys(range: std::ops::Range<u64>) -> Vec<DeviceKey> {
    range
        .map(|n| DeviceKey::of_canonical(&n.to_le_bytes()))
        .collect()
}

fn path(window: &str, route: &str) -> String {
    format!("/v1/windows/{window}/{route}")
}

/// Flags of a binary answer.
fn flags(answer: &Answer, count: usize) -> Vec<bool> {
    assert_eq!(
        (answer.status, answer.body.len()),
        (200, count.div_ceil(8)),
        "{answer:?}"
    );
    (0..count)
        .map(|index| answer.body[index / 8] >> (index % 8) & 1 == 1)
        .collect()
}

/// The window's entry in the list.
fn info(api: &mut Api, window: &str) -> Value {
    let list = api.get("/v1/windows").ok();
    let windows = list["windows"].as_array().unwrap();
    windows
        .iter()
        .find(|info| info["window"] == window)
        .unwrap()
        .clone()
}

/// Sends `events` events, of which 7.45 % repeat an earlier key, some within one batch, from
/// `clients` connections in binary batches of 1,000. Asserts that each key is new once. Returns the
/// number of distinct keys.
fn race(serve: &Serve, clients: usize, events: u64) -> u64 {
    let distinct = distinct_of(events);
    // Number `n >= distinct` repeats an earlier key; the stride spreads repeats over all batches.
    let number = |index: u64| {
        let n = index * 6_700_417 % events;
        if n < distinct {
            n
        } else {
            (n - distinct) * 7 % distinct
        }
    };
    let next = AtomicU64::new(0);
    let new = Mutex::new(vec![0_u8; distinct as usize]);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            let (next, new) = (&next, &new);
            scope.spawn(move || {
                let mut api = serve.connect();
                loop {
                    let first = next.fetch_add(1000, Ordering::Relaxed);
                    if first >= events {
                        return;
                    }
                    let numbers: Vec<u64> = (first..events.min(first + 1000)).map(number).collect();
                    let keys: Vec<DeviceKey> = numbers
                        .iter()
                        .map(|n| DeviceKey::of_canonical(&n.to_le_bytes()))
                        .collect();
                    let flags = flags(&api.binary(&path("w", "events"), &keys), keys.len());
                    let mut new = new.lock().unwrap();
                    for (number, _) in numbers.iter().zip(&flags).filter(|(_, is_new)| **is_new) {
                        new[*number as usize] += 1;
                    }
                }
            });
        }
    });
    assert!(new.into_inner().unwrap().iter().all(|times| *times == 1));
    distinct
}

fn distinct_of(events: u64) -> u64 {
    events - events / 10_000 * 745
}

/// The members of an audience among keys, in the sandbox's directory.
fn members(sandbox: &Sandbox, audience: &str, keys: &[DeviceKey]) -> HashSet<usize> {
    members_in(
        &sandbox.path().join("s").display().to_string(),
        audience,
        keys,
    )
}

fn members_in(store: &str, audience: &str, keys: &[DeviceKey]) -> HashSet<usize> {
    let depot = Depot::over(store);
    if depot.current(audience).is_none() {
        return HashSet::new();
    }
    let snapshot = depot.read(audience).unwrap();
    (0..keys.len())
        .filter(|index| snapshot.contains(&keys[*index]))
        .collect()
}
