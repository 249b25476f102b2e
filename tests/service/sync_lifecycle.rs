//! Sync lifecycle: start without a store, publishes, rollbacks, staleness, expiry, reloads.

use std::net::TcpStream;
use std::time::Duration;

use rtad::config::Config;
use rtad::sync::Syncer;
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::Current;
use rtad_store::Store;
use serde_json::Value;
use testkit::client::{Client, metric};
use testkit::store::{Depot, Spec, hex, keys, manifest_path, record_path};
use testkit::wait_until;

use crate::server::{NEVER, Served, Server, config, filter_addresses};

const AUDIENCE: &str = "old_users";
const OFTEN: Duration = Duration::from_millis(100);
const CONFIG: &str = r#"
[[audience]]
name = "old_users"
max_age = "1h"

[[strategy]]
name = "careful"
exclude = ["old_users"]
unavailable = "no_bid"

[[strategy]]
name = "bold"
exclude = ["old_users"]
unavailable = "bid"
"#;

fn members(seed: u64) -> Vec<DeviceKey> {
    keys(seed, 2000, |shard| shard)
}

/// Asserts that the audience is unavailable.
#[track_caller]
fn assert_unavailable(client: &mut Client, key: &DeviceKey) {
    client
        .get(&format!("/v1/check/{AUDIENCE}/{}", hex(key)))
        .problem(503, "not_loaded");
    assert_eq!(
        client
            .post_binary(&format!("/v1/check/{AUDIENCE}"), key.as_bytes())
            .status,
        503
    );
    let unavailable = |bid| (bid, "unavailable".to_owned());
    assert_eq!(
        client.decide(&[*key]),
        [unavailable(false), unavailable(true)]
    );
}

/// Asserts that these are members.
#[track_caller]
fn assert_members(client: &mut Client, members: &[DeviceKey]) {
    assert!(
        client
            .members(AUDIENCE, members)
            .into_iter()
            .all(|member| member)
    );
    assert_eq!(
        client.decide(&members[..1]),
        [(false, "member".to_owned()), (false, "member".to_owned())]
    );
}

/// Asserts that a pod over this store starts, is not ready, and becomes ready after `repair`.
fn starts_and_becomes_ready(url: &str, result: &str, words: &str, repair: impl FnOnce()) {
    let mut server = Server::start(config(url, CONFIG, OFTEN));
    let mut client = server.connect();
    assert_eq!(server.admin.get("/livez").status, 200);
    let answer = server.admin.get("/readyz");
    let found = (answer.status, answer.text());
    assert_eq!(
        (found.0, found.1.as_str()),
        (
            503,
            "not ready: waiting for the first snapshot of old_users\n"
        )
    );
    let (found, error) = server.last_sync(AUDIENCE);
    assert!(
        found == result && error.contains(words),
        "{found}: {error:?}, not {words:?}"
    );
    assert_eq!(server.status(AUDIENCE)["available"], false);
    assert_unavailable(&mut client, &members(1)[0]);

    repair();
    wait_until("it is ready", || server.is_ready());
    assert_members(&mut client, &members(1));
}

#[test]
fn pod_starts_without_a_store_and_loads_the_first_publish() {
    let depot = Depot::new();
    starts_and_becomes_ready(
        depot.url(),
        "not_found",
        "publish it with `rtad-loader build",
        || {
            depot.publish(AUDIENCE, &members(1), &Spec::small());
        },
    );

    // The directory does not exist.
    let depot = Depot::new();
    std::fs::remove_dir(&depot.root).unwrap();
    starts_and_becomes_ready(
        depot.url(),
        "store",
        "does not exist: check the path",
        || {
            std::fs::create_dir(&depot.root).unwrap();
            depot.publish(AUDIENCE, &members(1), &Spec::small());
        },
    );
}

