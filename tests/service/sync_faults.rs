//! Damaged snapshots: each fault has its own error and metric result, the old generation is served
//! meanwhile, and the new one after the repair.

mod damage;
mod folder;
mod network;
mod restart;
mod signing;
mod tls;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{Current, Manifest, State};
use rtad_store::write::Change;
use serde_json::Value;

use testkit::client::{Client, metric};
use testkit::store::{Depot, Files, Spec, hex, keys, manifest_path, record_path};
use testkit::wait_until;

use crate::server::{NEVER, Server, config};

const AUDIENCE: &str = "old_users";
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";
/// Keys per set, of two sets published in turn, and the number of their shards.
const SHARDS: [u16; 6] = [0, 1, 9, 4096, 4097, 4105];
const KEYS_PER_SHARD: usize = 100;

/// Damage to the store, and the expected result and error.
struct Damage {
    name: String,
    /// Files by path below the audience's directory; `None` deletes.
    files: Vec<(String, Option<Vec<u8>>)>,
    /// Whether a record is read that differs from the sound one: a pod takes no other record with
    /// its number, so the next one repairs the damage.
    is_other_record: bool,
    /// Value of the label `result`.
    result: &'static str,
    /// Part of the error, which starts with the file's path.
    words: String,
}

impl Damage {
    fn new(name: impl Into<String>, result: &'static str, words: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            files: Vec::new(),
            is_other_record: false,
            result,
            words: words.into(),
        }
    }

    fn file(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), Some(bytes.into())));
        self
    }

    fn deleted(mut self, path: &str) -> Self {
        self.files.push((path.to_owned(), None));
        self
    }

    /// Has the record name another manifest.
    fn manifest(self, candidate: &Candidate, bytes: Vec<u8>) -> Self {
        let current = Current::new(
            candidate.current.sequence,
            candidate.generation(),
            &bytes,
            None,
        );
        self.file(&manifest_path(&current.live_entry()), bytes)
            .other_record(candidate, current.to_bytes())
    }

    fn other_record(self, candidate: &Candidate, bytes: impl Into<Vec<u8>>) -> Self {
        let damage = self.file(&candidate.record_path(), bytes);
        Self {
            is_other_record: true,
            ..damage
        }
    }
}

/// A generation that was published and not yet polled.
struct Candidate {
    current: Current,
    manifest: Manifest,
    sound: Files,
}

impl Candidate {
    /// The live state of a store.
    fn of(depot: &Depot) -> Self {
        Self {
            current: depot.current(AUDIENCE).unwrap(),
            manifest: depot.manifest(AUDIENCE),
            sound: depot.files(AUDIENCE),
        }
    }

    const fn generation(&self) -> u64 {
        self.current.generation
    }

    fn record_path(&self) -> String {
        record_path(self.current.sequence)
    }

    /// The record's object.
    fn record(&self) -> &[u8] {
        &self.sound[&self.record_path()]
    }

    fn manifest_path(&self) -> String {
        manifest_path(&self.current.live_entry())
    }

    /// The path of the manifest of the generation before.
    fn manifest_path_before(&self) -> String {
        let before = self.current.entry(self.generation() - 1);
        manifest_path(&before.unwrap())
    }

    /// Writes its files into a store, but not the record that names them.
    fn put_unnamed(&self, depot: &Depot) {
        for (path, bytes) in &self.sound {
            if !path.starts_with("records/") && path != "LATEST" {
                depot.put(AUDIENCE, path, Some(bytes));
            }
        }
    }

    fn manifest_json(&self) -> Value {
        serde_json::from_slice(&self.sound[&self.manifest_path()]).unwrap()
    }

    fn current_json(&self) -> Value {
        serde_json::from_slice(self.record()).unwrap()
    }

    fn chunk_path(&self, index: usize) -> String {
        format!("chunks/{}.chunk", self.manifest.chunks()[index].digest)
    }

    fn chunk(&self, index: usize) -> &[u8] {
        &self.sound[&self.chunk_path(index)]
    }
}

