//! Garbage collection, alone and during publishes and rollbacks.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::layout::records_path;
use crate::write::{Change, Collected, MIN_AGE, Retention};
use testkit::faulty_store::interleave;

const NO_MIN_AGE: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

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

/// Writers that may not delete leave the probes of creates.
#[tokio::test]
async fn gc_removes_old_probes_in_every_store() {
    for fixture in StoreFixture::all() {
        publish_all(&fixture, &["a"]).await;
        let before = fixture.files().await;
        let probe = "old_users/records/probe-0123456789abcdef";
        let others = [
            "old_users/records/probe-mine",
            "old_users/notes/probe-0123456789abcdef",
        ];
        for path in [&[probe][..], &others].concat() {
            fixture.write(path, b"1".to_vec()).await;
        }
        collect(&fixture, 2, HOUR).await.unwrap();
        let is_there = fixture.files().await.contains_key(probe);
        assert!(is_there, "a probe may be running");
        collect(&fixture, 2, NO_MIN_AGE).await.unwrap();
        for path in others {
            fixture.delete(path).await;
        }
        assert_eq!(fixture.files().await, before, "{}", fixture.name());
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
        for generation in [4, 5] {
            expected.insert(fixture.manifest_file(generation).await);
        }
        let is_content = |path: &&String| !path.contains("/records/") && !path.ends_with("LATEST");
        let left: BTreeSet<_> = after.keys().filter(is_content).cloned().collect();
        assert_eq!(left, expected);
        assert!(left.iter().all(|path| before[path] == after[path]));
        // The record that names fewer generations is no publish.
        let current = fixture.current().await;
        assert_eq!((current.sequence, current.published_sequence()), (6, 5));
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
        assert_eq!(fixture.current().await.sequence, 6);
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

/// A mirror with records of its own would be refused.
#[tokio::test]
async fn gc_that_keeps_all_named_generations_creates_no_record() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a"]).await;
    faulty.age(2 * MIN_AGE).await;
    publish_all(&fixture, &["b"]).await;
    fixture.roll_back(1).await.unwrap();
    publish_all(&fixture, &["c"]).await;
    // Generation 2 is young. The base of generation 3 is no longer named.
    let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
    assert_eq!(collected.kept_generations, [2, 3]);

    faulty.age(2 * MIN_AGE).await;
    let before = fixture.current().await.sequence;
    let collected = collect(&fixture, 100, MIN_AGE).await.unwrap();
    assert_eq!(collected.kept_generations, [2, 3]);
    assert_eq!(fixture.current().await.sequence, before);
    let collected = collect(&fixture, 64, MIN_AGE).await.unwrap();
    assert_eq!(collected.removed_generations, [2]);
}

#[tokio::test]
async fn gc_refuses_unreadable_manifests_and_keeps_unknown_files() {
    for fixture in StoreFixture::local() {
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert_eq!(chain(&error), format!("{} does not exist", record(1)));
        assert!(fixture.files().await.is_empty());

        publish_all(&fixture, &["a", "b"]).await;
        let unknown = [
            "chunks/readme",
            "chunks/00.chunk",
            "manifests/notes.txt",
            "manifests/1.json",
            "deltas/1",
            "chunks/x/y.chunk",
            "records/1.json",
            "records/notes",
            "LATEST.old",
        ];
        for name in unknown {
            fixture.write(&format!("old_users/{name}"), vec![1]).await;
        }
        let before = fixture.files().await;
        // A missing or unreadable manifest may need any chunk.
        let manifest = fixture.manifest_file(2).await;
        fixture.delete(&manifest).await;
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert_eq!(chain(&error), format!("{manifest} does not exist"));
        fixture.write(&manifest, b"{}".to_vec()).await;
        let error = collect(&fixture, 1, NO_MIN_AGE).await.unwrap_err();
        assert!(matches!(error, StoreError::Manifest { .. }), "{error:?}");
        fixture.write(&manifest, before[&manifest].clone()).await;
        assert_eq!(fixture.files().await, before, "nothing was changed");

        let collected = collect(&fixture, 1, NO_MIN_AGE).await.unwrap();
        assert_eq!(collected.removed_generations, [1]);
        let after = fixture.files().await;
        for name in unknown {
            assert!(after.contains_key(&format!("old_users/{name}")), "{name}");
        }
        let removed = before.len() + 1 - after.len();
        assert_eq!(removed, 1 + chunk_names(&["a"]).len());
    }
}

/// A reader goes forward from a record that it has read, up to a week before.
#[tokio::test]
async fn gc_removes_records_older_than_a_week_but_never_the_newest() {
    let fixture = StoreFixture::directory();
    publish_all(&fixture, &["a", "b", "c", "d"]).await;
    let before = fixture.store().live(&audience()).await.unwrap();
    let records = async || {
        let listed = fixture.store().records(&audience()).list().await.unwrap();
        listed
            .into_iter()
            .map(|(number, _)| number)
            .collect::<Vec<u64>>()
    };
    let path = |number| {
        fixture
            .audience_folder()
            .parent()
            .unwrap()
            .join(record(number))
    };
    make_older(&path(1), WEEK);
    make_older(&path(2), WEEK - HOUR);
    // A copy of a store may have other times.
    make_older(&path(3), 2 * WEEK);
    make_older(&path(4), 2 * WEEK);
    fixture.write("old_users/LATEST", b"1\n".to_vec()).await;

    let collected = collect(&fixture, 9, MIN_AGE).await.unwrap();
    assert_eq!(collected.removed_records, 1);
    assert_eq!(records().await, [2, 3, 4]);
    let hint = || std::fs::read(fixture.audience_folder().join("LATEST")).unwrap();
    assert_eq!(hint(), b"4\n", "it is repaired");

    make_older(&path(2), HOUR);
    let retention = Retention {
        keep: 9,
        min_age: MIN_AGE,
    };
    let planned = fixture.writer.collect(&audience(), retention, true).await;
    assert_eq!(planned.unwrap().removed_records, 2);
    assert_eq!(
        collect(&fixture, 9, MIN_AGE).await.unwrap().removed_records,
        2
    );
    assert_eq!(records().await, [4]);
    fixture.assert_serves(4, &keys("d", 4)).await;
    let live = fixture
        .store()
        .live_since(&audience(), before.as_ref())
        .await;
    assert_eq!(live.unwrap().unwrap().current.sequence, 4);
    fixture.publish(&keys("e", 4)).await.unwrap();
    assert_eq!(records().await, [4, 5]);
    let folder = records_path(&crate::layout::audience_path(&audience()));
    assert_eq!(
        fixture.store().backend.list(&folder).await.unwrap().len(),
        2
    );
}

/// The number after its own is free again, but all readers are further.
#[tokio::test]
async fn writer_that_slept_does_not_follow_a_record_that_is_gone() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a"]).await;
    let mut sleeper = fixture.writer.ledger(&audience()).await.unwrap();
    publish_all(&fixture, &["b", "c"]).await;
    faulty.age(2 * WEEK).await;
    sleeper.age(2 * WEEK);
    collect(&fixture, 1, MIN_AGE).await.unwrap();
    let files = fixture.files().await;
    assert!(!files.contains_key(&record(1)) && !files.contains_key(&record(2)));

    let mut change = Change::default();
    change.add(keys("late", 1)[0]);
    let refused = sleeper.append(change.clone()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Conflict { .. }),
        "{refused:?}"
    );
    assert!(!fixture.files().await.contains_key(&record(2)));
    assert!(sleeper.refresh().await.unwrap());
    sleeper.append(change).await.unwrap();
    assert!(fixture.read().await.unwrap().contains(&keys("late", 1)[0]));
}

