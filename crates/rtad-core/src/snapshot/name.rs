//! Audience names and digests: the parts of paths in a store. Both types are always valid, so that
//! no file can inject a path.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of an audience: 1 to 64 of `a-z`, `0-9`, `_`, `-`, starting with a letter or digit.
/// Safe as a directory name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AudienceName(String);

/// An invalid audience name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "audience name {0:?}: \
     expected 1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit"
)]
pub struct NameError(String);

impl AudienceName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AudienceName {
    type Error = NameError;

    fn try_from(name: String) -> Result<Self, NameError> {
        let mut bytes = name.bytes();
        let is_plain = bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        let has_start = !name.is_empty() && !name.starts_with(['_', '-']);
        if is_plain && has_start && name.len() <= 64 {
            Ok(Self(name))
        } else {
            Err(NameError(name.chars().take(80).collect()))
        }
    }
}

impl std::str::FromStr for AudienceName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        name.to_owned().try_into()
    }
}

impl From<AudienceName> for String {
    fn from(name: AudienceName) -> Self {
        name.0
    }
}

impl fmt::Display for AudienceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a file; in text 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// The bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Computes the digest, at about 1.5 GB/s on a core with SHA instructions.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = text.bytes();
        let is_lower_hex = bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_lower_hex
            && text.len() == 64
            && let Ok(digest) = const_hex::decode_to_array(&text)
        {
            return Ok(Self(digest));
        }
        let shown: String = text.chars().take(80).collect();
        Err(format!(
            "digest {shown:?}: expected 64 lower-case hex digits"
        ))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        const_hex::encode(digest.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&const_hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}
