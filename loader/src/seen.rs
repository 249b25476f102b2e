//! Seen keys: an exact set, or a Bloom filter with false positives, to detect duplicates.
//!
//! The exact set stores 128-bit keys. The probability that two of n ids share a key is n² / 2¹²⁹:
//! for ten billion ids about 10⁻¹⁹. It consists of 256 hash tables with open addressing, each of
//! which grows by half at a load of 85 %. The tables start at different sizes and so grow at
//! different times. Together they take about 23 bytes per key, hardly more while one grows.

use std::collections::TryReserveError;

use rtad_core::device::DeviceKey;

const TABLES: usize = 256;
const MIN_SLOTS: f64 = 64.0;
const GROWTH: f64 = 1.5;
/// Percent of slots in use before a table grows.
const MAX_LOAD: usize = 85;
/// Value of a free slot. The key of the same value is kept in `has_zero`.
const FREE: u128 = 0;

/// Set of seen keys.
#[derive(Debug)]
pub enum SeenKeys {
    Exact(Tables),
    Bloom(Bloom),
}

impl SeenKeys {
    /// Adds the key. Returns whether it is new.
    ///
    /// # Errors
    ///
    /// The memory is exhausted.
    #[inline]
    pub fn is_new(&mut self, key: &DeviceKey) -> Result<bool, TryReserveError> {
        match self {
            Self::Exact(tables) => tables.insert(u128::from_be_bytes(*key.as_bytes())),
            Self::Bloom(bloom) => Ok(bloom.insert(key)),
        }
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Exact(tables) => tables
                .tables
                .iter()
                .map(|table| size_of_val(&*table.slots) as u64)
                .sum(),
            Self::Bloom(bloom) => bloom.filter.len() as u64,
        }
    }
}

/// An exact set of keys.
#[derive(Debug)]
pub struct Tables {
    tables: Vec<KeyTable>,
    has_zero: bool,
}

#[derive(Debug)]
struct KeyTable {
    slots: Vec<u128>,
    used: usize,
}

impl Default for Tables {
    fn default() -> Self {
        let slots = |table: usize| MIN_SLOTS * GROWTH.powf(table as f64 / TABLES as f64);
        let table = |table| KeyTable {
            slots: vec![FREE; slots(table) as usize],
            used: 0,
        };
        Self {
            tables: (0..TABLES).map(table).collect(),
            has_zero: false,
        }
    }
}

impl Tables {
    #[inline]
    fn insert(&mut self, key: u128) -> Result<bool, TryReserveError> {
        if key == FREE {
            return Ok(!std::mem::replace(&mut self.has_zero, true));
        }
        let table = &mut self.tables[(key >> 120) as usize];
        if (table.used + 1) * 100 > table.slots.len() * MAX_LOAD {
            table.grow()?;
        }
        Ok(table.insert(key))
    }
}

impl KeyTable {
    /// Adds a key. Requires a free slot.
    #[inline]
    fn insert(&mut self, key: u128) -> bool {
        // The bits below those of the table index, scaled to the slots.
        let hash = (key >> 56) as u64;
        let mut slot = ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize;
        loop {
            match self.slots[slot] {
                FREE => {
                    self.slots[slot] = key;
                    self.used += 1;
                    return true;
                }
                held if held == key => return false,
                _ => {
                    slot = if slot + 1 == self.slots.len() {
                        0
                    } else {
                        slot + 1
                    }
                }
            }
        }
    }

    #[cold]
    fn grow(&mut self) -> Result<(), TryReserveError> {
        let slots = (self.slots.len() as f64 * GROWTH).ceil() as usize;
        let mut grown = Self {
            slots: Vec::new(),
            used: 0,
        };
        grown.slots.try_reserve_exact(slots)?;
        grown.slots.resize(slots, FREE);
        for key in self.slots.iter().filter(|key| **key != FREE) {
            grown.insert(*key);
        }
        *self = grown;
        Ok(())
    }
}

/// Size of a Bloom filter: k bits are set per key, of m/n bits per key.
#[derive(Debug, Clone, Copy)]
pub struct BloomSpec {
    pub(crate) hashes: u32,
    pub(crate) millibits_per_key: u32,
}

impl BloomSpec {
    /// The smallest filter with this rate: m/n = −ln p / ln² 2 and k = m/n · ln 2 (Mitzenmacher and
    /// Upfal, *Probability and Computing*, 5.5.3).
    pub fn for_fpr(fpr: f64) -> Self {
        let hashes = (-fpr.log2()).round().max(1.0);
        // k is whole, and so needs more than the ideal m/n: −k / ln(1 − p^(1/k)).
        let bits_per_key = -hashes / (1.0 - fpr.powf(1.0 / hashes)).ln();
        Self {
            hashes: hashes as u32,
            millibits_per_key: (bits_per_key * 1000.0).ceil() as u32,
        }
    }