/// A pod that serves one generation, and a store to publish the next into.
struct Bench {
    depot: Depot,
    server: Server,
    client: Client,
    /// Members of odd and of even generations, disjoint.
    sets: [Vec<DeviceKey>; 2],
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut rtad::config::Config)) -> Self {
        Self::over(Depot::new(), change)
    }

    /// A pod over an empty store.
    fn over(depot: Depot, change: impl FnOnce(&mut rtad::config::Config)) -> Self {
        let sets = [1, 2].map(members);
        depot.publish(AUDIENCE, &sets[0], &Spec::small());
        let mut config = config(depot.url(), CONFIG, NEVER);
        change(&mut config);
        let server = Server::start(config);
        let client = server.connect();
        Self {
            depot,
            server,
            client,
            sets,
        }
    }

    /// Publishes the next generation without a poll.
    fn publish(&self) -> Candidate {
        let generation = self.depot.current(AUDIENCE).unwrap().generation + 1;
        let set = &self.sets[(generation as usize + 1) % 2];
        assert_eq!(
            self.depot.publish(AUDIENCE, set, &Spec::small()),
            generation
        );
        Candidate::of(&self.depot)
    }

    /// Asserts the answers of this generation, and that the pod is ready.
    #[track_caller]
    fn assert_serves(&mut self, generation: u64, context: &str) {
        assert_eq!(self.server.generation(AUDIENCE), generation, "{context}");
        assert_eq!(
            self.server.status(AUDIENCE)["snapshot"]["generation"],
            generation,
            "{context}"
        );
        let members = &self.sets[(generation as usize + 1) % 2];
        let non_members = &self.sets[generation as usize % 2];
        assert!(
            self.client
                .members(AUDIENCE, members)
                .iter()
                .all(|member| *member),
            "{context}"
        );
        // 600 non-members at a rate of 1 in 10,000.
        let found = self
            .client
            .members_binary(AUDIENCE, non_members)
            .into_iter()
            .filter(|member| *member);
        assert!(found.count() < 5, "{context}");
        assert!(self.server.is_ready(), "{context}");
    }

    /// Damages the candidate, polls, asserts the expected rejection, and repairs it.
    #[track_caller]
    fn rejects(&mut self, candidate: &Candidate, damage: &Damage) {
        let context = &damage.name;
        let served = self.server.generation(AUDIENCE);
        let counted = self.server.sync_count(AUDIENCE, damage.result);
        let caught_up = self.caught_up();
        for (path, bytes) in &damage.files {
            self.depot.put(AUDIENCE, path, bytes.as_deref());
        }
        self.server.poll();
        let (result, error) = self.server.last_sync(AUDIENCE);
        assert_eq!(result, damage.result, "{context}: {error}");
        assert!(
            error.contains(&damage.words),
            "{context}: {error:?} says nothing of {:?}",
            damage.words
        );
        assert_eq!(
            self.server.sync_count(AUDIENCE, damage.result),
            counted + 1,
            "{context}"
        );
        assert_eq!(self.caught_up(), caught_up, "{context}");
        self.assert_serves(served, context);
        for (path, _) in &damage.files {
            match candidate.sound.get(path) {
                Some(bytes) => self.depot.put(AUDIENCE, path, Some(bytes)),
                None => self.depot.put(AUDIENCE, path, None),
            }
        }
    }

    /// Time up to which all published changes are served.
    fn caught_up(&self) -> f64 {
        let series = format!("rtad_sync_caught_up_timestamp_seconds{{audience=\"{AUDIENCE}\"}}");
        metric(&self.server.metrics(), &series)
    }

    /// Asserts that the repaired candidate is served.
    #[track_caller]
    fn accepts(&mut self, candidate: &Candidate, context: &str) {
        self.server.poll();
        assert_eq!(
            self.server.last_sync(AUDIENCE),
            ("ok".to_owned(), String::new()),
            "{context}"
        );
        self.assert_serves(candidate.generation(), context);
    }

    /// Publishes a generation for each damage: rejected, repaired, served.
    #[track_caller]
    fn survives_each(&mut self, damages: impl Fn(&Candidate) -> Vec<Damage>) {
        let mut index = 0;
        loop {
            let candidate = self.publish();
            let Some(damage) = damages(&candidate).into_iter().nth(index) else {
                break;
            };
            self.rejects(&candidate, &damage);
            let repaired = if damage.is_other_record {
                self.publish()
            } else {
                candidate
            };
            self.accepts(&repaired, &damage.name);
            index += 1;
        }
        assert!(index > 0, "there are damages");
    }
}

/// Both sets have the same number of keys in each shard: their chunks differ only in the filters.
fn members(seed: u64) -> Vec<DeviceKey> {
    let in_shard =
        |(index, shard): (usize, &u16)| keys(seed * 100 + index as u64, KEYS_PER_SHARD, |_| *shard);
    SHARDS.iter().enumerate().flat_map(in_shard).collect()
}

#[test]
fn pod_recovers_by_polling() {
    let mut bench =
        Bench::with(|config| config.store.poll_interval = std::time::Duration::from_millis(100));
    let (depot, sets) = (&bench.depot, bench.sets.clone());
    // Published damaged, as by a store that loses bytes: all files before the record.
    let candidate = {
        let other = Depot::new();
        other.publish(AUDIENCE, &sets[0], &Spec::small());
        other.publish(AUDIENCE, &sets[1], &Spec::small());
        Candidate::of(&other)
    };
    let damaged = candidate.chunk_path(0);
    let mut bytes = candidate.chunk(0).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    candidate.put_unnamed(depot);
    depot.put(AUDIENCE, &damaged, Some(&bytes));
    depot.put(AUDIENCE, &candidate.record_path(), Some(candidate.record()));
    wait_until("the damage is noticed", || {
        bench.server.sync_count(AUDIENCE, "digest") >= 3
    });
    bench.assert_serves(1, "damaged");

    bench
        .depot
        .put(AUDIENCE, &damaged, Some(candidate.chunk(0)));
    wait_until("the repair is noticed", || {
        bench.server.generation(AUDIENCE) == 2
    });
    bench.assert_serves(2, "repaired");

    // The store disappears and returns.
    let gone = bench.depot.root.with_extension("gone");
    std::fs::rename(&bench.depot.root, &gone).unwrap();
    wait_until("the loss is noticed", || {
        bench.server.sync_count(AUDIENCE, "store") >= 3
    });
    bench.assert_serves(2, "without a store");
    std::fs::rename(&gone, &bench.depot.root).unwrap();
    let candidate = bench.publish();
    wait_until("the store is back", || {
        bench.server.generation(AUDIENCE) == candidate.generation()
    });
    bench.assert_serves(candidate.generation(), "with the store again");
}
