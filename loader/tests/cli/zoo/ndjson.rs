//! One JSON object per line.

use rtad_core::device::IdKind;
use testkit::sandbox::{ids, lines};

use super::{Case, NDJSON, all, each, many_md5s, md5s, objects, read, refused, some};

const NESTED: &str = "--format ndjson --column device.id";
const KINDS: &str =
    r"--format ndjson --column device.idfa=idfa --column device.imei=imei --column a\.b=idfa";

pub fn cases() -> Vec<Case> {
    [readable(), values_around(), malformed()]
        .into_iter()
        .flatten()
        .collect()
}

fn readable() -> Vec<Case> {
    let md5s = md5s();
    let [a, b] = [&md5s[0], &md5s[1]];
    let (first, second) = md5s.split_at(50);
    let long = "f".repeat(70_000);
    let one = format!("{{\"id\":\"{a}\"}}");
    let two = format!("{{\"x\":[1,{{}}],\"id\":\"{b}\"}}");
    let joined_marks = format!("{}\u{feff}{}", objects(first), objects(second));
    let nul = [
        one.as_bytes(),
        b"\n\0\n{\"id\":\"\0\"}\n{\"id\":\"\\u0000\"}\n",
    ]
    .concat();
    let invalid = [one.as_bytes(), b"\n{\"id\":\"\xff\"}\n{\"x\":\"\xff\"}\n"].concat();
    let long_row = format!("{one}\n{{\"x\":\"{long}\",\"id\":\"{b}\"}}\n{two}\n");
    let no_objects = format!("{one}\n[]\n\"{b}\"\n7\nnull\n{{\"id\"\n");
    let no_ids =
        format!("{one}\n{{\"id\":1.5}}\n{{\"id\":true}}\n{{\"id\":[\"{b}\"]}}\n{{\"id\":{{}}}}\n");
    let escapes = format!(
        "{{\"\\u0069d\":\"\\u{:04x}{}\"}}\n{one}\n",
        a.as_bytes()[0],
        &a[1..]
    );
    let (idfa, imei) = (&ids(IdKind::Idfa, 0..1)[0], &ids(IdKind::Imei, 0..1)[0]);
    let number: u64 = imei.parse().expect("synthetic IMEIs have decimal digits");
    let nested = format!(
        "{{\"device\":{{\"idfa\":\"{}\",\"imei\":{number}}},\"a.b\":\"{idfa}\"}}\n\
         {{\"device\":null}}\nbad\t\\\n",
        idfa.to_lowercase()
    );
    vec![
        read("ndjson", format!("{one}\n{two}\n"), NDJSON, all(2)),
        read(
            "ndjson with a mark",
            format!("\u{feff}{one}\n{two}\n"),
            NDJSON,
            all(2),
        ),
        read("ndjson, joined marks", joined_marks, NDJSON, all(100)),
        read(
            "ndjson with CRLF",
            format!("{one}\r\n{two}\r\n"),
            NDJSON,
            all(2),
        ),
        read(
            "ndjson with CR",
            objects(&md5s).replace('\n', "\r"),
            NDJSON,
            all(100),
        ),
        read(
            "ndjson, no final line end",
            format!("{one}\n{two}"),
            NDJSON,
            all(2),
        ),
        read(
            "ndjson, empty lines",
            format!("\n{one}\n \r\n{two}\n\n"),
            NDJSON,
            all(2),
        ),
        read("ndjson, NUL", nul, NDJSON, some(4, 1).blank(1).malformed(2)),
        read(
            "ndjson, invalid UTF-8",
            invalid,
            NDJSON,
            some(3, 1).blank(1).malformed(1),
        ),
        read(
            "ndjson, a long row",
            long_row,
            NDJSON,
            some(3, 2).malformed(1),
        ),
        read(
            "ndjson, no objects",
            no_objects,
            NDJSON,
            some(6, 1).malformed(5),
        ),
        read(
            "ndjson, null and absent",
            format!("{one}\n{{}}\n{{\"id\":null}}\n{{\"id\":\"\"}}\n"),
            NDJSON,
            some(4, 1).blank(3),
        ),
        read("ndjson, no ids", no_ids, NDJSON, some(5, 1).malformed(4)),
        read(
            "ndjson, a member twice",
            format!("{{\"id\":\"{a}\",\"id\":\"{b}\"}}\n{two}\n"),
            NDJSON,
            some(2, 1),
        ),
        read("ndjson, escapes", escapes, NDJSON, some(2, 1)),
        read(
            "ndjson, nested members of several kinds",
            nested,
            KINDS,
            some(3, 2).values(7).blank(3).malformed(1),
        ),
    ]
}

