//! Ids that stand for "no id", raw and hashed.
//!
//! One such key in an audience would make every user without an id a member. Blank ids are
//! therefore filtered twice: when an audience is built and when a request is read.
//!
//! - Raw ids are judged by their structure: runs of one character, unexpanded macros of any name,
//!   values without a letter or digit.
//! - Hashes have no structure, so the set of blank keys lists the digests of junk found in real
//!   exports and of macros in use. Each is taken as it is, in lower case, in upper case and
//!   capitalized (a Python exporter writes `None`). Each spelling is hashed once, and twice because
//!   some pipelines hash ids that are hashed already.

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
    "-NaN",
    // Of pandas, Go and spreadsheets.
    "NaT",
    "<NA>",
    "<nil>",
    "<null>",
    "<none>",
    "#N/A",
    "#NA",
    "#NULL!",
    "#REF!",
    "#VALUE!",
    "#NAME?",
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
    // Written by databases for a null, the second by Redshift with escapes.
    "\\N",
    "\\\\N",
    // Rows of types, below the names of columns.
    "string",
    "varchar",
    // Common in logs, of unknown origin.
    "81684c2e68ade2cd4bf9f2e8a67dd4fe",
    "da4c50b4bab2fa1a3520e4482ab8e788",
];

/// Names of macros in tracking links, and of columns.
pub const MACROS: &[&str] = &[
    "IMEI",
    "IMEI1",
    "IMEI2",
    "IMEI3",
    "IMEI_MD5",
    "IMEIMD5",
    "HASH_IMEI",
    "MAC",
    "MAC1",
    "MAC2",
    "MAC3",
    "ANDROIDID",
    "ANDROIDID1",
    "ANDROIDID2",
    "ANDROIDID_MD5",
    "HASH_ANDROIDID",
    "OAID",
    "OAID1",
    "OAID2",
    "OAID_MD5",
    "OAIDMD5",
    "HASH_OAID",
    "IDFA",
    "IDFA2",
    "IDFA_MD5",
    "IDFAMD5",
    "HASH_IDFA",
    "CAID",
    "CAID1",
    "CAID2",
    "GAID",
    "UUID",
    "OPENUDID",
    "IDFV",
    "DEVICEID",
    "DEVICE_ID",
    "ANDROID_ID",
    "OPENID",
    "IP",
];

/// Brackets of macros.
pub const BRACKETS: &[(&str, &str)] = &[
    ("__", "__"),
    ("{", "}"),
    ("{{", "}}"),
    ("%%", "%%"),
    ("$", "$"),
    ("${", "}"),
    ("[", "]"),
];

/// Longest run of one decimal digit whose digest is listed.
const LONGEST_RUN: usize = 40;

/// Lengths of runs of another character that stand for "no id".
const RUN_LENGTHS: &[usize] = &[8, 12, 14, 15, 16, 17, 32, 36, 40, 64];

/// Group lengths of a UUID and a MAC, for `00000000-0000-…` and `00:00:…`.
const UUID_GROUPS: &[usize] = &[8, 4, 4, 4, 12];
const MAC_GROUPS: &[usize] = &[2, 2, 2, 2, 2, 2];

/// The set of keys that mean "no id": some thousands. A lookup that misses reads one or two bits of
/// 16 KiB.
#[derive(Clone)]
pub struct BlankIds {
    keys: HashSet<DeviceKey>,
    /// Bitmap of the blank keys' first two bytes: answers nine of ten lookups.
    shards: Box<[u64; SHARDS / 64]>,
    /// Bitmap of the next two bytes: answers nearly all other lookups.
    next: Box<[u64; SHARDS / 64]>,
}

