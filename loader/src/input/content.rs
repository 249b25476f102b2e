//! Content of an input: recognized by its first bytes, before a format reads any row.
//!
//! A compressed or binary file that is read as text has few "lines", which hide the loss of all of
//! its ids behind a low reject ratio. So everything that is not text is refused by its name.

/// Bytes of the text that decide: the magic of a tar archive ends at byte 262.
pub const HEAD_BYTES: usize = 4096;

/// Compression that is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Compression of a file by its first bytes.
    pub const fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or one of the 16 magics of a skippable frame, which parallel compressors
            // write first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Magic bytes at the start of a file, and the name of its format.
const MAGICS: [(&[u8], &str); 37] = [
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x5d\0\0", "LZMA data"),
    (b"LZIP", "lzip data"),
    (b"\x04\x22\x4d\x18", "LZ4 data"),
    (b"\x02\x21\x4c\x18", "LZ4 data"),
    (b"\xff\x06\0\0sNaPpY", "snappy data"),
    (b"\x82SNAPPY\0", "snappy data"),
    (b"\x89LZO\0", "LZO data"),
    (b"\x1f\x9d", "compress (.Z) data"),
    (b"\x1f\xa0", "compress (.Z) data"),
    (b"PK\x03\x04", "a ZIP archive or an Excel file"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"PK\x07\x08", "a ZIP archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"!<arch>\n", "an ar archive"),
    (b"070701", "a cpio archive"),
    (b"PAR1", "a Parquet file (--format parquet)"),
    (b"PARE", "an encrypted Parquet file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"ARROW1", "an Arrow file"),
    (b"SEQ\x04", "a Hadoop SequenceFile"),
    (b"SEQ\x05", "a Hadoop SequenceFile"),
    (b"SEQ\x06", "a Hadoop SequenceFile"),
    (b"RCF", "an RCFile"),
    (b"SQLite format 3\0", "an SQLite database"),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an old Excel or Office file",
    ),
    (b"%PDF-", "a PDF file"),
    (b"\0\x05\x16\x07", "an AppleDouble file of macOS"),
    (b"\0\x05\x16\0", "an AppleSingle file of macOS"),
    (b"bplist", "a property list of macOS"),
    (b"\x89HDF", "an HDF5 file"),
    (b"age-encryption.org/", "an encrypted (age) file"),
    (b"-----BEGIN PGP", "an encrypted (PGP) file"),
    (b"Salted__", "an encrypted (OpenSSL) file"),
];

/// Starts of text in an encoding that is not read.
const ENCODINGS: [(&[u8], &str); 3] = [
    (b"\0\0\xfe\xff", "text in UTF-16 or UTF-32"),
    (b"\xff\xfe", "text in UTF-16 or UTF-32"),
    (b"\xfe\xff", "text in UTF-16 or UTF-32"),
];

/// Name of the format of a file that is not text, by the first bytes after its decompression.
/// `None` for text. Cells of csv have a `delimiter`.
pub fn foreign(head: &[u8], delimiter: Option<u8>) -> Option<&'static str> {
    match Compression::of(head) {
        Compression::Gzip => return Some("gzip data within compressed data"),
        Compression::Zstd => return Some("zstd data within compressed data"),
        Compression::None => {}
    }

    let controls = count_controls(head, delimiter);
    for (magic, name) in MAGICS.iter().chain(&ENCODINGS) {
        // A magic of letters and digits may be the beginning of an id: the first of a sorted part.
        let is_certain = controls > 0 || !magic.iter().all(u8::is_ascii_alphanumeric);
        if is_certain && head.starts_with(magic) {
            return Some(name);
        }
    }

    if head.get(257..262) == Some(b"ustar") {
        return Some("a tar archive");
    }
    if let Some(name) = of_bytes(head, controls) {
        return Some(name);
    }
    if is_markup(head) {
        return Some("markup (HTML or XML), not rows");
    }
    None
}

/// Zeros in a row that are no text: a part that a crash or an unfinished copy did not write.
const HOLE: [u8; 16] = [0; 16];

/// Start of a hole in a row.
pub fn hole(row: &[u8]) -> Option<usize> {
    let first = memchr::memchr(0, row)?;
    memchr::memmem::find(&row[first..], &HOLE).map(|start| first + start)
}

/// Whether a malformed row begins compressed, packed or binary data: part of a file that was joined
/// to text, or a hole in it. It has few rows, so its ids would be lost within the limit.
pub fn is_packed(row: &[u8]) -> bool {
    if Compression::of(row) != Compression::None || hole(row).is_some() {
        return true;
    }
    for (magic, _) in &MAGICS {
        let is_certain = magic.iter().any(|byte| is_control(byte) || *byte >= 0x80);
        if is_certain && row.starts_with(magic) {
            return true;
        }
    }
    false
}

/// Recognizes wide encodings and binary data by their zeros and control characters.
fn of_bytes(head: &[u8], controls: usize) -> Option<&'static str> {
    // ASCII in two or four bytes per character has zeros in half or three quarters of its bytes.
    let zeros = head.iter().filter(|byte| **byte == 0).count();
    if head.len() >= 4 && (head.len() * 2..head.len() * 4).contains(&(zeros * 5)) {
        return Some("text in UTF-16 or UTF-32");
    }
    // Random bytes are control characters in one of ten cases.
    (controls >= 4 && controls * 50 > head.len()).then_some("binary data")
}

