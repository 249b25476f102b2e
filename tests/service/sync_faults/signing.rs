//! Signatures: files not signed by a configured key are rejected, from the store and the cache.

use std::sync::Arc;

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

/// The content of a signed record's object, with the end of its line.
fn content(object: &[u8]) -> &[u8] {
    let end = object.iter().position(|byte| *byte == b'\n').unwrap();
    &object[..=end]
}

/// The unit tests of `rtad_store` have every way in which a signature is wrong.
#[test]
fn record_without_valid_signature_is_rejected_until_repaired() {
    let (key, other_key) = (Key::new(), Key::new());
    let mut bench = Bench::signed(&key, |_| {});
    bench.survives_each(|candidate| {
        let path = candidate.record_path();
        let in_store = format!("{AUDIENCE}/{path}");
        let object = candidate.record();
        let line = content(object);
        let older = &candidate.sound[&record_path(candidate.current.sequence - 1)];
        let damage = |name: &str, words: &str, object: &[u8]| {
            let words = format!("{in_store}: {words}");
            Damage::new(name, "signature", words).file(&path, object)
        };

        let others = other_key.signature(&line[..line.len() - 1], &in_store);
        let changed = String::from_utf8(object.to_vec()).unwrap();
        let changed = changed.replace("\"generation\":", "\"generation\": ");
        let unsigned = "is not signed, and public keys are configured: whoever writes";
        let unknown = "is signed by a key that is not among the public keys";
        vec![
            damage("no signature", unsigned, line),
            damage("another key's", unknown, &[line, &others].concat()),
            damage("changed", "its signature is wrong: ", changed.as_bytes()),
            damage("an older one under a newer number", "is signed as ", older),
        ]
    });
}

/// Everything that a record names is named by its digest.
#[test]
fn other_files_of_a_signed_audience_are_rejected_by_their_digests() {
    let key = Key::new();
    let mut bench = Bench::signed(&key, |_| {});
    bench.survives_each(|candidate| {
        let path = candidate.manifest_path();
        let evil = String::from_utf8(candidate.sound[&path].clone()).unwrap();
        let evil = evil.replace("\"tool\": \"test\"", "\"tool\": \"evil\"");
        let mut chunk = candidate.chunk(0).to_vec();
        *chunk.last_mut().unwrap() ^= 1;
        vec![
            Damage::new("a manifest", "digest", ".json: digest is ").file(&path, evil),
            Damage::new("a chunk", "digest", ".chunk: digest is ")
                .file(&candidate.chunk_path(0), chunk),
        ]
    });
}

#[test]
fn oversized_record_is_not_read_whole() {
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

    let candidate = Candidate::of(&next);
    candidate.put_unnamed(&depot);
    // A signature of 1 GB, sparse.
    let staged = depot.root.join("staged");
    std::fs::write(&staged, candidate.record()).unwrap();
    let file = std::fs::File::options().write(true).open(&staged).unwrap();
    file.set_len(1 << 30).unwrap();
    std::fs::rename(&staged, depot.path(AUDIENCE, &candidate.record_path())).unwrap();
    wait_until("the rejection", || pod.last_sync().0 == "too_large");
    assert!(pod.peak_bytes() < before + (64 << 20));
    assert_eq!(
        (pod.generation(), pod.admin.get("/readyz").status),
        (1, 200)
    );
    let mut client = pod.connect();
    let answers = client.members(AUDIENCE, &members(1));
    assert!(answers.into_iter().all(|member| member));

    depot.put(AUDIENCE, &candidate.record_path(), Some(candidate.record()));
    wait_until("the repair is noticed", || pod.generation() == 2);
    let answers = client.members(AUDIENCE, &members(2));
    assert!(answers.into_iter().all(|member| member));
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

/// An intruder with write access can stop what is new, and change nothing.
#[test]
fn intruders_record_is_refused_also_over_a_restart_from_the_cache() {
    let key = Key::new();
    let depot = Depot::new().signed_by(&key);
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let unruly = FileServer::serve(&depot.root);
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut config = config(&unruly.url(), CONFIG, NEVER);
        config.store.cache_dir = Some(folder.path().to_owned());
        config.store.public_keys = vec![key.public.clone()];
        Server::start(config)
    };
    let mut server = start();
    let intruder = Depot::at(folder.path().join("intruder"));
    intruder.publish(AUDIENCE, &members(1), &Spec::small());
    intruder.publish(AUDIENCE, &members(2), &Spec::small());
    let candidate = Candidate::of(&intruder);
    candidate.put_unnamed(&depot);
    let path = candidate.record_path();
    depot.put(AUDIENCE, &path, Some(candidate.record()));

    let assert_refused = |server: &mut Server| {
        assert_eq!((server.generation(AUDIENCE), server.is_ready()), (1, true));
        assert_eq!(server.last_sync(AUDIENCE).0, "signature");
        let answers = server.connect().members(AUDIENCE, &members(1));
        assert!(answers.into_iter().all(|member| member));
    };
    server.poll();
    assert_refused(&mut server);
    drop(server);
    assert_refused(&mut start());
    assert!(
        !folder.path().join(AUDIENCE).join(&path).exists(),
        "it is not cached"
    );

    // Removed by the operator. Then the next one is signed.
    depot.put(AUDIENCE, &path, None);
    depot.publish(AUDIENCE, &members(2), &Spec::small());
    let server = start();
    server.poll();
    assert_eq!(server.generation(AUDIENCE), 2);
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
    let first = cached(&record_path(1));
    // The signature is in the record, also for a pod without keys.
    assert_eq!(start(&[]).generation(AUDIENCE), 1);
    assert_eq!((dead(&[]), dead(&[&key])), (1, 1));
    assert_eq!((dead(&[&Key::new()]), dead(&[&key])), (0, 1));
    assert!(first.exists(), "another configuration may use it");

    let object = std::fs::read(&first).unwrap();
    let line = content(&object);
    for signature in [
        b"".to_vec(),
        b"<html>".to_vec(),
        key.signature(b"else", "x"),
    ] {
        std::fs::write(&first, [line, &signature].concat()).unwrap();
        assert_eq!((dead(&[&key]), dead(&[])), (0, 1));
    }
    // Too long for a record.
    std::fs::write(&first, [line, &vec![b'x'; 1 << 20]].concat()).unwrap();
    assert_eq!((dead(&[&key]), dead(&[])), (0, 0));
    std::fs::write(&first, &object).unwrap();
    assert_eq!(dead(&[&key]), 1);

    // An attacker with access to the cache adds a record of its own.
    let intruder = Depot::new();
    intruder.publish(AUDIENCE, &members(2), &Spec::small());
    intruder.publish(AUDIENCE, &members(3), &Spec::small());
    let candidate = Candidate::of(&intruder);
    for (path, bytes) in &candidate.sound {
        if *path != record_path(1) {
            std::fs::write(cached(path), bytes).unwrap();
        }
    }
    assert_eq!((dead(&[&key]), dead(&[])), (1, 2));
}