impl BlankIds {
    /// The built-in set and the operator's own `extra` raw ids, in the same spellings and hashes.
    pub fn with_extra<I: AsRef<str>>(extra: impl IntoIterator<Item = I>) -> Self {
        let bits = || Box::new([0; SHARDS / 64]);
        let mut set = Self {
            keys: HashSet::new(),
            shards: bits(),
            next: bits(),
        };

        for junk in JUNK {
            set.insert_spellings(junk);
            set.insert_lines(junk);
        }

        for zeros in 1..=LONGEST_RUN {
            set.insert_lines(&"0".repeat(zeros));
        }
        set.insert_lines(&grouped('0', UUID_GROUPS, "-"));
        set.insert_lines(&grouped('0', MAC_GROUPS, ":"));
        for name in MACROS {
            // The name of a column, repeated between rows.
            set.insert_spellings(name);
            for (open, close) in BRACKETS {
                set.insert_spellings(&format!("{open}{name}{close}"));
            }
        }

        for digit in "0123456789abcdefx".chars() {
            let lengths = RUN_LENGTHS.iter().copied();
            let short = (1..=LONGEST_RUN).filter(|_| digit.is_ascii_digit());
            for length in lengths.chain(short) {
                set.insert_spellings(&digit.to_string().repeat(length));
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

    /// A shell that hashes a line hashes its end too: `echo null | md5sum`.
    fn insert_lines(&mut self, junk: &str) {
        for spelling in spellings(junk) {
            for end in ["\n", "\r\n"] {
                let line = format!("{spelling}{end}");
                self.insert(DeviceKey::of_canonical(line.as_bytes()));
            }
        }
    }

    fn insert_spellings(&mut self, junk: &str) {
        for spelling in spellings(junk) {
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
        let (shard, next) = indices(&key);
        self.shards[shard / 64] |= 1 << (shard % 64);
        self.next[next / 64] |= 1 << (next % 64);
        self.keys.insert(key);
    }

    /// Whether the key is that of a blank id.
    #[inline]
    pub fn contains(&self, key: &DeviceKey) -> bool {
        let (shard, next) = indices(key);
        self.shards[shard / 64] >> (shard % 64) & 1 == 1
            && self.next[next / 64] >> (next % 64) & 1 == 1
            && self.keys.contains(key)
    }
}

/// A key's shard, and the number in its next two bytes.
#[inline]
fn indices(key: &DeviceKey) -> (usize, usize) {
    let bytes = key.as_bytes();
    (
        usize::from(key.shard()),
        usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
    )
}

impl Default for BlankIds {
    fn default() -> Self {
        Self::with_extra::<&str>([])
    }
}

impl std::fmt::Debug for BlankIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlankIds")
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// A text as it is, in upper case, in lower case and capitalized.
fn spellings(text: &str) -> [String; 4] {
    let lower = text.to_ascii_lowercase();
    let mut capitalized = lower.clone();
    if let Some(first) = capitalized.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    [
        text.to_owned(),
        text.to_ascii_uppercase(),
        lower,
        capitalized,
    ]
}

fn grouped(digit: char, groups: &[usize], separator: &str) -> String {
    let runs: Vec<String> = groups
        .iter()
        .map(|length| digit.to_string().repeat(*length))
        .collect();
    runs.join(separator)
}

/// Whether a trimmed id has the structure of a placeholder: a run of one character, an unexpanded
/// macro, or no letter or digit.
#[inline]
pub fn is_placeholder(id: &[u8]) -> bool {
    // Nearly all ids end here: they begin with two characters that differ in more than case.
    if let [first, second, ..] = id
        && first.is_ascii_alphanumeric()
        && second.is_ascii_alphanumeric()
        && first | 0x20 != second | 0x20
    {
        return false;
    }
    is_repeated_character(id)
        || !id[0].is_ascii_alphanumeric() && (is_punctuation(id) || is_macro(id))
}

/// Whether all characters but `-` and `:` are the same, ignoring case. True for an empty id.
#[inline]
fn is_repeated_character(id: &[u8]) -> bool {
    let mut characters = id
        .iter()
        .filter(|byte| !matches!(byte, b'-' | b':'))
        .map(u8::to_ascii_lowercase);
    match characters.next() {
        Some(first) => characters.all(|byte| byte == first),
        None => true,
    }
}

fn is_punctuation(id: &[u8]) -> bool {
    id.iter()
        .all(|byte| byte.is_ascii_punctuation() || byte.is_ascii_whitespace())
}

/// Whether the id is a name in the brackets of a macro: `__NAME__`, `{NAME}`, `%%NAME%%` and so on,
/// also nested. An id in brackets is not a macro: its shape is wrong, and it counts as malformed.
pub fn is_macro(id: &[u8]) -> bool {
    let is_bracket = |byte: &&u8| b"_{[$%]}".contains(*byte);
    let open = id.iter().take_while(is_bracket).count();
    let close = id.iter().rev().take_while(is_bracket).count();
    let Some(name) = id.get(open..id.len() - close) else {
        return false;
    };

    // A single underscore is part of a name.
    let is_bracketed = |run: &[u8]| !matches!(run, b"" | b"_");
    is_bracketed(&id[..open]) && is_bracketed(&id[id.len() - close..]) && is_name(name.trim_ascii())
}

/// Whether a text is the name of a macro rather than an id or several: it has words and few digits.
fn is_name(text: &[u8]) -> bool {
    /// As in `IMEI1_SHA256`.
    const MOST_DIGITS: usize = 4;
    const LONGEST: usize = 40;
    /// Of a name in both cases with a digit, such as `androidIdMd5`: tokens look the same.
    const LONGEST_MIXED: usize = 12;

    let is_of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.: ".contains(byte);
    let is_of_hex = |byte: &u8| byte.is_ascii_hexdigit() || b"-: ".contains(byte);
    let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_mixed =
        text.iter().any(u8::is_ascii_lowercase) && text.iter().any(u8::is_ascii_uppercase);

    text.len() <= LONGEST
        && digits <= MOST_DIGITS
        && text.iter().all(is_of_a_name)
        && !(text.len() >= 12 && text.iter().all(is_of_hex))
        && !(is_mixed && digits > 0 && text.len() > LONGEST_MIXED)
}
