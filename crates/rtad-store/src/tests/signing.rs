//! Signed publishes: order of writes, refusals, and killed or concurrent loaders.

mod deltas;

use super::*;
use crate::testing::Key;
use crate::write::{Change, Retention, Sign as _, check_signer};
use rtad_core::snapshot::State;
use testkit::faulty_store::LostAnswer;

impl StoreFixture {
    /// The same fixture, which signs with a key and requires it.
    fn with_key(self, key: &Arc<Key>) -> Self {
        let store = self.store().clone().with_public_keys([key.public.clone()]);
        Self {
            folder: self.folder,
            ..Self::over(store)
        }
        .signed_by(key)
    }

    /// The same fixture, with another signer.
    fn signed_by(self, key: &Arc<Key>) -> Self {
        Self {
            writer: self.writer.with_signer(Some(Arc::clone(key) as _)),
            ..self
        }
    }

    /// Reads the store with these public keys.
    async fn read_by(&self, keys: &[&Arc<Key>]) -> Result<(), StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| key.public.clone()).collect();
        let store = self.store().clone().with_public_keys(keys);
        StoreFixture::over(store).read().await.map(drop)
    }

    async fn assert_refused_by(&self, keys: &[&Arc<Key>], expected: SignatureError) {
        match self.read_by(keys).await {
            Err(error @ StoreError::Signature { .. }) => {
                assert_eq!(error.cause(), "signature");
                assert_eq!(
                    chain(&error).trim_start_matches(|c| c != ':'),
                    format!(": {expected}"),
                    "{}",
                    self.name()
                );
            }
            other => panic!("{}: {other:?}, expected {expected:?}", self.name()),
        }
    }
}

const FIRST: &str = "old_users/manifests/1.json";
const SECOND: &str = "old_users/manifests/2.json";

fn signature_of(path: &str) -> String {
    format!("{path}.minisig")
}

#[tokio::test]
async fn signed_store_is_read_with_any_key_or_none_in_every_store() {
    for fixture in StoreFixture::all() {
        let [old, new, other] = [(), (), ()].map(|()| Key::new());
        let members = keys("member", 100);
        let fixture = fixture.with_key(&old);
        fixture.publish(&members).await.unwrap();
        fixture.assert_serves(1, &members).await;
        assert!(fixture.files().await.contains_key(&signature_of(FIRST)));
        for keys in [&[][..], &[&old], &[&new, &old], &[&old, &new]] {
            fixture.read_by(keys).await.unwrap();
        }
        for keys in [&[&new][..], &[&new, &other]] {
            fixture
                .assert_refused_by(keys, SignatureError::UnknownKey)
                .await;
        }
        // Rotation: the new key signs, pods accept both.
        let both = [old.public.clone(), new.public.clone()];
        let store = fixture.store().clone().with_public_keys(both);
        let fixture = StoreFixture {
            folder: fixture.folder,
            ..StoreFixture::over(store)
        }
        .signed_by(&new);
        fixture.publish(&members).await.unwrap();
        fixture.read_by(&[&new]).await.unwrap();
        fixture
            .assert_refused_by(&[&old], SignatureError::UnknownKey)
            .await;
        fixture.store().manifest_of(&audience(), 1).await.unwrap();
    }
}

