//! Rejected manifests.

use super::*;

const ABSENT: Value = Value::Null;

/// Sets the value at a JSON pointer; [`ABSENT`] removes the field.
pub fn set(file: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = file.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(fields), ABSENT) => drop(fields.remove(field).unwrap()),
        (Value::Object(fields), value) => drop(fields.insert(field.to_owned(), value)),
        (parent, value) => *parent.pointer_mut(&format!("/{field}")).unwrap() = value,
    }
}

/// Changes fields of a file: a pointer and a value, `-` to remove the field, then the variant and
/// the start of the message, where `~` stands for the message of invalid JSON.
pub fn assert_fields_rejected<T, E: Error + ?Sized>(
    cases: &str,
    read: impl Fn(&str, Value) -> Result<T, Box<E>>,
) {
    for case in cases.trim().lines() {
        let (change, expected) = case.split_once(" => ").unwrap();
        let (pointer, value) = change.split_once(' ').unwrap();
        let value = if value == "-" {
            ABSENT
        } else {
            serde_json::from_str(value).unwrap()
        };
        let (variant, message) = expected.split_once(": ").unwrap();
        let message = message.replace("~ ", "is not valid in version 1 of the format: ");
        assert_rejected(read(pointer, value), case, variant, &message);
    }
}

#[test]
fn invalid_fields_are_rejected_by_name() {
    let read = |pointer: &str, value: Value| {
        let mut files = Files::new(FilterKind::Block512);
        set(&mut files.manifest, pointer, value);
        files.read()
    };
    let cases = r#"
/format "rtad-current" => Format: format is "rtad-current", expected "rtad-snapshot"
/format 1 => Json: ~ invalid type: integer `1`
/format - => Json: ~ missing field `format`
/version 0 => Version: version is 0, this rtad reads version 1: upgrade rtad
/version 2 => Version: version is 2, this rtad reads version 1: upgrade rtad
/version 4294967295 => Version: version is 4294967295
/version "1" => Json: ~ invalid type: string "1"
/version 1.0 => Json: ~ invalid type: floating point `1.0`
/version - => Json: ~ missing field `version`
/audience "others" => Field: audience is others, expected old_users
/audience "../old_users" => Json: ~ audience name "../old_users"
/audience "" => Json: ~ audience name ""
/audience "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" => Json: ~ audience name "aaa
/generation 6 => Field: generation is 6, expected 7
/generation 0 => Field: generation is 0, expected 7
/generation -7 => Json: ~ invalid value: integer `-7`
/generation 7.5 => Json: ~ invalid type: floating point `7.5`
/base_generation 7 => Field: base_generation is 7, expected less than generation, 7
/base_generation -1 => Json: ~ invalid value: integer `-1`
/keys 401 => Field: keys is 401, expected 400, the sum over its chunks
/keys 0 => Field: keys is 0, expected 400
/keys 18446744073709551615 => Field: keys is 18446744073709551615, expected 400
/size_bytes 18446744073709551615 => Field: size_bytes is 18446744073709551615, expected
/size_bytes - => Json: ~ missing field `size_bytes`
/created_unix_seconds "now" => Json: ~ invalid type: string "now"
/from_window true => Json: ~ invalid type: boolean `true`
/from_window "" => Json: ~ audience name ""
/path "/etc/passwd" => Json: ~ unknown field `path`
/filter/seed 1 => Json: ~ unknown field `seed`
/filter/fill_ratio/median 0.5 => Json: ~ unknown field `median`
/build/host "h" => Json: ~ unknown field `host`
/build/overlap 1.1 => Field: build.overlap is 1.1, expected 0 to 1
/build/overlap "0.5" => Json: ~ invalid type: string "0.5"
/build/recent_keys [1, 2, 3, 4, 5, 6, 7] => Field: build.recent_keys is 7, expected at most 6
/build/recent_keys [-1] => Json: ~ invalid value: integer `-1`
/chunks/0/path "/etc/passwd" => Json: ~ unknown field `path`
/filter - => Json: ~ missing field `filter`
/expires_unix_seconds 0 => Field: expires_unix_seconds is 0, expected more than created
/expires_unix_seconds -1 => Json: ~ invalid value: integer `-1`
/expires_unix_seconds "72h" => Json: ~ invalid type: string "72h"
/filter/kind "xor8" => FilterKind: filter kind is "xor8", this rtad knows
/filter/kind "Ribbon" => FilterKind: filter kind is "Ribbon"
/filter/hashes 0 => Filter: filter: hashes of a block512 filter is 0, expected 1 to 10
/filter/hashes 11 => Filter: filter: hashes of a block512 filter is 11
/filter/hashes 4000000000 => Filter: filter: hashes of a block512 filter is 4000000000
/filter/hashes 4e9 => Json: ~ invalid type: floating point `4000000000.0`
/filter/hashes 4294967296 => Json: ~ invalid value: integer `4294967296`
/filter/millibits_per_key 999 => Filter: filter: millibits per key is 999
/filter/millibits_per_key 1000001 => Filter: filter: millibits per key is 1000001
/filter/target_fpr -0.001 => Field: filter.target_fpr is -0.001, expected 0 to 1
/filter/target_fpr "NaN" => Json: ~ invalid type: string "NaN"
/filter/expected_fpr 1.000001 => Field: filter.expected_fpr is 1.000001, expected 0
/filter/expected_fpr 1e300 => Field: filter.expected_fpr is 1000000000
/filter/fill_ratio/min -1 => Field: filter.fill_ratio.min is -1, expected 0 to 1
/filter/fill_ratio/mean 2 => Field: filter.fill_ratio.mean is 2, expected 0 to 1
/filter/fill_ratio/max 1.5 => Field: filter.fill_ratio.max is 1.5, expected 0 to 1
/chunks {} => Json: ~ invalid type: map, expected a sequence
/chunks [] => Field: keys is 400, expected 0, the sum over its chunks
/chunks/0 "x" => Json: ~ invalid type: string "x"
/chunks/0/digest "../../etc/passwd" => Json: ~ digest "
/chunks/0/digest "../00000000000000000000000000000000000000000000000000000000000ff" => Json: ~ digest "
/chunks/0/digest "0000000000000000000000000000000000000000000000000000000000000ff" => Json: ~ digest "
/chunks/0/digest "00000000000000000000000000000000000000000000000000000000000000ff0" => Json: ~ digest "
/chunks/0/digest "00000000000000000000000000000000000000000000000000000000000000FF" => Json: ~ digest "
/chunks/0/digest "0x000000000000000000000000000000000000000000000000000000000000ff" => Json: ~ digest "
/chunks/0/digest "" => Json: ~ digest "
/chunks/1/first_shard 0 => Field: chunks[1].first_shard is 0, expected 8 to 65535
/chunks/1/first_shard 7 => Field: chunks[1].first_shard is 7, expected 8 to 65535
/chunks/1/first_shard 65536 => Field: chunks[1].first_shard is 65536, expected 8
/chunks/1/first_shard 4294967295 => Field: chunks[1].first_shard is 4294967295
/chunks/1/first_shard 65530 => Field: chunks[1].shard_count is 8, expected 1 to 6
/chunks/0/first_shard 30000 => Field: chunks[1].first_shard is 28672, expected 30008
/chunks/0/shard_count 0 => Field: chunks[0].shard_count is 0, expected 1 to 65536
/chunks/0/shard_count 65537 => Field: chunks[0].shard_count is 65537
/chunks/0/shard_count 4294967295 => Field: chunks[0].shard_count is 4294967295
/chunks/0/shard_count 28673 => Field: chunks[0].size_bytes is
/chunks/0/keys 0 => Field: chunks[0].keys is 0, expected at least 1
/chunks/0/keys 18446744073709551615 => Field: keys is 400, expected 1844674407370955
/chunks/0/size_bytes 0 => Field: chunks[0].size_bytes is 0, expected at least 136
/chunks/0/size_bytes 135 => Field: chunks[0].size_bytes is 135, expected at
/chunks/0/size_bytes 18446744073709551615 => Field: size_bytes is
"#;
    assert_fields_rejected(cases, read);
    let long = json!("x".repeat(5000));
    let message = format!("format is \"{}\", expected", "x".repeat(40));
    assert_rejected(read("/format", long.clone()), "format", "Format", &message);
    let message = format!("filter kind is \"{}\",", "x".repeat(40));
    assert_rejected(read("/filter/kind", long), "kind", "FilterKind", &message);
}

