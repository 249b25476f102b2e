//! Appends, also during builds, rollbacks and gcs.

pub mod builds;

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::write::{Change, MIN_AGE, Retention};
use builds::{adding, append, build_over};
use testkit::faulty_store::{LostAnswer, interleave};

#[tokio::test]
async fn append_writes_one_delta_and_one_record_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("member", 300)).await.unwrap();
        let before = fixture.files().await;
        let appended = append(&fixture, &adding(keys("new", 1000))).await.unwrap();
        let after = fixture.files().await;
        assert_eq!(
            (appended.added, appended.generation, appended.sequence),
            (1000, 1, 2)
        );
        assert_eq!((appended.deltas, appended.delta_keys), (1, 1000));
        assert_eq!(appended.written_bytes, 64 + 16 * 1000);
        let changed: Vec<_> = after
            .iter()
            .filter(|(path, bytes)| before.get(*path) != Some(bytes))
            .collect();
        let paths: Vec<_> = changed.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths.len(), 3, "{paths:?}");
        assert!(paths[1].starts_with("old_users/deltas/2-"), "{paths:?}");
        assert_eq!([paths[0], paths[2]], ["old_users/LATEST", &record(2)]);
        let snapshot = fixture.read().await.unwrap();
        assert!(
            keys("new", 1000)
                .iter()
                .chain(&keys("member", 300))
                .all(|key| snapshot.contains(key))
        );

        // An empty change writes nothing.
        let nothing = append(&fixture, &Change::default()).await.unwrap();
        assert_eq!((nothing.sequence, nothing.written_bytes), (2, 0));
        assert_eq!(fixture.files().await, after);
    }
}

#[tokio::test]
async fn many_appends_keep_deltas_few_and_records_small() {
    let fixture = StoreFixture::memory();
    fixture.publish(&keys("member", 30)).await.unwrap();
    let mut written = 0;
    for batch in 0..300 {
        let change = adding(keys(&format!("batch {batch}"), 10));
        written += append(&fixture, &change).await.unwrap().written_bytes;
        assert!(fixture.current().await.deltas.len() <= 7);
        assert!(fixture.current().await.to_bytes().len() < 4096);
    }
    let once = 300 * 10 * 16;
    assert!(
        written < 10 * once,
        "{written} bytes for {once} bytes of keys"
    );
    let snapshot = fixture.read().await.unwrap();
    assert!((0..300).all(|batch| {
        keys(&format!("batch {batch}"), 10)
            .iter()
            .all(|key| snapshot.contains(key))
    }));
}

#[tokio::test]
async fn existing_tombstones_are_not_rewritten() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("old", 50)).await.unwrap();
        let mut change = Change::default();
        keys("old", 5).iter().for_each(|key| change.entomb(*key));
        append(&fixture, &change).await.unwrap();
        let before = fixture.files().await;
        let again = append(&fixture, &change).await.unwrap();
        assert_eq!((again.written_bytes, again.tombstones), (0, 5));
        assert_eq!(fixture.files().await, before);
    }
}

#[tokio::test]
async fn tombstones_over_the_limit_are_refused_with_a_reason() {
    let fixture = StoreFixture::memory();
    fixture.publish(&keys("old", 50)).await.unwrap();
    let changing = |names: &[DeviceKey], change: fn(&mut Change, DeviceKey)| {
        let mut all = Change::default();
        names.iter().for_each(|key| change(&mut all, *key));
        all
    };
    let gone = keys("gone", 1001);
    append(&fixture, &changing(&gone[..1000], Change::entomb))
        .await
        .unwrap();
    // Repeated ones count once.
    append(&fixture, &changing(&gone[..10], Change::entomb))
        .await
        .unwrap();
    build_over(&fixture, &keys("old", 50)).await.unwrap();
    let error = append(&fixture, &changing(&gone[1000..], Change::entomb))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "old_users: expected at most 1000 tombstones, found 1001; nothing was changed; no build \
         lowers their number, only lifting those of devices that no export contains any more"
    );
    append(&fixture, &changing(&gone[..1], Change::lift))
        .await
        .unwrap();
    let appended = append(&fixture, &changing(&gone[1000..], Change::entomb))
        .await
        .unwrap();
    assert_eq!(appended.tombstones, 1000);
}

#[tokio::test]
async fn append_to_a_missing_audience_fails() {
    for fixture in StoreFixture::local() {
        let error = append(&fixture, &adding(keys("new", 1))).await.unwrap_err();
        assert_eq!(error.cause(), "not_found");
        assert!(fixture.files().await.is_empty());
    }
}

