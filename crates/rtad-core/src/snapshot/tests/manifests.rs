//! Rejected manifests.

use super::*;

const ABSENT: Value = Value::Null;

/// A well-formed digest of no file.
const DIGEST: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

/// Sets the value at a JSON pointer; [`ABSENT`] removes the field.
pub(super) fn set(file: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = file.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(fields), ABSENT) => drop(fields.remove(field).unwrap()),
        (Value::Object(fields), value) => drop(fields.insert(field.to_owned(), value)),
        (parent, value) => *parent.pointer_mut(&format!("/{field}")).unwrap() = value,
    }
}

#[test]
fn invalid_fields_are_rejected_by_name() {
    let json = "is not valid in version 1 of the format: ";
    let json_message = |message: &str| format!("{json}{message}");
    let unknown = |field: &str| json_message(&format!("unknown field `{field}`"));
    let missing = |field: &str| json_message(&format!("missing field `{field}`"));
    let digest = json_message("digest \"");
    let cases: Vec<(&str, Value, &str, String)> = vec![
        (
            "/format",
            json!("rtad-current"),
            "Format",
            "format is \"rtad-current\", expected \"rtad-snapshot\"".into(),
        ),
        (
            "/format",
            json!("x".repeat(5000)),
            "Format",
            format!("format is \"{}\", expected", "x".repeat(40)),
        ),
        ("/format", json!(1), "Json", json_message("invalid type: integer `1`")),
        ("/format", ABSENT, "Json", missing("format")),
        (
            "/version",
            json!(0),
            "Version",
            "version is 0, this rtad reads version 1: upgrade rtad".into(),
        ),
        (
            "/version",
            json!(2),
            "Version",
            "version is 2, this rtad reads version 1: upgrade rtad".into(),
        ),
        ("/version", json!(u32::MAX), "Version", "version is 4294967295".into()),
        ("/version", json!("1"), "Json", json_message("invalid type: string \"1\"")),
        ("/version", json!(1.0), "Json", json_message("invalid type: floating point `1.0`")),
        ("/version", ABSENT, "Json", missing("version")),
        ("/audience", json!("others"), "Field", "audience is others, expected old_users".into()),
        (
            "/audience",
            json!("../old_users"),
            "Json",
            json_message("audience name \"../old_users\""),
        ),
        ("/audience", json!(""), "Json", json_message("audience name \"\"")),
        ("/audience", json!("a".repeat(65)), "Json", json_message("audience name \"aaa")),
        ("/generation", json!(6), "Field", "generation is 6, expected 7".into()),
        ("/generation", json!(0), "Field", "generation is 0, expected 7".into()),
        ("/generation", json!(-7), "Json", json_message("invalid value: integer `-7`")),
        ("/generation", json!(7.5), "Json", json_message("invalid type: floating point `7.5`")),
        ("/keys", json!(401), "Field", "keys is 401, expected 400, the sum over its chunks".into()),
        ("/keys", json!(0), "Field", "keys is 0, expected 400".into()),
        ("/keys", json!(u64::MAX), "Field", "keys is 18446744073709551615, expected 400".into()),
        (
            "/size_bytes",
            json!(u64::MAX),
            "Field",
            "size_bytes is 18446744073709551615, expected ".into(),
        ),
        ("/size_bytes", ABSENT, "Json", missing("size_bytes")),
        (
            "/created_unix_seconds",
            json!("now"),
            "Json",
            json_message("invalid type: string \"now\""),
        ),
        ("/path", json!("/etc/passwd"), "Json", unknown("path")),
        ("/filter/seed", json!(1), "Json", unknown("seed")),
        ("/filter/fill_ratio/median", json!(0.5), "Json", unknown("median")),
        ("/build/host", json!("h"), "Json", unknown("host")),
        ("/chunks/0/path", json!("/etc/passwd"), "Json", unknown("path")),
        ("/filter", ABSENT, "Json", missing("filter")),
        (
            "/expires_unix_seconds",
            json!(0),
            "Field",
            "expires_unix_seconds is 0, expected more than created".into(),
        ),
        ("/expires_unix_seconds", json!(-1), "Json", json_message("invalid value: integer `-1`")),
        (
            "/expires_unix_seconds",
            json!("72h"),
            "Json",
            json_message("invalid type: string \"72h\""),
        ),
        (
            "/filter/kind",
            json!("xor8"),
            "FilterKind",
            "filter kind is \"xor8\", this rtad knows".into(),
        ),
        ("/filter/kind", json!("Ribbon"), "FilterKind", "filter kind is \"Ribbon\"".into()),
        (
            "/filter/kind",
            json!("k".repeat(5000)),
            "FilterKind",
            format!("filter kind is \"{}\",", "k".repeat(40)),
        ),
        (
            "/filter/hashes",
            json!(0),
            "Filter",
            "filter: hashes of a block512 filter is 0, expected 1 to 10".into(),
        ),
        ("/filter/hashes", json!(11), "Filter", "filter: hashes of a block512 filter is 11".into()),
        (
            "/filter/hashes",
            json!(4_000_000_000_u32),
            "Filter",
            "filter: hashes of a block512 filter is 4000000000".into(),
        ),
        (
            "/filter/hashes",
            json!(4e9),
            "Json",
            json_message("invalid type: floating point `4000000000.0`"),
        ),
        (
            "/filter/hashes",
            json!(1_u64 << 32),
            "Json",
            json_message("invalid value: integer `4294967296`"),
        ),
        (
            "/filter/millibits_per_key",
            json!(999),
            "Filter",
            "filter: millibits per key is 999".into(),
        ),
        (
            "/filter/millibits_per_key",
            json!(1_000_001),
            "Filter",
            "filter: millibits per key is 1000001".into(),
        ),
        (
            "/filter/target_fpr",
            json!(-0.001),
            "Field",
            "filter.target_fpr is -0.001, expected 0 to 1".into(),
        ),
        ("/filter/target_fpr", json!("NaN"), "Json", json_message("invalid type: string \"NaN\"")),
        (
            "/filter/expected_fpr",
            json!(1.000001),
            "Field",
            "filter.expected_fpr is 1.000001, expected 0".into(),
        ),
        ("/filter/expected_fpr", json!(1e300), "Field", "filter.expected_fpr is 1000000000".into()),
        (
            "/filter/fill_ratio/min",
            json!(-1),
            "Field",
            "filter.fill_ratio.min is -1, expected 0 to 1".into(),
        ),
        (
            "/filter/fill_ratio/mean",
            json!(2),
            "Field",
            "filter.fill_ratio.mean is 2, expected 0 to 1".into(),
        ),
        (
            "/filter/fill_ratio/max",
            json!(1.5),
            "Field",
            "filter.fill_ratio.max is 1.5, expected 0 to 1".into(),
        ),
        ("/chunks", json!({}), "Json", json_message("invalid type: map, expected a sequence")),
        ("/chunks", json!([]), "Field", "keys is 400, expected 0, the sum over its chunks".into()),
        (
            "/filter/fill_ratio",
            json!([0.1, 0.2, 0.3]),
            "Json",
            json_message("invalid type: sequence"),
        ),
        ("/build", json!(["tool", 1, 2, 3]), "Json", json_message("invalid type: sequence")),
        (
            "/chunks/0",
            json!([DIGEST, 0, 8, 202, 1000]),
            "Json",
            json_message("invalid type: sequence"),
        ),
        ("/chunks/0", json!("x"), "Json", json_message("invalid type: string \"x\"")),
        ("/chunks/0/digest", json!("../../etc/passwd"), "Json", digest.clone()),
        ("/chunks/0/digest", json!(format!("../{}", &DIGEST[3..])), "Json", digest.clone()),
        ("/chunks/0/digest", json!(&DIGEST[1..]), "Json", digest.clone()),
        ("/chunks/0/digest", json!(format!("{DIGEST}0")), "Json", digest.clone()),
        ("/chunks/0/digest", json!(DIGEST.to_uppercase()), "Json", digest.clone()),
        ("/chunks/0/digest", json!(format!("0x{}", &DIGEST[2..])), "Json", digest.clone()),
        ("/chunks/0/digest", json!(""), "Json", digest),
        (
            "/chunks/1/first_shard",
            json!(0),
            "Field",
            "chunks[1].first_shard is 0, expected 8 to 65535".into(),
        ),
        (
            "/chunks/1/first_shard",
            json!(7),
            "Field",
            "chunks[1].first_shard is 7, expected 8 to 65535".into(),
        ),
        (
            "/chunks/1/first_shard",
            json!(65_536),
            "Field",
            "chunks[1].first_shard is 65536, expected 8".into(),
        ),
        (
            "/chunks/1/first_shard",
            json!(u32::MAX),
            "Field",
            "chunks[1].first_shard is 4294967295".into(),
        ),
        (
            "/chunks/1/first_shard",
            json!(65_530),
            "Field",
            "chunks[1].shard_count is 8, expected 1 to 6".into(),
        ),
        (
            "/chunks/0/first_shard",
            json!(30_000),
            "Field",
            "chunks[1].first_shard is 28672, expected 30008".into(),
        ),
        (
            "/chunks/0/shard_count",
            json!(0),
            "Field",
            "chunks[0].shard_count is 0, expected 1 to 65536".into(),
        ),
        ("/chunks/0/shard_count", json!(65_537), "Field", "chunks[0].shard_count is 65537".into()),
        (
            "/chunks/0/shard_count",
            json!(u32::MAX),
            "Field",
            "chunks[0].shard_count is 4294967295".into(),
        ),
        ("/chunks/0/shard_count", json!(28_673), "Field", "chunks[0].size_bytes is ".into()),
        ("/chunks/0/keys", json!(0), "Field", "chunks[0].keys is 0, expected at least 1".into()),
        (
            "/chunks/0/keys",
            json!(u64::MAX),
            "Field",
            "keys is 400, expected 1844674407370955".into(),
        ),
        (
            "/chunks/0/size_bytes",
            json!(0),
            "Field",
            "chunks[0].size_bytes is 0, expected at least 136".into(),
        ),
        (
            "/chunks/0/size_bytes",
            json!(135),
            "Field",
            "chunks[0].size_bytes is 135, expected at".into(),
        ),
        ("/chunks/0/size_bytes", json!(u64::MAX), "Field", "size_bytes is ".into()),
    ];
    for (pointer, value, variant, message) in cases {
        let mut files = Files::new(FilterKind::Block512);
        set(&mut files.manifest, pointer, value.clone());
        let case: String = format!("{pointer} = {value}").chars().take(100).collect();
        assert_rejected(files.read(), &case, variant, &message);
    }
}