#[test]
fn expiry_is_preserved_and_null_is_rejected() {
    let manifest = build(&spec(FilterKind::Block512), 7, &keys("member", 100)).0;
    assert!(!manifest.is_expired(u64::MAX));

    let expires = manifest.created_unix_seconds() + 1;
    let expiring_at = |expires| {
        let facts = GenerationFacts {
            expires_unix_seconds: Some(expires),
            ..facts()
        };
        ManifestBuilder::new(spec(FilterKind::Block512), 0.001).finish(audience(), facts)
    };
    assert!(expiring_at(expires - 1).is_err());
    let manifest = expiring_at(expires).unwrap().numbered(7);
    let bytes = manifest.to_bytes();
    let read = Manifest::parse(&bytes, &audience(), 7).unwrap();
    assert_eq!(
        (&read, read.expires_unix_seconds()),
        (&manifest, Some(expires))
    );
    assert_eq!(
        [expires - 1, expires, u64::MAX].map(|now| read.is_expired(now)),
        [false, true, true]
    );

    let text = String::from_utf8(bytes).unwrap();
    let null = text.replace(
        &format!("\"expires_unix_seconds\": {expires}"),
        "\"expires_unix_seconds\": null",
    );
    assert_ne!(null, text);
    assert!(matches!(
        Manifest::parse(null.as_bytes(), &audience(), 7),
        Err(ManifestError::Json { .. })
    ));
}

