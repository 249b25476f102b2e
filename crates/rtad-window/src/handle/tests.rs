//! Windows with their engine and a shipper.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinHandle as Task;

use super::*;
use crate::answers::AnswerLimits;
use crate::disk::tests::FaultyDisk;
use crate::{Now, Outgoing, Seen, Shape, StateDir, WindowSpec};

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

fn shape() -> Shape {
    Shape {
        spec: SPEC,
        clock: "ticks".to_owned(),
        answers: AnswerLimits {
            memory_bytes: 1 << 20,
            time: Duration::from_secs(600),
        },
    }
}

fn settings() -> Settings {
    Settings {
        clock: Box::new(|| Now {
            tick: 0,
            seconds: 1000,
        }),
        listener: None,
    }
}

/// Segments and tables that were created.
#[derive(Clone, Default)]
struct Store {
    segments: Arc<Mutex<BTreeMap<u64, Bytes>>>,
    tables: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    /// Puts wait.
    is_away: Arc<AtomicBool>,
}

impl Store {
    fn create(&self, number: u64, bytes: &Bytes) -> bool {
        let mut segments = self.segments.lock().unwrap();
        let is_new = !segments.contains_key(&number);
        if is_new {
            segments.insert(number, bytes.clone());
        }
        is_new
    }

    fn read(&self, number: u64) -> Option<Bytes> {
        self.segments.lock().unwrap().get(&number).cloned()
    }

    /// A replica of the newest table and the segments after it.
    fn replica(&self) -> Replica {
        let mut replica = match self.tables.lock().unwrap().last_key_value() {
            Some((_, table)) => Replica::from_table(shape(), &table[..]).unwrap(),
            None => Replica::empty(shape()).unwrap(),
        };
        while let Some(bytes) = self.read(replica.next_segment()) {
            replica.apply(&bytes).unwrap();
        }
        replica
    }

    /// Takes the window over, and ships its segments.
    fn start(&self, durability: Durability) -> (WindowHandle, Task<()>) {
        let started = self.begin(durability);
        let outbox = started.outbox;
        tokio::spawn(started.engine.run());
        let store = self.clone();
        let shipper = tokio::spawn(async move { store.ship(&outbox).await });
        (started.handle, shipper)
    }

    fn begin(&self, durability: Durability) -> StartedWindow {
        let replica = self.replica();
        let take_over = replica.take_over(&durability).unwrap();
        assert!(self.create(take_over.number, &take_over.bytes));
        WindowHandle::start(replica, take_over, durability, settings()).unwrap()
    }

    async fn ship(&self, outbox: &Outbox) {
        while let Some(Outgoing { number, bytes, .. }) = outbox.next().await {
            while self.is_away.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.create(number, &bytes) {
                outbox.created(number);
            } else {
                outbox.lost("another owner");
            }
        }
    }
}