#[test]
fn pod_starts_with_a_damaged_store_and_loads_the_repair() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let sound = depot.files(AUDIENCE);
    let chunk = sound
        .keys()
        .find(|path| path.starts_with("chunks/"))
        .unwrap();
    let half = &sound[chunk][..sound[chunk].len() / 2];
    let (record, manifest) = (record_path(1), depot.live_manifest(AUDIENCE));
    for (path, bytes, result, words) in [
        (
            &record,
            &b"<html>"[..],
            "format",
            "old_users/records/00000000000000000001.json: is not valid in version 1",
        ),
        (
            &manifest,
            &b"{}"[..],
            "truncated",
            ".json: has 2 bytes, expected ",
        ),
        (chunk, half, "truncated", ".chunk: has "),
    ] {
        depot.put(AUDIENCE, path, Some(bytes));
        starts_and_becomes_ready(depot.url(), result, words, || {
            depot.put(AUDIENCE, path, Some(&sound[path]));
        });
    }

    // Repaired by a publish of the same keys: only the truncated chunk is replaced.
    depot.put(AUDIENCE, chunk, Some(half));
    starts_and_becomes_ready(depot.url(), "truncated", ".chunk: has ", || {
        assert_eq!(depot.publish(AUDIENCE, &members(1), &Spec::small()), 2);
    });
}

#[test]
fn rollbacks_and_later_publishes_are_followed() {
    let depot = Depot::new();
    for seed in 1..=3 {
        depot.publish(AUDIENCE, &members(seed), &Spec::small());
    }
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    assert_eq!(server.generation(AUDIENCE), 3);
    let mut poll_and_check = |generation: u64, seed: u64| {
        server.poll();
        assert_eq!(server.last_sync(AUDIENCE), ("ok".to_owned(), String::new()));
        assert_eq!(server.generation(AUDIENCE), generation);
        assert_members(&mut client, &members(seed));
        assert!(server.is_ready());
    };
    depot.roll_back(AUDIENCE, 2);
    poll_and_check(2, 2);
    depot.roll_back(AUDIENCE, 1);
    poll_and_check(1, 1);
    depot.roll_back(AUDIENCE, 2);
    poll_and_check(2, 2);
    assert_eq!(depot.publish(AUDIENCE, &members(4), &Spec::small()), 4);
    poll_and_check(4, 4);
    // Two changes between polls.
    depot.publish(AUDIENCE, &members(5), &Spec::small());
    depot.roll_back(AUDIENCE, 1);
    poll_and_check(1, 1);
    depot.publish(AUDIENCE, &members(6), &Spec::small());
    poll_and_check(6, 6);
}

#[test]
fn stale_snapshot_is_unavailable_until_a_fresh_publish() {
    let depot = Depot::new();
    let now = now_unix_seconds();
    let aged = |seconds| Spec {
        created_unix_seconds: now - seconds,
        ..Spec::small()
    };
    depot.publish(AUDIENCE, &members(1), &aged(7200));
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let mut client = server.connect();
    // Loaded, so the pod is ready, although it answers "unavailable".
    assert!(server.is_ready());
    assert_eq!(server.status(AUDIENCE)["available"], false);
    assert_eq!(server.status(AUDIENCE)["snapshot"]["generation"], 1);
    assert_unavailable(&mut client, &members(1)[0]);

    depot.publish(AUDIENCE, &members(2), &Spec::small());
    server.poll();
    assert_eq!(server.status(AUDIENCE)["available"], true);
    assert_members(&mut client, &members(2));

    depot.publish(AUDIENCE, &members(3), &aged(3700));
    server.poll();
    assert_unavailable(&mut client, &members(3)[0]);
    let ready = server.connect_admin().get("/readyz");
    assert_eq!(ready.status, 200);
    assert_eq!(ready.text(), format!("ready; unavailable: {AUDIENCE}\n"));
    // A higher limit makes it available again, without a read.
    let later = config(depot.url(), &CONFIG.replace("1h", "2h"), NEVER);
    server.reload(Ok(later)).unwrap();
    assert_members(&mut client, &members(3));
}

#[test]
fn served_snapshot_becomes_stale() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let server = Server::start(config(depot.url(), &CONFIG.replace("1h", "3s"), OFTEN));
    let mut client = server.connect();
    let snapshot = server.snapshot(AUDIENCE).unwrap();
    wait_until("it is too old", || server.catalog().audiences()[0].is_stale);
    assert_unavailable(&mut client, &members(1)[0]);
    assert_eq!(
        filter_addresses(&snapshot),
        filter_addresses(&server.snapshot(AUDIENCE).unwrap())
    );
}

