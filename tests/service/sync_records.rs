//! A pod never goes back: restarts from the cache, old copies of the store, shared caches, and
//! records that a gc removed.

use std::path::{Path, PathBuf};

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::State;
use rtad_store::write::Change;
use testkit::server::{Fault, FileServer};
use testkit::store::{Depot, Spec, hex, keys, record_path};
use testkit::wait_until;

use crate::server::{NEVER, Server, config};

const AUDIENCE: &str = "old_users";
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

fn members(seed: u64) -> Vec<DeviceKey> {
    keys(seed, 2000, |shard| shard)
}

/// A store in a directory with one generation, old copies of it, and a cache.
struct Site {
    depot: Depot,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let depot = Depot::new();
        depot.publish(AUDIENCE, &members(1), &Spec::small());
        Self {
            depot,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// A pod after a poll: a start serves the cache while it loads a newer generation.
    fn start(&self, store: &Path) -> Server {
        let mut config = config(store.to_str().unwrap(), CONFIG, NEVER);
        config.store.cache_dir = Some(self.cache());
        let server = Server::start(config);
        server.poll();
        server
    }

    /// A start without the store.
    fn start_alone(&self) -> Server {
        self.start(&self.folder.path().join("missing"))
    }

    /// The store as it is now.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        self.depot.copy_to(&copy);
        copy
    }

    fn publish(&self, seed: u64) {
        self.depot.publish(AUDIENCE, &members(seed), &Spec::small());
    }

    fn append(&self, say: impl Fn(&mut Change, DeviceKey), key: DeviceKey) {
        let mut change = Change::default();
        say(&mut change, key);
        self.depot.append(AUDIENCE, change);
    }

    /// Removes the last chunk of the newest generation, which cannot be loaded whole.
    fn break_newest(&self) {
        let manifest = self.depot.manifest(AUDIENCE);
        let chunk = manifest.chunks().last().unwrap().digest;
        self.depot
            .put(AUDIENCE, &format!("chunks/{chunk}.chunk"), None);
    }
}

/// The answer for a device; `None` if the audience is unavailable.
fn answer(server: &Server, key: &DeviceKey) -> Option<bool> {
    let path = format!("/v1/check/{AUDIENCE}/{}", hex(key));
    let answer = server.connect().get(&path);
    (answer.status == 200).then(|| answer.ok()["member"] == true)
}

#[track_caller]
fn assert_stale(server: &mut Server) {
    let (result, error) = server.last_sync(AUDIENCE);
    assert!(
        result == "stale" && error.starts_with("the store is an old copy: "),
        "{result}: {error}"
    );
}

/// The state of a later record applies over the last whole generation, also after a restart
/// without the store or beside an old copy of it.
#[test]
fn later_records_of_an_incomplete_generation_apply_after_restarts() {
    let site = Site::new();
    let old = site.copy("old");
    let (erased, kept) = (members(1)[0], members(1)[1]);
    let server = site.start(&site.depot.root);
    site.publish(2);
    site.break_newest();
    let starts = || [site.start_alone(), site.start(&old)];
    let poll = |server: &Server| {
        server.poll();
        assert_eq!(server.generation(AUDIENCE), 1);
    };

    site.append(Change::entomb, erased);
    poll(&server);
    for server in starts() {
        assert_eq!(server.generation(AUDIENCE), 1);
        assert_eq!(answer(&server, &erased), Some(false));
        assert_eq!(answer(&server, &kept), Some(true));
    }
    for (state, expected) in [
        (State::Disabled, None),
        (State::Live, Some(true)),
        (State::Deleted, None),
    ] {
        site.depot.set(AUDIENCE, state, None);
        poll(&server);
        for server in starts() {
            assert_eq!(answer(&server, &kept), expected, "{state:?}");
            assert_ne!(answer(&server, &erased), Some(true), "{state:?}");
        }
    }
}

#[test]
fn old_copy_at_a_restart_undoes_nothing() {
    let site = Site::new();
    let erased = members(1)[0];
    let old = site.copy("old");
    site.append(Change::entomb, erased);
    drop(site.start(&site.depot.root));

    let mut server = site.start(&old);
    assert_stale(&mut server);
    assert_eq!(answer(&server, &erased), Some(false));
    assert_eq!(answer(&server, &members(1)[1]), Some(true));
    drop(server);

    // The cache lost a chunk: nothing is served rather than the erased device.
    let chunks = site.cache().join(AUDIENCE).join("chunks");
    let chunk = std::fs::read_dir(&chunks).unwrap().next().unwrap();
    std::fs::remove_file(chunk.unwrap().path()).unwrap();
    for _ in 0..2 {
        let mut server = site.start(&old);
        assert_stale(&mut server);
        assert!(!server.is_ready());
    }

    // The copy catches up.
    let mut server = site.start(&old);
    site.copy("old");
    server.poll();
    assert!(server.is_ready());
    assert_eq!(answer(&server, &erased), Some(false));
}

