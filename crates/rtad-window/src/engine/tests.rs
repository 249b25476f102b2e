//! Cycles driven one by one: requests, steps, faults, crashes and take-overs in every order.

mod driven;
mod model;
mod simulation;

use tokio::sync::oneshot;

use super::*;
use crate::answers::{AnswerLimits, RequestKey};
use crate::image::Piece;
use crate::{Durability, Replica, Seen, Shape, StateDir, TakeOver, WindowSpec};
use driven::{CycleEnd, Driven, TestClock, faulty_disk};

/// Three regions.
const SPEC: WindowSpec = WindowSpec {
    capacity: 100_000,
    fpr: 1e-9,
    count: 3,
    whole_keys: false,
    lifetime: 129,
};
const LIMITS: AnswerLimits = AnswerLimits {
    memory_bytes: 1 << 20,
    time: Duration::from_secs(86_400),
};

fn shape(spec: WindowSpec) -> Shape {
    Shape {
        spec,
        clock: "ticks".to_owned(),
        answers: LIMITS,
    }
}

fn key(n: u64) -> Key {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(n) << 64 | u128::from(!n)).to_le_bytes()
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<Key> {
    numbers.into_iter().map(key).collect()
}

/// An owner whose segments are created when a test says so.
struct Shipped {
    clock: Arc<TestClock>,
    driven: Driven,
}

impl Shipped {
    fn start(spec: WindowSpec, durability: Durability) -> Self {
        let clock = Arc::new(TestClock::default());
        let replica = Replica::empty(shape(spec)).unwrap();
        let take_over = replica
            .take_over_as(&durability, 1, clock.uptime())
            .unwrap();
        let driven = Driven::start(replica, take_over, durability, &clock).unwrap();
        Self { clock, driven }
    }

    fn run_cycle(&mut self) {
        let end = self.driven.run_cycle();
        assert!(matches!(end, CycleEnd::Running), "{end:?}");
    }

    /// Creates what is sealed; returns the bytes of each segment.
    fn ship(&mut self) -> Vec<usize> {
        let mut shipped = Vec::new();
        while let Some(outgoing) = self.driven.outbox.first() {
            shipped.push(outgoing.bytes.len());
            self.driven.outbox.created(outgoing.number);
        }
        shipped
    }

    fn wait(&mut self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
        self.run_cycle();
    }

    fn send<T>(
        &mut self,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> oneshot::Receiver<Result<T, Failure>> {
        let (reply, answer) = oneshot::channel();
        self.driven.queue.push(request(reply)).unwrap();
        self.clock.advance(self.driven.engine.journal.pause());
        self.run_cycle();
        answer
    }

    fn observe_at(&mut self, keys: Vec<Key>, at: Option<u64>) -> Result<Observed, Failure> {
        let retry = None;
        let mut answer = self.send(|reply| Request::Observe {
            keys,
            at,
            retry,
            reply,
        });
        self.ship();
        self.run_cycle();
        answer.try_recv().unwrap_or(Err(Failure::NotDurable))
    }

    fn observe(&mut self, keys: Vec<Key>) -> Result<Vec<Seen>, Failure> {
        self.observe_at(keys, None).map(|observed| observed.seen)
    }

    fn counts(&mut self, keys: Vec<Key>) -> Result<Vec<u16>, Failure> {
        let mut answer = self.send(|reply| Request::Counts { keys, reply });
        answer.try_recv().unwrap_or(Err(Failure::NotDurable))
    }

    fn state(&self) -> WindowState {
        *self.driven.published.lock().unwrap()
    }
}

fn on_disk(dir: &tempfile::TempDir) -> Durability {
    Durability::Disk(StateDir::open_on(dir.path(), faulty_disk()).unwrap())
}

#[test]
fn segments_end_by_time_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let spec = WindowSpec {
        count: 10_000,
        ..SPEC
    };
    let mut owner = Shipped::start(spec, on_disk(&dir));
    let push = |owner: &mut Shipped, keys| {
        drop(owner.send(|reply| Request::Observe {
            keys,
            at: None,
            retry: None,
            reply,
        }));
    };
    push(&mut owner, keys(0..1));
    owner.wait(499);
    assert_eq!(owner.driven.outbox.first(), None);
    owner.wait(1);
    let shipped = owner.ship();
    assert_eq!(shipped.len(), 1);

