//! A small Bloom filter of the keys that a delta names, as each table of a log-structured merge
//! tree has one.
//!
//! Nearly every device that is asked for is one that the delta does not speak of. Its two lists
//! take four reads of memory to say so, each second one waiting for the first; this takes one. It
//! is made when a delta is read and is in no file.
//!
//! All bits of a key are in one word of 64, so that one comparison decides, and one branch that the
//! processor foresees: the filters of shards, which stop at the first clear bit, cost several times
//! as much of a key that is in the cache.

use super::SortedKeys;
use crate::device::DeviceKey;

/// Words for 16 keys: 12 bits a key. With four bits set for each, one key in 80 that is not named
/// is looked up in vain.
const WORDS_PER_16_KEYS: usize = 3;
const BITS_SET: u32 = 4;

/// 1.5 bytes a key.
#[derive(Debug)]
pub(super) struct Summary {
    words: Box<[u64]>,
}

impl Summary {
    pub(super) fn of(lists: [&SortedKeys; 2]) -> Self {
        let keys: usize = lists.iter().map(|list| list.len()).sum();
        let mut words = vec![0; (keys * WORDS_PER_16_KEYS).div_ceil(16)].into_boxed_slice();
        for key in lists.iter().flat_map(|list| list.iter()) {
            words[place(words.len(), key)] |= mask(key);
        }
        Self { words }
    }

    /// False only of a key that is in neither list.
    #[inline]
    pub(super) fn may_name(&self, key: &DeviceKey) -> bool {
        let mask = mask(key);
        self.words.get(place(self.words.len(), key)).is_some_and(|word| word & mask == mask)
    }

    /// Reads what [`Summary::may_name`] will read.
    #[inline]
    pub(super) fn touch(&self, key: &DeviceKey) -> u64 {
        self.words.get(place(self.words.len(), key)).copied().unwrap_or(0)
    }

    /// Bytes that it takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

/// The key's word: its last eight bytes, scaled.
#[inline]
fn place(words: usize, key: &DeviceKey) -> usize {
    let hash = u128::from_le_bytes(*key.as_bytes()) >> 64;
    ((hash * words as u128) >> 64) as usize
}

/// The key's bits in it, from bytes that have no part in its place and none in its shard.
#[inline]
fn mask(key: &DeviceKey) -> u64 {
    let hash = (u128::from_le_bytes(*key.as_bytes()) >> 16) as u64;
    (0..BITS_SET).fold(0, |mask, field| mask | 1 << (hash >> (6 * field) & 63))
}
