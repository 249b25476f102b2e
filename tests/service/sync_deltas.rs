//! Deltas in a pod: fetches, answers, faults, and the cache without a store.

use std::time::{Duration, Instant};

use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{State, shards_per_chunk};
use rtad_store::write::Change;
use testkit::client::{Client, metric_sum};
use testkit::server::FileServer;
use testkit::store::{Depot, Spec, hex, keys};
use testkit::wait_until;

use crate::server::{NEVER, Server, config, filter_addresses};

const AUDIENCE: &str = "old_users";
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

fn change(say: impl Fn(&mut Change, DeviceKey), keys: &[DeviceKey]) -> Change {
    let mut change = Change::default();
    keys.iter().for_each(|key| say(&mut change, *key));
    change
}

fn adding(keys: &[DeviceKey]) -> Change {
    change(Change::add, keys)
}

fn count(client: &mut Client, keys: &[DeviceKey]) -> usize {
    client
        .members(AUDIENCE, keys)
        .into_iter()
        .filter(|member| *member)
        .count()
}

fn metric(server: &Server, line: &str) -> f64 {
    let text = server.metrics();
    let found = text
        .lines()
        .find(|found| found.starts_with(line))
        .unwrap_or_else(|| panic!("{line} in {text}"));
    found.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn append_fetches_only_the_delta_and_shares_filters() {
    let depot = Depot::new();
    let (members, new) = (
        keys(1, 200_000, |shard| shard),
        keys(2, 1000, |shard| shard),
    );
    depot.publish(AUDIENCE, &members, &Spec::small());
    let web = FileServer::serve(&depot.root);
    let mut server = Server::start(config(&web.url(), CONFIG, NEVER));
    let mut client = server.connect();
    assert!(count(&mut client, &new) < 10);
    let before = (
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        web.sent_bytes(),
    );

    depot.append(AUDIENCE, adding(&new));
    server.poll();

    assert_eq!(count(&mut client, &new), 1000);
    assert_eq!(client.decide(&new[..1])[0], (false, "member".to_owned()));
    assert!(
        client
            .members_binary(AUDIENCE, &new)
            .into_iter()
            .all(|member| member)
    );
    assert_eq!(
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        before.0
    );
    let fetched = web.sent_bytes() - before.1;
    assert!(
        (16_000..24_000).contains(&fetched),
        "{fetched} bytes for 1,000 ids"
    );
    assert_eq!(server.sync_count(AUDIENCE, "ok"), 2);
    let deltas = &server.status(AUDIENCE)["snapshot"]["deltas"];
    assert_eq!(
        (&deltas["sequence"], &deltas["added"], &deltas["state"]),
        (&2.into(), &1000.into(), &"live".into())
    );
    assert_eq!(
        metric(
            &server,
            "rtad_delta_keys{audience=\"old_users\",change=\"added\"}"
        ) as u64,
        1000
    );
    assert!(
        metric(
            &server,
            "rtad_delta_appended_timestamp_seconds{audience=\"old_users\"}"
        ) > 1.7e9
    );

    // No change: only a 404.
    let sent = web.sent_bytes();
    server.poll();
    assert!(web.sent_bytes() - sent < 200);
    assert_eq!(server.sync_count(AUDIENCE, "unchanged"), 1);
}

#[test]
fn audience_of_a_window_is_polled_more_often() {
    let depot = Depot::new();
    let members = keys(1, 100, |shard| shard);
    depot.publish("nightly", &members, &Spec::small());
    depot.publish(
        "clicked",
        &members,
        &Spec {
            from_window: Some("clicks"),
            ..Spec::small()
        },
    );
    let names = "[[audience]]\nname = \"nightly\"\n[[audience]]\nname = \"clicked\"\n";
    let server = Server::start(config(depot.url(), names, Duration::from_secs(4)));
    let polls = |metrics: &str, audience: &str| {
        let polls = format!("rtad_sync_total{{audience=\"{audience}\",result=\"unchanged\"}}");
        metric_sum(metrics, &polls)
    };
    // One reading has both counts.
    let metrics = wait_until("six polls", || {
        let metrics = server.metrics();
        (polls(&metrics, "clicked") >= 6).then_some(metrics)
    });
    assert!(polls(&metrics, "nightly") <= 3);
}

/// Full-size version of `append_fetches_only_the_delta_and_shares_filters`, with a polling pod.
#[test]
#[ignore = "100 million keys: 5 GB of memory and a minute in release; the full_size suite runs it"]
fn pod_with_100_million_keys_fetches_changes_within_two_polls() {
    let (depot, poll) = (Depot::new(), Duration::from_secs(5));
    let (mut members, new) = (
        keys(1, 100_000_000, |shard| shard),
        keys(2, 1000, |shard| shard),
    );
    let shards_per_chunk = shards_per_chunk(&Spec::small().filter, members.len() as u64);
    let spec = Spec {
        shards_per_chunk,
        ..Spec::small()
    };
    depot.publish(AUDIENCE, &members, &spec);
    let web = FileServer::serve(&depot.root);
    let mut server = Server::start(config(&web.url(), CONFIG, poll));
    let mut client = server.connect();
    assert!(count(&mut client, &new) < 10);
    let all = web.sent_bytes();
    let polls = |server: &mut Server| {
        server.sync_count(AUDIENCE, "ok") + server.sync_count(AUDIENCE, "unchanged")
    };

    depot.append(AUDIENCE, adding(&new));
    let (begun, sent, polls_before) = (Instant::now(), web.sent_bytes(), polls(&mut server));
    wait_until("the ids are served", || count(&mut client, &new[..1]) == 1);
    let (after, fetched) = (begun.elapsed(), web.sent_bytes() - sent);
    assert!(polls(&mut server) - polls_before <= 2);
    assert_eq!(count(&mut client, &new), 1000);
    assert!(fetched < 1_000_000, "{fetched} bytes for 1,000 ids");

    // New members in three distant shards.
    members.extend(keys(3, 30, |shard| shard % 3 * 20_000));
    members.sort_unstable();
    let old = depot.manifest(AUDIENCE);
    depot.publish(AUDIENCE, &members, &spec);
    let changed = depot.manifest(AUDIENCE);
    let changed = changed
        .chunks()
        .iter()
        .filter(|entry| !old.chunks().contains(entry));
    let changed: Vec<u64> = changed.map(|entry| entry.size_bytes).collect();
    let sent = web.sent_bytes();
    wait_until("the next generation", || server.generation(AUDIENCE) == 2);
    let (rebuilt, chunks) = (web.sent_bytes() - sent, changed.iter().sum::<u64>());
    assert_eq!(
        (changed.len(), count(&mut client, &members[..1000])),
        (3, 1000)
    );
    let manifest = depot.current(AUDIENCE).unwrap().manifest_size_bytes;
    assert!(
        (chunks..chunks + manifest + 10_000).contains(&rebuilt),
        "{rebuilt} bytes for {chunks} in chunks"
    );
    println!(
        "{} keys: {all} bytes to load; 1,000 ids appended: {fetched} bytes, served after {:.1} s \
         at a poll interval \
         of {} s; 3 shards of a rebuild: {rebuilt} bytes, {chunks} of them in {} chunks",
        old.keys(),
        after.as_secs_f64(),
        poll.as_secs(),
        changed.len(),
    );
}

#[test]
fn removals_and_tombstones_apply_and_a_build_merges_deltas() {
    let depot = Depot::new();
    let members = keys(1, 20_000, |shard| shard);
    depot.publish(AUDIENCE, &members, &Spec::small());
    let server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    assert_eq!(count(&mut client, &members[..300]), 300);
    depot.append(AUDIENCE, change(Change::remove, &members[..100]));
    depot.append(AUDIENCE, change(Change::entomb, &members[100..200]));
    server.poll();
    assert_eq!(
        (
            count(&mut client, &members[..200]),
            count(&mut client, &members[200..400])
        ),
        (0, 200)
    );
    depot.append(AUDIENCE, adding(&members[..200]));
    server.poll();
    assert_eq!(
        (
            count(&mut client, &members[..100]),
            count(&mut client, &members[100..200])
        ),
        (100, 0)
    );

    // Deltas not merged by a build still apply; tombstones stay.
    depot.publish(AUDIENCE, &members[100..], &Spec::small());
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 2);
    assert_eq!(
        (
            count(&mut client, &members[..100]),
            count(&mut client, &members[100..200])
        ),
        (100, 0)
    );
    depot.roll_back(AUDIENCE, 1);
    server.poll();
    assert_eq!(
        (
            server.generation(AUDIENCE),
            count(&mut client, &members[..200])
        ),
        (1, 100)
    );
}

