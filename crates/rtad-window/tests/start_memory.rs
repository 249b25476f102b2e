//! Memory of a start: the table and one group of the log, not a whole segment.

#![cfg(target_os = "linux")]

use rtad_window::{Durability, Durable, Key, WindowSpec};

/// Bytes of log: far more than all groups and buffers.
const LOG_BYTES: u64 = 96 << 20;
/// A start without the log takes 2 MiB.
const MAX_BYTES: u64 = 24 << 20;

/// Peak of the resident memory.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

#[tokio::test]
async fn start_holds_one_group_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let spec =
        WindowSpec { capacity: 10_000, fpr: 1e-9, count: 10_000, whole_keys: false, lifetime: 129 };
    // Groups of one batch, however slow the disk: the next batch waits for the last one.
    let open = || Durable::open(dir.path(), spec, "ticks", 0, Durability::Fsync).unwrap();
    let durable = open();
    let keys: Vec<Key> =
        (0..10_000_u128).map(|n| (n * 0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    while durable.stats().log_bytes < LOG_BYTES {
        let ticket = durable.observe(&keys, None, 0).unwrap().ticket;
        durable.committed(ticket).await.unwrap();
        if durable.window().counts(&keys[..1]) == [10_000] {
            durable.window().forget(&keys);
        }
    }
    drop(durable);
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_bytes().unwrap();
    drop(open());
    let taken = peak_bytes().unwrap() - before;
    assert!(taken < MAX_BYTES, "{taken}");
}
