//! Forms of ids: whether a text can be an id of a kind, and what it looks like if it is none.
//!
//! Lists, requests, writes and the Python package all ask here. A text that only looks like an id
//! is hashed to a key that no device has, so a whole list of them loses all its devices without a
//! sign. Two answers prevent that:
//!
//! - [`IdKind::has_shape`]: texts that no device has as an id are malformed, everywhere.
//! - [`lookalike`]: ids that their kind accepts and that have the form of something else. One of
//!   them proves nothing, because some kinds overlap; most ids of a list do.

use std::fmt;

use super::key::DeviceKey;
use super::kind::{Case, IdKind, MAX_ID_BYTES};

/// Lengths of OAIDs and CAIDs: 64 at most, as the standard of OAIDs has it, and none that only a
/// digest has: 40 of SHA-1, 56 of SHA-224. OAIDs of some vendors have the 64 of SHA-256.
const TOKEN_LENGTHS: [bool; 65] = {
    let mut lengths = [true; 65];
    lengths[0] = false;
    lengths[40] = false;
    lengths[56] = false;
    lengths
};

/// Bytes of OAIDs and CAIDs: letters, digits, `-` and `_`. Every other mark stands around an id or
/// between several.
const TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = 0;
    while byte < token.len() {
        token[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'_');
        byte += 1;
    }
    token
};

/// A byte of a number.
const DIGIT: u8 = 1;
/// A byte of a fraction, or of an exponent with a sign.
const FRACTION: u8 = 2;
/// A byte of no number.
const LETTER: u8 = 4;
/// A byte of no account id.
const FOREIGN: u8 = 8;

/// Classes of the bytes of account ids, as flags: all bytes of an id are read in one loop without a
/// branch.
const ACCOUNT: [u8; 256] = {
    let mut classes = [FOREIGN; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' | b'e' | b'E' | b'-' => DIGIT,
            b'.' | b'+' => FRACTION,
            b'_' | b'@' | b'/' => LETTER,
            letter if letter.is_ascii_alphabetic() => LETTER,
            _ => FOREIGN,
        };
        byte += 1;
    }
    classes
};

impl IdKind {
    /// The accepted shape of this kind, for messages.
    pub const fn accepted(self) -> &'static str {
        match self {
            Self::Md5 => "32 hex digits",
            Self::Idfa | Self::Gaid => "a UUID with dashes",
            Self::Imei => "14 to 17 hex digits",
            Self::AndroidId => "up to 16 hex digits",
            Self::Mac => "12 hex digits, with : or - between pairs or without",
            Self::Oaid | Self::Caid => {
                "up to 64 letters, digits, - and _, but not 40 or 56, which are digests"
            }
            Self::Openid => {
                "up to 128 letters, digits and -_.@+/, but no fractions or signed exponents"
            }
        }
    }

    /// Whether a trimmed raw id has the shape of this kind. Lenient on purpose: a wrongly rejected
    /// id shows an ad to an old user; a wrongly accepted one adds a key that no request has.
    #[inline]
    pub fn has_shape(self, id: &[u8]) -> bool {
        match self {
            Self::Md5 => id.len() == 32 && is_hex(id),
            Self::Idfa | Self::Gaid => is_uuid(id),
            Self::Imei => (14..=17).contains(&id.len()) && is_hex(id),
            Self::AndroidId => (1..=16).contains(&id.len()) && is_hex(id),
            Self::Mac => is_mac(id),
            Self::Oaid | Self::Caid => {
                TOKEN_LENGTHS.get(id.len()) == Some(&true)
                    && is_all(id, |byte| TOKEN[usize::from(*byte)])
            }
            Self::Openid => (1..=MAX_ID_BYTES).contains(&id.len()) && is_account(id),
        }
    }
}

/// Whether all bytes pass. Reads all of them: digits and letters alternate at random, so a branch
/// per byte would be mispredicted at every second one.
#[inline]
fn is_all(id: &[u8], passes: impl Fn(&u8) -> bool) -> bool {
    id.iter().fold(true, |all, byte| all & passes(byte))
}

fn is_hex(id: &[u8]) -> bool {
    is_all(id, u8::is_ascii_hexdigit)
}

fn is_decimal(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_digit)
}