#[test]
fn broken_delta_keeps_the_old_state_until_repaired() {
    let depot = Depot::new();
    let (members, new, newer) = (
        keys(1, 2000, |s| s),
        keys(2, 10, |s| s),
        keys(3, 1000, |s| s),
    );
    depot.publish(AUDIENCE, &members, &Spec::small());
    depot.append(AUDIENCE, adding(&new));
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    depot.append(AUDIENCE, adding(&newer));
    let files = depot.files(AUDIENCE);
    let (name, bytes) = files
        .iter()
        .rfind(|(name, bytes)| name.ends_with(".delta") && bytes.len() > 10_000)
        .unwrap();
    let mut rotten = bytes.clone();
    rotten[100] ^= 1;
    let longer = [&bytes[..], b"x"].concat();
    for (damaged, result) in [
        (Some(&rotten[..]), "digest"),
        (Some(&bytes[..5000]), "truncated"),
        (Some(&longer[..]), "truncated"),
        (Some(&[][..]), "truncated"),
        (None, "not_found"),
    ] {
        let syncs = server.sync_count(AUDIENCE, result);
        depot.put(AUDIENCE, name, damaged);
        // A manual poll ignores the backoff.
        server
            .reload(Ok(config(depot.url(), CONFIG, NEVER)))
            .unwrap();
        assert!(
            server.sync_count(AUDIENCE, result) > syncs,
            "{result}: {:?}",
            server.last_sync(AUDIENCE)
        );
        let (_, error) = server.last_sync(AUDIENCE);
        assert!(error.contains(name), "{error}");
        let served = (
            count(&mut client, &new),
            count(&mut client, &members),
            count(&mut client, &newer),
        );
        assert!(
            served.0 == 10 && served.1 == 2000 && served.2 < 10,
            "{served:?}"
        );
        depot.put(AUDIENCE, name, Some(bytes));
    }
    server
        .reload(Ok(config(depot.url(), CONFIG, NEVER)))
        .unwrap();
    assert_eq!(count(&mut client, &newer), 1000);
}

