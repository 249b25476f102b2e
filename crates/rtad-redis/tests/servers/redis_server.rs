//! Windows and leases against real servers: Redis, Valkey, a cluster, TLS, and faults between.
//!
//! | module | job |
//! |---|---|
//! | `server` | starts and stops servers on free ports |
//! | `proxy` | TCP proxy that drops answers and cuts requests |
//! | `basics` | answers of one server, Redis and Valkey |
//! | `faults` | lost answers, hangs, restarts, refusals |
//! | `leases` | leases of quotas |
//! | `owners` | two owners and a million events |
//! | `cluster` | three nodes: spread, moving slots, failover |
//! | `tls` | certificates |

mod basics;
mod cluster;
mod faults;
mod leases;
mod owners;
mod proxy;
mod server;
mod tls;

use std::time::Duration;

use rtad_redis::{Lifetime, RedisConfig, RedisWindow, Seen};

const HOUR: Lifetime = Lifetime::For(Duration::from_secs(3600));

/// `count` distinct keys, of a family.
fn keys(family: u64, count: u64) -> Vec<[u8; 16]> {
    // An odd multiplier: all bytes vary, and no two numbers have one product.
    let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count)
        .map(|number| key(mixed(number), mixed(family)))
        .collect()
}

fn key(first: u64, second: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&first.to_le_bytes());
    key[8..].copy_from_slice(&second.to_le_bytes());
    key
}

/// Config of a window named `day` at this URL, with limits of time for a busy machine.
fn config(url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(url, "day");
    config.connect_timeout = Duration::from_secs(5);
    config.response_timeout = Duration::from_secs(10);
    config
}

fn window(url: &str) -> RedisWindow {
    RedisWindow::connect(&config(url)).unwrap()
}

#[track_caller]
fn all(seen: &[Seen], expected: Seen) {
    let others = seen.iter().filter(|seen| **seen != expected).count();
    assert_eq!(others, 0, "not {expected:?}, of {}", seen.len());
}
