//! What the tests of sync and publishing need: a store to publish into and spoil, a real rtad over it, a client.
//!
//! Everything is waited for by its condition; a deadline only ends a test that would hang.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary has its own copy of this module and uses a part of it"
)]

pub(crate) mod client;
pub(crate) mod depot;
pub(crate) mod pod;
pub(crate) mod server;
pub(crate) mod sign;
pub(crate) mod unruly;
pub(crate) mod web;

use std::time::{Duration, Instant};

pub(crate) use client::Client;
pub(crate) use depot::{Depot, Spec};
pub(crate) use server::Server;

use rtad_core::device::DeviceKey;

/// No condition takes nearly so long to come true, unless it never does.
const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for something to come true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < DEADLINE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Anonymous memory of this process in bytes: heaps and filters, not the programs' text.
pub(crate) fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// `count` distinct keys, sorted, the same ones each time for a `seed`; `narrow` brings their shards together.
pub(crate) fn keys(seed: u64, count: usize, narrow: impl Fn(u16) -> u16) -> Vec<DeviceKey> {
    let mut state = (seed + 1).wrapping_mul(0xd134_2543_de82_ef95);
    let mut random = || {
        // splitmix64: an md5 for each of millions of keys would cost more than what is tested.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut key = || {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random().to_le_bytes());
        bytes[8..].copy_from_slice(&random().to_le_bytes());
        let shard = narrow(u16::from_be_bytes([bytes[0], bytes[1]]));
        bytes[..2].copy_from_slice(&shard.to_be_bytes());
        DeviceKey::from_bytes(bytes)
    };
    let mut keys: Vec<DeviceKey> = (0..count).map(|_| key()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "keys of 14 random bytes are distinct");
    keys
}

/// The key as an id of kind `md5`.
pub(crate) fn hex(key: &DeviceKey) -> String {
    const_hex::encode(key.as_bytes())
}
