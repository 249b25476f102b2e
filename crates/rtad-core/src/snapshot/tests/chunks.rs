//! Rejected chunk files.

use super::*;

/// The variant and the start of the message for a byte of the header.
fn header_field(offset: usize) -> (&'static str, &'static str) {
    match offset {
        0..8 => ("Magic", "is not a chunk"),
        8..12 => ("Version", "version is "),
        12..16 => ("Field", "filter kind at byte 12 is "),
        16..20 => ("Field", "hashes at byte 16 is "),
        20..24 => ("Field", "millibits per key at byte 20 is "),
        24..28 => ("Field", "first shard at byte 24 is "),
        28..32 => ("Field", "shard count at byte 28 is "),
        32..40 => ("Field", "keys at byte 32 is "),
        40..48 => ("Field", "body bytes at byte 40 is "),
        48..52 => ("Field", "value bits at byte 48 is "),
        52..56 => ("Field", "reserved at byte 52 is "),
        56..64 => ("Field", "reserved at byte 56 is "),
        _ => ("Field", "sum of the shards' keys at byte 64 is "),
    }
}

const COUNTS_END: usize = 64 + 8 * 4;

/// The end of all counts of the eight shards, and the start of the body.
fn body_start(kind: FilterKind) -> (usize, usize) {
    match kind {
        FilterKind::Ribbon => (64 + 3 * 8 * 4, 192),
        _ => (COUNTS_END, 128),
    }
}

/// The variant and the start of the message for a byte of the diverted and the listed counts, in a
/// file with the byte changed. No shard is large enough for a second tier.
fn ribbon_count(file: &[u8], offset: usize) -> (&'static str, String) {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let at = offset / 4 * 4;
    let (field, limit) = match offset {
        0..128 => ("diverted keys", 0),
        _ => ("listed keys", number(at - 64)),
    };
    if number(at) > limit {
        return (
            "AboveLimit",
            format!("{field} at byte {at} is {}", number(at)),
        );
    }
    (
        "Field",
        "sum of the shards' filters at byte 64 is ".to_owned(),
    )
}

#[test]
fn every_bit_of_the_prefix_is_checked() {
    for kind in KINDS {
        let (counts_end, body) = body_start(kind);
        let sound = Files::new(kind);
        for offset in 0..body {
            for bit in 0..8 {
                let mut files = sound.clone();
                files.chunks[1][offset] ^= 1 << bit;
                files.repair_manifest();
                let case = format!("bit {bit} of byte {offset} of a {} chunk", kind.as_str());
                let (variant, message) = if offset >= counts_end {
                    (
                        "Field",
                        format!("padding at byte {offset} is {}, expected 0", 1 << bit),
                    )
                } else if offset >= COUNTS_END {
                    ribbon_count(&files.chunks[1], offset)
                } else {
                    let (variant, message) = header_field(offset);
                    (variant, message.to_owned())
                };
                assert_rejected(files.read(), &case, variant, &message);
            }
        }
    }
}

#[test]
fn digest_covers_every_byte_of_the_body() {
    for kind in KINDS {
        let mut files = Files::new(kind);
        for offset in body_start(kind).1..files.chunks[0].len() {
            files.chunks[0][offset] ^= 0x10;
            assert_rejected(
                files.read(),
                &format!("byte {offset}"),
                "Digest",
                "digest is ",
            );
            files.chunks[0][offset] ^= 0x10;
        }
        files.read().unwrap();
    }
}

#[test]
fn truncated_chunk_is_rejected() {
    for kind in KINDS {
        let body = body_start(kind).1;
        let least = body + if kind == FilterKind::Ribbon { 4 } else { 8 };
        let sound = Files::new(kind);
        let whole = sound.chunks[0].len();
        for len in 0..whole {
            let mut files = sound.clone();
            files.chunks[0].truncate(len);
            let case = format!("{len} of {whole} bytes");
            let message = format!("has {len} bytes, expected {whole}");
            assert_rejected(files.read(), &case, "Length", &message);
            files.repair_manifest();
            let message = if len < least {
                format!("chunks[0].size_bytes is {len}, expected at least {least}")
            } else {
                format!(
                    "body bytes at byte 40 is {}, expected {}",
                    whole - body,
                    len - body
                )
            };
            assert_rejected(files.read(), &case, "Field", &message);
        }
    }
}

#[test]
fn chunk_with_trailing_bytes_is_rejected() {
    for extra in [1, 7, 8, 64, 100_000] {
        let mut files = Files::new(FilterKind::Block512);
        let whole = files.chunks[0].len();
        files.chunks[0].resize(whole + extra, 0);
        let message = format!("has {} bytes or more, expected {whole}", whole + extra);
        assert_rejected(files.read(), "trailing bytes", "Length", &message);
        files.repair_manifest();
        assert_rejected(
            files.read(),
            "trailing bytes, repaired",
            "Field",
            "body bytes at byte 40 is ",
        );
    }
}

fn set_count(chunk: &mut [u8], shard: usize, count: u32) {
    chunk[64 + 4 * shard..68 + 4 * shard].copy_from_slice(&count.to_le_bytes());
}

