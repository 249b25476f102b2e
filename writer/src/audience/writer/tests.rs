//! Writer task with an in-memory store. Requests are queued before it starts, so batches are
//! deterministic.

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, GenerationFacts, Overlay};

use rtad_store::Store;
use rtad_store::write::{Change, StoreWriter};
use testkit::client::metric;
use testkit::faulty_store::FaultyStore;
use tokio::sync::oneshot;

use super::super::batch::WriteRequest;
use super::*;
use crate::telemetry::Telemetry;

const EVERY: Duration = Duration::from_millis(1);

fn audience() -> AudienceName {
    "a".parse().unwrap()
}

fn device(number: usize) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

/// A writer and its queue.
struct Queue {
    telemetry: Arc<Telemetry>,
    sender: mpsc::Sender<Command>,
    writer: Writer,
}

impl Queue {
    fn new(store: &StoreWriter, max_batch: usize) -> Self {
        let telemetry = Arc::new(Telemetry::default());
        let (sender, receiver) = mpsc::channel(1000);
        let limits = WriteLimits {
            every: EVERY,
            max_batch,
        };
        let writer = Writer::new(
            Session::new(store.clone(), audience(), Arc::clone(&telemetry)),
            limits,
            receiver,
        );
        Self {
            telemetry,
            sender,
            writer,
        }
    }

    fn ask(&self, op: Op, numbers: &[usize]) -> oneshot::Receiver<Result<Written, ApiError>> {
        self.ask_for(None, op, numbers)
    }

    /// Asks for a change of a window, if there is one.
    fn ask_for(
        &self,
        window: Option<&str>,
        op: Op,
        numbers: &[usize],
    ) -> oneshot::Receiver<Result<Written, ApiError>> {
        let (reply, answer) = oneshot::channel();
        let keys = numbers.iter().map(|number| device(*number)).collect();
        let request = WriteRequest {
            op,
            keys,
            values: Vec::new(),
            window: window.map(|name| name.parse().unwrap()),
        };
        let waiting = self.telemetry.waiting();
        assert!(
            self.sender
                .try_send(Command::Write(Write {
                    request,
                    reply,
                    waiting,
                    permit: None
                }))
                .is_ok()
        );
        answer
    }

    fn change(&self, change: AudienceChange) -> oneshot::Receiver<Result<u64, ApiError>> {
        let (reply, answer) = oneshot::channel();
        assert!(self.sender.try_send(Command::Change(change, reply)).is_ok());
        answer
    }

    /// Loads the filters first; otherwise later requests overtake those that need the filters.
    async fn warm(mut self) -> Self {
        let live = self
            .writer
            .session
            .store
            .store()
            .live(&audience())
            .await
            .unwrap()
            .unwrap();
        self.writer.members.load(
            self.writer.session.store.store(),
            &audience(),
            &live.current,
        );
        self.writer.members.loaded().await.unwrap();
        self
    }

    /// Runs all queued requests.
    async fn run(self) {
        drop(self.sender);
        self.writer.run().await;
    }
}

fn filter() -> FilterSpec {
    FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap()
}

fn empty() -> AudienceChange {
    AudienceChange::Create(filter(), 0.0001)
}

/// A store with an empty audience, whose filters have no false positives.
async fn store() -> StoreWriter {
    over(Store::in_memory()).await
}

/// The same over a store that fails.
async fn faulty_store() -> (Arc<FaultyStore>, StoreWriter) {
    let faulty = Arc::new(FaultyStore::default());
    let store = over(Store::over(Arc::clone(&faulty) as _, "faulty")).await;
    (faulty, store)
}

async fn over(store: Store) -> StoreWriter {
    let store = StoreWriter::new(store).unwrap();
    let queue = Queue::new(&store, 1000);
    let created = queue.change(empty());
    queue.run().await;
    assert_eq!(created.await.unwrap(), Ok(1));
    store
}

async fn members(store: &StoreWriter, count: usize) -> Vec<bool> {
    let live = store.store().live(&audience()).await.unwrap().unwrap();
    let manifest = store
        .store()
        .manifest(&audience(), &live.current.live_entry())
        .await
        .unwrap();
    let overlay = store
        .store()
        .overlay(&audience(), &live.current, &Overlay::default())
        .await
        .unwrap();
    let snapshot = Snapshot::assemble(manifest, Vec::new()).with_overlay(overlay);
    (0..count)
        .map(|number| snapshot.contains(&device(number)))
        .collect()
}