    // Idle.
    owner.wait(4999);
    assert!(owner.ship().is_empty());
    owner.wait(1);
    assert_eq!(owner.ship(), [shipped[0] - 20 - 13 - 14]);

    // 14 bytes a change.
    for _ in 0..10 {
        push(&mut owner, keys(0..90_000));
    }
    owner.run_cycle();
    let shipped = owner.ship();
    assert_eq!(shipped.len(), 1);
    assert!(shipped[0] > 8 << 20, "{shipped:?}");
}

#[test]
fn store_that_is_slower_than_segments_become_due_keeps_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = Shipped::start(SPEC, on_disk(&dir));
    let put_time = Duration::from_millis(1200);
    let mut sent = None;
    for n in 0..300 {
        drop(owner.send(|reply| Request::Observe {
            keys: keys(n..n + 1),
            at: None,
            retry: None,
            reply,
        }));
        owner.clock.advance(Duration::from_millis(100));
        let now = owner.clock.uptime();
        if let Some((number, sent_at)) = sent
            && now - sent_at >= put_time
        {
            owner.driven.outbox.created(number);
            sent = None;
        }
        if sent.is_none() {
            let outgoing = owner.driven.outbox.first();
            sent = outgoing.map(|outgoing| (outgoing.number, now));
        }
        let age = owner.driven.shipping.progress().unshipped_age;
        assert!(age < 3 * put_time, "{age:?} at event {n}");
    }
}

/// A directory creates a segment in no time.
#[test]
fn requests_in_store_share_fifty_segments_per_second() {
    let mut owner = Shipped::start(SPEC, Durability::Store);
    owner.observe(keys(0..1)).unwrap();
    let mut answers = Vec::new();
    let mut segments = 0;
    let mut longest = 0;
    for millis in 1..=1000 {
        let (reply, answer) = oneshot::channel();
        let request = Request::Observe {
            keys: keys(millis..millis + 1),
            at: None,
            retry: None,
            reply,
        };
        owner.driven.queue.push(request).unwrap();
        answers.push((millis, answer));
        owner.wait(1);
        segments += owner.ship().len();
        owner.run_cycle();
        answers.retain_mut(|(_, answer)| answer.try_recv().is_err());
        let waited = answers.first().map_or(0, |(since, _)| millis - since);
        longest = longest.max(waited);
    }
    assert_eq!(segments, 50);
    assert!(longest < 20, "{longest} ms");
}

#[test]
fn segments_without_groups_are_sent_one_at_a_time() {
    let mut owner = Shipped::start(SPEC, Durability::Store);
    for _ in 0..5 {
        owner.wait(6000);
        // It is sent, and its answer comes late.
        owner.driven.outbox.first().unwrap();
    }
    assert_eq!(owner.ship().len(), 1);
    // The window has been away: the next one follows at once.
    assert!(!owner.driven.shipping.progress().is_fresh);
    owner.run_cycle();
    assert_eq!(owner.ship().len(), 1);
    assert!(owner.driven.shipping.progress().is_fresh);
}

#[test]
fn window_refuses_while_its_segments_are_not_created() {
    let dir = tempfile::tempdir().unwrap();
    for durability in [on_disk(&dir), Durability::Store] {
        let mut owner = Shipped::start(SPEC, durability);
        assert_eq!(owner.observe(keys(0..1)).unwrap(), [Seen::New]);
        owner.wait(9000);
        assert_eq!(owner.counts(keys(0..1)).unwrap(), [1]);
        owner.wait(1000);
        assert!(!owner.driven.shipping.progress().is_fresh);
        assert!(owner.counts(keys(0..1)).is_err());
        assert!(owner.observe_at(keys(0..2), None).is_err());
        // Nothing of it was counted.
        owner.ship();
        owner.run_cycle();
        owner.ship();
        assert_eq!(owner.counts(keys(0..2)).unwrap(), [1, 0]);
    }
}