#[test]
fn cache_serves_its_deltas_or_nothing() {
    let (depot, cache) = (Depot::new(), tempfile::tempdir().unwrap());
    let (members, new) = (keys(1, 2000, |s| s), keys(2, 100, |s| s));
    depot.publish(AUDIENCE, &members, &Spec::small());
    depot.append(AUDIENCE, adding(&new));
    depot.append(AUDIENCE, change(Change::entomb, &members[..10]));
    let with_cache = |url: &str| {
        let mut config = config(url, CONFIG, NEVER);
        config.store.cache_dir = Some(cache.path().to_owned());
        config
    };
    let server = Server::start(with_cache(depot.url()));
    assert_eq!(count(&mut server.connect(), &new), 100);
    let elsewhere = depot.root.with_file_name("elsewhere");
    std::fs::rename(&depot.root, &elsewhere).unwrap();
    std::fs::write(&depot.root, "no directory").unwrap();

    let server = Server::start(with_cache(depot.url()));
    let mut client = server.connect();
    assert_eq!(
        (count(&mut client, &new), count(&mut client, &members[..10])),
        (100, 0)
    );
    assert_eq!(count(&mut client, &members), 1990);

    // A pod without the tombstones would serve erased devices: so it serves nothing.
    let deltas: Vec<_> = std::fs::read_dir(cache.path().join(AUDIENCE).join("deltas"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(deltas.len(), 2);
    let tombstones = deltas
        .iter()
        .find(|path| std::fs::metadata(path).unwrap().len() == 64 + 160)
        .unwrap();
    std::fs::remove_file(tombstones).unwrap();
    let mut server = Server::start(with_cache(depot.url()));
    assert!(!server.is_ready());
    std::fs::remove_file(&depot.root).unwrap();
    std::fs::rename(&elsewhere, &depot.root).unwrap();
    server.poll();
    assert_eq!(
        (server.is_ready(), count(&mut server.connect(), &members)),
        (true, 1990)
    );
}

#[test]
fn disabled_expired_or_deleted_audience_is_unavailable() {
    let depot = Depot::new();
    let members = keys(1, 2000, |s| s);
    depot.publish(AUDIENCE, &members, &Spec::small());
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    let path = format!("/v1/check/{AUDIENCE}/{}", hex(&members[0]));
    let now = now_unix_seconds();
    for (state, ends, status) in [
        (State::Disabled, None, 503),
        (State::Live, None, 200),
        (State::Live, Some(now - 1), 503),
        (State::Live, Some(now + 3600), 200),
        (State::Deleted, None, 503),
    ] {
        depot.set(AUDIENCE, state, ends);
        server.poll();
        assert_eq!(client.get(&path).status, status, "{state:?}, {ends:?}");
        assert_eq!(
            server.status(AUDIENCE)["snapshot"]["deltas"]["state"],
            state.as_str()
        );
        assert_eq!(server.status(AUDIENCE)["available"], status == 200);
        // Readiness stays.
        assert!(server.is_ready());
    }
    // A pod that starts now has nothing to serve and reports why.
    let mut late = Server::start(config(depot.url(), CONFIG, NEVER));
    assert!(!late.is_ready());
    let (result, error) = late.last_sync(AUDIENCE);
    assert_eq!(
        (result.as_str(), error.contains("was deleted")),
        ("not_found", true),
        "{error}"
    );
    // A new publish is served.
    depot.publish(AUDIENCE, &members, &Spec::small());
    for server in [&server, &late] {
        server.poll();
        assert_eq!(
            (
                server.connect().get(&path).status,
                server.generation(AUDIENCE)
            ),
            (200, 2)
        );
    }
}

#[test]
fn deltas_apply_to_both_generations_during_rolling() {
    let (depot, cache) = (Depot::new(), tempfile::tempdir().unwrap());
    let (old, other, new) = (
        keys(1, 9000, |s| s),
        keys(2, 9000, |s| s),
        keys(3, 100, |s| s),
    );
    depot.publish(AUDIENCE, &old, &Spec::small());
    depot.append(AUDIENCE, adding(&new));
    depot.append(AUDIENCE, change(Change::remove, &old[..100]));
    let mut config = config(depot.url(), CONFIG, NEVER);
    config.store.cache_dir = Some(cache.path().to_owned());
    config.store.swap = rtad::sync::SwapMode::Rolling;
    let server = Server::start(config);
    let mut client = server.connect();
    assert_eq!(
        (count(&mut client, &new), count(&mut client, &old[..100])),
        (100, 0)
    );

    // A generation without common chunks.
    depot.publish(AUDIENCE, &other, &Spec::small());
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 2);
    assert_eq!(
        (count(&mut client, &new), count(&mut client, &other)),
        (100, 9000)
    );
    assert!(count(&mut client, &old[..100]) == 0 && count(&mut client, &old[100..1000]) < 10);

    // A rollback, with more deltas during it.
    depot.append(AUDIENCE, change(Change::entomb, &new[..50]));
    depot.roll_back(AUDIENCE, 1);
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 1);
    assert_eq!(
        (
            count(&mut client, &new[..50]),
            count(&mut client, &new[50..])
        ),
        (0, 50)
    );
    assert_eq!(
        (
            count(&mut client, &old[..100]),
            count(&mut client, &old[100..])
        ),
        (0, 8900)
    );
    assert!(metric(&server, "rtad_snapshot_mixed{audience=\"old_users\"}") < 1.0);
}