#[test]
fn expiry_is_preserved_and_null_is_rejected() {
    let manifest = build(&spec(FilterKind::Block512), 7, &keys("member", 100)).0;
    let expires = manifest.created_unix_seconds() + 1;
    assert!(!manifest.is_expired(u64::MAX));
    let manifest = manifest.expiring_at(expires);
    let bytes = manifest.to_bytes();
    let read = Manifest::parse(&bytes, &audience(), 7).unwrap();
    assert_eq!((&read, read.expires_unix_seconds()), (&manifest, Some(expires)));
    assert_eq!(
        [expires - 1, expires, u64::MAX].map(|now| read.is_expired(now)),
        [false, true, true]
    );

    let text = String::from_utf8(bytes).unwrap();
    let null = text
        .replace(&format!("\"expires_unix_seconds\": {expires}"), "\"expires_unix_seconds\": null");
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
        ("not UTF-8", b"{\"format\":\"\xff\"}".to_vec(), "invalid unicode code point"),
        ("two files", [sound.as_bytes(), sound.as_bytes()].concat(), "trailing characters"),
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
        ("NaN", with("\"target_fpr\":0.001", "\"target_fpr\":NaN"), "expected value"),
        ("infinity", with("\"target_fpr\":0.001", "\"target_fpr\":1e999"), "number out of range"),
        ("deep lists", vec![b'['; 100_000], "invalid type: sequence"),
        ("deep lists in a field", deep("[", ""), "expected value"),
        ("deep lists that end", deep("[", "]"), "invalid type: sequence"),
        ("deep objects in a field", deep("{\"a\":", ""), "expected value"),
    ];
    for (case, bytes, message) in cases {
        let parsed = Manifest::parse(&bytes, &audience(), 7).map_err(Box::new);
        assert_rejected(parsed, case, "Json", json);
        let parsed = Manifest::parse(&bytes, &audience(), 7).unwrap_err();
        assert!(describe(&parsed).1.contains(message), "{case}: {:?}", describe(&parsed));
    }
}

