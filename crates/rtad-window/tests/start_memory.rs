//! Memory of a start: the table and one segment, not the whole log.

#![cfg(target_os = "linux")]

use std::time::Duration;

use rtad_window::{
    AnswerLimits, Durability, Key, Now, Replica, Settings, Shape, StartedWindow, WindowHandle,
    WindowSpec,
};

/// Bytes of log: far more than all segments and buffers.
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

fn shape() -> Shape {
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
    Shape {
        spec,
        clock: "ticks".to_owned(),
        answers,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_holds_one_segment_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = |number: u64| dir.path().join(number.to_string());
    let replica = Replica::empty(shape()).unwrap();
    let take_over = replica.take_over(&Durability::Store).unwrap();
    std::fs::write(path(take_over.number), &take_over.bytes).unwrap();
    let settings = Settings {
        clock: Box::new(|| Now {
            tick: 0,
            seconds: 0,
        }),
        listener: None,
    };
    let started = WindowHandle::start(replica, take_over, Durability::Store, settings);
    let StartedWindow {
        handle: window,
        engine,
        outbox,
    } = started.unwrap();
    let engine = tokio::spawn(engine.run());
    let keys: Vec<Key> = (0..10_000_u128)
        .map(|n| (n * 0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    while window.state().log_bytes < LOG_BYTES {
        let create = async {
            let segment = outbox.next().await.unwrap();
            std::fs::write(path(segment.number), &segment.bytes).unwrap();
            outbox.created(segment.number);
        };
        let observe = window.observe(keys.clone(), None, None);
        let (seen, ()) = tokio::join!(observe, create);
        seen.unwrap();
    }
    let newest = window.state().created;
    drop(window);
    drop(outbox);
    engine.await.unwrap();

    // Resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_bytes().unwrap();
    let mut replica = Replica::empty(shape()).unwrap();
    for number in 1..=newest {
        let bytes = std::fs::read(path(number)).unwrap();
        replica.apply(&bytes).unwrap();
    }
    let taken = peak_bytes().unwrap() - before;
    assert!(taken < MAX_BYTES, "{taken}");
}
