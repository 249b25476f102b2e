use proptest::prelude::*;

use super::*;
use crate::log::LogError;

const SPEC: WindowSpec =
    WindowSpec { capacity: 1000, fpr: 1e-9, count: 3, whole_keys: false, lifetime: 129 };
const LONG: Durability = Durability::Interval(Duration::from_secs(3600));

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

fn open(dir: &Path, durability: Durability) -> Durable {
    Durable::open(dir, SPEC, "ticks", 0, durability).unwrap()
}

async fn observe(durable: &Durable, keys: &[Key]) -> Result<Vec<Seen>, Failure> {
    let Observed { seen, ticket, .. } = durable.observe(keys, None, 0)?;
    durable.committed(ticket).await?;
    Ok(seen)
}

/// The files as a crash would leave them: the log without a last checkpoint.
fn crash(durable: &Durable) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let dir = &durable.shared.files.as_ref().unwrap().dir;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

#[tokio::test]
async fn acknowledged_events_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    let keys: Vec<Key> = (0..500).map(key).collect();
    observe(&durable, &keys).await.unwrap();
    observe(&durable, &keys[..100]).await.unwrap();
    let (forgotten, ticket) = durable.forget(&[key(7), key(900)]).unwrap();
    durable.committed(ticket).await.unwrap();
    assert_eq!(forgotten, [true, false]);
    let copy = crash(&durable);
    let counts = durable.window().counts(&keys);
    assert_eq!(counts[..9], [2, 2, 2, 2, 2, 2, 2, 0, 2]);
    let restarted = open(copy.path(), Durability::Fsync);
    assert_eq!(restarted.window().counts(&keys), counts);
    assert_eq!(restarted.stats().window, durable.stats().window);
}

#[tokio::test]
async fn interval_loses_nothing_at_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), LONG);
    observe(&durable, &[key(1), key(2)]).await.unwrap();
    drop(durable);
    assert_eq!(open(dir.path(), LONG).window().counts(&[key(1), key(2)]), [1, 1]);
}

#[tokio::test]
async fn interval_writes_within_the_interval() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Interval(Duration::from_millis(20)));
    observe(&durable, &[key(1)]).await.unwrap();
    while durable.stats().log_bytes == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let copy = crash(&durable);
    assert_eq!(open(copy.path(), LONG).window().counts(&[key(1)]), [1]);
}

#[tokio::test]
async fn checkpoint_replaces_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    observe(&durable, &[key(1), key(2), key(2)]).await.unwrap();
    durable.window().set_tick(5);
    let path = durable.checkpoint(77).unwrap().unwrap().path;
    observe(&durable, &[key(3)]).await.unwrap();
    assert_eq!(durable.stats().checkpoint_unix_seconds, 77);
    let copy = crash(&durable);
    let files: Vec<_> = std::fs::read_dir(copy.path()).unwrap().collect();
    assert_eq!(files.len(), 3, "{files:?}");
    let restarted = open(copy.path(), Durability::Fsync);
    assert_eq!(restarted.window().counts(&[key(1), key(2), key(3), key(4)]), [1, 2, 1, 0]);
    assert_eq!(restarted.window().tick(), 5);

    // A checkpoint is refused for every damaged byte of its head and regions.
    let name = path.file_name().unwrap();
    drop(restarted);
    let whole = std::fs::read(copy.path().join(name)).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(copy.path().join(name), &bytes).unwrap();
        assert!(Durable::open(copy.path(), SPEC, "ticks", 0, LONG).is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn failed_write_undoes_what_was_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    observe(&durable, &[key(1)]).await.unwrap();
    durable.shared.broken.store(true, Ordering::Relaxed);
    assert_eq!(observe(&durable, &[key(1), key(2)]).await, Err(Failure::NotWritable));
    assert_eq!(durable.window().counts(&[key(1), key(2)]), [1, 0]);
    assert!(!durable.stats().is_writable);
    assert_eq!(observe(&durable, &[key(3)]).await, Err(Failure::NotWritable));
    assert!(durable.forget(&[key(1)]).is_err());
    durable.shared.broken.store(false, Ordering::Relaxed);
    while !durable.stats().is_writable {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(observe(&durable, &[key(2)]).await.unwrap(), [Seen::New]);
    let copy = crash(&durable);
    let restarted = open(copy.path(), LONG);
    assert_eq!(restarted.window().counts(&[key(1), key(2), key(3)]), [1, 1, 0]);
}

#[tokio::test]
async fn failed_erasure_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    observe(&durable, &[key(1), key(1)]).await.unwrap();
    durable.shared.broken.store(true, Ordering::Relaxed);
    let (_, ticket) = durable.forget(&[key(1)]).unwrap();
    assert_eq!(durable.committed(ticket).await, Err(Failure::NotWritable));
    assert_eq!(durable.window().counts(&[key(1)]), [2]);
}

