//! A header row, then rows of cells.

use rtad_core::device::IdKind;
use testkit::sandbox::{ids, lines};

use super::{CSV, Case, all, each, joined, many_md5s, md5s, read, refused, some};
use crate::support::gzip;

const ESCAPED: &str = "--format csv --column id --escape \\";
const IDFA: &str = "--format csv --column idfa=idfa";
const SECOND: &str = "--format csv --no-header --column 2";
const TSV: &str = "--format csv --no-header --column 2 --delimiter tab --escape \\";
const HIVE: &str = "--format csv --no-header --column 2 --delimiter \u{1}";

pub fn cases() -> Vec<Case> {
    [
        readable(),
        escapes(),
        quotes(),
        headers(),
        no_headers(),
        packed(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn readable() -> Vec<Case> {
    let md5s = md5s();
    let [a, b] = [&md5s[0], &md5s[1]];
    let text = lines(&md5s);
    let long = "f".repeat(70_000);
    let nul = [b"id\n\0\0\n", a.as_bytes(), b"\0\n", b.as_bytes(), b"\n"].concat();
    let invalid = [b"id,\xff\n\xff\xfe,1\n", a.as_bytes(), b",\xff\n"].concat();
    let table = |header: &str, row: &str| format!("{header}\n{}", each(&md5s, row));
    let (idfa, imei) = (&ids(IdKind::Idfa, 0..1)[0], &ids(IdKind::Imei, 0..1)[0]);
    vec![
        read("csv", format!("id\n{text}"), CSV, all(100)),
        read(
            "csv with CRLF",
            format!("id\r\n{}", joined(&md5s, "\r\n")),
            CSV,
            all(100),
        ),
        read(
            "csv with CR",
            format!("id\r{}", joined(&md5s, "\r")),
            CSV,
            all(100),
        ),
        read(
            "csv, header LF, rows CR",
            format!("id\n{}", joined(&md5s, "\r")),
            CSV,
            all(100),
        ),
        read(
            "csv with a mark",
            format!("\u{feff}id\n{text}"),
            CSV,
            all(100),
        ),
        read(
            "csv, no final line end",
            format!("id\n{}", text.trim_end()),
            CSV,
            all(100),
        ),
        read(
            "csv, empty lines",
            format!("id\n\n{a}\n\r\n\n"),
            CSV,
            all(1),
        ),
        read(
            "csv, delimiter at the end",
            table("n,id", "1,ID,\n"),
            CSV,
            all(100),
        ),
        read(
            "csv, blank rows under a delimiter at the end",
            table("n,id,", "1,ID,\n,,\n"),
            CSV,
            some(200, 100).blank(100),
        ),
        read(
            "csv, lines in cells",
            table("n,id", "\"a\nb\",ID\n"),
            CSV,
            all(100),
        ),
        read(
            "csv with CRLF in cells",
            table("n,id", "\"a\r\nb\",ID\r\n"),
            CSV,
            all(100),
        ),
        read(
            "csv, lines in cells, delimiter at the end",
            table("n,id,", "\"a\nb\",ID,\n"),
            CSV,
            all(100),
        ),
        read(
            "csv, quotes in cells",
            table("id,n", "ID,\"\"\"x\"\" y\"\n"),
            CSV,
            all(100),
        ),
        read(
            "csv, quotes within a cell",
            table("n,id", "5\" screen,ID\n"),
            CSV,
            all(100),
        ),
        read(
            "csv, escaped quotes",
            table("n,id", "\"a \\\"b\\\", c\",ID\n"),
            ESCAPED,
            all(100),
        ),
        read(
            "csv, escaped delimiters",
            table("n,id", "a\\,b\\\\,ID\n"),
            ESCAPED,
            all(100),
        ),
        read("csv, NUL", nul, CSV, some(3, 1).blank(1).malformed(1)),
        read("csv, invalid UTF-8", invalid, CSV, some(2, 1).malformed(1)),
        read(
            "csv, a long cell",
            format!("id\n{long}\n{a}\n"),
            CSV,
            some(2, 1).malformed(1),
        ),
        read(
            "csv, rows of another length",
            format!("n,id\n1,{a}\n1\n1,2,{b}\n"),
            CSV,
            some(3, 1).malformed(2),
        ),
        read(
            "csv, tabs and two kinds",
            format!("idfa\timei\n{idfa}\t{imei}\n"),
            "--format csv --delimiter \\t --column idfa=idfa --column imei=imei",
            some(1, 2).values(2),
        ),
    ]
}

/// Escapes, also within the ids.
fn escapes() -> Vec<Case> {
    let macs = ids(IdKind::Mac, 0..100);
    let md5s = md5s();
    let escaped = |text: &str| text.replace(':', "\\:").replace('-', "\\-");
    let rows = |row: &str| each(&md5s, row);
    let mac = "--format csv --escape \\ --column mac=mac";
    let redshift = "--format csv --no-header --escape \\ --delimiter | --column 2";
    vec![
        read(
            "csv, escaped separators in ids, as by Hive",
            escaped(&format!("mac,n\n{}", each(&macs, "ID,1\n"))),
            mac,
            all(100),
        ),
        read(
            "csv, escaped delimiters in ids",
            escaped(&format!("mac:n\n{}", each(&macs, "ID;1\n")))
                .replace("mac\\:n", "mac:n")
                .replace(';', ":"),
            "--format csv --escape \\ --delimiter : --column mac=mac",
            all(100),
        ),
        read(
            "csv, an escaped null",
            rows("1|ID|x\n2|\\\\N|y\n3|\\N|z\n"),
            redshift,
            some(300, 100).blank(200),
        ),
        read(
            "csv, escaped line ends",
            rows("1|ID|a\\\nb\\\rc\\|d\n"),
            redshift,
            all(100),
        ),
        read(
            "csv of MySQL",
            rows("1\tID\ta\\\nb\\\tc\\\\\n2\t\\N\t\\0\n"),
            TSV,
            some(200, 100).blank(100),
        ),
        read(
            "csv of ClickHouse, quotes at the start of cells",
            rows("\"Bo\tID\t\"a\\t\n\"\tID\t\"\n"),
            TSV,
            some(200, 100),
        ),
    ]
}

/// Rows whose columns have numbers.
fn no_headers() -> Vec<Case> {
    let md5s = md5s();
    let rows = |row: &str| each(&md5s, row);
    let most = " are malformed";
    vec![
        read("csv, no header", rows("1,ID,x\n"), SECOND, all(100)),
        read(
            "csv, no header, a mark, CRLF",
            format!("\u{feff}{}", rows("\"a\nb\",ID\r\n")),
            SECOND,
            all(100),
        ),
        read(
            "csv, no header, no final line end",
            rows("1,ID\n").trim_end(),
            SECOND,
            all(100),
        ),
        read(
            "csv, no header, nulls at the end of the first row",
            format!("1,,,\n{}", rows("1,ID,a,b\n")),
            SECOND,
            some(101, 100).blank(1),
        ),
        read(
            "csv, no header, delimiters at the ends of some rows",
            rows("1,ID\n2,,\n"),
            SECOND,
            some(200, 100).blank(100),
        ),
        read(
            "csv of Hive",
            rows("1\u{1}ID\u{1}a\u{2}b\u{3}c\n2\u{1}\\N\u{1}\\N\n"),
            HIVE,
            some(200, 100).blank(100),
        ),
        read(
            "csv of Hive, quotes at the start of cells",
            rows("\"Bo\u{1}ID\u{1}\"\n"),
            HIVE,
            all(100),
        ),
        read("csv of no rows", "", SECOND, all(0)),
        read("csv of empty lines", "\n\r\n", SECOND, all(0)),
        read(
            "csv, two columns by their numbers",
            rows("ID,1,ID\n"),
            "--format csv --no-header --column 3 --column 1=md5",
            some(100, 100).values(200),
        ),
        read(
            "csv, no header, a header",
            format!("n,id\n{}", rows("1,ID\n")),
            SECOND,
            some(101, 100).malformed(1),
        ),
        refused(
            "csv, no header, too few cells",
            rows("ID\n"),
            SECOND,
            "has no column 2: its first row has 1 cells",
        ),
        refused(
            "csv, no header, a quote open in the first row",
            format!("\"1,{}", rows("ID\n")),
            SECOND,
            "does not end; is a quote left open?",
        ),
        refused(
            "csv, no header, another column's number",
            rows("no id,ID\n"),
            "--format csv --no-header --column 1",
            "no usable id in 100 rows",
        ),
        refused(
            "csv, no header, rows of another length",
            format!("1,{},x\n{}", md5s[0], rows("1,ID\n")),
            SECOND,
            most,
        ),
    ]
}

/// A quote that is left open makes a cell of the rows up to the next one.
fn quotes() -> Vec<Case> {
    let md5s = md5s();
    let one = &md5s[0];
    let many = many_md5s();
    let (table, ended) = (each(&many, "1,ID\n"), each(&many, "1,ID,\n"));
    let within = |row: &str| each(&md5s, row);
    let idfas = ids(IdKind::Idfa, 0..1000);
    let last_open = "\u{feff}\"when\",idfa,a,b,\"note\"\r\n".to_owned()
        + &each(
            &idfas[..999],
            "\"2026-11-22\",ID,1,5\" screen,\"closed, \"\"x\"\"\"\r\n",
        )
        + &each(
            &idfas[999..],
            "\"2026-11-22\",ID,1,5\" screen,\"open, \"\"x\"\"\r\n",
        );
    let in_quotes = "; most are rows within a cell in quotes";
    let other_length = "; most are rows with more or fewer cells than the first";
    vec![
        refused(
            "csv, a quote open in the last row",
            last_open,
            IDFA,
            "does not end; is a quote left open?",
        ),
        refused(
            "csv, a quote open over megabytes",
            format!("id\n{one}\n\"{}", "x\n".repeat(9 << 20)),
            CSV,
            "odd: the row at line 3 does not end; is a quote left open?",
        ),
        // The rows inside the quotes would be lost.
        refused(
            "csv, a quote open in another column",
            format!("id,note\n{one},\n\r\n\n{},\"\n{},\n", md5s[1], md5s[2]),
            CSV,
            "line 5 does not end; is a quote left open?",
        ),
        refused(
            "csv, rows between two quotes",
            format!("n,id\n{table}\"1,{}1\",{one}\n", within("ID\n1,")),
            CSV,
            in_quotes,
        ),
        refused(
            "csv, pairs of rows between quotes",
            format!("n,id,m\n{}", within("1,ID,\"a\n2,ID,b\"\n")),
            CSV,
            in_quotes,
        ),
        refused(
            "csv of one column, rows between two quotes",
            format!("id\n{}\"{}\"\n", lines(&many), within("ID\n")),
            CSV,
            in_quotes,
        ),
        refused(
            "csv, delimiters at the end, rows between two quotes",
            format!("n,id,\n{ended}\"1,{}1\",{one},\n", within("ID,\n1,")),
            CSV,
            in_quotes,
        ),
        refused(
            "csv, delimiters at the end of rows alone, rows between two quotes",
            format!("n,id\n{ended}1,\"{}{one}\",\n", within("ID,\n1,")),
            CSV,
            in_quotes,
        ),
        refused(
            "csv, escapes not declared",
            format!("n,id\n{}", within("a\\,b,ID\n")),
            CSV,
            other_length,
        ),
        refused(
            "csv, short rows",
            format!("n,id,m\n{}", within("1,ID\n")),
            CSV,
            other_length,
        ),
        refused(
            "csv, some long rows",
            format!("n,id\n{}", within("1,ID\n")) + &format!("1,2,{one}\n").repeat(10),
            CSV,
            other_length,
        ),
    ]
}

fn headers() -> Vec<Case> {
    const ORDER: &str = "line 8002 has the names of the header in another order";
    let md5s = md5s();
    let table = each(&many_md5s(), "1,ID\n");
    let other = each(&md5s, "ID,1\n");
    let page = "\n <!DOCTYPE HTML>\n<html><body><h1>502 Bad Gateway</h1></body></html>\n";
    vec![
        refused(
            "csv without the column",
            "when,device\n",
            CSV,
            "has no column \"id\"; columns found: when, device",
        ),
        refused(
            "csv with the column twice",
            "id,id\n1,2\n",
            CSV,
            "more than one column \"id\"",
        ),
        refused(
            "csv without a header",
            lines(&md5s),
            CSV,
            "is the header row missing?",
        ),
        refused(
            "csv without a header, of several columns",
            each(&md5s, "1,ID,\n"),
            CSV,
            "; without a header row: --no-header --column 2",
        ),
        refused(
            "csv with a number for a column",
            "when,id\n",
            "--format csv --column 2",
            "columns found: when, id; without a header row: --no-header --column 2",
        ),
        refused(
            "csv with a quote open in the header",
            format!("n,\"id\n{}", lines(&md5s)),
            CSV,
            "does not end; is a quote left open?",
        ),
        refused("csv without a row", "", CSV, "none: it is empty"),
        refused("HTML as csv", page, CSV, "is markup"),
        read(
            "csv, marks and wide spaces around a name",
            format!("\u{feff}\u{feff}n,\u{3000}id\u{a0}\n{table}"),
            CSV,
            all(8000),
        ),
        read(
            "joined csvs",
            format!("x9,n\n{other}x9,n\n\u{feff}\"x9\",n\n{other}"),
            "--format csv --column x9",
            some(202, 100).blank(2),
        ),
        refused(
            "joined csvs of another order",
            format!("n,id\n{table}id,n\n{other}"),
            CSV,
            ORDER,
        ),
        refused(
            "joined csvs of another order, each with a mark",
            format!("\u{feff}n,id\n{table}\u{feff}id,n\n{other}"),
            CSV,
            ORDER,
        ),
        refused(
            "joined csvs of another order, with a mark before a quote",
            format!("n,id\n{table}\u{feff}\"id\",n\n{other}"),
            CSV,
            ORDER,
        ),
    ]
}

/// Other data among text.
fn packed() -> Vec<Case> {
    const ERROR: &str = "data other than text begins at";
    let md5s = md5s();
    let (one, many) = (&md5s[0], many_md5s());
    let noted = each(&many, "1,ID,m\n");
    let zeros = "\0".repeat(4096);
    let compressed = gzip(lines(&md5s).as_bytes());
    vec![
        refused(
            "csv and gzip",
            [format!("id\n{}", lines(&many)).into_bytes(), compressed].concat(),
            CSV,
            ERROR,
        ),
        refused(
            "csv, a hole of zeros between two cells of another column",
            format!("n,id,m\n{noted}1,{one},m{zeros}m\n{noted}"),
            CSV,
            ERROR,
        ),
        refused(
            "csv, a hole of zeros between two cells in quotes",
            format!("n,id,m\n{noted}1,{one},\"m{zeros}m\"\n{noted}"),
            CSV,
            ERROR,
        ),
        refused(
            "csv, a hole of zeros in a row of another length, behind a long cell",
            format!(
                "n,id,m\n{noted}1,{one},{}{zeros},m\n{noted}",
                "m".repeat(70_000)
            ),
            CSV,
            ERROR,
        ),
        refused(
            "csv, a hole of zeros from the header on",
            format!("n,id,{}{zeros}m\n{noted}", "m".repeat(5000)),
            CSV,
            ERROR,
        ),
    ]
}
