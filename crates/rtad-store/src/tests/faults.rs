//! Damaged files: each is refused with its path and its cause.

use super::*;

/// A change of a file; `None` deletes it.
type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;

fn shorter(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes.pop();
    Some(bytes)
}

fn longer(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes.push(b' ');
    Some(bytes)
}

fn last_bit_flipped(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    *bytes.last_mut().unwrap() ^= 1;
    Some(bytes)
}

fn first_bit_flipped(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes[0] ^= 1;
    Some(bytes)
}

fn large(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    bytes.resize(5 << 20, b' ');
    Some(bytes)
}

fn emptied(_: Vec<u8>) -> Option<Vec<u8>> {
    Some(Vec::new())
}

fn deleted(_: Vec<u8>) -> Option<Vec<u8>> {
    None
}

#[tokio::test]
async fn damaged_files_are_refused_with_path_and_cause_in_every_store() {
    let members = keys("member", 200);
    let (manifest, chunks) = build(1, &members);
    let chunk = chunk_path(&audience(), &chunks[3].entry).to_string();
    let chunk_size = chunks[3].bytes.len();
    let manifest = manifest.over_generation(0).to_bytes();
    let manifest_size = manifest.len();
    let entry = GenerationEntry::of(1, &manifest);
    let manifest = manifest_path(&audience(), &entry).to_string();
    let current = record(1);
    let sizes = |found: usize, expected: usize| format!(": has {found} bytes, expected {expected}");
    let too_long = format!(
        ": has {} bytes or more, expected {chunk_size}",
        chunk_size + 1
    );
    let cases: Vec<(&String, Damage, &str, String)> = vec![
        (
            &chunk,
            shorter,
            "truncated",
            sizes(chunk_size - 1, chunk_size),
        ),
        (&chunk, longer, "truncated", too_long),
        (&chunk, emptied, "truncated", sizes(0, chunk_size)),
        (
            &chunk,
            last_bit_flipped,
            "digest",
            ": digest is ".to_owned(),
        ),
        (
            &chunk,
            first_bit_flipped,
            "format",
            ": is not a chunk".to_owned(),
        ),
        (&chunk, deleted, "not_found", " does not exist".to_owned()),
        (
            &manifest,
            shorter,
            "truncated",
            sizes(manifest_size - 1, manifest_size),
        ),
        (
            &manifest,
            longer,
            "truncated",
            sizes(manifest_size + 1, manifest_size),
        ),
        (&manifest, emptied, "truncated", sizes(0, manifest_size)),
        (
            &manifest,
            last_bit_flipped,
            "digest",
            ": digest is ".to_owned(),
        ),
        (
            &manifest,
            large,
            "too_large",
            ": the manifest is ".to_owned(),
        ),
        (
            &manifest,
            deleted,
            "not_found",
            " does not exist".to_owned(),
        ),
        (
            &current,
            emptied,
            "format",
            ": is not valid in version 1 of the format: EOF".to_owned(),
        ),
        (
            &current,
            first_bit_flipped,
            "format",
            ": is not valid in version 1 of the format".to_owned(),
        ),
        (&current, large, "too_large", ": the record is ".to_owned()),
    ];
    for fixture in StoreFixture::all() {
        fixture.publish(&members).await.unwrap();
        let sound = fixture.files().await;
        for (path, damage, cause, message) in &cases {
            match damage(sound[*path].clone()) {
                Some(bytes) => fixture.write(path, bytes).await,
                None => fixture.delete(path).await,
            }
            let error = fixture.read().await.unwrap_err();
            let text = chain(&error);
            assert_eq!(error.cause(), *cause, "{}: {text}", fixture.name());
            assert!(
                text.starts_with(&format!("{path}{message}")),
                "{}: {text}, not {message}",
                fixture.name()
            );
            fixture.write(path, sound[*path].clone()).await;
        }
        fixture.assert_serves(1, &members).await;
    }
}

#[tokio::test]
async fn missing_record_means_nothing_is_live_in_every_store() {
    for fixture in StoreFixture::all() {
        fixture.publish(&keys("member", 20)).await.unwrap();
        fixture.delete(&record(1)).await;
        assert!(fixture.store().live(&audience()).await.unwrap().is_none());
        assert_eq!(
            fixture.publish(&keys("member", 20)).await.unwrap().0,
            2,
            "its manifest reserves the number"
        );
        assert_eq!(fixture.current().await.sequence, 2, "and its hint");
    }
}

