//! Chunks written before their publication is opened, as by the tasks of a job.

use std::time::Duration;

use super::*;
use crate::write::{MIN_AGE, Retention};

/// Writes each chunk twice, concurrently. Returns whether each was written.
async fn put_early(fixture: &StoreFixture, chunks: &[BuiltChunk]) -> Vec<bool> {
    let copies = chunks
        .iter()
        .chain(chunks.iter().rev())
        .map(|chunk| BuiltChunk {
            entry: chunk.entry.clone(),
            bytes: chunk.bytes.clone(),
            stats: chunk.stats,
        });
    let audience = audience();
    let puts: Vec<_> = copies
        .map(|chunk| fixture.writer.put_chunk_ahead(&audience, chunk))
        .collect();
    let put: Vec<_> = stream::iter(puts)
        .buffer_unordered(5)
        .try_collect()
        .await
        .unwrap();
    put.into_iter().map(|put| put.is_written).collect()
}

/// The chunks of a manifest that the store does not hold.
async fn missing<'m>(fixture: &StoreFixture, manifest: &'m Manifest) -> Vec<&'m ChunkEntry> {
    fixture
        .store()
        .missing_chunks(&audience(), manifest.chunks())
        .await
        .unwrap()
}

#[tokio::test]
async fn early_chunks_are_published_later_in_every_store() {
    for fixture in StoreFixture::all() {
        let members = keys("member", 300);
        let base = fixture.writer.base(&audience()).await.unwrap();
        let (_, chunks) = build(1, &members);
        let written = put_early(&fixture, &chunks).await;
        assert_eq!(written.len(), 32);
        assert!(
            written.iter().filter(|written| **written).count() >= 16,
            "{written:?}"
        );
        assert!(
            fixture.store().live(&audience()).await.unwrap().is_none(),
            "chunks alone are not live"
        );

        // The base is from another process.
        let base = Base::new(audience(), base.current().cloned());
        let publication = fixture.writer.publish(base.clone()).await.unwrap();
        let (manifest, _) = build(1, &members);
        assert!(missing(&fixture, &manifest).await.is_empty());
        publication.commit(manifest).await.unwrap();
        fixture.assert_serves(1, &members).await;
        let late = fixture.writer.publish(base).await;
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        // Live chunks are not rewritten.
        let again = put_early(&fixture, &chunks).await;
        assert!(again.iter().all(|written| !written), "{again:?}");
    }
}

#[tokio::test]
async fn chunks_removed_by_gc_are_reported_missing_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("live", 50)).await.unwrap();
        let base = fixture.writer.base(&audience()).await.unwrap();
        let members = keys("member", 300);
        let (_, chunks) = build(1, &members);
        put_early(&fixture, &chunks).await;
        let hour = Retention {
            keep: 1,
            min_age: Duration::from_secs(3600),
        };
        let collected = fixture
            .writer
            .collect(&audience(), hour, false)
            .await
            .unwrap();
        assert_eq!((collected.removed_chunks, collected.young_chunks), (0, 16));

        let at_once = Retention {
            keep: 1,
            min_age: Duration::ZERO,
        };
        assert_eq!(
            fixture
                .writer
                .collect(&audience(), at_once, false)
                .await
                .unwrap()
                .removed_chunks,
            16
        );
        let publication = fixture.writer.publish(base).await.unwrap();
        let (manifest, _) = build(1, &members);
        assert_eq!(missing(&fixture, &manifest).await.len(), 16);
        drop(publication);
        // Written again, the chunks exist.
        put_early(&fixture, &chunks[3..]).await;
        assert_eq!(missing(&fixture, &manifest).await.len(), 3);
    }
}

const HOUR: Duration = Duration::from_secs(3600);

/// A chunk that a gc may soon remove is written again, one of the live generation is not.
#[tokio::test]
async fn chunks_older_than_half_of_the_least_age_are_renewed() {
    let (faulty, fixture) = faulty_fixture();
    let [old, live, early] = ["old", "live", "early"].map(|seed| keys(seed, 300));
    fixture.publish(&old).await.unwrap();
    fixture.publish(&live).await.unwrap();
    put_early(&fixture, &build(1, &early).1).await;

    faulty.age(11 * HOUR).await;
    for members in [&old, &live, &early] {
        let written = put_early(&fixture, &build(1, members).1).await;
        assert!(!written.contains(&true));
    }
    faulty.age(2 * HOUR).await;
    for members in [&old, &early] {
        let written = put_early(&fixture, &build(1, members).1).await;
        assert!(written.iter().filter(|written| **written).count() >= 16);
    }
    faulty.age(MIN_AGE).await;
    let written = put_early(&fixture, &build(1, &live).1).await;
    assert!(!written.contains(&true));
    assert_eq!(fixture.publish(&old).await.unwrap(), (3, 16));
    fixture.assert_serves(3, &old).await;
}

