//! Publishes, rollbacks, and two concurrent loaders.

use super::*;

#[track_caller]
fn assert_conflict<T>(result: Result<T, StoreError>, reason: &str) {
    let Err(error) = result else {
        panic!("expected a conflict")
    };
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("old_users: {reason}; nothing was changed")
    );
    assert_eq!(error.cause(), "store");
}

#[tokio::test]
async fn each_publish_is_a_readable_generation_in_every_store() {
    for fixture in StoreFixture::all() {
        let (first, second) = (keys("first", 300), keys("second", 200));
        assert_eq!(fixture.publish(&first).await.unwrap(), (1, 16));
        fixture.assert_serves(1, &first).await;
        assert_eq!(fixture.publish(&second).await.unwrap(), (2, 16));
        fixture.assert_serves(2, &second).await;
        assert_eq!(fixture.publish(&[]).await.unwrap(), (3, 0));
        fixture.assert_serves(3, &[]).await;

        assert_eq!(fixture.generations().await, [1, 2, 3]);
        assert_eq!(
            (
                fixture.current().await.sequence,
                fixture.current().await.rolled_back_from
            ),
            (3, None)
        );
        let entry = fixture.current().await.entry(1).unwrap();
        let read = fixture.store().manifest_and_file(&audience(), &entry).await;
        let (manifest, bytes) = read.unwrap();
        assert_eq!((manifest.keys(), bytes), (300, manifest.to_bytes()));
    }
}

#[tokio::test]
async fn unchanged_chunks_are_not_rewritten_in_every_store() {
    for fixture in StoreFixture::all() {
        let members = keys("member", 300);
        fixture.publish(&members).await.unwrap();
        assert_eq!(
            fixture.publish(&members).await.unwrap(),
            (2, 0),
            "the same keys are the same chunks"
        );
        let fewer = &members[1..];
        assert_eq!(
            fixture.publish(fewer).await.unwrap(),
            (3, 1),
            "one key less is one other chunk"
        );
        fixture.assert_serves(3, fewer).await;

        // A truncated chunk, as after a crash, is written again.
        let entry = &build(1, &members).0.chunks()[5].clone();
        fixture
            .write(chunk_path(&audience(), entry).as_ref(), vec![0; 100])
            .await;
        assert_eq!(fixture.publish(&members).await.unwrap(), (4, 1));
        fixture.assert_serves(4, &members).await;

        // In a directory, a corrupt chunk of the right size is repaired. Object stores have
        // checksums.
        if !fixture.store().backend.is_directory() {
            continue;
        }
        fixture
            .write(
                chunk_path(&audience(), entry).as_ref(),
                vec![0; entry.size_bytes as usize],
            )
            .await;
        assert_eq!(fixture.publish(&members).await.unwrap(), (5, 1));
        fixture.assert_serves(5, &members).await;
    }
}

#[tokio::test]
async fn second_loader_on_the_same_base_conflicts_in_every_store() {
    for fixture in StoreFixture::all() {
        let (first, second) = (keys("first", 100), keys("second", 100));
        let late = fixture.writer.base(&audience()).await.unwrap();
        fixture.publish(&first).await.unwrap();
        let before = fixture.files().await;
        let refused = fixture.writer.publish(late).await;
        assert_conflict(
            refused,
            "generation 1 was published since this work began at generation 0",
        );

        // The same live generation as before is still a conflict.
        fixture.publish(&second).await.unwrap();
        let late = fixture.writer.base(&audience()).await.unwrap();
        fixture.roll_back(1).await.unwrap();
        fixture.roll_back(2).await.unwrap();
        let refused = fixture.writer.publish(late).await;
        assert_conflict(
            refused,
            "generation 2 was published since this work began at generation 2",
        );
        let after = fixture.files().await;
        assert!(
            before
                .iter()
                .filter(|(path, _)| !path.ends_with("LATEST"))
                .all(|(p, b)| after[p] == *b)
        );
        fixture.assert_serves(2, &second).await;
    }
}

