//! Records of a folder: finding the newest, and many writers at once.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use testkit::faulty_store::{FaultyStore, LostAnswer};
use tokio::sync::OnceCell;

use super::*;
use crate::backend::{Access, Backend};

fn folder() -> Path {
    Path::from("folder")
}

/// A store behind an HTTP server: read-only, without listing.
fn over_http(objects: Arc<dyn ObjectStore>) -> Store {
    Store::new(Backend::Objects {
        objects,
        url: "https://host/".to_owned(),
        access: Access::Get,
        conditions: Arc::new(OnceCell::new()),
    })
}

async fn create_all(store: &Store, numbers: std::ops::RangeInclusive<u64>) {
    let records = Records::new(store, folder());
    for number in numbers {
        let bytes = number.to_string().into_bytes();
        assert!(records.create(number, bytes).await.unwrap());
    }
}

async fn put_hint(store: &Store, hint: &'static str) {
    let path = hint_path(&folder());
    let objects = store.objects(&path).await.unwrap();
    objects.put(&path, PutPayload::from(hint)).await.unwrap();
}

async fn remove(store: &Store, path: &Path) {
    store
        .objects(path)
        .await
        .unwrap()
        .delete(path)
        .await
        .unwrap();
}

async fn newest(store: &Store) -> Option<u64> {
    let newest = Records::new(store, folder()).newest().await.unwrap();
    newest.map(|newest| newest.number)
}

#[tokio::test]
async fn newest_record_is_found_whatever_the_hint_says() {
    let directory = tempfile::tempdir().unwrap();
    let directory = Store::open(directory.path().to_str().unwrap()).unwrap();
    for store in [Store::in_memory(), directory] {
        assert_eq!(newest(&store).await, None);
        create_all(&store, 1..=12).await;
        assert_eq!(newest(&store).await, Some(12));
        let records = Records::new(&store, folder());
        for number in 1..=3 {
            remove(&store, &records.path(number)).await;
        }
        let garbage = ["", "x", "-1", "5.0", "0", "18446744073709551616", "5 6\n"];
        let long = "00000000000000000000000000000000000000000000000005";
        // Old, of a record that a gc has removed, or no number.
        for hint in ["5\n", "12", "3\n", long].into_iter().chain(garbage) {
            put_hint(&store, hint).await;
            assert_eq!(newest(&store).await, Some(12), "{hint:?}");
        }

        // Of a record that was created and is lost: nobody goes on from an older one.
        for hint in ["13\n", "18446744073709551615\n"] {
            put_hint(&store, hint).await;
            let error = records.newest().await.unwrap_err();
            assert!(matches!(error, StoreError::LostRecord { .. }), "{error}");
        }
        remove(&store, &hint_path(&folder())).await;
        assert_eq!(newest(&store).await, Some(12));
        // The next record repairs it.
        create_all(&store, 13..=13).await;
        assert_eq!(records.hint().await.unwrap(), Some(13));
    }
}

#[tokio::test]
async fn reader_far_behind_jumps_by_the_hint() {
    let faulty = Arc::new(FaultyStore::default());
    let store = Store::over(Arc::clone(&faulty) as _, "memory");
    create_all(&store, 1..=300).await;
    let records = Records::new(&store, folder());
    let reads = |limit| faulty.limit_reads(Some(("/records/", limit)));
    reads(3);
    assert_eq!(records.newer_than(1).await.unwrap().unwrap().number, 300);
    // Without news, and with one that the hint does not have yet.
    reads(1);
    assert_eq!(records.newer_than(300).await.unwrap(), None);
    put_hint(&store, "299\n").await;
    reads(2);
    assert_eq!(records.newer_than(299).await.unwrap().unwrap().number, 300);
    reads(3);
    assert_eq!(newest(&store).await, Some(300));
}

#[tokio::test]
async fn store_without_listing_is_read_by_the_hint_or_from_the_first_record() {
    let objects = Arc::new(InMemory::new());
    let (writable, store) = (
        Store::over(Arc::clone(&objects) as _, "memory"),
        over_http(objects),
    );
    assert_eq!(newest(&store).await, None);
    create_all(&writable, 1..=7).await;
    assert_eq!(newest(&store).await, Some(7));
    put_hint(&writable, "4\n").await;
    assert_eq!(newest(&store).await, Some(7));
    remove(&writable, &hint_path(&folder())).await;
    assert_eq!(newest(&store).await, Some(7));

    let records = Records::new(&store, folder());
    put_hint(&writable, "2\n").await;
    remove(&writable, &records.path(2)).await;
    let error = records.newest().await.unwrap_err();
    let path = records.path(2).to_string();
    assert!(matches!(&error, StoreError::LostRecord { path: found, .. } if *found == path));
    assert!(matches!(
        records.list().await,
        Err(StoreError::NoListing { .. })
    ));
    let error = records.create(8, b"8".to_vec()).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    // A reader that has a number needs no hint.
    assert_eq!(records.newer_than(3).await.unwrap().unwrap().number, 7);
}