    /// Size of the filter of this many keys, in whole words of 64 bits.
    pub fn size_bytes(self, keys: u32) -> u64 {
        (u64::from(keys) * u64::from(self.millibits_per_key)).div_ceil(64_000) * 8
    }

    /// The key's bits, as bytes and masks. Two hashes are as good as k in so large a filter (Kirsch
    /// and Mitzenmacher, *Less hashing, same performance*, 2006).
    #[inline]
    fn probes(self, filter_bytes: usize, key: &DeviceKey) -> impl Iterator<Item = (usize, u8)> {
        let bits = filter_bytes as u128 * 8;
        let bytes = u128::from_le_bytes(*key.as_bytes());
        let (first, step) = ((bytes >> 16) as u64, (bytes >> 64) as u64 | 1);
        (0..u64::from(self.hashes)).map(move |index| {
            let hash = first.wrapping_add(index.wrapping_mul(step));
            let bit = ((u128::from(hash) * bits) >> 64) as u64;
            ((bit / 8) as usize, 1 << (bit % 8))
        })
    }

    #[inline]
    pub fn contains(self, filter: &[u8], key: &DeviceKey) -> bool {
        self.probes(filter.len(), key)
            .all(|(byte, mask)| filter[byte] & mask != 0)
    }

    #[inline]
    pub fn insert(self, filter: &mut [u8], key: &DeviceKey) {
        for (byte, mask) in self.probes(filter.len(), key) {
            filter[byte] |= mask;
        }
    }
}

/// One filter for all keys.
#[derive(Debug)]
pub struct Bloom {
    spec: BloomSpec,
    filter: Vec<u8>,
    /// Keys that the filter is sized for.
    capacity: u32,
    /// Keys reported as new.
    keys: u64,
}

/// Multiple of the capacity up to which the distinct keys can be estimated: beyond it, the number
/// of found keys hardly changes.
const MAX_OVERLOAD: f64 = 8.0;

impl Bloom {
    /// A filter sized for `expected` keys.
    ///
    /// # Errors
    ///
    /// The memory is exhausted.
    pub fn new(spec: BloomSpec, expected: u32) -> Result<Self, TryReserveError> {
        let bytes = spec.size_bytes(expected) as usize;
        let mut filter = Vec::new();
        filter.try_reserve_exact(bytes)?;
        filter.resize(bytes, 0);
        Ok(Self {
            spec,
            filter,
            capacity: expected,
            keys: 0,
        })
    }

    #[inline]
    fn insert(&mut self, key: &DeviceKey) -> bool {
        let is_new = !self.spec.contains(&self.filter[..], key);
        if is_new {
            self.spec.insert(&mut self.filter, key);
            self.keys += 1;
        }
        is_new
    }

    /// Estimate of the distinct keys: the number D of which the found ones are those left after
    /// the false positives of all D. `None` far past the capacity, where nearly every key counts
    /// as seen.
    pub fn distinct_keys(&self) -> Option<f64> {
        let bits = self.filter.len() as f64 * 8.0;
        // A false positive has all its bits set, so the fill is that of all distinct keys.
        let found = |distinct: f64| distinct - summed_fpr(self.spec.hashes, bits, distinct);
        let (keys, most) = (self.keys as f64, MAX_OVERLOAD * f64::from(self.capacity));
        if found(most) < keys {
            return None;
        }
        let (mut low, mut high) = (0.0, most);
        // Sixty halvings exhaust the precision of the number.
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if found(middle) < keys {
                low = middle
            } else {
                high = middle
            }
        }
        Some(high)
    }

    /// Expected number of new keys reported as seen; `None` far past the capacity.
    pub fn expected_false_positives(&self) -> Option<f64> {
        self.distinct_keys()
            .map(|distinct| (distinct - self.keys as f64).max(0.0))
    }

    pub const fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// The false-positive rate of a Bloom filter: (1 − e^(−kn/m))^k (Bloom 1970).
pub fn fpr(hashes: u32, bits: f64, keys: f64) -> f64 {
    let hashes = f64::from(hashes);
    (1.0 - (-hashes * keys / bits).exp()).powf(hashes)
}

