//! Signatures: files not signed by a configured key are rejected, from the store and the cache.

use std::sync::Arc;
use std::time::Duration;

use testkit::server::{Fault, FileServer};
use testkit::store::Key;

use super::*;
use crate::pod::Pod;

impl Bench {
    /// A pod with this public key and the changes of `change`, and a store signed with the key.
    fn signed(key: &Arc<Key>, change: impl FnOnce(&mut rtad::config::Config)) -> Self {
        Self::over(Depot::new().signed_by(key), |config| {
            config.store.public_keys = vec![key.public.clone()];
            change(config);
        })
    }
}

/// The unit tests of `rtad_store` have every way in which a signature is wrong.
#[test]
fn manifest_without_valid_signature_is_rejected_until_repaired() {
    let (key, other_key) = (Key::new(), Key::new());
    let mut bench = Bench::signed(&key, |_| {});
    bench.survives_each(|candidate| {
        let path = candidate.manifest_path();
        let in_store = format!("{AUDIENCE}/{path}");
        let (manifest, signature) = (&candidate.sound[&path], format!("{path}.minisig"));
        let older = format!("manifests/{}.json", candidate.generation() - 1);
        let damage = |name: &str, words: &str| {
            Damage::new(name, "signature", format!("{in_store}: {words}"))
        };
        let unsigned =
            "is not signed, and public keys are configured: publish with `rtad-loader build \
             --sign-key`";
        vec![
            damage("no signature", unsigned).deleted(&signature),
            damage("CURRENT vouches for another manifest", "its signature is wrong: ")
                .manifest(candidate, b"<!DOCTYPE html>".to_vec()),
            damage("another key's", "is signed by a key that is not among the public keys")
                .file(&signature, other_key.signature(manifest, &in_store)),
            damage("an older generation renamed", "is signed as ")
                .file(&signature, candidate.sound[&format!("{older}.minisig")].clone())
                .manifest(candidate, candidate.sound[&older].clone()),
        ]
    });
}

#[test]
fn oversized_signature_is_not_read_whole() {
    let key = Key::new();
    let [depot, next] = [(); 2].map(|()| Depot::new().signed_by(&key));
    for depot in [&depot, &next] {
        depot.publish(AUDIENCE, &members(1), &Spec::small());
    }
    next.publish(AUDIENCE, &members(2), &Spec::small());
    // A child process: other tests share the memory of this one.
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("public_keys = [\"{}\"]", key.public);
    let mut pod = Pod::start(depot.url(), folder.path(), &lines, "");
    let before = pod.peak_bytes();

    let (sound, signature) = (next.files(AUDIENCE), "manifests/2.json.minisig");
    for (path, bytes) in sound.iter().filter(|(path, _)| *path != "CURRENT") {
        depot.put(AUDIENCE, path, Some(bytes));
    }
    // A sparse file of 1 GB.
    let path = depot.path(AUDIENCE, signature);
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    depot.put(AUDIENCE, "CURRENT", Some(&sound["CURRENT"]));
    wait_until("the rejection", || pod.last_sync().0 == "signature");
    assert!(pod.peak_bytes() < before + (64 << 20));
    assert_eq!(
        (pod.generation(), pod.admin.get("/readyz").status),
        (1, 200)
    );
    assert!(
        pod.connect()
            .members(AUDIENCE, &members(1))
            .into_iter()
            .all(|member| member)
    );

    depot.put(AUDIENCE, signature, Some(&sound[signature]));
    wait_until("the repair is noticed", || pod.generation() == 2);
    assert!(
        pod.connect()
            .members(AUDIENCE, &members(2))
            .into_iter()
            .all(|member| member)
    );
}

#[test]
fn keys_rotate_without_downtime_and_removed_keys_are_rejected() {
    let (old, new) = (Key::new(), Key::new());
    let mut bench = Bench::signed(&old, |config| {
        config.store.public_keys.push(new.public.clone())
    });
    let candidate = bench.publish();
    bench.accepts(&candidate, "the old key");
    bench.depot.signer = Some(Arc::clone(&new) as _);
    let candidate = bench.publish();
    bench.accepts(&candidate, "the new key");

    let only = |key: &Key| {
        let mut config = config(bench.depot.url(), CONFIG, NEVER);
        config.store.public_keys = vec![key.public.clone()];
        Server::start(config)
    };
    assert_eq!(only(&new).generation(AUDIENCE), 3);
    let mut without = only(&old);
    assert_eq!(
        (without.generation(AUDIENCE), without.is_ready()),
        (0, false)
    );
    assert_eq!(without.last_sync(AUDIENCE).0, "signature");
    // A rollback to a generation signed by either key.
    bench.depot.roll_back(AUDIENCE, 2);
    bench.server.poll();
    bench.assert_serves(2, "rolled back");
}