/// Control characters that no text has. In csv, Hive and others write some between cells and within
/// them: `^A` to `^C`, and the separators of ASCII.
fn count_controls(head: &[u8], delimiter: Option<u8>) -> usize {
    let mut controls = 0;
    for byte in head {
        let is_separator = match delimiter {
            Some(delimiter) => matches!(byte, 1..=3 | 28..=31) || *byte == delimiter,
            None => false,
        };
        if is_control(byte) && !is_separator {
            controls += 1;
        }
    }
    controls
}

/// Whether a byte is a control character other than white space and escape.
const fn is_control(byte: &u8) -> bool {
    matches!(*byte, 0..=8 | 11 | 14..=26 | 28..=31 | 127)
}

/// Whether the text begins with a tag. No id begins with `<`, but a placeholder such as `<null>`
/// may be the first row: a tag is closed somewhere.
fn is_markup(head: &[u8]) -> bool {
    let text = head
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(head)
        .trim_ascii_start();
    match text {
        [b'<', b'!' | b'?', ..] => true,
        [b'<', letter, ..] if letter.is_ascii_alphabetic() => {
            memchr::memmem::find(text, b"</").is_some()
                || memchr::memmem::find(text, b"/>").is_some()
        }
        _ => false,
    }
}

/// Whether a text without a meaning of its own could be an id, which no message may show.
pub fn could_be_id(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let hex = name
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b':'));
    // A base64 openid has 28 characters and may have no digit. Real column names are shorter.
    digits >= 4 || name.len() > 24 || hex && name.len() >= 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_not_foreign() {
        for text in [
            &b""[..],
            b"8d3ebd3654fb46a2832296669cf1b536\n",
            b"0707013654fb46a2832296669cf1b536\n",
            b"ORCbmjrPTlm6\nORCbmjrPTlm7\n",
            b"\xef\xbb\xbfidfa\r\n",
            b"<null>\n8d3ebd3654fb46a2832296669cf1b536\n",
            "\u{8bbe}\u{5907},oaid\n".as_bytes(),
            b"\xc9\xe8\xb1\xb8,oaid\n",
            b"{\"a\":1}\n",
            b"a\tb\n",
            b"one row with a \0 in it, as a broken export may have\n",
            b"\n",
            b"a",
        ] {
            assert_eq!(foreign(text, None), None, "{text:?}");
            assert_eq!(foreign(text, Some(b',')), None, "{text:?}");
        }
    }

    #[test]
    fn separators_of_hive_are_text_of_csv() {
        for delimiter in [1, 2, 31, 5] {
            let row = format!("868049039501257{0}a\x02b{0}c\n", char::from(delimiter));
            let table = row.repeat(20);
            assert_eq!(foreign(table.as_bytes(), Some(delimiter)), None, "{row:?}");
            assert_eq!(foreign(table.as_bytes(), None), Some("binary data"));
        }
    }

    #[test]
    fn foreign_formats_have_names() {
        let mut tar = vec![b'a'; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let text = "8d3ebd36\n";
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big_endian: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let utf32: Vec<u8> = text
            .chars()
            .flat_map(|char| u32::from(char).to_le_bytes())
            .collect();
        let mut state = 7_u32;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(1000)
        .collect();
        for (head, name) in [
            (&b"BZh91AY&SY\x01"[..], "bzip2"),
            (b"\xfd7zXZ\0", "xz data"),
            (b"\x5d\0\0\x80\0", "LZMA data"),
            (b"LZIP\x01", "lzip data"),
            (b"\x04\x22\x4d\x18", "LZ4 data"),
            (b"\xff\x06\0\0sNaPpY", "snappy data"),
            (b"\x1f\x9d\x90", "compress (.Z) data"),
            (b"PK\x03\x04\x14\0", "ZIP"),
            (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
            (b"Rar!\x1a\x07\x01", "a RAR archive"),
            (b"\x1f\x8b\x08", "gzip data within"),
            (b"\x28\xb5\x2f\xfd", "zstd data within"),
            (b"PAR1\x15\0", "a Parquet file (--format parquet)"),
            (b"ORC\x01", "an ORC file"),
            (b"Obj\x01", "an Avro file"),
            (b"ARROW1\0\0", "an Arrow file"),
            (b"SEQ\x06", "a Hadoop SequenceFile"),
            (b"SQLite format 3\0", "an SQLite database"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel"),
            (b"%PDF-1.7\n", "a PDF file"),
            (b"\0\x05\x16\x07\0\x02", "an AppleDouble file"),
            (b"age-encryption.org/v1\n", "an encrypted (age) file"),
            (b"-----BEGIN PGP MESSAGE-----\n", "an encrypted (PGP)"),
            (b"  <!DOCTYPE html>", "markup"),
            (b"<html><body></body>", "markup"),
            (b"<Error><Code>AccessDenied</Code></Error>", "markup"),
            (b"<?xml version='1.0'?>", "markup"),
            (&tar, "tar"),
            (&utf16, "UTF-16"),
            (&big_endian, "UTF-16"),
            (&utf32, "UTF-16 or UTF-32"),
            (b"\xff\xfea\0", "UTF-16"),
            (&random, "binary"),
        ] {
            assert!(
                foreign(head, None).is_some_and(|found| found.contains(name)),
                "{name}"
            );
        }
    }
}
