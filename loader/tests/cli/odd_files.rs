//! Odd files that warehouses, spreadsheets and archives produce, each alone for one command, and
//! beside a good file for every command that reads inputs: all of its ids are used, or the command
//! ends with 3.

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::sandbox::{Sandbox, ids, lines};

use crate::support::{gzip, zst};

const GOOD: usize = 300;
const ODD: usize = 100;
const CSV: &str = "--format csv --column id";
const NDJSON: &str = "--format ndjson --column id";

enum Expected {
    /// Every id is used.
    Read,
    /// The command ends with 3, and the error names this.
    Refused(&'static str),
}
use Expected::{Read, Refused};

struct Odd {
    name: &'static str,
    bytes: Vec<u8>,
    flags: &'static str,
    expected: Expected,
}

fn odd(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    flags: &'static str,
    expected: Expected,
) -> Odd {
    Odd {
        name,
        bytes: bytes.into(),
        flags,
        expected,
    }
}

fn joined(ids: &[String], separator: &str) -> String {
    ids.iter().flat_map(|id| [id.as_str(), separator]).collect()
}

/// Lines, CSV and NDJSON whose ids are all used.
fn readable(ids: &[String]) -> Vec<Odd> {
    let text = lines(ids);
    let (first, second) = ids.split_at(ids.len() / 2);
    let around = |before: &str, after: &str| -> String {
        ids.iter()
            .map(|id| format!("{before}{id}{after}\n"))
            .collect()
    };
    let objects = |ids: &[String]| -> String {
        ids.iter()
            .map(|id| format!("{{\"id\":\"{id}\"}}\n"))
            .collect()
    };
    let mixed: String = (0..)
        .zip(ids)
        .map(|(n, id)| id.clone() + ["\n", "\r", "\r\n"][n % 3])
        .collect();
    let rows = |row: &dyn Fn(&String) -> String| -> String { ids.iter().map(row).collect() };
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    vec![
        odd("CRLF", joined(ids, "\r\n"), "", Read),
        odd("CR", joined(ids, "\r"), "", Read),
        odd("mixed line ends", mixed, "", Read),
        odd("no final line end", text.trim_end(), "", Read),
        odd("empty lines", joined(ids, "\n\n"), "", Read),
        odd("byte order mark", format!("\u{feff}{text}"), "", Read),
        odd(
            "joined marks",
            format!("\u{feff}{}\u{feff}{}", lines(first), lines(second)),
            "",
            Read,
        ),
        odd("a mark on each line", around("\u{feff}", ""), "", Read),
        odd("CR CR LF", joined(ids, "\r\r\n"), "", Read),
        odd("upper case", text.to_uppercase(), "", Read),
        odd("no-break spaces", around("\u{a0}", " \u{a0}"), "", Read),
        odd(
            "ideographic spaces",
            around("\u{3000}", "\u{3000}"),
            "",
            Read,
        ),
        odd(
            "zero-width spaces",
            around("\u{200b}", "\u{200b}\t"),
            "",
            Read,
        ),
        odd("gzip", gzip(text.as_bytes()), "", Read),
        odd("gzip of CR", gzip(joined(ids, "\r").as_bytes()), "", Read),
        odd(
            "gzip members",
            [
                gzip(lines(first).as_bytes()),
                gzip(lines(second).as_bytes()),
            ]
            .concat(),
            "",
            Read,
        ),
        odd("zstd", zst(text.as_bytes()), "", Read),
        odd(
            "zstd frames",
            [&skippable[..], &zst(text.as_bytes())].concat(),
            "",
            Read,
        ),
        odd(
            "csv with CR",
            format!("id\r{}", joined(ids, "\r")),
            CSV,
            Read,
        ),
        odd(
            "csv, header LF, rows CR",
            format!("id\n{}", joined(ids, "\r")),
            CSV,
            Read,
        ),
        odd(
            "csv with CRLF",
            format!("id\r\n{}", joined(ids, "\r\n")),
            CSV,
            Read,
        ),
        odd("csv with a mark", format!("\u{feff}id\n{text}"), CSV, Read),
        odd(
            "csv, no final line end",
            format!("id\n{}", text.trim_end()),
            CSV,
            Read,
        ),
        odd(
            "csv, delimiter at the end",
            format!("n,id\n{}", rows(&|id| format!("1,{id},\n"))),
            CSV,
            Read,
        ),
        odd(
            "csv, blank rows under a delimiter at the end",
            format!("n,id,\n{}", rows(&|id| format!("1,{id},\n,,\n"))),
            CSV,
            Read,
        ),
        odd(
            "csv, lines in cells",
            format!("n,id\n{}", rows(&|id| format!("\"a\nb\",{id}\n"))),
            CSV,
            Read,
        ),
        odd(
            "csv, lines in cells, delimiter at the end",
            format!("n,id,\n{}", rows(&|id| format!("\"a\nb\",{id},\n"))),
            CSV,
            Read,
        ),
        odd(
            "csv, escaped quotes",
            format!("n,id\n{}", rows(&|id| format!("\"a \\\"b\\\", c\",{id}\n"))),
            "--format csv --column id --escape \\",
            Read,
        ),
        odd(
            "csv, escaped delimiters",
            format!("n,id\n{}", rows(&|id| format!("a\\,b\\\\,{id}\n"))),
            "--format csv --column id --escape \\",
            Read,
        ),
        odd(
            "ndjson with CR",
            objects(ids).replace('\n', "\r"),
            NDJSON,
            Read,
        ),
        odd(
            "ndjson, joined marks",
            format!("{}\u{feff}{}", objects(first), objects(second)),
            NDJSON,
            Read,
        ),
    ]
}

/// Files of other formats. The unit tests of `input::content` have all of them.
fn foreign(ids: &[String]) -> Vec<Odd> {
    let text = lines(ids);
    let random: Vec<u8> = ids
        .iter()
        .flat_map(|id| id.as_bytes().chunks(2))
        .map(hex)
        .collect();
    let magic = |magic: &[u8]| [magic, &random].concat();
    let mut tar = vec![0; 512];
    tar[..8].copy_from_slice(b"dump.txt");
    tar[257..262].copy_from_slice(b"ustar");
    tar.extend_from_slice(text.as_bytes());
    let marked = format!("\u{feff}{text}");
    let utf16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let page = "\n <!DOCTYPE HTML>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n";
    let denied = "<Error><Code>AccessDenied</Code></Error>";
    vec![
        odd(
            "ZIP",
            magic(b"PK\x03\x04\x14\0"),
            "",
            Refused("is a ZIP archive"),
        ),
        odd("tar.gz", gzip(&tar), "", Refused("is a tar archive")),
        odd(
            "gzip in gzip",
            gzip(&gzip(text.as_bytes())),
            "",
            Refused("is gzip data within"),
        ),
        odd(
            "Parquet as csv",
            magic(b"PAR1"),
            CSV,
            Refused("is a Parquet file (--format parquet)"),
        ),
        odd(
            "Avro",
            magic(b"Obj\x01"),
            NDJSON,
            Refused("is an Avro file"),
        ),
        odd("UTF-16, marked", utf16, "", Refused("is text in UTF-16")),
        odd("HTML as csv", page, CSV, Refused("is markup")),
        odd("XML", denied, "", Refused("is markup")),
    ]
}

/// Text of the right format whose rows are not.
fn malformed(ids: &[String]) -> Vec<Odd> {
    let rows = |row: &dyn Fn(&String) -> String| -> String { ids.iter().map(row).collect() };
    let compressed = gzip(lines(ids).as_bytes());
    let uuids = testkit::sandbox::ids(IdKind::Idfa, 0..ODD as u64);
    // So many that the rest is within the limit of malformed values.
    let many = testkit::sandbox::ids(IdKind::Md5, 1000..9000);
    let text = lines(&many).into_bytes();
    let packed = || Refused("data other than text begins at");
    let most = || Refused("are malformed");
    let table: String = many.iter().map(|id| format!("1,{id}\n")).collect();
    let ended: String = many.iter().map(|id| format!("1,{id},\n")).collect();
    let noted: String = many.iter().map(|id| format!("1,{id},m\n")).collect();
    let zeros = "\0".repeat(4096);
    let objects: String = many
        .iter()
        .map(|id| format!("{{\"id\":\"{id}\"}}\n"))
        .collect();
    let list = ids
        .iter()
        .map(|id| format!("\"{id}\""))
        .collect::<Vec<_>>()
        .join(",");
    // "no usable id in N rows", or "none of N rows is a JSON object".
    let none = || Refused(" rows");
    vec![
        odd("other ids", lines(&uuids), "", Refused("ids of kind idfa")),
        odd(
            "JSON text as CAID",
            rows(&|id| format!("[{{\"caid\":\"{id}\"}}]\n")),
            "--id-kind caid",
            none(),
        ),
        odd(
            "ids in a list",
            rows(&|id| format!("{id},{id}\n")),
            "--id-kind oaid",
            none(),
        ),
        odd("quoted ids", rows(&|id| format!("\"{id}\"\n")), "", none()),
        odd("ids on one line", joined(ids, " "), "", none()),
        odd(
            "a table of a shell",
            rows(&|id| format!("| {id} |\n")),
            "",
            none(),
        ),
        odd(
            "cells of Hive",
            rows(&|id| format!("{id}\u{1}x\n")),
            "",
            Refused(""),
        ),
        odd("NUL between ids", joined(ids, "\0"), "", Refused("")),
        odd(
            "Unicode line separators",
            joined(ids, "\u{2028}"),
            "",
            none(),
        ),
        odd(
            "SQL",
            rows(&|id| format!("INSERT INTO t VALUES ('{id}');\n")),
            "",
            none(),
        ),
        odd(
            "a JSON array",
            format!("[{}]", rows(&|id| format!("{{\"id\":\"{id}\"}},\n"))),
            NDJSON,
            none(),
        ),
        odd(
            "pretty JSON",
            rows(&|id| format!("{{\n  \"id\": \"{id}\"\n}}\n")),
            NDJSON,
            none(),
        ),
        odd(
            "csv, escapes not declared",
            format!("n,id\n{}", rows(&|id| format!("a\\,b,{id}\n"))),
            CSV,
            none(),
        ),
        odd(
            "csv, short rows",
            format!("n,id,m\n{}", rows(&|id| format!("1,{id}\n"))),
            CSV,
            none(),
        ),
        odd(
            "csv, some long rows",
            format!("n,id\n{}1,2,{}\n", rows(&|id| format!("1,{id}\n")), ids[0])
                + &format!("1,2,{}\n", ids[1]),
            CSV,
            most(),
        ),
        // A stray quote makes a cell of the rows up to the next one.
        odd(
            "csv, rows between two quotes",
            format!(
                "n,id\n{table}\"1,{}1\",{}\n",
                rows(&|id| format!("{id}\n1,")),
                ids[0]
            ),
            CSV,
            most(),
        ),
        odd(
            "csv, pairs of rows between quotes",
            format!(
                "n,id,m\n{}",
                rows(&|id| format!("1,{id},\"a\n2,{id},b\"\n"))
            ),
            CSV,
            none(),
        ),
        odd(
            "csv of one column, rows between two quotes",
            format!(
                "id\n{}\"{}\"\n",
                lines(&many),
                rows(&|id| format!("{id}\n"))
            ),
            CSV,
            most(),
        ),
        odd(
            "csv, delimiters at the end, rows between two quotes",
            format!(
                "n,id,\n{ended}\"1,{}1\",{},\n",
                rows(&|id| format!("{id},\n1,")),
                ids[0]
            ),
            CSV,
            most(),
        ),
        odd(
            "csv, delimiters at the end of rows alone, rows between two quotes",
            format!(
                "n,id\n{ended}1,\"{}{}\",\n",
                rows(&|id| format!("{id},\n1,")),
                ids[0]
            ),
            CSV,
            most(),
        ),
        odd(
            "joined csvs of another order",
            format!("n,id\n{table}id,n\n{}", rows(&|id| format!("{id},1\n"))),
            CSV,
            Refused("line 8002 has the names of the header in another order"),
        ),
        odd(
            "joined csvs of another order, each with a mark",
            format!(
                "\u{feff}n,id\n{table}\u{feff}id,n\n{}",
                rows(&|id| format!("{id},1\n"))
            ),
            CSV,
            Refused("line 8002 has the names of the header in another order"),
        ),
        odd(
            "joined csvs of another order, with a mark before a quote",
            format!(
                "n,id\n{table}\u{feff}\"id\",n\n{}",
                rows(&|id| format!("{id},1\n"))
            ),
            CSV,
            Refused("line 8002 has the names of the header in another order"),
        ),
        odd(
            "ndjson, rows in a list",
            format!("{objects}[{list}]\n"),
            NDJSON,
            most(),
        ),
        odd(
            "ndjson, ids in a list",
            format!("{objects}{{\"id\":[{list}]}}\n"),
            NDJSON,
            most(),
        ),
        odd(
            "gzip, cut",
            &compressed[..compressed.len() - 9],
            "",
            Refused("cut short or corrupt"),
        ),
        odd(
            "text and gzip",
            [text.clone(), compressed.clone()].concat(),
            "",
            packed(),
        ),
        odd(
            "text and zstd",
            [text.clone(), zst(lines(ids).as_bytes())].concat(),
            "",
            packed(),
        ),
        odd(
            "a hole of zeros",
            [&text[..], &[0; 4096][..], &text[..]].concat(),
            "",
            packed(),
        ),
        odd(
            "a hole of zeros at the end",
            [&text[..], &[0; 4096][..]].concat(),
            "",
            packed(),
        ),
        odd(
            "csv, a hole of zeros between two cells of another column",
            format!("n,id,m\n{noted}1,{},m{zeros}m\n{noted}", ids[0]),
            CSV,
            packed(),
        ),
        odd(
            "csv, a hole of zeros between two cells in quotes",
            format!("n,id,m\n{noted}1,{},\"m{zeros}m\"\n{noted}", ids[0]),
            CSV,
            packed(),
        ),
        odd(
            "csv, a hole of zeros in a row of another length, behind a long cell",
            format!(
                "n,id,m\n{noted}1,{},{}{zeros},m\n{noted}",
                ids[0],
                "m".repeat(70_000)
            ),
            CSV,
            packed(),
        ),
        odd(
            "csv, a hole of zeros from the header on",
            format!("n,id,{}{zeros}m\n{noted}", "m".repeat(5000)),
            CSV,
            packed(),
        ),
        odd(
            "ndjson, a hole of zeros between two texts of another member",
            format!(
                "{objects}{{\"id\":\"{}\",\"m\":\"m{zeros}m\"}}\n{objects}",
                ids[0]
            ),
            NDJSON,
            packed(),
        ),
        odd(
            "text and xz",
            [&text[..], b"\xfd7zXZ\0\0\x04\xe6"].concat(),
            "",
            packed(),
        ),
        odd(
            "csv and gzip",
            [
                format!("id\n{}", lines(&many)).into_bytes(),
                compressed.clone(),
            ]
            .concat(),
            CSV,
            packed(),
        ),
        odd(
            "gzip and text",
            [compressed, lines(ids).into()].concat(),
            "",
            Refused("cut short or corrupt"),
        ),
    ]
}

fn hex(digits: &[u8]) -> u8 {
    let digits = std::str::from_utf8(digits).expect("hex digits");
    u8::from_str_radix(digits, 16).expect("hex digits")
}

/// A command, and the member of its report with the number of ids that it used.
const COMMANDS: [(&str, &str); 5] = [
    ("build --max-shrink 1 {DRY} {FLAGS} {INPUTS}", "/usable"),
    ("append {DRY} {FLAGS} {INPUTS}", "/usable"),
    ("remove --tombstone {DRY} {FLAGS} {INPUTS}", "/usable"),
    (
        "verify --store {}/s --audience a --probes 10 --json {FLAGS} --against {INPUTS}",
        "/against/checked",
    ),
    ("dedup --json {FLAGS} {INPUTS}", "/first_seen"),
];
const DRY: &str = "--store {}/s --audience a --dry-run --json";

fn check(odd_files: fn(&[String]) -> Vec<Odd>) {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..(GOOD + ODD) as u64);
    let (good, ids) = all.split_at(GOOD);
    sandbox.file("all", lines(&all));
    sandbox.build("{}/all");
    for (
        n,
        Odd {
            name,
            bytes,
            flags,
            expected,
        },
    ) in odd_files(ids).into_iter().enumerate()
    {
        sandbox.file("odd", bytes);
        let good = match flags {
            flags if flags.starts_with(CSV) => format!(
                "n,id,m\n{}",
                good.iter()
                    .map(|id| format!("1,{id},2\n"))
                    .collect::<String>()
            ),
            NDJSON => good
                .iter()
                .map(|id| format!("{{\"id\":\"{id}\"}}\n"))
                .collect(),
            _ => lines(good),
        };
        sandbox.file("good", good);
        let run = |(command, used): (&str, &str), inputs: &str, usable: usize| {
            let command = command
                .replace("{DRY}", DRY)
                .replace("{FLAGS}", flags)
                .replace("{INPUTS}", inputs);
            let outcome = sandbox.run(&command);
            match expected {
                Read => {
                    let report = outcome.json();
                    let used = report.pointer(used).and_then(Value::as_u64);
                    assert_eq!(used, Some(usable as u64), "{name}: {command}");
                }
                Refused(error) => {
                    let stderr = &outcome.stderr;
                    assert_eq!(outcome.status, Some(3), "{name}: {command}: {stderr}");
                    assert!(stderr.contains(error), "{name}: {command}: {stderr}");
                }
            }
        };
        // All commands read alike: alone, each file is read by one of them.
        run(COMMANDS[n % COMMANDS.len()], "{}/odd", ODD);
        for command in COMMANDS {
            run(command, "{}/good {}/odd", GOOD + ODD);
        }
    }
}

#[test]
fn ids_of_odd_text_are_all_used() {
    check(readable);
}

#[test]
fn files_of_other_formats_are_refused() {
    check(foreign);
}

#[test]
fn malformed_rows_of_one_input_are_not_hidden_by_another() {
    check(malformed);
}