/// A manifest with its audience nested 100,000 levels deep, to overflow the stack.
fn deep(open: &str, close: &str) -> Vec<u8> {
    let (open, close) = (open.repeat(100_000), close.repeat(100_000));
    format!("{{\"format\":\"rtad-snapshot\",\"version\":1,\"audience\":{open}{close}}}")
        .into_bytes()
}

#[test]
fn manifest_size_must_match_current_and_stay_within_4_mib() {
    let manifest = Files::new(FilterKind::Block512).manifest_bytes();
    let current = Current::new(1, 7, &manifest, None);
    for len in 0..manifest.len() {
        let case = format!("{len} of {} bytes", manifest.len());
        let cut = &manifest[..len];
        let read = Manifest::parse_named(cut, &audience(), &current).map_err(Box::new);
        assert_rejected(
            read,
            &case,
            "Length",
            &format!("has {len} bytes, expected {}", manifest.len()),
        );
        let repaired = Current::new(1, 7, cut, None);
        let read = Manifest::parse_named(cut, &audience(), &repaired).map_err(Box::new);
        assert_rejected(read, &case, "Json", "is not valid in version 1 of the format: ");
    }
    for offset in 0..manifest.len() {
        let mut changed = manifest.clone();
        changed[offset] ^= 1;
        let read = Manifest::parse_named(&changed, &audience(), &current).map_err(Box::new);
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
    assert_rejected(read, "audience", "Field", "audience is old_users, expected others");
    let read = Manifest::parse(&manifest, &audience(), 8).map_err(Box::new);
    assert_rejected(read, "generation", "Field", "generation is 7, expected 8");
    let read = Manifest::parse_named(&manifest, &audience(), &Current::new(1, 8, &manifest, None));
    assert_rejected(
        read.map_err(Box::new),
        "current's generation",
        "Field",
        "generation is 7, expected 8",
    );
}

#[test]
fn errors_map_to_their_fault() {
    let manifest = Files::new(FilterKind::Block512).manifest_bytes();
    let current = Current::new(1, 7, &manifest, None);
    let fault = |bytes: &[u8]| {
        Manifest::parse_named(bytes, &audience(), &current).unwrap_err().fault().as_str()
    };
    assert_eq!(fault(&manifest[1..]), "truncated");
    assert_eq!(fault(&vec![b' '; manifest.len()]), "digest");
    assert_eq!(Manifest::parse(b"{}", &audience(), 7).unwrap_err().fault().as_str(), "format");
    let large = vec![b' '; 5 << 20];
    assert_eq!(Manifest::parse(&large, &audience(), 7).unwrap_err().fault().as_str(), "too_large");
}

#[test]
fn audience_names_are_safe_as_directory_names() {
    for name in ["a", "0", "old_users", "a-b_c", &"z".repeat(64)] {
        assert_eq!(name.parse::<AudienceName>().unwrap().as_str(), name);
    }
    let long = "z".repeat(65);
    for name in
        ["", "-a", "_a", ".", "..", "a/b", "a\\b", "A", "é", "a b", "a#1", "a\0", "a\n", &long]
    {
        assert!(name.parse::<AudienceName>().is_err(), "{name:?}");
    }
}

#[test]
fn unknown_field_is_quoted_on_one_short_line() {
    let mut files = Files::new(FilterKind::Block512);
    files.manifest["a\nb"] = json!(1);
    let error = Manifest::parse(&files.manifest_bytes(), &audience(), 7).unwrap_err().to_string();
    assert!(error.contains("unknown field `a\\nb`") && !error.contains('\n'), "{error}");
    files.manifest.as_object_mut().unwrap().remove("a\nb");
    files.manifest["x".repeat(1 << 20)] = json!(1);
    let error = Manifest::parse(&files.manifest_bytes(), &audience(), 7).unwrap_err().to_string();
    assert!(error.contains("unknown field `xxx") && error.len() < 1000, "{} bytes", error.len());
}
