//! Summary: a small Bloom filter of the keys that a delta names, as in log-structured merge trees.
//!
//! Most keys that are looked up are in no delta. The two lists need four dependent memory reads to
//! find that out; the summary needs one. It is computed when a delta is read and is not stored.
//!
//! One 64-bit word holds all bits of a key: one comparison and one predictable branch. The shards'
//! filters, which stop at the first clear bit, are several times slower for a cached key.

use super::keys::SortedKeys;
use crate::device::DeviceKey;

/// 12 bits per key. Four bits set per key give a false-positive rate of 1 in 80.
const WORDS_PER_16_KEYS: usize = 3;
const BITS_SET: u32 = 4;

/// Takes 1.5 bytes per key.
#[derive(Debug)]
pub struct Summary {
    words: Box<[u64]>,
}

impl Summary {
    pub fn of(lists: [&SortedKeys; 2]) -> Self {
        let keys: usize = lists.iter().map(|list| list.len()).sum();
        let mut words = vec![0; (keys * WORDS_PER_16_KEYS).div_ceil(16)].into_boxed_slice();
        for key in lists.iter().flat_map(|list| list.iter()) {
            words[word_index(words.len(), key)] |= mask(key);
        }
        Self { words }
    }

    /// Whether the key may be in one of the lists; always true if it is.
    #[inline]
    pub fn may_contain(&self, key: &DeviceKey) -> bool {
        let mask = mask(key);
        self.words
            .get(word_index(self.words.len(), key))
            .is_some_and(|word| word & mask == mask)
    }

    /// Reads the word that [`Summary::may_contain`] will read, to overlap cache misses.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.words
            .get(word_index(self.words.len(), key))
            .copied()
            .unwrap_or(0)
    }

    /// Size in memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

/// Index of the key's word: its last eight bytes, scaled.
#[inline]
fn word_index(words: usize, key: &DeviceKey) -> usize {
    let hash = u128::from_le_bytes(*key.as_bytes()) >> 64;
    ((hash * words as u128) >> 64) as usize
}

/// The key's bits in its word, from bytes used neither for the index nor for the shard.
#[inline]
fn mask(key: &DeviceKey) -> u64 {
    let hash = (u128::from_le_bytes(*key.as_bytes()) >> 16) as u64;
    (0..BITS_SET).fold(0, |mask, field| mask | 1 << (hash >> (6 * field) & 63))
}
