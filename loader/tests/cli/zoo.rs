//! Input variants of all formats, as in the table of `docs/reference/inputs.md`.
//!
//! `inputs.rs` covers the `lines` format.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::server::FileServer;
use testkit::store::files;

use crate::support::{gzip, zst};

/// Memory limit. A build takes about 200 MB besides its keys; these inputs would fill over a
/// gigabyte.
const MAX_KIB: u64 = 450 << 10;

/// Counts of a build's JSON: rows, values, distinct keys, blank, malformed in any way.
fn counts(built: &Value) -> [u64; 5] {
    let at = |pointer: &str| {
        built
            .pointer(pointer)
            .and_then(Value::as_u64)
            .expect("a number")
    };
    [
        at("/rows"),
        at("/values"),
        at("/keys"),
        at("/blank"),
        at("/rejected/total"),
    ]
}

/// A file of two columns in groups of 1,000 rows; every tenth row has no ids.
fn parquet(ids: &[String], compression: Compression) -> Vec<u8> {
    let schema =
        "message dump { optional binary id (UTF8); required int64 when; optional int64 imei; }";
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_data_page_row_count_limit(300);
    let (schema, properties) = (
        Arc::new(parse_message_type(schema).unwrap()),
        Arc::new(properties.build()),
    );
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
    for (group, ids) in ids.chunks(1000).enumerate() {
        let levels: Vec<i16> = (0..ids.len()).map(|row| i16::from(row % 10 != 9)).collect();
        let present = || (0..ids.len()).filter(|row| row % 10 != 9);
        let texts: Vec<_> = present()
            .map(|row| ByteArray::from(ids[row].as_str()))
            .collect();
        let imeis: Vec<_> = present()
            .map(|row| 860_000_000_000_000 + (group * 1000 + row) as i64)
            .collect();
        let mut out = writer.next_row_group().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<ByteArrayType>()
            .write_batch(&texts, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&vec![0; ids.len()], None, None)
            .unwrap();
        column.close().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(&imeis, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        out.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn csv_and_ndjson_variants_are_counted_correctly() {
    let [a, b] = [&ids(IdKind::Md5, 0..1)[0], &ids(IdKind::Md5, 1..2)[0]];
    let long = "f".repeat(70_000);
    let (one, two) = (
        format!("{{\"id\":\"{a}\"}}"),
        format!("{{\"x\":[1,{{}}],\"id\":\"{b}\"}}"),
    );
    // Text, and its rows, values, keys, blank and malformed values.
    let csv: Vec<(&str, Vec<u8>, [u64; 5])> = vec![
        (
            "byte order mark",
            format!("\u{feff}id\n{a}\n").into(),
            [1, 1, 1, 0, 0],
        ),
        (
            "CRLF",
            format!("id,x\r\n{a},1\r\n{b},2\r\n").into(),
            [2, 2, 2, 0, 0],
        ),
        (
            "no final line end",
            format!("id\n{a}\n{b}").into(),
            [2, 2, 2, 0, 0],
        ),
        (
            "NUL",
            [b"id\n\0\0\n", a.as_bytes(), b"\0\n", b.as_bytes(), b"\n"].concat(),
            [3, 3, 1, 1, 1],
        ),
        (
            "invalid UTF-8",
            [b"id,\xff\n\xff\xfe,1\n", a.as_bytes(), b",\xff\n"].concat(),
            [2, 2, 1, 0, 1],
        ),
        (
            "a long cell",
            format!("id\n{long}\n{a}\n").into(),
            [2, 2, 1, 0, 1],
        ),
        (
            "empty lines",
            format!("id\n\n{a}\n\r\n\n").into(),
            [1, 1, 1, 0, 0],
        ),
    ];
    let ndjson: Vec<(&str, Vec<u8>, [u64; 5])> =
        vec![
        ("plain", format!("{one}\n{two}\n").into(), [2, 2, 2, 0, 0]),
        ("byte order mark", format!("\u{feff}{one}\n{two}\n").into(), [2, 2, 2, 0, 0]),
        ("CRLF", format!("{one}\r\n{two}\r\n").into(), [2, 2, 2, 0, 0]),
        ("no final line end", format!("{one}\n{two}").into(), [2, 2, 2, 0, 0]),
        ("empty lines", format!("\n{one}\n \r\n{two}\n\n").into(), [2, 2, 2, 0, 0]),
        (
            "NUL",
            [one.as_bytes(), b"\n\0\n{\"id\":\"\0\"}\n{\"id\":\"\\u0000\"}\n"].concat(),
            [4, 4, 1, 1, 2],
        ),
        (
            "invalid UTF-8",
            [one.as_bytes(), b"\n{\"id\":\"\xff\"}\n{\"x\":\"\xff\"}\n"].concat(),
            [3, 3, 1, 1, 1],
        ),
        (
            "a long row",
            format!("{one}\n{{\"x\":\"{long}\",\"id\":\"{b}\"}}\n{two}\n").into(),
            [3, 3, 2, 0, 1],
        ),
        ("no objects", format!("{one}\n[]\n\"{b}\"\n7\nnull\n{{\"id\"\n").into(), [6, 6, 1, 0, 5]),
        (
            "null and absent",
            format!("{one}\n{{}}\n{{\"id\":null}}\n{{\"id\":\"\"}}\n").into(),
            [4, 4, 1, 3, 0],
        ),
        (
            "no ids",
            format!(
                "{one}\n{{\"id\":1.5}}\n{{\"id\":true}}\n{{\"id\":[\"{b}\"]}}\n{{\"id\":{{}}}}\n"
            )
            .into(),
            [5, 5, 1, 0, 4],
        ),
        ("twice", format!("{{\"id\":\"{a}\",\"id\":\"{b}\"}}\n{two}\n").into(), [2, 2, 1, 0, 0]),
        (
            "escapes",
            format!("{{\"\\u0069d\":\"\\u{:04x}{}\"}}\n{one}\n", a.as_bytes()[0], &a[1..]).into(),
            [2, 2, 1, 0, 0],
        ),
    ];
    for (format, zoo) in [("csv", csv), ("ndjson", ndjson)] {
        for (name, text, expected) in zoo {
            for (how, bytes) in [
                ("plain", text.clone()),
                ("gz", gzip(&text)),
                ("zst", zst(&text)),
            ] {
                let sandbox = Sandbox::new();
                sandbox.file("dump", bytes);
                let arguments =
                    format!("--max-reject-ratio 1 --format {format} --column id {{}}/dump");
                assert_eq!(
                    counts(&sandbox.build(&arguments)),
                    expected,
                    "{format}, {name}, {how}"
                );
            }
        }
    }
}

#[test]
fn nested_members_hold_ids_of_several_kinds() {
    let sandbox = Sandbox::new();
    let (idfa, imei) = (&ids(IdKind::Idfa, 0..1)[0], &ids(IdKind::Imei, 0..1)[0]);
    let number: u64 = imei.parse().expect("synthetic IMEIs have decimal digits");
    let text = format!(
        "{{\"device\":{{\"idfa\":\"{}\",\"imei\":{number}}},\"a.b\":\"{idfa}\"}}\n\
         {{\"device\":null}}\nbad\t\\\n",
        idfa.to_lowercase()
    );
    sandbox.file("dump", &text);
    let columns = r"--column device.idfa=idfa --column device.imei=imei --column a\.b=idfa";
    let build = format!(
        "--format ndjson {columns} --max-reject-ratio 0.2 --rejects {{}}/rejects {{}}/dump"
    );
    assert_eq!(counts(&sandbox.build(&build)), [3, 7, 2, 3, 1]);
    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    let reasons: Vec<_> = rejects
        .lines()
        .map(|row| row.split_once('\t').unwrap().1)
        .collect();
    assert_eq!(reasons, ["3\tmalformed\tbad\\t\\\\"]);
    for (kind, id) in [("idfa", idfa), ("imei", imei)] {
        let answer = sandbox.run(&format!(
            "query --store {{}}/s --audience a --id-kind {kind} {id}"
        ));
        assert_eq!(answer.stdout, "1\tmember\n");
    }
}

#[test]
fn values_around_ids_are_malformed_unless_null() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    for (outer, expected) in [
        (r#"[{"id":"ID"}]"#, [2000, 2000, 1, 0, 1999]),
        (r#"[{"id":"ID"},{"id":"ID"}]"#, [2000, 3999, 1, 0, 3998]),
        (r#""{\"id\":\"ID\"}""#, [2000, 2000, 1, 0, 1999]),
        (r#""ID""#, [2000, 2000, 1, 0, 1999]),
        ("[]", [2000, 2000, 1, 0, 1999]),
        ("5", [2000, 2000, 1, 0, 1999]),
        ("1.5", [2000, 2000, 1, 0, 1999]),
        ("true", [2000, 2000, 1, 0, 1999]),
        ("null", [2000, 2000, 1, 1999, 0]),
        ("{}", [2000, 2000, 1, 1999, 0]),
    ] {
        let row = |(index, id): (usize, &String)| match index {
            0 => format!("{{\"device\":{{\"id\":\"{id}\"}}}}\n"),
            _ => format!("{{\"device\":{}}}\n", outer.replace("ID", id)),
        };
        sandbox.file("dump", all.iter().enumerate().map(row).collect::<String>());
        let build = "--dry-run --format ndjson --column device.id {}/dump";
        let built = sandbox.build(&format!("--max-reject-ratio 1 {build}"));
        assert_eq!(counts(&built), expected, "{outer}");
        let refused = format!("build --store {{}}/s --audience a {build}");
        match expected[4] {
            0 => drop(sandbox.run(&refused).succeeds()),
            _ => drop(
                sandbox
                    .run(&refused)
                    .fails(3, " values are malformed: expected at most"),
            ),
        }
    }
    // Rows are objects, though the value around a column is none.
    sandbox.file("dump", "{\"device\":7}\n");
    let build =
        "build --store {}/s --audience a --format ndjson --column device.id --column x {}/dump";
    sandbox
        .run(build)
        .fails(3, "no row of 1 has a member \"x\"");
}

#[test]
fn parquet_columns_are_read() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2500);
    for (name, compression) in [
        ("plain", Compression::UNCOMPRESSED),
        ("snappy", Compression::SNAPPY),
        ("zstd", Compression::ZSTD(Default::default())),
    ] {
        sandbox.file(name, parquet(&all, compression));
        let built = sandbox.build(&format!(
            "--format parquet --column id --column imei=imei {{}}/{name} --rejects {{}}/rejects"
        ));
        assert_eq!(counts(&built), [2500, 5000, 4500, 500, 0], "{name}");
        let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
        assert_eq!(rejects, "", "only blank values");
        // Row numbers count through the whole file.
        sandbox.build(&format!(
            "--dry-run --max-reject-ratio 1 --max-shrink 1 --format parquet --column id=imei \
             --column imei=imei {{}}/{name} --rejects {{}}/rejects"
        ));
        let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
        let mut rows: Vec<u64> = rejects
            .lines()
            .map(|row| row.split('\t').nth(1).unwrap().parse().unwrap())
            .collect();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(
            rows,
            (1..=2500).filter(|row| row % 10 != 0).collect::<Vec<_>>()
        );
    }
    let imei = "query --store {}/s --audience a --id-kind imei 860000000000001 860000000009999";
    assert_eq!(sandbox.run(imei).stdout, "1\tmember\n2\tnot_member\n");
    let build =
        |arguments: &str| sandbox.run(&format!("build --store {{}}/t --audience a {arguments}"));
    build("--format parquet {}/plain").fails(2, "--format parquet needs --column");
    build("--format ndjson {}/plain").fails(2, "--format ndjson needs --column");
    build("--format parquet --column nothing {}/plain").fails(
        3,
        "plain: has no column \"nothing\"; columns found: id, when, imei",
    );
    let pipe = sandbox.run_with(
        "build --store {}/t --audience a --format parquet --column id -",
        b"PAR1",
    );
    pipe.fails(
        3,
        "input -: a Parquet file is read from its end, and a pipe cannot be",
    );
    sandbox.file("packed", gzip(&parquet(&all, Compression::UNCOMPRESSED)));
    build("--format parquet --column id {}/packed")
        .fails(3, "it is compressed as a whole; unpack it first");
    sandbox.file("no-rows", parquet(&[], Compression::UNCOMPRESSED));
    build("--format parquet --column id {}/no-rows").fails(3, "no usable id in 0 rows");
}

#[test]
fn remote_parquet_fetches_only_its_columns() {
    let sandbox = Sandbox::new();
    let file = parquet(&ids(IdKind::Md5, 0..20_000), Compression::UNCOMPRESSED);
    sandbox.file("dump", &file);
    let web = FileServer::serve(sandbox.path());
    let built = sandbox.build(&format!(
        "--format parquet --column imei=imei {}/dump",
        web.url()
    ));
    assert_eq!(counts(&built), [20_000, 20_000, 18_000, 2000, 0]);
    assert!(
        web.sent_bytes() < file.len() as u64 / 2,
        "{} of {}",
        web.sent_bytes(),
        file.len()
    );
    assert!(web.requests("") < 100, "{}", web.requests(""));
}

#[test]
fn damaged_parquet_names_the_location_and_publishes_nothing() {
    let sandbox = Sandbox::new();
    let file = parquet(&ids(IdKind::Md5, 0..2500), Compression::SNAPPY);
    let build =
        "build --store {}/s --audience a --format parquet --column id --column imei=imei {}/file";
    for len in [0, 4, 11, 12, file.len() / 2, file.len() - 9, file.len() - 1] {
        sandbox.file("file", &file[..len]);
        sandbox
            .run(build)
            .fails(3, "file: is no Parquet file, or not the whole of one");
    }
    let mut noticed = 0;
    for at in (8..file.len()).step_by(file.len() / 40) {
        let mut flipped = file.clone();
        flipped[at] ^= 0x10;
        sandbox.file("file", flipped);
        let outcome = sandbox.run(&build.replace("build", "build --dry-run --max-reject-ratio 1"));
        // Damage inside an id is undetectable without checksums in the file.
        if outcome.status != Some(0) {
            outcome.fails(3, "/file: ");
            noticed += 1;
        }
    }
    assert!(noticed > 5, "{noticed}");
    assert!(sandbox.store().is_empty());
}

/// Runs a build that reads stdin; returns its peak memory.
fn fed(arguments: &str, feed: impl FnOnce(&mut dyn Write)) -> (Outcome, u64) {
    let sandbox = Sandbox::new();
    let arguments = format!(
        "build --store {{}}/s --audience a --json --max-reject-ratio 1 --threads 2 {arguments} -"
    );
    let mut child = spawn(&mut command(sandbox.path(), &arguments));
    let status = format!("/proc/{}/status", child.id());
    let watch = std::thread::spawn(move || {
        let mut peak = 0;
        // The loop ends when the process ends and the line disappears.
        while let Ok(status) = std::fs::read_to_string(&status) {
            let Some(line) = status.lines().find_map(|line| line.strip_prefix("VmHWM:")) else {
                break;
            };
            peak = line
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .expect("a number of KiB");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        peak
    });
    let mut pipe = child.stdin.take().expect("a piped stdin");
    feed(&mut pipe);
    drop(pipe);
    let outcome = outcome(child);
    (outcome, watch.join().expect("it does not panic"))
}

#[test]
fn gigabyte_line_takes_no_memory() {
    let good = ids(IdKind::Md5, 0..2);
    let mib = vec![b'x'; 1 << 20];
    let feed = |head: String, tail: String| {
        let mib = &mib;
        move |pipe: &mut dyn Write| {
            // The reader closes the pipe on an error.
            let _ = pipe.write_all(head.as_bytes());
            (0..1024).all(|_| pipe.write_all(mib).is_ok());
            let _ = pipe.write_all(tail.as_bytes());
        }
    };
    let (built, peak) = fed(
        "--format lines",
        feed(good[0].clone() + "\n", format!("\n{}\n", good[1])),
    );
    assert_eq!(counts(&built.json()), [3, 3, 2, 0, 1]);
    assert!(peak < MAX_KIB, "{peak} KiB");
    let row = |id: &str| format!("{{\"id\":\"{id}\"}}\n");
    let (built, peak) = fed(
        "--format ndjson --column id",
        feed(
            row(&good[0]) + "{\"id\":\"",
            format!("\"}}\n{}", row(&good[1])),
        ),
    );
    assert_eq!(counts(&built.json()), [3, 3, 2, 0, 1]);
    assert!(peak < MAX_KIB, "{peak} KiB");
    // CSV rows may contain line ends, so the start of the next row is unknown.
    let (refused, peak) = fed(
        "--format csv --column id",
        feed(format!("id\n{}\n", good[0]), "\n".to_owned()),
    );
    refused.fails(
        3,
        "input -: the row at line 3 does not end; is a quote left open?",
    );
    assert!(peak < MAX_KIB, "{peak} KiB");
}

#[test]
fn decompression_bomb_is_one_long_line() {
    let zeros = vec![b'0'; 64 << 20];
    let (gz, zst) = (gzip(&zeros), zst(&zeros));
    drop(zeros);
    for (name, member, members) in [("gz", &gz, 32), ("zst", &zst, 160)] {
        let (built, peak) = fed("--format lines --allow-empty", |pipe| {
            (0..members).for_each(|_| pipe.write_all(member).expect("it reads to the end"));
        });
        // 2 GiB and 10 GiB.
        assert_eq!(counts(&built.json()), [1, 1, 0, 0, 1], "{name}");
        assert!(peak < MAX_KIB, "{name}: {peak} KiB");
    }
    // A frame with a window of 2 GiB.
    let window = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3][..], &[0; 64]].concat();
    let (refused, peak) = fed("--format ndjson --column id", |pipe| {
        drop(pipe.write_all(&window))
    });
    refused.fails(3, "input -: zstd data needs a window of over 128 MiB");
    assert!(peak < MAX_KIB, "{peak} KiB");
}

#[test]
fn special_and_unreadable_files() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..1000);
    sandbox.file("ids", lines(&all));
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    let fifo = sandbox.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .stdin(Stdio::null())
            .status()
            .unwrap()
            .success()
    );

    // A named pipe is read like stdin; the same file twice gives twice the rows.
    let child = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --json {}/fifo {}/ids {}/ids",
    ));
    std::fs::write(&fifo, lines(&all)).unwrap();
    assert_eq!(counts(&outcome(child).json()), [3000, 3000, 1000, 0, 0]);

    let build =
        |arguments: &str| sandbox.run(&format!("build --store {{}}/t --audience a {arguments}"));
    build("--format parquet --column id {}/fifo")
        .fails(3, "fifo: a Parquet file is read from its end");
    for format in [
        "lines",
        "csv --column id",
        "ndjson --column id",
        "parquet --column id",
    ] {
        build(&format!("--format {format} {{}}/folder"))
            .fails(3, "folder: is a directory; name its files, as in");
        build(&format!("--format {format} {{}}/nothing")).fails(3, "nothing: no such file");
    }
    // Opens but cannot be read, even by root.
    build("/proc/self/mem").fails(3, "input /proc/self/mem: could not ");
    let secret = sandbox.file("secret", "");
    let mut permissions = std::fs::metadata(&secret).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
    std::fs::set_permissions(&secret, permissions).unwrap();
    if std::fs::File::open(&secret).is_err() {
        build("{}/secret").fails(3, "secret: could not open it: Permission denied");
    }
    assert!(!sandbox.path().join("t").exists() || files(&sandbox.path().join("t")).is_empty());
}