#[tokio::test]
async fn one_of_two_concurrent_loaders_conflicts_at_commit_in_every_store() {
    for fixture in StoreFixture::all() {
        let (first, second) = (keys("first", 100), keys("second", 100));
        for generation in 1..=2 {
            let base = fixture.writer.base(&audience()).await.unwrap();
            let winner = fixture.writer.publish(base.clone()).await.unwrap();
            let loser = fixture.writer.publish(base).await.unwrap();
            put_chunks(&loser, &second).await.unwrap();
            put_chunks(&winner, &first).await.unwrap();
            winner.commit(build(1, &first).0).await.unwrap();

            let lost = loser.commit(build(1, &second).0).await;

            let before = generation - 1;
            let reason = format!(
                "generation {generation} was published since this work began at generation {before}"
            );
            assert_conflict(lost, &reason);
            assert_eq!(fixture.current().await.sequence, generation);
            fixture.assert_serves(generation, &first).await;
        }

        // A rollback is a publish, too.
        let base = fixture.writer.base(&audience()).await.unwrap();
        let build_of_two = fixture.writer.publish(base.clone()).await.unwrap();
        let rollback = fixture.writer.publish(base).await.unwrap();
        fixture.roll_back(1).await.unwrap();
        let reason = "generation 1 was published since this work began at generation 2";
        assert_conflict(build_of_two.commit(build(1, &[]).0).await, reason);
        assert_conflict(rollback.roll_back(1).await, reason);
        fixture.assert_serves(1, &first).await;
        // A number that no record had is free.
        assert_eq!(fixture.publish(&second).await.unwrap().0, 3);
        fixture.assert_serves(3, &second).await;
    }
}

#[tokio::test]
async fn publish_without_its_chunks_fails_in_a_directory() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("old", 50)).await.unwrap();
    let base = fixture.writer.base(&audience()).await.unwrap();
    let publication = fixture.writer.publish(base).await.unwrap();
    let manifest = build(1, &keys("new", 50)).0;
    let error = publication.commit(manifest).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("could not sync old_users/chunks/"),
        "{error}"
    );
    fixture.assert_serves(1, &keys("old", 50)).await;
    assert_eq!(fixture.generations().await, [1]);
}

#[tokio::test]
async fn rollback_mark_stays_until_the_old_generation_is_live_again() {
    for fixture in StoreFixture::local() {
        for generation in 1..=3_u64 {
            fixture
                .publish(&keys(&format!("generation {generation}"), 50))
                .await
                .unwrap();
        }
        // A reader that last saw generation 3 must accept each of these. Without the mark, all but
        // the last would be stale.
        for (generation, rolled_back_from) in [(1, Some(3)), (1, Some(3)), (2, Some(3)), (3, None)]
        {
            fixture.roll_back(generation).await.unwrap();
            let current = fixture.current().await;
            assert_eq!(
                (current.generation, current.rolled_back_from),
                (generation, rolled_back_from)
            );
        }
    }
}

#[tokio::test]
async fn rollback_to_an_incomplete_generation_fails() {
    for fixture in StoreFixture::local() {
        let (first, second) = (keys("first", 100), keys("second", 100));
        fixture.publish(&first).await.unwrap();
        fixture.publish(&second).await.unwrap();
        let path = chunk_path(&audience(), &build(1, &first).0.chunks()[7]).to_string();
        let bytes = fixture.files().await[&path].clone();

        fixture.write(&path, bytes[1..].to_vec()).await;
        let before = fixture.files().await;
        let error = fixture.roll_back(1).await.unwrap_err();
        let sizes = format!("has {} bytes, expected {}", bytes.len() - 1, bytes.len());
        assert_eq!(
            (chain(&error), error.cause()),
            (format!("{path}: {sizes}"), "truncated")
        );
        assert_eq!(fixture.files().await, before);

        fixture.delete(&path).await;
        let before = fixture.files().await;
        let error = fixture.roll_back(1).await.unwrap_err();
        assert_eq!(
            (chain(&error), error.cause()),
            (format!("{path} does not exist"), "not_found")
        );
        assert_eq!(fixture.files().await, before);

        let error = fixture.roll_back(9).await.unwrap_err();
        let missing = "old_users generation 9 does not exist".to_owned();
        assert_eq!((chain(&error), error.cause()), (missing, "not_found"));
        fixture.assert_serves(2, &second).await;
    }
}

