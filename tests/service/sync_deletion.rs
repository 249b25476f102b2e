//! Disabled and deleted audiences, with and without a cache.

use std::path::Path;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use testkit::client::Client;
use testkit::store::{Depot, Spec, hex, keys};
use testkit::wait_until;

use crate::server::{Server, config};

const AUDIENCE: &str = "old_users";
const OFTEN: Duration = Duration::from_millis(50);
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

fn members() -> Vec<DeviceKey> {
    keys(1, 500, |shard| shard)
}

fn start(depot: &Depot, cache: &Path) -> Server {
    let mut config = config(depot.url(), CONFIG, OFTEN);
    config.store.cache_dir = Some(cache.into());
    Server::start(config)
}

/// The answer for a member; `None` if the audience is unavailable.
fn answers(client: &mut Client) -> Option<bool> {
    let answer = client.get(&format!("/v1/check/{AUDIENCE}/{}", hex(&members()[0])));
    if answer.status == 200 {
        return Some(answer.ok()["member"].as_bool().unwrap());
    }
    answer.problem(503, "not_loaded");
    None
}

/// A cache does not restore a deleted audience, with or without the store.
#[test]
fn pod_started_after_deletion_does_not_answer() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(), &Spec::small());
    let cache = tempfile::tempdir().unwrap();
    let server = start(&depot, cache.path());
    let mut client = server.connect();
    wait_until("it answers", || answers(&mut client) == Some(true));
    // A pod that was stopped during the deletion, with its cache.
    let other = tempfile::tempdir().unwrap();
    drop(start(&depot, other.path()));
    depot.delete(AUDIENCE);
    wait_until("it is deleted", || answers(&mut client).is_none());
    drop((client, server));

    for cache in [cache.path(), other.path()] {
        let mut server = start(&depot, cache);
        let (result, error) = server.last_sync(AUDIENCE);
        assert!(
            result == "not_found" && error.contains("old_users was deleted"),
            "{result}: {error}"
        );
        assert_eq!(answers(&mut server.connect()), None);
    }
    // A directory that is no longer a store gives no answer.
    let newest = depot.newest_record(AUDIENCE);
    depot.put(AUDIENCE, &newest, Some(b"{"));
    for cache in [cache.path(), other.path()] {
        let server = start(&depot, cache);
        assert_eq!(
            answers(&mut server.connect()),
            None,
            "the cache has the deletion"
        );
    }
}
