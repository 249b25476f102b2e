//! The kinds of device id, and the canonical case of each.

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
pub(super) const MAX_ID_BYTES: usize = 128;

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
