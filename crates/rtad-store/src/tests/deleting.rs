//! Deletions of an audience, also during builds, appends and gcs.

use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::write::{Change, MIN_AGE, Retention};
use rtad_core::snapshot::State;
use testkit::faulty_store::interleave;

const NOTHING: Retention = Retention {
    keep: 3,
    min_age: Duration::ZERO,
};

fn adding(keys: Vec<DeviceKey>) -> Change {
    let mut change = Change::default();
    keys.into_iter().for_each(|key| change.add(key));
    change
}

async fn append(fixture: &StoreFixture, change: &Change) -> Result<(), StoreError> {
    let mut ledger = fixture.writer.ledger(&audience()).await?;
    loop {
        match ledger.append(change.clone()).await {
            Err(StoreError::Conflict { .. }) => drop(ledger.refresh().await?),
            done => return done.map(|_| ()),
        }
    }
}

/// Two generations, a delta and a tombstone.
async fn publish_with_history(fixture: &StoreFixture) {
    fixture.publish(&keys("older", 100)).await.unwrap();
    fixture.publish(&keys("member", 100)).await.unwrap();
    append(fixture, &adding(keys("new", 10))).await.unwrap();
    let mut change = Change::default();
    change.entomb(keys("erased", 1)[0]);
    append(fixture, &change).await.unwrap();
}

/// The files but the records and the hint.
async fn contents(fixture: &StoreFixture) -> Vec<String> {
    let files = fixture.files().await.into_keys();
    files
        .filter(|path| !path.contains("/records/") && path != "old_users/LATEST")
        .collect()
}

#[tokio::test]
async fn deleted_audience_keeps_its_records_in_every_store() {
    for fixture in StoreFixture::all() {
        publish_with_history(&fixture).await;
        let other: AudienceName = "other".parse().unwrap();
        fixture
            .write("other/LATEST", b"of another audience".to_vec())
            .await;
        let before = fixture.current().await;
        let deletion = fixture.writer.delete(&audience()).await.unwrap();
        let removed = &deletion.removed;
        assert_eq!(
            (removed.removed_manifests, removed.removed_deltas),
            (2, 1),
            "{}",
            fixture.name()
        );
        let current = fixture.current().await;
        assert_eq!(current.state, State::Deleted);
        assert_eq!(
            (current.sequence, deletion.sequence),
            (before.sequence + 1, before.sequence + 1)
        );
        assert_eq!((current.generation, current.deltas.len()), (2, 0));
        assert_eq!(
            (&current.tombstones, current.tombstones.is_some()),
            (&before.tombstones, true)
        );
        let left = contents(&fixture).await;
        assert_eq!(
            left.len(),
            2,
            "the tombstones and another audience: {left:?}"
        );
        assert!(left[0].ends_with(".delta") && left[1] == "other/LATEST");
        assert_eq!(
            fixture.store().audiences().await.unwrap(),
            [audience(), other]
        );

        // A second deletion changes nothing.
        let again = fixture.writer.delete(&audience()).await.unwrap();
        assert_eq!(
            (again.sequence, again.removed.removed_chunks),
            (deletion.sequence, 0)
        );
        let error = append(&fixture, &adding(keys("late", 1)))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "old_users is deleted; nothing was changed"
        );
        let error = fixture.roll_back(2).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "old_users is deleted; nothing was changed"
        );
        let collected = fixture
            .writer
            .collect(&audience(), NOTHING, false)
            .await
            .unwrap();
        assert_eq!(
            (collected.kept_generations.len(), collected.removed_chunks),
            (0, 0)
        );
        assert_eq!(fixture.current().await, current);
    }
}

#[tokio::test]
async fn files_from_a_clock_ahead_are_deleted() {
    let (faulty, fixture) = faulty_fixture();
    faulty.set_clock_ahead(Duration::from_secs(60));
    publish_with_history(&fixture).await;
    let deletion = fixture.writer.delete(&audience()).await.unwrap();
    assert_eq!(deletion.removed.removed_manifests, 2);
    let left = contents(&fixture).await;
    assert_eq!(left.len(), 1, "the tombstones: {left:?}");
}