/// Built two hours ago, valid for this long.
fn lasting(seconds: u64) -> Spec {
    let created_unix_seconds = now_unix_seconds() - 7200;
    let expires_unix_seconds = Some(created_unix_seconds + seconds);
    Spec {
        created_unix_seconds,
        expires_unix_seconds,
        ..Spec::small()
    }
}

fn without_max_age() -> String {
    CONFIG.replace("max_age = \"1h\"\n", "")
}

#[test]
fn expired_generation_is_not_loaded() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &lasting(3600));
    let mut server = Server::start(config(depot.url(), &without_max_age(), NEVER));
    let mut client = server.connect();
    assert_eq!((server.generation(AUDIENCE), server.is_ready()), (0, false));
    let (result, error) = server.last_sync(AUDIENCE);
    let words = "s ago: publish a new one with `rtad-loader build`, or correct the clock";
    assert!(
        result == "expired" && error.starts_with("generation 1 expired ") && error.ends_with(words),
        "{error}"
    );
    assert_eq!(server.sync_count(AUDIENCE, "expired"), 1);

    depot.publish(AUDIENCE, &members(2), &lasting(9000));
    server.poll();
    assert_members(&mut client, &members(2));
    let expires = server.status(AUDIENCE)["snapshot"]["expires_unix_seconds"]
        .as_u64()
        .unwrap();
    assert!(expires > now_unix_seconds());
    let metrics = server.metrics();
    let gauge =
        format!("rtad_snapshot_expires_timestamp_seconds{{audience=\"{AUDIENCE}\"}} {expires}");
    assert!(metrics.contains(&gauge));

    // Replaced by an expired one: the valid one is still served.
    depot.publish(AUDIENCE, &members(3), &lasting(1));
    server.poll();
    assert_eq!(
        (
            server.generation(AUDIENCE),
            server.last_sync(AUDIENCE).0.as_str()
        ),
        (2, "expired")
    );
    assert_members(&mut client, &members(2));
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    server.poll();
    assert_members(&mut client, &members(1));
    assert!(
        server.status(AUDIENCE)["snapshot"]
            .get("expires_unix_seconds")
            .is_none()
    );
    let metrics = server.metrics();
    assert!(metrics.contains(&format!(
        "rtad_snapshot_expires_timestamp_seconds{{audience=\"{AUDIENCE}\"}} NaN"
    )));
}

#[test]
fn rejected_manifest_is_retried_with_backoff_and_a_new_one_at_once() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let mut server = Server::start(config(depot.url(), CONFIG, OFTEN));
    let rejected = Current::new(2, 2, &[b' '; 1000], None);
    let manifest = manifest_path(&rejected.live_entry());
    // The manifest grows before each poll: the size in the error shows when it was last read.
    let grow = |server: &mut Server| {
        let length = server.sync_count(AUDIENCE, "truncated") as usize + 1;
        depot.put(AUDIENCE, &manifest, Some(&vec![b' '; length]));
        length
    };
    grow(&mut server);
    depot.put(AUDIENCE, &record_path(2), Some(&rejected.to_bytes()));
    let mut read = std::collections::BTreeSet::new();
    while grow(&mut server) <= 20 {
        read.insert(server.last_sync(AUDIENCE).1);
        std::thread::sleep(Duration::from_millis(3));
    }
    // Reads at polls 1, 2, 4, 8 and 16.
    read.remove("");
    assert!((2..=5).contains(&read.len()), "{read:?}");
    assert!(
        read.iter()
            .all(|error| error.starts_with("old_users/manifests/2-") && error.contains(": has ")),
        "{read:?}"
    );
    assert_members(&mut server.connect(), &members(1));

    // Backoff of fifteen polls. The new publish is another one.
    assert_eq!(depot.publish(AUDIENCE, &members(3), &Spec::small()), 3);
    let rejected = server.sync_count(AUDIENCE, "truncated");
    wait_until("the new generation", || server.generation(AUDIENCE) == 3);
    // A poll may have been in progress.
    assert!(server.sync_count(AUDIENCE, "truncated") <= rejected + 1);
}

