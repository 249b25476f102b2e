//! Killed and concurrent loaders: readers always see a complete generation, never an older one.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use rtad_store::StoreError;
use testkit::store::{Depot, Key, Spec, keys};

const AUDIENCE: &str = "old_users";
/// Variables of the publisher process: store, seed of the keys, number of attempts.
const STORE: &str = "RTAD_TEST_STORE";
const SEED: &str = "RTAD_TEST_SEED";
const TRIES: &str = "RTAD_TEST_TRIES";
/// If set, a gc with this number of kept generations follows each publish.
const KEEP: &str = "RTAD_TEST_KEEP";
/// If set, publishes are signed.
const SIGN: &str = "RTAD_TEST_SIGN";
const KILLS: u64 = 64;

/// The key pair shared by all processes.
fn key() -> Arc<Key> {
    let [secret, public] =
        [include_str!("../minisign/checked.key"), include_str!("../minisign/checked.pub")];
    Key::read(secret, public)
}

/// The members of a generation, by its manifest's `build.rows`: two alternating sizes, always other
/// keys.
fn members(rows: u64) -> Vec<DeviceKey> {
    keys(rows, if rows.is_multiple_of(2) { 1500 } else { 1000 }, |shard| shard)
}

fn spec(rows: u64) -> Spec {
    Spec { rows, ..Spec::small() }
}

/// Reads and verifies the live generation; returns its sequence and generation.
fn read_whole(depot: &Depot) -> (u64, u64) {
    let snapshot = depot.read(AUDIENCE).unwrap();
    let members = members(snapshot.manifest().build().rows);
    assert_eq!(snapshot.manifest().keys(), members.len() as u64);
    assert!(members.iter().all(|key| snapshot.contains(key)));
    let current = depot.current(AUDIENCE).unwrap();
    assert_eq!(current.generation, snapshot.manifest().generation());
    (current.sequence, current.generation)
}

/// Names of partially written files.
fn leftovers(depot: &Depot) -> Vec<String> {
    depot.files(AUDIENCE).into_keys().filter(|name| name.contains('#')).collect()
}

/// A loader in a child process that runs this program.
struct Loader {
    process: Child,
    go: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Loader {
    /// Starts the process and waits until it is about to publish.
    fn start(depot: &Depot, seed: u64, tries: u64) -> Self {
        Self::start_with(depot, seed, tries, &[])
    }

    fn start_with(depot: &Depot, seed: u64, tries: u64, environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "publish_kill::publisher_process", "--ignored", "--nocapture"])
            .envs([(STORE, depot.url()), (SEED, &seed.to_string()), (TRIES, &tries.to_string())])
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let go = process.stdin.take().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.ends_with("set\n") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "the loader ended early");
        }
        Self { process, go, said }
    }

    fn go(&mut self) {
        self.go.write_all(b"go\n").unwrap();
    }
}

#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn publisher_process() {
    let Some(root) = std::env::var_os(STORE) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let mut depot = Depot::at(root.into());
    if std::env::var_os(SIGN).is_some() {
        depot = depot.trusting(&key());
    }
    let mut out = std::io::stdout();
    out.write_all(b"set\n").unwrap();
    out.flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for rows in (number(SEED)..).take(number(TRIES) as usize) {
        let base = depot.base(AUDIENCE);
        let sequence = base.current().map_or(0, |current| current.sequence) + 1;
        let line = match depot.publish_over(base, AUDIENCE, &members(rows), &spec(rows)) {
            Ok(generation) => format!("published {sequence} {generation}\n"),
            Err(StoreError::Conflict { .. }) => "conflict\n".to_owned(),
            Err(error) => panic!("{error:?}"),
        };
        out.write_all(line.as_bytes()).unwrap();
        if std::env::var_os(KEEP).is_some() {
            depot.collect(AUDIENCE, number(KEEP) as usize).unwrap();
        }
    }
}

