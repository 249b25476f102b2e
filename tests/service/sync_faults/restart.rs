//! Starts with a dead store, with and without a cache; faults of the cache; small containers.

mod cache;

use std::path::Path;
use std::time::Duration;

use rtad::config::Config;
use rtad::sync::{Shared, Syncer};
use rtad_core::clock::now_unix_seconds;
use rtad_store::Store;

use testkit::cgroup::Cgroup;
use testkit::server::{Fault, FileServer};

use super::*;

const OFTEN: Duration = Duration::from_millis(100);

/// A store with one generation, and a cache directory.
struct Site {
    depot: Depot,
    unruly: FileServer,
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let depot = Depot::new();
        depot.publish(AUDIENCE, &members(1), &Spec::small());
        let unruly = FileServer::serve(&depot.root);
        Self {
            depot,
            unruly,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn cache(&self) -> std::path::PathBuf {
        self.folder.path().join("cache")
    }

    fn config(&self, cache: Option<&Path>) -> Config {
        let mut config = config(&self.unruly.url(), CONFIG, OFTEN);
        config.store.cache_dir = cache.map(Into::into);
        config
    }

    fn start(&self, cache: Option<&Path>) -> Server {
        Server::start(self.config(cache))
    }

    fn publish(&self, seed: u64) {
        self.depot.publish(AUDIENCE, &members(seed), &Spec::small());
    }
}

#[track_caller]
fn assert_serves(server: &mut Server, generation: u64, seed: u64) {
    assert_eq!(server.generation(AUDIENCE), generation);
    assert!(server.is_ready());
    assert!(
        server
            .connect()
            .members(AUDIENCE, &members(seed))
            .iter()
            .all(|member| *member)
    );
}

#[test]
fn pod_without_cache_waits_for_the_store() {
    let site = Site::new();
    site.unruly.misbehave(Fault::Dead, "");
    let mut server = site.start(None);
    assert!(!server.is_ready() && server.sync_count(AUDIENCE, "store") >= 1);
    site.unruly.behave();
    wait_until("it is ready", || server.is_ready());
    assert_serves(&mut server, 1, 1);
}

#[test]
fn pod_with_cache_starts_without_the_store() {
    let site = Site::new();
    let cache = site.cache();
    assert_serves(&mut site.start(Some(&cache)), 1, 1);
    for (fault, word, result) in [
        (Fault::Dead, "", "store"),
        (Fault::Status("403 Forbidden", ""), "", "store"),
        (Fault::Mute, "", "store"),
        (Fault::Status("304 Not Modified", ""), "", "store"),
        (Fault::Html, "records/", "format"),
    ] {
        site.unruly.misbehave(fault, word);
        let mut config = site.config(Some(&cache));
        if matches!(fault, Fault::Mute) {
            config.store.stall_timeout = Duration::from_secs(1);
        }
        let mut server = Server::start(config);
        assert_serves(&mut server, 1, 1);
        assert!(server.sync_count(AUDIENCE, result) >= 1, "{fault:?}");
        assert_eq!(server.last_sync(AUDIENCE).0, result, "{fault:?}");
        assert_eq!(server.metric("rtad_cache_starts_total{"), 1, "{fault:?}");
        // No change is not logged.
        site.unruly.behave();
        wait_until("the store is back", || {
            server.sync_count(AUDIENCE, "unchanged") >= 1
        });
        assert_serves(&mut server, 1, 1);
    }
    site.unruly.misbehave(Fault::Dead, "");
    let mut server = site.start(Some(&cache));
    site.publish(2);
    site.unruly.behave();
    wait_until("the next", || server.generation(AUDIENCE) == 2);
    assert_serves(&mut server, 2, 2);

    // The restart does not serve an older generation.
    site.unruly.misbehave(Fault::Dead, "");
    assert_serves(&mut site.start(Some(&cache)), 2, 2);
}

#[test]
fn pod_with_cache_starts_without_the_store_directory() {
    let site = Site::new();
    let start = || {
        let mut config = config(site.depot.url(), CONFIG, OFTEN);
        config.store.cache_dir = Some(site.cache());
        Server::start(config)
    };
    assert_serves(&mut start(), 1, 1);
    std::fs::rename(&site.depot.root, site.depot.root.with_extension("gone")).unwrap();
    let mut server = start();
    assert_serves(&mut server, 1, 1);
    assert_eq!(server.last_sync(AUDIENCE).0, "store");
    assert_eq!(server.metric("rtad_cache_starts_total{"), 1);

    // A mount point without its mount.
    std::fs::create_dir(&site.depot.root).unwrap();
    let mut server = start();
    assert_serves(&mut server, 1, 1);
    wait_until("it polls again", || {
        server.sync_count(AUDIENCE, "not_found") >= 2
    });
    let (result, error) = server.last_sync(AUDIENCE);
    assert_eq!(result, "not_found");
    let expected = "old_users/records is empty, and generation 1 stays served: check the store";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn unreadable_new_generation_at_start_keeps_the_cached_one() {
    let site = Site::new();
    let cache = site.cache();
    assert_serves(&mut site.start(Some(&cache)), 1, 1);
    site.publish(2);
    site.unruly
        .misbehave(Fault::Status("404 Not Found", ""), "chunks/");
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 1);
    wait_until("it is polled", || {
        server.sync_count(AUDIENCE, "not_found") >= 1
    });
    site.unruly.behave();
    wait_until("the next", || server.generation(AUDIENCE) == 2);
    assert_serves(&mut server, 2, 2);
}

#[test]
fn disable_read_at_a_start_without_its_deltas_survives_a_restart_without_the_store() {
    let site = Site::new();
    let cache = site.cache();
    assert_serves(&mut site.start(Some(&cache)), 1, 1);
    let mut change = Change::default();
    change.add(members(2)[0]);
    site.depot.append(AUDIENCE, change);
    site.depot.set(AUDIENCE, State::Disabled, None);
    for (fault, word) in [
        (Fault::Status("404 Not Found", ""), "deltas/"),
        (Fault::Dead, ""),
    ] {
        site.unruly.misbehave(fault, word);
        let server = site.start(Some(&cache));
        let path = format!("/v1/check/{AUDIENCE}/{}", hex(&members(1)[0]));
        server.connect().get(&path).problem(503, "not_loaded");
    }
}

/// Changes apply to the served generation before the one that they belong to is loaded.
#[test]
fn changes_over_an_older_generation_survive_a_restart_without_the_store() {
    let site = Site::new();
    let cache = site.cache();
    let (old, new) = (members(1), members(3));
    let mut server = site.start(Some(&cache));
    let answer = |server: &Server, key: &DeviceKey| server.connect().members(AUDIENCE, &[*key])[0];

    site.unruly.misbehave(Fault::Gate, "records/");
    site.publish(2);
    for chunk in site.depot.manifest(AUDIENCE).chunks() {
        site.depot
            .put(AUDIENCE, &format!("chunks/{}.chunk", chunk.digest), None);
    }
    let mut change = Change::default();
    change.entomb(old[0]);
    change.remove(old[1]);
    change.add(new[0]);
    site.depot.append(AUDIENCE, change);
    site.unruly.behave();
    wait_until("the changes", || answer(&server, &new[0]));

    // The next delta cannot be read: its tombstones apply alone.
    site.unruly.misbehave(Fault::Gate, "records/");
    let mut change = Change::default();
    change.add(new[1]);
    site.depot.append(AUDIENCE, change);
    let delta = site.depot.current(AUDIENCE).unwrap().deltas.pop().unwrap();
    let delta = format!("deltas/{}-{}.delta", delta.last, delta.sha256);
    site.depot.put(AUDIENCE, &delta, None);
    let mut change = Change::default();
    change.entomb(old[2]);
    site.depot.append(AUDIENCE, change);
    site.unruly.behave();
    wait_until("the erasure", || !answer(&server, &old[2]));
    // The poll that served it ends when the cache has it.
    let polls = server.metric("rtad_sync_total{");
    wait_until("the cache", || server.metric("rtad_sync_total{") > polls);

    let expected = [false, false, false, true, true, false];
    let probes = [old[0], old[1], old[2], old[3], new[0], new[1]];
    assert_eq!(server.connect().members(AUDIENCE, &probes), expected);
    drop(server);
    site.unruly.misbehave(Fault::Dead, "");
    let server = site.start(Some(&cache));
    assert_eq!(server.generation(AUDIENCE), 1);
    assert_eq!(server.connect().members(AUDIENCE, &probes), expected);
}

#[test]
fn expired_audience_is_not_served_from_the_cache() {
    let site = Site::new();
    let cache = site.cache();
    let path = format!("/v1/check/{AUDIENCE}/{}", hex(&members(2)[0]));
    // A busy machine may take longer to load a generation than the generation is valid.
    let served = |valid_seconds: &u64| {
        let now = now_unix_seconds();
        let expires = now + valid_seconds;
        let spec = Spec {
            created_unix_seconds: now - 10,
            expires_unix_seconds: Some(expires),
            ..Spec::small()
        };
        let generation = site.depot.publish(AUDIENCE, &members(2), &spec);
        let mut server = site.start(Some(&cache));
        let answer = server.connect().get(&path);
        (answer.status == 200).then(|| {
            assert_eq!(answer.ok()["member"], true);
            assert_eq!(
                (server.generation(AUDIENCE), server.is_ready()),
                (generation, true)
            );
            (generation, expires)
        })
    };
    let (generation, expires) = [3, 20, 200].iter().find_map(served).unwrap();
    wait_until("it has expired", || now_unix_seconds() > expires);
    for fault in [Some(Fault::Dead), None] {
        match fault {
            Some(fault) => site.unruly.misbehave(fault, ""),
            None => site.unruly.behave(),
        }
        let mut server = site.start(Some(&cache));
        assert_eq!(
            (server.generation(AUDIENCE), server.is_ready()),
            (0, false),
            "{fault:?}"
        );
        assert_eq!(server.metric("rtad_cache_starts_total{"), 0);
    }
    site.publish(1);
    assert_serves(&mut site.start(Some(&cache)), generation + 1, 1);
}

#[test]
fn store_without_records_is_no_reason_to_serve_nothing() {
    let site = Site::new();
    let cache = site.cache();
    assert_serves(&mut site.start(Some(&cache)), 1, 1);
    site.depot.lose_records(AUDIENCE);
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 1);
    assert!(server.sync_count(AUDIENCE, "not_found") >= 1);
    let mut server = site.start(None);
    assert!(!server.is_ready() && server.sync_count(AUDIENCE, "not_found") >= 1);
}

