//! The writer over a store in memory, with requests that wait before it begins: what is written together then is no chance.

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, Overlay};

use rtad_store::Store;
use rtad_store::write::StoreWriter;
use tokio::sync::oneshot;

use super::super::batch::Asked;
use super::super::telemetry::Telemetry;
use super::*;

const EVERY: Duration = Duration::from_millis(1);

fn audience() -> AudienceName {
    "a".parse().unwrap()
}

fn device(number: usize) -> DeviceKey {
    DeviceKey::of_canonical(&number.to_le_bytes())
}

/// Requests in a queue, and their answers.
struct Queue {
    telemetry: Arc<Telemetry>,
    sender: mpsc::Sender<Command>,
    writer: Writer,
}

impl Queue {
    fn new(store: &StoreWriter, max_batch: usize) -> Self {
        let telemetry = Arc::new(Telemetry::default());
        let (sender, receiver) = mpsc::channel(1000);
        let pace = Pace { every: EVERY, max_batch };
        let writer = Writer::new(
            Session::new(store.clone(), audience(), Arc::clone(&telemetry)),
            pace,
            receiver,
        );
        Self { telemetry, sender, writer }
    }

    fn ask(&self, op: Op, numbers: &[usize]) -> oneshot::Receiver<Result<Written, ApiError>> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked { op, keys: numbers.iter().map(|number| device(*number)).collect() };
        let waiting = self.telemetry.waiting();
        assert!(
            self.sender
                .try_send(Command::Write(Write { asked, reply, waiting, permit: None }))
                .is_ok()
        );
        answer
    }

    fn change(&self, change: AudienceChange) -> oneshot::Receiver<Result<u64, ApiError>> {
        let (reply, answer) = oneshot::channel();
        assert!(self.sender.try_send(Command::Change(change, reply)).is_ok());
        answer
    }

    /// Reads the filters first: who needs them waits for them, and is overtaken meanwhile.
    async fn warm(mut self) -> Self {
        let live = self.writer.session.store.store().live(&audience()).await.unwrap().unwrap();
        self.writer.members.load(self.writer.session.store.store(), &audience(), &live.current);
        self.writer.members.loaded().await.unwrap();
        self
    }

    /// Does all that was asked.
    async fn run(self) {
        drop(self.sender);
        self.writer.run().await;
    }
}

fn empty() -> AudienceChange {
    AudienceChange::Create(FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap(), 0.0001)
}

/// A store with an audience without devices, whose filters so have no false positives.
async fn store() -> StoreWriter {
    let store = StoreWriter::new(Store::in_memory()).unwrap();
    let queue = Queue::new(&store, 1000);
    let created = queue.change(empty());
    queue.run().await;
    assert_eq!(created.await.unwrap(), Ok(1));
    store
}

async fn members(store: &StoreWriter, count: usize) -> Vec<bool> {
    let live = store.store().live(&audience()).await.unwrap().unwrap();
    let manifest = store.store().manifest(&audience(), &live.current).await.unwrap();
    let overlay =
        store.store().overlay(&audience(), &live.current, &Overlay::default()).await.unwrap();
    let snapshot = Snapshot::assemble(manifest, Vec::new()).with_overlay(overlay);
    (0..count).map(|number| snapshot.contains(&device(number))).collect()
}

async fn sequence(store: &StoreWriter) -> u64 {
    store.store().live(&audience()).await.unwrap().unwrap().current.sequence
}

#[tokio::test]
async fn what_waits_is_written_together() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let answers: Vec<_> = (0..200).map(|number| queue.ask(Op::Add, &[number])).collect();
    queue.run().await;
    for answer in answers {
        let written = answer.await.unwrap().unwrap();
        assert_eq!((written.sequence, written.generation, written.entombed), (2, 1, 0));
    }
    assert_eq!(members(&store, 201).await.iter().filter(|member| **member).count(), 200);

    // So many keys at a time, and one request whatever it has.
    let queue = Queue::new(&store, 10);
    let answers: Vec<_> =
        (0..6).map(|number| queue.ask(Op::Remove, &[number, 10 + number, 20, 30])).collect();
    let large = queue.ask(Op::Remove, &(0..100).collect::<Vec<_>>());
    queue.run().await;
    let mut sequences = Vec::new();
    for answer in answers.into_iter().chain([large]) {
        sequences.push(answer.await.unwrap().unwrap().sequence);
    }
    assert_eq!(sequences, [3, 3, 4, 4, 5, 5, 6]);
}

#[tokio::test]
async fn whose_client_is_gone_is_not_written() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let first = queue.ask(Op::Add, &[1]);
    drop(queue.ask(Op::Add, &[2]));
    queue.run().await;
    first.await.unwrap().unwrap();
    assert_eq!(members(&store, 4).await, [false, true, false, false]);
}

#[tokio::test]
async fn what_changes_nothing_writes_nothing() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let answers =
        [queue.ask(Op::Add, &[]), queue.ask(Op::AddIfAbsent, &[]), queue.ask(Op::Lift, &[])];
    queue.run().await;
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap().sequence, 1);
    }
    assert_eq!(sequence(&store).await, 1);
}