#[test]
fn killed_loader_leaves_a_complete_signed_generation() {
    let depot = Depot::new().trusting(&key());
    depot.publish(AUDIENCE, &members(1), &spec(1));
    let mut last = read_whole(&depot);
    for kill in 0..KILLS {
        let mut loader =
            Loader::start_with(&depot, 1_000_000 * (kill + 1), 1_000_000, &[(SIGN, "1")]);
        loader.go();
        // A publish takes a few milliseconds; the prime spreads the moments.
        std::thread::sleep(Duration::from_micros(kill * 7919 % 60_000));
        loader.process.kill().unwrap();
        loader.process.wait().unwrap();

        let now = read_whole(&depot);
        assert!(now >= last, "went back from {last:?} to {now:?}");
        let generation = depot.publish(AUDIENCE, &members(kill + 2), &spec(kill + 2));
        assert!(generation > now.1);
        assert_eq!(leftovers(&depot), [""; 0], "after kill {kill}");
        last = read_whole(&depot);
        assert_eq!(last, (now.0 + 1, generation));
    }
}

/// Every remaining generation is complete and signed, at any moment of the kill.
#[test]
fn killed_gc_leaves_complete_signed_generations() {
    let depot = Depot::new().trusting(&key());
    depot.publish(AUDIENCE, &members(1), &spec(1));
    let mut removed = 0;
    for kill in 0..KILLS {
        let seed = 1_000_000 * (kill + 1);
        let mut loader = Loader::start_with(&depot, seed, 1_000_000, &[(KEEP, "2"), (SIGN, "1")]);
        loader.go();
        std::thread::sleep(Duration::from_micros(kill * 7919 % 60_000));
        loader.process.kill().unwrap();
        loader.process.wait().unwrap();

        let (_, live) = read_whole(&depot);
        let generations = depot.generations(AUDIENCE);
        for generation in &generations {
            depot.read_generation(AUDIENCE, *generation).unwrap();
        }
        // The next gc cleans up: it leaves the files of two generations, and those of generations
        // above the live one, which killed publishes may leave.
        let collected = depot.collect(AUDIENCE, 2).unwrap();
        removed += collected.removed_chunks;
        let kept = collected.kept_generations.iter().filter(|generation| **generation <= live);
        assert!(kept.count() <= 2, "{live} {collected:?}");
        let left = depot.files(AUDIENCE);
        assert!(left.keys().all(|name| !name.contains('#')), "{:?}", left.keys());
        assert_eq!(depot.collect(AUDIENCE, 2).unwrap().removed_chunks, 0);
        read_whole(&depot);
    }
    assert!(removed > 0, "some were killed with something left to remove");
}

#[test]
fn concurrent_loaders_have_one_winner_and_no_side_effects() {
    let depot = Depot::new();
    let mut loaders = [1, 2].map(|seed| Loader::start(&depot, seed * 1_000_000, 60));
    loaders.iter_mut().for_each(Loader::go);
    let (mut sequences, mut generations, mut conflicts) = (BTreeSet::new(), BTreeSet::new(), 0);
    for loader in &mut loaders {
        let mut own = 0;
        for line in loader.said.by_ref().lines() {
            match line.unwrap().split(' ').collect::<Vec<_>>()[..] {
                ["published", sequence, generation] => {
                    let sequence: u64 = sequence.parse().unwrap();
                    assert!(sequence > own, "its own publishes go forward");
                    own = sequence;
                    assert!(sequences.insert(sequence), "{sequence} was published twice");
                    assert!(generations.insert(generation.parse::<u64>().unwrap()));
                }
                ["conflict"] => conflicts += 1,
                _ => {}
            }
        }
        assert!(loader.process.wait().unwrap().success());
    }
    let published = sequences.len() as u64;
    assert_eq!(published + conflicts, 120);
    assert!(sequences.into_iter().eq(1..=published), "one by one");
    assert!(generations.iter().copied().eq(1..=published), "a loser takes no number");
    assert_eq!(read_whole(&depot), (published, published));

    // The store has only the winners' files.
    assert_eq!(depot.generations(AUDIENCE), generations.into_iter().collect::<Vec<_>>());
    let files = depot.files(AUDIENCE);
    let mut named = BTreeSet::from(["CURRENT".to_owned()]);
    for (path, bytes) in files.iter().filter(|(path, _)| path.starts_with("manifests/")) {
        named.insert(path.clone());
        let json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        let chunks = json["chunks"].as_array().unwrap();
        named.extend(
            chunks
                .iter()
                .map(|chunk| format!("chunks/{}.chunk", chunk["digest"].as_str().unwrap())),
        );
    }
    assert_eq!(files.into_keys().collect::<BTreeSet<_>>(), named);
}
