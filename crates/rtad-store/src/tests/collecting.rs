//! Garbage collection, alone and during publishes and rollbacks.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::write::{Collected, Retention};
use testkit::faulty_store::interleave;

const NO_MIN_AGE: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);

async fn collect(
    fixture: &StoreFixture,
    keep: usize,
    min_age: Duration,
) -> Result<Collected, StoreError> {
    fixture
        .writer
        .collect(&audience(), Retention { keep, min_age }, false)
        .await
}

/// Publishes one generation for each seed, of a few chunks.
async fn publish_all(fixture: &StoreFixture, seeds: &[&str]) {
    for seed in seeds {
        fixture.publish(&keys(seed, 4)).await.unwrap();
    }
}

fn chunk_names(seeds: &[&str]) -> BTreeSet<String> {
    let entries = seeds
        .iter()
        .flat_map(|seed| build(1, &keys(seed, 4)).0.chunks().to_vec());
    entries
        .map(|entry| chunk_path(&audience(), &entry).to_string())
        .collect()
}

/// Writers that may not delete leave the probes of conditional puts.
#[tokio::test]
async fn gc_removes_old_probes_in_every_store() {
    for fixture in StoreFixture::all()
        .into_iter()
        .filter(|fixture| fixture.folder.is_none())
    {
        publish_all(&fixture, &["a"]).await;
        let before = fixture.files().await;
        let probe = "old_users/CURRENT.probe-0123456789abcdef";
        let others = [
            "old_users/CURRENT.probe-mine",
            "old_users/notes.probe-0123456789abcdef",
        ];
        for path in [&[probe][..], &others].concat() {
            fixture.write(path, b"4".to_vec()).await;
        }
        assert_eq!(collect(&fixture, 2, HOUR).await.unwrap().removed_probes, 0);
        assert!(
            fixture.files().await.contains_key(probe),
            "a probe may be running"
        );
        assert_eq!(
            collect(&fixture, 2, NO_MIN_AGE)
                .await
                .unwrap()
                .removed_probes,
            1
        );
        for path in others {
            fixture.delete(path).await;
        }
        assert!(fixture.files().await == before, "the generation is intact");
    }
}

#[tokio::test]
async fn gc_removes_unneeded_files_in_every_store() {
    for fixture in StoreFixture::all() {
        publish_all(&fixture, &["a", "b", "a", "c", "d"]).await;
        let before = fixture.files().await;
        let retention = Retention {
            keep: 2,
            min_age: NO_MIN_AGE,
        };
        let planned = fixture
            .writer
            .collect(&audience(), retention, true)
            .await
            .unwrap();
        assert_eq!(fixture.files().await, before, "a dry run removes nothing");

        let collected = collect(&fixture, 2, NO_MIN_AGE).await.unwrap();

        assert_eq!(collected, planned);
        assert_eq!(
            (collected.kept_generations, collected.removed_generations),
            (vec![4, 5], vec![1, 2, 3]),
            "{}",
            fixture.name()
        );
        let after = fixture.files().await;
        let mut expected = chunk_names(&["c", "d"]);
        expected.extend(
            ["CURRENT", "manifests/4.json", "manifests/5.json"].map(|p| format!("old_users/{p}")),
        );
        assert_eq!(after.keys().cloned().collect::<BTreeSet<_>>(), expected);
        assert!(after.iter().all(|(path, bytes)| before[path] == *bytes));
        let gone: usize = before
            .iter()
            .filter(|(path, _)| path.ends_with(".chunk") && !after.contains_key(*path))
            .map(|(_, bytes)| bytes.len())
            .sum();
        assert_eq!(
            (collected.removed_bytes, collected.removed_chunks),
            (gone as u64, chunk_names(&["a", "b"]).len() as u64)
        );
        fixture.assert_serves(5, &keys("d", 4)).await;

        // A second gc removes nothing.
        let nothing = Collected {
            kept_generations: vec![4, 5],
            ..Collected::default()
        };
        assert_eq!(collect(&fixture, 2, NO_MIN_AGE).await.unwrap(), nothing);
        // A removed chunk is written again when needed.
        fixture.publish(&keys("a", 4)).await.unwrap();
        fixture.assert_serves(6, &keys("a", 4)).await;
    }
}

