//! Publishing, rolling back, and two loaders at once.

use super::*;

#[track_caller]
fn assert_conflict<T>(result: Result<T, StoreError>, reason: &str) {
    let Err(error) = result else { panic!("expected a conflict") };
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("old_users: {reason}; nothing was changed"));
    assert_eq!(error.cause(), "store");
}

#[tokio::test]
async fn what_is_published_is_read_and_each_publish_is_a_generation() {
    for place in Place::all() {
        let (first, second) = (keys("first", 300), keys("second", 200));
        assert_eq!(place.publish(&first).await.unwrap(), (1, 16));
        place.assert_serves(1, &first).await;
        assert_eq!(place.publish(&second).await.unwrap(), (2, 16));
        place.assert_serves(2, &second).await;
        assert_eq!(place.publish(&[]).await.unwrap(), (3, 0));
        place.assert_serves(3, &[]).await;

        assert_eq!(place.store().generations(&audience()).await.unwrap(), [1, 2, 3]);
        assert_eq!(
            (place.current().await.sequence, place.current().await.rolled_back_from),
            (3, None)
        );
        let (manifest, bytes) = place.store().manifest_of(&audience(), 1).await.unwrap();
        assert_eq!((manifest.keys(), bytes), (300, manifest.to_bytes()));
    }
}

#[tokio::test]
async fn chunks_that_did_not_change_are_not_written_again() {
    for place in Place::all() {
        let members = keys("member", 300);
        place.publish(&members).await.unwrap();
        assert_eq!(
            place.publish(&members).await.unwrap(),
            (2, 0),
            "the same keys are the same chunks"
        );
        let fewer = &members[1..];
        assert_eq!(place.publish(fewer).await.unwrap(), (3, 1), "one key less is one other chunk");
        place.assert_serves(3, fewer).await;

        // A chunk of the wrong size under the right name is one that a crash cut short: it is written again.
        let entry = &build(1, &members).0.chunks()[5].clone();
        place.write(chunk_path(&audience(), entry).as_ref(), vec![0; 100]).await;
        assert_eq!(place.publish(&members).await.unwrap(), (4, 1));
        place.assert_serves(4, &members).await;

        // Nor is one believed that has the right size: a file that has rotted is made good. Object stores look after that.
        if !place.store().backend.is_directory() {
            continue;
        }
        place
            .write(chunk_path(&audience(), entry).as_ref(), vec![0; entry.size_bytes as usize])
            .await;
        assert_eq!(place.publish(&members).await.unwrap(), (5, 1));
        place.assert_serves(5, &members).await;
    }
}

#[tokio::test]
async fn of_two_loaders_with_the_same_base_the_second_changes_nothing() {
    for place in Place::all() {
        let (first, second) = (keys("first", 100), keys("second", 100));
        let late = place.writer.base(&audience()).await.unwrap();
        place.publish(&first).await.unwrap();
        let before = place.files().await;
        let refused = place.writer.publish(late).await;
        assert_conflict(
            refused,
            "generation 1 was published since this work began at generation 0",
        );

        // Not even when what is live has the same number as before.
        place.publish(&second).await.unwrap();
        let late = place.writer.base(&audience()).await.unwrap();
        place.roll_back(1).await.unwrap();
        place.roll_back(2).await.unwrap();
        let refused = place.writer.publish(late).await;
        assert_conflict(
            refused,
            "generation 2 was published since this work began at generation 2",
        );
        let after = place.files().await;
        assert!(
            before
                .iter()
                .filter(|(path, _)| !path.ends_with("CURRENT"))
                .all(|(p, b)| after[p] == *b)
        );
        place.assert_serves(2, &second).await;
    }
}

#[tokio::test]
async fn in_a_directory_the_second_loader_is_stopped_before_it_writes() {
    let place = Place::directory();
    let base = place.writer.base(&audience()).await.unwrap();
    let publication = place.writer.publish(base.clone()).await.unwrap();
    let before = place.files().await;
    assert_conflict(
        place.writer.publish(base.clone()).await,
        "another loader is publishing this audience",
    );
    // From another process it would be the same: the lock belongs to the open file, not to the store's value.
    let other = StoreWriter::open(place.folder.as_ref().unwrap().path().to_str().unwrap()).unwrap();
    assert_conflict(
        other.publish(base.clone()).await,
        "another loader is publishing this audience",
    );
    assert_eq!(place.files().await, before);

    drop(publication);
    place.writer.publish(base).await.expect("the lock goes with the publication");
    let another: AudienceName = "others".parse().unwrap();
    let base = place.writer.base(&audience()).await.unwrap();
    let publication = place.writer.publish(base).await.unwrap();
    let elsewhere = place.writer.base(&another).await.unwrap();
    place.writer.publish(elsewhere).await.expect("each audience has a lock of its own");
    assert_eq!(publication.generation(), 1);
}