#[test]
fn old_copy_at_a_restart_revives_no_deleted_audience() {
    let site = Site::new();
    let old = site.copy("old");
    site.depot.delete(AUDIENCE);
    let deleted = site.copy("deleted");
    let server = site.start(&old);
    assert_eq!(answer(&server, &members(1)[0]), Some(true));
    drop(server);
    drop(site.start(&deleted));
    for _ in 0..2 {
        let mut server = site.start(&old);
        assert_stale(&mut server);
        assert_eq!(answer(&server, &members(1)[0]), None);
    }

    // Nor does an old copy of the deletion take a later publish away.
    site.publish(3);
    assert_eq!(
        answer(&site.start(&site.depot.root), &members(3)[0]),
        Some(true)
    );
    let mut server = site.start(&deleted);
    assert_stale(&mut server);
    assert_eq!(answer(&server, &members(3)[0]), Some(true));
}

/// A store that was restored from a backup, and written to: the numbers are used again.
#[test]
fn other_record_with_a_known_number_undoes_nothing() {
    let site = Site::new();
    let restored = Depot::at(site.copy("restored"));
    let (erased, added) = (members(1)[0], members(9)[0]);
    site.append(Change::entomb, erased);
    let mut running = site.start(&site.depot.root);

    let mut change = Change::default();
    change.add(added);
    restored.append(AUDIENCE, change);
    for _ in 0..2 {
        let mut server = site.start(&restored.root);
        assert_stale(&mut server);
        for key in [erased, added] {
            assert_eq!(answer(&server, &key), Some(false));
            assert_eq!(answer(&site.start_alone(), &key), Some(false));
        }
    }
    // A running pod notices it, too.
    let other = std::fs::read(restored.path(AUDIENCE, &record_path(2))).unwrap();
    site.depot.put(AUDIENCE, &record_path(2), Some(&other));
    running.poll();
    assert_stale(&mut running);
    assert_eq!(answer(&running, &erased), Some(false));

    // The next generation is new.
    restored.publish(AUDIENCE, &members(3), &Spec::small());
    let server = site.start(&restored.root);
    assert_eq!(server.generation(AUDIENCE), 2);
    assert_eq!(answer(&server, &added), Some(true));
}

#[test]
fn store_that_lags_is_stale_until_it_has_caught_up() {
    let site = Site::new();
    let link = site.folder.path().join("link");
    let switch = |to: &Path| {
        let staged = site.folder.path().join("staged");
        std::os::unix::fs::symlink(to, &staged).unwrap();
        std::fs::rename(&staged, &link).unwrap();
    };
    let erased = members(2)[0];
    switch(&site.depot.root);
    let mut server = site.start(&link);
    let lagging = [site.copy("first"), {
        site.publish(2);
        site.copy("second")
    }];
    site.append(Change::entomb, erased);
    site.depot.set(AUDIENCE, State::Disabled, None);
    server.poll();
    assert_eq!(
        (server.generation(AUDIENCE), answer(&server, &erased)),
        (2, None)
    );

    for copy in &lagging {
        switch(copy);
        server.poll();
        assert_stale(&mut server);
        assert_eq!(
            (server.generation(AUDIENCE), answer(&server, &erased)),
            (2, None)
        );
    }
    // Not all of what the pod has read, yet.
    site.depot.set(AUDIENCE, State::Live, None);
    site.depot.copy_to(&lagging[1]);
    let newest = Depot::at(lagging[1].clone());
    for number in [4, 5] {
        newest.put(AUDIENCE, &record_path(number), None);
    }
    std::fs::write(newest.path(AUDIENCE, "LATEST"), "3\n").unwrap();
    server.poll();
    assert_stale(&mut server);
    assert_eq!(answer(&server, &erased), None);

    site.depot.copy_to(&lagging[1]);
    server.poll();
    assert_eq!(server.last_sync(AUDIENCE).0, "ok");
    assert_eq!(answer(&server, &erased), Some(false));
    assert_eq!(answer(&server, &members(2)[1]), Some(true));
}