fn is_uuid(id: &[u8]) -> bool {
    const DASHES: [bool; 36] = separators(&[8, 13, 18, 23]);
    id.as_array()
        .is_some_and(|id| is_grouped(id, DASHES, |byte| byte == b'-'))
}

fn is_mac(id: &[u8]) -> bool {
    const SEPARATORS: [bool; 17] = separators(&[2, 5, 8, 11, 14]);
    match id.len() {
        12 => is_hex(id),
        _ => id
            .as_array()
            .is_some_and(|id| is_grouped(id, SEPARATORS, |byte| (byte == b':') | (byte == b'-'))),
    }
}

/// Whether all bytes are of an account id, and they are no number with a fraction or an exponent.
#[inline]
fn is_account(id: &[u8]) -> bool {
    let classes = id
        .iter()
        .fold(0, |classes, byte| classes | ACCOUNT[usize::from(*byte)]);
    classes < FOREIGN && (classes & LETTER != 0 || classes & FRACTION == 0)
}

const fn separators<const N: usize>(indexes: &[usize]) -> [bool; N] {
    let mut separators = [false; N];
    let mut index = 0;
    while index < indexes.len() {
        separators[indexes[index]] = true;
        index += 1;
    }
    separators
}

/// Whether an id has separators at these indexes and hex digits elsewhere. Known lengths become
/// vector instructions.
#[inline]
fn is_grouped<const N: usize>(
    id: &[u8; N],
    separators: [bool; N],
    is_separator: impl Fn(u8) -> bool,
) -> bool {
    id.iter()
        .zip(separators)
        .fold(true, |all, (byte, separator)| {
            all & ((byte.is_ascii_hexdigit() & !separator) | (is_separator(*byte) & separator))
        })
}

/// The key of a digest as its 16 bytes. `None` if they are text: printable, perhaps with white
/// space or zeros around. So is one digest in 7 million, which counts as malformed.
#[inline]
pub fn digest_key(bytes: &[u8]) -> Option<DeviceKey> {
    let bytes = *bytes.as_array::<16>()?;
    (!is_text(&bytes)).then(|| DeviceKey::from_bytes(bytes))
}

#[inline]
fn is_text(bytes: &[u8; 16]) -> bool {
    // Nearly all digests end here.
    is_all(bytes, |byte| *byte <= b'~') && is_printable(bytes)
}

fn is_printable(bytes: &[u8]) -> bool {
    let mut text = bytes;
    while let Some((0, before)) = text.split_last() {
        text = before;
    }
    let text = text.trim_ascii();
    text.iter()
        .all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

/// The look of a text that is no id of its declared kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// An id of this kind.
    Id(IdKind),
    /// A digest that is no md5, or one in base64.
    Digest,
    /// A whole number.
    Number,
    /// A number with a fraction or an exponent.
    Float,
    /// An id in quotes or brackets or behind a label, or several ids.
    Wrapped,
}

impl Look {
    /// Every look, the kinds from the narrowest shape to the widest. A GAID stands for an OAID too.
    pub const ALL: [Self; 10] = [
        Self::Id(IdKind::Md5),
        Self::Id(IdKind::Gaid),
        Self::Id(IdKind::Idfa),
        Self::Id(IdKind::Imei),
        Self::Id(IdKind::AndroidId),
        Self::Id(IdKind::Mac),
        Self::Digest,
        Self::Number,
        Self::Float,
        Self::Wrapped,
    ];

    /// The look of a trimmed text.
    pub fn of(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|look| look.is_of(text))
    }

    fn is_of(self, text: &[u8]) -> bool {
        match self {
            // UUIDs in lower case are GAIDs or OAIDs, those in upper case are IDFAs.
            Self::Id(IdKind::Gaid) => is_uuid(text) && text.iter().any(u8::is_ascii_lowercase),
            Self::Id(kind) => kind.has_shape(text),
            Self::Digest => is_other_digest(text),
            Self::Number => is_decimal(text),
            Self::Float => is_float(text),
            Self::Wrapped => is_wrapped(text),
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id(kind) => return write!(f, "ids of kind {kind}"),
            Self::Digest => "digests other than md5 in hex, such as SHA-1 or base64",
            Self::Number => "numbers or dates",
            Self::Float => "numbers with a fraction or an exponent, as spreadsheets write ids",
            Self::Wrapped => "ids in quotes or brackets, with a label, or several in one text",
        })
    }
}