#[tokio::test]
async fn gc_keeps_rolled_back_and_young_files_in_every_store() {
    for fixture in StoreFixture::all() {
        publish_all(&fixture, &["a", "b", "c", "d"]).await;
        fixture.roll_back(2).await.unwrap();
        let collected = collect(&fixture, 1, HOUR).await.unwrap();
        assert_eq!(
            (collected.kept_generations, collected.removed_generations),
            (vec![1, 2, 3, 4], vec![])
        );
        let collected = collect(&fixture, 1, NO_MIN_AGE).await.unwrap();
        assert_eq!(
            (collected.kept_generations, collected.removed_generations),
            (vec![2, 3, 4], vec![1])
        );
        fixture.assert_serves(2, &keys("b", 4)).await;
        fixture.roll_back(4).await.unwrap();
        fixture.assert_serves(4, &keys("d", 4)).await;

        // Unnamed chunks of a killed loader are removed when they are old.
        let orphan =
            chunk_path(&audience(), &build(1, &keys("orphan", 1)).0.chunks()[0]).to_string();
        fixture.write(&orphan, vec![1]).await;
        assert_eq!(collect(&fixture, 9, HOUR).await.unwrap().young_chunks, 1);
        assert_eq!(
            collect(&fixture, 9, NO_MIN_AGE)
                .await
                .unwrap()
                .removed_bytes,
            1
        );
        assert!(!fixture.files().await.contains_key(&orphan));
    }
}

