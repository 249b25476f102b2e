//! Rejected `CURRENT` files.

use super::manifests::{assert_fields_rejected, set};
use super::*;

fn current() -> Value {
    serde_json::from_slice(&Current::new(9, 7, b"manifest", None).to_bytes()).unwrap()
}

fn parse(value: &Value) -> Result<Current, Box<ManifestError>> {
    Current::parse(&serde_json::to_vec(value).unwrap()).map_err(Box::new)
}

#[test]
fn invalid_fields_are_rejected_by_name() {
    let cases = r#"
/format "rtad-snapshot" => Format: format is "rtad-snapshot", expected "rtad-current"
/format - => Json: ~ missing field `format`
/version 2 => Version: version is 2, this rtad reads version 1: upgrade rtad
/version -1 => Json: ~ invalid value: integer `-1`
/sequence 0 => Field: sequence is 0, expected at least 1
/sequence -1 => Json: ~ invalid value: integer `-1`
/sequence 1e30 => Json: ~ invalid type: floating point `1e+30`
/sequence - => Json: ~ missing field `sequence`
/generation 0 => Field: generation is 0, expected at least 1
/generation "7" => Json: ~ invalid type: string "7"
/generation "../1" => Json: ~ invalid type: string "../1"
/manifest_size_bytes 18446744073709551615 => TooLarge: the manifest is 18446744073709551615 bytes
/manifest_size_bytes 4194305 => TooLarge: the manifest is 4194305 bytes, the limit
/manifest_sha256 "" => Json: ~ digest "
/manifest_sha256 "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" => Json: ~ digest "
/manifest_sha256 "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff" => Json: ~ digest "
/manifest_sha256 "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF" => Json: ~ digest "
/manifest_sha256 "éééééééééééééééééééééééééééééééé" => Json: ~ digest "
/manifest_sha256 [0, 0, 0, 0] => Json: ~ invalid type: sequence
/rolled_back_from 7 => Field: rolled_back_from is 7, expected more than the
/rolled_back_from 6 => Field: rolled_back_from is 6, expected more than the
/rolled_back_from 0 => Field: rolled_back_from is 0, expected more than the
/rolled_back_to 6 => Json: ~ unknown field `rolled_back_to`
"#;
    assert_fields_rejected(cases, |pointer, value| {
        let mut current = current();
        set(&mut current, pointer, value);
        parse(&current)
    });
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
        assert_rejected(
            read,
            &format!("{len} of {} bytes", bytes.len()),
            "Json",
            message,
        );
    }
    assert_eq!(
        Current::parse(&bytes[..bytes.len() - 1])
            .unwrap()
            .rolled_back_from,
        Some(8)
    );
}

#[test]
fn current_has_at_most_4096_bytes() {
    let mut bytes = Current::new(9, 7, b"manifest", None).to_bytes();
    bytes.resize(4096, b' ');
    Current::parse(&bytes).unwrap();
    bytes.push(b' ');
    let read = Current::parse(&bytes).map_err(Box::new);
    assert_rejected(
        read,
        "4097 bytes",
        "TooLarge",
        "CURRENT is 4097 bytes, the limit is 4096",
    );
    let nested = vec![b'['; 4096];
    assert_rejected(
        Current::parse(&nested).map_err(Box::new),
        "nested",
        "Json",
        "is not valid in version 1",
    );
}
