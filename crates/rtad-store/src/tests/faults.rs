//! Files that were spoiled after they were published: each is refused by name, and by the word that is
//! counted.

use super::*;

/// What is done to a file; `None` deletes it.
type Spoil = fn(Vec<u8>) -> Option<Vec<u8>>;

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
async fn spoiled_files_are_refused_by_name_and_cause() {
    let members = keys("member", 200);
    let (manifest, chunks) = build(1, &members);
    let chunk = chunk_path(&audience(), &chunks[3].entry).to_string();
    let chunk_size = chunks[3].bytes.len();
    let manifest_size = manifest.to_bytes().len();
    let (manifest, current) =
        ("old_users/manifests/1.json".to_owned(), "old_users/CURRENT".to_owned());
    let sizes = |found: usize, expected: usize| format!(": has {found} bytes, expected {expected}");
    let too_long = format!(": has {} bytes or more, expected {chunk_size}", chunk_size + 1);
    let cases: Vec<(&String, Spoil, &str, String)> = vec![
        (&chunk, shorter, "truncated", sizes(chunk_size - 1, chunk_size)),
        (&chunk, longer, "truncated", too_long),
        (&chunk, emptied, "truncated", sizes(0, chunk_size)),
        (&chunk, last_bit_flipped, "digest", ": digest is ".to_owned()),
        (&chunk, first_bit_flipped, "format", ": is not a chunk".to_owned()),
        (&chunk, deleted, "not_found", " does not exist".to_owned()),
        (&manifest, shorter, "truncated", sizes(manifest_size - 1, manifest_size)),
        (&manifest, longer, "truncated", sizes(manifest_size + 1, manifest_size)),
        (&manifest, emptied, "truncated", sizes(0, manifest_size)),
        (&manifest, last_bit_flipped, "digest", ": digest is ".to_owned()),
        (&manifest, large, "too_large", ": the manifest is ".to_owned()),
        (&manifest, deleted, "not_found", " does not exist".to_owned()),
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
        (&current, large, "too_large", ": CURRENT is ".to_owned()),
    ];
    for place in Place::all() {
        place.publish(&members).await.unwrap();
        let sound = place.files().await;
        for (path, spoil, cause, message) in &cases {
            match spoil(sound[*path].clone()) {
                Some(bytes) => place.write(path, bytes).await,
                None => place.delete(path).await,
            }
            let error = place.read().await.unwrap_err();
            let text = chain(&error);
            assert_eq!(error.cause(), *cause, "{}: {text}", place.name());
            assert!(
                text.starts_with(&format!("{path}{message}")),
                "{}: {text}, not {message}",
                place.name()
            );
            place.write(path, sound[*path].clone()).await;
        }
        place.assert_serves(1, &members).await;
    }
}

#[tokio::test]
async fn without_current_nothing_is_live() {
    for place in Place::all() {
        place.publish(&keys("member", 20)).await.unwrap();
        place.delete("old_users/CURRENT").await;
        assert!(place.store().live(&audience()).await.unwrap().is_none());
        assert_eq!(
            place.publish(&keys("member", 20)).await.unwrap().0,
            2,
            "its manifest still takes the number"
        );
    }
}

#[tokio::test]
async fn a_broken_current_is_not_overwritten_by_a_publish() {
    for place in Place::all() {
        place.publish(&keys("member", 20)).await.unwrap();
        place.write("old_users/CURRENT", b"{}".to_vec()).await;
        let before = place.files().await;
        assert_eq!(place.publish(&keys("other", 20)).await.unwrap_err().cause(), "format");
        assert_eq!(place.files().await, before);
    }
}

#[tokio::test]
async fn a_chunk_of_several_blocks_is_read_block_by_block() {
    // 1,000 bits a key and 80,000 keys in one shard: 10 MB, in blocks of 1 MiB.
    let spec = FilterSpec::new(FilterKind::Classic, 1, 1_000_000).unwrap();
    let key = |index: u32| {
        let mut key = *DeviceKey::of_canonical(&index.to_le_bytes()).as_bytes();
        [key[0], key[1]] = [0x12, 0x34];
        DeviceKey::from_bytes(key)
    };
    let mut members: Vec<_> = (0..80_000).map(key).collect();
    members.sort_unstable();
    let chunk = BuiltChunk::build(&spec, &members);
    let (path, whole) = (chunk_path(&audience(), &chunk.entry), chunk.bytes.clone());
    assert!(whole.len() as u64 > 2 * BLOCK_BYTES);
    for place in Place::all() {
        let base = place.writer.base(&audience()).await.unwrap();
        let publication = place.writer.publish(base).await.unwrap();
        let mut builder = ManifestBuilder::new(spec, 0.001);
        builder.add(&chunk);
        let manifest = builder.finish(audience(), 1, 0, BuildReport::default());
        let copy = BuiltChunk::build(&spec, &members);
        assert!(publication.put_chunk(copy).await.unwrap());
        publication.commit(&manifest).await.unwrap();
        place.assert_serves(1, &members).await;

        for len in [1, BLOCK_BYTES as usize, 2 * BLOCK_BYTES as usize, whole.len() - 1] {
            place.write(path.as_ref(), whole[..len].to_vec()).await;
            let error = place.read().await.unwrap_err();
            assert_eq!(chain(&error), format!("{path}: has {len} bytes, expected {}", whole.len()));
        }
    }
}

#[tokio::test]
async fn a_size_that_no_memory_holds_is_refused_by_the_file_s_own_size() {
    for place in Place::all() {
        let members = keys("member", 20);
        place.publish(&members).await.unwrap();
        let (manifest, _) = build(1, &members);
        let mut json: serde_json::Value = serde_json::from_slice(&manifest.to_bytes()).unwrap();
        let size = manifest.chunks()[0].size_bytes;
        json["chunks"][0]["size_bytes"] = (1_u64 << 40).into();
        json["size_bytes"] = (manifest.size_bytes() - size + (1 << 40)).into();
        let bytes = serde_json::to_vec(&json).unwrap();
        place.write("old_users/CURRENT", Current::new(2, 1, &bytes, None).to_bytes()).await;
        place.write("old_users/manifests/1.json", bytes).await;

        let error = place.read().await.unwrap_err();

        assert_eq!(error.cause(), "truncated");
        assert!(chain(&error).ends_with(&format!(": has {size} bytes, expected {}", 1_u64 << 40)));
    }
}