/// Values around an id are malformed, unless they are null.
fn values_around() -> Vec<Case> {
    let md5s = md5s();
    let rows = |outer: &str| {
        let first = format!("{{\"device\":{{\"id\":\"{}\"}}}}\n", md5s[0]);
        first + &each(&md5s[1..], &format!("{{\"device\":{outer}}}\n"))
    };
    let twice = r#"[{"id":"ID"},{"id":"ID"}]"#;
    let text = r#""{\"id\":\"ID\"}""#;
    let bad = some(100, 1).malformed(99);
    let blank = some(100, 1).blank(99);
    vec![
        read(
            "ndjson, an object in a list",
            rows(r#"[{"id":"ID"}]"#),
            NESTED,
            bad,
        ),
        read(
            "ndjson, objects in a list",
            rows(twice),
            NESTED,
            bad.values(199).malformed(198),
        ),
        read("ndjson, JSON text", rows(text), NESTED, bad),
        read("ndjson, an id around", rows(r#""ID""#), NESTED, bad),
        read("ndjson, an empty list", rows("[]"), NESTED, bad),
        read("ndjson, a number around", rows("5"), NESTED, bad),
        read("ndjson, a fraction around", rows("1.5"), NESTED, bad),
        read("ndjson, true around", rows("true"), NESTED, bad),
        read("ndjson, null around", rows("null"), NESTED, blank),
        read("ndjson, an empty object", rows("{}"), NESTED, blank),
        // Rows are objects, though the value around a column is none.
        refused(
            "ndjson without a member",
            "{\"device\":7}\n",
            "--format ndjson --column device.id --column x",
            "no row of 1 has a member \"x\"",
        ),
    ]
}

fn malformed() -> Vec<Case> {
    let md5s = md5s();
    let objects = objects(&many_md5s());
    let list = each(&md5s, "\"ID\",");
    let list = list.trim_end_matches(',');
    let zeros = "\0".repeat(4096);
    let hole = format!(
        "{objects}{{\"id\":\"{}\",\"m\":\"m{zeros}m\"}}\n{objects}",
        md5s[0]
    );
    let avro = [b"Obj\x01", lines(&md5s).as_bytes()].concat();
    vec![
        refused("Avro as ndjson", avro, NDJSON, "is an Avro file"),
        refused(
            "ndjson, an array over lines",
            format!("[{}]", each(&md5s, "{\"id\":\"ID\"},\n")),
            NDJSON,
            " rows",
        ),
        refused(
            "ndjson, an array over lines, without a comma after the last",
            format!(
                "[\n{}{{\"id\":\"{}\"}}\n]",
                each(&md5s, "{\"id\":\"ID\"},\n"),
                md5s[0]
            ),
            NDJSON,
            "; most are rows that are no JSON object",
        ),
        refused(
            "ndjson, pretty",
            each(&md5s, "{\n  \"id\": \"ID\"\n}\n"),
            NDJSON,
            " rows",
        ),
        refused(
            "ndjson, rows in a list",
            format!("{objects}[{list}]\n"),
            NDJSON,
            " are malformed",
        ),
        refused(
            "ndjson, ids in a list",
            format!("{objects}{{\"id\":[{list}]}}\n"),
            NDJSON,
            " are malformed",
        ),
        refused(
            "ndjson, a hole of zeros between two texts of another member",
            hole,
            NDJSON,
            "data other than text begins at",
        ),
    ]
}
