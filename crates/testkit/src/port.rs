//! Ports of servers that a test starts.

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port below the ephemeral ones, so that a restarted server gets it back. Each is returned once.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const LOWEST: u32 = 10_000;
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let ephemeral: u32 = range.split_whitespace().next().unwrap().parse().unwrap();
    // Each process begins at another port, as several may run at once.
    let begin = std::process::id().wrapping_mul(101);
    loop {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(LOWEST + offset % (ephemeral - LOWEST)).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
