//! Twenty generations go by while clients ask without a pause: no error, no wrong answer, no
//! request that sees two generations, and the memory of one snapshot when it is over.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rtad::catalog::Catalog;
use rtad::serve::{Assembly, Running, start};
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::Snapshot;
use testkit::client::Client;
use testkit::process::anonymous_bytes;
use testkit::store::{Depot, Spec, keys};
use testkit::wait_until;
use tokio::runtime::Runtime;

const AUDIENCE: &str = "old_users";
const GENERATIONS: u64 = 20;
/// Shards of the first chunk, which is another one in each generation, and of the last, which is
/// always the same.
const SHARDS_PER_CHUNK: u32 = 1024;
const LAST_CHUNK: u16 = u16::MAX - 1023;

const CONFIG: &str = r#"
[[audience]]
name = "old_users"

[[strategy]]
name = "new-users"
exclude = ["old_users"]
unavailable = "no_bid"

[[strategy]]
name = "old-users"
include = ["old_users"]
unavailable = "bid"
"#;

/// Keys by when they are members. 1,000 bits a key: 40 MB of filters cost a third of a million
/// keys.
#[derive(Clone)]
struct Population {
    always: Vec<DeviceKey>,
    even: Vec<DeviceKey>,
    odd: Vec<DeviceKey>,
    never: Vec<DeviceKey>,
}

impl Population {
    fn new() -> Self {
        let below_last = |shard: u16| if shard >= LAST_CHUNK { shard - LAST_CHUNK } else { shard };
        Self {
            always: keys(1, 100_000, |shard| shard),
            even: keys(2, 230_000, below_last),
            odd: keys(3, 230_000, below_last),
            never: keys(4, 20_000, |shard| shard),
        }
    }

    /// The members of a generation, sorted.
    fn of(&self, generation: u64) -> Vec<DeviceKey> {
        let sometimes = if generation.is_multiple_of(2) { &self.even } else { &self.odd };
        let once = keys(1000 + generation, 500, |shard| shard % SHARDS_PER_CHUNK as u16);
        let mut all = [&self.always[..], sometimes, &once].concat();
        all.sort_unstable();
        all
    }
}

/// Those whose answers are certain: no filter of any generation says "member" of them by chance.
fn certain(members: &Population) -> Population {
    let mut certain = members.clone();
    let depot = Depot::new();
    for generation in 1..=GENERATIONS {
        depot.publish(AUDIENCE, &members.of(generation), &spec());
        let snapshot = depot.read(AUDIENCE).unwrap();
        let absent =
            if generation.is_multiple_of(2) { &mut certain.odd } else { &mut certain.even };
        absent.retain(|key| !snapshot.contains(key));
        certain.never.retain(|key| !snapshot.contains(key));
    }
    assert!(
        certain.never.len() > 19_000 && certain.even.len() > 200_000 && certain.odd.len() > 200_000
    );
    certain
}

fn spec() -> Spec {
    let filter = FilterSpec::new(FilterKind::Block512, 10, 1_000_000).unwrap();
    Spec { filter, shards_per_chunk: SHARDS_PER_CHUNK, ..Spec::small() }
}