#[tokio::test]
async fn changed_or_moved_files_are_refused() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        let [first, second] = ["first", "second"].map(|seed| keys(seed, 100));
        fixture.publish(&first).await.unwrap();
        fixture.publish(&second).await.unwrap();
        let files = fixture.files().await;
        let (manifest, signature) = (&files[SECOND], &files[&signature_of(SECOND)]);
        let refused = async |expected| fixture.assert_refused_by(&[&key], expected).await;

        // An intruder who can write to the store makes `CURRENT` name other bytes.
        let name = async |bytes: &[u8]| {
            fixture.write(SECOND, bytes.to_vec()).await;
            fixture
                .write(
                    "old_users/CURRENT",
                    Current::new(9, 2, bytes, None).to_bytes(),
                )
                .await;
        };
        let mut changed = manifest.clone();
        changed[50] ^= 1;
        for bytes in [&changed[..], &manifest[..100], b"", b"{}", b"<html>"] {
            name(bytes).await;
            refused(SignatureError::Invalid).await;
        }
        name(&files[FIRST]).await;
        refused(SignatureError::Invalid).await;
        fixture
            .write(&signature_of(SECOND), files[&signature_of(FIRST)].clone())
            .await;
        let wrong_path = |path: &str| SignatureError::WrongPath {
            found: format!("rtad {path}"),
            expected: format!("rtad {SECOND}"),
        };
        refused(wrong_path(FIRST)).await;
        name(manifest).await;
        let theirs = key.sign(manifest, "rtad others/manifests/2.json").unwrap();
        fixture
            .write(&signature_of(SECOND), theirs.into_bytes())
            .await;
        refused(wrong_path("others/manifests/2.json")).await;
        for (bytes, expected) in [
            (b"<html>".to_vec(), SignatureError::Malformed),
            (
                signature[..signature.len() / 2].to_vec(),
                SignatureError::Malformed,
            ),
            (vec![b'x'; 4096], SignatureError::Malformed),
            (vec![b'x'; 4097], SignatureError::TooLarge { limit: 4096 }),
            (
                [signature.as_slice(), &[b'\n'; 1 << 20]].concat(),
                SignatureError::TooLarge { limit: 4096 },
            ),
        ] {
            fixture.write(&signature_of(SECOND), bytes).await;
            refused(expected).await;
        }
        fixture.delete(&signature_of(SECOND)).await;
        refused(SignatureError::Missing).await;
        fixture.read_by(&[]).await.unwrap();
        // `CURRENT` may name an older signed generation: it is not signed itself.
        fixture
            .write(&signature_of(SECOND), signature.clone())
            .await;
        fixture.assert_serves(2, &second).await;
    }
}

#[tokio::test]
async fn signature_is_verified_before_parsing() {
    let key = Key::new();
    let fixture = StoreFixture::memory().with_key(&key);
    fixture.publish(&keys("member", 10)).await.unwrap();
    // Not JSON, and of another size and digest: the signature is verified first.
    fixture.write(FIRST, b"not a manifest".to_vec()).await;
    fixture
        .assert_refused_by(&[&key], SignatureError::Invalid)
        .await;
    fixture.delete(FIRST).await;
    assert_eq!(
        fixture.read_by(&[&key]).await.unwrap_err().cause(),
        "not_found"
    );
}

#[tokio::test]
async fn lone_signature_reserves_its_number_in_every_store() {
    for fixture in StoreFixture::all() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        let [first, second] = ["first", "second"].map(|seed| keys(seed, 100));
        fixture.publish(&first).await.unwrap();
        fixture
            .write(&signature_of(SECOND), b"of a missing manifest".to_vec())
            .await;
        fixture.assert_serves(1, &first).await;
        assert_eq!(fixture.store().generations(&audience()).await.unwrap(), [1]);

        assert_eq!(fixture.publish(&second).await.unwrap().0, 3);
        fixture.assert_serves(3, &second).await;
        fixture.read_by(&[&key]).await.unwrap();

        // Once a later generation is live, the manifest cannot be published any more.
        let retention = Retention {
            keep: 5,
            min_age: Duration::ZERO,
        };
        let collected = fixture
            .writer
            .collect(&audience(), retention, false)
            .await
            .unwrap();
        assert_eq!(
            (collected.kept_generations, collected.removed_generations),
            (vec![1, 3], vec![])
        );
        let files = fixture.files().await;
        assert!(
            !files.contains_key(&signature_of(SECOND)),
            "{}",
            fixture.name()
        );
        assert!(files.contains_key(&signature_of(FIRST)));
        fixture.read_by(&[&key]).await.unwrap();
    }
}

#[tokio::test]
async fn gc_keeps_signatures_of_a_running_publish() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        for seed in ["a", "b", "c"] {
            fixture.publish(&keys(seed, 50)).await.unwrap();
        }
        let running = "old_users/manifests/4.json.minisig";
        fixture.write(running, b"just written".to_vec()).await;
        let retention = Retention {
            keep: 1,
            min_age: Duration::ZERO,
        };
        for dry_run in [true, false] {
            let collected = fixture
                .writer
                .collect(&audience(), retention, dry_run)
                .await
                .unwrap();
            assert_eq!(collected.removed_generations, [1, 2]);
        }
        let files = fixture.files().await;
        let left: Vec<_> = files
            .keys()
            .filter(|path| path.contains("/manifests/"))
            .collect();
        assert_eq!(
            left,
            [
                "old_users/manifests/3.json",
                "old_users/manifests/3.json.minisig",
                running
            ]
        );
        fixture.read_by(&[&key]).await.unwrap();
    }
}

