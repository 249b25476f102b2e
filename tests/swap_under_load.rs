//! Swaps under load: four generations without errors or wrong answers, one generation per
//! request, and the memory of one snapshot at the end.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

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
const GENERATIONS: u64 = 4;
/// Shards per chunk, and the first shard of the last chunk, which is the same in all generations.
const SHARDS_PER_CHUNK: u32 = 8192;
const LAST_CHUNK: u16 = u16::MAX - 8191;

const CONFIG: &str = r#"
[[audience]]
name = "old_users"

[[strategy]]
name = "new-users"
exclude = ["old_users"]
unavailable = "no_bid"

[[strategy]]
name = "old-users"
when = "old_users"
unavailable = "bid"
"#;

/// Keys by the generations that they belong to. 1,000 bits per key: 25 MB of filters need only
/// 200,000 keys.
struct Population {
    always: Vec<DeviceKey>,
    even: Vec<DeviceKey>,
    odd: Vec<DeviceKey>,
    never: Vec<DeviceKey>,
}

impl Population {
    fn new() -> Self {
        let below_last = |shard: u16| {
            if shard >= LAST_CHUNK {
                shard - LAST_CHUNK
            } else {
                shard
            }
        };
        Self {
            always: keys(1, 60_000, |shard| shard),
            even: keys(2, 140_000, below_last),
            odd: keys(3, 140_000, below_last),
            never: keys(4, 20_000, |shard| shard),
        }
    }

    /// The members of a generation, sorted.
    fn of(&self, generation: u64) -> Vec<DeviceKey> {
        let sometimes = if generation.is_multiple_of(2) {
            &self.even
        } else {
            &self.odd
        };
        let once = keys(1000 + generation, 500, |shard| {
            shard % SHARDS_PER_CHUNK as u16
        });
        let mut all = [&self.always[..], sometimes, &once].concat();
        all.sort_unstable();
        all
    }
}

/// So many bits that no key of these seeds is a false positive.
fn spec() -> Spec {
    let filter = FilterSpec::new(FilterKind::Block512, 10, 1_000_000).unwrap();
    Spec {
        filter,
        shards_per_chunk: SHARDS_PER_CHUNK,
        ..Spec::small()
    }
}

/// Sends requests to every route until stopped; counts the rounds.
fn send_requests(
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

        // 50 members, 50 non-members, and 400 of which those of one parity are members.
        let queried = [&always[..], &never, &even, &odd].concat();
        for members in [
            client.members(AUDIENCE, &queried),
            client.members_binary(AUDIENCE, &queried),
        ] {
            assert!(members[..50].iter().all(|member| *member), "false negative");
            assert!(
                members[50..100].iter().all(|member| !*member),
                "false positive"
            );
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
            let decided: Vec<(bool, &str)> = decisions
                .iter()
                .map(|(bid, reason)| (*bid, reason.as_str()))
                .collect();
            match decided[..] {
                [(false, "member"), (true, "rule")] => true,
                [(true, "not_member"), (false, "rule")] => false,
                _ => panic!("both strategies decide from one generation: {decisions:?}"),
            }
        };
        assert!(bids(client.decide(&always[..1])));
        assert!(!bids(client.decide(&never[..3])));
        bids(client.decide(&even[..1]));
        // Exactly one of the two is a member in any generation.
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
    /// A server that polls `store` only on [`Server::poll`].
    fn start(store: &str) -> Self {
        // A batch of a saturated debug build may wait longer than the default of 50 ms.
        let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
                      workers = 2";
        let text = format!("{server}\n[store]\nurl = {store:?}\npoll_interval = \"1h\"\n{CONFIG}");
        let assembly = Assembly::read(Some(("rtad.toml", &text)), |_| None, &Vec::new()).unwrap();
        // One more thread, for the acceptor.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let reread = Box::new(|| Err("the config is not reloaded".to_owned()));
        let running = runtime.block_on(start(assembly, reread)).unwrap();
        Self { running, runtime }
    }

    fn poll(&self) {
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

/// Weak references to served generations.
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

    /// Number of those still in memory.
    fn alive(&self) -> (usize, usize) {
        let catalogs = self
            .catalogs
            .iter()
            .filter(|catalog| catalog.strong_count() > 0)
            .count();
        let snapshots = self
            .snapshots
            .iter()
            .filter(|snapshot| snapshot.strong_count() > 0)
            .count();
        (catalogs, snapshots)
    }
}

#[test]
fn swaps_cause_no_errors_and_release_old_snapshots() {
    let people = Arc::new(Population::new());
    let depot = Depot::new();
    depot.publish(AUDIENCE, &people.of(1), &spec());
    let before = anonymous_bytes();

    let server = Server::start(depot.url());
    let filter_bytes = snapshot(&server.catalog()).filter_bytes();
    assert!(
        filter_bytes > 20 << 20,
        "{filter_bytes} bytes of filters are too few to measure"
    );
    let (stop, rounds) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    // Two clients nearly saturate two cores.
    let clients: Vec<_> = (0..2)
        .map(|seed| {
            let (people, stop, rounds) =
                (Arc::clone(&people), Arc::clone(&stop), Arc::clone(&rounds));
            let address = server.running.decision_address;
            std::thread::spawn(move || send_requests(address, &people, seed, &stop, &rounds))
        })
        .collect();
    let wait_for_rounds = || {
        let (now, clients) = (rounds.load(Ordering::Relaxed), &clients);
        let is_over = || clients.iter().any(std::thread::JoinHandle::is_finished);
        wait_until("more rounds of the clients", || {
            is_over() || rounds.load(Ordering::Relaxed) > now + 8
        });
        assert!(!is_over(), "a client failed");
    };
    let (mut watch, mut held) = (Watch::default(), 0);
    wait_for_rounds();
    for generation in 2..=GENERATIONS {
        let old = server.catalog();
        watch.add(&old);
        assert_eq!(
            depot.publish(AUDIENCE, &people.of(generation), &spec()),
            generation
        );
        server.poll();
        let new = server.catalog();
        assert_eq!(snapshot(&new).manifest().generation(), generation);
        assert_only_last_chunk_is_shared(&old, &new);
        if generation == GENERATIONS {
            // Two generations are in memory: the measurement works.
            held = anonymous_bytes().saturating_sub(before);
            assert!(
                held > filter_bytes * 18 / 10,
                "{held} bytes for two snapshots of {filter_bytes}"
            );
        }
        drop((old, new));
        wait_for_rounds();
    }
    stop.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());

    wait_until("old generations are freed", || watch.alive() == (0, 0));
    let limit = held - filter_bytes * 7 / 10;
    wait_until("memory is back to one snapshot's", || {
        anonymous_bytes().saturating_sub(before) < limit
    });
}

/// Asserts that only the last chunk, which has the same keys in all generations, is shared.
fn assert_only_last_chunk_is_shared(old: &Catalog, new: &Catalog) {
    let [old, new] = [old, new].map(snapshot);
    assert_eq!((old.chunks().len(), new.chunks().len()), (8, 8));
    for (index, (old_chunk, new_chunk)) in old.chunks().iter().zip(new.chunks()).enumerate() {
        let is_same =
            old.manifest().chunks()[index].digest == new.manifest().chunks()[index].digest;
        assert_eq!(is_same, index == 7, "chunk {index}");
        assert_eq!(
            old_chunk.filters().as_ptr() == new_chunk.filters().as_ptr(),
            is_same,
            "chunk {index}"
        );
    }
}