/// Whether a text has the length and the characters of SHA-1, SHA-2 or of an md5 in base64.
fn is_other_digest(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 56 | 64 | 96 | 128) && is_hex(text) || is_base64_digest(text)
}

/// Whether a text is base64 of 16, 20, 32 or 64 bytes. Without padding it has both cases, so that
/// nearly no other token of this length is one.
fn is_base64_digest(text: &[u8]) -> bool {
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] => digits,
        digits => digits,
    };
    let has_both_cases =
        digits.iter().any(u8::is_ascii_lowercase) && digits.iter().any(u8::is_ascii_uppercase);
    matches!(digits.len(), 22 | 27 | 43 | 86)
        && digits.iter().all(is_of_base64)
        && (digits.len() < text.len() || has_both_cases)
}

fn is_of_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(byte)
}

/// Whether a text is a number with a fraction or an exponent: `868049039501257.0`, `8.68E+14`.
fn is_float(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_digit)
        && text.iter().all(is_of_float)
        && text.contains(&b'.')
}

fn is_of_float(byte: &u8) -> bool {
    byte.is_ascii_digit() || b".+-eE".contains(byte)
}

/// Shortest id with a label or between marks.
const SHORTEST_ID: usize = 12;

/// Whether a text has another mark than an id, and the characters of one beside it.
fn is_wrapped(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| !TOKEN[usize::from(*byte)]);
    let is_whole = parts.clone().nth(1).is_none();
    !is_whole && parts.any(|part| part.len() >= SHORTEST_ID)
}

/// Whether hex digits as long as an id have `-` or `_` beside them: after a label, before a version
/// or between two ids. UUIDs have it too.
fn is_joined(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| matches!(byte, b'-' | b'_'));
    let is_whole = parts.clone().nth(1).is_none();
    !is_whole && parts.any(|part| part.len() >= SHORTEST_ID && is_hex(part))
}

/// Whether an account id is two ids with a mark between, or begins with a kind's name.
fn is_joined_account(id: &[u8]) -> bool {
    let has_label = |kind: &IdKind| {
        let name = kind.as_str();
        id.len() > name.len() + SHORTEST_ID
            && !id[name.len()].is_ascii_alphanumeric()
            && id[..name.len()].eq_ignore_ascii_case(name.as_bytes())
    };
    is_pair(id) || IdKind::ALL.iter().any(has_label)
}

/// Whether a text is two ids of one length with a mark between: of hex digits, or with one
/// beginning, as the openids of an app have it.
fn is_pair(text: &[u8]) -> bool {
    let half = text.len() / 2;
    if half < SHORTEST_ID || text.len().is_multiple_of(2) || text[half].is_ascii_alphanumeric() {
        return false;
    }

    let first = &text[..half];
    let second = &text[half + 1..];
    let is_of_device = |id: &[u8]| is_hex(id) || is_uuid(id);
    first[..3] == second[..3] || is_of_device(first) && is_of_device(second)
}

/// Whether a text is a number or a date.
fn is_number_or_date(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_digit)
        && is_all(text, |byte| {
            byte.is_ascii_digit() | matches!(byte, b'-' | b'_')
        })
}

/// Whether a text has upper-case letters and no lower-case ones.
fn is_upper(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_uppercase) && !text.iter().any(u8::is_ascii_lowercase)
}

