//! Cycles driven one by one: requests, steps, faults and crashes in every order.

mod driven;
mod model;

use tempfile::TempDir;
use testkit::wait_until;

use super::*;
use crate::answers::{AnswerLimits, RequestKey};
use crate::state_dir::StateDir;
use crate::{Durability as D, Seen, WindowSpec};
use driven::{Driven, copy_dir};

/// Four regions.
const SPEC: WindowSpec = WindowSpec {
    capacity: 150_000,
    fpr: 1e-9,
    count: 3,
    whole_keys: false,
    lifetime: 129,
};
const LIMITS: AnswerLimits = AnswerLimits {
    memory_bytes: 1 << 20,
    time: Duration::from_secs(600),
};
/// Syncs in the background never.
const LONG: D = D::Interval(Duration::from_secs(7200));

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<Key> {
    numbers.into_iter().map(key).collect()
}

fn open(dir: &TempDir, durability: D) -> Driven {
    Driven::open(dir.path(), SPEC, durability, 0)
}

/// The next segment names the group that it continues: without it the window could not be read.
#[test]
fn start_makes_the_log_that_it_reads_durable() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, LONG);
    driven.observe(keys([1])).unwrap();
    let path = crate::log::segment_path(dir.path(), 1);
    let bytes = path.metadata().unwrap().len();
    assert!(driven.disk.synced_bytes(&path) < bytes);
    drop(driven);
    let restarted = open(&dir, LONG);
    assert_eq!(restarted.disk.synced_bytes(&path), bytes);
}

/// The file has all acknowledged events: the next start reads them.
#[test]
fn failed_sync_of_an_interval_ends_the_thread() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, D::Interval(Duration::from_millis(2)));
    driven.observe(keys([1])).unwrap();
    driven.disk.fail_syncs(1);
    while driven.failure.is_none() {
        let wait = driven.engine.idle_time();
        driven.run_cycle(wait);
    }
    assert_eq!(driven.observe(keys([2])), Err(Failure::NotWritable));
    let (mut restarted, _dir) = driven.crash(SPEC, LONG);
    assert_eq!(restarted.counts(keys([1, 2])), [1, 0]);
}

/// The file system reports a failure once: a later sync of the same file succeeds.
#[test]
fn failure_of_a_running_sync_is_found_by_the_next_sync() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, D::Interval(Duration::from_millis(2)));
    driven.observe(keys([1])).unwrap();
    driven.disk.hang_syncs(true);
    wait_until("a sync has begun", || {
        driven.run_cycle(Duration::ZERO);
        driven.disk.is_syncing()
    });
    driven.disk.fail_syncs(1);
    driven.disk.hang_syncs(false);
    wait_until("the sync has failed", || driven.disk.has_failed_syncs());
    // The sync of a checkpoint, or of the end.
    driven.engine.journal.as_mut().unwrap().sync().unwrap_err();
}

#[test]
fn retry_gets_the_first_answer_also_after_a_crash_and_a_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, D::Fsync);
    let first = driven.retry(keys([1, 1, 2]), 9, 1).unwrap();
    assert_eq!(first.seen, [Seen::New, Seen::Duplicate(2), Seen::New]);
    driven.set_time(1100);
    let again = driven.retry(keys([1, 1, 2]), 9, 1).unwrap();
    assert_eq!((&again.seen, again.is_repeated), (&first.seen, true));
    assert_eq!(
        driven.retry(keys([1, 1, 2]), 9, 2),
        Err(Failure::RequestKeyReused)
    );
    // The checkpoint moves the answer to its segment.
    driven.checkpoint();
    let (mut driven, dir) = driven.crash(SPEC, D::Fsync);
    driven.set_time(1600);
    assert_eq!(
        driven.retry(keys([1, 1, 2]), 9, 1).unwrap().seen,
        first.seen
    );
    assert_eq!(driven.counts(keys([1, 2])), [2, 1]);
    driven.set_time(1601);
    let late = driven.retry(keys([1, 1, 2]), 9, 1).unwrap().seen;
    assert_eq!(
        late,
        [Seen::Duplicate(3), Seen::Duplicate(3), Seen::Duplicate(2)]
    );
    drop(dir);
}

#[test]
fn kept_answers_make_no_checkpoint_due() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, D::Fsync);
    driven.observe(keys(0..1000)).unwrap();
    let log_bytes = driven.state().log_bytes;
    for request_key in 0..100 {
        driven.retry(keys(0..1), request_key, 1).unwrap();
    }
    // The first ones count the key up to 3.
    assert!(driven.state().log_bytes < log_bytes + 100);
    let answers = driven.state().answers_bytes;
    assert!(answers >= 100 * 128);
    let before = driven.engine.journal.as_ref().unwrap().bytes.answers;
    driven.checkpoint();
    assert_eq!(driven.state().log_bytes, 0);
    assert_eq!(
        driven.engine.journal.as_ref().unwrap().bytes.answers,
        before
    );
}

#[test]
fn events_that_find_no_room_are_new_and_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        capacity: 1,
        whole_keys: true,
        ..SPEC
    };
    let mut driven = Driven::open(dir.path(), spec, D::Fsync, 0);
    // Room for 32 keys.
    for is_repeated in [false, true] {
        let seen = driven.retry(keys(0..100), 1, 1).unwrap();
        assert_eq!(
            (seen.seen, seen.is_repeated),
            (vec![Seen::New; 100], is_repeated)
        );
    }
    assert_eq!(driven.state().window.full, 68);
    assert_eq!(driven.heard.lock().unwrap().reached.len(), 32);
}