async fn sequence(store: &StoreWriter) -> u64 {
    store
        .store()
        .live(&audience())
        .await
        .unwrap()
        .unwrap()
        .current
        .sequence
}

#[tokio::test]
async fn waiting_requests_are_coalesced() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let answers: Vec<_> = (0..200)
        .map(|number| queue.ask(Op::Add, &[number]))
        .collect();
    queue.run().await;
    for answer in answers {
        let written = answer.await.unwrap().unwrap();
        assert_eq!(
            (
                written.after.sequence,
                written.after.generation,
                written.entombed.len(),
            ),
            (2, 1, 0)
        );
    }
    assert_eq!(
        members(&store, 201)
            .await
            .iter()
            .filter(|member| **member)
            .count(),
        200
    );

    // Batches up to the key limit; a single request may exceed it.
    let queue = Queue::new(&store, 10);
    let answers: Vec<_> = (0..6)
        .map(|number| queue.ask(Op::Remove, &[number, 10 + number, 20, 30]))
        .collect();
    let large = queue.ask(Op::Remove, &(0..100).collect::<Vec<_>>());
    queue.run().await;
    let mut sequences = Vec::new();
    for answer in answers.into_iter().chain([large]) {
        sequences.push(answer.await.unwrap().unwrap().after.sequence);
    }
    assert_eq!(sequences, [3, 3, 4, 4, 5, 5, 6]);
}

#[tokio::test]
async fn requests_answered_before_their_write_are_not_written() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let first = queue.ask(Op::Add, &[1]);
    drop(queue.ask(Op::Add, &[2]));
    queue.run().await;
    first.await.unwrap().unwrap();
    assert_eq!(members(&store, 4).await, [false, true, false, false]);
}

#[tokio::test]
async fn empty_requests_write_nothing() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let answers = [
        queue.ask(Op::Add, &[]),
        queue.ask(Op::AddIfAbsent, &[]),
        queue.ask(Op::Lift, &[]),
    ];
    queue.run().await;
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().after.sequence, 1);
    }
    assert_eq!(sequence(&store).await, 1);
}

/// Another process lifts the tombstone between two identical requests.
#[tokio::test]
async fn repeated_tombstone_is_checked_against_the_store() {
    let store = store().await;
    let mut queue = Queue::new(&store, 1000);
    let idle = Queue::new(&store, 1000).writer;
    tokio::spawn(std::mem::replace(&mut queue.writer, idle).run());
    let write = async |op| queue.ask(op, &[1]).await.unwrap().unwrap();
    let mut other = store.ledger(&audience()).await.unwrap();
    let mut lift = Change::default();
    lift.lift(device(1));
    write(Op::Add).await;
    assert_eq!(write(Op::AddIfAbsent).await.new, [false]);
    for round in 0..3 {
        let written = write(Op::Tombstone).await;
        assert_eq!(
            written.after.sequence,
            sequence(&store).await,
            "round {round}"
        );
        assert_eq!(members(&store, 2).await, [false, false], "round {round}");
        other.refresh().await.unwrap();
        other.append(lift.clone()).await.unwrap();
    }
    // The same for an `AddIfAbsent` beside a lift without effect.
    let mut remove = Change::default();
    remove.remove(device(1));
    write(Op::Lift).await;
    other.refresh().await.unwrap();
    other.append(remove).await.unwrap();
    let (lifted, added) = (queue.ask(Op::Lift, &[1]), queue.ask(Op::AddIfAbsent, &[1]));
    lifted.await.unwrap().unwrap();
    assert_eq!(added.await.unwrap().unwrap().new, [true]);
}