#[tokio::test]
async fn disabled_audience_refuses_appends_and_keeps_its_deltas() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("member", 30)).await.unwrap();
        append(&fixture, &adding(keys("new", 10))).await.unwrap();
        let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
        ledger
            .set(rtad_core::snapshot::State::Disabled, Some(7))
            .await
            .unwrap();
        let error = ledger.append(adding(keys("newer", 10))).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "old_users is disabled; nothing was changed"
        );
        // A build does not enable the audience.
        build_over(&fixture, &keys("member", 30)).await.unwrap();
        let current = fixture.current().await;
        assert_eq!(
            (current.state.as_str(), current.expires_unix_seconds),
            ("disabled", Some(7))
        );
        ledger.refresh().await.unwrap();
        ledger
            .set(rtad_core::snapshot::State::Live, None)
            .await
            .unwrap();
        ledger.append(adding(keys("newer", 10))).await.unwrap();
        let snapshot = fixture.read().await.unwrap();
        assert!(
            ["new", "newer"]
                .iter()
                .all(|seed| keys(seed, 10).iter().all(|key| snapshot.contains(key)))
        );
    }
}

#[tokio::test]
async fn long_publish_keeps_concurrent_deltas_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("old", 50)).await.unwrap();
        append(&fixture, &adding(keys("before", 10))).await.unwrap();
        let base = fixture.writer.base(&audience()).await.unwrap();
        let folded = base.folded().unwrap();
        let publication = fixture.writer.publish(base).await.unwrap();
        append(&fixture, &adding(keys("meanwhile", 10)))
            .await
            .unwrap();
        let members = [keys("new", 50), keys("before", 10)].concat();
        let members: Vec<_> = BTreeSet::from_iter(members).into_iter().collect();
        put_chunks(&publication, &members).await.unwrap();
        append(&fixture, &adding(keys("at last", 10)))
            .await
            .unwrap();
        let manifest = build(1, &members).0.with_folded(folded);
        let published = publication.commit(manifest).await.unwrap();

        // The delta that the build read was merged with the later ones: a rollback needs it whole.
        let folded: Vec<_> = published.manifest.folded_deltas().cloned().collect();
        assert_eq!((folded.len(), &folded), (1, &published.current.deltas));
        let snapshot = fixture.read().await.unwrap();
        assert_eq!(snapshot.manifest().generation(), 2);
        for (seed, count) in [
            ("new", 50),
            ("before", 10),
            ("meanwhile", 10),
            ("at last", 10),
        ] {
            assert!(
                keys(seed, count).iter().all(|key| snapshot.contains(key)),
                "{seed}, {}",
                fixture.name()
            );
        }
        // The next build folds in the remaining deltas.
        build_over(&fixture, &members).await.unwrap();
        assert!(fixture.current().await.deltas.is_empty());
        let snapshot = fixture.read().await.unwrap();
        assert!(keys("at last", 10).iter().all(|key| snapshot.contains(key)));
    }
}

#[tokio::test]
async fn append_with_a_lost_answer_succeeds_once() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let (faulty, fixture) = faulty_fixture();
        fixture.publish(&keys("member", 30)).await.unwrap();
        faulty.lose_answers("/records/", lost);
        let appended = append(&fixture, &adding(keys("new", 10))).await.unwrap();
        assert_eq!(appended.sequence, 2, "appended once, {lost:?}");
        let snapshot = fixture.read().await.unwrap();
        assert!(keys("new", 10).iter().all(|key| snapshot.contains(key)));
    }
}

#[tokio::test]
async fn killed_append_is_atomic() {
    for requests in 0.. {
        let (_, fixture) = faulty_fixture();
        fixture.publish(&keys("member", 30)).await.unwrap();
        append(&fixture, &adding(keys("first", 10))).await.unwrap();
        let change = adding(keys("second", 10));
        let mut killed = Box::pin(append(&fixture, &change));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let is_done = (0..requests).any(|_| {
            // Merging runs on another thread.
            std::thread::sleep(Duration::from_millis(1));
            killed.as_mut().poll(&mut context).is_ready()
        });
        drop(killed);
        let snapshot = fixture.read().await.unwrap();
        let found = keys("second", 10)
            .iter()
            .filter(|key| snapshot.contains(key))
            .count();
        let is_named = fixture.current().await.sequence == 3;
        assert_eq!(found, if is_named { 10 } else { 0 });
        assert!(keys("first", 10).iter().all(|key| snapshot.contains(key)));
        // The next append succeeds, and a gc removes unnamed deltas.
        append(&fixture, &adding(keys("third", 10))).await.unwrap();
        let retention = Retention {
            keep: 1,
            min_age: Duration::ZERO,
        };
        fixture
            .writer
            .collect(&audience(), retention, false)
            .await
            .unwrap();
        let deltas = fixture
            .files()
            .await
            .keys()
            .filter(|path| path.ends_with(".delta"))
            .count();
        assert_eq!(deltas, fixture.current().await.deltas.len());
        if is_done {
            assert!(requests > 4, "it took {requests} requests");
            return;
        }
    }
}