#[test]
fn lost_records_are_restored_by_the_next_publish() {
    let depot = Depot::new();
    for seed in 1..=3 {
        depot.publish(AUDIENCE, &members(seed), &Spec::small());
    }
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    depot.lose_records(AUDIENCE);
    server.poll();
    assert_eq!(
        (server.generation(AUDIENCE), server.last_sync(AUDIENCE).0),
        (3, "not_found".to_owned())
    );

    // Numbers continue after the hint, and the pod follows.
    assert_eq!(depot.publish(AUDIENCE, &members(4), &Spec::small()), 4);
    assert_eq!(depot.current(AUDIENCE).unwrap().sequence, 4);
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 4);
    depot.publish(AUDIENCE, &members(5), &Spec::small());
    depot.roll_back(AUDIENCE, 4);
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 4);
}

#[test]
fn pod_without_required_audiences_is_ready() {
    let depot = Depot::new();
    let optional = format!("{CONFIG}\n").replace("max_age", "required = false\nmax_age");
    let mut server = Server::start(config(depot.url(), &optional, NEVER));
    assert!(server.is_ready());
    assert_unavailable(&mut server.connect(), &members(1)[0]);
}

#[test]
fn reload_keeps_loaded_snapshots_and_a_rejected_one_changes_nothing() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    depot.publish("others", &members(2), &Spec::small());
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let loaded = filter_addresses(&server.snapshot(AUDIENCE).unwrap());
    // The files are gone.
    std::fs::rename(depot.path(AUDIENCE, "chunks"), depot.path(AUDIENCE, "gone")).unwrap();

    let more = r#"
[[audience]]
name = "others"

[[strategy]]
name = "both"
exclude = ["others", "old_users"]
"#;
    let with = |text: &str| Ok(config(depot.url(), &format!("{CONFIG}{text}"), NEVER));
    server.reload(with(more)).unwrap();
    let reads = |server: &mut Server| server.sync_count("others", "ok");
    assert_eq!((server.generation("others"), reads(&mut server)), (1, 1));
    assert_eq!(
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        loaded
    );
    let mut client = server.connect();
    assert_members_of_three(&mut client);

    // Rejected: invalid config, or a missing required audience.
    let before = server.catalog();
    let error = server
        .reload(Err::<Config, _>("rtad.toml: line 1: nonsense".to_owned()))
        .unwrap_err();
    assert_eq!(error, "rtad.toml: line 1: nonsense");
    let missing = "[[audience]]\nname = \"missing\"\n";
    // Loaded, then dropped because the other one is missing.
    depot.publish("extra", &members(4), &Spec::small());
    let extra = "[[audience]]\nname = \"extra\"\n";
    let error = server
        .reload(with(&format!("{more}{extra}{missing}")))
        .unwrap_err();
    assert!(
        error.starts_with("audience missing is not in the store: "),
        "{error}"
    );
    assert!(
        std::sync::Arc::ptr_eq(&before, &server.catalog()),
        "the very catalog is served"
    );
    assert_eq!(server.status("missing"), Value::Null);
    let metrics = server.metrics();
    assert!(metrics.contains("rtad_snapshot_generation{audience=\"others\"} 1"));
    assert!(
        !metrics.contains("rtad_snapshot_generation{audience=\"extra\"}"),
        "it is not served"
    );
    drop(before);

    // An optional audience may appear later.
    server
        .reload(with(&format!("{more}{missing}required = false\n")))
        .unwrap();
    assert_eq!((server.generation("missing"), server.is_ready()), (0, true));
    depot.publish("missing", &members(3), &Spec::small());
    server.poll();
    assert_eq!(server.generation("missing"), 1);

    // Removed and added again: read again.
    server.reload(with("")).unwrap();
    assert_eq!(
        (server.generation("others"), server.status("others")),
        (0, Value::Null)
    );
    let metrics = server.metrics();
    let created = "rtad_snapshot_created_timestamp_seconds{audience=\"others\"} NaN";
    assert!(
        metrics.contains(created),
        "no age metric of an audience that is not served"
    );
    assert_eq!(
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        loaded
    );
    server.reload(with(more)).unwrap();
    assert_eq!((server.generation("others"), reads(&mut server)), (1, 2));
    assert_eq!(
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        loaded
    );
    assert_eq!(server.last_sync(AUDIENCE).0, "unchanged");
    assert!(server.is_ready());
}

