//! Escapes in cells, as the text exports of Hive, ClickHouse, MySQL and Redshift write them.
//!
//! | program | an escape stands before | and is followed by a letter for |
//! |---|---|---|
//! | Hive | itself, all separators of the table, also those within lists and maps | LF `n`, CR `r` |
//! | ClickHouse | itself, `'` | `\b`, `\f`, `\r`, `\n`, `\t`, `\0` |
//! | MySQL | itself, the quote, the first character of separators | NUL `0` |
//! | Redshift | itself, the delimiter, LF, CR, quotes | |
//!
//! A whole cell of an escape and `N` is a null. Redshift escapes the escape of its null, too.

/// Stand for an escaped delimiter, quote and line end behind their escape, until the cells of a row
/// are known.
pub const HIDDEN_DELIMITER: u8 = 0x18;
pub const HIDDEN_QUOTE: u8 = 0x19;
pub const HIDDEN_LINE_END: u8 = 0x1a;

/// Puts the characters of a row back that are hidden.
pub fn reveal(row: &mut [u8], escape: u8, delimiter: u8) {
    for index in 1..row.len() {
        if row[index - 1] == escape {
            row[index] = match row[index] {
                HIDDEN_DELIMITER => delimiter,
                HIDDEN_QUOTE => b'"',
                HIDDEN_LINE_END => b'\n',
                other => other,
            };
        }
    }
}

/// Number of hidden line ends in a row.
pub fn hidden_line_ends(row: &[u8], escape: u8) -> u64 {
    let pair = [escape, HIDDEN_LINE_END];
    memchr::memmem::find_iter(row, &pair).count() as u64
}

/// Replaces `text` by that of a cell.
pub fn decode(cell: &[u8], escape: u8, delimiter: u8, text: &mut Vec<u8>) {
    text.clear();
    if cell == [escape, b'N'] {
        text.extend_from_slice(b"\\N");
        return;
    }

    let mut bytes = cell.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != escape {
            text.push(byte);
            continue;
        }
        let escaped = match bytes.next() {
            Some(HIDDEN_DELIMITER) => delimiter,
            Some(HIDDEN_QUOTE) => b'"',
            Some(HIDDEN_LINE_END | b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'b') => 0x08,
            Some(b'f') => 0x0c,
            Some(b'0') => 0,
            // No program writes these. Spark does not escape the escapes of cells without quotes.
            Some(other) if other.is_ascii_alphanumeric() || !other.is_ascii() => {
                text.push(escape);
                other
            }
            Some(other) => other,
            None => escape,
        };
        text.push(escaped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_each_program_are_decoded() {
        for (program, written, expected) in [
            ("Hive", r"open\\id", r"open\id"),
            ("Hive", r"10\:2A\:B3\:D1\:52\:F4", "10:2A:B3:D1:52:F4"),
            ("Hive", "a\\\u{2}b\\\u{3}c", "a\u{2}b\u{3}c"),
            ("Hive", r"a\nb\rc", "a\nb\rc"),
            (
                "ClickHouse",
                r"a\b\f\r\n\t\0\'\\b",
                "a\u{8}\u{c}\r\n\t\0'\\b",
            ),
            (
                "MySQL",
                "a\\\u{18}b\\\u{1a}c\\\u{19}\\\\\\0",
                "a,b\nc\"\\\0",
            ),
            ("Redshift", "a\\\u{18}b\\\u{1a}c\\'\\\\", "a,b\nc'\\"),
            ("null", r"\N", r"\N"),
            ("null of Redshift", r"\\N", r"\N"),
            ("Spark, without quotes", r"a\Nb\xc\é", r"a\Nb\xc\é"),
            ("cut", "a\\", "a\\"),
            ("", "", ""),
        ] {
            let mut text = b"of the cell before".to_vec();
            decode(written.as_bytes(), b'\\', b',', &mut text);
            assert_eq!(text, expected.as_bytes(), "{program}: {written:?}");

            let written = written.replace('\\', "^");
            let mut by_caret = Vec::new();
            decode(written.as_bytes(), b'^', b',', &mut by_caret);
            let expected = match expected {
                r"\N" if program == "null" => r"\N".to_owned(),
                expected => expected.replace('\\', "^"),
            };
            assert_eq!(by_caret, expected.as_bytes(), "{program}: {written:?}");
        }
    }

    #[test]
    fn line_ends_behind_escapes_are_counted() {
        assert_eq!(hidden_line_ends(b"a\\\x1ab\x1a\\\x1a", b'\\'), 2);
    }

    #[test]
    fn hidden_characters_are_put_back() {
        let mut row = b"\x18a\\\x18b\\\x19c\\\x1a\\n\x1a\\".to_vec();
        reveal(&mut row, b'\\', b';');
        assert_eq!(row, b"\x18a\\;b\\\"c\\\n\\n\x1a\\");
    }
}