/// The integral of the rate from no key to all, by Simpson's rule. The rate is smooth, so 1,000
/// steps are exact to nine digits.
pub fn summed_fpr(hashes: u32, bits: f64, keys: f64) -> f64 {
    const STEPS: u32 = 1000;
    let step = keys / f64::from(STEPS);
    let weight = |index: u32| match index {
        0 | STEPS => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=STEPS)
        .map(|index| weight(index) * fpr(hashes, bits, f64::from(index) * step))
        .sum();
    sum * step / 3.0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn exact_tables_equal_a_hash_set() {
        let (mut tables, mut model) = (SeenKeys::Exact(Tables::default()), HashSet::new());
        // Keys with a common prefix fill one table from its end. Zero is a key too.
        let crowded = (0..3000_u128).map(|n| u128::MAX - n * 0x10000);
        let keys = (0..200_000_u32).map(|n| DeviceKey::of_canonical(&(n % 120_000).to_le_bytes()));
        let keys = keys.chain(
            crowded
                .chain([0, 1, 0, 1])
                .map(|key| DeviceKey::from_bytes(key.to_be_bytes())),
        );
        for key in keys {
            assert_eq!(tables.is_new(&key).unwrap(), model.insert(*key.as_bytes()));
        }
        let per_key = tables.memory_bytes() as f64 / model.len() as f64;
        assert!((18.0..29.0).contains(&per_key), "{per_key} bytes per key");
    }

    #[test]
    fn memory_per_key_is_stable() {
        let mut tables = SeenKeys::Exact(Tables::default());
        for n in 0..1_000_000_u32 {
            tables
                .is_new(&DeviceKey::of_canonical(&n.to_le_bytes()))
                .unwrap();
            if n >= 100_000 && n % 100_000 == 0 {
                let per_key = tables.memory_bytes() as f64 / f64::from(n);
                assert!(
                    (22.0..25.0).contains(&per_key),
                    "{per_key} bytes per key at {n}"
                );
            }
        }
    }

    #[test]
    fn bloom_filter_has_the_expected_false_positives() {
        let spec = BloomSpec {
            hashes: 4,
            millibits_per_key: 8000,
        };
        let mut bloom = Bloom::new(spec, 200_000).unwrap();
        let new = (0..200_000_u32)
            .filter(|n| bloom.insert(&DeviceKey::of_canonical(&n.to_le_bytes())))
            .count();
        let expected = bloom.expected_false_positives().unwrap();
        let wrong = (200_000 - new) as f64;
        // Four standard deviations.
        assert!(
            (wrong - expected).abs() < 4.0 * expected.sqrt(),
            "{wrong} for {expected}"
        );
        assert!(expected > 500.0);
    }

    /// The rate holds for all distinct keys, not for those that counted as new.
    #[test]
    fn overfull_filter_has_the_expected_false_positives() {
        for (capacity, tolerance) in [(100_000, 0.1), (50_000, 0.05), (30_000, 0.05)] {
            let mut bloom = Bloom::new(BloomSpec::for_fpr(1e-4), capacity).unwrap();
            let is_new = |n: &u32| bloom.insert(&DeviceKey::of_canonical(&n.to_le_bytes()));
            let missed = 200_000 - (0..200_000_u32).filter(is_new).count();
            let expected = bloom.expected_false_positives().unwrap();
            let error = (expected / missed as f64 - 1.0).abs();
            assert!(
                error < tolerance,
                "{capacity}: {missed} missed, {expected} expected"
            );
        }
        let mut bloom = Bloom::new(BloomSpec::for_fpr(1e-4), 2000).unwrap();
        (0..200_000_u32).for_each(|n| {
            bloom.insert(&DeviceKey::of_canonical(&n.to_le_bytes()));
        });
        assert_eq!(bloom.expected_false_positives(), None);
    }

    #[test]
    fn size_matches_the_textbook_formula() {
        for (rate, hashes, bits) in [(0.01, 7, 9.585), (1e-3, 10, 14.378), (1e-4, 13, 19.171)] {
            let spec = BloomSpec::for_fpr(rate);
            assert_eq!(spec.hashes, hashes);
            let found = f64::from(spec.millibits_per_key) / 1000.0;
            assert!((found / bits - 1.0).abs() < 0.002, "{rate}: {found} bits");
            assert!(fpr(hashes, found, 1.0) <= rate);
        }
    }

    #[test]
    fn summed_fpr_equals_the_closed_form() {
        // k = 1 has a closed form: n − m/k (1 − e^(−kn/m)).
        let exact = 1000.0 - 3000.0 * (1.0 - (-1.0_f64 / 3.0).exp());
        assert!((summed_fpr(1, 3000.0, 1000.0) - exact).abs() < 1e-6);
    }
}
