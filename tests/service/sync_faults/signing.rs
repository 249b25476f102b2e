//! A pod that was told whose signatures count: whatever whoever writes to the store puts there
//! without the key is refused, from the store and from the cache.

use std::sync::Arc;
use std::time::Duration;

use testkit::server::{Fault, FileServer};
use testkit::store::Key;

use super::*;
use crate::pod::Pod;

impl Bench {
    /// A pod that trusts the key, and whatever else `change` sets, over a store that is signed with
    /// it.
    fn signed(key: &Arc<Key>, change: impl FnOnce(&mut rtad::config::Config)) -> Self {
        Self::over(Depot::new().signed_by(key), |config| {
            config.store.public_keys = vec![key.public.clone()];
            change(config);
        })
    }
}

fn signature_path(candidate: &Candidate) -> String {
    format!("{}.minisig", candidate.manifest_path())
}

#[test]
fn a_manifest_that_is_not_signed_as_it_should_be_is_refused_and_taken_when_it_is() {
    let (key, stranger) = (Key::new(), Key::new());
    let mut bench = Bench::signed(&key, |_| {});
    bench.survives_each(|candidate| {
        let path = candidate.manifest_path();
        let place = format!("{AUDIENCE}/{path}");
        let (manifest, signature) = (candidate.sound[&path].clone(), signature_path(candidate));
        let sound = candidate.sound[&signature].clone();
        let older = format!("manifests/{}.json", candidate.generation() - 1);
        let flipped = |bytes: &[u8], index: usize| {
            let mut bytes = bytes.to_vec();
            bytes[index] ^= 1;
            bytes
        };
        let elsewhere = |place: &str| {
            Damage::new(
                format!("that of {place}"),
                "signature",
                format!("is signed as \"rtad {place}\", expected"),
            )
            .file(&signature, key.signature(&manifest, place))
        };
        let wrong = "its signature is wrong: the file or its signature was changed";
        let malformed = "its signature is malformed: expected a minisign signature";
        let damage = |name: &str, words: &str| Damage::new(name, "signature", format!("{place}: {words}"));
        let unsigned =
            "is not signed, and public keys are configured: publish with `rtad-loader build --sign-key`";
        let in_comment = sound.windows(7).position(|part| part == b": rtad ".as_slice()).unwrap() + 10;
        vec![
            damage("no signature", unsigned).deleted(&signature),
            damage("a byte of the manifest", wrong).file(&path, flipped(&manifest, 20)),
            damage("and CURRENT vouches for it", wrong).manifest(candidate, flipped(&manifest, 20)),
            damage("no JSON at all", wrong).manifest(candidate, b"<!DOCTYPE html>".to_vec()),
            // What becomes of it depends on the byte, which the key decides.
            damage("a byte of the signature", "its signature is").file(&signature, flipped(&sound, 100)),
            damage("half a signature", malformed).file(&signature, &sound[..sound.len() / 2]),
            damage("HTML", malformed).file(&signature, b"<html><body>Not Found</body></html>".as_slice()),
            damage("empty", malformed).file(&signature, b"".as_slice()),
            damage("large", "its signature has more than 4096 bytes").file(&signature, vec![b'x'; 8 << 20]),
            damage("a stranger's", "is signed by a key that is not among the public keys")
                .file(&signature, stranger.signature(&manifest, &place)),
            elsewhere(&format!("others/{path}")),
            elsewhere(&format!("{AUDIENCE}/{older}")),
            Damage::new(
                "an older generation renamed",
                "signature",
                format!("is signed as \"rtad {AUDIENCE}/{older}\""),
            )
            .file(&signature, candidate.sound[&format!("{older}.minisig")].clone())
            .manifest(candidate, candidate.sound[&older].clone()),
            damage("the comment", wrong).file(&signature, flipped(&sound, in_comment)),
        ]
    });
}

#[test]
fn an_endless_signature_is_read_no_further_than_a_signature_goes() {
    let key = Key::new();
    let [depot, next] = [(); 2].map(|()| Depot::new().signed_by(&key));
    for depot in [&depot, &next] {
        depot.publish(AUDIENCE, &members(1), &Spec::small());
    }
    next.publish(AUDIENCE, &members(2), &Spec::small());
    // A process of its own, as the memory of this one is shared with other tests.
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("public_keys = [\"{}\"]", key.public);
    let mut pod = Pod::start(depot.url(), folder.path(), &lines, "");
    let before = pod.peak_bytes();

    let (sound, signature) = (next.files(AUDIENCE), "manifests/2.json.minisig");
    for (path, bytes) in sound.iter().filter(|(path, _)| *path != "CURRENT") {
        depot.put(AUDIENCE, path, Some(bytes));
    }
    // A gigabyte of nothing, which costs no disk.
    let path = depot.path(AUDIENCE, signature);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
    depot.put(AUDIENCE, "CURRENT", Some(&sound["CURRENT"]));
    wait_until("it is refused", || pod.last_sync().0 == "signature");
    assert!(pod.peak_bytes() < before + (64 << 20));
    assert_eq!((pod.generation(), pod.admin.get("/readyz").status), (1, 200));
    assert!(pod.client.members(AUDIENCE, &members(1)).into_iter().all(|member| member));

    depot.put(AUDIENCE, signature, Some(&sound[signature]));
    wait_until("the repair is noticed", || pod.generation() == 2);
    assert!(pod.client.members(AUDIENCE, &members(2)).into_iter().all(|member| member));
}

