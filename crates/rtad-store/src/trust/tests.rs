//! Verification of keys and signatures of the reference implementation (`tests/minisign/`). The
//! loader's tests check the reverse.

use super::*;
use crate::testing::Key;
use crate::write::Sign as _;

const MANIFEST: &[u8] =
    include_bytes!("../../../../tests/golden/v1/block512/golden/manifests/1.json");
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
    let file = Signed {
        bytes: bytes.to_vec(),
        signature: Some(signature.as_bytes().to_vec()),
    };
    trust.check_manifest(&"golden".parse().unwrap(), 1, &file)
}

#[test]
fn signatures_of_the_reference_implementation_are_accepted() {
    assert_eq!(check(&trust(&[A]), MANIFEST, SIGNATURE), Ok(()));
    assert_eq!(check(&trust(&[B, A]), MANIFEST, SIGNATURE), Ok(()));
    assert_eq!(check(&trust(&[A, B]), MANIFEST, BY_B), Ok(()));
    // Windows line ends are accepted.
    assert_eq!(
        check(
            &trust(&[&A.replace('\n', "\r\n")]),
            MANIFEST,
            &SIGNATURE.replace('\n', "\r\n")
        ),
        Ok(())
    );
}

#[test]
fn each_fault_has_its_error() {
    let a = trust(&[A]);
    let mut changed = MANIFEST.to_vec();
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
        (MANIFEST, &comment, SignatureError::Invalid),
        (MANIFEST, LEGACY, SignatureError::Legacy),
        (MANIFEST, BY_B, SignatureError::UnknownKey),
        (MANIFEST, ELSEWHERE, wrong_path),
        (MANIFEST, "", SignatureError::Malformed),
        (
            MANIFEST,
            "<html><body>not found</body></html>",
            SignatureError::Malformed,
        ),
        (MANIFEST, A, SignatureError::Malformed),
        (
            MANIFEST,
            "\u{e9}\n\u{e9}\n\u{e9}\n\u{e9}",
            SignatureError::Malformed,
        ),
    ] {
        assert_eq!(check(&a, bytes, signature), Err(expected), "{signature:?}");
    }
    let unsigned = Signed {
        bytes: MANIFEST.to_vec(),
        signature: None,
    };
    let binary = Signed {
        signature: Some(vec![0xff; 300]),
        ..unsigned.clone()
    };
    let audience = "golden".parse().unwrap();
    assert_eq!(
        a.check_manifest(&audience, 1, &unsigned),
        Err(SignatureError::Missing)
    );
    assert_eq!(
        a.check_manifest(&audience, 1, &binary),
        Err(SignatureError::Malformed)
    );
    assert_eq!(
        Trust::default().check_manifest(&audience, 1, &unsigned),
        Ok(())
    );
}

#[test]
fn signature_is_valid_for_one_path() {
    let (key, audience): (_, AudienceName) = (Key::new(), "a".parse().unwrap());
    let trust = Trust::new([key.public.clone()]);
    let signature = key
        .sign(b"bytes", "rtad a/manifests/7.json")
        .unwrap()
        .into_bytes();
    let file = Signed {
        bytes: b"bytes".to_vec(),
        signature: Some(signature),
    };
    assert_eq!(trust.check_manifest(&audience, 7, &file), Ok(()));
    for (audience, generation) in [("a", 8), ("a", 70), ("b", 7), ("aa", 7)] {
        let checked = trust.check_manifest(&audience.parse().unwrap(), generation, &file);
        assert!(
            matches!(checked, Err(SignatureError::WrongPath { .. })),
            "{audience} {generation}: {checked:?}"
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
            let file = Signed {
                bytes: MANIFEST.to_vec(),
                signature: Some(bytes.clone()),
            };
            let checked = a.check_manifest(&"golden".parse().unwrap(), 1, &file);
            let is_padding = SIGNATURE.as_bytes()[index..]
                .iter()
                .all(|byte| b"=\n".contains(byte));
            assert!(
                checked.is_err() || index < not_signed || is_padding,
                "byte {index} by {flip}"
            );
        }
        assert!(check(&a, MANIFEST, &SIGNATURE[..index]).is_err() || index + 1 == SIGNATURE.len());
    }
    for index in (0..MANIFEST.len()).step_by(7) {
        let mut bytes = MANIFEST.to_vec();
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
