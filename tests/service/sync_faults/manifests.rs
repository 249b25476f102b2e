//! Damaged and malicious manifests, with correct checksums around them.

use super::*;

/// Changes a manifest's JSON.
type Change = fn(&mut Value);

#[test]
fn truncated_manifest_is_rejected_until_repaired() {
    let mut bench = Bench::new();
    let candidate = bench.publish();
    let (path, whole) =
        (candidate.manifest_path(), candidate.sound[&candidate.manifest_path()].clone());
    for cut in (0..whole.len()).step_by(61).chain([1, whole.len() - 1]) {
        let words = format!("{AUDIENCE}/{path}: has {cut} bytes, expected {}", whole.len());
        bench.rejects(
            &candidate,
            &Damage::new(format!("cut at {cut}"), "truncated", words).file(&path, &whole[..cut]),
        );
        // The same with a matching `CURRENT`.
        let words = "is not valid in version 1 of the format: ";
        let damage = Damage::new(format!("vouched cut at {cut}"), "format", words);
        if cut < whole.len() - 1 {
            bench.rejects(&candidate, &damage.manifest(&candidate, whole[..cut].to_vec()));
        }
    }
    bench.accepts(&candidate, "cuts");
}

#[test]
fn manifest_that_does_not_match_current_is_rejected() {
    Bench::new().survives_each(|candidate| {
        let (path, whole) =
            (candidate.manifest_path(), candidate.sound[&candidate.manifest_path()].clone());
        let before =
            candidate.sound[&format!("manifests/{}.json", candidate.generation() - 1)].clone();
        let mut flipped = whole.clone();
        flipped[20] ^= 1;
        let sizes = format!(": has {} bytes, expected {}", whole.len() + 1, whole.len());
        let other_generation = format!(
            "generation is {}, expected {}",
            candidate.generation() - 1,
            candidate.generation()
        );
        let large = vec![b' '; (4 << 20) + 1];
        vec![
            Damage::new("a byte too many", "truncated", sizes)
                .file(&path, [&whole[..], b" "].concat()),
            Damage::new("missing", "not_found", format!("{AUDIENCE}/{path} does not exist"))
                .deleted(&path),
            Damage::new("a bit", "digest", format!("{AUDIENCE}/{path}: digest is "))
                .file(&path, flipped),
            Damage::new("too large", "too_large", "the manifest is ").file(&path, large),
            Damage::new("another generation's", "format", other_generation)
                .manifest(candidate, before),
            Damage::new("not JSON", "format", "is not valid in version 1 of the format: ")
                .manifest(candidate, b"<!DOCTYPE html>".to_vec()),
            Damage::new("a list", "format", "is not valid in version 1 of the format: ")
                .manifest(candidate, b"[]".to_vec()),
            Damage::new("nested deep", "format", "is not valid in version 1 of the format: ")
                .manifest(candidate, [b'['; 100_000].to_vec()),
        ]
    });
}

