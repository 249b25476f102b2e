//! Public keys, as `minisign -G` writes them.

use std::fmt;
use std::str::FromStr;

use minisign_verify::Signature;

/// Accepted public keys, for messages.
pub const ACCEPTED_KEYS: &str =
    "a minisign public key: 56 characters that begin with RW, the second line of its .pub file";

/// A minisign public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    text: String,
    key: minisign_verify::PublicKey,
}

/// Not a public key. The text is not repeated: it may be the secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {ACCEPTED_KEYS}")]
pub struct PublicKeyError;

impl PublicKey {
    /// All keys of a text: concatenated `.pub` files, or one key per line. Empty lines, `#` and
    /// minisign's comment lines are skipped.
    ///
    /// # Errors
    ///
    /// [`PublicKeyError`] if a line is invalid, or there is no key: an empty file must not disable
    /// the check.
    pub fn all_of(text: &str) -> Result<Vec<Self>, PublicKeyError> {
        let mut keys = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            let is_comment = line.starts_with('#') || line.starts_with("untrusted comment:");
            if !line.is_empty() && !is_comment {
                keys.push(line.parse()?);
            }
        }
        if keys.is_empty() {
            Err(PublicKeyError)
        } else {
            Ok(keys)
        }
    }

    pub(super) fn verify(
        &self,
        bytes: &[u8],
        signature: &Signature,
    ) -> Result<(), minisign_verify::Error> {
        self.key.verify(bytes, signature, false)
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    /// The key alone, without the comment line of its file.
    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let key = minisign_verify::PublicKey::from_base64(text).map_err(|_| PublicKeyError)?;
        Ok(Self {
            text: text.to_owned(),
            key,
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl serde::Serialize for PublicKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
