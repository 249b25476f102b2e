//! Rejected `CURRENT` files.

use super::manifests::set;
use super::*;

fn current() -> Value {
    serde_json::from_slice(&Current::new(9, 7, b"manifest", None).to_bytes()).unwrap()
}

fn parse(value: &Value) -> Result<Current, Box<ManifestError>> {
    Current::parse(&serde_json::to_vec(value).unwrap()).map_err(Box::new)
}

#[test]
fn invalid_fields_are_rejected_by_name() {
    let json_message =
        |message: &str| format!("is not valid in version 1 of the format: {message}");
    let digest = json_message("digest \"");
    let cases: Vec<(&str, Value, &str, String)> = vec![
        (
            "/format",
            json!("rtad-snapshot"),
            "Format",
            "format is \"rtad-snapshot\", expected \"rtad-current\"".into(),
        ),
        ("/format", Value::Null, "Json", json_message("missing field `format`")),
        (
            "/version",
            json!(2),
            "Version",
            "version is 2, this rtad reads version 1: upgrade rtad".into(),
        ),
        ("/version", json!(-1), "Json", json_message("invalid value: integer `-1`")),
        ("/sequence", json!(0), "Field", "sequence is 0, expected at least 1".into()),
        ("/sequence", json!(-1), "Json", json_message("invalid value: integer `-1`")),
        ("/sequence", json!(1e30), "Json", json_message("invalid type: floating point `1e+30`")),
        ("/sequence", Value::Null, "Json", json_message("missing field `sequence`")),
        ("/generation", json!(0), "Field", "generation is 0, expected at least 1".into()),
        ("/generation", json!("7"), "Json", json_message("invalid type: string \"7\"")),
        ("/generation", json!("../1"), "Json", json_message("invalid type: string \"../1\"")),
        (
            "/manifest_size_bytes",
            json!(u64::MAX),
            "TooLarge",
            "the manifest is 18446744073709551615 bytes".into(),
        ),
        (
            "/manifest_size_bytes",
            json!((4 << 20) + 1),
            "TooLarge",
            "the manifest is 4194305 bytes, the limit".into(),
        ),
        ("/manifest_sha256", json!(""), "Json", digest.clone()),
        ("/manifest_sha256", json!("f".repeat(63)), "Json", digest.clone()),
        ("/manifest_sha256", json!("f".repeat(65)), "Json", digest.clone()),
        ("/manifest_sha256", json!("F".repeat(64)), "Json", digest.clone()),
        ("/manifest_sha256", json!("é".repeat(32)), "Json", digest),
        ("/manifest_sha256", json!(vec![0; 32]), "Json", json_message("invalid type: sequence")),
        (
            "/rolled_back_from",
            json!(7),
            "Field",
            "rolled_back_from is 7, expected more than the".into(),
        ),
        (
            "/rolled_back_from",
            json!(6),
            "Field",
            "rolled_back_from is 6, expected more than the".into(),
        ),
        (
            "/rolled_back_from",
            json!(0),
            "Field",
            "rolled_back_from is 0, expected more than the".into(),
        ),
        ("/rolled_back_to", json!(6), "Json", json_message("unknown field `rolled_back_to`")),
    ];
    for (pointer, value, variant, message) in cases {
        let mut current = current();
        set(&mut current, pointer, value.clone());
        assert_rejected(parse(&current), &format!("{pointer} = {value}"), variant, &message);
    }
}

#[test]
fn newer_version_has_its_own_error() {
    let later =
        json!({ "format": "rtad-current", "version": 2, "live": [1, 2], "sequence": "abc" });
    assert_rejected(
        parse(&later),
        "later",
        "Version",
        "version is 2, this rtad reads version 1: upgrade rtad",
    );
}

#[test]
fn truncated_current_is_rejected() {
    let bytes = Current::new(9, 7, b"manifest", Some(8)).to_bytes();
    // Without its final newline, the file is still complete.
    for len in 0..bytes.len() - 1 {
        let read = Current::parse(&bytes[..len]).map_err(Box::new);
        let message = "is not valid in version 1 of the format: EOF while parsing";
        assert_rejected(read, &format!("{len} of {} bytes", bytes.len()), "Json", message);
    }
    assert_eq!(Current::parse(&bytes[..bytes.len() - 1]).unwrap().rolled_back_from, Some(8));
}

#[test]
fn current_has_at_most_4096_bytes() {
    let mut bytes = Current::new(9, 7, b"manifest", None).to_bytes();
    bytes.resize(4096, b' ');
    Current::parse(&bytes).unwrap();
    bytes.push(b' ');
    let read = Current::parse(&bytes).map_err(Box::new);
    assert_rejected(read, "4097 bytes", "TooLarge", "CURRENT is 4097 bytes, the limit is 4096");
    let nested = vec![b'['; 4096];
    assert_rejected(
        Current::parse(&nested).map_err(Box::new),
        "nested",
        "Json",
        "is not valid in version 1",
    );
}
