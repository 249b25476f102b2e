//! Checkpoints of windows in the store: an owner with an empty directory starts from them, and the
//! owner before it is fenced.

use std::path::PathBuf;

use rtad_core::device::DeviceKey;
use testkit::client::metric;
use testkit::store::Depot;
use testkit::wait_until;

use super::process::{Api, Serve, TOKEN};
use crate::support::{Sandbox, stores};

const EVENTS: &str = "/v1/windows/w/events";
const WINDOW: &str = "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = 100_000\n\
                      fpr = 1e-9\ndurability = \"fsync\"\n";

fn config(sandbox: &Sandbox, state: &str) {
    let dir = sandbox.path().join(state).display().to_string();
    sandbox.file(&format!("{state}.toml"), format!("state_dir = {dir:?}\n{WINDOW}"));
}

/// An owner with its own directory.
fn serve(sandbox: &Sandbox, store: &str, state: &str) -> Serve {
    config(sandbox, state);
    Serve::over(sandbox, store, &format!("--config {{}}/{state}.toml"))
}

/// The message of an owner that does not start.
fn refused(sandbox: &Sandbox, store: &str, state: &str) -> String {
    config(sandbox, state);
    sandbox.file("tokens", format!("{TOKEN}\n"));
    let outcome = sandbox.run(&format!(
        "serve --store {store} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
         {{}}/tokens --config {{}}/{state}.toml"
    ));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    outcome.stderr
}

fn stop(serve: Serve) {
    serve.signal("TERM");
    let outcome = serve.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
}

/// Number of new keys.
fn send(api: &mut Api, keys: std::ops::Range<u64>) -> usize {
    let keys: Vec<DeviceKey> = keys.map(|n| DeviceKey::of_canonical(&n.to_le_bytes())).collect();
    let answer = api.binary(EVENTS, &keys);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body.iter().map(|byte| byte.count_ones() as usize).sum()
}

#[test]
fn owner_with_an_empty_directory_starts_from_the_store_and_fences_the_other() {
    for (sandbox, store) in stores("windows-store") {
        let one = serve(&sandbox, &store, "one");
        let uploaded = "rtad_window_checkpoint_uploaded_timestamp_seconds{window=\"w\"}";
        // The first upload belongs to the start.
        wait_until("an upload", || metric(&one.metrics(), uploaded) > 0.0);
        assert_eq!(send(&mut one.connect(), 0..1000), 1000);
        stop(one);

        let two = serve(&sandbox, &store, "two");
        two.log("window started from its checkpoint in the store; its later events are lost", 1);
        assert_eq!(send(&mut two.connect(), 0..1010), 10);
        // An owner restarts with its own files, which have more than the store.
        two.kill();
        let two = serve(&sandbox, &store, "two");
        assert_eq!(send(&mut two.connect(), 0..1010), 0);
        let message = refused(&sandbox, &store, "one");
        assert!(message.contains("another owner has claimed the window"), "{message}");

        wait_until("an upload", || metric(&two.metrics(), uploaded) > 0.0);
        let three = serve(&sandbox, &store, "three");
        let mut api = two.connect();
        let key = [DeviceKey::of_canonical(b"another")];
        wait_until("the earlier owner is fenced", || api.binary(EVENTS, &key).status == 503);
        api.binary(EVENTS, &key).problem(503, "not_durable");
        api.binary("/v1/windows/w/forget", &key).problem(503, "not_durable");
        let writable = "rtad_window_writable{window=\"w\"}";
        wait_until("the fence shows", || metric(&two.metrics(), writable) == 0.0);
        drop(api);
        stop(two);
        // The fenced owner has replaced nothing.
        assert_eq!(send(&mut three.connect(), 2000..2010), 10);
        stop(three);
        let four = serve(&sandbox, &store, "four");
        assert_eq!(send(&mut four.connect(), 0..1000), 0);
        assert_eq!(send(&mut four.connect(), 2000..2011), 1);
        let depot = Depot::over(&store);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(depot.store.audiences()).unwrap(), []);
    }
}

#[test]
fn damaged_checkpoint_in_the_store_ends_the_start() {
    let sandbox = Sandbox::new();
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    stop(one);
    let checkpoints = sandbox.path().join("s/.windows/w/checkpoints");
    let files: Vec<PathBuf> =
        checkpoints.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("expected the last checkpoint, found {files:?}") };
    let sound = std::fs::read(file).unwrap();
    let middle = sound.len() / 2;
    let mut flipped = sound.clone();
    flipped[middle] ^= 1;
    for damaged in [&flipped[..], &sound[..middle]] {
        std::fs::write(file, damaged).unwrap();
        let message = refused(&sandbox, "{}/s", "two");
        assert!(message.contains("checkpoints/"), "{message}");
        let left = sandbox.path().join("two/w").read_dir().unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with("checkpoint-")));
    }
    std::fs::write(file, &sound).unwrap();
    let two = serve(&sandbox, "{}/s", "two");
    assert_eq!(send(&mut two.connect(), 0..1001), 1);
}