/// Records that were lost, and files that are none of this program's.
#[tokio::test]
async fn first_publish_follows_the_numbers_of_all_manifests_in_every_store() {
    for fixture in StoreFixture::all() {
        let digest = "0123456789abcdef".repeat(4);
        for name in ["3", "10"] {
            let path = format!("old_users/manifests/{name}-{digest}.json");
            fixture.write(&path, b"{}".to_vec()).await;
        }
        for name in ["99999999999999999999-x.json", "+20-x.json", "x.json", "-1"] {
            let path = format!("old_users/manifests/{name}");
            fixture.write(&path, b"{}".to_vec()).await;
        }
        let members = keys("member", 20);
        assert_eq!(fixture.publish(&members).await.unwrap().0, 11);
        fixture.assert_serves(11, &members).await;
    }
}

#[tokio::test]
async fn exhausted_numbers_do_not_wrap() {
    for fixture in StoreFixture::local() {
        let members = keys("member", 20);
        fixture.publish(&members).await.unwrap();
        let mut last = Current::new(u64::MAX - 1, 1, b"", Some(u64::MAX));
        let live = fixture.current().await.live_entry();
        (last.manifest_size_bytes, last.manifest_sha256) =
            (live.manifest_size_bytes, live.manifest_sha256);
        fixture.write(&record(u64::MAX - 1), last.to_bytes()).await;
        fixture
            .write("old_users/LATEST", b"18446744073709551614\n".to_vec())
            .await;

        assert_eq!(fixture.publish(&members).await.unwrap().0, u64::MAX);
        fixture.assert_serves(u64::MAX, &members).await;
        let before = fixture.current().await;
        let polled = fixture.store().live(&audience()).await.unwrap();
        let polled = fixture
            .store()
            .live_since(&audience(), polled.as_ref())
            .await;
        assert_eq!(polled.unwrap().unwrap().current, before);
        assert!(fixture.publish(&[]).await.is_err());
        assert_eq!(fixture.current().await, before);
    }
}

#[tokio::test]
async fn keys_in_memory_are_published_in_any_order() {
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    for fixture in StoreFixture::all() {
        let members = keys("member", 300);
        let mut unsorted = members.clone();
        unsorted.reverse();
        let base = fixture.writer.base(&audience()).await.unwrap();
        let publication = fixture.writer.publish(base).await.unwrap();
        let facts = GenerationFacts::built_now_by("a test");
        let published = publication
            .commit_keys(unsorted, filter, 0.0001, facts)
            .await
            .unwrap();
        assert_eq!(published.current, fixture.current().await);
        assert_eq!(
            &published.manifest,
            fixture.read().await.unwrap().manifest()
        );
        assert_eq!(published.manifest.chunks().len(), 16);
        fixture.assert_serves(1, &members).await;
    }
}

#[tokio::test]
async fn facts_that_readers_would_refuse_are_not_published() {
    let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let fixture = StoreFixture::directory();
    let base = fixture.writer.base(&audience()).await.unwrap();
    let publication = fixture.writer.publish(base).await.unwrap();
    let facts = GenerationFacts {
        created_unix_seconds: 2,
        expires_unix_seconds: Some(1),
        ..GenerationFacts::default()
    };
    let refused = publication.commit_keys(Vec::new(), filter, 0.0001, facts);
    let error = refused.await.unwrap_err();
    assert!(matches!(error, StoreError::Manifest { .. }), "{error:?}");
    assert!(fixture.files().await.is_empty());
}
