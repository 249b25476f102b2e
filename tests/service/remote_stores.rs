//! Remote stores: plain HTTP always, a bucket if the `stores` suite has started a server.

use std::sync::Arc;
use std::time::Duration;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, GenerationEntry};
use rtad_store::write::{Change, StoreWriter};
use rtad_store::{Store, StoreError};
use testkit::server::{Fault, FileServer};
use testkit::store::{Depot, Spec, bucket_url, keys, manifest_path};
use testkit::wait_until;
use tokio::runtime::Runtime;

use crate::server::{Server, config, filter_addresses};

const AUDIENCE: &str = "old_users";
const OFTEN: Duration = Duration::from_millis(100);
const CONFIG: &str =
    "[[audience]]\nname = \"old_users\"\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";

fn members(seed: u64) -> Vec<DeviceKey> {
    keys(seed, 2000, |shard| shard)
}

fn audience() -> AudienceName {
    AUDIENCE.parse().unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The error's message with its causes.
fn chain(error: &StoreError) -> String {
    rtad_core::error_chain::error_chain(error)
}

/// Asserts that a pod that polls `url` follows publishes and rollbacks in `depot` and shares
/// unchanged chunks.
fn follows(depot: &Depot, url: &str) {
    let all = members(1);
    depot.publish(AUDIENCE, &all[..1000], &Spec::small());
    let server = Server::start(config(url, CONFIG, OFTEN));
    let mut client = server.connect();
    let mut serves = |generation, count: usize| {
        wait_until("the generation is served", || {
            server.generation(AUDIENCE) == generation
        });
        let found = client.members(AUDIENCE, &all);
        assert!(found[..count].iter().all(|member| *member));
        // Expected are 0.1 false positives in a thousand non-members.
        assert!(found[count..].iter().filter(|member| **member).count() < 12);
    };
    serves(1, 1000);
    depot.publish(AUDIENCE, &all, &Spec::small());
    serves(2, 2000);
    depot.roll_back(AUDIENCE, 1);
    serves(1, 1000);
    depot.publish(AUDIENCE, &all[..1500], &Spec::small());
    serves(3, 1500);
    // Deltas apply within two polls, without reading chunks.
    let before = filter_addresses(&server.snapshot(AUDIENCE).unwrap());
    let mut change = Change::default();
    all[1500..].iter().for_each(|key| change.add(*key));
    all[..100].iter().for_each(|key| change.remove(*key));
    let sequence = depot.append(AUDIENCE, change).sequence;
    let sees = || {
        server
            .snapshot(AUDIENCE)
            .is_some_and(|snapshot| snapshot.overlay().sequence() == sequence)
    };
    wait_until("the change is served", sees);
    let found = client.members(AUDIENCE, &all);
    assert!(
        found[100..].iter().all(|member| *member) && !found[..100].iter().any(|member| *member)
    );
    assert_eq!(
        filter_addresses(&server.snapshot(AUDIENCE).unwrap()),
        before
    );
}

#[test]
fn pod_follows_a_store_over_http() {
    let depot = Depot::new();
    let web = FileServer::serve(&depot.root);
    follows(&depot, &web.url());
    assert!(web.requests("") > 20);
}

#[test]
fn pod_follows_a_store_in_a_bucket() {
    let Some(url) = bucket_url("pod-named") else {
        return;
    };
    follows(&Depot::over(&url), &url);
}

#[test]
fn http_store_reads_by_name_only() {
    let depot = Depot::new();
    // Chunks of several blocks.
    let members = keys(3, 100_000, |shard| shard);
    depot.publish(
        AUDIENCE,
        &members,
        &Spec {
            shards_per_chunk: 32_768,
            ..Spec::small()
        },
    );
    let web = FileServer::serve(&depot.root);
    for path in ["", "/"] {
        let url = format!("{}{path}", web.url());
        let over = Depot::over(&url);
        let snapshot = over
            .read(AUDIENCE)
            .unwrap_or_else(|error| panic!("{url}: {error:?}"));
        assert!(members.iter().all(|key| snapshot.contains(key)), "{url}");
    }

    let url = web.url();
    let store = Store::open(&url).unwrap();
    let (audience, elsewhere): (_, AudienceName) = (audience(), "others".parse().unwrap());
    runtime().block_on(async {
        assert!(store.live(&elsewhere).await.unwrap().is_none());
        let entry = GenerationEntry::of(9, b"");
        let error = store.manifest(&audience, &entry).await.unwrap_err();
        let missing = format!("old_users/{} does not exist", manifest_path(&entry));
        assert_eq!(chain(&error), missing);

        let read_only = format!(
            "store {url:?} is read-only: nothing can be published or removed over plain HTTP"
        );
        assert_eq!(
            chain(&StoreWriter::new(store.clone()).unwrap_err()),
            read_only
        );
        let unlisted = format!("store {url:?} cannot be listed over plain HTTP: ");
        assert!(chain(&store.audiences().await.unwrap_err()).starts_with(&unlisted));
    });
    assert_eq!(depot.files(AUDIENCE).len(), 5);
}

/// One request reads a chunk. After a failure the missing bytes are requested once, and no others,
/// whether object_store resumes (it needs an entity tag) or the store's own reader does.
#[test]
fn chunk_is_one_request_and_resumed_from_its_first_missing_byte() {
    let depot = Depot::new();
    let keys = keys(3, 100_000, |shard| shard);
    depot.publish(
        AUDIENCE,
        &keys,
        &Spec {
            shards_per_chunk: 65_536,
            ..Spec::small()
        },
    );
    let server = FileServer::serve(&depot.root);
    // A busy machine may take seconds to answer, and an answer that comes later is one too many.
    let store = Store::open(&server.url())
        .unwrap()
        .with_stall_timeout(Duration::from_secs(5));
    let runtime = runtime();
    let live = runtime.block_on(store.live(&audience())).unwrap().unwrap();
    let manifest = runtime
        .block_on(store.manifest(&audience(), &live.current.live_entry()))
        .unwrap();
    let [entry] = manifest.chunks() else {
        panic!("one chunk")
    };
    let size = entry.size_bytes as usize;
    assert!(size > 2 << 20, "several blocks");

    let read = || {
        let file = runtime
            .block_on(store.chunk_file(&manifest, entry))
            .unwrap();
        assert_eq!(file.len(), size);
        server.take_ranges("chunks/")
    };
    assert_eq!(read(), [None]);
    // Every other request breaks off after its first half.
    let resumed = [None, Some(format!("bytes={}-{}", size / 2, size - 1))];
    server.misbehave(Fault::ShortOnce, "chunks/");
    assert_eq!(read(), resumed);
    server.misbehave(Fault::StallOnce, "chunks/");
    assert_eq!(read(), resumed);
    server.misbehave(Fault::ShortOnce, "chunks/");
    server.hide_tags();
    assert_eq!(read(), resumed);
}

#[test]
fn redirect_is_not_followed() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let web = FileServer::serve(&depot.root);
    let store = Store::open(&format!("{}/moved", web.url())).unwrap();
    let error = runtime().block_on(store.live(&audience())).unwrap_err();
    assert_eq!(error.cause(), "store");
    let said = format!(
        "redirects to {}/{AUDIENCE}/LATEST, expected no redirect",
        web.url()
    );
    assert!(chain(&error).contains(&said), "{}", chain(&error));
    assert_eq!(web.requests(""), 1, "nor is it tried again");
}

#[test]
fn debug_of_a_store_shows_only_its_url() {
    let store = Arc::new(Store::open("https://files.example/rtad").unwrap());
    assert_eq!(
        format!("{store:?}"),
        "Store { backend: https://files.example/rtad }"
    );
}
