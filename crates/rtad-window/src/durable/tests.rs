use std::sync::mpsc;

use proptest::prelude::*;

use super::shared::Undo;
use super::*;
use crate::answers::Answer;
use crate::log::{Frame, LogError, encode_answer, encode_changes};

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

#[track_caller]
fn wait_until(check: impl Fn() -> bool) {
    let begun = Instant::now();
    while !check() {
        assert!(begun.elapsed() < Duration::from_secs(60), "timed out");
        std::thread::sleep(Duration::from_millis(2));
    }
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
    // The same holds without a segment in between.
    std::fs::remove_file(copy.path().join("checkpoint-0000000000000001")).unwrap();
    let refused = Durable::open(copy.path(), SPEC, "ticks", 0, LONG).err().unwrap();
    assert!(matches!(refused, OpenError::NoCheckpoint { .. }), "{refused}");
}

fn segment_path_of(dir: &Path) -> PathBuf {
    crate::log::segment_path(dir, 1)
}

#[tokio::test]
async fn closed_window_refuses_and_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    durable.close(0).unwrap().unwrap();
    assert_eq!(observe(&durable, &[key(1)]).await, Err(Failure::NotWritable));
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || done.send(durable.checkpoint(0).unwrap().is_none()));
    assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true));
}

#[tokio::test]
async fn log_bytes_count_from_the_published_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    observe(&durable, &[key(1)]).await.unwrap();
    let before = durable.stats().log_bytes;
    let obstacle = checkpoint::checkpoint_path(dir.path(), 2);
    std::fs::create_dir(&obstacle).unwrap();
    assert!(durable.checkpoint(1).is_err());
    assert_eq!(durable.stats().log_bytes, before);
    observe(&durable, &[key(2)]).await.unwrap();
    assert_eq!(durable.stats().log_bytes, 2 * before);
    // The state equals that after a restart.
    std::fs::remove_dir(obstacle).unwrap();
    let copy = crash(&durable);
    assert_eq!(open(copy.path(), LONG).stats().log_bytes, 2 * before);
    durable.checkpoint(1).unwrap().unwrap();
    assert_eq!(durable.stats().log_bytes, 0);
}

/// A batch of duplicates has nothing to log itself; it depends on a first event that is in the
/// table and not yet in the queue.
#[test]
fn duplicate_shares_the_fate_of_the_first_event() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for is_broken in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let spec = WindowSpec { count: 1, ..SPEC };
        let durable = Durable::open(dir.path(), spec, "ticks", 0, Durability::Fsync).unwrap();
        let shared = &durable.shared;
        let order = shared.order.read().unwrap();
        let mut changes = Vec::new();
        let tick = shared.window.observe_with(&[key(1)], |_| {}, |change| changes.push(change));
        let second = durable.observe(&[key(1)], None, 0).unwrap();
        assert_eq!(second.seen, [Seen::Duplicate(1)]);
        let early = runtime.block_on(async {
            tokio::time::timeout(Duration::from_millis(50), durable.committed(second.ticket)).await
        });
        assert!(early.is_err(), "acknowledged before the first event");
        shared.broken.store(is_broken, Ordering::Relaxed);
        let mut payload = Vec::new();
        encode_changes(&mut payload, tick, &changes, shared.window.lanes(), false);
        let first = shared.enqueue(payload, vec![Undo::Changes(changes)]);
        drop(order);
        for ticket in [first, second.ticket] {
            assert_eq!(runtime.block_on(durable.committed(ticket)).is_err(), is_broken);
        }
    }
}

fn temporary_files(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "tmp")).count()
}

#[tokio::test]
async fn failed_checkpoint_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    observe(&durable, &[key(1)]).await.unwrap();
    // The rename fails.
    let obstacle = checkpoint::checkpoint_path(dir.path(), 2);
    std::fs::create_dir(&obstacle).unwrap();
    assert!(durable.checkpoint(1).is_err());
    assert_eq!(temporary_files(dir.path()), 0);
    std::fs::remove_dir(obstacle).unwrap();
    drop(durable);
    for name in ["checkpoint.tmp", "download.tmp", "CLAIMS.tmp"] {
        std::fs::write(dir.path().join(name), b"of a killed process").unwrap();
    }
    let locked = StateDir::lock(dir.path()).unwrap();
    assert_eq!(temporary_files(dir.path()), 0);
    drop(locked);
    assert_eq!(open(dir.path(), LONG).window().counts(&[key(1)]), [1]);
}

/// Day windows are swept seldom, and a device of yesterday may be erased today.
#[tokio::test]
async fn expired_keys_are_not_in_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec { whole_keys: true, lifetime: 1, ..SPEC };
    let durable = Durable::open(dir.path(), spec, "days", 0, Durability::Fsync).unwrap();
    observe(&durable, &[key(1), key(2)]).await.unwrap();
    durable.window().set_tick(1);
    observe(&durable, &[key(3)]).await.unwrap();
    let path = durable.checkpoint(0).unwrap().unwrap().path;
    let (head, file) = checkpoint::read_head(&path).unwrap();
    let window = Window::with_secret(spec, head.tick, head.secret);
    checkpoint::read_regions(&path, &head, file, &window).unwrap();
    let held = [key(1), key(2), key(3)].map(|key| window.holds(&key));
    assert_eq!(held, [false, false, true]);
}

/// The writer writes a large queue before its interval is over.
#[test]
fn long_interval_does_not_fill_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), LONG);
    let ticket = durable.shared.enqueue(vec![0; shared::WRITE_AT_ONCE + 1], Vec::new());
    wait_until(|| *durable.shared.done.borrow() >= ticket.0);
    assert!(durable.stats().is_writable);
}