#[tokio::test]
async fn too_large_records_are_refused_and_other_files_ignored() {
    let store = Store::in_memory();
    create_all(&store, 1..=1).await;
    let records = Records::new(&store, folder());
    let put = async |name: &str, size: u64| {
        let path = records_path(&folder()).join(name);
        let objects = store.objects(&path).await.unwrap();
        let bytes = vec![b'x'; usize::try_from(size).unwrap()];
        objects.put(&path, PutPayload::from(bytes)).await.unwrap();
    };
    for name in [
        "2.json",
        "probe-0123456789abcdef",
        "00000000000000000002.json.bak",
    ] {
        put(name, 1).await;
    }
    assert_eq!(records.list().await.unwrap().len(), 1);
    assert_eq!(newest(&store).await, Some(1));
    put("00000000000000000002.json", MAX_OBJECT_BYTES).await;
    assert_eq!(newest(&store).await, Some(2));
    put("00000000000000000002.json", MAX_OBJECT_BYTES + 1).await;
    assert_eq!(records.newest().await.unwrap_err().cause(), "too_large");
}

/// A writer adds a line to the newest record, as often as is needed.
async fn add_line(store: &Store, line: &str) {
    let records = Records::new(store, folder());
    loop {
        let newest = records.newest().await.unwrap();
        let (number, mut lines) = match newest {
            Some(newest) => (newest.number, newest.bytes),
            None => (0, Vec::new()),
        };
        lines.extend_from_slice(line.as_bytes());
        lines.push(b'\n');
        if records.create(number + 1, lines).await.unwrap() {
            return;
        }
    }
}

/// Each writer adds its lines, one after the other. None is lost.
async fn assert_writers_lose_nothing(store: &Store, writers: u64, lines: u64) {
    let mut running = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let store = store.clone();
        running.spawn(async move {
            for line in 0..lines {
                add_line(&store, &format!("{writer} {line}")).await;
            }
        });
    }
    running.join_all().await;

    let records = Records::new(store, folder());
    let newest = records.newest().await.unwrap().unwrap();
    let name = store.backend.url();
    assert_eq!(newest.number, writers * lines, "{name}");
    let text = String::from_utf8(newest.bytes).unwrap();
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len() as u64, writers * lines, "{name}");
    // Each record is the one before with one more line.
    let mut before = Vec::new();
    for number in 1..=newest.number {
        let record = records.read(number).await.unwrap().unwrap();
        assert!(record.bytes.starts_with(&before), "{name}: {number}");
        before = record.bytes;
    }
    assert_eq!(before, text.into_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_lose_nothing() {
    let root = tempfile::tempdir().unwrap();
    for (writers, lines) in [(2, 20), (20, 5)] {
        assert_writers_lose_nothing(&Store::in_memory(), writers, lines).await;
        let path = root.path().join(writers.to_string());
        std::fs::create_dir(&path).unwrap();
        let directory = Store::open(path.to_str().unwrap()).unwrap();
        assert_writers_lose_nothing(&directory, writers, lines).await;

        for lost in [LostAnswer::Retried, LostAnswer::Broken] {
            let faulty = FaultyStore::default();
            faulty.lose_answers("/records/", lost);
            let store = Store::over(Arc::new(faulty), "memory");
            assert_writers_lose_nothing(&store, writers, lines).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_lose_nothing_in_a_bucket() {
    for (writers, lines) in [(2, 10), (20, 3)] {
        let Some(url) = testkit::store::bucket_url(&format!("records-{writers}")) else {
            return;
        };
        let store = Store::open(&url).unwrap();
        assert_writers_lose_nothing(&store, writers, lines).await;
    }
}

/// The put of a killed writer arrives later.
#[tokio::test]
async fn late_put_loses_to_the_record_that_was_first() {
    let faulty = Arc::new(FaultyStore::default());
    let store = Store::over(Arc::clone(&faulty) as _, "memory");
    let records = Records::new(&store, folder());
    faulty.delay_next_put("/records/0");
    records.create(1, b"late".to_vec()).await.unwrap_err();
    assert!(records.create(1, b"first".to_vec()).await.unwrap());
    assert!(!faulty.land_late_put().await);
    assert_eq!(records.newest().await.unwrap().unwrap().bytes, b"first");

    // An old hint, too.
    faulty.delay_next_put("LATEST");
    assert!(records.create(2, b"second".to_vec()).await.unwrap());
    create_all(&store, 3..=5).await;
    assert!(faulty.land_late_put().await);
    assert_eq!(records.hint().await.unwrap(), Some(2));
    assert_eq!(newest(&store).await, Some(5));
}