/// Any requests at once, and the same one after the other.
#[tokio::test]
async fn together_each_is_answered_as_if_alone() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    const DEVICES: usize = 6;
    let (mut fewer, mut entombed, mut old) = (0, 0, 0);
    for round in 0..150 {
        let requests: Vec<(Op, Vec<usize>)> = (0..12)
            .map(|_| {
                let op = Op::ALL[[0, 1, 2, 2, 2, 3, 4][random(7)]];
                (op, (0..random(4)).map(|_| random(DEVICES)).collect())
            })
            .collect();
        let (together, alone) = (store().await, store().await);
        let queue = Queue::new(&together, 1000).warm().await;
        let answers: Vec<_> =
            requests.iter().map(|(op, numbers)| queue.ask(*op, numbers)).collect();
        queue.run().await;
        for ((op, numbers), answer) in requests.iter().zip(answers) {
            let queue = Queue::new(&alone, 1000);
            let expected = queue.ask(*op, numbers);
            queue.run().await;
            let (found, expected) =
                (answer.await.unwrap().unwrap(), expected.await.unwrap().unwrap());
            assert_eq!(
                (&found.new, found.entombed),
                (&expected.new, expected.entombed),
                "round {round}: {op:?} of {numbers:?} in {requests:?}"
            );
            entombed += found.entombed;
            old += found.new.iter().filter(|new| !**new).count();
        }
        let same = async |when: &str| {
            let found = (members(&together, DEVICES).await, members(&alone, DEVICES).await);
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
    assert!(fewer > 140 && entombed > 100 && old > 100, "{fewer} {entombed} {old}");
}

/// Two processes, as it were.
#[tokio::test]
async fn of_two_writers_at_once_each_device_is_new_to_one() {
    for _ in 0..20 {
        let store = store().await;
        let queues = [Queue::new(&store, 7), Queue::new(&store, 7)];
        let ask = |queue: &Queue| {
            (0..60).map(|n| queue.ask(Op::AddIfAbsent, &[n, n + 1])).collect::<Vec<_>>()
        };
        let answers = [ask(&queues[0]), ask(&queues[1])];
        let [first, second] = queues;
        tokio::join!(first.run(), second.run());
        let mut new = [0; 61];
        for (n, answer) in answers.into_iter().flat_map(|answers| answers.into_iter().enumerate()) {
            for (offset, is_new) in answer.await.unwrap().unwrap().new.into_iter().enumerate() {
                new[n + offset] += u32::from(is_new);
            }
        }
        assert_eq!(new, [1; 61]);
    }
}

#[tokio::test]
async fn orders_have_their_turn_and_decide_on_what_comes_after() {
    let store = store().await;
    let queue = Queue::new(&store, 1000);
    let live = queue.ask(Op::Add, &[1]);
    let disabled = queue.change(AudienceChange::State(State::Disabled));
    let again = queue.change(AudienceChange::State(State::Disabled));
    let refused = queue.ask(Op::Add, &[2]);
    let expires = queue.change(AudienceChange::Expires(Some(7)));
    let enabled = queue.change(AudienceChange::State(State::Live));
    let asked = queue.ask(Op::AddIfAbsent, &[1, 2, 3]);
    let exists = queue.change(empty());
    queue.run().await;
    assert_eq!(live.await.unwrap().unwrap().sequence, 2);
    assert_eq!((disabled.await.unwrap(), again.await.unwrap()), (Ok(3), Ok(3)));
    assert_eq!(refused.await.unwrap().unwrap_err(), ApiError::Disabled);
    assert_eq!((expires.await.unwrap(), enabled.await.unwrap()), (Ok(4), Ok(5)));
    assert_eq!(asked.await.unwrap().unwrap().new, [false, true, true]);
    assert_eq!(exists.await.unwrap(), Err(ApiError::Exists));

    let queue = Queue::new(&store, 1000);
    let waiting = queue.ask(Op::AddIfAbsent, &[4]);
    let deleted = queue.change(AudienceChange::Delete);
    let late = queue.ask(Op::Add, &[5]);
    let disabled = queue.change(AudienceChange::State(State::Disabled));
    let created = queue.change(empty());
    let asked = queue.ask(Op::AddIfAbsent, &[1]);
    queue.run().await;
    // It waited for filters when the audience went.
    assert_eq!(waiting.await.unwrap().unwrap_err(), ApiError::Deleted);
    let deleted = deleted.await.unwrap().unwrap();
    assert_eq!(late.await.unwrap().unwrap_err(), ApiError::Deleted);
    assert_eq!(disabled.await.unwrap(), Err(ApiError::Deleted));
    assert_eq!(created.await.unwrap(), Ok(deleted + 1));
    assert_eq!(asked.await.unwrap().unwrap().new, [true], "nothing of before is there");
}

#[tokio::test]
async fn of_what_was_never_published_nothing_is_kept() {
    let store = StoreWriter::new(Store::in_memory()).unwrap();
    let queue = Queue::new(&store, 1000);
    let (write, order) = (queue.ask(Op::AddIfAbsent, &[1]), queue.change(AudienceChange::Delete));
    let sender = queue.sender.clone();
    // It ends though somebody could still ask.
    queue.run().await;
    assert!(sender.is_closed());
    assert_eq!(write.await.unwrap().unwrap_err(), ApiError::UnknownAudience);
    assert_eq!(order.await.unwrap(), Err(ApiError::UnknownAudience));
}