/// The look of an id that this kind accepts, if it is that of something else. CAIDs always look
/// like md5s, and IDFAs like GAIDs, so these are no lookalikes.
#[inline]
pub fn lookalike(kind: IdKind, id: &[u8]) -> Option<Look> {
    use IdKind::{AndroidId, Caid, Idfa, Imei, Mac, Md5, Oaid, Openid};

    let id = super::key_maker::trim(id);
    let look = match (kind, id.len()) {
        // Nearly all OAIDs and CAIDs end here.
        (Oaid, 36) if is_uuid(id) => return None,
        (Oaid, 64) | (Caid, 32) if is_hex(id) => return None,
        (Oaid, 32) if is_hex(id) => Look::Id(Md5),
        // Openids of QQ are in upper case.
        (Openid, 32) if is_hex(id) && !is_upper(id) => Look::Id(Md5),
        // Serial numbers of 16 digits are decimal.
        (Imei, 16) if !is_decimal(id) => Look::Id(AndroidId),
        (Caid, 16) if is_hex(id) => Look::Id(AndroidId),
        // MEIDs. An Android id in lower case loses two zeros at its start once in 256 ids.
        (Oaid | Caid, 14) if is_hex(id) && !is_decimal(id) => Look::Id(Imei),
        (AndroidId, 14) if is_upper(id) => Look::Id(Imei),
        (AndroidId | Oaid | Caid, 15) if is_decimal(id) => Look::Id(Imei),
        // An Android id loses four zeros at its start once in 65,536 ids.
        (AndroidId, 12) => Look::Id(Mac),
        (Oaid, 12 | 17) if is_mac(id) => Look::Id(Mac),
        (Caid, 36) if is_uuid(id) => Look::Id(Idfa),
        (Caid, 64) | (Openid, 40 | 56 | 64 | 96 | 128) if is_hex(id) => Look::Digest,
        (Oaid | Caid | Openid, 22 | 27 | 43) | (Openid, 86) if is_base64_digest(id) => Look::Digest,
        // Platforms drop the version of a CAID.
        (Oaid | Caid, 13..=15 | 17..=64) if is_joined(id) => Look::Wrapped,
        (Openid, _) if is_joined_account(id) => Look::Wrapped,
        // One Android id in 1,800 has decimal digits alone, as those of 16 digits show.
        (AndroidId, 0..=14) if is_decimal(id) => Look::Number,
        (Oaid | Caid, 0..=15 | 17..=24) if is_number_or_date(id) => Look::Number,
        _ => return None,
    };
    Some(look)
}

/// The reading of an id of a list of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The kind.
    pub kind: IdKind,
    /// The case before the hash; [`Case::All`] if the id may be of two kinds.
    pub case: Case,
}

impl Reading {
    /// Every kind, in the order in which an id of several is read: openids are any text. CAIDs are
    /// last, because 32 hex digits look like other ids than openids and OAIDs.
    pub const NARROWEST_FIRST: [IdKind; IdKind::ALL.len()] = [
        IdKind::Md5,
        IdKind::Idfa,
        IdKind::Gaid,
        IdKind::Mac,
        IdKind::Imei,
        IdKind::AndroidId,
        IdKind::Oaid,
        IdKind::Openid,
        IdKind::Caid,
    ];

    /// The reading of an id of one kind.
    #[inline]
    pub const fn of(kind: IdKind) -> Self {
        Self {
            kind,
            case: kind.canonical_case(),
        }
    }

    /// The reading of a trimmed id of one of several kinds, which are as in
    /// [`NARROWEST_FIRST`](Self::NARROWEST_FIRST): the first that accepts it and that it is no
    /// lookalike of, else the first that accepts it, else the first.
    ///
    /// A UUID is an IDFA or a GAID if one of them is named. In another case than theirs it may be
    /// an id of a kind that keeps its case too, such as an OAID, and has the keys of both.
    pub fn among(kinds: &[IdKind], id: &[u8]) -> Self {
        if is_uuid(id)
            && let Some(reading) = Self::of_uuid(kinds, id)
        {
            return reading;
        }

        let mut doubtful = None;
        for kind in kinds {
            if !kind.has_shape(id) {
                continue;
            }
            if lookalike(*kind, id).is_none() {
                return Self::of(*kind);
            }
            doubtful = doubtful.or(Some(*kind));
        }
        Self::of(doubtful.unwrap_or(kinds[0]))
    }

    fn of_uuid(kinds: &[IdKind], id: &[u8]) -> Option<Self> {
        let has_lower = id.iter().any(u8::is_ascii_lowercase);
        let has_upper = id.iter().any(u8::is_ascii_uppercase);
        let (first, second) = if has_lower {
            (IdKind::Gaid, IdKind::Idfa)
        } else {
            (IdKind::Idfa, IdKind::Gaid)
        };
        let kind = [first, second]
            .into_iter()
            .find(|kind| kinds.contains(kind))?;

        let is_changed = match kind.canonical_case() {
            Case::Upper => has_lower,
            _ => has_upper,
        };
        let may_be_other = kinds
            .iter()
            .any(|kind| matches!(kind, IdKind::Oaid | IdKind::Openid));
        let case = if is_changed && may_be_other {
            Case::All
        } else {
            kind.canonical_case()
        };
        Some(Self { kind, case })
    }
}

#[cfg(test)]
mod tests;