/// A duplicate of an event that is undone before the duplicate has its ticket.
#[tokio::test]
async fn duplicate_of_an_undone_event_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    let shared = &durable.shared;
    let before = shared.failures.load(Ordering::Acquire);
    shared.broken.store(true, Ordering::Relaxed);
    observe(&durable, &[key(1)]).await.unwrap_err();
    shared.broken.store(false, Ordering::Relaxed);
    wait_until(|| durable.stats().is_writable);
    observe(&durable, &[key(2)]).await.unwrap();
    assert!(shared.ticket_of_duplicates(before).is_err());
    let ticket = shared.ticket_of_duplicates(shared.failures.load(Ordering::Acquire)).unwrap();
    durable.committed(ticket).await.unwrap();
}

/// A segment begins with the kept answers, but not with one whose events wait in the queue.
#[test]
fn answer_becomes_durable_with_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), LONG);
    let shared = &durable.shared;
    std::thread::scope(|scope| {
        // The writer takes the queue, and waits for the answers.
        let mut answers = guard(shared.answers.lock());
        let order = guard(shared.order.read());
        let checkpoint = scope.spawn(|| durable.checkpoint(0).unwrap().unwrap());
        let is_asked = || guard(shared.queue.lock()).sync.is_some();
        wait_until(is_asked);
        drop(order);
        wait_until(|| !is_asked());
        let mut changes = Vec::new();
        let tick = shared.window.observe_with(&[key(1)], |_| {}, |change| changes.push(change));
        let mut payload = Vec::new();
        encode_changes(&mut payload, tick, &changes, shared.window.lanes(), false);
        let answer = Answer { seconds: 5, ticket: 0, request: [1; 16], counts: [0].into() };
        encode_answer(&mut payload, &Token([9; 16]), &answer);
        let ticket = shared.enqueue(payload, Vec::new()).0;
        answers.insert(Token([9; 16]), Answer { ticket, ..answer });
        drop(answers);
        checkpoint.join().unwrap();
    });
    let path = crate::log::segment_path(dir.path(), 2);
    let id = shared.files.as_ref().unwrap().id;
    let first = crate::log::first_group(&path, id, 2).unwrap().unwrap();
    let mut answered = 0;
    crate::log::read_segment(&path, id, 2, first, None, |mut payload| {
        let mut frames = Vec::new();
        while !payload.is_empty() {
            frames.push(crate::log::decode(&mut payload, shared.window.lanes())?);
        }
        let has = |is: fn(&Frame) -> bool| frames.iter().any(is);
        if has(|frame| matches!(frame, Frame::Answered { .. })) {
            answered += 1;
            assert!(has(|frame| matches!(frame, Frame::Changes { .. })));
        }
        Some(())
    })
    .unwrap();
    assert_eq!(answered, 1);
}

/// Milliseconds that the wall clock is ahead of the window's time, as a start learns it.
fn loaded_offset(durable: &Durable) -> i64 {
    let copy = crash(durable);
    let mut offset = None;
    let load = StateDir::lock(copy.path()).unwrap().load(SPEC, "ticks", |millis| {
        offset = Some(millis);
        0
    });
    drop(load.unwrap());
    offset.unwrap()
}

#[tokio::test]
async fn step_of_the_wall_clock_is_known_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    let set_time = |time, wall_millis| {
        durable.set_time(Duration::from_secs(time), Duration::from_millis(wall_millis));
    };
    set_time(1000, 1_000_400);
    observe(&durable, &[key(1)]).await.unwrap();
    assert_eq!(loaded_offset(&durable), 0);
    // A step by an hour, and a slow change of less than a second.
    set_time(1010, 4_610_000);
    set_time(1011, 4_611_500);
    observe(&durable, &[key(2)]).await.unwrap();
    assert_eq!(loaded_offset(&durable), 3_600_000);
    durable.checkpoint(0).unwrap().unwrap();
    assert_eq!(loaded_offset(&durable), 3_600_000);
    // A step back that the log misses at first.
    durable.shared.broken.store(true, Ordering::Relaxed);
    while durable.stats().is_writable {
        set_time(1012, 1_012_000);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    durable.shared.broken.store(false, Ordering::Relaxed);
    while !durable.stats().is_writable {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    set_time(1014, 1_014_000);
    observe(&durable, &[key(3)]).await.unwrap();
    assert_eq!(loaded_offset(&durable), 0);
}

#[tokio::test]
async fn answers_are_kept_by_the_time_of_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let durable = open(dir.path(), Durability::Fsync);
    let retry = Some((Token([9; 16]), [1; 16]));
    durable.set_time(Duration::from_secs(1000), Duration::from_secs(1000));
    let observed = durable.observe(&[key(1)], retry, 1000).unwrap();
    durable.committed(observed.ticket).await.unwrap();
    // The checkpoint moves the answers to its segment.
    durable.set_time(Duration::from_secs(1001), Duration::from_secs(9000));
    durable.checkpoint(0).unwrap().unwrap();
    let restarted = open(crash(&durable).path(), Durability::Fsync);
    assert!(restarted.observe(&[key(1)], retry, 1002).unwrap().is_repeated);
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
                    guard(acknowledged.lock()).extend(keys);
                }
            })
        })
        .collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        durable.checkpoint(0).unwrap();
        // What is acknowledged before the copy begins must be in it. Files that a checkpoint
        // removes meanwhile do not exist here: this thread takes the checkpoints.
        let expected = guard(acknowledged.lock()).clone();
        let copy = crash(&durable);
        let restarted = Durable::open(copy.path(), spec, "ticks", 0, LONG).unwrap();
        assert!(restarted.window().counts(&expected).iter().all(|count| *count == 1));
    }
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}
