//! Windows over a store and machines that fail, compared with a map.
//!
//! The store has one history of groups. The simulation notes the requests of each group when an
//! owner writes it, so the map of any owner is made of the groups in the store, in their order, and
//! compared with its answers. Of each answer it checks what was promised:
//!
//! - `store`: the group of the answer is in a created segment;
//! - both: nobody can have taken the window over before an answer that is in no segment;
//! - `disk`: acknowledged groups that are in no segment are younger than the limit, and a start with
//!   the directory brings all of them into the store.
//!
//! A failure names its seed.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::super::*;
use super::driven::{CycleEnd, Driven, TestClock, faulty_disk};
use super::model::{Ask, KEYS, Model, Told};
use super::{SPEC, shape};
use crate::disk::tests::FaultyDisk;
use crate::image::Piece;
use crate::outbox::{MAX_UNSHIPPED_TIME, MIN_REMOVED_AGE, TAKE_OVER_AFTER};
use crate::segment::Segment;
use crate::table_copy::TableCopy;
use crate::{Durability, OpenError, Replica, Seen, StateDir, TakeOver, WindowSpec};

/// Sequence of numbers that its seed determines: SplitMix64.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    fn is_one_of(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A request of a group, with the tick that it has.
type Asked = (Ask, u64);
/// Identity of a group: its number, and its payload.
type GroupId = (u64, Vec<u8>);

const ANOTHER_OWNER: &str = "another owner";

/// Objects of the store, and when they became visible.
#[derive(Default)]
struct Store {
    /// Every segment that was ever created.
    segments: BTreeMap<u64, (Bytes, Duration)>,
    /// The first one that is not removed.
    first: u64,
    /// Segments that were created under a number of removed ones.
    stray: BTreeMap<u64, Bytes>,
    tables: BTreeMap<u64, Vec<u8>>,
    /// Puts that arrive later than their answer.
    late: Vec<(u64, Bytes)>,
    /// Puts that are lost before the store is back.
    lost: u64,
}

impl Store {
    /// Creates a segment, if there is none of its number.
    fn create(&mut self, number: u64, bytes: &Bytes, now: Duration) -> bool {
        if number < self.first {
            let is_free = !self.stray.contains_key(&number);
            if is_free {
                self.stray.insert(number, bytes.clone());
            }
            return is_free;
        }
        if self.segments.contains_key(&number) {
            return false;
        }
        assert_eq!(number, self.segments.len() as u64 + 1, "a gap in the log");
        self.segments.insert(number, (bytes.clone(), now));
        true
    }

    fn read(&self, number: u64) -> Option<&Bytes> {
        if number < self.first {
            return self.stray.get(&number);
        }
        self.segments.get(&number).map(|(bytes, _)| bytes)
    }

    /// Number of the newest table, or zero.
    fn newest_table(&self) -> u64 {
        self.tables
            .last_key_value()
            .map_or(0, |(number, _)| *number)
    }

    fn has_group(&self, group: &GroupId) -> bool {
        self.segments
            .values()
            .any(|(bytes, _)| groups_of(bytes).contains(group))
    }
}

fn groups_of(segment: &[u8]) -> Vec<GroupId> {
    let segment = Segment::read("segment", segment).unwrap();
    assert!(segment.rest.is_empty());
    let groups = segment.groups.iter();
    groups
        .map(|group| (group.number, group.payload.to_vec()))
        .collect()
}

/// Answer of the store to a put.
enum Put {
    Created,
    Exists,
    Unknown,
}

/// A request whose answer was not compared yet.
struct Awaited {
    reply: Receiver,
    told: Told,
}

enum Receiver {
    Observed(oneshot::Receiver<Result<Observed, Failure>>),
    Forgotten(oneshot::Receiver<Result<Vec<bool>, Failure>>),
    Counts(oneshot::Receiver<Result<Vec<u16>, Failure>>),
}

/// State of an answer.
#[derive(PartialEq)]
enum Answer {
    Open,
    Refused,
    Told(Told),
}

