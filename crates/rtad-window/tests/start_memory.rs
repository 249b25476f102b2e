//! Memory of a start: the table and one group of the log, not a whole segment.

#![cfg(target_os = "linux")]

use std::time::Duration;

use rtad_window::{
    AnswerLimits, Durability, Key, Now, Settings, Shape, StateDir, WindowHandle, WindowSpec,
};

/// Bytes of log: far more than all groups and buffers.
const LOG_BYTES: u64 = 48 << 20;
/// A start without the log takes 2 MiB.
const MAX_BYTES: u64 = 24 << 20;

/// Peak of the resident memory.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

#[tokio::test]
async fn start_holds_one_group_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        capacity: 10_000,
        fpr: 1e-9,
        count: 10_000,
        whole_keys: false,
        lifetime: 129,
    };
    let answers = AnswerLimits {
        memory_bytes: 1 << 20,
        time: Duration::from_secs(1),
    };
    let shape = Shape {
        spec,
        clock: "ticks".to_owned(),
        answers,
    };
    let open = || {
        let dir = StateDir::lock(dir.path()).unwrap();
        let loaded = dir.load(&shape, 0).unwrap();
        let clock = Box::new(|| Now {
            tick: 0,
            seconds: 0,
        });
        let durability = Durability::Interval(Duration::from_secs(1));
        let settings = Settings {
            durability,
            clock,
            listener: None,
        };
        WindowHandle::start(dir, loaded, settings).unwrap()
    };
    let window = open();
    let keys: Vec<Key> = (0..10_000_u128)
        .map(|n| (n * 0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    while window.state().log_bytes < LOG_BYTES {
        window.observe(keys.clone(), None, None).await.unwrap();
    }
    drop(window);
    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_bytes().unwrap();
    drop(open());
    let taken = peak_bytes().unwrap() - before;
    assert!(taken < MAX_BYTES, "{taken}");
}