#[tokio::test]
async fn delete_of_an_unpublished_audience_fails_in_every_store() {
    for fixture in StoreFixture::all() {
        let error = fixture.writer.delete(&audience()).await.unwrap_err();
        assert_eq!(error.cause(), "not_found");
        assert!(fixture.files().await.is_empty());
    }
}

#[tokio::test]
async fn republished_audience_continues_numbers_without_old_deltas() {
    for fixture in StoreFixture::local() {
        publish_with_history(&fixture).await;
        // Generations rolled back from count too: a pod may still serve one.
        fixture.publish(&keys("third", 100)).await.unwrap();
        fixture.roll_back(1).await.unwrap();
        let deleted = fixture.writer.delete(&audience()).await.unwrap().sequence;
        // The same chunks as before the deletion.
        let (generation, written) = fixture.publish(&keys("member", 100)).await.unwrap();
        assert_eq!((generation, written), (4, 16), "{}", fixture.name());
        let current = fixture.current().await;
        assert_eq!(
            (current.sequence, current.state),
            (deleted + 1, State::Live)
        );
        fixture.assert_serves(4, &keys("member", 100)).await;
        let snapshot = fixture.read().await.unwrap();
        assert!(
            keys("new", 10).iter().all(|key| !snapshot.contains(key)),
            "its deltas are gone"
        );
        append(&fixture, &adding(keys("erased", 1))).await.unwrap();
        let snapshot = fixture.read().await.unwrap();
        assert!(!snapshot.contains(&keys("erased", 1)[0]), "tombstones stay");
    }
}

#[tokio::test]
async fn gc_removes_files_of_a_killed_deletion() {
    for fixture in StoreFixture::local() {
        publish_with_history(&fixture).await;
        let files = fixture.files().await;
        fixture.writer.delete(&audience()).await.unwrap();
        for (path, bytes) in &files {
            if !path.contains("/records/") {
                fixture.write(path, bytes.clone()).await;
            }
        }
        // Young files may belong to a new publish.
        let young = Retention {
            keep: 1,
            min_age: MIN_AGE,
        };
        let before = contents(&fixture).await;
        let collected = fixture.writer.collect(&audience(), young, false).await;
        assert_eq!(collected.unwrap().removed_chunks, 0);
        assert_eq!(contents(&fixture).await, before);
        let collected = fixture
            .writer
            .collect(&audience(), NOTHING, true)
            .await
            .unwrap();
        assert_eq!(
            (collected.removed_manifests, collected.removed_deltas),
            (2, 1)
        );
        assert_eq!(contents(&fixture).await, before, "that was a dry run");
        fixture
            .writer
            .collect(&audience(), NOTHING, false)
            .await
            .unwrap();
        assert_eq!(contents(&fixture).await.len(), 1, "the tombstones");
    }
}

#[tokio::test]
async fn build_from_before_a_deletion_conflicts_in_every_store() {
    for fixture in StoreFixture::all() {
        publish_with_history(&fixture).await;
        let base = fixture.writer.base(&audience()).await.unwrap();
        let publication = fixture.writer.publish(base.clone()).await.unwrap();
        let members = keys("member", 120);
        put_chunks(&publication, &members).await.unwrap();
        fixture.writer.delete(&audience()).await.unwrap();
        let error = publication.commit(build(1, &members).0).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        let error = fixture.writer.publish(base).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
        assert_eq!(fixture.current().await.state, State::Deleted);

        // A gc removes the files that the build wrote since.
        fixture
            .writer
            .collect(&audience(), NOTHING, false)
            .await
            .unwrap();
        let left = contents(&fixture).await;
        assert_eq!(left.len(), 1, "the tombstones, {}", fixture.name());
    }
}