/// Random requests, coalesced and one by one.
#[tokio::test]
async fn coalesced_answers_equal_sequential_answers() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    const DEVICES: usize = 6;
    let (mut fewer, mut entombed, mut old) = (0, 0, 0);
    for round in 0..60 {
        let requests: Vec<(Op, Vec<usize>)> = (0..12)
            .map(|_| {
                let op = Op::ALL[[0, 1, 2, 2, 2, 3, 4][random(7)]];
                (op, (0..random(4)).map(|_| random(DEVICES)).collect())
            })
            .collect();
        let (together, alone) = (store().await, store().await);
        let queue = Queue::new(&together, 1000).warm().await;
        let answers: Vec<_> = requests
            .iter()
            .map(|(op, numbers)| queue.ask(*op, numbers))
            .collect();
        queue.run().await;
        for ((op, numbers), answer) in requests.iter().zip(answers) {
            let queue = Queue::new(&alone, 1000);
            let expected = queue.ask(*op, numbers);
            queue.run().await;
            let (found, expected) = (
                answer.await.unwrap().unwrap(),
                expected.await.unwrap().unwrap(),
            );
            assert_eq!(
                (&found.new, &found.entombed),
                (&expected.new, &expected.entombed),
                "round {round}: {op:?} of {numbers:?} in {requests:?}"
            );
            entombed += found.entombed.len();
            old += found.new.iter().filter(|new| !**new).count();
        }
        let same = async |when: &str| {
            let found = (
                members(&together, DEVICES).await,
                members(&alone, DEVICES).await,
            );
            assert_eq!(found.0, found.1, "round {round}, {when}: {requests:?}");
        };
        same("with tombstones").await;
        fewer += u32::from(sequence(&together).await < sequence(&alone).await);
        for store in [&together, &alone] {
            let queue = Queue::new(store, 1000);
            let lifted = queue.ask(Op::Lift, &(0..DEVICES).collect::<Vec<_>>());
            queue.run().await;
            lifted.await.unwrap().unwrap();
        }
        same("without").await;
    }
    assert!(
        fewer > 55 && entombed > 40 && old > 40,
        "{fewer} {entombed} {old}"
    );
}

/// Two writers of one store, as in two processes.
#[tokio::test]
async fn concurrent_writers_report_each_device_as_new_once() {
    for _ in 0..20 {
        let store = store().await;
        let queues = [Queue::new(&store, 7), Queue::new(&store, 7)];
        let ask = |queue: &Queue| {
            (0..60)
                .map(|n| queue.ask(Op::AddIfAbsent, &[n, n + 1]))
                .collect::<Vec<_>>()
        };
        let answers = [ask(&queues[0]), ask(&queues[1])];
        let [first, second] = queues;
        tokio::join!(first.run(), second.run());
        let mut new = [0; 61];
        for (n, answer) in answers
            .into_iter()
            .flat_map(|answers| answers.into_iter().enumerate())
        {
            for (offset, is_new) in answer.await.unwrap().unwrap().new.into_iter().enumerate() {
                new[n + offset] += u32::from(is_new);
            }
        }
        assert_eq!(new, [1; 61]);
    }
}

#[tokio::test]
async fn changes_and_writes_are_applied_in_order() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let live = queue.ask(Op::Add, &[1]);
    let disabled = queue.change(AudienceChange::State(State::Disabled));
    let again = queue.change(AudienceChange::State(State::Disabled));
    let refused = queue.ask(Op::Add, &[2]);
    let expires = queue.change(AudienceChange::Expires(Some(7)));
    let enabled = queue.change(AudienceChange::State(State::Live));
    let request = queue.ask(Op::AddIfAbsent, &[1, 2, 3]);
    let exists = queue.change(empty());
    queue.run().await;
    assert_eq!(live.await.unwrap().unwrap().after.sequence, 2);
    assert_eq!(
        (disabled.await.unwrap(), again.await.unwrap()),
        (Ok(3), Ok(3))
    );
    assert_eq!(refused.await.unwrap().unwrap_err(), ApiError::Disabled);
    assert_eq!(
        (expires.await.unwrap(), enabled.await.unwrap()),
        (Ok(4), Ok(5))
    );
    assert_eq!(request.await.unwrap().unwrap().new, [false, true, true]);
    assert_eq!(exists.await.unwrap(), Err(ApiError::Exists));

    let mut queue = Queue::new(&store, 1000);
    queue.writer.members.hold();
    let waiting = queue.ask(Op::AddIfAbsent, &[4]);
    let deleted = queue.change(AudienceChange::Delete);
    let late = queue.ask(Op::Add, &[5]);
    let disabled = queue.change(AudienceChange::State(State::Disabled));
    let created = queue.change(empty());
    let request = queue.ask(Op::AddIfAbsent, &[1]);
    queue.run().await;
    // The write waited for filters when the audience was deleted.
    assert_eq!(waiting.await.unwrap().unwrap_err(), ApiError::Deleted);
    let deleted = deleted.await.unwrap().unwrap();
    assert_eq!(late.await.unwrap().unwrap_err(), ApiError::Deleted);
    assert_eq!(disabled.await.unwrap(), Err(ApiError::Deleted));
    assert_eq!(created.await.unwrap(), Ok(deleted + 1));
    assert_eq!(
        request.await.unwrap().unwrap().new,
        [true],
        "a recreated audience is empty"
    );
}

