//! Bits shared by threads.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a block.
pub(crate) const WORDS: usize = 8;

/// Fixed number of bits.
pub(crate) struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// Zeros.
    pub(crate) fn new(bits: u64) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn test(&self, bit: u64) -> bool {
        self.0[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1
    }

    /// Reads bits before they are needed, so that the cache misses of several keys overlap.
    pub(crate) fn touch(&self, bits: impl Iterator<Item = u64>) {
        for bit in bits {
            black_box(self.0[(bit / 64) as usize].load(Relaxed));
        }
    }

    /// Sets bits. Returns whether one of them was 0.
    ///
    /// All bits are read first: these cache misses overlap, those of atomic writes do not.
    pub(crate) fn set_all<const MOST: usize>(&self, bits: impl Iterator<Item = u64>) -> bool {
        let (mut unset, mut count) = ([0; MOST], 0);
        for bit in bits {
            unset[count] = bit;
            count += usize::from(!self.test(bit));
        }
        let mut was_new = false;
        for bit in &unset[..count] {
            let mask = 1 << (bit % 64);
            was_new |= self.0[(bit / 64) as usize].fetch_or(mask, Relaxed) & mask == 0;
        }
        was_new
    }

    /// A block of 512 bits.
    pub(crate) fn block(&self, block: u64) -> &[AtomicU64; WORDS] {
        &self.0.as_chunks().0[block as usize]
    }

    /// The words from bit `first`, a multiple of 64.
    pub(crate) fn words(&self, first: u64, count: usize) -> &[AtomicU64] {
        let first = (first / 64) as usize;
        &self.0[first..first + count]
    }

    /// Clears all bits.
    pub(crate) fn clear(&mut self) {
        for word in &mut self.0 {
            *word.get_mut() = 0;
        }
    }
}

/// Clears words.
pub(crate) fn clear(words: &[AtomicU64]) {
    for word in words {
        word.store(0, Relaxed);
    }
}