#[test]
fn pods_may_share_a_cache() {
    let site = Site::new();
    let erased = members(1)[0];
    let first = site.start(&site.depot.root);
    let requests = |web: &FileServer| web.requests("chunks/");
    let web = FileServer::serve(&site.depot.root);
    let second = site.start(Path::new(&web.url()));
    assert_eq!(requests(&web), 0, "the first has them in the cache");

    // One is ahead of the other, and removes what it does not need.
    site.append(Change::entomb, erased);
    second.poll();
    site.publish(2);
    first.poll();
    assert_eq!(
        (first.generation(AUDIENCE), second.generation(AUDIENCE)),
        (2, 1)
    );
    for _ in 0..2 {
        let server = site.start_alone();
        assert_eq!(server.generation(AUDIENCE), 2);
        assert_eq!(answer(&server, &members(2)[0]), Some(true));
        assert_eq!(answer(&server, &erased), Some(false));
    }
    second.poll();
    assert_eq!((second.generation(AUDIENCE), requests(&web)), (2, 0));

    // Both at once, many times.
    let pods = [&first, &second];
    for round in 3..12 {
        site.publish(round);
        site.append(Change::entomb, members(round)[0]);
        std::thread::scope(|scope| {
            for pod in pods {
                scope.spawn(|| pod.poll());
            }
        });
        let alone = site.start_alone();
        for server in [&first, &second, &alone] {
            assert_eq!(server.generation(AUDIENCE), round);
            assert_eq!(answer(server, &members(round)[0]), Some(false));
            assert_eq!(answer(server, &members(round)[1]), Some(true));
        }
    }
    for mut server in [first, second, site.start_alone()] {
        assert_eq!(server.metric("rtad_cache_errors_total"), 0);
    }
}

#[test]
fn reader_that_was_away_while_records_were_removed_reads_the_newest() {
    let site = Site::new();
    let web = FileServer::serve(&site.depot.root);
    drop(site.start(&site.depot.root));
    let mut running = Server::start(config(site.depot.url(), CONFIG, NEVER));
    let erased = members(3)[0];
    site.publish(2);
    site.append(Change::entomb, erased);
    site.publish(3);
    for number in 1..=3 {
        site.depot.put(AUDIENCE, &record_path(number), None);
    }

    running.poll();
    assert_eq!(
        running.last_sync(AUDIENCE),
        ("ok".to_owned(), String::new())
    );
    // A pod whose cache has a removed record, over a store that cannot be listed.
    let restarted = site.start(Path::new(&web.url()));
    for server in [&running, &restarted] {
        assert_eq!(server.generation(AUDIENCE), 3);
        assert_eq!(answer(server, &erased), Some(false));
        assert_eq!(answer(server, &members(3)[1]), Some(true));
    }
    drop(restarted);

    // Without a hint, a directory is listed. A server of files needs the hint.
    site.depot.put(AUDIENCE, "LATEST", None);
    let server = site.start(&site.depot.root);
    assert_eq!(server.generation(AUDIENCE), 3);
    drop(server);
    std::fs::remove_dir_all(site.cache()).unwrap();
    let mut server = site.start(Path::new(&web.url()));
    assert_eq!(server.last_sync(AUDIENCE).0, "not_found");
}

/// Parts of generations that were never whole would fill the disk.
#[test]
fn cache_has_the_last_whole_generation_and_parts_of_the_newest() {
    let site = Site::new();
    let server = site.start(&site.depot.root);
    let cached = || {
        let chunks = std::fs::read_dir(site.cache().join(AUDIENCE).join("chunks"));
        let mut names: Vec<_> = chunks.unwrap().map(|file| file.unwrap().path()).collect();
        names.sort();
        names
    };
    let whole = cached();
    for seed in 2..6 {
        site.publish(seed);
        site.break_newest();
        server.poll();
        let chunks = site.depot.manifest(AUDIENCE).chunks().len();
        let found = cached();
        assert!(whole.iter().all(|chunk| found.contains(chunk)));
        assert!(found.len() < whole.len() + chunks, "{seed}");
        assert_eq!(site.start_alone().generation(AUDIENCE), 1);
    }
    site.publish(6);
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 6);
    assert_eq!(
        cached().len(),
        server.snapshot(AUDIENCE).unwrap().chunks().len()
    );
}

/// A page in place of everything, as of a captive portal, is no endless list of records.
#[test]
fn server_that_answers_all_paths_is_asked_a_few_times() {
    let site = Site::new();
    let web = FileServer::serve(&site.depot.root);
    let mut server = site.start(Path::new(&web.url()));
    web.misbehave(Fault::Html, "");
    let requests = web.requests("");
    server.poll();
    assert_eq!(server.last_sync(AUDIENCE).0, "format");
    assert_eq!(web.requests("") - requests, 3);
    web.behave();
    site.publish(2);
    wait_until("the next", || {
        server.poll();
        server.generation(AUDIENCE) == 2
    });
}