impl Receiver {
    fn answer(&mut self) -> Answer {
        match self {
            Self::Observed(reply) => answer_of(reply, |it| Told::Seen(it.seen, it.is_repeated)),
            Self::Forgotten(reply) => answer_of(reply, Told::Forgotten),
            Self::Counts(reply) => answer_of(reply, Told::Counts),
        }
    }
}

fn answer_of<T>(
    reply: &mut oneshot::Receiver<Result<T, Failure>>,
    told: impl Fn(T) -> Told,
) -> Answer {
    match reply.try_recv() {
        Ok(answer) => Answer::Told(told(answer.unwrap())),
        Err(oneshot::error::TryRecvError::Empty) => Answer::Open,
        Err(oneshot::error::TryRecvError::Closed) => Answer::Refused,
    }
}

/// A machine with a process.
struct Node {
    clock: Arc<TestClock>,
    dir: TempDir,
    disk: Arc<FaultyDisk>,
    /// Groups that were acknowledged from this directory, and when they were written. The newest
    /// owner of the directory has all of them.
    acknowledged: BTreeMap<u64, (GroupId, Duration)>,
    /// Owners of this directory, since it had all acknowledged groups.
    owners: Vec<u64>,
    process: Process,
    /// Steps for which the process is stopped.
    stopped: u64,
}

enum Process {
    Down,
    Standby {
        replica: Box<Replica>,
        durability: Durability,
        seen_at: Duration,
        /// A take-over that was sent, and perhaps not created.
        sent: Option<TakeOver>,
    },
    Owner(Box<Owner>),
}

struct Owner {
    driven: Driven,
    id: u64,
    model: Model,
    /// Requests that the engine has not taken.
    queued: Vec<(Ask, Receiver)>,
    /// Requests of the group that was taken last.
    awaited: Vec<Awaited>,
    /// The group of `awaited`, if it has changes.
    group: Option<GroupId>,
    /// Groups that are written, and when.
    written: BTreeMap<u64, (GroupId, Duration)>,
    table: Option<(TableCopy, Vec<u8>)>,
}