#[test]
fn invalid_manifest_fields_are_rejected_by_name() {
    let digest = "expected 64 lower-case hex digits";
    let changes: Vec<(&str, Change, &str)> = vec![
        (
            "another audience",
            |m| m["audience"] = "other".into(),
            "audience is other, expected old_users",
        ),
        (
            "a path as audience",
            |m| m["audience"] = "../x".into(),
            "audience name \"../x\": expected 1 to 64",
        ),
        (
            "format",
            |m| m["format"] = "rtad-current".into(),
            "format is \"rtad-current\", expected \"rtad-snapshot\"",
        ),
        (
            "a later version",
            |m| m["version"] = 2.into(),
            "version is 2, this rtad reads version 1: upgrade rtad",
        ),
        (
            "a later version with other fields",
            |m| *m = serde_json::json!({"format": "rtad-snapshot", "version": 7, "shape": {}}),
            "version is 7, this rtad reads version 1: upgrade rtad",
        ),
        (
            "an unknown filter",
            |m| m["filter"]["kind"] = "cuckoo".into(),
            "filter kind is \"cuckoo\", this rtad knows block512 and ribbon: upgrade rtad",
        ),
        ("hashes", |m| m["filter"]["hashes"] = 11.into(), ": filter: "),
        (
            "millibits",
            |m| m["filter"]["millibits_per_key"] = 4_000_000_000_u32.into(),
            ": filter: ",
        ),
        (
            "a rate",
            |m| m["filter"]["expected_fpr"] = 1.5.into(),
            "filter.expected_fpr is 1.5, expected 0 to 1",
        ),
        ("an unknown field", |m| m["new"] = 1.into(), "unknown field `new`"),
        ("a path up", |m| m["chunks"][0]["digest"] = "../../../../etc/passwd".into(), digest),
        ("an absolute path", |m| m["chunks"][0]["digest"] = "/etc/passwd".into(), digest),
        (
            "a long path",
            |m| m["chunks"][0]["digest"] = format!("../{}", "a".repeat(61)).into(),
            digest,
        ),
        (
            "upper-case digest",
            |m| {
                let upper = m["chunks"][0]["digest"].as_str().unwrap().to_uppercase();
                m["chunks"][0]["digest"] = upper.into();
            },
            digest,
        ),
        (
            "keys of all",
            |m| m["keys"] = 1.into(),
            "keys is 1, expected 600, the sum over its chunks",
        ),
        (
            "bytes of all",
            |m| m["size_bytes"] = u64::MAX.into(),
            "size_bytes is 18446744073709551615, expected ",
        ),
        (
            "a negative size",
            |m| m["size_bytes"] = (-1).into(),
            "is not valid in version 1 of the format: ",
        ),
        (
            "a chunk of all bytes there are",
            |m| m["chunks"][0]["size_bytes"] = u64::MAX.into(),
            "size_bytes is ",
        ),
        (
            "sums that wrap around",
            |m| {
                let size = m["chunks"][1]["size_bytes"].as_u64().unwrap();
                m["chunks"][0]["size_bytes"] = u64::MAX.into();
                m["size_bytes"] = (size - 1).into();
            },
            ", the sum over its chunks",
        ),
        (
            "a tiny chunk",
            |m| m["chunks"][0]["size_bytes"] = 64.into(),
            "chunks[0].size_bytes is 64, expected at least 136",
        ),
        (
            "no keys",
            |m| m["chunks"][0]["keys"] = 0.into(),
            "chunks[0].keys is 0, expected at least 1",
        ),
        (
            "overlap",
            |m| m["chunks"][1]["first_shard"] = 5.into(),
            "chunks[1].first_shard is 5, expected 10 to 65535",
        ),
        (
            "a shard too far",
            |m| m["chunks"][1]["first_shard"] = 65_536.into(),
            "chunks[1].first_shard is 65536, expected 10 to 65535",
        ),
        (
            "shards too many",
            |m| m["chunks"][1]["shard_count"] = u32::MAX.into(),
            "chunks[1].shard_count is 4294967295, expected 1 to 61440",
        ),
        (
            "no shards",
            |m| m["chunks"][1]["shard_count"] = 0.into(),
            "chunks[1].shard_count is 0, expected 1 to 61440",
        ),
        (
            "out of order",
            |m| m["chunks"].as_array_mut().unwrap().reverse(),
            "chunks[1].first_shard is 0, expected 4106 to 65535",
        ),
    ];
    Bench::new().survives_each(|candidate| {
        let damage = |(name, change, words): &(&str, Change, &str)| {
            let mut json = candidate.manifest_json();
            change(&mut json);
            Damage::new(*name, "format", *words).manifest(candidate, json.to_string().into_bytes())
        };
        changes.iter().map(damage).collect()
    });
}

#[test]
fn false_sizes_allocate_no_memory() {
    // Consistent: only the limit and the file itself contradict it.
    Bench::new().survives_each(|candidate| {
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
            Damage::new("all bytes there are", "too_large", limit)
                .manifest(candidate, claim(u64::MAX)),
            Damage::new("8 GiB", "truncated", format!(": has {real} bytes, expected 8589"))
                .manifest(candidate, claim(8 << 30)),
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
    assert_eq!(bench.server.last_sync(AUDIENCE), ("too_large".to_owned(), error));
    assert_eq!(bench.server.sync_count(AUDIENCE, "too_large"), 1);
    bench.assert_serves(1, "too large");
    let candidate = bench.publish();
    bench.accepts(&candidate, "one that fits");
}
