//! Signed deltas, and writes over generations of other keys or of none.

use super::*;

fn changing(seed: &str, apply: impl Fn(&mut Change, DeviceKey)) -> Change {
    let mut change = Change::default();
    keys(seed, 5)
        .iter()
        .for_each(|key| apply(&mut change, *key));
    change
}

#[tokio::test]
async fn deltas_are_signed_and_verified_like_manifests_in_every_store() {
    for fixture in StoreFixture::all() {
        let key = Key::new();
        let fixture = fixture.with_key(&key);
        fixture.publish(&keys("member", 100)).await.unwrap();
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(changing("new", Change::add)).await.unwrap();
        fixture.read_by(&[&key]).await.unwrap();
        let files = fixture.files().await;
        let signature = files
            .keys()
            .find(|path| path.ends_with(".delta.minisig"))
            .expect("it is signed");
        let mut changed = files[signature].clone();
        changed[100] ^= 1;
        fixture.write(signature, changed).await;
        assert!(
            matches!(
                fixture.read_by(&[&key]).await,
                Err(StoreError::Signature { .. })
            ),
            "{}",
            fixture.name()
        );
        fixture.delete(signature).await;
        fixture
            .assert_refused_by(&[&key], SignatureError::Missing)
            .await;
        fixture.write(signature, files[signature].clone()).await;
        fixture.read_by(&[&key]).await.unwrap();

        // A writer with public keys and no signer writes no unsigned file.
        let before = fixture.files().await;
        let unsigned = fixture.writer.clone().with_signer(None);
        let mut ledger = unsigned.ledger(&audience()).await.unwrap();
        let error = ledger
            .append(changing("newer", Change::add))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Signature {
                    source: SignatureError::Missing,
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(fixture.files().await, before);
    }
}

#[tokio::test]
async fn first_signed_build_signs_retained_deltas() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("member", 100)).await.unwrap();
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(changing("new", Change::add)).await.unwrap();
        ledger
            .append(changing("member", Change::entomb))
            .await
            .unwrap();
        let key = Key::new();
        fixture
            .assert_refused_by(&[&key], SignatureError::Missing)
            .await;
        // The signer does not require signatures yet, or it could not read the deltas.
        let signing = StoreFixture::over(fixture.store().clone()).signed_by(&key);
        signing.publish(&keys("member", 100)).await.unwrap();
        signing.read_by(&[&key]).await.unwrap();
    }
}

#[tokio::test]
async fn build_with_a_new_key_signs_retained_deltas_anew() {
    for fixture in StoreFixture::local() {
        let [old, new] = [(), ()].map(|()| Key::new());
        let fixture = fixture.with_key(&old);
        fixture.publish(&keys("member", 100)).await.unwrap();
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(changing("new", Change::add)).await.unwrap();
        ledger
            .append(changing("member", Change::entomb))
            .await
            .unwrap();
        let over = |keys: &[&Arc<Key>]| {
            let keys: Vec<_> = keys.iter().map(|key| key.public.clone()).collect();
            StoreFixture::over(fixture.store().clone().with_public_keys(keys)).signed_by(&new)
        };
        // Files of the old key are not signed anew unless it is accepted.
        let error = over(&[&new])
            .publish(&keys("member", 100))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Signature {
                    source: SignatureError::UnknownKey,
                    ..
                }
            ),
            "{error:?}"
        );
        fixture.read_by(&[&old]).await.unwrap();
        over(&[&old, &new])
            .publish(&keys("member", 100))
            .await
            .unwrap();
        fixture.read_by(&[&new]).await.unwrap();
    }
}

#[tokio::test]
async fn signed_build_signs_deltas_that_were_appended_during_it() {
    for fixture in StoreFixture::local() {
        let members = keys("member", 100);
        fixture.publish(&members).await.unwrap();
        let key = Key::new();
        let signing = StoreFixture::over(fixture.store().clone()).signed_by(&key);
        let base = signing.writer.base(&audience()).await.unwrap();
        let publication = signing.writer.publish(base).await.unwrap();
        put_chunks(&publication, &members).await.unwrap();
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(changing("new", Change::add)).await.unwrap();
        ledger
            .append(changing("member", Change::entomb))
            .await
            .unwrap();
        publication.commit(build(2, &members).0).await.unwrap();
        signing.read_by(&[&key]).await.unwrap();
    }
}