#[tokio::test]
async fn gc_refuses_unreadable_manifests_and_keeps_unknown_files() {
    for fixture in StoreFixture::local() {
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert_eq!(chain(&error), "old_users/CURRENT does not exist");
        assert!(fixture.files().await.is_empty());

        publish_all(&fixture, &["a", "b"]).await;
        for name in [
            "chunks/readme",
            "chunks/00.chunk",
            "manifests/notes.txt",
            "deltas/1",
            "chunks/x/y.chunk",
        ] {
            fixture.write(&format!("old_users/{name}"), vec![1]).await;
        }
        let before = fixture.files().await;
        // A missing or unreadable manifest may need any chunk.
        fixture.delete("old_users/manifests/2.json").await;
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert_eq!(chain(&error), "old_users/manifests/2.json does not exist");
        let mut rest = fixture.files().await;
        let manifest = before["old_users/manifests/2.json"].clone();
        rest.insert("old_users/manifests/2.json".to_owned(), manifest);
        assert_eq!(rest, before);
        fixture
            .write("old_users/manifests/2.json", b"{}".to_vec())
            .await;
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert_eq!(error.cause(), "format");
        let manifest = before["old_users/manifests/2.json"].clone();
        fixture.write("old_users/manifests/2.json", manifest).await;
        assert_eq!(fixture.files().await, before);

        collect(&fixture, 1, NO_MIN_AGE).await.unwrap();
        let after = fixture.files().await;
        let others =
            |name: &&String| !name.ends_with("1.json") && !chunk_names(&["a"]).contains(*name);
        assert_eq!(
            after.keys().collect::<Vec<_>>(),
            before.keys().filter(others).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn directory_lock_separates_gc_and_loader() {
    let fixture = StoreFixture::directory();
    publish_all(&fixture, &["a", "b"]).await;
    let base = fixture.writer.base(&audience()).await.unwrap();
    let publication = fixture.writer.publish(base).await.unwrap();
    let before = fixture.files().await;
    let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
    assert_eq!(fixture.files().await, before);
    drop(publication);
    assert_eq!(
        collect(&fixture, 1, NO_MIN_AGE)
            .await
            .unwrap()
            .removed_generations,
        [1]
    );
}

/// Results of the sides of a race.
type Outcomes = Mutex<Vec<(&'static str, Result<u64, StoreError>)>>;

/// Interleaves the requests of all sides in many orders, and checks that the live generation is
/// whole. Returns the successes and failures of each side.
fn race<'a>(
    prepare: impl Fn(&'a str) -> Vec<&'static str>,
    min_age: Duration,
    sides: &[&'static str],
) -> BTreeMap<&'static str, (u32, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut wins = BTreeMap::new();
    for seed in 1..=races() {
        let (faulty, fixture) = faulty_fixture();
        runtime.block_on(async {
            publish_all(&fixture, &prepare("")).await;
            faulty.age().await;
        });
        let outcomes = Outcomes::default();
        let run = |side: &'static str| {
            let (fixture, outcomes) = (&fixture, &outcomes);
            async move {
                let outcome = match side {
                    "gc" | "another gc" => collect(fixture, 1, min_age).await.map(|_| 0),
                    "rollback" => fixture.roll_back(1).await.map(|()| 1),
                    seed => fixture
                        .publish(&keys(seed, 4))
                        .await
                        .map(|(generation, _)| generation),
                };
                outcomes.lock().unwrap().push((side, outcome));
            }
            .boxed()
        };
        {
            // The time-outs of reads need a clock.
            let _clock = runtime.enter();
            interleave(seed, sides.iter().map(|side| run(side)).collect());
        }
        for (side, outcome) in outcomes.into_inner().unwrap() {
            let counts: &mut (u32, u32) = wins.entry(side).or_default();
            match outcome {
                Ok(_) => counts.0 += 1,
                Err(StoreError::Conflict { .. }) => counts.1 += 1,
                // The gc has removed the generation.
                Err(StoreError::NotFound { .. }) if side == "rollback" => counts.1 += 1,
                Err(error) => panic!("seed {seed}, {side}: {error:?}"),
            }
        }
        runtime.block_on(async {
            let snapshot = fixture.read().await;
            let snapshot = snapshot.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            let live = snapshot.manifest();
            // Later publishes and reads succeed.
            assert_eq!(live.generation(), fixture.current().await.generation);
            fixture
                .publish(&keys("c", 4))
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            fixture
                .read()
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        });
    }
    wins
}

#[test]
fn publish_of_old_chunks_races_gc_safely() {
    // "a" was generation 1, which is not live: its chunks exist, and gc is removing them.
    for min_age in [NO_MIN_AGE, HOUR] {
        let wins = race(|_| vec!["a", "b", "c"], min_age, &["a", "gc"]);
        assert_eq!(wins["gc"].0, races() as u32, "{wins:?}");
        assert!(
            wins["a"].0 > 0 && wins["a"].1 > 0,
            "both outcomes were seen: {wins:?}"
        );
    }
}

#[test]
fn publish_of_new_chunks_never_conflicts_with_gc() {
    let wins = race(|_| vec!["a", "b", "c"], HOUR, &["new", "gc"]);
    assert_eq!(
        (wins["new"], wins["gc"]),
        ((races() as u32, 0), (races() as u32, 0))
    );
}

#[test]
fn rollback_races_gc_safely() {
    let wins = race(|_| vec!["a", "b", "c"], HOUR, &["rollback", "gc"]);
    assert!(
        wins["rollback"].0 > 0 && wins["rollback"].1 > 0,
        "both outcomes were seen: {wins:?}"
    );
}

#[test]
fn two_publishes_and_two_gcs_race_safely() {
    let wins = race(
        |_| vec!["a", "b", "c"],
        HOUR,
        &["a", "b", "gc", "another gc"],
    );
    assert!(
        ["a", "b", "gc"]
            .iter()
            .all(|side| wins[side].0 > 0 && wins[side].1 > 0),
        "{wins:?}"
    );
}

#[tokio::test]
async fn killed_gc_blocks_only_publishes_of_its_files() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a", "b", "c"]).await;
    faulty.age().await;
    // Killed after each number of requests, until it finishes.
    for requests in 0.. {
        let (faulty, fixture) = faulty_fixture();
        publish_all(&fixture, &["a", "b", "c"]).await;
        faulty.age().await;
        let mut gc = Box::pin(collect(&fixture, 1, HOUR));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if (0..requests).any(|_| gc.as_mut().poll(&mut context).is_ready()) {
            assert!(requests > 10, "it took {requests} requests");
            break;
        }
        drop(gc);
        let is_marked = fixture.files().await.contains_key("old_users/GC");

        fixture.assert_serves(3, &keys("c", 4)).await;
        fixture.publish(&keys("new", 4)).await.unwrap();
        fixture.assert_serves(4, &keys("new", 4)).await;
        let again = fixture.publish(&keys("a", 4)).await;
        assert_eq!(again.is_err(), is_marked, "after {requests}: {again:?}");
        if is_marked {
            let reason = "a running or killed gc is removing files of this generation; \
                run gc again, then this";
            assert!(again.unwrap_err().to_string().contains(reason));
            let busy = collect(&fixture, 1, HOUR).await.unwrap_err();
            assert!(
                busy.to_string()
                    .contains("another gc is at work, or was killed less than"),
                "{busy}"
            );
            faulty.age().await;
            collect(&fixture, 1, HOUR).await.unwrap();
            assert!(!fixture.files().await.contains_key("old_users/GC"));
        }
        fixture.publish(&keys("a", 4)).await.unwrap();
        fixture.read().await.unwrap();
    }
}

/// A killed publish, or one whose put of `CURRENT` fails, leaves a manifest that was never live.
#[tokio::test]
async fn never_live_generation_takes_no_place_in_a_rollback_or_a_gc() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("first", 50)).await.unwrap();
        let orphan = build(2, &keys("orphan", 50))
            .0
            .over_generation(1)
            .to_bytes();
        fixture.write("old_users/manifests/2.json", orphan).await;
        fixture.publish(&keys("third", 50)).await.unwrap();
        let before = async |generation| {
            fixture
                .store()
                .generation_before(&audience(), generation)
                .await
        };
        assert_eq!(before(3).await.unwrap(), Some(1));
        assert_eq!(before(1).await.unwrap(), None);

        let collected = collect(&fixture, 2, NO_MIN_AGE).await.unwrap();
        // A rollback to 1 reads the manifests above it.
        assert_eq!(collected.kept_generations, [1, 2, 3], "{}", fixture.name());
        assert_eq!(
            collect(&fixture, 1, NO_MIN_AGE)
                .await
                .unwrap()
                .kept_generations,
            [3]
        );
        assert_eq!(before(3).await.unwrap(), None);
    }
}