#[tokio::test]
async fn task_of_a_nonexistent_audience_ends() {
    let store = StoreWriter::new(Store::in_memory()).unwrap();
    let queue = Queue::new(&store, 1000);
    let (write, order) = (
        queue.ask(Op::AddIfAbsent, &[1]),
        queue.change(AudienceChange::Delete),
    );
    let sender = queue.sender.clone();
    // The task ends although a sender still exists.
    queue.run().await;
    assert!(sender.is_closed());
    assert_eq!(write.await.unwrap().unwrap_err(), ApiError::UnknownAudience);
    assert_eq!(order.await.unwrap(), Err(ApiError::UnknownAudience));
}

/// The answer could not say whether the devices lost their values.
#[tokio::test]
async fn additions_are_refused_without_the_manifest() {
    let (faulty, store) = faulty_store().await;
    faulty.limit_reads(Some(("/manifests/", 0)));
    let queue = Queue::new(&store, 1000);
    let added = queue.ask(Op::Add, &[1]);
    queue.run().await;
    assert_eq!(added.await.unwrap().unwrap_err(), ApiError::Store);
    assert_eq!(sequence(&store).await, 1);
}

#[tokio::test]
async fn loaded_filters_are_used_while_other_requests_wait() {
    let store = store().await;
    let queue = Queue::new(&store, 1);
    let absent = queue.ask(Op::AddIfAbsent, &[1000]);
    let others: Vec<_> = (0..200)
        .map(|number| queue.ask(Op::Add, &[number]))
        .collect();
    queue.run().await;
    let absent = absent.await.unwrap().unwrap().after.sequence;
    let mut last = 0;
    for other in others {
        last = other.await.unwrap().unwrap().after.sequence;
    }
    assert!(absent < last, "{absent} {last}");
}

#[tokio::test]
async fn unanswered_request_that_waits_for_filters_gives_its_permit_back() {
    let store = store().await;
    let mut queue = Queue::new(&store, 1000);
    queue.writer.members.hold();
    let idle = Queue::new(&store, 1000).writer;
    let absent = queue.ask(Op::AddIfAbsent, &[1]);
    tokio::spawn(std::mem::replace(&mut queue.writer, idle).run());
    let requests = || metric(&queue.telemetry.exporter.render(), "rtad_writer_queue");
    queue.ask(Op::Add, &[2]).await.unwrap().unwrap();
    assert_eq!(requests(), 1.0);
    drop(absent);
    queue.ask(Op::Add, &[3]).await.unwrap().unwrap();
    assert_eq!(requests(), 0.0);
}

#[tokio::test]
async fn members_are_changed_by_the_window_of_the_generation_alone() {
    for source in [None, Some("w")] {
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        let facts = GenerationFacts {
            from_window: source.map(|name| name.parse().unwrap()),
            ..GenerationFacts::built_now_by("test")
        };
        let base = store.base(&audience()).await.unwrap();
        let publication = store.publish(base).await.unwrap();
        let published = publication.commit_keys(Vec::new(), filter(), 0.0001, facts);
        published.await.unwrap();

        for window in [None, Some("w"), Some("v")] {
            let queue = Queue::new(&store, 1000);
            let changes = [Op::Add, Op::Remove].map(|op| queue.ask_for(window, op, &[1]));
            let tombstone = queue.ask_for(window, Op::Tombstone, &[2]);
            queue.run().await;
            for change in changes {
                let refusal = change.await.unwrap().err();
                let expected = (window != source).then_some(ApiError::Owned);
                assert_eq!(refusal, expected, "{source:?} {window:?}");
            }
            tombstone.await.unwrap().unwrap();
        }
    }
}
