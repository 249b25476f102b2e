//! Signed records: who reads them, who may follow them, and what an intruder cannot do.

use super::*;
use crate::read::record_object;
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

fn adding(seed: &str) -> Change {
    let mut change = Change::default();
    keys(seed, 5).into_iter().for_each(|key| change.add(key));
    change
}

const NOW: Retention = Retention {
    keep: 1,
    min_age: Duration::ZERO,
};

#[tokio::test]
async fn signed_store_is_read_with_any_key_or_none_in_every_store() {
    for fixture in StoreFixture::all() {
        let [old, new, other] = [(), (), ()].map(|()| Key::new());
        let members = keys("member", 100);
        let fixture = fixture.with_key(&old);
        fixture.publish(&members).await.unwrap();
        fixture.assert_serves(1, &members).await;
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
        fixture.roll_back(1).await.unwrap();
        fixture.read_by(&[&new]).await.unwrap();
    }
}

/// An intruder who can write to the store puts a record of its own behind the newest one.
#[tokio::test]
async fn changed_or_moved_records_are_refused() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        let [first, second] = ["first", "second"].map(|seed| keys(seed, 100));
        fixture.publish(&first).await.unwrap();
        fixture.publish(&second).await.unwrap();
        let files = fixture.files().await;
        let (one, two) = (&files[&record(1)], &files[&record(2)]);
        let end = two.iter().position(|byte| *byte == b'\n').unwrap();
        let (content, signature) = (&two[..end], &two[end + 1..]);
        let next = fixture.current().await.next().to_bytes();
        let mut changed = two.clone();
        changed[50] ^= 1;
        let by_path = |path: &str| SignatureError::WrongPath {
            found: format!("rtad {path}"),
            expected: format!("rtad {}", record(3)),
        };
        let elsewhere = "others/records/00000000000000000003.json";
        let theirs = key.sign(&next, &format!("rtad {elsewhere}")).unwrap();
        // The signature is verified before the content is parsed.
        for (object, expected) in [
            (changed, SignatureError::Invalid),
            (
                record_object(&next, Some(signature)),
                SignatureError::Invalid,
            ),
            (
                record_object(b"<html>", Some(signature)),
                SignatureError::Invalid,
            ),
            (record_object(&next, None), SignatureError::Missing),
            (next.clone(), SignatureError::Missing),
            (Vec::new(), SignatureError::Missing),
            (
                record_object(&next, Some(b"<html>")),
                SignatureError::Malformed,
            ),
            (two[..two.len() - 200].to_vec(), SignatureError::Malformed),
            (record_object(content, Some(two)), SignatureError::Malformed),
            (one.clone(), by_path(&record(1))),
            (two.clone(), by_path(&record(2))),
            (
                record_object(&next, Some(theirs.as_bytes())),
                by_path(elsewhere),
            ),
        ] {
            fixture.write(&record(3), object).await;
            fixture.assert_refused_by(&[&key], expected).await;
            // Nobody who checks signatures follows it, either.
            let refused = fixture.publish(&first).await.unwrap_err();
            assert_eq!(refused.cause(), "signature");
        }
        let long = record_object(&next, Some(&[b'x'; 70_000]));
        fixture.write(&record(3), long).await;
        let refused = fixture.read_by(&[&key]).await.unwrap_err();
        assert_eq!(refused.cause(), "too_large");

        // A running reader keeps what it has, until the record is removed.
        fixture.delete(&record(3)).await;
        fixture.assert_serves(2, &second).await;
        fixture.publish(&first).await.unwrap();
        fixture.assert_serves(3, &first).await;
    }
}