#[test]
fn totals_beyond_64_bits_are_rejected() {
    // Saturating u64 sums would match each of these totals.
    for field in ["keys", "size_bytes"] {
        let mut files = Files::new(FilterKind::Block512);
        files.manifest["chunks"][0][field] = json!(u64::MAX);
        files.manifest[field] = json!(u64::MAX);
        assert_rejected(
            files.read(),
            field,
            "Field",
            &format!("{field} is 18446744073709551615, expected 184467440737095"),
        );
    }
}

#[test]
fn invalid_json_is_rejected() {
    let sound = String::from_utf8(Files::new(FilterKind::Block512).manifest_bytes()).unwrap();
    let json = "is not valid in version 1 of the format: ";
    let with = |from: &str, to: &str| {
        assert!(sound.contains(from), "{from}");
        sound.replacen(from, to, 1).into_bytes()
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "EOF while parsing"),
        ("a null", b"null".to_vec(), "invalid type: null"),
        (
            "not UTF-8",
            b"{\"format\":\"\xff\"}".to_vec(),
            "invalid unicode code point",
        ),
        (
            "two files",
            [sound.as_bytes(), sound.as_bytes()].concat(),
            "trailing characters",
        ),
        (
            "a field twice",
            with("\"generation\":7", "\"generation\":7,\"generation\":7"),
            "duplicate field `generation`",
        ),
        (
            "the version twice",
            with("\"version\":1", "\"version\":1,\"version\":1"),
            "duplicate field `version`",
        ),
        (
            "NaN",
            with("\"target_fpr\":0.001", "\"target_fpr\":NaN"),
            "expected value",
        ),
        (
            "infinity",
            with("\"target_fpr\":0.001", "\"target_fpr\":1e999"),
            "number out of range",
        ),
        ("deep lists", vec![b'['; 100_000], "invalid type: sequence"),
        ("deep lists in a field", deep("[", ""), "expected value"),
        (
            "deep lists that end",
            deep("[", "]"),
            "invalid type: sequence",
        ),
        (
            "deep objects in a field",
            deep("{\"a\":", ""),
            "expected value",
        ),
    ];
    for (case, bytes, message) in cases {
        let parsed = Manifest::parse(&bytes, &audience(), 7).map_err(Box::new);
        assert_rejected(parsed, case, "Json", json);
        let parsed = Manifest::parse(&bytes, &audience(), 7).unwrap_err();
        assert!(
            describe(&parsed).1.contains(message),
            "{case}: {:?}",
            describe(&parsed)
        );
    }
}

/// A manifest with its audience nested 100,000 levels deep, to overflow the stack.
fn deep(open: &str, close: &str) -> Vec<u8> {
    let (open, close) = (open.repeat(100_000), close.repeat(100_000));
    format!("{{\"format\":\"rtad-snapshot\",\"version\":1,\"audience\":{open}{close}}}")
        .into_bytes()
}

