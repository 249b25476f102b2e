use super::*;
use crate::Store;

fn folder_in(store: &Store) -> WindowFolder {
    WindowFolder::new(
        StoreWriter::new(store.clone()).unwrap(),
        "w".parse().unwrap(),
    )
}

/// Claims the window of `found` for `owner`.
async fn claim(
    folder: &WindowFolder,
    found: Option<&WindowCurrent>,
    owner: &str,
) -> Result<WindowCurrent, StoreError> {
    let claimed = WindowCurrent {
        format: WindowCurrent::FORMAT,
        epoch: found.map_or(0, |found| found.epoch) + 1,
        owner: owner.to_owned(),
        boot: "boot".to_owned(),
        claimed_unix_seconds: 1,
        lease_seconds: 60,
        wait_seconds: 0,
        checkpoint: found.and_then(|found| found.checkpoint.clone()),
    };
    folder
        .replace(&claimed, Expected::Found(found))
        .await
        .map(|()| claimed)
}

/// Uploads a checkpoint, and makes it the last.
async fn upload(
    folder: &WindowFolder,
    mine: &WindowCurrent,
    checkpoint: &LocalCheckpoint,
) -> Result<WindowCurrent, StoreError> {
    let stored = folder.upload(mine.epoch, checkpoint).await?;
    let current = WindowCurrent {
        checkpoint: Some(stored),
        ..mine.clone()
    };
    folder
        .replace(&current, Expected::Own)
        .await
        .map(|()| current)
}

async fn remove_records(window: &WindowFolder) {
    for (_, record) in window.records().list().await.unwrap() {
        window.remove(&record.location).await.unwrap();
    }
}

fn local(bytes: &[u8], number: u64) -> LocalCheckpoint {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    LocalCheckpoint {
        file,
        window_id: 7,
        number,
        created_unix_seconds: 1,
    }
}

async fn downloaded(from: &WindowFolder) -> Result<Vec<u8>, StoreError> {
    let current = from.current().await?.unwrap();
    let file = tempfile::tempfile().unwrap();
    from.download(&current.checkpoint.unwrap(), file.try_clone().unwrap())
        .await?;
    let (mut bytes, mut file) = (Vec::new(), file);
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}

#[tokio::test]
async fn later_owner_fences_the_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Store::open(folder.path().to_str().unwrap()).unwrap();
    for store in [directory, Store::in_memory()] {
        let window = folder_in(&store);
        assert_eq!(window.current().await.unwrap(), None);
        let mut one = claim(&window, None, "one").await.unwrap();
        assert!(matches!(
            claim(&window, None, "x").await,
            Err(StoreError::Conflict { .. })
        ));
        // Parts of 16 MiB, and a file of a single request.
        let large: Vec<u8> = (0..PART_BYTES as u32 / 2)
            .flat_map(u32::to_le_bytes)
            .collect();
        for (number, bytes) in [(1, &large[..]), (2, b"small"), (2, b"small")] {
            one = upload(&window, &one, &local(bytes, number)).await.unwrap();
            window.remove_older(&one).await.unwrap();
            assert_eq!(downloaded(&window).await.unwrap(), bytes);
        }
        let files = store
            .backend
            .list(&window_checkpoints_path(&window.window))
            .await
            .unwrap();
        assert_eq!(files.len(), 1, "{files:?}");
        let two = claim(&window, Some(&one), "two").await.unwrap();
        assert_eq!((two.epoch, &two.checkpoint), (2, &one.checkpoint));
        assert!(!window.is_owned_by("one").await.unwrap());
        let refused = upload(&window, &one, &local(b"late", 3)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
        assert_eq!(downloaded(&window).await.unwrap(), b"small");
        upload(&window, &two, &local(b"next", 3)).await.unwrap();
        assert_eq!(downloaded(&window).await.unwrap(), b"next");
        // The folder is no audience.
        assert_eq!(store.audiences().await.unwrap(), []);
    }
}

fn age(path: &std::path::Path, by: Duration) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - by).unwrap();
}

