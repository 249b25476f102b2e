//! A pod whose audience is disabled, deleted and published again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod sync_support;

use std::path::Path;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, State};
use serde_json::Value;
use sync_support::server::config;
use sync_support::{Client, Depot, Server, Spec, hex, keys, wait_until};

const AUDIENCE: &str = "old_users";
const OFTEN: Duration = Duration::from_millis(50);
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

fn members() -> Vec<DeviceKey> {
    keys(1, 500, |shard| shard)
}

fn audience() -> AudienceName {
    AUDIENCE.parse().unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn set(depot: &Depot, state: State) {
    run(async { depot.writer.ledger(&audience()).await.unwrap().set(state, None).await.unwrap() });
}

fn delete(depot: &Depot) {
    run(depot.writer.delete(&audience())).unwrap();
}

fn start(depot: &Depot, cache: &Path) -> Server {
    let mut config = config(depot.url(), CONFIG, OFTEN);
    config.store.cache_dir = Some(cache.into());
    Server::start(config)
}

/// Whether a member is answered as one; `None` if the audience is unavailable.
fn answers(client: &mut Client) -> Option<bool> {
    let (status, body) = client.get(&format!("/v1/check/{AUDIENCE}/{}", hex(&members()[0])));
    let body: Value = serde_json::from_slice(&body).unwrap();
    match status {
        200 => Some(body["member"].as_bool().unwrap()),
        _ => {
            assert_eq!((status, body["code"].as_str()), (503, Some("not_loaded")));
            None
        }
    }
}

#[test]
fn a_pod_follows_an_audience_that_is_disabled_enabled_deleted_and_published_again() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(), &Spec::small());
    let cache = tempfile::tempdir().unwrap();
    let server = start(&depot, cache.path());
    let mut client = server.client();
    for _ in 0..2 {
        wait_until("it answers", || answers(&mut client) == Some(true));
        set(&depot, State::Disabled);
        wait_until("it is disabled", || answers(&mut client).is_none());
        set(&depot, State::Live);
        wait_until("it is enabled", || answers(&mut client) == Some(true));
        delete(&depot);
        wait_until("it is deleted", || answers(&mut client).is_none());
        depot.publish(AUDIENCE, &members(), &Spec::small());
    }
    wait_until("it answers again", || answers(&mut client) == Some(true));
    assert_eq!(server.generation(AUDIENCE), 3);
}

/// Nor a cache brings back what was deleted, with the store or without.
#[test]
fn a_pod_that_starts_after_a_deletion_does_not_answer() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(), &Spec::small());
    let cache = tempfile::tempdir().unwrap();
    let server = start(&depot, cache.path());
    let mut client = server.client();
    wait_until("it answers", || answers(&mut client) == Some(true));
    // A pod that was away meanwhile, with a cache of its own.
    let other = tempfile::tempdir().unwrap();
    drop(start(&depot, other.path()));
    delete(&depot);
    wait_until("it is deleted", || answers(&mut client).is_none());
    drop((client, server));

    for cache in [cache.path(), other.path()] {
        let mut server = start(&depot, cache);
        let (result, error) = server.last_sync(AUDIENCE);
        assert!(result == "not_found" && error.contains("old_users was deleted"), "{result}: {error}");
        assert_eq!(answers(&mut server.client()), None);
    }
    // A directory that is no store any more cannot say anything.
    let live = depot.root.join(AUDIENCE).join("CURRENT");
    std::fs::write(live, "{").unwrap();
    let server = start(&depot, cache.path());
    assert_eq!(answers(&mut server.client()), None, "what the cache has is the deletion");
}

/// Without a config of its own a pod waits for all audiences that there are, but not for what was deleted.
#[test]
fn what_was_deleted_is_not_waited_for() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(), &Spec::small());
    depot.publish("other", &members(), &Spec::small());
    delete(&depot);
    let mut config = config(depot.url(), "", OFTEN);
    run(rtad::serve::find_audiences(&mut config)).unwrap();
    let names: Vec<_> = config.audiences.iter().map(|audience| audience.name.to_string()).collect();
    assert_eq!(names, ["other"]);
}
