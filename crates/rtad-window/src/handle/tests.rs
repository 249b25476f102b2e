use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use testkit::wait_until;
use tokio::time::timeout;

use super::*;
use crate::answers::AnswerLimits;
use crate::disk::tests::FaultyDisk;
use crate::{Durability, LogError, Now, Seen, WindowSpec};

const SPEC: WindowSpec = WindowSpec {
    capacity: 400_000,
    fpr: 1e-9,
    count: 3,
    whole_keys: false,
    lifetime: 129,
};

fn keys(numbers: std::ops::Range<u64>) -> Vec<Key> {
    let key = |n: u64| {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
    };
    numbers.map(key).collect()
}

fn shape(spec: WindowSpec, clock: &str) -> Shape {
    let answers = AnswerLimits {
        memory_bytes: 1 << 20,
        time: Duration::from_secs(600),
    };
    Shape {
        spec,
        clock: clock.to_owned(),
        answers,
    }
}

fn settings(durability: Durability) -> Settings {
    let clock = || {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Now {
            tick: 0,
            seconds: wall.as_secs(),
        }
    };
    Settings {
        durability,
        clock: Box::new(clock),
        listener: None,
    }
}

fn open_as(dir: &Path, shape: &Shape, durability: Durability) -> Result<WindowHandle, OpenError> {
    let dir = StateDir::lock(dir)?;
    let loaded = dir.load(shape, 0)?;
    WindowHandle::start(dir, loaded, settings(durability))
}

fn open(dir: &Path, durability: Durability) -> WindowHandle {
    open_as(dir, &shape(SPEC, "ticks"), durability).unwrap()
}

/// The files as a crash would leave them, while no checkpoint is written.
fn crash(dir: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[tokio::test]
async fn full_disk_ends_the_window_and_the_next_start_has_what_was_acknowledged() {
    for durability in [
        Durability::Fsync,
        Durability::Interval(Duration::from_millis(10)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::default());
        let locked = StateDir::lock_on(dir.path(), Arc::clone(&disk) as _).unwrap();
        let loaded = locked.load(&shape(SPEC, "ticks"), 0).unwrap();
        let window = WindowHandle::start(locked, loaded, settings(durability)).unwrap();
        window.observe(keys(0..1), None, None).await.unwrap();
        disk.fill(u32::MAX);
        let refused = Err(Failure::NotWritable);
        assert_eq!(window.observe(keys(0..2), None, None).await, refused);
        wait_until("the end of the thread", || window.has_ended());
        assert!(!window.state().is_writable);
        assert_eq!(window.observe(keys(2..3), None, None).await, refused);
        assert!(window.counts(keys(0..1)).await.is_err());
        assert!(window.checkpoint(0).await.is_err());
        for _ in 0..2 {
            assert!(window.close(0).await.is_err());
        }
        drop(window);
        let restarted = open(dir.path(), durability);
        assert_eq!(restarted.counts(keys(0..3)).await.unwrap(), [1, 0, 0]);
    }
}

/// The window counts as writable meanwhile: only the missing answers show it.
#[tokio::test]
async fn hung_sync_delays_answers_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::default());
    let locked = StateDir::lock_on(dir.path(), Arc::clone(&disk) as _).unwrap();
    let loaded = locked.load(&shape(SPEC, "ticks"), 0).unwrap();
    let window = WindowHandle::start(locked, loaded, settings(Durability::Fsync)).unwrap();
    disk.hang_syncs(true);
    let mut observed = pin!(window.observe(keys(0..1), None, None));
    let mut counts = pin!(window.counts(keys(0..2)));
    assert!(timeout(Duration::ZERO, observed.as_mut()).await.is_err());
    wait_until("a sync hangs", || disk.is_syncing());
    assert!(timeout(Duration::ZERO, counts.as_mut()).await.is_err());
    assert!(window.state().is_writable);
    disk.hang_syncs(false);
    assert_eq!(observed.await.unwrap().seen, [Seen::New]);
    assert_eq!(counts.await.unwrap(), [1, 0]);
}

#[tokio::test]
async fn closed_window_refuses_and_its_files_need_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let long = Durability::Interval(Duration::from_secs(7200));
    let window = open(dir.path(), long);
    window.observe(keys(0..1000), None, None).await.unwrap();
    let saved = window.close(7).await.unwrap().unwrap();
    assert_eq!(
        window.observe(keys(0..1), None, None).await,
        Err(Failure::NotWritable)
    );
    assert!(window.checkpoint(0).await.is_err());
    assert!(!window.state().is_writable);
    drop(window);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("log-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert!(saved.path.exists());
    let restarted = open(dir.path(), long);
    assert_eq!(
        restarted.counts(keys(0..1001)).await.unwrap(),
        [vec![1; 1000], vec![0]].concat()
    );
}

/// The file system reports a failed sync once: a second close finds nothing to sync.
#[tokio::test]
async fn second_close_after_a_failed_sync_is_no_success() {
    for failing in [1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::default());
        let locked = StateDir::lock_on(dir.path(), Arc::clone(&disk) as _).unwrap();
        let loaded = locked.load(&shape(SPEC, "ticks"), 0).unwrap();
        let long = Durability::Interval(Duration::from_secs(7200));
        let window = WindowHandle::start(locked, loaded, settings(long)).unwrap();
        window.observe(keys(0..10), None, None).await.unwrap();
        disk.fail_syncs(failing);
        for _ in 0..3 {
            assert!(window.close(0).await.is_err(), "{failing}");
        }
    }
}