/// A virtual machine was suspended, and its uptime with it.
#[test]
fn wall_clock_that_is_set_ahead_refuses_until_a_segment_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = Shipped::start(SPEC, on_disk(&dir));
    owner.observe(keys(0..1)).unwrap();
    owner.clock.set_wall_ahead(5);
    owner.observe(keys(1..2)).unwrap();
    owner.clock.set_wall_ahead(1);
    assert!(owner.observe_at(keys(2..3), None).is_err());
    assert!(
        owner.driven.shipping.progress().is_fresh,
        "a segment was due"
    );

    // The segment was sent before.
    owner.wait(5000);
    owner.driven.outbox.first().unwrap();
    owner.clock.set_wall_ahead(10);
    owner.ship();
    assert!(!owner.driven.shipping.progress().is_fresh);

    owner.run_cycle();
    assert_eq!(owner.ship().len(), 1, "the next one is due at once");
    assert_eq!(owner.observe(keys(2..3)).unwrap(), [Seen::New]);
    // Set back, it is not that of a machine that was away.
    owner.clock.set_wall_ahead(3_600_u64.wrapping_neg());
    owner.observe(keys(3..4)).unwrap();
}

/// Its next number may have been created by others, and removed since.
#[test]
fn owner_that_was_away_gives_the_window_up() {
    let observe = |owner: &mut Shipped| {
        owner.send(|reply| Request::Observe {
            keys: keys(0..1),
            at: None,
            retry: None,
            reply,
        })
    };
    // Before it sends a segment.
    let mut owner = Shipped::start(SPEC, Durability::Store);
    let mut answer = observe(&mut owner);
    owner.clock.advance(Duration::from_secs(601));
    assert_eq!(owner.driven.outbox.first(), None);
    assert!(matches!(owner.driven.run_cycle(), CycleEnd::Failed(_)));
    assert!(answer.try_recv().is_err());

    // While the store answers.
    let mut owner = Shipped::start(SPEC, Durability::Store);
    let mut answer = observe(&mut owner);
    let outgoing = owner.driven.outbox.first().unwrap();
    owner.clock.advance(Duration::from_secs(601));
    owner.driven.outbox.created(outgoing.number);
    assert!(matches!(owner.driven.run_cycle(), CycleEnd::Failed(_)));
    assert!(answer.try_recv().is_err());
}

/// The machine was copied while it ran: owner, table, events and ticks are the same.
#[test]
fn segments_of_a_copied_owner_differ() {
    let clock = Arc::new(TestClock::default());
    let replica = Replica::empty(shape(SPEC)).unwrap();
    let taken = replica.take_over_as(&Durability::Store, 1, clock.uptime());
    let taken = taken.unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for is_disk in [true, false] {
        let mut segments = Vec::new();
        for dir in &dirs {
            let durability = if is_disk {
                on_disk(dir)
            } else {
                Durability::Store
            };
            let take_over = TakeOver {
                number: taken.number,
                bytes: taken.bytes.clone(),
                rest: Vec::new(),
                made_at: clock.uptime(),
            };
            let replica = Replica::empty(shape(SPEC)).unwrap();
            let driven = Driven::start(replica, take_over, durability, &clock).unwrap();
            let clock = Arc::clone(&clock);
            let mut owner = Shipped { clock, driven };
            for _ in 0..2 {
                drop(owner.send(|reply| Request::Observe {
                    keys: keys(0..1),
                    at: None,
                    retry: None,
                    reply,
                }));
                owner.driven.engine.journal.begin_segment().unwrap();
                let outgoing = owner.driven.outbox.first().unwrap();
                owner.driven.outbox.created(outgoing.number);
                owner.run_cycle();
                segments.push(outgoing);
            }
        }
        for (segment, copied) in [(0, 2), (1, 3)] {
            let (segment, copied) = (&segments[segment], &segments[copied]);
            assert_eq!(segment.number, copied.number);
            // The group: 20 bytes, 13 of a frame, 14 of a change.
            let groups = segment.bytes.len() - 47;
            assert_eq!(segment.bytes[groups..], copied.bytes[groups..]);
            assert!(!segment.is_ours(&copied.bytes));
        }
    }
}

