//! Hashes of keys. A key may be chosen by a client, so its bytes are mixed.

use crate::engine::Key;

/// Two independent hashes of a key.
pub(crate) fn hash_of(key: &Key) -> (u64, u64) {
    let number = u128::from_le_bytes(*key);
    let (low, high) = (number as u64, (number >> 64) as u64);
    let first = mix(low ^ high.rotate_left(32));
    (first, mix(first ^ high))
}

/// Finalizer of splitmix64: a bijection.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Maps a hash to `0..count` by its high bits.
pub(crate) const fn scale(hash: u64, count: u64) -> u64 {
    ((hash as u128 * count as u128) >> 64) as u64
}

/// Hash number `index` of a key, by double hashing.
pub(crate) const fn nth((first, second): (u64, u64), index: u64) -> u64 {
    first.wrapping_add(index.wrapping_mul(second | 1))
}
