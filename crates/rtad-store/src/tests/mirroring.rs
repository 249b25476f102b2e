//! Mirrors: the same state in another store, resumed, behind, and over another history.

use super::*;
use crate::testing::Key;
use crate::write::{Change, Mirrored};

async fn append(fixture: &StoreFixture, seed: &str) {
    let mut change = Change::default();
    keys(seed, 5).into_iter().for_each(|key| change.add(key));
    change.entomb(keys("erased", 1)[0]);
    let mut ledger = fixture.writer.ledger(&audience()).await.unwrap();
    ledger.append(change).await.unwrap();
}

async fn mirror(from: &StoreFixture, to: &StoreFixture) -> Result<Mirrored, StoreError> {
    to.writer.mirror_from(from.store(), &audience()).await
}

#[tokio::test]
async fn mirror_has_the_same_records_and_files_in_every_store() {
    for mirrored in StoreFixture::all() {
        let source = StoreFixture::directory();
        source.publish(&keys("older", 100)).await.unwrap();
        source.publish(&keys("member", 100)).await.unwrap();
        append(&source, "new").await;
        let done = mirror(&source, &mirrored).await.unwrap();
        assert_eq!((done.sequence, done.generation, done.records), (3, 2, 1));
        let read = mirrored.read().await.unwrap();
        assert!(keys("member", 100).iter().all(|key| read.contains(key)));
        assert!(keys("new", 5).iter().all(|key| read.contains(key)));
        assert!(!read.contains(&keys("erased", 1)[0]));

        // A rollback works there, too.
        assert_eq!(mirrored.generations().await, [1, 2]);

        let again = mirror(&source, &mirrored).await.unwrap();
        assert_eq!((again.records, again.chunks), (0, 0), "{}", mirrored.name());
        append(&source, "newer").await;
        append(&source, "newest").await;
        let more = mirror(&source, &mirrored).await.unwrap();
        assert_eq!((more.sequence, more.records, more.chunks), (5, 2, 0));
        let files = source.files().await;
        for (path, bytes) in mirrored.files().await {
            assert_eq!(files.get(&path), Some(&bytes), "{path}");
        }
    }
}

#[tokio::test]
async fn stopped_mirror_goes_on() {
    let (source, mirrored) = (StoreFixture::directory(), StoreFixture::directory());
    source.publish(&keys("member", 100)).await.unwrap();
    mirror(&source, &mirrored).await.unwrap();
    source.publish(&keys("other", 100)).await.unwrap();

    // Stopped after its first chunks: readers see the state before.
    let newest = source.current().await;
    let (audience, entry) = (audience(), newest.live_entry());
    let manifest = source.store().manifest(&audience, &entry).await.unwrap();
    for entry in &manifest.chunks()[..3] {
        let bytes = source.store().chunk_file(&manifest, entry).await.unwrap();
        let path = chunk_path(&audience, entry);
        mirrored.write(path.as_ref(), bytes).await;
    }
    mirrored.assert_serves(1, &keys("member", 100)).await;
    let done = mirror(&source, &mirrored).await.unwrap();
    assert_eq!(done.chunks, manifest.chunks().len() as u64 - 3);
    mirrored.assert_serves(2, &keys("other", 100)).await;
}

#[tokio::test]
async fn store_with_records_of_its_own_is_refused() {
    let (source, mirrored) = (StoreFixture::directory(), StoreFixture::directory());
    source.publish(&keys("member", 100)).await.unwrap();
    mirror(&source, &mirrored).await.unwrap();
    append(&mirrored, "stray").await;
    for _ in 0..2 {
        let error = mirror(&source, &mirrored).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        append(&source, "new").await;
    }
    assert!(mirror(&StoreFixture::directory(), &mirrored).await.is_err());
}

#[tokio::test]
async fn reader_of_a_mirror_with_a_gap_goes_on_by_the_hint() {
    let (source, mirrored) = (StoreFixture::directory(), StoreFixture::directory());
    source.publish(&keys("member", 100)).await.unwrap();
    mirror(&source, &mirrored).await.unwrap();
    let before = mirrored.store().live(&audience()).await.unwrap().unwrap();
    append(&source, "new").await;
    append(&source, "newer").await;
    source.delete(&record(2)).await;
    mirror(&source, &mirrored).await.unwrap();
    let audience = audience();
    let after = mirrored.store().live_since(&audience, Some(&before));
    assert_eq!(after.await.unwrap().unwrap().current.sequence, 3);
}