#[test]
fn deltas_of_an_unloadable_generation_apply_to_the_served_one() {
    let depot = Depot::new();
    let (members, new) = (keys(1, 2000, |s| s), keys(2, 100, |s| s));
    depot.publish(AUDIENCE, &members, &Spec::small());
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    depot.publish(AUDIENCE, &members[..1900], &Spec::small());
    let old: Vec<_> = server
        .snapshot(AUDIENCE)
        .unwrap()
        .chunks()
        .iter()
        .map(|chunk| *chunk.digest())
        .collect();
    let missing = depot.manifest(AUDIENCE);
    let missing = missing
        .chunks()
        .iter()
        .find(|entry| !old.contains(&entry.digest))
        .unwrap();
    let file = format!("chunks/{}.chunk", missing.digest);
    depot.put(AUDIENCE, &file, None);

    depot.append(AUDIENCE, change(Change::entomb, &members[..10]));
    depot.append(AUDIENCE, adding(&new));
    server.poll();
    assert_eq!(
        (
            server.generation(AUDIENCE),
            server.sync_count(AUDIENCE, "not_found")
        ),
        (1, 1)
    );
    assert_eq!(
        (count(&mut client, &members[..10]), count(&mut client, &new)),
        (0, 100)
    );
    assert_eq!(count(&mut client, &members[10..]), 1990);
    depot.set(AUDIENCE, State::Disabled, None);
    server.poll();
    assert_eq!(
        client
            .get(&format!("/v1/check/{AUDIENCE}/{}", hex(&members[20])))
            .status,
        503
    );

    depot.set(AUDIENCE, State::Live, None);
    server.poll();
    // A stale copy must not undo an erasure.
    depot.append(AUDIENCE, change(Change::entomb, &members[10..20]));
    server.poll();
    let newest = depot.newest_record(AUDIENCE);
    let erasure = depot.files(AUDIENCE)[&newest].clone();
    let hint = format!("{}\n", depot.current(AUDIENCE).unwrap().sequence - 1);
    depot.put(AUDIENCE, &newest, None);
    depot.put(AUDIENCE, "LATEST", Some(hint.as_bytes()));
    server.poll();
    assert_eq!(
        (
            server.sync_count(AUDIENCE, "stale"),
            count(&mut client, &members[..20])
        ),
        (1, 0)
    );
    depot.put(AUDIENCE, &newest, Some(&erasure));

    // The next generation has them merged, but cannot be loaded either.
    depot.append(AUDIENCE, change(Change::remove, &members[20..30]));
    server.poll();
    let mut merged = [&members[30..1900], &new].concat();
    merged.sort_unstable();
    depot.publish_merged(AUDIENCE, &merged, &Spec::small());
    let next = depot.manifest(AUDIENCE);
    assert_eq!(next.generation(), 3);
    let lost = next
        .chunks()
        .iter()
        .find(|entry| !old.contains(&entry.digest))
        .unwrap();
    let lost = format!("chunks/{}.chunk", lost.digest);
    let next_bytes = depot.files(AUDIENCE)[&lost].clone();
    depot.put(AUDIENCE, &lost, None);
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 1);
    assert_eq!(
        (count(&mut client, &members[..30]), count(&mut client, &new)),
        (0, 100)
    );

    depot.put(AUDIENCE, &lost, Some(&next_bytes));
    server.poll();
    assert_eq!(
        (
            server.generation(AUDIENCE),
            count(&mut client, &members[..30])
        ),
        (3, 0)
    );
    assert_eq!(count(&mut client, &new), 100);
}