#[test]
fn signatures_are_fetched_only_with_public_keys() {
    let key = Key::new();
    let depot = Depot::new().signed_by(&key);
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let unruly = FileServer::serve(&depot.root);
    let start = |keys: &[&Key]| {
        let mut config = config(&unruly.url(), CONFIG, Duration::from_millis(100));
        config.store.public_keys = keys.iter().map(|key| key.public.clone()).collect();
        Server::start(config)
    };
    assert_eq!(
        (start(&[]).generation(AUDIENCE), unruly.requests("minisig")),
        (1, 0)
    );
    let mut server = start(&[&key]);
    assert_eq!(server.generation(AUDIENCE), 1);
    // An HTML page is not a signature; errors are retried.
    for (fault, result) in [
        (Fault::Html, "signature"),
        (Fault::Status("404 Not Found", ""), "signature"),
        (Fault::Status("403 Forbidden", ""), "store"),
    ] {
        unruly.misbehave(fault, "minisig");
        let generation = depot.publish(AUDIENCE, &members(2), &Spec::small());
        wait_until("the rejection", || server.last_sync(AUDIENCE).0 == result);
        assert_eq!(server.generation(AUDIENCE), generation - 1);
        wait_until("the count", || server.sync_count(AUDIENCE, result) >= 1);
        assert!(server.is_ready());
        unruly.behave();
        wait_until("the new generation", || {
            server.poll();
            server.generation(AUDIENCE) == generation
        });
    }
}

#[test]
fn start_from_the_cache_verifies_signatures() {
    let key = Key::new();
    let depot = Depot::new().signed_by(&key);
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let unruly = FileServer::serve(&depot.root);
    let folder = tempfile::tempdir().unwrap();
    let cached = |name: &str| folder.path().join(AUDIENCE).join(name);
    let start = |keys: &[&Key]| {
        let mut config = config(&unruly.url(), CONFIG, NEVER);
        config.store.cache_dir = Some(folder.path().to_owned());
        config.store.public_keys = keys.iter().map(|key| key.public.clone()).collect();
        Server::start(config)
    };
    let dead = |keys: &[&Key]| {
        unruly.misbehave(Fault::Dead, "");
        let generation = start(keys).generation(AUDIENCE);
        unruly.behave();
        generation
    };
    // A pod without keys fetches no signatures.
    assert_eq!(start(&[]).generation(AUDIENCE), 1);
    assert!(!cached("1.json.minisig").exists());
    assert_eq!((dead(&[]), dead(&[&key])), (1, 0));
    assert!(
        cached("1.json").exists(),
        "another configuration may use it"
    );

    assert_eq!(start(&[&key]).generation(AUDIENCE), 1);
    let signature = std::fs::read(cached("1.json.minisig")).unwrap();
    assert_eq!((dead(&[&key]), dead(&[&Key::new()]), dead(&[])), (1, 0, 1));
    for damaged in [
        b"".to_vec(),
        b"<html>".to_vec(),
        vec![b'x'; 1 << 20],
        key.signature(b"else", "x"),
    ] {
        std::fs::write(cached("1.json.minisig"), damaged).unwrap();
        assert_eq!(dead(&[&key]), 0);
    }
    std::fs::write(cached("1.json.minisig"), &signature).unwrap();
    assert_eq!(dead(&[&key]), 1);
    // An attacker with access to the cache replaces the generation and its CURRENT.
    let mut manifest = std::fs::read_to_string(cached("1.json")).unwrap();
    manifest = manifest.replace("\"tool\": \"test\"", "\"tool\": \"evil\"");
    let sound = std::fs::read(cached("served.json")).unwrap();
    std::fs::write(cached("1.json"), &manifest).unwrap();
    let current = Current::new(9, 1, manifest.as_bytes(), None).to_bytes();
    let served = format!("{{\"current\":{}}}", String::from_utf8(current).unwrap());
    std::fs::write(cached("served.json"), served).unwrap();
    assert_eq!((dead(&[]), dead(&[&key])), (1, 0));

    // The next generation replaces the signature.
    std::fs::write(cached("served.json"), sound).unwrap();
    depot.publish(AUDIENCE, &members(2), &Spec::small());
    assert_eq!(start(&[&key]).generation(AUDIENCE), 2);
    assert!(cached("2.json.minisig").exists() && !cached("1.json.minisig").exists());
}