#[test]
fn manifest_size_must_match_the_record_and_stay_within_4_mib() {
    let manifest = Files::new(FilterKind::Block512).manifest_bytes();
    let entry = GenerationEntry::of(7, &manifest);
    for len in 0..manifest.len() {
        let case = format!("{len} of {} bytes", manifest.len());
        let cut = &manifest[..len];
        let read = Manifest::parse_named(cut, &audience(), &entry).map_err(Box::new);
        assert_rejected(
            read,
            &case,
            "Length",
            &format!("has {len} bytes, expected {}", manifest.len()),
        );
        let repaired = GenerationEntry::of(7, cut);
        let read = Manifest::parse_named(cut, &audience(), &repaired).map_err(Box::new);
        assert_rejected(
            read,
            &case,
            "Json",
            "is not valid in version 1 of the format: ",
        );
    }
    for offset in 0..manifest.len() {
        let mut changed = manifest.clone();
        changed[offset] ^= 1;
        let read = Manifest::parse_named(&changed, &audience(), &entry).map_err(Box::new);
        assert_rejected(read, &format!("byte {offset}"), "Digest", "digest is ");
    }
    let mut padded = manifest;
    padded.resize(5 << 20, b' ');
    let read = Manifest::parse(&padded, &audience(), 7).map_err(Box::new);
    assert_rejected(
        read,
        "5 MiB",
        "TooLarge",
        "the manifest is 5242880 bytes, the limit is 4194304",
    );
    padded.truncate(4 << 20);
    Manifest::parse(&padded, &audience(), 7).unwrap();
}

#[test]
fn manifest_of_another_audience_or_generation_is_rejected() {
    let manifest = Files::new(FilterKind::Block512).manifest_bytes();
    let other = "others".parse().unwrap();
    let read = Manifest::parse(&manifest, &other, 7).map_err(Box::new);
    assert_rejected(
        read,
        "audience",
        "Field",
        "audience is old_users, expected others",
    );
    let read = Manifest::parse(&manifest, &audience(), 8).map_err(Box::new);
    assert_rejected(read, "generation", "Field", "generation is 7, expected 8");
    let entry = GenerationEntry::of(8, &manifest);
    let read = Manifest::parse_named(&manifest, &audience(), &entry);
    assert_rejected(
        read.map_err(Box::new),
        "the record's generation",
        "Field",
        "generation is 7, expected 8",
    );
}

#[test]
fn errors_map_to_their_fault() {
    let manifest = Files::new(FilterKind::Block512).manifest_bytes();
    let entry = GenerationEntry::of(7, &manifest);
    let fault = |bytes: &[u8]| {
        Manifest::parse_named(bytes, &audience(), &entry)
            .unwrap_err()
            .fault()
            .as_str()
    };
    assert_eq!(fault(&manifest[1..]), "truncated");
    assert_eq!(fault(&vec![b' '; manifest.len()]), "digest");
    assert_eq!(
        Manifest::parse(b"{}", &audience(), 7)
            .unwrap_err()
            .fault()
            .as_str(),
        "format"
    );
    let large = vec![b' '; 5 << 20];
    assert_eq!(
        Manifest::parse(&large, &audience(), 7)
            .unwrap_err()
            .fault()
            .as_str(),
        "too_large"
    );
}

#[test]
fn audience_names_are_safe_as_directory_names() {
    for name in ["a", "0", "old_users", "a-b_c", &"z".repeat(64)] {
        assert_eq!(name.parse::<AudienceName>().unwrap().as_str(), name);
    }
    let long = "z".repeat(65);
    for name in [
        "", "-a", "_a", ".", "..", "a/b", "a\\b", "A", "é", "a b", "a#1", "a\0", "a\n", &long,
    ] {
        assert!(name.parse::<AudienceName>().is_err(), "{name:?}");
    }
}

#[test]
fn unknown_field_is_quoted_on_one_short_line() {
    let mut files = Files::new(FilterKind::Block512);
    files.manifest["a\nb"] = json!(1);
    let error = Manifest::parse(&files.manifest_bytes(), &audience(), 7)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unknown field `a\\nb`") && !error.contains('\n'),
        "{error}"
    );
    files.manifest.as_object_mut().unwrap().remove("a\nb");
    files.manifest["x".repeat(1 << 20)] = json!(1);
    let error = Manifest::parse(&files.manifest_bytes(), &audience(), 7)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unknown field `xxx") && error.len() < 1000,
        "{} bytes",
        error.len()
    );
}
