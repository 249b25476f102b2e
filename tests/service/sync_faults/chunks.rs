//! Damaged chunks, with and without repaired checksums.

use super::*;

/// Bytes before the counts, and before the body of a chunk of ten shards.
const HEADER: usize = 64;
const COUNTS_END: usize = HEADER + 4 * 10;
const BODY: usize = 128;

fn sizes(found: usize, expected: usize) -> String {
    format!(": has {found} bytes, expected {expected}")
}

#[test]
fn truncated_chunk_is_rejected_until_repaired() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    let (path, whole) = (candidate.chunk_path(1), candidate.chunk(1).to_vec());
    let cuts = [0, 1, 7, 8, 63, HEADER, 65, COUNTS_END - 1, COUNTS_END, BODY - 1, BODY, BODY + 1];
    let cuts = cuts.into_iter().chain((BODY..whole.len()).step_by(97)).chain([whole.len() - 1]);
    for cut in cuts {
        let words = format!("{AUDIENCE}/{path}{}", sizes(cut, whole.len()));
        let damage =
            Damage::new(format!("cut at {cut}"), "truncated", words).file(&path, &whole[..cut]);
        bench.rejects(&candidate, &damage);
    }
    bench.accepts(&candidate, "cuts");
}

#[test]
fn modified_chunk_is_rejected() {
    Bench::new().survives_each(|candidate| {
        let (path, whole) = (candidate.chunk_path(0), candidate.chunk(0).to_vec());
        let flipped = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        };
        let digest = format!("{AUDIENCE}/{path}: digest is ");
        let length = format!(": has {} bytes or more, expected {}", whole.len() + 1, whole.len());
        let other = candidate.chunk_path(1);
        let mut damages = vec![
            Damage::new("a byte too many", "truncated", length)
                .file(&path, [&whole[..], b"x"].concat()),
            Damage::new("missing", "not_found", format!("{AUDIENCE}/{path} does not exist"))
                .deleted(&path),
            Damage::new("first bit of the body", "digest", &*digest).file(&path, flipped(BODY)),
            Damage::new("last bit", "digest", &*digest).file(&path, flipped(whole.len() - 1)),
            Damage::new("a count", "format", "sum of the shards' keys at byte 64 is ")
                .file(&path, flipped(HEADER)),
            Damage::new("the padding", "format", "padding at byte 104 is 16, expected 0")
                .file(&path, flipped(COUNTS_END)),
            Damage::new("two of a generation swapped", "format", "first shard at byte 24 is ")
                .file(&path, candidate.chunk(1))
                .file(&other, &whole[..]),
            Damage::new("an HTML page", "truncated", sizes(11, whole.len()))
                .file(&path, "<html></html"[1..].to_owned()),
        ];
        // The other set's chunk of the same shards has the same header: only the digest differs.
        let before: Value = {
            let path = format!("manifests/{}.json", candidate.generation() - 1);
            serde_json::from_slice(&candidate.sound[&path]).unwrap()
        };
        let before = format!("chunks/{}.chunk", before["chunks"][0]["digest"].as_str().unwrap());
        damages.push(
            Damage::new("swapped with the generation before", "digest", digest)
                .file(&path, &candidate.sound[&before][..])
                .file(&before, &whole[..]),
        );
        damages
    });
}

/// The expected error for a wrong byte at this offset of the header.
fn words_of_field(at: usize) -> &'static str {
    match at {
        0..8 => ".chunk: is not a chunk: it does not begin with RTADCHNK",
        8..12 => "this rtad reads version 1: upgrade rtad",
        12..16 => "filter kind at byte 12 is ",
        16..20 => "hashes at byte 16 is ",
        20..24 => "millibits per key at byte 20 is ",
        24..28 => "first shard at byte 24 is ",
        28..32 => "shard count at byte 28 is ",
        32..40 => "keys at byte 32 is ",
        40..48 => "body bytes at byte 40 is ",
        48..56 => "reserved at byte 48 is ",
        56..64 => "reserved at byte 56 is ",
        64..104 => "sum of the shards' keys at byte 64 is ",
        _ => "padding at byte ",
    }
}

#[test]
fn every_byte_of_the_prefix_is_checked() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    for at in 0..BODY {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = candidate.chunk(0).to_vec();
            bytes[at] ^= flip;
            let damage = Damage::new(format!("byte {at} ^ {flip}"), "format", words_of_field(at));
            bench.rejects(&candidate, &damage.chunk(&candidate, 0, bytes));
        }
    }
    bench.accepts(&candidate, "headers");
}

#[test]
fn counts_that_do_not_match_the_filters_are_rejected() {
    // Moves keys between shards: the sum stays, the filters' sizes do not.
    Bench::new().survives_each(|candidate| {
        let mut bytes = candidate.chunk(0).to_vec();
        bytes[HEADER..HEADER + 4].copy_from_slice(&0_u32.to_le_bytes());
        bytes[HEADER + 4..HEADER + 8].copy_from_slice(&200_u32.to_le_bytes());
        let words = "sum of the shards' filters at byte 64 is ";
        vec![Damage::new("moved counts", "format", words).chunk(candidate, 0, bytes)]
    });
}
