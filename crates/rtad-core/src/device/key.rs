//! The device key: the md5 of a device id in canonical form, and the shard it belongs to.

use md5::{Digest, Md5};

/// Number of shards: one per value of a key's first 16 bits.
pub const SHARDS: usize = 1 << 16;

/// The md5 of a canonical device id: 16 bytes, the only key in the system.
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

    /// The 16 bytes of the md5.
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