#[test]
fn answer_of_a_process_that_was_paused_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let disk = faulty_disk();
    let state = StateDir::open_on(dir.path(), Arc::clone(&disk) as _).unwrap();
    let mut owner = Shipped::start(SPEC, Durability::Disk(state));
    let clock = Arc::clone(&owner.clock);
    disk.pause_in_sync(Box::new(move || clock.advance(Duration::from_secs(60))));
    assert!(owner.observe(keys(0..1)).is_err());
    owner.wait(500);
    assert_eq!(owner.ship().len(), 1);
    // It is counted all the same.
    assert_eq!(owner.observe(keys(0..1)).unwrap(), [Seen::Duplicate(2)]);
}

#[test]
fn answers_of_the_store_are_sent_however_late_their_segment_is() {
    let mut owner = Shipped::start(SPEC, Durability::Store);
    let mut answer = owner.send(|reply| Request::Observe {
        keys: keys(0..1),
        at: None,
        retry: None,
        reply,
    });
    let outgoing = owner.driven.outbox.first().unwrap();
    // Others are refused meanwhile, and do not wait.
    owner.wait(20_000);
    assert!(owner.counts(keys(0..1)).is_err());
    assert!(answer.try_recv().is_err());
    owner.driven.outbox.created(outgoing.number);
    owner.run_cycle();
    assert_eq!(answer.try_recv().unwrap().unwrap().seen, [Seen::New]);
}

#[test]
fn table_is_due_after_a_long_log() {
    let mut owner = Shipped::start(SPEC, Durability::Store);
    for n in 0..9999 {
        assert!(!owner.state().is_table_due, "{n}");
        owner.clock.advance(Duration::from_secs(5));
        owner.run_cycle();
        owner.ship();
        owner.run_cycle();
    }
    owner.observe(keys(0..1)).unwrap();
    assert_eq!(owner.state().log_segments, 10_001);
    assert!(owner.state().is_table_due);

    let mut copy = owner.send(|reply| Request::Table { reply });
    let mut copy = copy.try_recv().unwrap().unwrap();
    assert_eq!(copy.number(), 10_002);
    owner.observe(keys(1..2)).unwrap();
    while !matches!(copy.try_piece(), Some(Piece::End)) {
        owner.run_cycle();
    }
    assert!(!owner.state().is_table_due);
    copy.completed();
    owner.run_cycle();
    assert_eq!(owner.state().log_segments, 1);
    assert!(!owner.state().is_table_due);
}

#[test]
fn table_ends_after_the_segments_of_its_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = Shipped::start(SPEC, on_disk(&dir));
    let mut copy = owner.send(|reply| Request::Table { reply });
    let mut copy = copy.try_recv().unwrap().unwrap();
    drop(owner.send(|reply| Request::Observe {
        keys: keys(0..100),
        at: None,
        retry: None,
        reply,
    }));
    let mut pieces = Vec::new();
    for _ in 0..20 {
        pieces.extend(copy.try_piece());
        owner.run_cycle();
    }
    // The head and three regions.
    assert_eq!(pieces.len(), 4);
    owner.wait(500);
    assert!(copy.try_piece().is_none());
    owner.ship();
    owner.run_cycle();
    assert!(matches!(copy.try_piece(), Some(Piece::End)));
}

#[test]
fn events_that_find_no_room_are_new_and_not_reported() {
    let spec = WindowSpec {
        capacity: 1,
        whole_keys: true,
        ..SPEC
    };
    let mut owner = Shipped::start(spec, Durability::Store);
    // Room for 32 keys.
    for is_repeated in [false, true] {
        let mut answer = owner.send(|reply| Request::Observe {
            keys: keys(0..100),
            at: None,
            retry: Some((RequestKey([1; 16]), [1; 16])),
            reply,
        });
        owner.ship();
        owner.run_cycle();
        let seen = answer.try_recv().unwrap().unwrap();
        assert_eq!(seen.seen, [Seen::New; 100]);
        assert_eq!(seen.is_repeated, is_repeated);
    }
    assert_eq!(owner.state().window.full, 68);
    assert_eq!(owner.driven.heard.lock().unwrap().reached.len(), 32);
}

