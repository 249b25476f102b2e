//! `swap = "rolling"`: replacement chunk by chunk, from a cache with all chunks verified.

mod disk;
mod kill;
mod load;
mod memory;
mod rot;

use std::path::PathBuf;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::Snapshot;

use testkit::client::Client;
use testkit::server::{Fault, FileServer};
use testkit::store::{Depot, Spec, keys, value};
use testkit::wait_until;

use crate::pod::Pod;
use crate::server::{NEVER, Server, config};

const AUDIENCE: &str = "old_users";
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";
const OFTEN: Duration = Duration::from_millis(100);

/// A store behind HTTP, a cache directory, and the published snapshots.
struct Site {
    depot: Depot,
    unruly: FileServer,
    folder: tempfile::TempDir,
    /// Snapshots by generation, from 1.
    snapshots: Vec<Snapshot>,
    /// Members of any generation, and non-members of all.
    queried: Vec<DeviceKey>,
}

impl Site {
    /// A site with one published generation.
    fn new() -> Self {
        let depot = Depot::new();
        let unruly = FileServer::serve(&depot.root);
        let folder = tempfile::tempdir().unwrap();
        let queried = keys(1_000_000, 2000, |shard| shard);
        let mut site = Self {
            depot,
            unruly,
            folder,
            snapshots: Vec::new(),
            queried,
        };
        site.publish();
        site
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn start(&self) -> Server {
        let mut config = config(&self.unruly.url(), CONFIG, OFTEN);
        config.store.cache_dir = Some(self.cache());
        config.store.swap = rtad::sync::SwapMode::Rolling;
        Server::start(config)
    }

    /// A pod process with rolling swap.
    fn pod(&self, before: &str) -> Pod {
        let lines = format!("swap = \"rolling\"\ncache_dir = {:?}", self.cache());
        Pod::start(&self.unruly.url(), self.folder.path(), &lines, before)
    }

    /// Publishes the next generation, with other devices, chunk boundaries and filters: with and
    /// without values.
    fn publish(&mut self) -> u64 {
        let generation = self.snapshots.len() as u64 + 1;
        let members = keys(generation, 4000, |shard| shard);
        let filter = match generation % 6 {
            0 => FilterSpec::for_fpr(FilterKind::Block512, 0.001).unwrap(),
            1 => FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap(),
            2 => FilterSpec::for_fpr(FilterKind::Ribbon, 0.0001).unwrap(),
            3 => FilterSpec::with_values_for_fpr(FilterKind::Ribbon, 0.0001).unwrap(),
            4 => FilterSpec::new(FilterKind::Ribbon, 2, 14_500).unwrap(),
            _ => FilterSpec::new(FilterKind::Block512, 3, 60_000).unwrap(),
        };
        let shards_per_chunk = [4096, 5000, 3000, 8192][generation as usize % 4];
        let spec = Spec {
            filter,
            shards_per_chunk,
            ..Spec::small()
        };
        assert_eq!(self.depot.publish(AUDIENCE, &members, &spec), generation);
        self.snapshots.push(self.depot.read(AUDIENCE).unwrap());
        self.queried.extend(members);
        generation
    }

    fn snapshot(&self, generation: u64) -> &Snapshot {
        &self.snapshots[generation as usize - 1]
    }

    /// A pod's answers for all devices.
    fn answers(&self, client: &mut Client) -> Vec<bool> {
        // The highest number of keys per request.
        self.queried
            .chunks(10_000)
            .flat_map(|keys| client.members_binary(AUDIENCE, keys))
            .collect()
    }

    /// Asserts that a pod's answers equal this generation's, including false positives.
    #[track_caller]
    fn assert_answers(&self, client: &mut Client, generation: u64) {
        let snapshot = self.snapshot(generation);
        let expected: Vec<bool> = self
            .queried
            .iter()
            .map(|key| snapshot.contains(key))
            .collect();
        assert!(
            self.answers(client) == expected,
            "everybody is answered as of generation {generation}"
        );
    }

    #[track_caller]
    fn assert_serves(&self, server: &mut Server, generation: u64) {
        assert_eq!(server.generation(AUDIENCE), generation);
        assert_eq!(
            server.status(AUDIENCE)["snapshot"]["generation"],
            generation
        );
        assert_eq!(
            (server.metric("rtad_snapshot_mixed{"), server.is_ready()),
            (0, true)
        );
        self.assert_answers(&mut server.connect(), generation);
        let snapshot = server.snapshot(AUDIENCE).unwrap();
        let has_values = self.snapshot(generation).manifest().filter().value_bits() > 0;
        for key in keys(generation, 4000, |shard| shard) {
            assert_eq!(snapshot.value(&[key]), has_values.then(|| value(&key)));
        }
    }
}

#[test]
fn generations_with_other_chunks_and_filters_replace_each_other() {
    let mut site = Site::new();
    let mut server = site.start();
    site.assert_serves(&mut server, 1);
    for _ in 2..=8 {
        let generation = site.publish();
        let digests = |snapshot: &Snapshot| -> Vec<_> {
            snapshot.chunks().iter().map(|c| *c.digest()).collect()
        };
        wait_until("the next", || server.generation(AUDIENCE) == generation);
        site.assert_serves(&mut server, generation);
        let status = server.status(AUDIENCE);
        let is_ribbon = status["snapshot"]["filter"] == "ribbon";
        assert_eq!(is_ribbon, matches!(generation % 6, 2..=4));
        for field in ["diverted_keys", "listed_keys"] {
            assert_eq!(status["snapshot"][field].is_u64(), is_ribbon, "{field}");
        }
        assert_eq!(
            digests(&server.snapshot(AUDIENCE).unwrap()),
            digests(site.snapshot(generation))
        );
    }
    site.depot.roll_back(AUDIENCE, 3);
    wait_until("back", || server.generation(AUDIENCE) == 3);
    site.assert_serves(&mut server, 3);
    let generation = site.publish();
    wait_until("forward again", || {
        server.generation(AUDIENCE) == generation
    });
    site.assert_serves(&mut server, generation);
    for result in ["store", "cache", "digest", "format", "internal"] {
        assert_eq!(server.sync_count(AUDIENCE, result), 0, "{result}");
    }
    // Each chunk is written to disk and read from it once.
    let [store, cache] = ["store", "cache"]
        .map(|source| server.metric(&format!("rtad_chunks_read_total{{source=\"{source}\"}}")));
    let first = site.snapshot(1).chunks().len() as u64;
    assert_eq!(store, cache + first);
}
