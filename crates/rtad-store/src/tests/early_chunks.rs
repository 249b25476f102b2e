//! Chunks written before their publication is opened, as by the tasks of a job.

use std::time::Duration;

use super::*;
use crate::write::{Creates, Retention, lock_shared};

/// Writes each chunk twice, concurrently.
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
    stream::iter(puts)
        .buffer_unordered(5)
        .try_collect()
        .await
        .unwrap()
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
        let (manifest, _) = build(publication.generation(), &members);
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
        let (manifest, _) = build(publication.generation(), &members);
        assert_eq!(missing(&fixture, &manifest).await.len(), 16);
        drop(publication);
        // Written again, the chunks exist.
        put_early(&fixture, &chunks[3..]).await;
        assert_eq!(missing(&fixture, &manifest).await.len(), 3);
    }
}

/// A gc removes half-written files, so it must wait for a chunk being written.
#[tokio::test]
async fn shared_lock_excludes_gc() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("live", 50)).await.unwrap();
    let retention = Retention {
        keep: 1,
        min_age: Duration::ZERO,
    };
    let one = lock_shared(&fixture.store().backend, &audience(), Creates::Folder)
        .await
        .unwrap();
    let other = lock_shared(&fixture.store().backend, &audience(), Creates::Folder)
        .await
        .unwrap();
    assert!(
        one.is_some() && other.is_some(),
        "shared locks do not exclude each other"
    );
    drop(one);
    let refused = fixture.writer.collect(&audience(), retention, false).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict { .. })),
        "{refused:?}"
    );
    drop(other);
    fixture
        .writer
        .collect(&audience(), retention, false)
        .await
        .unwrap();
}

/// A task of the job may still be running when its last step begins.
#[tokio::test]
async fn publish_waits_for_a_shared_lock() {
    let fixture = StoreFixture::directory();
    let running_task = lock_shared(&fixture.store().backend, &audience(), Creates::Folder)
        .await
        .unwrap();
    let base = fixture.writer.base(&audience()).await.unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(running_task);
    };
    let (publication, ()) = tokio::join!(fixture.writer.publish(base), release);
    publication.unwrap();
}