#[tokio::test]
async fn failed_write_of_an_interval_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Interval(Duration::from_millis(10)));
    observe(&durable, &[key(1)]).await.unwrap();
    durable.shared.broken.store(true, Ordering::Relaxed);
    while durable.stats().is_writable {
        let _ = observe(&durable, &[key(2)]).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(observe(&durable, &[key(3)]).await.is_err());
    assert!(durable.checkpoint(1).unwrap().is_none());
    durable.shared.broken.store(false, Ordering::Relaxed);
    while !durable.stats().is_writable {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counts = durable.window().counts(&[key(1), key(2), key(3)]);
    assert!(counts[1] > 0 && counts[2] == 0);
    let copy = crash(&durable);
    assert_eq!(open(copy.path(), LONG).window().counts(&[key(1), key(2), key(3)]), counts);
}

#[tokio::test]
async fn retry_gets_the_first_answer_also_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    let retry = Some((Token([9; 16]), [1; 16]));
    let keys = [key(1), key(1), key(2)];
    let observed = durable.observe(&keys, retry, 1000).unwrap();
    durable.committed(observed.ticket).await.unwrap();
    let first = observed.seen;
    assert!(!observed.is_repeated);
    assert_eq!(first, [Seen::New, Seen::Duplicate(2), Seen::New]);
    let again = durable.observe(&keys, retry, 1100).unwrap();
    assert_eq!((again.seen, again.is_repeated), (first.clone(), true));
    let other = Some((Token([9; 16]), [2; 16]));
    assert_eq!(durable.observe(&keys, other, 1100).unwrap_err(), Failure::TokenReused);
    let copy = crash(&durable);
    let restarted = open(copy.path(), Durability::Fsync);
    assert_eq!(restarted.observe(&keys, retry, 1599).unwrap().seen, first);
    assert_eq!(restarted.window().counts(&keys), [2, 2, 1]);
    let late = restarted.observe(&keys, retry, 1600).unwrap().seen;
    assert_eq!(late, [Seen::Duplicate(3), Seen::Duplicate(3), Seen::Duplicate(2)]);
}

#[tokio::test]
async fn second_process_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _durable = open(dir.path(), LONG);
    let second = Durable::open(dir.path(), SPEC, "ticks", 0, LONG);
    assert!(matches!(second, Err(OpenError::Locked { .. })));
}

#[tokio::test]
async fn files_of_another_window_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), LONG));
    let larger = WindowSpec { capacity: 5000, ..SPEC };
    let refused = Durable::open(dir.path(), larger, "ticks", 0, LONG).err().unwrap().to_string();
    let expected = "expected ticks, capacity 5000, wide slots, found ticks, capacity 1000";
    assert!(refused.contains(expected), "{refused}");
    assert!(Durable::open(dir.path(), SPEC, "days", 0, LONG).is_err());
    open(dir.path(), LONG);
}