/// Of this host's clock and the store's, one may be wrong.
#[tokio::test]
async fn ages_are_by_the_clock_of_the_store() {
    let (faulty, fixture) = faulty_fixture();
    faulty.set_clock_ahead(30 * HOUR);
    publish_all(&fixture, &["a", "b"]).await;
    faulty.age(23 * HOUR).await;
    let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
    assert_eq!(
        (collected.removed_chunks, collected.kept_generations.len()),
        (0, 2)
    );
    faulty.age(2 * HOUR).await;
    let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
    assert_eq!(collected.removed_chunks, chunk_names(&["a"]).len() as u64);
}

#[tokio::test]
async fn generation_that_a_gc_dropped_cannot_be_returned_to() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a", "b", "c"]).await;
    faulty.age(2 * MIN_AGE).await;
    // The gc comes between the beginning of the rollback and its record.
    let base = fixture.writer.base(&audience()).await.unwrap();
    let rollback = fixture.writer.publish(base.clone()).await.unwrap();
    collect(&fixture, 2, MIN_AGE).await.unwrap();
    let refused = rollback.roll_back(1).await.unwrap_err();
    assert_eq!(refused.cause(), "not_found");

    // Its files are still there.
    publish_all(&fixture, &["d"]).await;
    let files = fixture.files().await;
    let base = fixture.writer.base(&audience()).await.unwrap();
    let rollback = fixture.writer.publish(base).await.unwrap();
    faulty.age(2 * MIN_AGE).await;
    collect(&fixture, 1, MIN_AGE).await.unwrap();
    for (path, bytes) in files {
        fixture.write(&path, bytes).await;
    }
    fixture.write("old_users/LATEST", Vec::new()).await;
    let refused = rollback.roll_back(3).await.unwrap_err();
    assert!(refused.is_transient(), "{refused:?}");
    let refused = fixture.roll_back(3).await.unwrap_err();
    assert_eq!(chain(&refused), "old_users generation 3 does not exist");
    fixture.assert_serves(4, &keys("d", 4)).await;
}

