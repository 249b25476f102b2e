//! Folder of a window: segments of competing processes, tables, and the removal of old files.

use std::path::Path as FilePath;
use std::sync::Arc;

use testkit::faulty_store::{FaultyStore, LostAnswer};

use super::*;
use crate::Store;

fn folder_in(store: &Store) -> WindowFolder {
    let writer = StoreWriter::new(store.clone()).unwrap();
    WindowFolder::new(writer, "w".parse().unwrap())
}

fn directory() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    (folder, store)
}

async fn create_all(window: &WindowFolder, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let bytes = Bytes::from(number.to_string());
        assert!(window.create(number, bytes).await.unwrap(), "{number}");
    }
}

/// Blocks of a table: an error after them if `is_aborted`.
async fn put_table(
    window: &WindowFolder,
    number: u64,
    blocks: &[&[u8]],
    is_aborted: bool,
) -> Result<u64, StoreError> {
    let mut sent: Vec<_> = blocks.iter().map(|block| Ok(block.to_vec())).collect();
    if is_aborted {
        sent.push(Err(io::Error::other("the copy was dropped")));
    }
    // As the writer's, it must not be polled after its end.
    let blocks = stream::unfold(sent.into_iter(), |mut sent| async {
        Some((sent.next()?, sent))
    });
    window.put_table(number, Box::pin(blocks)).await
}

async fn read_table(window: &WindowFolder, number: u64) -> Option<Vec<u8>> {
    let mut reader = window.table(number).await.unwrap()?;
    let mut bytes = Vec::new();
    while let Some(block) = reader.next_block().await.unwrap() {
        bytes.extend_from_slice(&block);
    }
    assert_eq!(bytes.len() as u64, reader.size_bytes());
    Some(bytes)
}

#[tokio::test]
async fn segments_are_created_once_and_found_by_list() {
    let (_folder, directory) = directory();
    for store in [Store::in_memory(), directory] {
        let window = folder_in(&store);
        assert!(window.segments().await.unwrap().is_empty());
        assert_eq!(window.read(1).await.unwrap(), None);
        create_all(&window, 1..=11).await;

        assert!(!window.create(11, "other".into()).await.unwrap());
        // The answer to the first create was lost.
        assert!(window.create(11, "11".into()).await.unwrap());
        assert_eq!(window.read(11).await.unwrap().unwrap(), b"11");
        assert_eq!(window.read(12).await.unwrap(), None);
        let all: Vec<u64> = (1..=11).collect();
        assert_eq!(window.segments().await.unwrap(), all);
        // The folder is no audience.
        assert_eq!(store.audiences().await.unwrap(), []);
    }
}