/// A deletion that goes on removes what a publish finds, and has not written itself.
#[tokio::test]
async fn publish_during_a_deletion_writes_its_chunks_again() {
    let fixture = StoreFixture::directory();
    publish_with_history(&fixture).await;
    let files = fixture.files().await;
    fixture.writer.delete(&audience()).await.unwrap();
    // As if the deletion was at its beginning.
    for (path, bytes) in files.iter().filter(|(path, _)| path.contains("/chunks/")) {
        fixture.write(path, bytes.clone()).await;
        let root = fixture.folder.as_ref().unwrap().path();
        make_older(&root.join(path), Duration::from_secs(60));
    }

    let members = keys("member", 100);
    let base = fixture.writer.base(&audience()).await.unwrap();
    let relying = fixture.writer.publish(base.clone()).await.unwrap();
    let refused = relying.commit(build(1, &members).0).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");

    let publication = fixture.writer.publish(base).await.unwrap();
    assert_eq!(put_chunks(&publication, &members).await.unwrap(), 16);
    // The deletion goes on.
    fixture.writer.delete(&audience()).await.unwrap();
    publication.commit(build(1, &members).0).await.unwrap();
    fixture.assert_serves(3, &members).await;
}

#[tokio::test]
async fn killed_deletion_is_atomic() {
    for requests in 0.. {
        let (_, fixture) = faulty_fixture();
        publish_with_history(&fixture).await;
        let name = audience();
        let mut killed = Box::pin(fixture.writer.delete(&name));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let is_done = (0..requests).any(|_| killed.as_mut().poll(&mut context).is_ready());
        drop(killed);
        match fixture.current().await.state {
            State::Live => fixture.assert_serves(2, &keys("member", 100)).await,
            _ => assert!(fixture.current().await.deltas.is_empty()),
        }
        fixture.writer.delete(&audience()).await.unwrap();
        let left = contents(&fixture).await;
        assert_eq!(left.len(), 1, "the tombstones, after {requests}: {left:?}");
        fixture.publish(&keys("member", 100)).await.unwrap();
        fixture.assert_serves(3, &keys("member", 100)).await;
        if is_done {
            assert!(requests > 20, "it took {requests} requests");
            return;
        }
    }
}

/// Interleaves the requests of a deletion, publishes of the same chunks, an append and a gc.
#[test]
fn concurrent_work_leaves_the_audience_deleted_or_whole() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    let more: Vec<_> = BTreeSet::from_iter([keys("member", 100), keys("one", 1)].concat())
        .into_iter()
        .collect();
    for seed in 1..=races() {
        let (faulty, fixture) = faulty_fixture();
        runtime.block_on(publish_with_history(&fixture));
        runtime.block_on(faulty.age(2 * MIN_AGE));
        let run = |side: &'static str| {
            let (fixture, more) = (&fixture, &more);
            async move {
                let done = match side {
                    "delete" => fixture.writer.delete(&audience()).await.map(|_| ()),
                    "publish" => fixture.publish(&keys("member", 100)).await.map(|_| ()),
                    // Another manifest: two builds never have identical ones.
                    "another" => fixture.publish(more).await.map(|_| ()),
                    "gc" => {
                        let retention = Retention {
                            keep: 1,
                            min_age: MIN_AGE,
                        };
                        fixture
                            .writer
                            .collect(&audience(), retention, false)
                            .await
                            .map(|_| ())
                    }
                    _ => append(fixture, &adding(keys("late", 3))).await,
                };
                match done {
                    Ok(())
                    | Err(
                        StoreError::Conflict { .. }
                        | StoreError::NotFound { .. }
                        | StoreError::NotLive { .. },
                    ) => {}
                    Err(error) => panic!("seed {seed}, {side}: {error:?}"),
                }
            }
            .boxed()
        };
        {
            let _clock = runtime.enter();
            interleave(
                seed,
                ["delete", "publish", "gc", "append", "another"]
                    .iter()
                    .map(|side| run(side))
                    .collect(),
            );
        }
        runtime.block_on(async {
            let state = fixture.current().await.state;
            if state == State::Live {
                let snapshot = fixture
                    .read()
                    .await
                    .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                assert!(
                    keys("member", 100).iter().all(|key| snapshot.contains(key)),
                    "seed {seed}"
                );
            }
            *ends.entry(state.as_str()).or_default() += 1;
        });
    }
    assert!(
        ["live", "deleted"].iter().all(|end| ends[end] > 10),
        "{ends:?}"
    );
}