/// A delta that is folded into a generation, and merged into another before that is live.
#[tokio::test]
async fn publish_relies_on_no_delta_that_a_gc_may_remove() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a"]).await;
    let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
    let mut change = Change::default();
    change.add(keys("old", 1)[0]);
    ledger.append(change).await.unwrap();
    faulty.age(2 * MIN_AGE).await;

    let runtime_waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(runtime_waker);
    let mut outcomes = BTreeSet::new();
    for requests in 0..40 {
        let base = fixture.writer.base(&audience()).await.unwrap();
        let folded = base.folded().unwrap();
        let publication = fixture.writer.publish(base).await.unwrap();
        let members = keys("a", 4);
        put_chunks(&publication, &members).await.unwrap();
        let mut commit = Box::pin(publication.commit(build(1, &members).0.with_folded(folded)));
        if (0..requests).any(|_| commit.as_mut().poll(&mut context).is_ready()) {
            outcomes.insert("committed at once");
            break;
        }
        // An append merges the old delta, and a gc removes it.
        let mut change = Change::default();
        change.add(keys(&format!("new {requests}"), 1)[0]);
        ledger.refresh().await.unwrap();
        ledger.append(change).await.unwrap();
        collect(&fixture, 9, MIN_AGE).await.unwrap();
        let committed = commit.await;
        collect(&fixture, 9, MIN_AGE).await.unwrap();
        match committed {
            Ok(published) => {
                outcomes.insert("committed");
                let files = fixture.files().await;
                for delta in published.manifest.folded_deltas() {
                    let path = crate::layout::delta_path(&audience(), delta);
                    assert!(
                        files.contains_key(path.as_ref()),
                        "after {requests} requests"
                    );
                }
            }
            Err(error) => {
                outcomes.insert("refused");
                assert!(error.is_transient(), "{error:?}");
            }
        }
        faulty.age(2 * MIN_AGE).await;
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

/// A publish that fails with its record leaves a manifest and chunks, for a day.
#[tokio::test]
async fn files_of_a_failed_publish_are_removed_after_a_day() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a"]).await;
    // That of the live generation is read before, the new one after it is written.
    faulty.limit_reads(Some(("/manifests/", 1)));
    fixture.publish(&keys("b", 4)).await.unwrap_err();
    faulty.limit_reads(None);
    let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
    assert_eq!(
        (collected.removed_manifests, collected.removed_chunks),
        (0, 0)
    );
    assert!(collected.young_chunks > 0);

    faulty.age(MIN_AGE).await;
    let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
    assert_eq!(collected.removed_manifests, 1);
    assert_eq!(collected.removed_chunks, chunk_names(&["b"]).len() as u64);
    fixture.assert_serves(1, &keys("a", 4)).await;
}

