//! Classic Bloom filter of md5 ids in one bitmap with the bit order of Redis: bit 0 is the highest
//! of the first byte.

/// False-positive rate, equal to the default of rtad.
const FPR: f64 = 1e-4;

/// The size of a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bloom {
    bits: u64,
    hashes: u64,
}

impl Bloom {
    /// ln(1/p) / ln(2)² bits per id and ln(2) times as many hashes: the minimum for the rate.
    pub(crate) fn of(ids: u64) -> Self {
        let bits_per_id = -FPR.ln() / std::f64::consts::LN_2.powi(2);
        let hashes = (bits_per_id * std::f64::consts::LN_2).round() as u64;
        Self {
            bits: (ids as f64 * bits_per_id).ceil() as u64,
            hashes,
        }
    }

    pub(crate) fn size_bytes(self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Bit offsets of an md5, by double hashing of its halves. `None` if it is not an md5.
    pub(crate) fn bit_offsets(self, id: &str) -> Option<impl Iterator<Item = u64>> {
        let digest = (id.len() == 32).then(|| u128::from_str_radix(id, 16).ok())??;
        let (first, step) = ((digest >> 64) as u64, digest as u64 | 1);
        Some(
            (0..self.hashes)
                .map(move |index| first.wrapping_add(index.wrapping_mul(step)) % self.bits),
        )
    }
}
