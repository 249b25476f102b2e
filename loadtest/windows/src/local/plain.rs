//! Classic Bloom filters in two generations. A window after the current one began, it becomes the
//! previous one, and the previous one is cleared. Keys stay for one to two windows.

use std::array;
use std::sync::RwLock;

use super::bits::Bits;
use super::{GROUP, read, write};
use crate::engine::{Engine, Key, Outcome, Sizing};
use crate::hash::{hash_of, nth, scale};
use crate::sizing::plain_bits_per_key;

const MOST_HASHES: usize = 32;
/// Bits that tell most new keys from those of a generation.
const TESTED: usize = 2;

/// Two classic Bloom filters.
pub(crate) struct Plain {
    bits: u64,
    hashes: u32,
    ticks: u64,
    /// Current and previous.
    generations: RwLock<[Bits; 2]>,
}

impl Plain {
    /// Empty filters with `hashes` bits per key, up to 32.
    pub(crate) fn new(sizing: &Sizing, hashes: u32) -> Outcome<(Self, String)> {
        let bits_per_key = plain_bits_per_key(hashes, sizing.fpr / 2.0);
        let bits = (sizing.keys as f64 * bits_per_key).ceil() as u64;
        let generations = RwLock::new([Bits::new(bits), Bits::new(bits)]);
        let parameters = format!("2 generations, k = {hashes}, m/n = {bits_per_key:.1}");
        Ok((Self { bits, hashes, ticks: sizing.ticks, generations }, parameters))
    }

    fn bits_of(&self, hash: (u64, u64)) -> impl Iterator<Item = u64> {
        (0..u64::from(self.hashes)).map(move |index| scale(nth(hash, index), self.bits))
    }
}

impl Engine for Plain {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let generations = read(&self.generations);
        let [current, previous] = &*generations;
        out.clear();
        for keys in keys.chunks(GROUP) {
            let hashes: [_; GROUP] =
                array::from_fn(|index| keys.get(index).map_or((0, 0), hash_of));
            let hashes = &hashes[..keys.len()];
            for hash in hashes {
                previous.touch(self.bits_of(*hash).take(TESTED));
                current.touch(self.bits_of(*hash));
            }
            out.extend(hashes.iter().map(|hash| {
                !self.bits_of(*hash).all(|bit| previous.test(bit))
                    && current.set_all::<MOST_HASHES>(self.bits_of(*hash))
            }));
        }
        Ok(())
    }

    fn advance(&self, tick: u64) -> Outcome {
        if tick.is_multiple_of(self.ticks) {
            let mut generations = write(&self.generations);
            generations.swap(0, 1);
            generations[0].clear();
        }
        Ok(())
    }
}