/// A gc that runs beside the publish may be about to remove them.
#[tokio::test]
async fn publish_refuses_chunks_that_a_gc_may_soon_remove() {
    let (faulty, fixture) = faulty_fixture();
    let live = keys("live", 50);
    fixture.publish(&live).await.unwrap();
    let early = keys("early", 50);
    let base = fixture.writer.base(&audience()).await.unwrap();
    put_early(&fixture, &build(1, &early).1).await;
    // The clock of the store counts, not that of this host.
    faulty.set_clock_ahead(20 * HOUR);
    faulty.age(24 * HOUR).await;
    let publication = fixture.writer.publish(base).await.unwrap();
    let refused = publication.commit(build(1, &early).0).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    assert!(
        refused.to_string().contains("may remove, a chunk"),
        "{refused}"
    );
    // Those of the live generation are as old, and stay.
    assert_eq!(fixture.publish(&live).await.unwrap(), (2, 0));
    fixture.assert_serves(2, &live).await;
}

/// A build that is run again, on a host whose clock is slow.
#[tokio::test]
async fn chunk_that_is_old_by_the_clock_of_the_store_is_written_again() {
    let (faulty, fixture) = faulty_fixture();
    faulty.set_clock_ahead(20 * HOUR);
    let early = keys("early", 50);
    put_early(&fixture, &build(1, &early).1).await;
    faulty.age(24 * HOUR).await;

    let restarted = StoreWriter::new(fixture.store().clone()).unwrap();
    for chunk in build(1, &early).1 {
        let put = restarted.put_chunk_ahead(&audience(), chunk).await.unwrap();
        assert!(put.is_written);
    }
    assert_eq!(fixture.publish(&early).await.unwrap().0, 1);
    fixture.assert_serves(1, &early).await;
}

/// Who renews an old chunk, before the publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewedBy {
    Task,
    /// The report of the first try is lost.
    RetriedTask,
    KilledBuild,
}

/// A gc saw the chunk when it was old; its delete arrives ten seconds after the chunk was renewed.
#[tokio::test(start_paused = true)]
async fn publish_waits_for_deletes_of_renewed_chunks() {
    for renewed_by in [
        RenewedBy::Task,
        RenewedBy::RetriedTask,
        RenewedBy::KilledBuild,
    ] {
        let (faulty, fixture) = faulty_fixture();
        let [live, early] = ["live", "early"].map(|seed| keys(seed, 50));
        fixture.publish(&live).await.unwrap();
        put_early(&fixture, &build(1, &early).1).await;
        faulty.age(13 * HOUR).await;

        let writer = StoreWriter::new(fixture.store().clone()).unwrap();
        let base = writer.base(&audience()).await.unwrap();
        let (manifest, chunks) = build(1, &early);
        let deleted = chunk_path(&audience(), &chunks[0].entry);
        if renewed_by != RenewedBy::Task {
            put_early(&fixture, &build(1, &early).1).await;
        }
        let publication = writer.publish(base).await.unwrap();
        for chunk in chunks {
            if renewed_by == RenewedBy::KilledBuild {
                publication.put_chunk(chunk).await.unwrap();
                continue;
            }
            let put = writer.put_chunk_ahead(&audience(), chunk).await.unwrap();
            if put.is_renewed {
                publication.expect_deletes();
            }
        }

        let late_delete = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            fixture.delete(deleted.as_ref()).await;
        };
        let (committed, ()) = tokio::join!(publication.commit(manifest), late_delete);
        let refused = committed.expect_err(&format!("{renewed_by:?}"));
        assert!(refused.is_transient(), "{refused}");
        fixture.assert_serves(1, &live).await;
    }
}

/// The chunks of a new audience wait for nothing.
#[tokio::test(start_paused = true)]
async fn publish_of_new_chunks_does_not_wait() {
    let (_, fixture) = faulty_fixture();
    let writer = StoreWriter::new(fixture.store().clone()).unwrap();
    let before = tokio::time::Instant::now();
    for seed in ["one", "other"] {
        let base = writer.base(&audience()).await.unwrap();
        let publication = writer.publish(base).await.unwrap();
        let (manifest, chunks) = build(1, &keys(seed, 50));
        for chunk in chunks {
            let put = writer.put_chunk_ahead(&audience(), chunk).await.unwrap();
            assert!(put.is_written && !put.is_renewed);
        }
        publication.commit(manifest).await.unwrap();
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}
