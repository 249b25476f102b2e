//! Ids that stand for "no id", raw and hashed.
//!
//! One such key in an audience would make every user without an id a member. Blank ids are
//! therefore filtered twice: when an audience is built and when a request is read. The set is
//! generated from junk strings found in real exports. Each is taken as it is, in lower case, in
//! upper case and capitalized (a Python exporter writes `None`). Each spelling is hashed once, and
//! twice because some pipelines hash ids that are hashed already.

use std::collections::HashSet;

use super::key::{DeviceKey, SHARDS};

/// Junk that exporters and SDKs write for a missing id.
const JUNK: &[&str] = &[
    "",
    " ",
    "0",
    "-",
    "-1",
    "null",
    "(null)",
    "nil",
    "none",
    "unknown",
    "unknow",
    "undefined",
    "N/A",
    "NA",
    "NaN",
    "true",
    "false",
    "default",
    "test",
    // IMEIs of test devices, cloned phones and documentation.
    "012345678912345",
    "123456789012345",
    "111111111111111",
    "004999010640000",
    "358673013795895",
    // An Android id shared by a series of emulators and phones.
    "9774d56d682e549c",
    // Returned by Android 6 and later instead of a MAC.
    "02:00:00:00:00:00",
    "020000000000",
    "02-00-00-00-00-00",
    // Unexpanded macros of a tracking link.
    "__IMEI__",
    "__IMEI2__",
    "__IDFA__",
    "__IDFA2__",
    "__IDFA_MD5__",
    "__IDFAMD5__",
    "__OAID__",
    "__OAID2__",
    "__OAID_MD5__",
    "__OAIDMD5__",
    "__ANDROIDID__",
    "__ANDROIDID2__",
    "__MAC__",
    "__MAC1__",
    "__MAC2__",
    "__CAID__",
    "__CAID1__",
    "__CAID2__",
    "__GAID__",
    "__IP__",
];

/// Lengths of runs of one repeated digit that stand for "no id".
const RUN_LENGTHS: &[usize] = &[8, 12, 14, 15, 16, 17, 32, 36, 40, 64];

/// Group lengths of a UUID and a MAC, for `00000000-0000-…` and `00:00:…`.
const UUID_GROUPS: &[usize] = &[8, 4, 4, 4, 12];
const MAC_GROUPS: &[usize] = &[2, 2, 2, 2, 2, 2];

/// The set of keys that mean "no id": a few thousand. A lookup that misses reads one bit of an
/// 8 KiB map.
#[derive(Clone)]
pub struct BlankIds {
    keys: HashSet<DeviceKey>,
    /// One bit per shard, set if it holds a blank key: answers nearly every lookup.
    shards: Box<[u64; SHARDS / 64]>,
}

impl BlankIds {
    /// The built-in set and the operator's own `extra` raw ids, in the same spellings and hashes.
    pub fn with_extra<I: AsRef<str>>(extra: impl IntoIterator<Item = I>) -> Self {
        let mut set = Self { keys: HashSet::new(), shards: Box::new([0; SHARDS / 64]) };
        for junk in JUNK {
            set.insert_spellings(junk);
        }
        for digit in "0123456789abcdefx".chars() {
            for length in RUN_LENGTHS {
                set.insert_spellings(&digit.to_string().repeat(*length));
            }
            set.insert_spellings(&grouped(digit, UUID_GROUPS, "-"));
            set.insert_spellings(&grouped(digit, MAC_GROUPS, ":"));
            set.insert_spellings(&grouped(digit, MAC_GROUPS, "-"));
        }
        for junk in extra {
            set.insert_spellings(junk.as_ref());
        }
        set
    }

    fn insert_spellings(&mut self, junk: &str) {
        let lower = junk.to_ascii_lowercase();
        let mut capitalized = lower.clone();
        if let Some(first) = capitalized.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        for spelling in [junk.to_owned(), junk.to_ascii_uppercase(), lower, capitalized] {
            let once = DeviceKey::of_canonical(spelling.as_bytes());
            let hex = const_hex::encode(once.as_bytes());
            self.insert(once);
            self.insert(DeviceKey::of_canonical(hex.as_bytes()));
            self.insert(DeviceKey::of_canonical(hex.to_ascii_uppercase().as_bytes()));
            // Junk of 32 hex digits has the shape of an md5.
            if let Some(key) = DeviceKey::from_hex(spelling.as_bytes()) {
                self.insert(key);
            }
        }
    }

    fn insert(&mut self, key: DeviceKey) {
        let shard = usize::from(key.shard());
        self.shards[shard / 64] |= 1 << (shard % 64);
        self.keys.insert(key);
    }

    /// Whether the key is that of a blank id.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        let shard = usize::from(key.shard());
        self.shards[shard / 64] >> (shard % 64) & 1 == 1 && self.keys.contains(key)
    }
}

impl Default for BlankIds {
    fn default() -> Self {
        Self::with_extra::<&str>([])
    }
}

impl std::fmt::Debug for BlankIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlankIds").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

fn grouped(digit: char, groups: &[usize], separator: &str) -> String {
    let runs: Vec<String> = groups.iter().map(|length| digit.to_string().repeat(*length)).collect();
    runs.join(separator)
}

/// Whether all characters but `-` and `:` are the same, ignoring case. True for an empty id.
#[inline]
pub(super) fn is_repeated_character(id: &[u8]) -> bool {
    let mut characters =
        id.iter().filter(|byte| !matches!(byte, b'-' | b':')).map(u8::to_ascii_lowercase);
    match characters.next() {
        Some(first) => characters.all(|byte| byte == first),
        None => true,
    }
}
