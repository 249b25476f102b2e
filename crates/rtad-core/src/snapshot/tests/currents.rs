//! Rejected records.

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
/format "rtad-snapshot" => Format: format is "rtad-snapshot", expected "rtad-record"
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
/kept [{"generation":7,"manifest_size_bytes":1,"manifest_sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}] => Field: kept[0].generation is 7, expected more than 0, not the live 7
/kept [{"generation":0,"manifest_size_bytes":1,"manifest_sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}] => Field: kept[0].generation is 0, expected at least 1
/kept [{"generation":6}] => Json: ~ missing field `manifest_size_bytes`
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
    let later = json!({ "format": "rtad-record", "version": 2, "live": [1, 2], "sequence": "abc" });
    assert_rejected(
        parse(&later),
        "later",
        "Version",
        "version is 2, this rtad reads version 1: upgrade rtad",
    );
}

#[test]
fn truncated_record_is_rejected() {
    let bytes = Current::new(9, 7, b"manifest", Some(8)).to_bytes();
    for len in 0..bytes.len() {
        let read = Current::parse(&bytes[..len]).map_err(Box::new);
        let message = "is not valid in version 1 of the format: EOF while parsing";
        assert_rejected(
            read,
            &format!("{len} of {} bytes", bytes.len()),
            "Json",
            message,
        );
    }
    assert_eq!(Current::parse(&bytes).unwrap().rolled_back_from, Some(8));
}

#[test]
fn record_has_at_most_64_kib() {
    let mut bytes = Current::new(9, 7, b"manifest", None).to_bytes();
    bytes.resize(64 << 10, b' ');
    Current::parse(&bytes).unwrap();
    bytes.push(b' ');
    let read = Current::parse(&bytes).map_err(Box::new);
    assert_rejected(
        read,
        "65537 bytes",
        "TooLarge",
        "the record is 65537 bytes, the limit is 65536",
    );
    let nested = vec![b'['; 64 << 10];
    assert_rejected(
        Current::parse(&nested).map_err(Box::new),
        "nested",
        "Json",
        "is not valid in version 1",
    );
}