/// Results of the sides of a race.
type Outcomes = Mutex<Vec<(&'static str, Result<u64, StoreError>)>>;

/// Interleaves the requests of all sides in many orders, and checks that the live generation is
/// whole. Returns the successes and failures of each side.
fn race(sides: &[&'static str]) -> BTreeMap<&'static str, (u32, u32)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut wins = BTreeMap::new();
    for seed in 1..=races() {
        let (faulty, fixture) = faulty_fixture();
        runtime.block_on(async {
            publish_all(&fixture, &["a", "b", "c"]).await;
            faulty.age(2 * MIN_AGE).await;
        });
        let outcomes = Outcomes::default();
        let run = |side: &'static str| {
            let (fixture, outcomes) = (&fixture, &outcomes);
            async move {
                let outcome = match side {
                    "gc" | "another gc" => collect(fixture, 1, MIN_AGE).await.map(|_| 0),
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
    let wins = race(&["a", "gc"]);
    let all = (races() as u32, 0);
    assert_eq!((wins["a"], wins["gc"]), (all, all));
}

#[test]
fn publish_of_new_chunks_never_conflicts_with_gc() {
    let wins = race(&["new", "gc"]);
    let all = (races() as u32, 0);
    assert_eq!((wins["new"], wins["gc"]), (all, all));
}

#[test]
fn rollback_races_gc_safely() {
    let wins = race(&["rollback", "gc"]);
    assert!(
        wins["rollback"].0 > 0 && wins["rollback"].1 > 0,
        "both outcomes were seen: {wins:?}"
    );
    assert_eq!(wins["gc"], (races() as u32, 0));
}

#[test]
fn two_publishes_and_two_gcs_race_safely() {
    let wins = race(&["a", "b", "gc", "another gc"]);
    for side in ["a", "b"] {
        assert!(wins[side].0 > 0 && wins[side].1 > 0, "{wins:?}");
    }
    for side in ["gc", "another gc"] {
        assert_eq!(wins[side], (races() as u32, 0));
    }
}

#[tokio::test]
async fn killed_gc_blocks_nothing() {
    // Killed after each number of requests, until it finishes.
    for requests in 0.. {
        let (faulty, fixture) = faulty_fixture();
        publish_all(&fixture, &["a", "b", "c"]).await;
        faulty.age(2 * MIN_AGE).await;
        let mut gc = Box::pin(collect(&fixture, 1, MIN_AGE));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if (0..requests).any(|_| gc.as_mut().poll(&mut context).is_ready()) {
            assert!(requests > 10, "it took {requests} requests");
            break;
        }
        drop(gc);

        fixture.assert_serves(3, &keys("c", 4)).await;
        fixture.publish(&keys("new", 4)).await.unwrap();
        fixture.publish(&keys("a", 4)).await.unwrap();
        fixture.assert_serves(5, &keys("a", 4)).await;
        let collected = collect(&fixture, 1, MIN_AGE).await.unwrap();
        assert!(!collected.kept_generations.contains(&1), "{collected:?}");
        fixture.assert_serves(5, &keys("a", 4)).await;
    }
}

/// A guess by number would count the generation that was rolled back from, and remove the one
/// before.
#[tokio::test]
async fn outage_is_no_reason_to_guess_the_generation_before() {
    let (faulty, fixture) = faulty_fixture();
    publish_all(&fixture, &["a", "b"]).await;
    fixture.roll_back(1).await.unwrap();
    publish_all(&fixture, &["c"]).await;
    let current = fixture.current().await;
    faulty.limit_reads(Some(("/manifests/3-", 0)));
    let before = fixture
        .store()
        .generation_before(&audience(), &current, 3)
        .await;
    assert!(before.unwrap_err().is_outage());
    assert!(
        collect(&fixture, 2, NO_MIN_AGE)
            .await
            .unwrap_err()
            .is_outage()
    );
    assert_eq!(fixture.current().await, current);
}

#[tokio::test]
async fn generation_that_was_rolled_back_from_is_not_returned_to() {
    for fixture in StoreFixture::local() {
        publish_all(&fixture, &["a", "b"]).await;
        fixture.roll_back(1).await.unwrap();
        publish_all(&fixture, &["c"]).await;
        let current = fixture.current().await;
        let before = async |generation| {
            let store = fixture.store();
            let before = store
                .generation_before(&audience(), &current, generation)
                .await;
            before.unwrap().map(|entry| entry.generation)
        };
        assert_eq!(before(3).await, Some(1), "{}", fixture.name());
        assert_eq!(before(1).await, None);
        // A rollback to 1 reads the manifests above it.
        let collected = collect(&fixture, 2, NO_MIN_AGE).await.unwrap();
        assert_eq!(collected.kept_generations, [1, 2, 3]);
        // Unreadable ones follow by number.
        let manifest = fixture.manifest_file(3).await;
        fixture.write(&manifest, b"{".to_vec()).await;
        assert_eq!(before(3).await, Some(2), "{}", fixture.name());
    }
}
