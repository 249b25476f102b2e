//! Synthetic device ids: the same ones each time, on any machine, for demos, tests and load.
//!
//! Id `index` of a seed never equals another index's of the same seed and kind: each is a bijection of the index, dressed as
//! an id of its kind. The ids look random and belong to nobody.

use std::fmt::Write as _;

use crate::device::{DeviceKey, IdKind};

/// Makes ids of one kind from a seed.
#[derive(Debug, Clone, Copy)]
pub struct Synth {
    kind: IdKind,
    seed: u64,
}

/// SplitMix64's finaliser: a bijection on 64 bits whose output passes for random.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Synth {
    /// Ids of `kind` from `seed`. Kind md5 gives the md5s of the IDFAs of the same seed.
    pub const fn new(kind: IdKind, seed: u64) -> Self {
        Self { kind, seed: mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)) }
    }

    /// Appends the id at `index` to `id`, in the kind's canonical form.
    ///
    /// Distinct for distinct indices: of all 2⁶⁴ for most kinds, of the first 10¹⁴ for imei and 2⁴⁸ for mac, which hold no more.
    pub fn write(&self, index: u64, id: &mut String) {
        let first = mix(index.wrapping_add(self.seed));
        let second = mix(first ^ 0x5851_f42d_4c95_7f2d);
        let written = match self.kind {
            IdKind::Md5 => {
                let mut idfa = String::with_capacity(36);
                uuid(first, second, &mut idfa);
                idfa.make_ascii_uppercase();
                let key = DeviceKey::of_canonical(idfa.as_bytes());
                let mut hex = [0; 32];
                const_hex::encode_to_slice(key.as_bytes(), &mut hex).expect("32 digits for 16 bytes");
                id.extend(hex.iter().map(|digit| char::from(*digit)));
                Ok(())
            }
            IdKind::Idfa => {
                let start = id.len();
                uuid(first, second, id);
                id[start..].make_ascii_uppercase();
                Ok(())
            }
            IdKind::Gaid | IdKind::Oaid => {
                uuid(first, second, id);
                Ok(())
            }
            IdKind::Imei => {
                // A bijection on 14 digits: the multiplier shares no factor with 10.
                const RANGE: u128 = 100_000_000_000_000;
                let serial = (u128::from(index) * 61_803_398_874_989 + u128::from(self.seed)) % RANGE;
                write!(id, "{serial:014}{}", luhn(serial as u64))
            }
            IdKind::AndroidId => write!(id, "{first:016x}"),
            IdKind::Mac => {
                // A bijection on 48 bits: an odd multiplier and an added constant.
                let bits = index.wrapping_mul(0x9e37_79b9_7f4b).wrapping_add(self.seed) & 0xffff_ffff_ffff;
                let octet = |n: u32| (bits >> (8 * n)) & 0xff;
                let [a, b, c, d, e, f] = [5, 4, 3, 2, 1, 0].map(octet);
                write!(id, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{f:02X}")
            }
            IdKind::Caid => write!(id, "{first:016x}{second:016x}"),
            IdKind::Openid => write!(id, "o{first:016x}{:08x}", second >> 32),
        };
        written.expect("a String takes what is written");
    }

    /// The id at `index`.
    pub fn id(&self, index: u64) -> String {
        let mut id = String::with_capacity(36);
        self.write(index, &mut id);
        id
    }
}

/// With version 4 and its variant: the four bits of `high` that the version covers move into `low`, so all 64 are kept.
fn uuid(high: u64, low: u64, id: &mut String) {
    let low = 0x8000_0000_0000_0000 | (high >> 12 & 0xf) << 56 | (low & 0x00ff_ffff_ffff_ffff);
    let written = write!(
        id,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48,
        low & 0xffff_ffff_ffff
    );
    written.expect("a String takes what is written");
}

/// The check digit of 14 digits (ISO/IEC 7812-1, annex B), as an IMEI ends with one.
fn luhn(serial: u64) -> u64 {
    let mut sum = 0;
    let mut rest = serial;
    for place in 0..14 {
        let digit = rest % 10;
        rest /= 10;
        // Doubled from the digit next to the check digit on, every second one.
        let doubled = if place % 2 == 0 { digit * 2 } else { digit };
        sum += doubled / 10 + doubled % 10;
    }
    (10 - sum % 10) % 10
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::device::KeyMaker;

    #[test]
    fn ids_are_distinct_usable_and_canonical() {
        let keys = KeyMaker::default();
        for kind in IdKind::ALL {
            let synth = Synth::new(kind, 7);
            let mut seen = HashSet::new();
            for index in 0..50_000 {
                let id = synth.id(index);
                let key = keys.key(kind, id.as_bytes()).unwrap();
                if kind != IdKind::Md5 {
                    assert_eq!(key, DeviceKey::of_canonical(id.as_bytes()), "{kind} {id} is canonical");
                }
                assert!(seen.insert(key), "{kind} {id} came twice");
            }
        }
    }

    #[test]
    fn seeds_and_indices_decide_alone() {
        // Frozen: load tests and published figures name ids by seed and index.
        assert_eq!(Synth::new(IdKind::Idfa, 0).id(0), Synth::new(IdKind::Idfa, 0).id(0));
        assert_ne!(Synth::new(IdKind::Idfa, 0).id(0), Synth::new(IdKind::Idfa, 1).id(0));
        let idfa = Synth::new(IdKind::Idfa, 3).id(9);
        let md5 = Synth::new(IdKind::Md5, 3).id(9);
        assert_eq!(md5, const_hex::encode(DeviceKey::of_canonical(idfa.as_bytes()).as_bytes()));
    }

    #[test]
    fn an_imei_ends_in_its_check_digit() {
        // 49015420323751 → 8 is the textbook's example; the second is the design's vector.
        assert_eq!(luhn(49_015_420_323_751), 8);
        assert_eq!(luhn(86_804_903_950_125), 7);
    }

    #[test]
    fn a_uuid_keeps_all_of_its_first_half() {
        let mut seen = HashSet::new();
        for nibble in 0..16_u64 {
            let mut id = String::new();
            uuid(nibble << 12, u64::MAX, &mut id);
            assert!(seen.insert(id));
        }
    }
}
