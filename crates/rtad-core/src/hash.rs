//! Mixing step of keyed hashes, as in wyhash.

/// Both halves of a 128-bit product, combined.
#[inline]
#[must_use]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