#[test]
fn file_that_shrinks_during_a_build() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..300_000));
    let path = sandbox.file("ids", &text);
    // The pipe blocks the only reader until the file is shorter.
    let fifo = sandbox.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let child = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --json --threads 1 {}/fifo {}/ids",
    ));
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(33 * 1000 + 10)
        .unwrap();
    pipe.write_all(&text.as_bytes()[33 * 2000..33 * 2001])
        .unwrap();
    drop(pipe);
    // The rest is read; the cut line is malformed, which is below the threshold.
    assert_eq!(counts(&outcome(child).json()), [1002, 1002, 1001, 0, 1]);
}

#[test]
fn all_ids_in_one_prefix() {
    let sandbox = Sandbox::new();
    let all: Vec<_> = (0..200_000).map(|n: u32| format!("abcd{n:028x}")).collect();
    sandbox.file("ids", lines(&all));
    let built = sandbox.run("build --store {}/s --audience a --json {}/ids");
    let built = built.json_with_warning("its share of the keys");
    assert_eq!(
        (counts(&built), &built["chunks"]),
        ([200_000, 200_000, 200_000, 0, 0], &1.into())
    );
    let verified = sandbox
        .run("verify --probes 1000 --store {}/s --audience a --json --against {}/ids")
        .json();
    assert_eq!(verified["against"]["checked"], 200_000);
}
