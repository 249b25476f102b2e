//! Slots of experiments: a unit and a salt to a number that SQL computes alike.
//!
//! The unit is the md5 of a device id in lower-case hex.

use md5::{Digest as _, Md5};

/// Slots of a layer, and of an experiment's buckets.
pub const SLOTS: u32 = 10_000;

/// The slot of a unit: the first four bytes of md5(salt + "-" + unit), big-endian, modulo
/// [`SLOTS`].
#[inline]
pub fn slot(salt: &str, unit: &[u8]) -> u32 {
    let hash = Md5::new()
        .chain_update(salt)
        .chain_update(b"-")
        .chain_update(unit);
    let hash: [u8; 16] = hash.finalize().into();
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % SLOTS
}

/// FNV-1a of 32 bits, by Fowler, Noll and Vo: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub fn fnv1a32<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.into_iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_equal_those_of_other_tools() {
        let units = [
            b"83e9158a4fb54c0e1ef0b238639a23ae",
            b"8d3ebd3654fb46a2832296669cf1b536",
        ];
        assert_eq!(units.map(|unit| slot("exp1", unit)), [6816, 5516]);
    }
}