/// A guess by number would count the generation that was never live, and remove the one that was.
#[tokio::test]
async fn outage_is_no_reason_to_guess_the_generation_before() {
    let (faulty, fixture) = faulty_fixture();
    fixture.publish(&keys("first", 50)).await.unwrap();
    let orphan = build(2, &keys("orphan", 50))
        .0
        .over_generation(1)
        .to_bytes();
    fixture.write("old_users/manifests/2.json", orphan).await;
    fixture.publish(&keys("third", 50)).await.unwrap();
    faulty.limit_reads(Some(("/manifests/3.json", 0)));
    assert!(
        fixture
            .store()
            .generation_before(&audience(), 3)
            .await
            .unwrap_err()
            .is_outage()
    );
}

#[tokio::test]
async fn generation_that_was_rolled_back_from_is_not_returned_to() {
    for fixture in StoreFixture::local() {
        for seed in ["a", "b"] {
            fixture.publish(&keys(seed, 50)).await.unwrap();
        }
        fixture.roll_back(1).await.unwrap();
        fixture.publish(&keys("c", 50)).await.unwrap();
        let before = fixture
            .store()
            .generation_before(&audience(), 3)
            .await
            .unwrap();
        assert_eq!(before, Some(1), "{}", fixture.name());
        // Manifests of writers that do not name it, and unreadable ones, follow by number.
        for manifest in [build(3, &keys("c", 50)).0.to_bytes(), b"{".to_vec()] {
            fixture.write("old_users/manifests/3.json", manifest).await;
            let before = fixture
                .store()
                .generation_before(&audience(), 3)
                .await
                .unwrap();
            assert_eq!(before, Some(2), "{}", fixture.name());
        }
    }
}
