//! Values of a request: slices of the body, and numbers.
//!
//! Values may be device ids, so `Debug` hides them.

use std::fmt::{self, Write as _};

use arrayvec::ArrayString;

/// A buffer for any 64-bit number in decimal.
pub type Digits = ArrayString<20>;

/// A value.
#[derive(Clone, Default, PartialEq)]
pub enum Value<'a> {
    /// No value.
    #[default]
    Absent,
    /// A signed number.
    Int(i64),
    /// An unsigned number, or a bool as 1 or 0.
    Uint(u64),
    /// A slice of the body.
    Bytes(&'a [u8]),
    /// A text that the body does not contain: a JSON string that had escapes, or one of the config.
    Owned(Box<[u8]>),
}

impl Value<'_> {
    /// Whether there is no value.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The bytes of a text; nothing for numbers.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            _ => b"",
        }
    }

    /// Whether it is this text.
    #[inline]
    pub fn is_text(&self, text: &[u8]) -> bool {
        matches!(self, Self::Bytes(_) | Self::Owned(_)) && self.bytes() == text
    }

    /// The bytes of a string, the decimal digits of a number, or nothing if absent.
    #[inline]
    pub fn text<'v>(&'v self, digits: &'v mut Digits) -> &'v [u8] {
        digits.clear();
        let written = match self {
            Self::Absent => return b"",
            Self::Bytes(bytes) => return bytes,
            Self::Owned(bytes) => return bytes,
            Self::Int(number) => write!(digits, "{number}"),
            Self::Uint(number) => write!(digits, "{number}"),
        };
        written.expect("20 digits hold any 64-bit number");
        digits.as_bytes()
    }

    /// The number, also if written as text.
    pub fn integer(&self) -> Option<i128> {
        match self {
            Self::Absent => None,
            Self::Int(number) => Some((*number).into()),
            Self::Uint(number) => Some((*number).into()),
            Self::Bytes(text) => integer_of(text),
            Self::Owned(text) => integer_of(text),
        }
    }

    /// Whether it is true: a nonzero number, `"true"` or `"1"`.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Absent => false,
            Self::Int(number) => *number != 0,
            Self::Uint(number) => *number != 0,
            Self::Bytes(text) => matches!(*text, b"true" | b"1"),
            Self::Owned(text) => matches!(&**text, b"true" | b"1"),
        }
    }
}

/// A 64-bit number in decimal.
pub fn integer_of(text: &[u8]) -> Option<i128> {
    let number: i128 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX))
        .contains(&number)
        .then_some(number)
}

/// A decimal number without plus or leading zeros. Strategy ids are compared as text, so another
/// spelling would be another id.
pub fn canonical_integer_of(text: &[u8]) -> Option<i128> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = text == b"0"
        || digits
            .first()
            .is_some_and(|digit| (b'1'..=b'9').contains(digit));
    if is_canonical { integer_of(text) } else { None }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Owned(text.into_bytes().into())
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes())
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// The text, with replacement characters for invalid UTF-8.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.text(&mut Digits::new())))
    }
}

/// Hides the value.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_absent() {
            "Absent"
        } else {
            "Value(hidden)"
        })
    }
}