#[tokio::test]
async fn signer_appends_to_no_generation_of_another_key() {
    for fixture in StoreFixture::local() {
        let [ours, theirs] = [(), ()].map(|()| Key::new());
        let trust = Trust::of_signer(ours.public.clone());
        let signing =
            StoreFixture::over(fixture.store().clone().with_trust(trust)).signed_by(&ours);
        signing.publish(&keys("member", 100)).await.unwrap();
        let mut ledger = signing.writer.ledger(&audience()).await.unwrap();
        let plain = StoreFixture::over(fixture.store().clone()).signed_by(&theirs);
        plain.publish(&keys("member", 100)).await.unwrap();
        let before = fixture.files().await;
        for apply in [Change::add as fn(&mut Change, DeviceKey), Change::entomb] {
            ledger.refresh().await.unwrap();
            let error = ledger.append(changing("second", apply)).await.unwrap_err();
            assert_eq!(error.cause(), "signature", "{error:?}");
        }
        assert_eq!(fixture.files().await, before);
    }
}

#[tokio::test]
async fn signer_without_public_keys_reads_only_its_own_files() {
    for fixture in StoreFixture::local() {
        let [ours, theirs] = [(), ()].map(|()| Key::new());
        let plain = || StoreFixture::over(fixture.store().clone());
        let trust = Trust::of_signer(ours.public.clone());
        let signing =
            StoreFixture::over(fixture.store().clone().with_trust(trust)).signed_by(&ours);
        signing.publish(&keys("member", 100)).await.unwrap();
        for intruder in [plain(), plain().signed_by(&theirs)] {
            let mut ledger = intruder.writer.ledger(&audience()).await.unwrap();
            ledger.append(changing("evil", Change::add)).await.unwrap();
            let current = intruder.current().await;
            let error = signing
                .store()
                .delta(&audience(), &current.deltas[0])
                .await
                .unwrap_err();
            assert!(
                matches!(
                    error,
                    StoreError::Signature {
                        source: SignatureError::NotBySigner,
                        ..
                    }
                ),
                "{error:?}"
            );
            let before = fixture.files().await;
            let mut ledger = signing.writer.ledger(&audience()).await.unwrap();
            // It would be merged with the intruder's delta.
            let error = ledger
                .append(changing("good", Change::add))
                .await
                .unwrap_err();
            assert_eq!(error.cause(), "signature");
            assert_eq!(fixture.files().await, before);
        }
    }
}

#[tokio::test]
async fn unsigned_writes_over_a_signed_generation_are_refused() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let plain = || StoreFixture::over(fixture.store().clone());
        let refusing = || {
            let StoreFixture { writer, folder } = plain();
            StoreFixture {
                writer: writer.refusing_unsigned(true),
                folder,
            }
        };
        // Over an unsigned generation they are not.
        refusing().publish(&keys("member", 100)).await.unwrap();
        let mut open = refusing().writer.ledger(&audience()).await.unwrap();
        open.append(changing("first", Change::add)).await.unwrap();
        plain()
            .signed_by(&key)
            .publish(&keys("member", 100))
            .await
            .unwrap();
        let refuse = |error: StoreError| {
            assert!(
                matches!(error, StoreError::Unsigned { generation: 2, .. }),
                "{error:?}"
            );
        };
        refuse(refusing().publish(&keys("member", 100)).await.unwrap_err());
        open.refresh().await.unwrap();
        refuse(
            open.append(changing("second", Change::entomb))
                .await
                .unwrap_err(),
        );
        fixture.read_by(&[&key]).await.unwrap();
        // The state of the audience is in `CURRENT`, which has no signature.
        open.set(State::Disabled, None).await.unwrap();
        plain().publish(&keys("member", 100)).await.unwrap();
    }
}

/// A delta over an unsigned generation is unsigned; a rollback would carry it over a signed one.
#[tokio::test]
async fn rollback_without_a_key_carries_no_unsigned_change_over_a_signed_generation() {
    for fixture in StoreFixture::local() {
        let key = Key::new();
        let signing = StoreFixture::over(fixture.store().clone()).signed_by(&key);
        signing.publish(&keys("member", 100)).await.unwrap();
        fixture.publish(&keys("other", 100)).await.unwrap();
        let plain = fixture.writer.clone().refusing_unsigned(true);
        let roll_back = async |writer: &StoreWriter, generation| {
            let publication = writer
                .publish(writer.base(&audience()).await.unwrap())
                .await?;
            publication.roll_back(generation).await
        };
        roll_back(&plain, 1).await.unwrap();
        roll_back(&plain, 2).await.unwrap();

        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger.append(changing("new", Change::add)).await.unwrap();
        let error = roll_back(&plain, 1).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Unsigned { generation: 1, .. }),
            "{error:?}"
        );
        assert_eq!(fixture.current().await.generation, 2, "{}", fixture.name());
        roll_back(&plain.clone().refusing_unsigned(false), 1)
            .await
            .unwrap();
        fixture
            .assert_refused_by(&[&key], SignatureError::Missing)
            .await;
        roll_back(&plain, 2).await.unwrap();
        roll_back(&signing.writer, 1).await.unwrap();
        fixture.read_by(&[&key]).await.unwrap();
    }
}