#[tokio::test]
async fn nothing_follows_an_unreadable_record() {
    for fixture in StoreFixture::local() {
        fixture.publish(&keys("member", 20)).await.unwrap();
        fixture.write(&record(2), b"{}".to_vec()).await;
        let before = fixture.files().await;
        assert_eq!(
            fixture
                .publish(&keys("other", 20))
                .await
                .unwrap_err()
                .cause(),
            "format"
        );
        assert_eq!(fixture.files().await, before);
    }
}

#[tokio::test]
async fn large_chunk_is_read_in_blocks_in_every_store() {
    // 1,000 bits a key and 80,000 keys in one shard: 10 MB, in blocks of 1 MiB.
    let spec = FilterSpec::new(FilterKind::Block512, 1, 1_000_000).unwrap();
    let key = |index: u32| {
        let mut key = *DeviceKey::of_canonical(&index.to_le_bytes()).as_bytes();
        [key[0], key[1]] = [0x12, 0x34];
        DeviceKey::from_bytes(key)
    };
    let mut members: Vec<_> = (0..80_000).map(key).collect();
    members.sort_unstable();
    let chunk = BuiltChunk::build(&spec, &members);
    let (path, whole) = (chunk_path(&audience(), &chunk.entry), chunk.bytes.clone());
    assert!(whole.len() > 2 * BLOCK_BYTES);
    for fixture in StoreFixture::all() {
        let base = fixture.writer.base(&audience()).await.unwrap();
        let publication = fixture.writer.publish(base).await.unwrap();
        let mut builder = ManifestBuilder::new(spec, 0.001);
        builder.add(&chunk);
        let manifest = builder
            .finish(audience(), GenerationFacts::default())
            .unwrap();
        let copy = BuiltChunk::build(&spec, &members);
        assert!(publication.put_chunk(copy).await.unwrap());
        publication.commit(manifest).await.unwrap();
        fixture.assert_serves(1, &members).await;

        for len in [1, BLOCK_BYTES, 2 * BLOCK_BYTES, whole.len() - 1] {
            fixture.write(path.as_ref(), whole[..len].to_vec()).await;
            let error = fixture.read().await.unwrap_err();
            assert_eq!(
                chain(&error),
                format!("{path}: has {len} bytes, expected {}", whole.len())
            );
        }
    }
}

#[tokio::test]
async fn declared_size_above_the_file_size_is_refused_in_every_store() {
    for fixture in StoreFixture::all() {
        let members = keys("member", 20);
        fixture.publish(&members).await.unwrap();
        let (manifest, _) = build(2, &members);
        let mut json: serde_json::Value = serde_json::from_slice(&manifest.to_bytes()).unwrap();
        let size = manifest.chunks()[0].size_bytes;
        json["chunks"][0]["size_bytes"] = (1_u64 << 40).into();
        json["size_bytes"] = (manifest.size_bytes() - size + (1 << 40)).into();
        let bytes = serde_json::to_vec(&json).unwrap();
        let current = Current::new(2, 2, &bytes, None).to_bytes();
        fixture.write(&record(2), current).await;
        let path = manifest_path(&audience(), &GenerationEntry::of(2, &bytes));
        fixture.write(path.as_ref(), bytes).await;

        let error = fixture.read().await.unwrap_err();

        assert_eq!(error.cause(), "truncated");
        assert!(chain(&error).ends_with(&format!(": has {size} bytes, expected {}", 1_u64 << 40)));
    }
}

/// Both writers of a number would succeed. Nothing is changed, and no probe is left.
#[tokio::test]
async fn server_without_conditional_creates_is_refused() {
    let (faulty, fixture) = faulty_fixture();
    fixture.publish(&keys("first", 20)).await.unwrap();
    faulty.ignore_conditions();
    let before = fixture.files().await;
    // A client is probed once, so each operation is of a new one.
    let fresh = || StoreFixture::over(Store::over(Arc::clone(&faulty) as _, "memory"));
    let base = fresh().writer.base(&audience()).await.unwrap();
    let published = fresh().writer.publish(base).await.map(drop);
    let mut ledger = fresh().writer.ledger(&audience()).await.unwrap();
    let mut change = crate::write::Change::default();
    change.add(keys("second", 1)[0]);
    let appended = ledger.append(change).await.map(drop);
    let chunk = build(1, &keys("second", 1)).1.remove(0);
    let put_ahead = fresh().writer.put_chunk_ahead(&audience(), chunk).await;
    for refused in [published, appended, put_ahead.map(drop)] {
        assert!(
            matches!(refused, Err(StoreError::Conditions { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.files().await, before);
}
