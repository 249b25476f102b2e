//! Blocked Bloom filters in several generations: all bits of a key are in one block of 512 bits,
//! one cache line. Keys of older generations are only read.

use std::array;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError, RwLock};

use super::bits::{Bits, WORDS};
use super::{GROUP, read, write};
use crate::engine::{Engine, Key, Outcome, Sizing};
use crate::hash::{hash_of, mix, scale};
use crate::sizing::{BLOCK_BITS, blocked};

/// Generations that a window spans. One more holds the keys that are about to expire.
const SPANNED: u64 = 4;
/// Bits of a block that one 64-bit hash chooses, with nine bits each.
const PER_HASH: u32 = 7;
const MOST_HASHES: u32 = 3 * PER_HASH;
const LOCKS: usize = 4096;

/// Rotating blocked Bloom filters.
pub(crate) struct Blocked {
    blocks: u64,
    hashes: u32,
    ticks: u64,
    /// The current generation, then older ones.
    generations: RwLock<VecDeque<Bits>>,
    /// Locks of keys, by their hash. Without them, two threads can each set a part of the bits.
    locks: Option<Box<[Mutex<()>]>>,
}

/// Bits of a key.
struct Probe {
    block: u64,
    mask: [u64; WORDS],
    lock: usize,
}

impl Blocked {
    /// Empty filters; `is_locked` adds locks of keys.
    pub(crate) fn new(sizing: &Sizing, is_locked: bool) -> Outcome<(Self, String)> {
        if !sizing.ticks.is_multiple_of(SPANNED) {
            return Err(format!("ticks: expected a multiple of {SPANNED}").into());
        }
        let (hashes, bits_per_key) = blocked(MOST_HASHES, sizing.fpr / (SPANNED + 1) as f64);
        let keys = sizing.keys.div_ceil(SPANNED);
        let blocks = (keys as f64 * bits_per_key / BLOCK_BITS as f64).ceil() as u64;
        let generations =
            RwLock::new((0..=SPANNED).map(|_| Bits::new(blocks * BLOCK_BITS)).collect());
        let locks = is_locked.then(|| (0..LOCKS).map(|_| Mutex::new(())).collect());
        let parameters =
            format!("{} generations, k = {hashes}, m/n = {bits_per_key:.1}", SPANNED + 1);
        Ok((Self { blocks, hashes, ticks: sizing.ticks / SPANNED, generations, locks }, parameters))
    }

    fn probe(&self, key: &Key) -> Probe {
        let (first, second) = hash_of(key);
        let mut mask = [0; WORDS];
        let mut left = self.hashes;
        for index in 0.. {
            let mut hash = if index == 0 { second } else { mix(second ^ index) };
            for _ in 0..left.min(PER_HASH) {
                mask[(hash >> 6) as usize % WORDS] |= 1 << (hash % 64);
                hash >>= 9;
            }
            if left <= PER_HASH {
                break;
            }
            left -= PER_HASH;
        }
        let block = scale(first, self.blocks);
        // The low bits of the hash: the block comes from the high ones.
        Probe { block, mask, lock: first as usize % LOCKS }
    }

    /// Sets the bits of a key. Returns whether one of them was 0.
    fn set(&self, current: &Bits, probe: &Probe) -> bool {
        let _lock = self
            .locks
            .as_ref()
            .map(|locks| locks[probe.lock].lock().unwrap_or_else(PoisonError::into_inner));
        let mut was_new = false;
        for (word, mask) in current.block(probe.block).iter().zip(probe.mask) {
            // A plain read first: most words of a duplicate need no write.
            if word.load(Relaxed) & mask != mask {
                was_new |= word.fetch_or(mask, Relaxed) & mask != mask;
            }
        }
        was_new
    }
}

/// Whether a generation has all bits of a key. Without branches, so that reads of several keys
/// overlap.
fn contains(generation: &Bits, probe: &Probe) -> bool {
    let words = generation.block(probe.block);
    (0..WORDS).fold(0, |missing, index| missing | probe.mask[index] & !words[index].load(Relaxed))
        == 0
}

impl Engine for Blocked {
    fn observe(&self, keys: &[Key], out: &mut Vec<bool>) -> Outcome {
        let generations = read(&self.generations);
        out.clear();
        for keys in keys.chunks(GROUP) {
            let probes: [Probe; GROUP] =
                array::from_fn(|index| self.probe(&keys[index.min(keys.len() - 1)]));
            // Short code reads one word per block: more cache misses overlap than in the tests.
            for generation in &*generations {
                for probe in &probes {
                    black_box(generation.block(probe.block)[0].load(Relaxed));
                }
            }
            let mut is_known = [false; GROUP];
            for (is_known, probe) in is_known.iter_mut().zip(&probes) {
                for generation in &*generations {
                    *is_known |= contains(generation, probe);
                }
            }
            out.extend(
                keys.iter()
                    .zip(&probes)
                    .zip(is_known)
                    .map(|((_, probe), is_known)| !is_known && self.set(&generations[0], probe)),
            );
        }
        Ok(())
    }

    fn advance(&self, tick: u64) -> Outcome {
        if tick.is_multiple_of(self.ticks) {
            let mut generations = write(&self.generations);
            generations.rotate_right(1);
            generations[0].clear();
        }
        Ok(())
    }
}