#[tokio::test]
async fn hint_of_a_lost_segment_is_an_error() {
    let window = folder_in(&Store::in_memory());
    create_all(&window, 1..=3).await;
    for hint in [1, 3] {
        window.point_to(hint).await.unwrap();
        assert_eq!(window.segments().await.unwrap().len(), 3);
    }
    window.point_to(4).await.unwrap();
    let error = window.segments().await.unwrap_err();
    assert!(matches!(error, StoreError::LostRecord { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_processes_creates_each_segment_in_every_store() {
    let (_folder, directory) = directory();
    let mut stores = vec![Store::in_memory(), directory];
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let faulty = FaultyStore::default();
        faulty.lose_answers("/log/", lost);
        stores.push(Store::over(Arc::new(faulty), "memory"));
    }
    if let Some(url) = testkit::store::bucket_url("segments") {
        stores.push(Store::open(&url).unwrap());
    }
    for store in stores {
        for number in 1..=5 {
            let mut processes = tokio::task::JoinSet::new();
            for process in 0..8 {
                let window = folder_in(&store);
                processes.spawn(async move {
                    let bytes = Bytes::from(format!("owner {process}"));
                    let created = window.create(number, bytes.clone()).await;
                    created.unwrap().then_some(bytes)
                });
            }
            let created = processes.join_all().await;
            let owners: Vec<Bytes> = created.into_iter().flatten().collect();
            let held = folder_in(&store).read(number).await.unwrap().unwrap();
            assert_eq!(owners, [Bytes::from(held)], "{store:?}: {number}");
        }
    }
}

/// The segment of a killed owner arrives after that of the next one.
#[tokio::test]
async fn late_segment_loses_to_the_one_that_was_first() {
    let faulty = Arc::new(FaultyStore::default());
    let window = folder_in(&Store::over(Arc::clone(&faulty) as _, "memory"));
    create_all(&window, 1..=1).await;
    faulty.delay_next_put("/log/0");
    window.create(2, "late".into()).await.unwrap_err();
    assert!(window.create(2, "first".into()).await.unwrap());
    assert!(!faulty.land_late_put().await);
    assert_eq!(window.read(2).await.unwrap().unwrap(), b"first");
}

#[tokio::test]
async fn server_that_ignores_the_condition_is_refused() {
    let faulty = Arc::new(FaultyStore::default());
    faulty.ignore_conditions();
    let window = folder_in(&Store::over(Arc::clone(&faulty) as _, "memory"));
    let error = window.create(1, "1".into()).await.unwrap_err();
    assert!(matches!(error, StoreError::Conditions { .. }), "{error}");
}

/// A mount that is lost leaves an empty directory, in which any segment could be created.
#[tokio::test]
async fn directory_without_the_segment_before_takes_no_next_one() {
    let (folder, store) = directory();
    let window = folder_in(&store);
    create_all(&window, 1..=3).await;
    let log = folder.path().join(".windows/w/log");
    let segment = |number: u64| log.join(format!("{number:020}"));

    std::fs::remove_file(segment(3)).unwrap();
    let error = window.create(4, "4".into()).await.unwrap_err();
    assert!(matches!(error, StoreError::LostRecord { .. }), "{error}");

    // Later segments follow the one that was removed: another process has gone on.
    std::fs::write(segment(5), "5").unwrap();
    assert!(!window.create(4, "4".into()).await.unwrap());

    std::fs::remove_dir_all(folder.path().join(".windows")).unwrap();
    for number in [1, 6] {
        let error = window.create(number, "6".into()).await.unwrap_err();
        assert!(matches!(error, StoreError::LostMount { .. }), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn tables_are_whole_or_absent() {
    let (_folder, directory) = directory();
    for store in [Store::in_memory(), directory] {
        let window = folder_in(&store);
        assert_eq!(window.newest_table().await.unwrap(), None);
        assert_eq!(read_table(&window, 1).await, None);

        // One request, parts of exactly 16 MiB, and parts with a rest.
        let whole_part = vec![7; PART_BYTES];
        let large: Vec<u8> = (0..=PART_BYTES as u32).flat_map(u32::to_le_bytes).collect();
        let blocks: Vec<&[u8]> = large.chunks(1_000_003).collect();
        for (number, blocks) in [(1, &[&b"a"[..], b"", b"bc"][..]), (2, &[]), (3, &blocks)] {
            let size = put_table(&window, number, blocks, false).await.unwrap();
            let whole = blocks.concat();
            assert_eq!(size, whole.len() as u64);
            assert!(read_table(&window, number).await.unwrap() == whole);
        }
        put_table(&window, 4, &[&whole_part], false).await.unwrap();
        assert!(read_table(&window, 4).await.unwrap() == whole_part);

        for blocks in [&[&b"a"[..]][..], &blocks] {
            let error = put_table(&window, 5, blocks, true).await.unwrap_err();
            assert!(matches!(error, StoreError::Table { .. }), "{error}");
        }
        assert_eq!(window.newest_table().await.unwrap(), Some(4));
    }
}

fn age(path: &FilePath, by: Duration) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - by).unwrap();
}

#[tokio::test]
async fn old_files_before_a_table_are_removed() {
    let faulty = Arc::new(FaultyStore::default());
    let window = folder_in(&Store::over(Arc::clone(&faulty) as _, "memory"));
    window.remove_before(9).await.unwrap();
    create_all(&window, 1..=2).await;
    put_table(&window, 2, &[b"2"], false).await.unwrap();
    faulty.age(2 * MIN_AGE).await;
    create_all(&window, 3..=4).await;
    put_table(&window, 4, &[b"4"], false).await.unwrap();

    window.remove_before(2).await.unwrap();
    assert_eq!(window.segments().await.unwrap(), [2, 3, 4]);
    window.remove_before(4).await.unwrap();
    // Segment 3 is young.
    assert_eq!(window.segments().await.unwrap(), [3, 4]);
    assert_eq!(read_table(&window, 2).await, None);
    assert_eq!(window.newest_table().await.unwrap(), Some(4));

    // The newest segment stays, whatever the number.
    faulty.age(2 * MIN_AGE).await;
    create_all(&window, 5..=5).await;
    window.remove_before(100).await.unwrap();
    assert_eq!(window.segments().await.unwrap(), [5]);
}

#[tokio::test]
async fn only_our_files_are_removed() {
    let (folder, store) = directory();
    let window = folder_in(&store);
    create_all(&window, 1..=2).await;
    put_table(&window, 2, &[b"2"], false).await.unwrap();
    let path = |name: &str| folder.path().join(".windows/w").join(name);
    let ours = ["log/00000000000000000001", "tables/00000000000000000002#1"];
    let others = [
        "log/1",
        "log/notes",
        "tables/mine#12",
        "tables/00000000000000000001.bak",
    ];
    for name in ours.iter().chain(&others) {
        std::fs::write(path(name), "content").unwrap();
        age(&path(name), 2 * MIN_AGE);
    }
    let young = path("log/00000000000000000003#1");
    std::fs::write(&young, "half").unwrap();

    window.remove_before(2).await.unwrap();
    assert!(ours.iter().all(|name| !path(name).exists()));
    assert!(others.iter().all(|name| path(name).exists()));
    assert!(young.exists());
}
