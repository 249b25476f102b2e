//! Verification of keys and signatures of the reference implementation (`tests/minisign/`). The
//! loader's tests check the reverse.

use super::*;
use crate::testing::Key;
use crate::write::Sign as _;

const SIGNED: &[u8] = include_bytes!("../../../../tests/minisign/1.json");
const SIGNATURE: &str = include_str!("../../../../tests/minisign/1.json.minisig");
const LEGACY: &str = include_str!("../../../../tests/minisign/legacy.minisig");
const ELSEWHERE: &str = include_str!("../../../../tests/minisign/elsewhere.minisig");
const BY_B: &str = include_str!("../../../../tests/minisign/by-b.minisig");
const A: &str = include_str!("../../../../tests/minisign/a.pub");
const B: &str = include_str!("../../../../tests/minisign/b.pub");
const SECRET: &str = include_str!("../../../../tests/minisign/a.key");

fn trust(keys: &[&str]) -> Trust {
    Trust::new(PublicKey::all_of(&keys.concat()).unwrap())
}

fn check(trust: &Trust, bytes: &[u8], signature: &str) -> Result<(), SignatureError> {
    trust.check(&golden(), bytes, Some(signature.as_bytes()))
}

/// The path for which the file was signed.
fn golden() -> Path {
    Path::from("golden/manifests/1.json")
}

#[test]
fn signatures_of_the_reference_implementation_are_accepted() {
    assert_eq!(check(&trust(&[A]), SIGNED, SIGNATURE), Ok(()));
    assert_eq!(check(&trust(&[B, A]), SIGNED, SIGNATURE), Ok(()));
    assert_eq!(check(&trust(&[A, B]), SIGNED, BY_B), Ok(()));
    // Windows line ends are accepted.
    assert_eq!(
        check(
            &trust(&[&A.replace('\n', "\r\n")]),
            SIGNED,
            &SIGNATURE.replace('\n', "\r\n")
        ),
        Ok(())
    );
}

#[test]
fn each_fault_has_its_error() {
    let a = trust(&[A]);
    let mut changed = SIGNED.to_vec();
    changed[100] ^= 1;
    let comment = SIGNATURE.replace(
        "rtad golden/manifests/1.json",
        "rtad golden/manifests/2.json",
    );
    let wrong_path = SignatureError::WrongPath {
        found: "timestamp:1763722800\tfile:1.json\thashed".to_owned(),
        expected: "rtad golden/manifests/1.json".to_owned(),
    };
    for (bytes, signature, expected) in [
        (&*changed, SIGNATURE, SignatureError::Invalid),
        (&[], SIGNATURE, SignatureError::Invalid),
        (SIGNED, &comment, SignatureError::Invalid),
        (SIGNED, LEGACY, SignatureError::Legacy),
        (SIGNED, BY_B, SignatureError::UnknownKey),
        (SIGNED, ELSEWHERE, wrong_path),
        (SIGNED, "", SignatureError::Malformed),
        (
            SIGNED,
            "<html><body>not found</body></html>",
            SignatureError::Malformed,
        ),
        (SIGNED, A, SignatureError::Malformed),
        (
            SIGNED,
            "\u{e9}\n\u{e9}\n\u{e9}\n\u{e9}",
            SignatureError::Malformed,
        ),
    ] {
        assert_eq!(check(&a, bytes, signature), Err(expected), "{signature:?}");
    }
    let binary = [0xff; 300];
    for (signature, expected) in [
        (None, SignatureError::Missing),
        (Some(&binary[..]), SignatureError::Malformed),
    ] {
        assert_eq!(a.check(&golden(), SIGNED, signature), Err(expected));
    }
    assert_eq!(Trust::default().check(&golden(), SIGNED, None), Ok(()));
}

#[test]
fn signature_is_valid_for_one_path() {
    let key = Key::new();
    let trust = Trust::new([key.public.clone()]);
    let signature = key.sign(b"bytes", "rtad a/records/7.json").unwrap();
    let signature = Some(signature.as_bytes());
    let own = Path::from("a/records/7.json");
    assert_eq!(trust.check(&own, b"bytes", signature), Ok(()));
    for path in [
        "a/records/8.json",
        "a/records/70.json",
        "b/records/7.json",
        "aa/records/7.json",
    ] {
        let checked = trust.check(&Path::from(path), b"bytes", signature);
        assert!(
            matches!(checked, Err(SignatureError::WrongPath { .. })),
            "{path}: {checked:?}"
        );
    }
}

/// Flips bits in the signature and the file.
#[test]
fn changed_bytes_are_refused_except_unsigned_ones() {
    let a = trust(&[A]);
    let not_signed = SIGNATURE.find('\n').unwrap();
    for index in 0..SIGNATURE.len() {
        for flip in [1, 4, 0x20, 0x80] {
            let mut bytes = SIGNATURE.as_bytes().to_vec();
            bytes[index] ^= flip;
            let checked = a.check(&golden(), SIGNED, Some(&bytes));
            let is_padding = SIGNATURE.as_bytes()[index..]
                .iter()
                .all(|byte| b"=\n".contains(byte));
            assert!(
                checked.is_err() || index < not_signed || is_padding,
                "byte {index} by {flip}"
            );
        }
        assert!(check(&a, SIGNED, &SIGNATURE[..index]).is_err() || index + 1 == SIGNATURE.len());
    }
    for index in (0..SIGNED.len()).step_by(7) {
        let mut bytes = SIGNED.to_vec();
        bytes[index] ^= 1;
        assert_eq!(check(&a, &bytes, SIGNATURE), Err(SignatureError::Invalid));
    }
}

#[test]
fn keys_are_read_from_text_and_files_and_empty_input_fails() {
    let alone = A.lines().nth(1).unwrap();
    let key: PublicKey = alone.parse().unwrap();
    assert_eq!(
        (key.to_string(), format!("{key:?}")),
        (alone.to_owned(), format!("PublicKey({alone})"))
    );
    let text = format!("# the first\n{A}\n\n  {}  \n", B.lines().nth(1).unwrap());
    assert_eq!(PublicKey::all_of(&text).unwrap().len(), 2);
    let empty = "untrusted comment: minisign public key\n# nothing\n";
    let cut = &alone[..55];
    let spoiled = alone.replace("RW", "RX");
    for text in [
        "",
        empty,
        SECRET,
        SIGNATURE,
        "/etc/rtad/key.pub",
        cut,
        &spoiled,
        &format!("{A}x"),
    ] {
        let error = PublicKey::all_of(text).unwrap_err();
        assert_eq!(error, PublicKeyError, "{text:?}");
        assert!(!SECRET.contains(&error.to_string()));
    }
}