#[tokio::test]
async fn window_in_memory_counts_and_has_no_checkpoint() {
    let window = WindowHandle::in_memory(shape(SPEC, "ticks"), settings(Durability::None)).unwrap();
    let seen = window
        .observe([keys(0..2), keys(0..1)].concat(), None, None)
        .await
        .unwrap()
        .seen;
    assert_eq!(seen, [Seen::New, Seen::New, Seen::Duplicate(2)]);
    assert_eq!(window.forget(keys(1..3)).await.unwrap(), [true, false]);
    assert!(window.checkpoint(0).await.unwrap().is_none());
    assert_eq!(window.state().window.entries, 1);
    assert!(window.close(0).await.unwrap().is_none());
}

#[tokio::test]
async fn second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _window = open(dir.path(), Durability::Fsync);
    let second = open_as(dir.path(), &shape(SPEC, "ticks"), Durability::Fsync);
    assert!(matches!(second, Err(OpenError::Locked { .. })));
}

#[tokio::test]
async fn files_of_another_window_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), Durability::Fsync));
    let refused = |spec, clock| {
        let opened = open_as(dir.path(), &shape(spec, clock), Durability::Fsync);
        opened.err().unwrap().to_string()
    };
    let larger = refused(
        WindowSpec {
            capacity: 500_000,
            ..SPEC
        },
        "ticks",
    );
    let expected = "expected ticks, capacity 500000, wide slots, found ticks, capacity 400000";
    assert!(larger.contains(expected), "{larger}");
    let more = WindowSpec {
        capacity: SPEC.capacity + 1,
        ..SPEC
    };
    assert_eq!(more.layout(), SPEC.layout());
    assert!(refused(more, "ticks").contains("capacity 400001"));
    assert!(refused(SPEC, "days").contains("expected days"));
    open(dir.path(), Durability::Fsync);
}

#[tokio::test]
async fn damage_in_the_middle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let window = open(dir.path(), Durability::Fsync);
    for n in 0..5 {
        window.observe(keys(n..n + 1), None, None).await.unwrap();
    }
    let copy = crash(&dir);
    let path = crate::log::segment_path(copy.path(), 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let reopened = || open_as(copy.path(), &shape(SPEC, "ticks"), Durability::Fsync);
    let refused = reopened().err().unwrap();
    assert!(
        matches!(refused, OpenError::Log(LogError::Damaged { .. })),
        "{refused}"
    );
    std::fs::remove_file(copy.path().join("checkpoint-0000000000000001")).unwrap();
    let refused = reopened().err().unwrap();
    assert!(
        matches!(refused, OpenError::NoCheckpoint { .. }),
        "{refused}"
    );
}

/// Checkpoints beside traffic of many tasks, and crashes in between.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_beside_traffic_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let window = open(dir.path(), Durability::Fsync);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let is_stopping = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let (window, acknowledged) = (window.clone(), Arc::clone(&acknowledged));
            let is_stopping = Arc::clone(&is_stopping);
            tokio::spawn(async move {
                for batch in (0..50).take_while(|_| !is_stopping.load(Ordering::Acquire)) {
                    let first = (task << 40) + batch * 500;
                    let keys = keys(first..first + 500);
                    let seen = window.observe(keys.clone(), None, None).await.unwrap().seen;
                    assert!(seen.iter().all(|seen| *seen == Seen::New));
                    acknowledged.lock().unwrap().extend(keys);
                }
            })
        })
        .collect();
    for _ in 0..5 {
        window.checkpoint(0).await.unwrap().unwrap();
        // Events acknowledged before the copy begins must be in it.
        let expected = acknowledged.lock().unwrap().clone();
        let restarted = open(crash(&dir).path(), Durability::Fsync);
        assert!(
            restarted
                .counts(expected)
                .await
                .unwrap()
                .iter()
                .all(|count| *count == 1)
        );
    }
    is_stopping.store(true, Ordering::Release);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn panic_of_the_thread_ends_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let locked = StateDir::lock(dir.path()).unwrap();
    let loaded = locked.load(&shape(SPEC, "ticks"), 0).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let clock = {
        let (fails, mut settings) = (Arc::clone(&fails), settings(Durability::Fsync));
        move || {
            assert!(!fails.load(Ordering::Relaxed), "a clock that fails");
            (settings.clock)()
        }
    };
    let settings = Settings {
        clock: Box::new(clock),
        ..settings(Durability::Fsync)
    };
    let window = WindowHandle::start(locked, loaded, settings).unwrap();
    window.observe(keys(0..1), None, None).await.unwrap();
    assert!(!window.has_ended());
    fails.store(true, Ordering::Relaxed);
    window.observe(keys(0..1), None, None).await.unwrap_err();
    wait_until("the end of the thread", || window.has_ended());
    assert!(!window.state().is_writable);
}