#[test]
fn restart_reads_intact_chunks_from_the_cache() {
    let site = Site::new();
    let cache = site.cache();
    let mut server = site.start(Some(&cache));
    let read = server.metric("rtad_chunks_read_total{source=\"store\"}");
    assert!(read >= 2, "{read}");
    let requests = site.unruly.requests("chunks/");
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 1);
    assert_eq!(site.unruly.requests("chunks/"), requests);
    assert_eq!(
        server.metric("rtad_chunks_read_total{source=\"cache\"}"),
        read
    );

    let mut chunks = std::fs::read_dir(cache.join(AUDIENCE).join("chunks")).unwrap();
    let chunk = chunks.next().unwrap().unwrap().path();
    let sound = std::fs::read(&chunk).unwrap();
    let mut damaged = sound.clone();
    damaged[100] ^= 1;
    std::fs::write(&chunk, damaged).unwrap();
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 1);
    assert_eq!(site.unruly.requests("chunks/"), requests + 1);
    assert_eq!(server.metric("rtad_cache_errors_total"), 1);
    assert_eq!(std::fs::read(&chunk).unwrap(), sound, "it was written anew");
}

#[test]
fn unwritable_cache_disables_only_the_cache() {
    let site = Site::new();
    // A file instead of the directory: permissions do not apply to root.
    std::fs::write(site.cache(), b"a file").unwrap();
    let mut server = site.start(Some(&site.cache()));
    assert_serves(&mut server, 1, 1);
    assert!(server.metric("rtad_cache_errors_total") >= 3);
    site.publish(2);
    wait_until("the next", || server.generation(AUDIENCE) == 2);
    assert_serves(&mut server, 2, 2);
    assert_eq!(server.sync_count(AUDIENCE, "ok"), 2);
}