struct Simulation {
    random: Random,
    spec: WindowSpec,
    is_disk: bool,
    store: Store,
    /// All machines have one clock of time, but their wall clocks differ.
    clock: Arc<TestClock>,
    nodes: Vec<Node>,
    asked: HashMap<GroupId, Vec<Asked>>,
    /// Answers, take-overs and tables: a simulation without them checks nothing.
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    answers: u64,
    refused: u64,
    take_overs: u64,
    tails: u64,
    tables: u64,
    releases: u64,
    lost_windows: u64,
    failed_logs: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let count = 1 + random.below(3) as u16;
        let lifetime = [1, 5, 129][random.below(3) as usize];
        let spec = match random.below(3) {
            0 => WindowSpec {
                fpr: 1e-5,
                count: 1,
                lifetime,
                ..SPEC
            },
            1 => WindowSpec {
                count,
                lifetime,
                ..SPEC
            },
            _ => WindowSpec {
                count,
                lifetime,
                whole_keys: true,
                ..SPEC
            },
        };
        let clock = Arc::new(TestClock::default());
        let mut simulation = Self {
            is_disk: random.is_one_of(2),
            random,
            spec,
            store: Store {
                first: 1,
                ..Store::default()
            },
            nodes: Vec::new(),
            asked: HashMap::new(),
            counts: Counts::default(),
            clock,
        };
        for _ in 0..3 {
            simulation.nodes.push(Node {
                clock: Arc::clone(&simulation.clock),
                dir: tempfile::tempdir().unwrap(),
                disk: faulty_disk(),
                acknowledged: BTreeMap::new(),
                owners: Vec::new(),
                process: Process::Down,
                stopped: 0,
            });
        }
        simulation
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let stopped = &mut self.nodes[node].stopped;
            if *stopped > 0 {
                *stopped -= 1;
            } else {
                self.step(node);
            }
        }
    }

    fn step(&mut self, node: usize) {
        match self.random.below(100) {
            0..4 => {
                let mut time =
                    [100, 200, 600, 600, 600, 2_000, 6_000][self.random.below(7) as usize];
                if self.random.is_one_of(8) {
                    // A standby takes over; or segments are old enough to be removed.
                    time = [12_000, 16_000, 2_000_000][self.random.below(3) as usize];
                }
                self.clock.advance(Duration::from_millis(time));
            }
            4 if self.random.is_one_of(4) => {
                self.nodes[node].stopped = self.random.below(120);
            }
            4..7 => self.clock.advance_tick(self.random.below(4)),
            7 => self.clock.advance_tick(100 + self.random.below(300)),
            8 if self.random.is_one_of(6) => self.store.lost = self.random.below(12),
            8..10 => self.late_put_arrives(),
            _ => match &self.nodes[node].process {
                Process::Down => self.step_down(node),
                Process::Standby { .. } => self.step_standby(node),
                Process::Owner(_) => self.step_owner(node),
            },
        }
    }

    fn late_put_arrives(&mut self) {
        if let Some((number, bytes)) = self.store.late.pop()
            && number <= self.store.segments.len() as u64 + 1
        {
            self.store.create(number, &bytes, self.clock.uptime());
        }
    }

    /// A put with the faults of a store.
    fn put(&mut self, number: u64, bytes: &Bytes) -> Put {
        let now = self.clock.uptime();
        if self.store.lost > 0 {
            self.store.lost -= 1;
            return Put::Unknown;
        }
        match self.random.below(10) {
            // Lost.
            0 => Put::Unknown,
            // It arrives later.
            1 => {
                self.store.late.push((number, bytes.clone()));
                Put::Unknown
            }
            // The answer is lost, or is that of a second attempt of the client.
            2 => {
                self.store.create(number, bytes, now);
                Put::Unknown
            }
            3 => {
                self.store.create(number, bytes, now);
                Put::Exists
            }
            _ if self.store.create(number, bytes, now) => Put::Created,
            _ => Put::Exists,
        }
    }

    fn step_down(&mut self, node: usize) {
        if self.random.is_one_of(8) {
            return self.copy_disk(node);
        }
        self.start(node);
    }

    /// The machine gets a copy of the disk of another one, whose process may run.
    fn copy_disk(&mut self, node: usize) {
        let other = self.random.below(self.nodes.len() as u64) as usize;
        if other == node || !self.is_disk {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(self.nodes[other].dir.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        let acknowledged = self.nodes[other].acknowledged.clone();
        let owners = self.nodes[other].owners.clone();
        let node = &mut self.nodes[node];
        node.dir = dir;
        node.disk = faulty_disk();
        node.acknowledged = acknowledged;
        node.owners = owners;
    }

    fn start(&mut self, node: usize) {
        let durability = if self.is_disk {
            let disk = Arc::clone(&self.nodes[node].disk);
            Durability::Disk(StateDir::open_on(self.nodes[node].dir.path(), disk).unwrap())
        } else {
            Durability::Store
        };
        self.nodes[node].process = Process::Standby {
            replica: Box::new(self.load()),
            durability,
            seen_at: self.clock.uptime(),
            sent: None,
        };
    }

    /// A replica of the newest table.
    fn load(&self) -> Replica {
        match self.store.tables.last_key_value() {
            Some((number, table)) => {
                let replica = Replica::from_table(shape(self.spec), &table[..]).unwrap();
                assert_eq!(replica.next_segment(), *number);
                replica
            }
            None => Replica::empty(shape(self.spec)).unwrap(),
        }
    }

    fn step_standby(&mut self, node: usize) {
        if self.random.is_one_of(20) {
            return self.crash(node);
        }
        let process = mem::replace(&mut self.nodes[node].process, Process::Down);
        let Process::Standby {
            mut replica,
            durability,
            mut seen_at,
            mut sent,
        } = process
        else {
            return;
        };
        let now = self.clock.uptime();

        let is_created = match &sent {
            None => false,
            Some(take_over) => match self.store.read(take_over.number) {
                Some(found) if take_over.is_ours(found) => true,
                Some(_) => {
                    sent = None;
                    false
                }
                None => {
                    let (number, bytes) = (take_over.number, take_over.bytes.clone());
                    matches!(self.put(number, &bytes), Put::Created)
                }
            },
        };
        if let Some(take_over) = sent.take_if(|_| is_created) {
            if self.store.newest_table() > take_over.number {
                // It was away while its number was removed.
                return;
            }
            return self.begin_owner(node, *replica, take_over, durability);
        }

        if sent.is_none() {
            // It may have been away, and its next segment was removed.
            if replica.next_segment() < self.store.newest_table() {
                *replica = self.load();
            }
            while let Some(bytes) = self.store.read(replica.next_segment()) {
                replica.apply(bytes).unwrap();
                seen_at = now;
            }
            let is_due = now - seen_at > TAKE_OVER_AFTER
                || replica.may_take_over_at_once(&durability).unwrap();
            if is_due {
                let id = self.random.number();
                match replica.take_over_as(&durability, id, now) {
                    Ok(take_over) => {
                        self.note_take_over(node, replica.owner(), id);
                        sent = Some(take_over);
                    }
                    Err(OpenError::Io { .. }) => return,
                    // A crash came between the first segment and its local log.
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.nodes[node].process = Process::Standby {
            replica,
            durability,
            seen_at,
            sent,
        };
    }

    /// The directory may have created the next segment from now on.
    fn note_take_over(&mut self, node: usize, former: Option<u64>, id: u64) {
        let node = &mut self.nodes[node];
        if former.is_none_or(|former| node.owners.contains(&former)) {
            node.owners.push(id);
        } else {
            node.acknowledged.clear();
            node.owners = vec![id];
        }
    }

    fn begin_owner(
        &mut self,
        node: usize,
        replica: Replica,
        take_over: TakeOver,
        durability: Durability,
    ) {
        self.counts.take_overs += 1;
        let mut groups = Vec::new();
        for (bytes, _) in self.store.segments.values() {
            groups.extend(groups_of(bytes));
        }
        let tail = groups.len();
        for bytes in &take_over.rest {
            groups.extend(groups_of(bytes));
        }
        let has_tail = !groups_of(&take_over.bytes).is_empty() || groups.len() > tail;
        self.counts.tails += u64::from(has_tail);
        let id = Segment::read("", &take_over.bytes).unwrap().head.owner;

        // All that was acknowledged is there, if the directory was the owner's.
        for (group, _) in self.nodes[node].acknowledged.values() {
            assert!(groups.contains(group), "an acknowledged group is lost");
        }

        let mut model = Model::default();
        for group in &groups {
            for (ask, tick) in &self.asked[group] {
                model.apply(ask, *tick, &self.spec);
            }
        }
        model.reached.clear();
        let clock = Arc::clone(&self.nodes[node].clock);
        let driven = match Driven::start(replica, take_over, durability, &clock) {
            Ok(driven) => driven,
            // Its disk is full.
            Err(OpenError::Io { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let mut owner = Owner {
            driven,
            id,
            model,
            queued: Vec::new(),
            awaited: Vec::new(),
            group: None,
            written: BTreeMap::new(),
            table: None,
        };
        check_content(&mut owner, &self.spec);
        self.nodes[node].process = Process::Owner(Box::new(owner));
    }

    fn step_owner(&mut self, node: usize) {
        match self.random.below(100) {
            0..40 => self.ask(node),
            40..55 => self.cycle(node),
            55..86 => self.ship(node),
            86..96 => self.copy_table(node),
            96 => self.pause(node),
            97 if self.random.is_one_of(2) => self.break_disk(node),
            97 => self.close(node),
            98 => self.crash(node),
            _ => {}
        }
    }

    fn owner(&mut self, node: usize) -> &mut Owner {
        match &mut self.nodes[node].process {
            Process::Owner(owner) => owner,
            _ => panic!("an owner"),
        }
    }

    fn ask(&mut self, node: usize) {
        for _ in 0..=self.random.below(3) {
            let ask = match self.random.below(10) {
                0..6 => {
                    let events = 1 + self.random.below(12);
                    Ask::Observe((0..events).map(|_| self.random.below(KEYS)).collect())
                }
                6 => Ask::Retry(self.random.below(6) as u8),
                7..9 => Ask::Forget(self.random.below(KEYS)),
                _ => Ask::Counts,
            };
            let owner = self.owner(node);
            if let Some(reply) = push(&owner.driven.queue, &ask) {
                owner.queued.push((ask, reply));
            }
        }
        if !self.random.is_one_of(4) {
            self.cycle(node);
        }
    }

    fn cycle(&mut self, node: usize) {
        let spec = self.spec;
        let pause = self.owner(node).driven.engine.journal.pause();
        self.clock.advance(pause);
        let owner = self.owner(node);
        let mut taken = Vec::new();
        if owner.driven.takes_requests() {
            taken = mem::take(&mut owner.queued);
        }
        let number = owner.driven.engine.journal.next_group();
        let end = owner.driven.run_cycle();
        let tick = owner.driven.engine.window.tick();

        // The group is noted although it may have failed.
        let mut model = owner.model.clone();
        let mut asked = Vec::new();
        let mut awaited = Vec::new();
        for (ask, reply) in taken {
            let told = model.apply(&ask, tick, &spec);
            asked.push((ask, tick));
            awaited.push(Awaited { reply, told });
        }
        let is_written = owner.driven.engine.journal.next_group() > number;
        if is_written {
            assert!(owner.awaited.is_empty(), "two groups at a time");
            let segment = owner.driven.engine.journal.last_segment_with_groups();
            let group = groups_of(&segment).pop().unwrap();
            assert_eq!(group.0, number);
            owner.group = Some(group.clone());
            owner.model = model;
            owner.awaited = awaited;
            self.asked.insert(group, asked);
            self.check_answers(node);
        } else {
            // Answers without changes, beside those that wait.
            let now = self.clock.uptime();
            self.check_unchanged(node, awaited, now);
            self.check_answers(node);
        }
        match end {
            CycleEnd::Running => self.check_heard(node),
            CycleEnd::Closed => {
                let id = self.owner(node).id;
                let is_its_release = |segment: &(Bytes, Duration)| {
                    let head = Segment::read("", &segment.0).unwrap().head;
                    head.owner == id && head.is_released
                };
                assert!(self.store.segments.values().any(is_its_release));
                self.counts.releases += 1;
                self.nodes[node].process = Process::Down;
            }
            CycleEnd::Failed(error) => {
                let is_lost = error.to_string() == ANOTHER_OWNER;
                self.counts.failed_logs += u64::from(!is_lost);
                self.nodes[node].process = Process::Down;
            }
        }
    }

    /// Compares the answers of a group, which come together.
    fn check_answers(&mut self, node: usize) {
        let now = self.clock.uptime();
        let owner = self.owner(node);
        let id = owner.id;
        let awaited = mem::take(&mut owner.awaited);
        let mut open = Vec::new();
        let mut told = 0;
        let mut refused = 0;
        for mut awaited in awaited {
            match awaited.reply.answer() {
                Answer::Open => open.push(awaited),
                Answer::Refused => refused += 1,
                Answer::Told(found) => {
                    assert_eq!(found, awaited.told);
                    told += 1;
                }
            }
        }
        owner.awaited = open;
        if let Some(group) = &owner.group {
            owner
                .written
                .entry(group.0)
                .or_insert_with(|| (group.clone(), now));
        }
        self.counts.answers += told;
        self.counts.refused += refused;
        if told > 0 {
            self.check_promise(node, id, now);
        }
    }

    /// Compares answers of requests that have changed nothing.
    fn check_unchanged(&mut self, node: usize, awaited: Vec<Awaited>, now: Duration) {
        let mut told = false;
        for mut awaited in awaited {
            match awaited.reply.answer() {
                Answer::Open => panic!("an answer that waits for nothing"),
                Answer::Refused => self.counts.refused += 1,
                Answer::Told(found) => {
                    assert_eq!(found, awaited.told);
                    self.counts.answers += 1;
                    told = true;
                }
            }
        }
        if told {
            let id = self.owner(node).id;
            self.check_not_taken_over(id, now);
        }
    }

    /// Checks what the answer to the last group of an owner promises.
    fn check_promise(&mut self, node: usize, id: u64, now: Duration) {
        let group = self.owner(node).group.clone().expect("a group");
        let is_in_store = self.store.has_group(&group);
        if !self.is_disk {
            assert!(is_in_store, "answered before its segment was created");
            return;
        }

        self.check_not_taken_over(id, now);
        let written = self.owner(node).written.clone();
        for (group, at) in written.values() {
            let is_young = now - *at < MAX_UNSHIPPED_TIME;
            assert!(is_young || self.store.has_group(group), "not shipped");
        }
        self.nodes[node].acknowledged.extend(written);
    }

    /// Nobody who waits can have taken over from this owner: its newest segment was visible within
    /// the time. A copy of its disk does not wait.
    fn check_not_taken_over(&self, id: u64, now: Duration) {
        let of_owner =
            |segment: &&(Bytes, Duration)| Segment::read("", &segment.0).unwrap().head.owner == id;
        let newest = self.store.segments.values().rev().find(of_owner);
        let (_, visible_at) = newest.expect("a take-over");
        assert!(now - *visible_at <= TAKE_OVER_AFTER, "a late answer");
    }

    /// Compares the reports of a window of whole keys.
    fn check_heard(&mut self, node: usize) {
        let owner = self.owner(node);
        if !owner.awaited.is_empty() || owner.driven.is_waiting() {
            return;
        }
        let mut expected = mem::take(&mut owner.model.reached);
        let mut reached = mem::take(&mut owner.driven.heard.lock().unwrap().reached);
        if !owner.driven.engine.window.spec().whole_keys {
            return;
        }
        expected.sort_unstable();
        reached.sort_unstable();
        assert_eq!(reached, expected);
    }

    fn ship(&mut self, node: usize) {
        let Some(outgoing) = self.owner(node).driven.outbox.first() else {
            return;
        };
        let number = outgoing.number;
        match self.put(number, &outgoing.bytes) {
            Put::Created => self.owner(node).driven.outbox.created(number),
            Put::Exists | Put::Unknown => match self.store.read(number).cloned() {
                Some(found) if outgoing.is_ours(&found) => {
                    self.owner(node).driven.outbox.created(number);
                }
                Some(_) => {
                    self.counts.lost_windows += 1;
                    self.owner(node).driven.outbox.lost(ANOTHER_OWNER);
                }
                // The next attempt.
                None => {}
            },
        }
        if !self.random.is_one_of(3) {
            self.cycle(node);
        }
    }

    fn copy_table(&mut self, node: usize) {
        let owner = self.owner(node);
        if owner.table.is_none() {
            let (reply, mut table) = oneshot::channel();
            if owner.driven.queue.push(Request::Table { reply }).is_err() {
                return;
            }
            self.cycle(node);
            if let Process::Owner(owner) = &mut self.nodes[node].process
                && let Ok(Ok(table)) = table.try_recv()
            {
                owner.table = Some((table, Vec::new()));
            }
            return;
        }

        for _ in 0..6 {
            let Process::Owner(owner) = &mut self.nodes[node].process else {
                return;
            };
            let Some((copy, bytes)) = &mut owner.table else {
                return;
            };
            if let Some(piece) = copy.try_piece() {
                bytes.extend(piece.encode().unwrap());
                if matches!(piece, Piece::End) {
                    return self.complete_table(node);
                }
            }
            self.cycle(node);
        }
        if self.random.is_one_of(20)
            && let Process::Owner(owner) = &mut self.nodes[node].process
        {
            owner.table = None;
        }
    }

    /// The table becomes visible, and what is before it is removed.
    fn complete_table(&mut self, node: usize) {
        let Some((copy, bytes)) = self.owner(node).table.take() else {
            return;
        };
        let number = copy.number();
        self.store.tables.insert(number, bytes);
        self.counts.tables += 1;
        copy.completed();
        let now = self.clock.uptime();
        while let Some((_, created_at)) = self.store.segments.get(&self.store.first)
            && self.store.first < number
            && now - *created_at > MIN_REMOVED_AGE
        {
            self.store.first += 1;
        }
    }

    /// The process is stopped within its next write.
    fn pause(&mut self, node: usize) {
        let clock = Arc::clone(&self.clock);
        let time = [3, 9, 12, 30][self.random.below(4) as usize];
        let pause = move || clock.advance(Duration::from_secs(time));
        self.nodes[node].disk.pause_in_sync(Box::new(pause));
    }

    fn break_disk(&mut self, node: usize) {
        if self.random.is_one_of(2) {
            self.nodes[node].disk.fill(1);
        } else {
            self.nodes[node].disk.fail_syncs(1);
        }
    }

    fn close(&mut self, node: usize) {
        self.owner(node).driven.queue.close();
    }

    /// The end of a process, of its machine, or of its disk.
    fn crash(&mut self, node: usize) {
        let random = &mut self.random;
        let node = &mut self.nodes[node];
        // Ends the lock.
        node.process = Process::Down;
        match random.below(3) {
            0 => {}
            1 => {
                let dir = tempfile::tempdir().unwrap();
                let choose = |bytes| random.below(bytes + 1);
                node.disk.crash(node.dir.path(), dir.path(), choose);
                node.dir = dir;
                node.disk = faulty_disk();
            }
            _ => {
                node.dir = tempfile::tempdir().unwrap();
                node.disk = faulty_disk();
                node.acknowledged.clear();
                node.owners.clear();
            }
        }
        // The next start finds a disk that works.
        node.disk.fill(0);
        node.disk.fail_syncs(0);
    }
}

fn push(queue: &Queue, ask: &Ask) -> Option<Receiver> {
    match ask {
        Ask::Observe(_) | Ask::Retry(_) => {
            let (reply, receiver) = oneshot::channel();
            let request = Request::Observe {
                keys: ask.keys(),
                at: None,
                retry: ask.retry(),
                reply,
            };
            queue.push(request).ok()?;
            Some(Receiver::Observed(receiver))
        }
        Ask::Forget(_) => {
            let (reply, receiver) = oneshot::channel();
            let keys = ask.keys();
            queue.push(Request::Forget { keys, reply }).ok()?;
            Some(Receiver::Forgotten(receiver))
        }
        Ask::Counts => {
            let (reply, receiver) = oneshot::channel();
            let keys = ask.keys();
            queue.push(Request::Counts { keys, reply }).ok()?;
            Some(Receiver::Counts(receiver))
        }
    }
}

/// Compares the whole content of an owner with its map.
fn check_content(owner: &mut Owner, spec: &WindowSpec) {
    let window = &mut owner.driven.engine.window;
    let tick = window.tick();
    owner.model.expire(tick, spec.lifetime);
    assert_eq!(window.counts(&Ask::Counts.keys()), owner.model.counts());
    let entries = owner.model.entries.len() as u64;
    assert_eq!(window.stats().entries, entries);
    let answers = &owner.driven.engine.answers;
    for retry in 0..6 {
        let ask = Ask::Retry(retry);
        let (request_key, _) = ask.retry().unwrap();
        let kept = answers.get(&request_key, 0);
        let expected: Option<&Vec<Seen>> = owner.model.answers.get(&retry);
        assert_eq!(kept.map(|it| it.outcomes.seen()).as_ref(), expected);
    }
}

/// Prints the seed of a simulation that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}", self.0);
        }
    }
}

fn run(seeds: std::ops::Range<u64>) {
    let mut sums = Counts::default();
    for seed in seeds {
        let _seed = Seed(seed);
        let mut simulation = Simulation::new(seed);
        simulation.run(600);
        let counts = simulation.counts;
        sums.answers += counts.answers;
        sums.refused += counts.refused;
        sums.take_overs += counts.take_overs;
        sums.tails += counts.tails;
        sums.tables += counts.tables;
        sums.releases += counts.releases;
        sums.lost_windows += counts.lost_windows;
        sums.failed_logs += counts.failed_logs;
    }
    println!("{sums:?}");
    for count in [
        sums.answers,
        sums.refused,
        sums.take_overs,
        sums.tails,
        sums.tables,
        sums.releases,
        sums.lost_windows,
        sums.failed_logs,
    ] {
        assert!(count > 0, "{sums:?}");
    }
}

#[test]
fn windows_agree_with_a_map_over_failures_and_take_overs() {
    run(0..200);
}
