//! One id per line.

use rtad_core::device::IdKind;
use testkit::sandbox::{ids, lines};

use super::{Case, all, each, joined, many_md5s, md5s, read, refused, some};
use crate::support::{gzip, zst};

pub fn cases() -> Vec<Case> {
    [readable(), malformed(), packed()]
        .into_iter()
        .flatten()
        .collect()
}

fn readable() -> Vec<Case> {
    let md5s = md5s();
    let [a, b] = [&md5s[0], &md5s[1]];
    let text = lines(&md5s);
    let (first, second) = md5s.split_at(50);
    let mixed: String = (0..)
        .zip(&md5s)
        .map(|(n, id)| id.clone() + ["\n", "\r", "\r\n"][n % 3])
        .collect();
    let joined_marks = format!("\u{feff}{}\u{feff}{}", lines(first), lines(second));
    let long = "f".repeat(70_000);
    let endless = "f".repeat(3 << 20);
    let blanks = format!(
        "{a}\nnull\nd41d8cd98f00b204e9800998ecf8427e\n{}\n__IDFA__\n",
        "0".repeat(32)
    );
    let nul = [a.as_bytes(), b"\n\0\0\n", b.as_bytes(), b"\0\n"].concat();
    let zero_x = format!("{a}\n0x{}\n", &b[2..]);
    let digits = format!("{a}\n{}\n{b}0\n", &b[..31]);
    let idfa = &ids(IdKind::Idfa, 0..1)[0];
    let spellings = format!("{}\nSECRET-TEST-DEVICE\n", idfa.to_lowercase());
    vec![
        read("plain", &*text, "", all(100)),
        read("no final line end", text.trim_end(), "", all(100)),
        read("CRLF", joined(&md5s, "\r\n"), "", all(100)),
        read("CR", joined(&md5s, "\r"), "", all(100)),
        read(
            "CR CR LF",
            joined(&md5s, "\r\r\n"),
            "",
            some(200, 100).blank(100),
        ),
        read("mixed line ends", mixed, "", all(100)),
        read("byte order mark", format!("\u{feff}{text}"), "", all(100)),
        read("joined marks", joined_marks, "", all(100)),
        read(
            "a mark on each line",
            each(&md5s, "\u{feff}ID\n"),
            "",
            all(100),
        ),
        read(
            "spaces and tabs around",
            each(&md5s, "  ID\t \n"),
            "",
            all(100),
        ),
        read(
            "no-break spaces",
            each(&md5s, "\u{a0}ID \u{a0}\n"),
            "",
            all(100),
        ),
        read(
            "ideographic spaces",
            each(&md5s, "\u{3000}ID\u{3000}\n"),
            "",
            all(100),
        ),
        read(
            "zero-width spaces",
            each(&md5s, "\u{200b}ID\u{200b}\t\n"),
            "",
            all(100),
        ),
        read("upper case", text.to_uppercase() + a, "", some(101, 100)),
        read(
            "duplicates",
            format!("{a}\n{a}\n{b}\n{a}\n"),
            "",
            some(4, 2),
        ),
        read(
            "empty lines",
            format!("\n{a}\n\r\n\n"),
            "",
            some(4, 1).blank(3),
        ),
        read("nothing", "", "", all(0)),
        read("blank ids", blanks, "", some(5, 1).blank(4)),
        read(
            "a blank id of a flag",
            spellings,
            "--id-kind openid --blank SECRET-TEST-DEVICE",
            some(2, 1).blank(1),
        ),
        read(
            "invalid UTF-8",
            [a.as_bytes(), b"\n\xff\xfe\x80\n"].concat(),
            "",
            some(2, 1).malformed(1),
        ),
        read("NUL", nul, "", some(3, 1).blank(1).malformed(1)),
        read("31 and 33 digits", digits, "", some(3, 1).malformed(2)),
        read("a 0x prefix", zero_x, "", some(2, 1).malformed(1)),
        read(
            "a long line",
            format!("{a}\n{long}\n{b}\n"),
            "",
            some(3, 2).malformed(1),
        ),
        read(
            "an endless line",
            format!("{a}\n{endless}\n{b}\n"),
            "",
            some(3, 2).malformed(1),
        ),
        read(
            "an endless line at the end",
            format!("{a}\n{endless}"),
            "",
            some(2, 1).malformed(1),
        ),
    ]
}

fn malformed() -> Vec<Case> {
    let md5s = md5s();
    let uuids = lines(&ids(IdKind::Idfa, 0..100));
    let text = lines(&md5s);
    let utf16: Vec<u8> = format!("\u{feff}{text}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    vec![
        refused("other ids", uuids, "", "ids of kind idfa"),
        refused(
            "JSON text as CAID",
            each(&md5s, "[{\"caid\":\"ID\"}]\n"),
            "--id-kind caid",
            "no usable id in 100 rows",
        ),
        refused(
            "ids in a list",
            each(&md5s, "ID,ID\n"),
            "--id-kind oaid",
            "no usable id in 100 rows",
        ),
        refused(
            "quoted ids",
            each(&md5s, "\"ID\"\n"),
            "",
            "no usable id in 100 rows",
        ),
        refused(
            "ids on one line",
            joined(&md5s, " "),
            "",
            "no usable id in 1 rows",
        ),
        refused(
            "a table of a shell",
            each(&md5s, "| ID |\n"),
            "",
            "no usable id in 100 rows",
        ),
        refused(
            "cells of Hive",
            each(&md5s, "ID\u{1}x\n"),
            "",
            "is binary data",
        ),
        refused("NUL between ids", joined(&md5s, "\0"), "", "is binary data"),
        refused(
            "Unicode line separators",
            joined(&md5s, "\u{2028}"),
            "",
            "no usable id in 1 rows",
        ),
        refused(
            "SQL",
            each(&md5s, "INSERT INTO t VALUES ('ID');\n"),
            "",
            "no usable id in 100 rows",
        ),
        refused("UTF-16, marked", utf16, "", "is text in UTF-16"),
        refused(
            "XML",
            "<Error><Code>AccessDenied</Code></Error>",
            "",
            "is markup",
        ),
    ]
}

/// Other data among text.
fn packed() -> Vec<Case> {
    const ERROR: &str = "data other than text begins at";
    let md5s = lines(&md5s());
    let text = lines(&many_md5s());
    let after = |bytes: &[u8]| [text.as_bytes(), bytes].concat();
    vec![
        refused("text and gzip", after(&gzip(md5s.as_bytes())), "", ERROR),
        refused("text and zstd", after(&zst(md5s.as_bytes())), "", ERROR),
        refused("text and xz", after(b"\xfd7zXZ\0\0\x04\xe6"), "", ERROR),
        refused(
            "a hole of zeros",
            [&after(&[0; 4096]), text.as_bytes()].concat(),
            "",
            ERROR,
        ),
        refused("a hole of zeros at the end", after(&[0; 4096]), "", ERROR),
    ]
}