/// A delta that is live, and one that is merged into the generation to roll back from.
#[tokio::test]
async fn rollback_to_a_generation_without_its_deltas_fails() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("first", 50)).await.unwrap();
        append(&fixture, &adding(keys("merged", 3))).await.unwrap();
        build_over(&fixture, &keys("second", 50)).await.unwrap();
        append(&fixture, &adding(keys("live", 30))).await.unwrap();
        let before = fixture.files().await;

        let deltas: Vec<_> = before
            .keys()
            .filter(|path| path.ends_with(".delta"))
            .collect();
        assert_eq!(deltas.len(), 2);
        for path in deltas {
            let bytes = &before[path];
            fixture.write(path, bytes[1..].to_vec()).await;
            let error = fixture.roll_back(1).await.unwrap_err();
            let sizes = format!("has {} bytes, expected {}", bytes.len() - 1, bytes.len());
            assert_eq!(chain(&error), format!("{path}: {sizes}"));

            fixture.delete(path).await;
            assert_eq!(fixture.roll_back(1).await.unwrap_err().cause(), "not_found");
            fixture.write(path, bytes.clone()).await;
        }
        assert_eq!(fixture.files().await, before);
        fixture.roll_back(1).await.unwrap();
    }
}

/// Interleaves the requests of appends, a build, a rollback and a gc in many orders.
#[test]
fn concurrent_work_loses_no_acknowledged_append() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut wins: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 1..=races() {
        let (faulty, fixture) = faulty_fixture();
        runtime.block_on(async {
            fixture.publish(&keys("a", 4)).await.unwrap();
            append(&fixture, &adding(keys("before", 3))).await.unwrap();
            build_over(&fixture, &keys("b", 4)).await.unwrap();
            append(&fixture, &adding(keys("since", 3))).await.unwrap();
            faulty.age(2 * MIN_AGE).await;
        });
        let acknowledged = Mutex::new(vec!["before", "since"]);
        let won = Mutex::new(Vec::new());
        let run = |side: &'static str| {
            let (fixture, acknowledged, won) = (&fixture, &acknowledged, &won);
            async move {
                let done = match side {
                    "build" => build_over(fixture, &keys("c", 4)).await.map(|_| ()),
                    "rollback" => fixture.roll_back(1).await,
                    "gc" => {
                        let retention = Retention {
                            keep: 2,
                            min_age: MIN_AGE,
                        };
                        fixture
                            .writer
                            .collect(&audience(), retention, false)
                            .await
                            .map(|_| ())
                    }
                    name => {
                        append(fixture, &adding(keys(name, 3))).await.unwrap();
                        acknowledged.lock().unwrap().push(name);
                        Ok(())
                    }
                };
                match done {
                    Ok(()) => won.lock().unwrap().push(side),
                    // A build or a gc fails if a concurrent one removed a file that it reads.
                    Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
                    Err(error) => panic!("seed {seed}, {side}: {error:?}"),
                }
            }
            .boxed()
        };
        {
            let _clock = runtime.enter();
            interleave(
                seed,
                ["x", "build", "gc", "y", "rollback"]
                    .iter()
                    .map(|side| run(side))
                    .collect(),
            );
        }
        won.into_inner()
            .unwrap()
            .into_iter()
            .for_each(|side| *wins.entry(side).or_default() += 1);
        runtime.block_on(async {
            let snapshot = fixture
                .read()
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            // Generation 2 has folded in "before", so the input of generation 3 replaces it.
            let is_due = |name: &&str| *name != "before" || snapshot.manifest().generation() < 3;
            for name in acknowledged
                .into_inner()
                .unwrap()
                .into_iter()
                .filter(is_due)
            {
                let found = keys(name, 3)
                    .iter()
                    .filter(|key| snapshot.contains(key))
                    .count();
                assert_eq!(
                    found,
                    3,
                    "seed {seed}: {name}, generation {}",
                    snapshot.manifest().generation()
                );
            }
        });
    }
    assert!(
        ["x", "y", "build", "gc", "rollback"]
            .iter()
            .all(|side| wins[side] > 0),
        "{wins:?}"
    );
}