/// Asks in every way there is until told to stop; counts its rounds.
fn ask(
    address: SocketAddr,
    people: &Population,
    seed: usize,
    stop: &AtomicBool,
    rounds: &AtomicU64,
) {
    let mut client = Client::connect(address);
    let pick = |from: &[DeviceKey], round: usize, count: usize| -> Vec<DeviceKey> {
        let start = (round * 7919 + seed * 104_729) % (from.len() - count);
        from[start..start + count].to_vec()
    };
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let [always, never] = [&people.always, &people.never].map(|from| pick(from, round, 50));
        let [even, odd] = [&people.even, &people.odd].map(|from| pick(from, round, 200));
        assert!(client.is_member(AUDIENCE, &always[0]));
        assert!(!client.is_member(AUDIENCE, &never[0]));

        // 50 members, 50 strangers, and 400 of whom exactly those of one parity are members.
        let asked = [&always[..], &never, &even, &odd].concat();
        for members in [client.members(AUDIENCE, &asked), client.members_binary(AUDIENCE, &asked)] {
            assert!(members[..50].iter().all(|member| *member), "a member was not found");
            assert!(members[50..100].iter().all(|member| !*member), "a stranger was found");
            let is_even = members[100];
            assert!(
                members[100..300].iter().all(|member| *member == is_even),
                "two generations in one answer"
            );
            assert!(
                members[300..].iter().all(|member| *member != is_even),
                "two generations in one answer"
            );
        }

        let bids = |decisions: Vec<(bool, String)>| {
            let decided: Vec<(bool, &str)> =
                decisions.iter().map(|(bid, reason)| (*bid, reason.as_str())).collect();
            match decided[..] {
                [(false, "member"), (true, "member")] => true,
                [(true, "not_member"), (false, "not_member")] => false,
                _ => panic!("both strategies decide from one generation: {decisions:?}"),
            }
        };
        assert!(bids(client.decide(&always[..1])));
        assert!(!bids(client.decide(&never[..3])));
        bids(client.decide(&even[..1]));
        // One of the two is a member in any generation: "neither" could only come of two.
        assert!(bids(client.decide(&[even[0], odd[0]])));
        round += 1;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// The service in this process.
struct Server {
    running: Running,
    runtime: Runtime,
}

impl Server {
    /// Over a store that it polls when told to, and not within an hour by itself.
    fn start(store: &str) -> Self {
        let server =
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nworkers = 2";
        let text = format!("{server}\n[store]\nurl = {store:?}\npoll_interval = \"1h\"\n{CONFIG}");
        let assembly = Assembly::read(Some(("rtad.toml", &text)), |_| None, &Vec::new()).unwrap();
        // One thread besides the test's, for the acceptor.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let reread = Box::new(|| Err("the config is not reloaded".to_owned()));
        let running = runtime.block_on(start(assembly, reread)).unwrap();
        Self { running, runtime }
    }

    fn look(&self) {
        self.runtime.block_on(self.running.poll());
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.running.serving().load_full()
    }
}

/// The snapshot of the only audience.
fn snapshot(catalog: &Catalog) -> Arc<Snapshot> {
    catalog.audiences()[0].snapshot.clone().unwrap()
}

/// Generations that have been served, watched without being kept.
#[derive(Default)]
struct Watch {
    catalogs: Vec<Weak<Catalog>>,
    snapshots: Vec<Weak<Snapshot>>,
}

impl Watch {
    fn add(&mut self, catalog: &Arc<Catalog>) {
        self.catalogs.push(Arc::downgrade(catalog));
        self.snapshots.push(Arc::downgrade(&snapshot(catalog)));
    }

    /// How many are still in memory.
    fn alive(&self) -> (usize, usize) {
        let catalogs = self.catalogs.iter().filter(|catalog| catalog.strong_count() > 0).count();
        let snapshots =
            self.snapshots.iter().filter(|snapshot| snapshot.strong_count() > 0).count();
        (catalogs, snapshots)
    }
}

#[test]
fn swaps_are_unnoticed_by_requests_and_leave_one_snapshot_in_memory() {
    let members = Population::new();
    let people = Arc::new(certain(&members));
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members.of(1), &spec());
    let before = anonymous_bytes();

    let server = Server::start(depot.url());
    let filter_bytes = snapshot(&server.catalog()).filter_bytes();
    assert!(
        filter_bytes > 30 << 20,
        "{filter_bytes} bytes of filters are too few to be told from noise"
    );
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Two keep two cores nearly busy; what loads has what they leave.
    let clients: Vec<_> = (0..2)
        .map(|seed| {
            let (people, stop, rounds) =
                (Arc::clone(&people), Arc::clone(&stop), Arc::clone(&rounds));
            let address = server.running.decision_address;
            std::thread::spawn(move || ask(address, &people, seed, &stop, &rounds))
        })
        .collect();
    let asked_again = || {
        let (now, clients) = (rounds.load(Ordering::Relaxed), &clients);
        let is_over = || clients.iter().any(std::thread::JoinHandle::is_finished);
        wait_until("every client asks", || is_over() || rounds.load(Ordering::Relaxed) > now + 8);
        assert!(!is_over(), "a client saw something wrong");
    };
    let mut watch = Watch::default();
    asked_again();
    for generation in 2..=GENERATIONS {
        let old = server.catalog();
        watch.add(&old);
        assert_eq!(depot.publish(AUDIENCE, &members.of(generation), &spec()), generation);
        server.look();
        let new = server.catalog();
        assert_eq!(snapshot(&new).manifest().generation(), generation);
        shares_only_what_is_unchanged(&old, &new);
        if generation == GENERATIONS {
            // Two generations are held, and this way of measuring sees it.
            let held = anonymous_bytes().saturating_sub(before);
            assert!(
                held > filter_bytes * 18 / 10,
                "{held} bytes for two snapshots of {filter_bytes}"
            );
        }
        drop((old, new));
        asked_again();
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());

    wait_until("old generations are freed", || watch.alive() == (0, 0));
    let limit = before + filter_bytes * 15 / 10;
    wait_until("memory is back to one snapshot's", || anonymous_bytes() < limit);
}

/// The last chunk has the same keys in all generations and lies where it lay; every other was read
/// anew.
fn shares_only_what_is_unchanged(old: &Catalog, new: &Catalog) {
    let [old, new] = [old, new].map(snapshot);
    assert_eq!((old.chunks().len(), new.chunks().len()), (64, 64));
    for (index, (old_chunk, new_chunk)) in old.chunks().iter().zip(new.chunks()).enumerate() {
        let is_same =
            old.manifest().chunks()[index].digest == new.manifest().chunks()[index].digest;
        assert_eq!(is_same, index == 63, "chunk {index}");
        assert_eq!(
            old_chunk.filters().as_ptr() == new_chunk.filters().as_ptr(),
            is_same,
            "chunk {index}"
        );
    }
}
