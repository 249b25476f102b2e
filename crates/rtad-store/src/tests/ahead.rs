//! Chunks that are put before their publication is opened, as the tasks of a job do it.

use std::time::Duration;

use super::*;
use crate::write::{Retention, lock_shared};

/// By several at once, each chunk by two of them.
async fn put_ahead(fixture: &StoreFixture, chunks: &[BuiltChunk]) -> Vec<bool> {
    let copies = chunks.iter().chain(chunks.iter().rev()).map(|chunk| BuiltChunk {
        entry: chunk.entry.clone(),
        bytes: chunk.bytes.clone(),
        stats: chunk.stats,
    });
    let audience = audience();
    let puts: Vec<_> =
        copies.map(|chunk| fixture.writer.put_chunk_ahead(&audience, chunk)).collect();
    stream::iter(puts).buffer_unordered(5).try_collect().await.unwrap()
}

#[tokio::test]
async fn what_was_put_ahead_is_published_later() {
    for fixture in StoreFixture::all() {
        let members = keys("member", 300);
        let base = fixture.writer.base(&audience()).await.unwrap();
        let (_, chunks) = build(1, &members);
        let written = put_ahead(&fixture, &chunks).await;
        assert_eq!(written.len(), 32);
        assert!(written.iter().filter(|written| **written).count() >= 16, "{written:?}");
        assert!(
            fixture.store().live(&audience()).await.unwrap().is_none(),
            "nothing is live by that"
        );

        // By what another process has noted.
        let base = Base::new(audience(), base.current().cloned());
        let publication = fixture.writer.publish(base.clone()).await.unwrap();
        let (manifest, _) = build(publication.generation(), &members);
        assert!(publication.missing(manifest.chunks()).await.unwrap().is_empty());
        publication.commit(&manifest).await.unwrap();
        fixture.assert_serves(1, &members).await;
        let late = fixture.writer.publish(base).await;
        assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
        // What is live is not written again.
        let again = put_ahead(&fixture, &chunks).await;
        assert!(again.iter().all(|written| !written), "{again:?}");
    }
}

#[tokio::test]
async fn what_a_gc_has_removed_is_missed() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("live", 50)).await.unwrap();
        let base = fixture.writer.base(&audience()).await.unwrap();
        let members = keys("member", 300);
        let (_, chunks) = build(1, &members);
        put_ahead(&fixture, &chunks).await;
        let hour = Retention { keep: 1, min_age: Duration::from_secs(3600) };
        let collected = fixture.writer.collect(&audience(), hour, false).await.unwrap();
        assert_eq!((collected.removed_chunks, collected.young_chunks), (0, 16));

        let at_once = Retention { keep: 1, min_age: Duration::ZERO };
        assert_eq!(
            fixture.writer.collect(&audience(), at_once, false).await.unwrap().removed_chunks,
            16
        );
        let publication = fixture.writer.publish(base).await.unwrap();
        let (manifest, _) = build(publication.generation(), &members);
        assert_eq!(publication.missing(manifest.chunks()).await.unwrap().len(), 16);
        drop(publication);
        // Put again, it is there.
        put_ahead(&fixture, &chunks[3..]).await;
        let base = fixture.writer.base(&audience()).await.unwrap();
        let publication = fixture.writer.publish(base).await.unwrap();
        assert_eq!(publication.missing(manifest.chunks()).await.unwrap().len(), 3);
    }
}

/// A gc sweeps what is half-written, so it must not come in between.
#[tokio::test]
async fn in_a_directory_a_chunk_under_way_keeps_a_gc_out() {
    let fixture = StoreFixture::directory();
    fixture.publish(&keys("live", 50)).await.unwrap();
    let retention = Retention { keep: 1, min_age: Duration::ZERO };
    let one = lock_shared(&fixture.store().backend, &audience()).await.unwrap();
    let other = lock_shared(&fixture.store().backend, &audience()).await.unwrap();
    assert!(one.is_some() && other.is_some(), "they keep out nobody of their own");
    drop(one);
    let refused = fixture.writer.collect(&audience(), retention, false).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    drop(other);
    fixture.writer.collect(&audience(), retention, false).await.unwrap();
}

/// A job's last step comes when its chunk steps have ended, but for one that was thought dead.
#[tokio::test]
async fn in_a_directory_a_publish_waits_for_a_chunk_under_way() {
    let fixture = StoreFixture::directory();
    let straggler = lock_shared(&fixture.store().backend, &audience()).await.unwrap();
    let base = fixture.writer.base(&audience()).await.unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(straggler);
    };
    let (publication, ()) = tokio::join!(fixture.writer.publish(base), release);
    publication.unwrap();
}