#[tokio::test]
async fn without_a_lock_the_second_loader_loses_at_commit() {
    let place = Place::memory();
    let (first, second) = (keys("first", 100), keys("second", 100));
    for generation in 1..=2 {
        let base = place.writer.base(&audience()).await.unwrap();
        let winner = place.writer.publish(base.clone()).await.unwrap();
        let loser = place.writer.publish(base).await.unwrap();
        assert_eq!((winner.generation(), loser.generation()), (generation, generation));
        put_chunks(&loser, &second).await.unwrap();
        put_chunks(&winner, &first).await.unwrap();
        winner.commit(&build(generation, &first).0).await.unwrap();
        let before = place.files().await;

        let lost = loser.commit(&build(generation, &second).0).await;

        let reason = format!("manifests/{generation}.json was written by another loader meanwhile");
        assert_conflict(lost, &reason);
        assert_eq!(place.files().await, before);
        place.assert_serves(generation, &first).await;
    }

    // A rollback meanwhile writes no manifest: there it is CURRENT that was replaced, and the new manifest
    // goes again.
    let base = place.writer.base(&audience()).await.unwrap();
    let loser = place.writer.publish(base).await.unwrap();
    place.roll_back(1).await.unwrap();
    let before = place.files().await;
    let lost = loser.commit(&build(3, &[]).0).await;
    assert_conflict(lost, "generation 1 was published since this work began at generation 2");
    assert_eq!(place.files().await, before);

    let base = place.writer.base(&audience()).await.unwrap();
    let loser = place.writer.publish(base).await.unwrap();
    place.roll_back(2).await.unwrap();
    let lost = loser.roll_back(1).await;
    assert_conflict(lost, "generation 2 was published since this work began at generation 1");
    place.assert_serves(2, &first).await;
}

#[tokio::test]
async fn rolling_back_serves_the_old_and_the_next_publish_is_above_all() {
    for place in Place::all() {
        let members: Vec<_> = (0..4).map(|n| keys(&format!("generation {n}"), 50 + n)).collect();
        for generation in 1..=3 {
            place.publish(&members[generation - 1]).await.unwrap();
        }
        place.roll_back(1).await.unwrap();
        place.assert_serves(1, &members[0]).await;
        let current = place.current().await;
        assert_eq!(
            (current.sequence, current.generation, current.rolled_back_from),
            (4, 1, Some(3))
        );

        assert_eq!(place.publish(&members[3]).await.unwrap().0, 4);
        place.assert_serves(4, &members[3]).await;
        let current = place.current().await;
        assert_eq!((current.sequence, current.generation, current.rolled_back_from), (5, 4, None));
    }
}

#[tokio::test]
async fn a_rollback_is_told_from_a_stale_copy_until_what_was_live_is_live_again() {
    for place in Place::all() {
        for generation in 1..=3_u64 {
            place.publish(&keys(&format!("generation {generation}"), 50)).await.unwrap();
        }
        // A reader that was away since generation 3 must accept each of these; without the mark it would take
        // all but the last for stale.
        for (generation, rolled_back_from) in [(1, Some(3)), (1, Some(3)), (2, Some(3)), (3, None)]
        {
            place.roll_back(generation).await.unwrap();
            let current = place.current().await;
            assert_eq!(
                (current.generation, current.rolled_back_from),
                (generation, rolled_back_from)
            );
        }
    }
}

#[tokio::test]
async fn only_a_whole_generation_is_rolled_back_to() {
    for place in Place::all() {
        let (first, second) = (keys("first", 100), keys("second", 100));
        place.publish(&first).await.unwrap();
        place.publish(&second).await.unwrap();
        let path = chunk_path(&audience(), &build(1, &first).0.chunks()[7]).to_string();
        let bytes = place.files().await[&path].clone();

        place.write(&path, bytes[1..].to_vec()).await;
        let before = place.files().await;
        let error = place.roll_back(1).await.unwrap_err();
        let sizes = format!("has {} bytes, expected {}", bytes.len() - 1, bytes.len());
        assert_eq!((chain(&error), error.cause()), (format!("{path}: {sizes}"), "truncated"));
        assert_eq!(place.files().await, before);

        place.delete(&path).await;
        let before = place.files().await;
        let error = place.roll_back(1).await.unwrap_err();
        assert_eq!((chain(&error), error.cause()), (format!("{path} does not exist"), "not_found"));
        assert_eq!(place.files().await, before);

        let error = place.roll_back(9).await.unwrap_err();
        let missing = "old_users/manifests/9.json does not exist".to_owned();
        assert_eq!((chain(&error), error.cause()), (missing, "not_found"));
        place.assert_serves(2, &second).await;
    }
}

#[tokio::test]
async fn only_names_that_the_format_allows_are_generations() {
    for place in Place::all() {
        let names = [
            "3.json",
            "10.json",
            "007.json",
            "+8.json",
            "0.json",
            "-1.json",
            "9.json.bak",
            "x.json",
            "12",
            ".json",
        ];
        for name in names.iter().chain(&["99999999999999999999.json"]) {
            place.write(&format!("old_users/manifests/{name}"), b"{}".to_vec()).await;
        }
        assert_eq!(place.store().generations(&audience()).await.unwrap(), [3, 10]);
    }
}

#[tokio::test]
async fn numbers_at_their_end_do_not_start_again() {
    for place in Place::all() {
        let members = keys("member", 20);
        place.publish(&members).await.unwrap();
        let manifest = build(1, &members).0.to_bytes();
        let last = Current::new(u64::MAX, 1, &manifest, Some(u64::MAX)).to_bytes();
        place.write("old_users/CURRENT", last).await;
        let base = place.writer.base(&audience()).await.unwrap();
        let publication = place.writer.publish(base).await.unwrap();
        assert_eq!(publication.generation(), u64::MAX);
        publication.commit(&build(u64::MAX, &members).0).await.unwrap();
        place.assert_serves(u64::MAX, &members).await;
        let base = place.writer.base(&audience()).await.unwrap();
        let publication = place.writer.publish(base).await.unwrap();
        assert!(publication.commit(&build(u64::MAX, &[]).0).await.is_err());
        place.assert_serves(u64::MAX, &members).await;
    }
}

#[tokio::test]
#[should_panic(expected = "the manifest is of the publication's generation")]
async fn a_manifest_of_another_generation_is_not_committed() {
    let place = Place::directory();
    let base = place.writer.base(&audience()).await.unwrap();
    let publication = place.writer.publish(base).await.unwrap();
    let _ = publication.commit(&build(2, &[]).0).await;
}