#[test]
fn thresholds_and_departures_are_reported() {
    let spec = WindowSpec {
        count: 2,
        whole_keys: true,
        ..SPEC
    };
    let mut owner = Shipped::start(spec, Durability::Store);
    for _ in 0..5 {
        owner.observe(keys([1, 1, 2])).unwrap();
    }
    let heard = Arc::clone(&owner.driven.heard);
    let mut reached = std::mem::take(&mut heard.lock().unwrap().reached);
    reached.sort_unstable();
    let mut expected = vec![(1, key(1)), (1, key(2)), (2, key(1)), (2, key(2))];
    expected.sort_unstable();
    assert_eq!(reached, expected);
    let mut forgotten = owner.send(|reply| Request::Forget {
        keys: keys([1]),
        reply,
    });
    owner.ship();
    owner.run_cycle();
    assert_eq!(forgotten.try_recv().unwrap().unwrap(), [true]);
    owner.clock.advance_tick(129);
    while heard.lock().unwrap().left.len() < 2 {
        owner.run_cycle();
    }
    assert_eq!(heard.lock().unwrap().left, [key(1), key(2)]);
    owner.observe(keys([1])).unwrap();
    assert_eq!(heard.lock().unwrap().reached, [(1, key(1))]);
}

/// Day windows are swept seldom, and a device of yesterday may be erased today.
#[test]
fn day_leaves_memory_and_tables_at_midnight() {
    let spec = WindowSpec {
        whole_keys: true,
        lifetime: 1,
        ..SPEC
    };
    let mut owner = Shipped::start(spec, Durability::Store);
    owner.observe(keys([1, 2])).unwrap();
    let lists = owner.driven.heard.lock().unwrap().lists;
    owner.clock.advance_tick(1);
    let mut copy = owner.send(|reply| Request::Table { reply });
    let mut copy = copy.try_recv().unwrap().unwrap();
    let mut table = Vec::new();
    loop {
        owner.run_cycle();
        let Some(piece) = copy.try_piece() else {
            continue;
        };
        table.extend(piece.encode().unwrap());
        if matches!(piece, Piece::End) {
            break;
        }
    }
    while owner.driven.engine.sweep.remaining > 0 {
        owner.run_cycle();
    }
    assert_eq!(owner.driven.heard.lock().unwrap().lists, lists + 1);
    let mut replica = Replica::from_table(shape(spec), &table[..]).unwrap();
    for key in keys([1, 2]) {
        let window = &mut owner.driven.engine.window;
        assert!(!replica.window.holds(&key) && !window.holds(&key));
    }
}

#[test]
fn events_of_an_expired_tick_are_refused_and_leave_nothing() {
    let spec = WindowSpec {
        lifetime: 1,
        ..SPEC
    };
    let mut owner = Shipped::start(spec, Durability::Store);
    owner.clock.advance_tick(7);
    let refused = owner.observe_at(keys([1]), Some(6));
    assert_eq!(refused, Err(Failure::Late));
    assert_eq!(owner.counts(keys([1])).unwrap(), [0]);
    let seen = owner.observe_at(keys([1]), Some(7)).unwrap().seen;
    assert_eq!(seen, [Seen::New]);
    owner.clock.advance_tick(1);
    let refused = owner.observe_at(keys([2]), Some(7));
    assert_eq!(refused, Err(Failure::Late));
}

#[test]
fn request_key_of_another_request_is_refused() {
    let mut owner = Shipped::start(SPEC, Durability::Store);
    let mut ask = |request, numbers: std::ops::Range<u64>| {
        let mut answer = owner.send(|reply| Request::Observe {
            keys: keys(numbers),
            at: None,
            retry: Some((RequestKey([1; 16]), [request; 16])),
            reply,
        });
        owner.ship();
        owner.run_cycle();
        answer.try_recv().unwrap()
    };
    assert!(!ask(1, 0..3).unwrap().is_repeated);
    assert!(ask(1, 0..3).unwrap().is_repeated);
    assert_eq!(ask(2, 0..3), Err(Failure::RequestKeyReused));
    assert_eq!(ask(1, 0..4), Err(Failure::RequestKeyReused));
}
