//! The kinds of device id: the shape and the canonical case of each.

use std::fmt;
use std::str::FromStr;

use strum::VariantArray as _;

/// The kind of an id. Decides its canonical form before md5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::VariantArray)]
pub enum IdKind {
    /// Already hashed: 32 hex digits of either case.
    Md5,
    /// Apple's advertising id: a UUID, upper case, dashes kept.
    Idfa,
    /// IMEI or MEID: 14 to 17 hex digits, lower case.
    Imei,
    /// China's anonymous id (MSA): exactly as issued; its case is part of it.
    Oaid,
    /// Android id: up to 16 hex digits, as is.
    AndroidId,
    /// MAC address: 12 hex digits, with or without separators, as is.
    Mac,
    /// China Advertising Association's id: as is. Its value differs by version.
    Caid,
    /// Google's advertising id: a UUID, lower case, dashes kept.
    Gaid,
    /// A platform's account id, or anything else: as is.
    Openid,
}

/// Longest raw id; longer values are malformed.
const MAX_ID_BYTES: usize = 128;

impl IdKind {
    /// Every kind, in the order they are documented.
    pub const ALL: [Self; 9] = *Self::VARIANTS.as_array().expect("every variant");

    /// The name used on the command line, in URLs and as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Idfa => "idfa",
            Self::Imei => "imei",
            Self::Oaid => "oaid",
            Self::AndroidId => "android_id",
            Self::Mac => "mac",
            Self::Caid => "caid",
            Self::Gaid => "gaid",
            Self::Openid => "openid",
        }
    }

    /// The accepted shape of this kind, for messages.
    pub const fn accepted(self) -> &'static str {
        match self {
            Self::Md5 => "32 hex digits",
            Self::Idfa | Self::Gaid => "a UUID with dashes",
            Self::Imei => "14 to 17 hex digits",
            Self::AndroidId => "up to 16 hex digits",
            Self::Mac => "12 hex digits, with : or - between pairs or without",
            Self::Oaid | Self::Caid => "up to 128 visible ASCII characters, none of `\"[]{},%`",
            Self::Openid => "up to 128 visible ASCII characters",
        }
    }

    /// The case of the kind's canonical form.
    #[inline]
    pub const fn canonical_case(self) -> Case {
        match self {
            Self::Idfa => Case::Upper,
            Self::Imei | Self::Gaid => Case::Lower,
            Self::Md5 | Self::Oaid | Self::AndroidId | Self::Mac | Self::Caid | Self::Openid => {
                Case::AsIs
            }
        }
    }

    /// Whether a trimmed raw id has the shape of this kind. Lenient on purpose: a wrongly rejected
    /// id shows an ad to an old user; a wrongly accepted one adds a key that no request has.
    #[inline]
    pub fn has_shape(self, id: &[u8]) -> bool {
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return false;
        }
        match self {
            Self::Md5 => id.len() == 32 && is_hex(id),
            Self::Idfa | Self::Gaid => is_uuid(id),
            Self::Imei => (14..=17).contains(&id.len()) && is_hex(id),
            Self::AndroidId => id.len() <= 16 && is_hex(id),
            Self::Mac => is_mac(id),
            Self::Oaid | Self::Caid => is_all(id, |byte| TOKEN[usize::from(*byte)]),
            Self::Openid => is_all(id, u8::is_ascii_graphic),
        }
    }
}

/// Visible ASCII without the marks of JSON, lists and URL encoding: text with them holds an id, or
/// several, and is none.
const TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        token[byte as usize] = !matches!(byte, b'"' | b'[' | b']' | b'{' | b'}' | b',' | b'%');
        byte += 1;
    }
    token
};

/// Whether all bytes pass. Reads all of them: digits and letters alternate at random, so a branch
/// per byte would be mispredicted at every second one.
#[inline]
fn is_all(id: &[u8], passes: impl Fn(&u8) -> bool) -> bool {
    id.iter().fold(true, |all, byte| all & passes(byte))
}

fn is_hex(id: &[u8]) -> bool {
    is_all(id, u8::is_ascii_hexdigit)
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

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An unknown name of an id kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown id kind; the kinds are md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid"
)]
#[non_exhaustive]
pub struct ParseKindError;

impl FromStr for IdKind {
    type Err = ParseKindError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or(ParseKindError)
    }
}

/// The case that an id is converted to before it is hashed. ASCII only: ids have no other letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    /// Not changed.
    AsIs,
    /// Lower case.
    Lower,
    /// Upper case.
    Upper,
    /// All three, each with its own key: for exports of unknown case.
    All,
}

impl Case {
    /// Calls `read` with `id` in this case. Does not allocate: an id of valid shape is short. `All`
    /// counts as `AsIs`.
    #[inline]
    pub(super) fn apply<T>(self, id: &[u8], read: impl FnOnce(&[u8]) -> T) -> T {
        let mut buffer = [0; MAX_ID_BYTES];
        match self {
            Self::AsIs | Self::All => read(id),
            Self::Lower => {
                let spelled = &mut buffer[..id.len()];
                spelled.copy_from_slice(id);
                spelled.make_ascii_lowercase();
                read(spelled)
            }
            Self::Upper => {
                let spelled = &mut buffer[..id.len()];
                spelled.copy_from_slice(id);
                spelled.make_ascii_uppercase();
                read(spelled)
            }
        }
    }
}

/// An unknown name of a case rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown case; the cases are as-is, lower, upper, all")]
#[non_exhaustive]
pub struct ParseCaseError;

impl FromStr for Case {
    type Err = ParseCaseError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "as-is" => Ok(Self::AsIs),
            "lower" => Ok(Self::Lower),
            "upper" => Ok(Self::Upper),
            "all" => Ok(Self::All),
            _ => Err(ParseCaseError),
        }
    }
}
