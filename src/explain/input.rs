//! Encodings of a captured body: the bytes themselves, or hex or base64 from a log or packet dump.
//!
//! The explanation shows the encoding, so a wrong guess is visible.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

/// The encoding of a captured body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// The bytes themselves; also JSON.
    Binary,
    /// Two hex digits per byte, of either case. White space and a leading `0x` are ignored.
    Hex,
    /// Base64 or its URL-safe form, padded or not, white space ignored.
    Base64,
}

/// An unknown encoding, or a text that is not in the given encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// Error of [`Encoding::from_str`].
    #[error("accepted: binary, hex, base64")]
    UnknownEncoding,
    /// Error of [`read`].
    #[error("it is not {0}: try --input auto")]
    NotIn(Encoding),
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Self; 3] = [Self::Binary, Self::Hex, Self::Base64];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    fn decode(self, text: &Bytes) -> Option<Bytes> {
        let dense = || {
            text.iter()
                .copied()
                .filter(|byte| !byte.is_ascii_whitespace())
        };
        match self {
            Self::Binary => Some(text.clone()),
            Self::Hex => {
                let digits: Vec<u8> = dense().collect();
                const_hex::decode(&digits).ok().map(Bytes::from)
            }
            Self::Base64 => {
                const ANY_PADDING: GeneralPurposeConfig = GeneralPurposeConfig::new()
                    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
                let standard = |byte| match byte {
                    b'-' => b'+',
                    b'_' => b'/',
                    byte => byte,
                };
                let digits: Vec<u8> = dense().map(standard).collect();
                GeneralPurpose::new(&STANDARD, ANY_PADDING)
                    .decode(digits)
                    .ok()
                    .map(Bytes::from)
            }
        }
    }
}

/// Decodes a body from `encoding`. A body without one is read as hex, then as base64, and else as
/// the bytes themselves; white space alone is binary.
///
/// # Errors
///
/// [`InputError::NotIn`] if it is not in `encoding`.
pub fn read(text: Bytes, encoding: Option<Encoding>) -> Result<(Bytes, Encoding), InputError> {
    if let Some(encoding) = encoding {
        return encoding
            .decode(&text)
            .map(|body| (body, encoding))
            .ok_or(InputError::NotIn(encoding));
    }
    let is_blank = text.iter().all(u8::is_ascii_whitespace);
    let likely = [Encoding::Hex, Encoding::Base64]
        .into_iter()
        .filter(|_| !is_blank);
    let read = likely
        .filter_map(|encoding| Some((encoding.decode(&text)?, encoding)))
        .next();
    Ok(read.unwrap_or((text, Encoding::Binary)))
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Encoding {
    type Err = InputError;

    fn from_str(word: &str) -> Result<Self, InputError> {
        Self::ALL
            .into_iter()
            .find(|one| one.as_str() == word)
            .ok_or(InputError::UnknownEncoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &[u8]) -> (Vec<u8>, Encoding) {
        let (body, encoding) = read(Bytes::copy_from_slice(text), None).unwrap();
        (body.to_vec(), encoding)
    }

    #[test]
    fn hex_and_base64_are_detected() {
        let body = b"\x0a\x02p1\x10\x01\xfb\xff".to_vec();
        for (text, encoding) in [
            (&b"0a0270311001fbff"[..], Encoding::Hex),
            (b"0A 02 70 31\n10 01 FB FF\n", Encoding::Hex),
            (b"0x0a0270311001fbff", Encoding::Hex),
            (b"CgJwMRAB+/8=", Encoding::Base64),
            (b"CgJwMRAB+/8\n", Encoding::Base64),
            (b"CgJw MRAB\r\n-_8=\r\n", Encoding::Base64),
            (b"CgJwMRAB-_8", Encoding::Base64),
            (b"\x0a\x02p1\x10\x01\xfb\xff", Encoding::Binary),
        ] {
            assert_eq!(guessed(text), (body.clone(), encoding), "{text:?}");
        }
    }

    #[test]
    fn other_text_is_binary() {
        for text in [
            &b""[..],
            b" \n",
            br#"{"request_id":"r1"}"#,
            br"\x0a\x02",
            b"CgJwMRAB+/8==",
            b"CgJwM",
            b"\x0a\x02p1",
            b"Cg\xe4==",
        ] {
            assert_eq!(guessed(text), (text.to_vec(), Encoding::Binary), "{text:?}");
        }
        // An odd number of digits is not hex, but may be base64.
        assert_eq!(guessed(b"100").1, Encoding::Base64);
    }

    #[test]
    fn text_in_another_encoding_is_an_error() {
        let read = |text: &'static [u8], encoding| read(Bytes::from_static(text), Some(encoding));
        assert_eq!(read(b"1001", Encoding::Binary).unwrap().0, &b"1001"[..]);
        assert_eq!(
            read(b"1001", Encoding::Base64).unwrap().0,
            &b"\xd7\x4d\x35"[..]
        );
        assert_eq!(
            read(b"100", Encoding::Hex),
            Err(InputError::NotIn(Encoding::Hex))
        );
        assert_eq!(
            read(b"100g", Encoding::Hex),
            Err(InputError::NotIn(Encoding::Hex))
        );
        assert_eq!(
            read(b"{}", Encoding::Base64),
            Err(InputError::NotIn(Encoding::Base64))
        );
        assert_eq!("hexx".parse::<Encoding>(), Err(InputError::UnknownEncoding));
        for encoding in Encoding::ALL {
            assert_eq!(encoding.as_str().parse(), Ok(encoding));
        }
    }
}
