//! Values of key flags in messages. Where a file is expected, somebody may pass the secret itself.

/// Length from which a word of base64 counts as a secret key, cut or whole. A public key has 56
/// characters, a secret key 212.
const SECRET_CHARS: usize = 64;

/// The value, unless it may be a secret key.
pub fn shown(value: &str) -> &str {
    for word in value.split_whitespace() {
        let mut bytes = word.bytes();
        let is_base64 = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        if is_base64 && word.len() >= SECRET_CHARS {
            return "(the text of a key, which is not repeated)";
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_keys_are_not_shown() {
        // Characters as in `minisign -G -W`.
        let secret = &"RWQAAEIyAbCd+/09".repeat(14)[..212];
        let file = format!("untrusted comment: minisign secret key\n{secret}\n");
        for text in [
            &file,
            secret,
            &secret[..100],
            &format!(" {secret}\n"),
            &secret[..211],
        ] {
            assert!(!shown(text).contains(&secret[..16]), "{text}");
        }
        let path = "/etc/rtad/keys/signing-key-of-the-production-store/2026/november/rtad.key";
        for text in ["rtad.pub", path, &secret[..56], ""] {
            assert_eq!(shown(text), text);
        }
    }
}
