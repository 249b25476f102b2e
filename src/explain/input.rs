//! Encodings of a captured body: the bytes themselves, or hex or base64 from a log or packet dump.
//!
//! The explanation shows the encoding, so a wrong guess is visible.

use std::fmt;

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

impl Encoding {
    fn decode(self, text: &Bytes) -> Option<Bytes> {
        match self {
            Self::Binary => Some(text.clone()),
            Self::Hex => {
                let digits = without_spaces(text);
                const_hex::decode(&digits).ok().map(Bytes::from)
            }
            Self::Base64 => {
                const ANY_PADDING: GeneralPurposeConfig = GeneralPurposeConfig::new()
                    .with_decode_padding_mode(DecodePaddingMode::Indifferent);
                let mut digits = without_spaces(text);
                for digit in &mut digits {
                    // The alphabet of URLs has other signs for the same values.
                    match *digit {
                        b'-' => *digit = b'+',
                        b'_' => *digit = b'/',
                        _ => {}
                    }
                }

                let engine = GeneralPurpose::new(&STANDARD, ANY_PADDING);
                engine.decode(digits).ok().map(Bytes::from)
            }
        }
    }
}

fn without_spaces(text: &[u8]) -> Vec<u8> {
    let bytes = text.iter().copied();
    bytes.filter(|byte| !byte.is_ascii_whitespace()).collect()
}

/// Decodes a body: as hex, else as base64, and else as the bytes themselves. White space alone is
/// binary, and so is a protobuf message that has nothing but an id.
pub fn read(text: Bytes) -> (Bytes, Encoding) {
    if !text.iter().all(u8::is_ascii_whitespace) && !is_lone_id(&text) {
        for encoding in [Encoding::Hex, Encoding::Base64] {
            if let Some(body) = encoding.decode(&text) {
                return (body, encoding);
            }
        }
    }
    (text, Encoding::Binary)
}

/// Whether a body is one field with a text: its tag and its length may be white space, and its text
/// digits.
fn is_lone_id(body: &[u8]) -> bool {
    matches!(body, [b'\n', length, id @ ..] if usize::from(*length) == id.len())
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binary => "binary",
            Self::Hex => "hex",
            Self::Base64 => "base64",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &[u8]) -> (Vec<u8>, Encoding) {
        let (body, encoding) = read(Bytes::copy_from_slice(text));
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
        // The tag and the length of a request's id are white space, and the id looks like digits.
        for lone_id in [
            &b"\n\x0crequest-2400"[..],
            b"\n 83e9158a4fb54c0e1ef0b238639a23ae",
        ] {
            assert_eq!(guessed(lone_id), (lone_id.to_vec(), Encoding::Binary));
        }
        // An odd number of digits is not hex, but may be base64.
        assert_eq!(guessed(b"100").1, Encoding::Base64);
    }
}
