//! The device key: the hash of a device id in canonical form, and the shard it belongs to.

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use sha1::Sha1;

use super::kind::IdKind;

/// Number of shards: one per value of a key's first 16 bits.
pub const SHARDS: usize = 1 << 16;

/// Hash of the ids from which the keys of an audience are made. Keys of two hashes never match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDigest {
    /// md5, whose 16 bytes are the key.
    #[default]
    Md5,
    /// SHA-1, whose first 16 bytes are the key: for lists that exist as SHA-1 hashes alone.
    Sha1,
}

impl KeyDigest {
    /// Its name in manifests and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
        }
    }

    /// The digest of audiences that are built from ids of this kind.
    pub const fn of_ids(kind: IdKind) -> Self {
        match kind {
            IdKind::Sha1 => Self::Sha1,
            _ => Self::Md5,
        }
    }

    /// The kind of ids that are hashed with it already.
    pub const fn kind(self) -> IdKind {
        match self {
            Self::Md5 => IdKind::Md5,
            Self::Sha1 => IdKind::Sha1,
        }
    }

    /// Whether ids of this kind have a key: those that are not hashed, or hashed with it.
    pub fn accepts(self, kind: IdKind) -> bool {
        !kind.is_hash() || kind == self.kind()
    }

    /// The key of an id in canonical form. Costs one hash: about 80 ns for 36 bytes.
    #[inline]
    pub fn key_of_canonical(self, id: &[u8]) -> DeviceKey {
        match self {
            Self::Md5 => DeviceKey::of_canonical(id),
            Self::Sha1 => DeviceKey::of_sha1(Sha1::digest(id).as_ref()),
        }
    }
}

/// The md5 of a canonical device id: 16 bytes, the only key in the system. In audiences of SHA-1 it
/// is the beginning of that; see [`KeyDigest`].
///
/// Two devices collide with probability 2⁻¹²⁸ per pair, so the key stands for the device.
///
/// It has the alignment of a word. Unaligned, beside a flag, it is copied as two words that
/// overlap, and the next copy waits until both are written: 19 ns for each id of a JSON batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(align(8))]
pub struct DeviceKey([u8; 16]);

impl DeviceKey {
    /// Wraps the 16 bytes of an md5 that was computed elsewhere.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key of an id that is already in canonical form. Costs one md5: about 80 ns for 36 bytes.
    #[inline]
    pub fn of_canonical(id: &[u8]) -> Self {
        Self(Md5::digest(id).into())
    }

    /// Reads 32 hex digits of either case; anything else is `None`.
    #[inline]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let digits: &[u8; 32] = hex.try_into().ok()?;
        // The decoder also accepts a "0x" prefix.
        if digits[1] == b'x' {
            return None;
        }
        const_hex::decode_to_array(digits).ok().map(Self)
    }

    /// Reads the 40 hex digits of a SHA-1, of either case; anything else is `None`.
    pub fn from_sha1_hex(hex: &[u8]) -> Option<Self> {
        let digits: &[u8; 40] = hex.try_into().ok()?;
        if digits[1] == b'x' {
            return None;
        }
        const_hex::decode_to_array(digits)
            .ok()
            .map(|sha1: [u8; 20]| Self::of_sha1(&sha1))
    }

    /// The key of the 20 bytes of a SHA-1.
    fn of_sha1(sha1: &[u8]) -> Self {
        Self(*sha1.first_chunk().expect("a SHA-1 has 20 bytes"))
    }

    /// The key's 16 bytes.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The key's shard, one of 65,536: its first two bytes, big-endian, which are its first four
    /// hex digits.
    #[inline]
    pub const fn shard(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

/// Hides the value: a key identifies a person as well as the id it was made from.
impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceKey(hidden)")
    }
}