/// A half-written file may be the upload of a later owner, and an owner that was stopped in the
/// middle of a claim fails as long as the record of its number is there.
#[tokio::test]
async fn records_and_half_written_checkpoints_are_removed_after_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let window = folder_in(&store);
    let mut one = claim(&window, None, "one").await.unwrap();
    for number in 1..=20 {
        one = upload(&window, &one, &local(b"content", number))
            .await
            .unwrap();
    }
    let later = StoredCheckpoint {
        number: 21,
        ..one.checkpoint.clone().unwrap()
    };
    let staged = format!(".windows/w/checkpoints/{}#1", later.name());
    let staged = folder.path().join(staged);
    std::fs::write(&staged, "half").unwrap();
    let old_record = folder.path().join(window.records().path(1).as_ref());
    window.remove_older(&one).await.unwrap();
    assert!(staged.exists() && old_record.exists());

    age(&staged, 2 * RECORD_AGE);
    age(&old_record, 2 * RECORD_AGE);
    window.remove_older(&one).await.unwrap();
    assert!(!staged.exists() && !old_record.exists());
    assert_eq!(window.current().await.unwrap(), Some(one));
    assert_eq!(window.records().list().await.unwrap().len(), 20);
}

#[tokio::test]
async fn only_checkpoints_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap()).unwrap();
    let window = folder_in(&store);
    let one = claim(&window, None, "one").await.unwrap();
    let one = upload(&window, &one, &local(b"content", 1)).await.unwrap();
    let others = ["copy-1-1", "0000000000000007-1-1-old", "mine#12"];
    let checkpoints = folder.path().join(".windows/w/checkpoints");
    for name in others {
        std::fs::write(checkpoints.join(name), "mine").unwrap();
    }

    window.remove_older(&one).await.unwrap();
    claim(&window, Some(&one), "two").await.unwrap();
    for name in others {
        assert!(checkpoints.join(name).exists(), "{name}");
    }
    assert_eq!(window.last_epoch().await.unwrap(), 1);
}

#[tokio::test]
async fn claims_after_removed_records_follow_the_checkpoints() {
    let store = Store::in_memory();
    let window = folder_in(&store);
    assert_eq!(window.last_epoch().await.unwrap(), 0);
    let one = claim(&window, None, "one").await.unwrap();
    let two = claim(&window, Some(&one), "two").await.unwrap();
    upload(&window, &two, &local(b"content", 1)).await.unwrap();
    remove_records(&window).await;
    assert_eq!(window.last_epoch().await.unwrap(), two.epoch);
}

#[tokio::test]
async fn missing_record_confirms_no_owner_and_stays_missing() {
    let store = Store::in_memory();
    let window = folder_in(&store);
    let one = claim(&window, None, "one").await.unwrap();
    remove_records(&window).await;
    let answers = [
        window.is_owned_by("one").await.map(|_| ()),
        window.replace(&one, Expected::Own).await,
        upload(&window, &one, &local(b"content", 1))
            .await
            .map(|_| ()),
    ];
    for answer in answers {
        assert!(
            matches!(answer, Err(StoreError::NotFound { .. })),
            "{answer:?}"
        );
    }
    assert_eq!(window.current().await.unwrap(), None);
}

#[tokio::test]
async fn damaged_checkpoint_is_refused() {
    let store = Store::in_memory();
    let window = folder_in(&store);
    let one = claim(&window, None, "one").await.unwrap();
    let one = upload(&window, &one, &local(b"content", 1)).await.unwrap();
    let path = window_checkpoint_path(&window.window, &one.checkpoint.unwrap().name());
    let objects = store.objects(&path).await.unwrap();
    objects
        .put(&path, PutPayload::from_static(b"contemt"))
        .await
        .unwrap();
    let refused = downloaded(&window).await.unwrap_err().to_string();
    assert!(refused.contains("damaged: expected sha256"), "{refused}");
    objects
        .put(&path, PutPayload::from_static(b"short"))
        .await
        .unwrap();
    downloaded(&window).await.unwrap_err();
    let record = window.records().path(3);
    objects
        .put(&record, PutPayload::from_static(b"{}"))
        .await
        .unwrap();
    assert!(matches!(
        window.current().await,
        Err(StoreError::Checkpoint { .. })
    ));
}