/// The state and the end of validity apply without the deltas; becoming available takes them.
#[test]
fn disabled_or_expired_audience_is_unavailable_although_a_delta_cannot_be_read() {
    let now = now_unix_seconds();
    for (state, ends) in [(State::Disabled, None), (State::Live, Some(now - 1))] {
        let (depot, cache) = (Depot::new(), tempfile::tempdir().unwrap());
        let (members, new) = (keys(1, 2000, |s| s), keys(2, 100, |s| s));
        depot.publish(AUDIENCE, &members, &Spec::small());
        let mut config = config(depot.url(), CONFIG, NEVER);
        config.store.cache_dir = Some(cache.path().to_owned());
        let mut server = Server::start(config.clone());
        let path = format!("/v1/check/{AUDIENCE}/{}", hex(&members[0]));
        let status = |server: &Server| server.connect().get(&path).status;
        assert_eq!(status(&server), 200);

        depot.append(AUDIENCE, adding(&new));
        depot.set(AUDIENCE, state, ends);
        let files = depot.files(AUDIENCE);
        let (name, bytes) = files
            .iter()
            .find(|(name, _)| name.ends_with(".delta"))
            .unwrap();
        depot.put(AUDIENCE, name, None);
        for _ in 0..2 {
            server.poll();
            assert_eq!(status(&server), 503, "{state:?}, {ends:?}");
            assert_eq!(server.last_sync(AUDIENCE).0, "not_found");
        }
        // A restart with the cache, with and without the store. Its first poll ends before it is
        // dropped: a later one could put the restored delta into the cache.
        let restarted = || {
            let server = Server::start(config.clone());
            server.poll();
            status(&server)
        };
        assert_eq!(restarted(), 503, "{state:?}, {ends:?}");
        let away = depot.root.with_extension("away");
        std::fs::rename(&depot.root, &away).unwrap();
        std::fs::write(&depot.root, "no directory").unwrap();
        assert_eq!(restarted(), 503, "{state:?}, {ends:?}");
        std::fs::remove_file(&depot.root).unwrap();
        std::fs::rename(&away, &depot.root).unwrap();

        // Enabled again, but its deltas may hold removals.
        depot.put(AUDIENCE, name, Some(bytes));
        depot.set(AUDIENCE, State::Live, None);
        depot.put(AUDIENCE, name, None);
        server.poll();
        assert_eq!(status(&server), 503, "{state:?}, {ends:?}");
        depot.put(AUDIENCE, name, Some(bytes));
        server.poll();
        assert_eq!(
            (status(&server), count(&mut server.connect(), &new)),
            (200, 100)
        );
    }
}
