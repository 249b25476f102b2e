//! Keyed hash of a key: region, two candidate buckets, fingerprint.
//!
//! The hash is two folded 64 × 64-bit products under a secret, as in wyhash. Clients do not know
//! the secret, so they cannot choose keys that share buckets or fingerprints.

use rtad_core::hash::fold;

use crate::Key;
use crate::spec::Layout;

/// Secret of a window's hash; kept in its files.
pub type Secret = [u64; 4];

/// Where a key may be, and what represents it.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    pub(crate) region: usize,
    /// Two different buckets of the region.
    pub(crate) buckets: [usize; 2],
    /// 24 bits, in the high bits of the first lane.
    pub(crate) head: u32,
    /// 16 further bits, for wide slots.
    pub(crate) tail: u16,
}

impl Position {
    pub fn new(key: &Key, secret: &Secret, layout: &Layout) -> Self {
        let key = u128::from_le_bytes(*key);
        let (low, high) = (key as u64, (key >> 64) as u64);
        let first = fold(low ^ secret[0], high ^ secret[1]);
        let second = fold(low ^ secret[2], high ^ secret[3]);
        let region = scale(first >> 32, layout.regions);
        let a = scale(first & 0xffff_ffff, layout.buckets);
        let b = scale(second >> 32, layout.buckets);
        let b = if a == b { (a + 1) % layout.buckets } else { b };
        // `a` depends on the high bits of its half; its low bits are free for the fingerprint.
        Self {
            region,
            buckets: [a, b],
            head: (second as u32) & !0xff,
            tail: first as u16,
        }
    }
}

/// Maps 32 bits onto `0..n`.
fn scale(bits: u64, n: usize) -> usize {
    ((bits * n as u64) >> 32) as usize
}