#[tokio::test]
async fn writers_without_a_key_change_no_signed_audience() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let signing = StoreFixture::over(fixture.store().clone()).with_key(&key);
        for seed in ["a", "b"] {
            signing.publish(&keys(seed, 50)).await.unwrap();
        }
        let before = fixture.files().await;
        let writer = &fixture.writer;
        let mut ledger = writer.ledger(&audience()).await.unwrap();
        let errors = [
            fixture.publish(&keys("c", 50)).await.unwrap_err(),
            fixture.roll_back(1).await.unwrap_err(),
            ledger.append(adding("new")).await.unwrap_err(),
            ledger.set(State::Disabled, None).await.unwrap_err(),
            writer.collect(&audience(), NOW, false).await.unwrap_err(),
            writer.delete(&audience()).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, StoreError::Unsigned { .. }), "{error:?}");
        }
        assert_eq!(fixture.files().await, before, "{}", fixture.name());
        // A gc that drops no generation writes no record: it needs a key, secret or public, to know
        // whose record says what is needed.
        let keep_all = Retention { keep: 9, ..NOW };
        let refused = writer.collect(&audience(), keep_all, false).await;
        assert!(matches!(refused, Err(StoreError::Unsigned { .. })));
        let trusting = fixture
            .store()
            .clone()
            .with_public_keys([key.public.clone()]);
        let trusting = StoreWriter::new(trusting).unwrap();
        trusting
            .collect(&audience(), keep_all, false)
            .await
            .unwrap();
        signing.read_by(&[&key]).await.unwrap();

        // Nor does it follow a record that somebody has created without a key.
        let mut stray = fixture.current().await.next();
        stray.kept.clear();
        let stray_object = record_object(&stray.to_bytes(), None);
        fixture.write(&record(stray.sequence), stray_object).await;
        let before = fixture.files().await;
        let refused = writer.collect(&audience(), NOW, false).await;
        assert!(matches!(refused, Err(StoreError::Unsigned { .. })));
        assert_eq!(fixture.files().await, before, "{}", fixture.name());
    }
}

#[tokio::test]
async fn every_change_of_a_signed_audience_is_signed() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        for seed in ["a", "b", "c"] {
            fixture.publish(&keys(seed, 50)).await.unwrap();
        }
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(adding("new")).await.unwrap();
        fixture.read_by(&[&key]).await.unwrap();
        ledger.set(State::Live, Some(u64::MAX)).await.unwrap();
        fixture.roll_back(2).await.unwrap();
        fixture.assert_serves(2, &keys("b", 50)).await;
        let collected = fixture.writer.collect(&audience(), NOW, false).await;
        assert_eq!(collected.unwrap().removed_generations, [1]);
        fixture.read_by(&[&key]).await.unwrap();
        fixture.writer.delete(&audience()).await.unwrap();
        let files = fixture.files().await;
        let store = fixture.store();
        for (number, _) in store.records(&audience()).list().await.unwrap() {
            let object = &files[&record(number)];
            Live::parse(store.trust(), &audience(), number, object).unwrap();
        }
        let state = fixture.current().await.state;
        assert_eq!(state, State::Deleted);
    }
}

/// It must not sign the content of others.
#[tokio::test]
async fn signer_without_public_keys_follows_only_its_own_records() {
    for fixture in StoreFixture::local() {
        let [ours, theirs] = [(), ()].map(|()| Key::new());
        let trust = Trust::of_signer(ours.public.clone());
        let signing =
            StoreFixture::over(fixture.store().clone().with_trust(trust)).signed_by(&ours);
        let plain = || StoreFixture::over(fixture.store().clone());
        plain().publish(&keys("member", 50)).await.unwrap();
        for _ in 0..2 {
            let before = fixture.files().await;
            let writer = &signing.writer;
            for refused in [
                signing.publish(&keys("member", 50)).await.unwrap_err(),
                signing.roll_back(1).await.unwrap_err(),
                writer.ledger(&audience()).await.unwrap_err(),
                writer.collect(&audience(), NOW, false).await.unwrap_err(),
                writer.delete(&audience()).await.unwrap_err(),
            ] {
                let StoreError::Signature { source, .. } = refused else {
                    panic!("{refused:?}")
                };
                assert_eq!(source, SignatureError::NotBySigner);
            }
            assert_eq!(fixture.files().await, before);
            let other = plain().signed_by(&theirs);
            other.publish(&keys("member", 50)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn signer_that_others_overtook_appends_nothing() {
    let fixture = StoreFixture::memory();
    let [ours, theirs] = [(), ()].map(|()| Key::new());
    let signing = StoreFixture::over(fixture.store().clone()).with_key(&ours);
    signing.publish(&keys("member", 50)).await.unwrap();
    let mut ledger = signing.writer.ledger(&audience()).await.unwrap();
    let intruder = StoreFixture::over(fixture.store().clone()).signed_by(&theirs);
    intruder.publish(&keys("evil", 50)).await.unwrap();
    let before = fixture.current().await;
    let refused = ledger.append(adding("new")).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Conflict { .. }),
        "{refused:?}"
    );
    assert_eq!(ledger.refresh().await.unwrap_err().cause(), "signature");
    assert_eq!(fixture.current().await, before);
}

#[tokio::test]
async fn signed_record_with_a_lost_answer_is_known_as_its_own() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let (faulty, fixture) = faulty_fixture();
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        faulty.lose_answers("/records/", lost);
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
        assert!(fixture.store().live(&audience()).await.unwrap().is_none());
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
