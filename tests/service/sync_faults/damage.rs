//! Damaged files, one of each kind and result. The unit tests of `rtad_core::snapshot` damage
//! every byte and field, those of `rtad_store` every file.

use super::*;

const NOT_JSON: &str = "is not valid in version 1 of the format: ";
/// First byte of the counts of a chunk.
const COUNTS: usize = 64;

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes
}

#[test]
fn damaged_record_is_rejected_until_repaired() {
    Bench::new().survives_each(|candidate| {
        let (path, whole) = (candidate.record_path(), candidate.record());
        let in_store = format!("{AUDIENCE}/{path}");
        let (up, number) = (candidate.generation(), candidate.current.sequence);
        let mut other_digest = candidate.current_json();
        other_digest["manifest_sha256"] = "0".repeat(64).into();
        let mut other_number = candidate.current_json();
        other_number["sequence"] = (number + 1).into();
        let damage = |name: &str, result, words: &str| {
            Damage::new(name, result, format!("{in_store}: {words}"))
        };

        let mut damages = vec![
            damage("truncated", "format", NOT_JSON).file(&path, &whole[..whole.len() / 2]),
            damage(
                "too large",
                "too_large",
                "the record is 69634 bytes, the limit is 69633",
            )
            .file(&path, vec![b' '; 69634]),
            damage("another number", "format", "sequence is ")
                .file(&path, other_number.to_string()),
            Damage::new(
                "a manifest that is not there",
                "not_found",
                format!("manifests/{up}-{}.json does not exist", "0".repeat(64)),
            )
            .other_record(candidate, other_digest.to_string()),
        ];
        // All records are gone, as the folder's mount is.
        let mut gone = Damage::new("gone", "not_found", "old_users/records is empty, and ");
        for record in (1..=number).map(record_path) {
            gone = gone.deleted(&record);
        }
        damages.push(gone);

        // The generation before the served one.
        if up > 2 {
            let stale = |found: u64| {
                format!(
                    "newest record has number {found} and generation {}, but ",
                    up - 2
                )
            };
            damages.push(
                Damage::new("an old copy", "stale", stale(number - 2))
                    .deleted(&record_path(number - 1))
                    .deleted(&path)
                    .file("LATEST", format!("{}\n", number - 2)),
            );
            let older = candidate.current.entry(up - 2).unwrap();
            let manifest = &candidate.sound[&manifest_path(&older)];
            let back = Current::new(number, up - 2, manifest, None);
            damages.push(Damage::new("back", "stale", stale(number)).file(&path, back.to_bytes()));
        }
        damages
    });
}

#[test]
fn damaged_manifest_is_rejected_until_repaired() {
    Bench::new().survives_each(|candidate| {
        let path = candidate.manifest_path();
        let in_store = format!("{AUDIENCE}/{path}");
        let whole = &candidate.sound[&path];
        let before = candidate.sound[&candidate.manifest_path_before()].clone();
        // Consistent sizes: only the limit and the file itself contradict them.
        let claim = |bytes: u64| {
            let mut json = candidate.manifest_json();
            let (all, size) = (&json["size_bytes"], &json["chunks"][0]["size_bytes"]);
            let rest = all.as_u64().unwrap() - size.as_u64().unwrap();
            json["chunks"][0]["size_bytes"] = (bytes - rest).into();
            json["size_bytes"] = bytes.into();
            json.to_string().into_bytes()
        };
        let limit =
            "the snapshot has 18446744073709551615 bytes, store.max_snapshot_size is 8589934592";
        let real = candidate.chunk(0).len();
        vec![
            Damage::new(
                "truncated",
                "truncated",
                format!("{in_store}: has 61 bytes, expected "),
            )
            .file(&path, &whole[..61]),
            Damage::new("missing", "not_found", format!("{in_store} does not exist"))
                .deleted(&path),
            Damage::new("a bit", "digest", format!("{in_store}: digest is "))
                .file(&path, flipped(whole, 20)),
            Damage::new("too large", "too_large", "the manifest is ")
                .file(&path, vec![b' '; (4 << 20) + 1]),
            Damage::new("another generation's", "format", "generation is ")
                .manifest(candidate, before),
            Damage::new("nested deep", "format", NOT_JSON).manifest(candidate, vec![b'['; 100_000]),
            Damage::new("a size of all bytes", "too_large", limit)
                .manifest(candidate, claim(u64::MAX)),
            Damage::new(
                "8 GiB",
                "truncated",
                format!(": has {real} bytes, expected 8589"),
            )
            .manifest(candidate, claim(8 << 30)),
        ]
    });
}

#[test]
fn damaged_chunk_is_rejected_until_repaired() {
    Bench::new().survives_each(|candidate| {
        let (path, whole) = (candidate.chunk_path(0), candidate.chunk(0));
        let in_store = format!("{AUDIENCE}/{path}");
        // The other set's chunk of the same shards has the same header: only the digest differs.
        let before = &candidate.sound[&candidate.manifest_path_before()];
        let before: Value = serde_json::from_slice(before).unwrap();
        let before = format!(
            "chunks/{}.chunk",
            before["chunks"][0]["digest"].as_str().unwrap()
        );
        let digest = format!("{in_store}: digest is ");
        vec![
            Damage::new(
                "truncated",
                "truncated",
                format!("{in_store}: has 65 bytes, expected "),
            )
            .file(&path, &whole[..65]),
            Damage::new("missing", "not_found", format!("{in_store} does not exist"))
                .deleted(&path),
            Damage::new("last bit", "digest", &*digest)
                .file(&path, flipped(whole, whole.len() - 1)),
            Damage::new(
                "a count",
                "format",
                "sum of the shards' keys at byte 64 is ",
            )
            .file(&path, flipped(whole, COUNTS)),
            Damage::new("swapped with the generation before", "digest", digest)
                .file(&path, &candidate.sound[&before][..])
                .file(&before, whole),
        ]
    });
}

#[test]
fn snapshot_over_the_size_limit_is_rejected() {
    let mut bench = Bench::with(|config| config.store.max_snapshot_size = 10_000);
    let large = keys(9, 5000, |shard| shard % 64);
    bench.depot.publish(AUDIENCE, &large, &Spec::small());
    let size = bench.depot.manifest(AUDIENCE).size_bytes();
    bench.server.poll();
    let error = format!("the snapshot has {size} bytes, store.max_snapshot_size is 10000");
    assert_eq!(
        bench.server.last_sync(AUDIENCE),
        ("too_large".to_owned(), error)
    );
    assert_eq!(bench.server.sync_count(AUDIENCE, "too_large"), 1);
    bench.assert_serves(1, "too large");
    let candidate = bench.publish();
    bench.accepts(&candidate, "one that fits");
}