fn counts(chunk: &[u8]) -> Vec<u32> {
    chunk[64..COUNTS_END]
        .as_chunks::<4>()
        .0
        .iter()
        .map(|count| u32::from_le_bytes(*count))
        .collect()
}

#[test]
fn counts_with_the_right_sum_must_match_the_body_size() {
    // All keys moved into one shard: the same number of keys, filters of another size.
    let mut files = Files::new(FilterKind::Block512);
    let total = counts(&files.chunks[0]).iter().sum();
    for shard in 0..8 {
        set_count(
            &mut files.chunks[0],
            shard,
            if shard == 3 { total } else { 0 },
        );
    }
    files.repair_manifest();
    assert_rejected(
        files.read(),
        "moved keys",
        "Field",
        "sum of the shards' filters at byte 64 is ",
    );
}

#[test]
fn message_has_the_sum_of_all_counts() {
    let mut files = Files::new(FilterKind::Block512);
    let expected: u64 = counts(&files.chunks[0])
        .iter()
        .map(|count| u64::from(*count))
        .sum();
    for shard in 0..8 {
        set_count(&mut files.chunks[0], shard, u32::MAX);
    }
    files.repair_manifest();
    let found = 8 * u64::from(u32::MAX);
    let message = format!("sum of the shards' keys at byte 64 is {found}, expected {expected}");
    assert_rejected(files.read(), "huge counts", "Field", &message);
}

#[test]
fn huge_sizes_are_rejected_before_allocation() {
    // One exabyte, in the header alone, then in the manifest, too.
    const HUGE: u64 = 1 << 60;
    let mut files = Files::new(FilterKind::Block512);
    files.chunks[0][40..48].copy_from_slice(&HUGE.to_le_bytes());
    files.repair_manifest();
    assert_rejected(
        files.read(),
        "huge body",
        "Field",
        &format!("body bytes at byte 40 is {HUGE}, expected "),
    );

    let other = files.chunks[1].len() as u64;
    let body = body_start(FilterKind::Block512).1 as u64;
    files.manifest["chunks"][0]["size_bytes"] = json!(HUGE + body);
    files.manifest["size_bytes"] = json!(HUGE + body + other);
    let manifest = Manifest::parse(&files.manifest_bytes(), &audience(), 7).unwrap();
    assert!(
        manifest.size_bytes() > HUGE,
        "callers limit this before they read a chunk"
    );
    let read = decode(&manifest, &manifest.chunks()[0], &files.chunks[0], 4096).map_err(Box::new);
    assert_rejected(
        read,
        "huge manifest",
        "Field",
        "sum of the shards' filters at byte 64 is ",
    );
}

#[test]
fn chunks_of_another_generation_are_rejected() {
    // The same number of keys in the same shards: only the digest differs.
    let twins = |seed: &str| {
        let key = |index: u32| {
            let mut key = *DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes()).as_bytes();
            [key[0], key[1]] = [0, (index % 8) as u8];
            DeviceKey::from_bytes(key)
        };
        let mut keys: Vec<_> = (0..200).map(key).collect();
        keys.sort_unstable();
        keys
    };
    for kind in KINDS {
        let (old, old_files) = build(&spec(kind), 1, &twins("old"));
        let (new, new_files) = build(&spec(kind), 2, &twins("new"));
        assert_eq!(old_files[0].len(), new_files[0].len());
        for (manifest, files) in [(&old, &new_files), (&new, &old_files)] {
            let mixed = decode(manifest, &manifest.chunks()[0], &files[0], 4096).map_err(Box::new);
            assert_rejected(mixed, "twins", "Digest", "digest is ");
        }
    }

    // Two chunks of one generation, swapped.
    let mut files = Files::new(FilterKind::Block512);
    files.chunks.swap(0, 1);
    let (digest, size) = (Digest::of(&files.chunks[0]), files.chunks[0].len());
    files.repair_manifest();
    let message = "first shard at byte 24 is 28672, expected 0";
    assert_rejected(
        files.read(),
        &format!("{digest} of {size} bytes"),
        "Field",
        message,
    );
}

#[test]
fn errors_map_to_their_fault() {
    let sound = Files::new(FilterKind::Block512);
    let manifest = Manifest::parse(&sound.manifest_bytes(), &audience(), 7).unwrap();
    let entry = &manifest.chunks()[0];
    let fault = |change: fn(&mut Vec<u8>)| {
        let mut file = sound.chunks[0].clone();
        change(&mut file);
        decode(&manifest, entry, &file, 100)
            .unwrap_err()
            .fault()
            .as_str()
    };
    assert_eq!(fault(|file| file[200] ^= 1), "digest");
    assert_eq!(fault(|file| file.truncate(200)), "truncated");
    assert_eq!(fault(|file| file.push(0)), "truncated");
    assert_eq!(fault(|file| file[0] ^= 1), "format");
    assert_eq!(fault(|file| file[30] ^= 1), "format");
    let source = std::io::ErrorKind::OutOfMemory.into();
    assert_eq!(
        ChunkError::Memory { bytes: 1, source }.fault().as_str(),
        "too_large"
    );
}
