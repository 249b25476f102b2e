//! Age-partitioned Bloom filter (Shtul, Baquero and Almeida, 2020): a ring of k + l slices. A key
//! sets one bit in each of the k youngest slices. A shift clears the oldest slice and makes it the
//! youngest. A key is a member while k consecutive slices have its bits: for l shifts.

use std::sync::RwLock;

use super::bits::{Bits, clear};
use super::{read, write};
use crate::engine::{Engine, Key, Outcome, Sizing};
use crate::hash::{hash_of, nth, scale};
use crate::sizing::apbf_hashes;

const MOST_HASHES: usize = 64;

/// Ring of slices.
pub(crate) struct Apbf {
    /// Bits of a slice, a multiple of 64.
    slice_bits: u64,
    hashes: u64,
    /// All slices, one after the other.
    bits: Bits,
    /// Number of shifts so far.
    shifts: RwLock<u64>,
    slices: u64,
}

impl Apbf {
    /// An empty filter with a shift per tick.
    pub(crate) fn new(sizing: &Sizing) -> Outcome<(Self, String)> {
        let generations = sizing.ticks;
        let hashes = apbf_hashes(generations, sizing.fpr).ok_or("fpr: too small for an APBF")?;
        let slices = hashes + generations;
        let keys = sizing.keys.div_ceil(generations) * hashes;
        let slice_bits =
            ((keys as f64 / std::f64::consts::LN_2).ceil() as u64).next_multiple_of(64);
        let bits = Bits::new(slice_bits * slices);
        let parameters = format!("k = {hashes}, l = {generations}");
        Ok((Self { slice_bits, hashes, bits, shifts: RwLock::new(0), slices }, parameters))
    }

    /// The bit of a key in the slice of an age. The hash depends on the slice, not on its age.
    fn bit(&self, hash: (u64, u64), age: u64, youngest: u64) -> u64 {
        let slice = youngest + age;
        let slice = if slice >= self.slices { slice - self.slices } else { slice };
        slice * self.slice_bits + scale(nth(hash, slice), self.slice_bits)
    }

    /// Whether k consecutive slices match. Begins with the k oldest slices. After a mismatch it
    /// goes back to the first run that can still match, and reuses the known matches.
    fn contains(&self, hash: (u64, u64), youngest: u64) -> bool {
        let (mut age, mut known, mut run) = (self.slices - self.hashes, 0, 0);
        loop {
            if self.bits.test(self.bit(hash, age, youngest)) {
                run += 1;
                age += 1;
                if known + run == self.hashes {
                    return true;
                }
            } else if age < self.hashes {
                return false;
            } else {
                age -= self.hashes;
                (known, run) = (run, 0);
            }
        }
    }
}

impl Engine for Apbf {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let shifts = read(&self.shifts);
        let youngest = self.slices - 1 - *shifts % self.slices;
        out.clear();
        out.extend(keys.iter().map(|key| {
            let hash = hash_of(key);
            let bits = (0..self.hashes).map(|age| self.bit(hash, age, youngest));
            !self.contains(hash, youngest) && self.bits.set_all::<MOST_HASHES>(bits)
        }));
        Ok(())
    }

    fn advance(&self, _tick: u64) -> Outcome {
        let mut shifts = write(&self.shifts);
        *shifts += 1;
        let youngest = self.slices - 1 - *shifts % self.slices;
        clear(self.bits.words(youngest * self.slice_bits, (self.slice_bits / 64) as usize));
        Ok(())
    }
}