#[tokio::test]
async fn rollback_keeps_the_signature_and_refuses_unsigned_generations() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        let [first, second] = ["first", "second"].map(|seed| keys(seed, 100));
        fixture.publish(&first).await.unwrap();
        fixture.publish(&second).await.unwrap();
        fixture.roll_back(1).await.unwrap();
        fixture.assert_serves(1, &first).await;
        // Also by a writer without public keys.
        let unsigned =
            StoreFixture::over(fixture.store().clone().with_public_keys([])).signed_by(&key);
        unsigned.roll_back(2).await.unwrap();
        fixture.assert_serves(2, &second).await;

        fixture.delete(&signature_of(FIRST)).await;
        let error = fixture.roll_back(1).await.unwrap_err();
        assert_eq!(error.cause(), "signature");
        fixture.assert_serves(2, &second).await;
        unsigned.roll_back(1).await.unwrap();
        fixture
            .assert_refused_by(&[&key], SignatureError::Missing)
            .await;
    }
}

/// A rollback rewrites the manifest and its signature, so that both are young for a gc.
#[tokio::test]
async fn gc_after_a_rollback_keeps_the_signature() {
    let (faulty, fixture) = faulty_fixture();
    let key = Key::new();
    let fixture = fixture.with_key(&key);
    for seed in ["a", "b", "c"] {
        fixture.publish(&keys(seed, 50)).await.unwrap();
    }
    faulty.age().await;
    fixture.roll_back(1).await.unwrap();
    let retention = Retention {
        keep: 1,
        min_age: Duration::from_secs(3600),
    };
    let collected = fixture
        .writer
        .collect(&audience(), retention, false)
        .await
        .unwrap();
    assert!(collected.removed_generations.is_empty());
    fixture.read_by(&[&key]).await.unwrap();
    assert!(fixture.files().await.contains_key(&signature_of(FIRST)));
}

#[tokio::test]
async fn concurrent_signers_conflict_without_damage() {
    let fixture = StoreFixture::memory();
    let [ours, theirs] = [(), ()].map(|()| Key::new());
    let members = keys("member", 50);
    let open = async |key: &Arc<Key>| {
        let fixture = StoreFixture::over(fixture.store().clone()).with_key(key);
        let base = fixture.writer.base(&audience()).await.unwrap();
        (fixture, base)
    };
    let (first, first_base) = open(&ours).await;
    let (second, second_base) = open(&theirs).await;
    let (first, second) = (
        first.writer.publish(first_base).await.unwrap(),
        second.writer.publish(second_base).await.unwrap(),
    );
    assert_eq!((first.generation(), second.generation()), (1, 1));
    put_chunks(&first, &members).await.unwrap();
    put_chunks(&second, &members).await.unwrap();
    first.commit(build(1, &members).0).await.unwrap();
    let error = second.commit(build(1, &members).0).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    fixture.read_by(&[&ours]).await.unwrap();
}

#[tokio::test]
async fn signature_with_a_lost_answer_is_accepted() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let (faulty, fixture) = faulty_fixture();
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        faulty.lose_answers(".minisig", lost);
        let members = keys("member", 50);
        assert_eq!(fixture.publish(&members).await.unwrap().0, 1, "{lost:?}");
        fixture.assert_serves(1, &members).await;
    }
}

#[tokio::test]
async fn unaccepted_signer_publishes_nothing() {
    for fixture in StoreFixture::local() {
        let [signer, reader] = [(), ()].map(|()| Key::new());
        let store = fixture
            .store()
            .clone()
            .with_public_keys([reader.public.clone()]);
        assert_eq!(
            check_signer(&*signer, store.trust()).unwrap_err().cause(),
            "signature"
        );
        let other = StoreFixture::over(store).signed_by(&signer);
        assert_eq!(
            other
                .publish(&keys("member", 20))
                .await
                .unwrap_err()
                .cause(),
            "signature"
        );
        assert!(
            fixture
                .files()
                .await
                .keys()
                .all(|path| path.contains("/chunks/"))
        );
    }
}

#[test]
fn debug_shows_no_secret() {
    let key = Key::new();
    let fixture = StoreFixture::memory().with_key(&key);
    assert_eq!(
        format!("{:?}", fixture.store()),
        "Store { backend: memory }"
    );
    assert_eq!(
        format!("{:?}", fixture.writer),
        "StoreWriter { store: Store { backend: memory }, .. }"
    );
}