#[test]
fn keys_are_rotated_without_a_gap_and_a_lost_one_is_no_longer_believed() {
    let (old, new) = (Key::new(), Key::new());
    let mut bench = Bench::signed(&old, |config| config.store.public_keys.push(new.public.clone()));
    let candidate = bench.publish();
    bench.takes(&candidate, "the old key");
    bench.depot.signer = Some(Arc::clone(&new) as _);
    let candidate = bench.publish();
    bench.takes(&candidate, "the new key");

    let only = |key: &Key| {
        let mut config = config(bench.depot.url(), CONFIG, NEVER);
        config.store.public_keys = vec![key.public.clone()];
        Server::start(config)
    };
    assert_eq!(only(&new).generation(AUDIENCE), 3);
    let mut without = only(&old);
    assert_eq!((without.generation(AUDIENCE), without.is_ready()), (0, false));
    assert_eq!(without.last_sync(AUDIENCE).0, "signature");
    // A rollback goes to what was signed by either.
    bench.depot.roll_back(AUDIENCE, 2);
    bench.server.look();
    bench.assert_serves(2, "rolled back");
}

#[test]
fn over_http_signatures_are_asked_for_by_who_wants_them() {
    let key = Key::new();
    let depot = Depot::new().signed_by(&key);
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    let unruly = FileServer::serve(&depot.root);
    let start = |keys: &[&Key]| {
        let mut config = config(&unruly.url(), CONFIG, Duration::from_millis(100));
        config.store.public_keys = keys.iter().map(|key| key.public.clone()).collect();
        Server::start(config)
    };
    assert_eq!((start(&[]).generation(AUDIENCE), unruly.requests("minisig")), (1, 0));
    let mut server = start(&[&key]);
    assert_eq!(server.generation(AUDIENCE), 1);
    // A server that answers with a page of its own is no signature; one that fails is asked again.
    for (fault, result) in [
        (Fault::Html, "signature"),
        (Fault::Status("404 Not Found", ""), "signature"),
        (Fault::Status("403 Forbidden", ""), "store"),
    ] {
        unruly.misbehave(fault, "minisig");
        let generation = depot.publish(AUDIENCE, &members(2), &Spec::small());
        wait_until("it is refused", || server.last_sync(AUDIENCE).0 == result);
        assert_eq!(server.generation(AUDIENCE), generation - 1);
        assert!(server.looks(AUDIENCE, result) >= 1 && server.is_ready());
        unruly.behave();
        wait_until("it is taken", || {
            server.look();
            server.generation(AUDIENCE) == generation
        });
    }
}

#[test]
fn a_start_from_the_cache_verifies_what_the_store_would_have_to_prove() {
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
    // Without keys no signature is kept: nobody has asked for it.
    assert_eq!(start(&[]).generation(AUDIENCE), 1);
    assert!(!cached("1.json.minisig").exists());
    assert_eq!((dead(&[]), dead(&[&key])), (1, 0));
    assert!(cached("1.json").exists(), "another configuration may use it");

    assert_eq!(start(&[&key]).generation(AUDIENCE), 1);
    let signature = std::fs::read(cached("1.json.minisig")).unwrap();
    assert_eq!((dead(&[&key]), dead(&[&Key::new()]), dead(&[])), (1, 0, 1));
    for spoilt in
        [b"".to_vec(), b"<html>".to_vec(), vec![b'x'; 1 << 20], key.signature(b"else", "x")]
    {
        std::fs::write(cached("1.json.minisig"), spoilt).unwrap();
        assert_eq!(dead(&[&key]), 0);
    }
    std::fs::write(cached("1.json.minisig"), &signature).unwrap();
    assert_eq!(dead(&[&key]), 1);
    // Whoever can write to the cache's disk puts another generation there, with a CURRENT that
    // names it.
    let mut manifest = std::fs::read_to_string(cached("1.json")).unwrap();
    manifest = manifest.replace("\"tool\": \"test\"", "\"tool\": \"evil\"");
    let sound = std::fs::read(cached("CURRENT")).unwrap();
    std::fs::write(cached("1.json"), &manifest).unwrap();
    std::fs::write(cached("CURRENT"), Current::new(9, 1, manifest.as_bytes(), None).to_bytes())
        .unwrap();
    assert_eq!((dead(&[]), dead(&[&key])), (1, 0));

    // The next generation takes the last one's signature with it.
    std::fs::write(cached("CURRENT"), sound).unwrap();
    depot.publish(AUDIENCE, &members(2), &Spec::small());
    assert_eq!(start(&[&key]).generation(AUDIENCE), 2);
    assert!(cached("2.json.minisig").exists() && !cached("1.json.minisig").exists());
}
