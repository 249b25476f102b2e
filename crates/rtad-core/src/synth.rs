//! Synthetic device ids: deterministic, for demos, tests and load.
//!
//! Ids of one seed and kind are distinct: each is a bijection of its index, formatted as an id of
//! the kind. They look random and belong to no device.

use std::fmt::Write as _;

use crate::device::{DeviceKey, IdKind};

/// A generator of ids of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Synth {
    kind: IdKind,
    seed: u64,
}

/// SplitMix64's finalizer: a bijection on 64 bits with random-looking output.
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Synth {
    /// Ids of `kind` from `seed`. Kind md5 gives the md5s of the IDFAs of the same seed.
    pub const fn new(kind: IdKind, seed: u64) -> Self {
        Self {
            kind,
            seed: mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1)),
        }
    }

    /// Appends the id at `index` to `id`, in the kind's canonical form.
    ///
    /// Distinct for all 2⁶⁴ indices of most kinds, the first 10¹⁴ of imei and 2⁴⁸ of mac.
    pub fn write(&self, index: u64, id: &mut String) {
        let first = mix(index.wrapping_add(self.seed));
        let second = mix(first ^ 0x5851_f42d_4c95_7f2d);
        let written = match self.kind {
            IdKind::Md5 => {
                let key = DeviceKey::of_canonical(&upper(uuid(first, second)));
                let mut hex = [0; 32];
                const_hex::encode_to_slice(key.as_bytes(), &mut hex)
                    .expect("32 digits for 16 bytes");
                push_ascii(&hex, id);
                Ok(())
            }
            IdKind::Idfa => {
                push_ascii(&upper(uuid(first, second)), id);
                Ok(())
            }
            IdKind::Gaid | IdKind::Oaid => {
                push_ascii(&uuid(first, second), id);
                Ok(())
            }
            IdKind::Imei => {
                // A bijection on 14 digits: the multiplier shares no factor with 10.
                const RANGE: u128 = 100_000_000_000_000;
                let serial =
                    (u128::from(index) * 61_803_398_874_989 + u128::from(self.seed)) % RANGE;
                write!(id, "{serial:014}{}", luhn(serial as u64))
            }
            IdKind::AndroidId => write!(id, "{first:016x}"),
            IdKind::Mac => {
                // A bijection on 48 bits: an odd multiplier and an added constant.
                let bits =
                    index.wrapping_mul(0x9e37_79b9_7f4b).wrapping_add(self.seed) & 0xffff_ffff_ffff;
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

/// Random key of an index: two steps of SplitMix64 (Steele, Lea and Flood 2014), seeded by the
/// index. It is a member of an audience with a chance of 2⁻¹²⁸ only.
pub fn random_key(index: u64) -> DeviceKey {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |n: u64| mix(n.wrapping_mul(STEP).wrapping_add(0x7261_6e64_6f6d_6b65));
    let high = step(2 * index);
    let low = step(2 * index + 1);
    DeviceKey::from_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

/// A version-4 UUID. The four bits of `high` that the version replaces move into `low`, so no bit
/// of `high` is lost. Avoids `format!`: load generators make millions per second.
fn uuid(high: u64, low: u64) -> [u8; 36] {
    let low = 0x8000_0000_0000_0000 | (high >> 12 & 0xf) << 56 | (low & 0x00ff_ffff_ffff_ffff);
    let high = high & !0xf000 | 0x4000;
    let mut digits = [0; 32];
    let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    const_hex::encode_to_slice(bytes, &mut digits).expect("32 digits for 16 bytes");
    let mut uuid = [b'-'; 36];
    for (from, to) in [
        (0..8, 0..8),
        (8..12, 9..13),
        (12..16, 14..18),
        (16..20, 19..23),
        (20..32, 24..36),
    ] {
        uuid[to].copy_from_slice(&digits[from]);
    }
    uuid
}

fn upper(mut uuid: [u8; 36]) -> [u8; 36] {
    uuid.make_ascii_uppercase();
    uuid
}

fn push_ascii(text: &[u8], id: &mut String) {
    id.push_str(std::str::from_utf8(text).expect("hex digits and dashes are ASCII"));
}

/// The check digit of an IMEI's 14 digits (ISO/IEC 7812-1, annex B).
fn luhn(serial: u64) -> u64 {
    let mut sum = 0;
    let mut rest = serial;
    for position in 0..14 {
        let digit = rest % 10;
        rest /= 10;
        // Every second digit is doubled, starting next to the check digit.
        let doubled = if position % 2 == 0 { digit * 2 } else { digit };
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
                    assert_eq!(
                        key,
                        DeviceKey::of_canonical(id.as_bytes()),
                        "{kind} {id} is canonical"
                    );
                }
                assert!(seen.insert(key), "{kind} {id} is a duplicate");
            }
        }
    }

    #[test]
    fn ids_are_frozen_per_seed_and_index() {
        // Load tests and published figures refer to ids by seed and index.
        assert_eq!(
            Synth::new(IdKind::Idfa, 0).id(0),
            Synth::new(IdKind::Idfa, 0).id(0)
        );
        for (kind, id) in [
            (IdKind::Md5, "d533cab9f042bc13422d189162954147"),
            (IdKind::Idfa, "FE699F7E-9D6D-445D-8486-7F19C69C37BC"),
            (IdKind::Imei, "955208727654919"),
            (IdKind::Oaid, "fe699f7e-9d6d-445d-8486-7f19c69c37bc"),
            (IdKind::AndroidId, "fe699f7e9d6d445d"),
            (IdKind::Mac, "32:E2:42:B7:CF:01"),
            (IdKind::Caid, "fe699f7e9d6d445d74867f19c69c37bc"),
            (IdKind::Gaid, "fe699f7e-9d6d-445d-8486-7f19c69c37bc"),
            (IdKind::Openid, "ofe699f7e9d6d445d74867f19"),
        ] {
            assert_eq!(Synth::new(kind, 3).id(9), id, "{kind}");
        }
        assert_ne!(
            Synth::new(IdKind::Idfa, 0).id(0),
            Synth::new(IdKind::Idfa, 1).id(0)
        );
        let idfa = Synth::new(IdKind::Idfa, 3).id(9);
        let md5 = Synth::new(IdKind::Md5, 3).id(9);
        assert_eq!(
            md5,
            const_hex::encode(DeviceKey::of_canonical(idfa.as_bytes()).as_bytes())
        );
    }

    #[test]
    fn imei_check_digit_is_luhn() {
        // 49015420323751 → 8 is the textbook example.
        assert_eq!(luhn(49_015_420_323_751), 8);
        assert_eq!(luhn(86_804_903_950_125), 7);
    }

    #[test]
    fn uuid_keeps_all_bits_of_its_first_half() {
        let mut seen = HashSet::new();
        for nibble in 0..16_u64 {
            let id = uuid(nibble << 12, u64::MAX);
            assert!(seen.insert(id));
        }
    }
}