/// Decisions of three strategies about a member of the second audience only.
fn assert_members_of_three(client: &mut Client) {
    let decisions = client.decide(&members(2)[..1]);
    let not_member = (true, "not_member".to_owned());
    assert_eq!(
        decisions,
        [not_member.clone(), not_member, (false, "member".to_owned())]
    );
}

#[test]
fn publish_with_one_changed_chunk_reads_one_chunk() {
    let depot = Depot::new();
    let first = members(1);
    depot.publish(AUDIENCE, &first, &Spec::small());
    let mut server = Server::start(config(depot.url(), CONFIG, NEVER));
    let old = server.snapshot(AUDIENCE).unwrap();
    let mut second = [first, keys(2, 10, |shard| 4096 + shard % 4096)].concat();
    second.sort_unstable();
    depot.publish(AUDIENCE, &second, &Spec::small());
    // The unchanged chunks are deleted: they cannot be read again.
    for entry in old.manifest().chunks() {
        depot.put(AUDIENCE, &format!("chunks/{}.chunk", entry.digest), None);
    }
    server.poll();
    assert_eq!(server.last_sync(AUDIENCE), ("ok".to_owned(), String::new()));
    let new = server.snapshot(AUDIENCE).unwrap();
    for (index, (old, new)) in filter_addresses(&old)
        .into_iter()
        .zip(filter_addresses(&new))
        .enumerate()
    {
        assert_eq!(old == new, index != 1, "chunk {index}");
    }
    assert_members(&mut server.connect(), &second);
}

/// Kubernetes restarts a pod that is not live. Without it the pod would stay unready.
#[test]
fn pod_without_sync_is_neither_ready_nor_live() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let config = config(depot.url(), CONFIG, NEVER);
    let plan = Served::from(config.clone()).0.plan();
    let server = Server::start(config);
    let mut admin = server.connect_admin();
    let mut probe = |path: &str| {
        let answer = admin.get(path);
        (answer.status, answer.text())
    };
    assert_eq!((probe("/readyz").0, probe("/livez").0), (200, 200));
    // A guard of the thread, as its end drops one.
    let store = Store::open(depot.url()).unwrap();
    drop(Syncer::new(store, plan, server.shared()).alive());
    let ended = (
        503,
        "not ready: the sync thread ended; restart the process\n".to_owned(),
    );
    assert_eq!((probe("/readyz"), probe("/livez")), (ended.clone(), ended));
    assert_members(&mut server.connect(), &members(1));
}

#[test]
fn threads_end_with_the_service() {
    let depot = Depot::new();
    let folder = tempfile::tempdir().unwrap();
    let (key, rows) = (folder.path().join("log.key"), folder.path().join("rows"));
    std::fs::write(&key, "0123456789abcdef").unwrap();
    // The file is not closed by its age.
    let log = format!(
        "[log]\nto = {rows:?}\nkey_secret_file = {key:?}\nsample = 1.0\nmax_age = \"1h\"\n"
    );
    let server = Server::start(config(depot.url(), &format!("{CONFIG}{log}"), OFTEN));
    let (admin, telemetry) = (server.admin_address(), server.shared().telemetry);
    let shows = |series: &str, value| metric(&telemetry.render(), series) == value;
    assert!(shows("rtad_sync_alive", 1.0));
    server.connect().decide(&members(1)[..1]);
    wait_until("a file is open", || {
        !shows("rtad_log_open_file_age_seconds", 0.0)
    });
    drop(server);
    wait_until("the sync thread ends", || shows("rtad_sync_alive", 0.0));
    wait_until("the admin port closes", || {
        TcpStream::connect(admin).is_err()
    });
    wait_until("the log's file is closed", || {
        shows("rtad_log_rows_total", 1.0)
    });
}