#[tokio::test]
async fn damage_in_the_middle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    for n in 0..5 {
        observe(&durable, &[key(n)]).await.unwrap();
    }
    let copy = crash(&durable);
    let path = segment_path_of(copy.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let refused = Durable::open(copy.path(), SPEC, "ticks", 0, LONG).err().unwrap();
    assert!(matches!(refused, OpenError::Log(LogError::Damaged { .. })), "{refused}");
    // Without a segment in between, too.
    std::fs::remove_file(copy.path().join("checkpoint-0000000000000001")).unwrap();
    let refused = Durable::open(copy.path(), SPEC, "ticks", 0, LONG).err().unwrap();
    assert!(matches!(refused, OpenError::NoCheckpoint { .. }), "{refused}");
}

fn segment_path_of(dir: &Path) -> PathBuf {
    crate::log::segment_path(dir, 1)
}

#[derive(Debug, Clone)]
enum Step {
    Observe(Vec<u64>),
    Forget(u64),
    Tick(u64),
    Checkpoint,
    Crash,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(0..60_u64, 1..50).prop_map(Step::Observe),
        2 => (0..60_u64).prop_map(Step::Forget),
        3 => (0..4_u64).prop_map(Step::Tick),
        1 => (100..400_u64).prop_map(Step::Tick),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens, the files give the state back.
    #[test]
    fn files_hold_the_state(
        steps in steps(),
        whole_keys: bool,
        count in 1..4_u16,
        lifetime in prop::sample::select(vec![1, 5, 129]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let spec = WindowSpec { count, whole_keys, lifetime, ..SPEC };
            let open = |dir: &Path, tick| {
                Durable::open(dir, spec, "ticks", tick, Durability::Fsync).unwrap()
            };
            let all: Vec<Key> = (0..60).map(key).collect();
            let mut dir = tempfile::tempdir().unwrap();
            let mut tick = 0;
            let mut durable = open(dir.path(), tick);
            for step in steps {
                match step {
                    Step::Observe(numbers) => {
                        let keys: Vec<Key> = numbers.iter().map(|n| key(*n)).collect();
                        observe(&durable, &keys).await.unwrap();
                    }
                    Step::Forget(n) => {
                        let (_, ticket) = durable.forget(&[key(n)]).unwrap();
                        durable.committed(ticket).await.unwrap();
                    }
                    Step::Tick(ticks) => {
                        tick += ticks;
                        durable.window().set_tick(tick);
                    }
                    Step::Checkpoint => {
                        durable.checkpoint(0).unwrap().unwrap();
                    }
                    Step::Crash | Step::Restart => {
                        let counts = durable.window().counts(&all);
                        let stats = durable.stats().window;
                        if matches!(step, Step::Crash) {
                            let copy = crash(&durable);
                            drop(durable);
                            dir = copy;
                        } else {
                            durable.close(0).unwrap();
                            drop(durable);
                        }
                        durable = open(dir.path(), tick);
                        assert_eq!(durable.window().counts(&all), counts);
                        assert_eq!(durable.stats().window, stats);
                    }
                }
            }
        });
    }
}

/// Checkpoints beside traffic of many threads, and crashes in between.
#[test]
fn checkpoints_beside_traffic_lose_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec { capacity: 400_000, ..SPEC };
    let durable = Arc::new(Durable::open(dir.path(), spec, "ticks", 0, Durability::Fsync).unwrap());
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let (durable, acknowledged) = (Arc::clone(&durable), Arc::clone(&acknowledged));
            runtime.spawn(async move {
                for batch in 0..40 {
                    let keys: Vec<Key> =
                        (0..500).map(|n| key((task << 40) + batch * 500 + n)).collect();
                    let seen = observe(&durable, &keys).await.unwrap();
                    assert!(seen.iter().all(|seen| *seen == Seen::New));
                    lock(&acknowledged).extend(keys);
                }
            })
        })
        .collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        durable.checkpoint(0).unwrap();
        // What is acknowledged before the copy begins must be in it. Files that a checkpoint
        // removes meanwhile do not exist here: this thread takes the checkpoints.
        let expected = lock(&acknowledged).clone();
        let copy = crash(&durable);
        let restarted = Durable::open(copy.path(), spec, "ticks", 0, LONG).unwrap();
        assert!(restarted.window().counts(&expected).iter().all(|count| *count == 1));
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}