#[test]
fn thresholds_are_reported_once_per_key() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        count: 2,
        whole_keys: true,
        ..SPEC
    };
    let mut driven = Driven::open(dir.path(), spec, D::Fsync, 0);
    for _ in 0..5 {
        driven.observe(keys([1, 1, 2])).unwrap();
    }
    let mut reached = std::mem::take(&mut driven.heard.lock().unwrap().reached);
    reached.sort_unstable();
    let mut expected = vec![(1, key(1)), (1, key(2)), (2, key(1)), (2, key(2))];
    expected.sort_unstable();
    assert_eq!(reached, expected);
    driven.forget(keys([1])).unwrap();
    driven.set_tick(129);
    while driven.heard.lock().unwrap().left.len() < 2 {
        driven.run_cycle(Duration::ZERO);
    }
    assert_eq!(driven.heard.lock().unwrap().left, [key(1), key(2)]);
    driven.observe(keys([1])).unwrap();
    assert_eq!(driven.heard.lock().unwrap().reached, [(1, key(1))]);
}

/// Day windows are swept seldom, and a device of yesterday may be erased today.
#[test]
fn day_leaves_memory_and_checkpoints_at_midnight() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        whole_keys: true,
        lifetime: 1,
        ..SPEC
    };
    let mut driven = Driven::open(dir.path(), spec, D::Fsync, 0);
    driven.observe(keys([1, 2])).unwrap();
    let (before, lists) = (driven.state().changes, driven.heard.lock().unwrap().lists);
    driven.set_tick(1);
    let saved = driven.begin_checkpoint();
    let path = driven.finish(saved).unwrap().unwrap().path;
    while driven.engine.sweep.remaining > 0 {
        driven.run_cycle(Duration::ZERO);
    }
    assert_eq!(driven.heard.lock().unwrap().lists, lists + 1);
    driven.run_cycle(Duration::ZERO);
    assert!(
        driven.state().changes > before,
        "the next checkpoint is another"
    );
    let (head, file) = crate::checkpoint::read_head(&path).unwrap();
    let mut window = Window::with_secret(spec, head.tick, head.secret).unwrap();
    crate::checkpoint::read_regions(&path, &head, file, &mut window).unwrap();
    for key in keys([1, 2]) {
        assert!(!window.holds(&key) && !driven.engine.window.holds(&key));
    }
}

#[test]
fn checkpoint_is_refused_for_every_damaged_byte() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        capacity: 1000,
        ..SPEC
    };
    let mut driven = Driven::open(dir.path(), spec, D::Fsync, 0);
    driven.observe(keys([1, 2, 2])).unwrap();
    let path = driven.checkpoint().path;
    assert_eq!(driven.state().checkpoint_unix_seconds, 77);
    drop(driven);
    let copy = copy_dir(dir.path());
    // The log before it is gone.
    assert_eq!(std::fs::read_dir(copy.path()).unwrap().count(), 3);
    let path = copy.path().join(path.file_name().unwrap());
    let whole = std::fs::read(&path).unwrap();
    let shape = Shape {
        spec,
        clock: "ticks".to_owned(),
        answers: LIMITS,
    };
    let locked = StateDir::lock(copy.path()).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        assert!(locked.load(&shape, 0).is_err(), "byte {at}");
    }
}

#[test]
fn failed_checkpoint_leaves_the_one_before_and_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut driven = open(&dir, D::Fsync);
    driven.observe(keys([1])).unwrap();
    let log_bytes = driven.state().log_bytes;
    // The rename fails.
    let obstacle = crate::checkpoint::checkpoint_path(dir.path(), 2);
    std::fs::create_dir(&obstacle).unwrap();
    let saved = driven.begin_checkpoint();
    assert!(driven.finish(saved).is_err());
    assert!(!driven.state().may_checkpoint, "the next attempt waits");
    assert!(!dir.path().join("checkpoint.tmp").exists());
    assert_eq!(driven.state().log_bytes, log_bytes);
    std::fs::remove_dir(obstacle).unwrap();
    let (mut restarted, _dir) = driven.crash(SPEC, D::Fsync);
    assert_eq!(restarted.counts(keys([1])), [1]);
    assert_eq!(restarted.state().log_bytes, log_bytes);
}

#[test]
fn events_of_an_expired_tick_are_refused_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        lifetime: 1,
        ..SPEC
    };
    let mut driven = Driven::open(dir.path(), spec, D::Fsync, 7);
    let retry = Some((RequestKey([1; 16]), [1; 16]));
    let observe = |driven: &mut Driven, at| {
        driven.ask(|reply| Request::Observe {
            keys: keys([1]),
            at: Some(at),
            retry,
            reply,
        })
    };
    assert_eq!(observe(&mut driven, 6), Err(Failure::Late));
    assert_eq!(driven.counts(keys([1])), [0]);
    assert!(!observe(&mut driven, 7).unwrap().is_repeated);
    // The first answer comes again, although the day has ended.
    driven.set_tick(8);
    assert!(observe(&mut driven, 7).unwrap().is_repeated);
    let late = driven.ask(|reply| Request::Observe {
        keys: keys([2]),
        at: Some(7),
        retry: None,
        reply,
    });
    assert_eq!(late, Err(Failure::Late));
    // A clock that was set back: its tick is the present.
    driven.set_tick(7);
    let now = driven.ask(|reply| Request::Observe {
        keys: keys([3]),
        at: Some(7),
        retry: None,
        reply,
    });
    assert_eq!(now.unwrap().seen, [Seen::New]);
}
