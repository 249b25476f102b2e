//! Slots of experiments: a unit and a salt to a number that other tools compute alike.
//!
//! The unit is the md5 of a device id in lower-case hex.

use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

/// A rule from a salt and a unit to a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotHash {
    /// The first four bytes of md5(salt + "-" + unit), big-endian, modulo 10,000: shards of Eppo.
    #[default]
    Md5,
    /// fnv1a32 of the decimal text of fnv1a32(salt + unit), modulo 10,000: GrowthBook's hash
    /// version 2.
    #[serde(rename = "growthbook-2")]
    Growthbook2,
    /// murmur3_32(salt + ":" + unit): Unleash. Seed 0 and 100 slots for a layer, seed 86,028,157
    /// and 1,000 slots for buckets. Slot 0 is Unleash's 1.
    Unleash,
}

/// Seed of Unleash's variants.
const VARIANT_SEED: u32 = 86_028_157;

impl SlotHash {
    /// The word in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Growthbook2 => "growthbook-2",
            Self::Unleash => "unleash",
        }
    }

    /// Slots of a layer.
    pub const fn layer_slots(self) -> u32 {
        if matches!(self, Self::Unleash) {
            100
        } else {
            10_000
        }
    }

    /// Slots of an experiment's buckets.
    pub const fn bucket_slots(self) -> u32 {
        if matches!(self, Self::Unleash) {
            1_000
        } else {
            10_000
        }
    }

    /// Whether a layer and an experiment with the same salt have independent slots.
    pub const fn separates_layers(self) -> bool {
        matches!(self, Self::Unleash)
    }

    /// The slot of a unit in a layer.
    #[inline]
    pub fn layer_slot(self, salt: &str, unit: &[u8]) -> u32 {
        self.slot(salt, unit, 0, self.layer_slots())
    }

    /// The slot of a unit among the buckets.
    #[inline]
    pub fn bucket_slot(self, salt: &str, unit: &[u8]) -> u32 {
        self.slot(salt, unit, VARIANT_SEED, self.bucket_slots())
    }

    fn slot(self, salt: &str, unit: &[u8], seed: u32, slots: u32) -> u32 {
        let salt = salt.as_bytes();
        let hash = match self {
            Self::Md5 => {
                let hash = Md5::new()
                    .chain_update(salt)
                    .chain_update(b"-")
                    .chain_update(unit);
                let hash: [u8; 16] = hash.finalize().into();
                u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
            }
            Self::Growthbook2 => {
                let mut first = fnv1a32(salt.iter().chain(unit));
                let (mut text, mut start) = ([b'0'; 10], 10);
                while start == 10 || first > 0 {
                    start -= 1;
                    text[start] += (first % 10) as u8;
                    first /= 10;
                }
                fnv1a32(&text[start..])
            }
            Self::Unleash => murmur3_32(salt.iter().chain(b":").chain(unit).copied(), seed),
        };
        hash % slots
    }
}

/// FNV-1a of 32 bits, by Fowler, Noll and Vo: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub fn fnv1a32<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.into_iter().fold(0x811c_9dc5, step)
}

/// MurmurHash3, x86, 32 bits: Austin Appleby, public domain.
fn murmur3_32(mut bytes: impl Iterator<Item = u8>, seed: u32) -> u32 {
    let scrambled = |word: u32| {
        word.wrapping_mul(0xcc9e_2d51)
            .rotate_left(15)
            .wrapping_mul(0x1b87_3593)
    };
    let (mut hash, mut length) = (seed, 0_u32);
    loop {
        let (mut word, mut taken) = (0_u32, 0);
        while taken < 4
            && let Some(byte) = bytes.next()
        {
            word |= u32::from(byte) << (8 * taken);
            taken += 1;
        }
        length += taken;
        hash ^= scrambled(word);
        if taken < 4 {
            break;
        }
        hash = hash
            .rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64);
    }
    hash ^= length;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unleash counts from 1.
    fn unleash(group: &str, unit: &str) -> [u32; 2] {
        let hash = SlotHash::Unleash;
        [
            hash.layer_slot(group, unit.as_bytes()) + 1,
            hash.bucket_slot(group, unit.as_bytes()) + 1,
        ]
    }

    #[test]
    fn slots_equal_those_of_other_tools() {
        let units = [
            b"83e9158a4fb54c0e1ef0b238639a23ae",
            b"8d3ebd3654fb46a2832296669cf1b536",
        ];
        let slots = |hash: SlotHash| units.map(|unit| hash.bucket_slot("exp1", unit));
        assert_eq!(slots(SlotHash::Md5), [6816, 5516]);
        assert_eq!(slots(SlotHash::Growthbook2), [612, 5880]);
        let texts = units.map(|unit| std::str::from_utf8(unit).unwrap());
        assert_eq!(
            texts.map(|unit| unleash("exp1", unit)),
            [[1, 317], [8, 257]]
        );
        // Published by GrowthBook.
        for (unit, slot) in [("a", 216), ("b", 9054)] {
            assert_eq!(SlotHash::Growthbook2.layer_slot("", unit.as_bytes()), slot);
        }
        // Published by Unleash.
        assert_eq!(unleash("gr1", "123")[0], 73);
        assert_eq!(unleash("groupX", "999")[0], 25);
        for (group, unit, variant) in [("gr1", "123", 96), ("groupX", "999", 60)] {
            let input = format!("{group}:{unit}").into_bytes();
            let slot = murmur3_32(input.into_iter(), VARIANT_SEED) % 100 + 1;
            assert_eq!(slot, variant);
        }
    }
}