async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn disk(dir: &tempfile::TempDir) -> Durability {
    Durability::Disk(StateDir::open(dir.path()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_store_wait_for_their_segment() {
    let store = Store::default();
    let (window, _shipper) = store.start(Durability::Store);
    let seen = window.observe(keys(0..2), None, None).await.unwrap().seen;
    assert_eq!(seen, [Seen::New; 2]);
    assert_eq!(store.segments.lock().unwrap().len(), 2);

    store.is_away.store(true, Ordering::Release);
    let waiting = {
        let window = window.clone();
        tokio::spawn(async move { window.observe(keys(1..3), None, None).await })
    };
    wait_until("a group", || window.state().unshipped_age > Duration::ZERO).await;
    let counts = window.counts(keys(0..3));
    let counts = tokio::time::timeout(Duration::from_millis(50), counts).await;
    assert!(counts.is_err() && !waiting.is_finished());
    store.is_away.store(false, Ordering::Release);
    let seen = waiting.await.unwrap().unwrap().seen;
    assert_eq!(seen, [Seen::Duplicate(2), Seen::New]);
    assert_eq!(window.counts(keys(0..3)).await.unwrap(), [1, 2, 1]);
    let state = window.state();
    assert_eq!(state.unshipped_age, Duration::ZERO);
    assert!(state.is_writable);
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_window_is_released_with_all_of_its_groups() {
    let dir = tempfile::tempdir().unwrap();
    for is_disk in [true, false] {
        let store = Store::default();
        let durability = if is_disk {
            disk(&dir)
        } else {
            Durability::Store
        };
        let (window, shipper) = store.start(durability);
        window.observe(keys(0..1000), None, None).await.unwrap();
        assert!(window.close().await);
        shipper.await.unwrap();
        assert!(window.has_ended() && !window.state().is_writable);
        let refused = window.observe(keys(0..1), None, None).await;
        assert_eq!(refused, Err(Failure::NotDurable));
        assert!(window.begin_table().await.is_err());
        let mut replica = store.replica();
        assert!(replica.is_released());
        assert!(replica.may_take_over_at_once(&Durability::Store).unwrap());
        assert_eq!(replica.window.counts(&keys(0..1000)), [1; 1000]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn window_that_is_being_closed_has_not_ended() {
    let store = Store::default();
    let (window, _shipper) = store.start(Durability::Store);
    store.is_away.store(true, Ordering::Release);
    let closing = {
        let window = window.clone();
        tokio::spawn(async move { window.close().await })
    };
    wait_until("the last segment", || !window.state().is_writable).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!window.has_ended() && !window.is_released());
    store.is_away.store(false, Ordering::Release);
    assert!(closing.await.unwrap());
    assert!(window.has_ended() && window.is_released());
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_has_only_what_the_store_has_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::default();
    let started = store.begin(disk(&dir));
    let engine = tokio::spawn(started.engine.run());
    let observed = started.handle.observe(keys(0..10), None, None).await;
    observed.unwrap();
    drop(started.handle);
    engine.await.unwrap();
    // The directory has the events, the store has not.
    assert_eq!(store.replica().window.counts(&keys(0..10)), [0; 10]);

    let (window, shipper) = store.start(disk(&dir));
    assert_eq!(
        window.counts(keys(0..11)).await.unwrap(),
        [vec![1; 10], vec![0]].concat()
    );
    assert_eq!(store.replica().window.counts(&keys(0..10)), [1; 10]);
    window.observe(keys(5..11), None, None).await.unwrap();
    let logs = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("log-")).count()
    };
    // Half a second later it is shipped.
    wait_until("the segment", || store.segments.lock().unwrap().len() == 3).await;
    wait_until("its removal", || logs() == 1).await;
    assert!(window.close().await);
    shipper.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_disk_ends_the_window_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::default();
    let faulty = Arc::new(FaultyDisk::default());
    let state = StateDir::open_on(dir.path(), Arc::clone(&faulty) as _).unwrap();
    let (window, _shipper) = store.start(Durability::Disk(state));
    window.observe(keys(0..1), None, None).await.unwrap();
    faulty.fill(u32::MAX);
    let refused = Err(Failure::NotDurable);
    assert_eq!(window.observe(keys(0..2), None, None).await, refused);
    wait_until("the end of the engine", || window.has_ended()).await;
    assert!(!window.state().is_writable);
    assert_eq!(window.observe(keys(2..3), None, None).await, refused);
    assert!(window.counts(keys(0..1)).await.is_err());
    assert!(!window.close().await);
    drop(window);
    let (restarted, _shipper) = store.start(disk(&dir));
    assert_eq!(restarted.counts(keys(0..3)).await.unwrap(), [1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn window_that_another_process_has_taken_answers_nothing() {
    let store = Store::default();
    let (window, shipper) = store.start(Durability::Store);
    window.observe(keys(0..1), None, None).await.unwrap();
    let (other, _shipper) = store.start(Durability::Store);
    let refused = window.observe(keys(1..2), None, None).await;
    assert_eq!(refused, Err(Failure::NotDurable));
    wait_until("the end of the engine", || window.has_ended()).await;
    shipper.await.unwrap();
    assert!(!window.close().await);
    let seen = other.observe(keys(0..2), None, None).await.unwrap().seen;
    assert_eq!(seen, [Seen::Duplicate(2), Seen::New]);
}

#[tokio::test(flavor = "multi_thread")]
async fn window_ends_with_its_shipper() {
    let store = Store::default();
    let StartedWindow {
        handle,
        engine,
        outbox,
    } = store.begin(Durability::Store);
    let engine = tokio::spawn(engine.run());
    drop(outbox);
    engine.await.unwrap();
    assert!(handle.has_ended());
}

/// As a process that is killed in a simulation, or a runtime that ends.
#[tokio::test]
async fn window_ends_with_its_engine() {
    let store = Store::default();
    let dir = tempfile::tempdir().unwrap();
    let started = store.begin(disk(&dir));
    let engine = tokio::spawn(started.engine.run());
    let first = started.handle.observe(keys(0..1), None, None).await;
    assert_eq!(first.unwrap().seen, [Seen::New]);

    engine.abort();
    assert!(!started.handle.close().await);
    let refused = started.handle.observe(keys(0..1), None, None).await;
    assert_eq!(refused, Err(Failure::NotDurable));
    assert!(started.outbox.next().await.is_none());
    // The directory is not locked any more.
    let (restarted, _shipper) = store.start(disk(&dir));
    assert_eq!(restarted.counts(keys(0..2)).await.unwrap(), [1, 0]);
}

/// Begins a copy once the one before is noted as complete.
async fn begin_table(window: &WindowHandle) -> TableCopy {
    loop {
        match window.begin_table().await {
            Ok(copy) => return copy,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Copies beside traffic of many tasks.
#[tokio::test(flavor = "multi_thread")]
async fn tables_beside_traffic_lose_nothing() {
    let store = Store::default();
    let dir = tempfile::tempdir().unwrap();
    let (window, _shipper) = store.start(disk(&dir));
    let is_stopping = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for task in 0..4_u64 {
        let window = window.clone();
        let is_stopping = Arc::clone(&is_stopping);
        tasks.push(tokio::spawn(async move {
            let mut sent = 0;
            while sent < 40_000 && !is_stopping.load(Ordering::Acquire) {
                let first = (task << 40) + sent;
                let keys = keys(first..first + 500);
                let seen = window.observe(keys, None, None).await.unwrap().seen;
                assert_eq!(seen, [Seen::New; 500]);
                sent += 500;
            }
            sent
        }));
    }
    for _ in 0..3 {
        let mut copy = begin_table(&window).await;
        // One at a time.
        assert!(window.begin_table().await.is_err());
        let mut table = Vec::new();
        while let Some(block) = copy.next_block().await.unwrap() {
            table.extend(block);
        }
        let number = copy.number();
        store.tables.lock().unwrap().insert(number, table);
        copy.completed();
        store.segments.lock().unwrap().retain(|it, _| *it >= number);
    }
    is_stopping.store(true, Ordering::Release);
    let mut sent = Vec::new();
    for task in tasks {
        sent.push(task.await.unwrap());
    }
    assert!(window.close().await);
    let mut replica = store.replica();
    for (task, sent) in (0..).zip(sent) {
        let first = (task as u64) << 40;
        let counts = replica.window.counts(&keys(first..first + sent));
        assert!(counts.iter().all(|count| *count == 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_of_the_engine_ends_the_window() {
    let store = Store::default();
    let fails = Arc::new(AtomicBool::new(false));
    let clock = {
        let fails = Arc::clone(&fails);
        move || {
            assert!(!fails.load(Ordering::Relaxed), "a clock that fails");
            Now {
                tick: 0,
                seconds: 0,
            }
        }
    };
    let settings = Settings {
        clock: Box::new(clock),
        listener: None,
    };
    let replica = store.replica();
    let take_over = replica.take_over(&Durability::Store).unwrap();
    assert!(store.create(take_over.number, &take_over.bytes));
    let started = WindowHandle::start(replica, take_over, Durability::Store, settings);
    let StartedWindow {
        handle: window,
        engine,
        outbox,
    } = started.unwrap();
    tokio::spawn(engine.run());
    assert!(!window.has_ended());
    fails.store(true, Ordering::Relaxed);
    window.counts(keys(0..1)).await.unwrap_err();
    wait_until("the end of the engine", || window.has_ended()).await;
    assert!(!window.state().is_writable);
    assert!(outbox.next().await.is_none());
}
