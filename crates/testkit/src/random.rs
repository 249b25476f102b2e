//! Deterministic pseudo-random numbers and keys: SplitMix64.

use rtad_core::device::DeviceKey;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of numbers that its seed determines.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// The next number, from 0 to `bound - 1`.
    pub const fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }
}

/// A bijection on 64 bits with random-looking output.
#[inline]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Key `index` of a shard, as uniform as an md5.
#[inline]
pub fn key(shard: usize, index: u64) -> DeviceKey {
    let seed = mix((shard as u64) << 40 ^ index).wrapping_add(STEP);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(seed).to_le_bytes());
    bytes[8..].copy_from_slice(&mix(seed ^ 0x5851_f42d_4c95_7f2d).to_le_bytes());
    bytes[..2].copy_from_slice(&(shard as u16).to_be_bytes());
    DeviceKey::from_bytes(bytes)
}