/// A merge has replaced the delta of the record in between: a mirror that was stopped after any of
/// its writes has no record whose files are missing.
#[tokio::test]
async fn record_of_the_mirror_has_its_files_at_each_step() {
    let (source, mirrored) = (StoreFixture::directory(), StoreFixture::directory());
    source.publish(&keys("member", 100)).await.unwrap();
    mirror(&source, &mirrored).await.unwrap();
    for seed in ["one", "two", "three"] {
        append(&source, seed).await;
    }
    mirror(&source, &mirrored).await.unwrap();
    // As if it had been stopped after the newest record.
    mirrored.delete(&record(2)).await;
    mirrored.delete(&record(3)).await;
    let read = mirrored.read().await.unwrap();
    assert!(keys("one", 5).iter().all(|key| read.contains(key)));
    let again = mirror(&source, &mirrored).await.unwrap();
    assert_eq!((again.sequence, again.records), (4, 0));
}

#[tokio::test]
async fn signatures_hold_in_the_mirror() {
    let key = Key::new();
    let source = StoreFixture::directory();
    let trusting = source
        .store()
        .clone()
        .with_public_keys([key.public.clone()]);
    let writer = StoreWriter::new(trusting).unwrap();
    let source = StoreFixture {
        folder: source.folder,
        writer: writer.with_signer(Some(Arc::clone(&key) as _)),
    };
    source.publish(&keys("member", 100)).await.unwrap();
    append(&source, "new").await;

    // The mirror needs no key, as it changes nothing.
    let mirrored = StoreFixture::directory();
    mirror(&source, &mirrored).await.unwrap();
    let trusting = mirrored
        .store()
        .clone()
        .with_public_keys([key.public.clone()]);
    StoreFixture::over(trusting).read().await.unwrap();
}

#[tokio::test]
async fn deletion_is_mirrored() {
    let (source, mirrored) = (StoreFixture::directory(), StoreFixture::directory());
    source.publish(&keys("member", 100)).await.unwrap();
    append(&source, "new").await;
    mirror(&source, &mirrored).await.unwrap();
    source.writer.delete(&audience()).await.unwrap();
    mirror(&source, &mirrored).await.unwrap();
    let state = mirrored.current().await;
    assert_eq!(state.state, rtad_core::snapshot::State::Deleted);
    assert!(state.tombstones.is_some());
}

/// A mirror was stopped after its chunks and deltas. A gc of the mirror saw them when they were
/// old; its delete arrives ten seconds after they were renewed, by this mirror or by one that was
/// killed.
#[tokio::test(start_paused = true)]
async fn mirror_waits_for_deletes_of_renewed_files() {
    for (folder, is_killed) in [("/chunks/", false), ("/chunks/", true), ("/deltas/", false)] {
        let source = StoreFixture::memory();
        let (faulty, mirrored) = faulty_fixture();
        source.publish(&keys("old", 100)).await.unwrap();
        mirror(&source, &mirrored).await.unwrap();
        append(&source, "new").await;
        source.publish(&keys("member", 100)).await.unwrap();

        let held = mirrored.files().await;
        let mut copied = source.files().await;
        copied.retain(|path, _| {
            let is_copied = path.contains("/chunks/") || path.contains("/deltas/");
            is_copied && !held.contains_key(path)
        });
        for (path, bytes) in &copied {
            mirrored.write(path, bytes.clone()).await;
        }
        faulty.age(Duration::from_secs(13 * 3600)).await;
        if is_killed {
            for (path, bytes) in &copied {
                mirrored.write(path, bytes.clone()).await;
            }
        }

        let writer = StoreWriter::new(mirrored.store().clone()).unwrap();
        let mut paths = copied.keys();
        let deleted = paths.find(|path| path.contains(folder)).unwrap();
        let late_delete = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            mirrored.delete(deleted).await;
        };
        let name = audience();
        let (done, ()) = tokio::join!(writer.mirror_from(source.store(), &name), late_delete);
        let refused = done.expect_err(&format!("{folder} {is_killed}"));
        assert!(refused.is_transient(), "{refused}");
        mirrored.assert_serves(1, &keys("old", 100)).await;

        mirror(&source, &mirrored).await.unwrap();
        mirrored.assert_serves(2, &keys("member", 100)).await;
    }
}
