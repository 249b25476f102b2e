use super::*;
use crate::Store;

fn checkpoints(store: &Store) -> WindowCheckpoints {
    WindowCheckpoints::new(StoreWriter::new(store.clone()).unwrap(), "w".parse().unwrap())
}

fn terms(owner: &str) -> ClaimTerms<'_> {
    ClaimTerms { owner, boot: "boot", lease_seconds: 60, wait_seconds: 0 }
}

fn local(bytes: &[u8], number: u64) -> LocalCheckpoint {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    LocalCheckpoint { file, window_id: 7, number, created_unix_seconds: 1 }
}

async fn downloaded(from: &WindowCheckpoints) -> Result<Vec<u8>, StoreError> {
    let current = from.current().await?.unwrap();
    let file = tempfile::tempfile().unwrap();
    from.download(&current.checkpoint.unwrap(), file.try_clone().unwrap()).await?;
    let (mut bytes, mut file) = (Vec::new(), file);
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}

#[tokio::test]
async fn later_owner_fences_the_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Store::open(folder.path().join("s").to_str().unwrap()).unwrap();
    for store in [directory, Store::in_memory()] {
        let window = checkpoints(&store);
        assert_eq!(window.current().await.unwrap(), None);
        let mut one = window.claim(None, terms("one")).await.unwrap();
        assert!(matches!(window.claim(None, terms("x")).await, Err(StoreError::Conflict { .. })));
        // Parts of 16 MiB, and a file of a single request.
        let large: Vec<u8> = (0..PART_BYTES as u32 / 2).flat_map(u32::to_le_bytes).collect();
        for (number, bytes) in [(1, &large[..]), (2, b"small"), (2, b"small")] {
            one = window.upload(&one, &local(bytes, number)).await.unwrap();
            window.remove_older(&one).await.unwrap();
            assert_eq!(downloaded(&window).await.unwrap(), bytes);
        }
        let files = store.backend.list(&window_checkpoints_path(&window.window)).await.unwrap();
        assert_eq!(files.len(), 1, "{files:?}");
        let two = window.claim(Some(&one), terms("two")).await.unwrap();
        assert_eq!((two.epoch, &two.checkpoint), (2, &one.checkpoint));
        assert!(!window.is_owned_by("one").await.unwrap());
        let refused = window.upload(&one, &local(b"late", 3)).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
        assert_eq!(downloaded(&window).await.unwrap(), b"small");
        window.upload(&two, &local(b"next", 3)).await.unwrap();
        assert_eq!(downloaded(&window).await.unwrap(), b"next");
        // The folder is no audience.
        assert_eq!(store.audiences().await.unwrap(), []);
    }
}

/// A half-written file may be the upload of a later owner; that of a killed one goes with a claim.
#[tokio::test]
async fn only_a_claim_removes_half_written_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("s").to_str().unwrap()).unwrap();
    let window = checkpoints(&store);
    let one = window.claim(None, terms("one")).await.unwrap();
    let one = window.upload(&one, &local(b"content", 1)).await.unwrap();
    let staged = folder.path().join("s/.windows/w/checkpoints/later#1");
    std::fs::write(&staged, "half").unwrap();
    window.update(&one).await.unwrap();
    window.upload(&one, &local(b"next", 2)).await.unwrap();
    assert!(staged.exists());
    let one = window.current().await.unwrap().unwrap();
    window.claim(Some(&one), terms("two")).await.unwrap();
    assert!(!staged.exists());
}

#[tokio::test]
async fn missing_current_confirms_no_owner_and_stays_missing() {
    let store = Store::in_memory();
    let window = checkpoints(&store);
    let one = window.claim(None, terms("one")).await.unwrap();
    let path = window_current_path(&window.window);
    store.objects(&path).await.unwrap().delete(&path).await.unwrap();
    let answers = [
        window.is_owned_by("one").await.map(|_| ()),
        window.update(&one).await,
        window.upload(&one, &local(b"content", 1)).await.map(|_| ()),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(StoreError::NotFound { .. })), "{answer:?}");
    }
    assert_eq!(window.current().await.unwrap(), None);
}

#[tokio::test]
async fn damaged_checkpoint_is_refused() {
    let store = Store::in_memory();
    let window = checkpoints(&store);
    let one = window.claim(None, terms("one")).await.unwrap();
    let one = window.upload(&one, &local(b"content", 1)).await.unwrap();
    let path = window_checkpoint_path(&window.window, &one.checkpoint.unwrap().name());
    let objects = store.objects(&path).await.unwrap();
    objects.put(&path, PutPayload::from_static(b"contemt")).await.unwrap();
    let refused = downloaded(&window).await.unwrap_err().to_string();
    assert!(refused.contains("damaged: expected sha256"), "{refused}");
    objects.put(&path, PutPayload::from_static(b"short")).await.unwrap();
    downloaded(&window).await.unwrap_err();
    let current = window_current_path(&window.window);
    objects.put(&current, PutPayload::from_static(b"{}")).await.unwrap();
    assert!(matches!(window.current().await, Err(StoreError::Checkpoint { .. })));
}