#[test]
fn snapshot_larger_than_the_memory_limit_is_rejected() {
    let site = Site::new();
    let group = Cgroup::with_limit(1_000_000_000);
    let shared = Shared::default();
    let plan = crate::server::Served::from(config(site.depot.url(), CONFIG, NEVER))
        .0
        .plan();
    let store = Store::open(site.depot.url()).unwrap();
    let sync = Syncer::new(store, plan, shared.clone()).with_headroom(group.headroom());
    let serving = sync.serving();
    let generation = || {
        let catalog = serving.load();
        let snapshot = catalog.audience(AUDIENCE).unwrap().snapshot.clone();
        snapshot.map_or(0, |snapshot| snapshot.manifest().generation())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let poll = || {
        runtime.block_on(sync.poll_all());
        shared.polls.last(&AUDIENCE.parse().unwrap()).unwrap()
    };
    assert_eq!((poll().result, generation()), ("ok", 1));

    site.publish(2);
    group.set_used(999_999_000);
    let last = poll();
    assert_eq!((last.result, generation()), ("too_large", 1));
    let words = "bytes beside the served one, the container has 1000 left: raise its memory limit";
    assert!(last.error.as_ref().unwrap().contains(words), "{last:?}");
    assert!(
        shared
            .telemetry
            .render()
            .contains("result=\"too_large\"} 1")
    );

    group.set_limit("max");
    assert_eq!((poll().result, generation()), ("ok", 2));
}
