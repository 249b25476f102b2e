//! Input variants found in practice: line formats, compression, CSV, rejects.

use std::os::unix::fs::PermissionsExt;

use rtad_core::device::IdKind;
use testkit::process::{outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};

use crate::support::{gzip, zst};

/// Counts of a build's JSON: rows, distinct keys, duplicates, blank, malformed in any way.
fn counts(built: &serde_json::Value) -> [u64; 5] {
    let at = |pointer: &str| {
        built
            .pointer(pointer)
            .and_then(serde_json::Value::as_u64)
            .expect("a number")
    };
    [
        at("/rows"),
        at("/keys"),
        at("/duplicates"),
        at("/blank"),
        at("/rejected/total"),
    ]
}

#[test]
fn line_variants_are_counted_correctly() {
    let [a, b] = [&ids(IdKind::Md5, 0..1)[0], &ids(IdKind::Md5, 1..2)[0]];
    let upper = a.to_uppercase();
    let long = "f".repeat(70_000);
    let endless = "f".repeat(3 << 20);
    let blank_md5 = "d41d8cd98f00b204e9800998ecf8427e";
    let zeros = "0".repeat(32);
    // Text, and its rows, keys, duplicates, blank and malformed values.
    let zoo: Vec<(&str, Vec<u8>, [u64; 5])> = vec![
        ("plain", format!("{a}\n{b}\n").into(), [2, 2, 0, 0, 0]),
        (
            "no final line end",
            format!("{a}\n{b}").into(),
            [2, 2, 0, 0, 0],
        ),
        ("CRLF", format!("{a}\r\n{b}\r\n").into(), [2, 2, 0, 0, 0]),
        (
            "byte order mark",
            format!("\u{feff}{a}\n{b}\n").into(),
            [2, 2, 0, 0, 0],
        ),
        (
            "spaces and tabs around",
            format!("  {a}\t\n{b} \n").into(),
            [2, 2, 0, 0, 0],
        ),
        (
            "upper case",
            format!("{upper}\n{a}\n").into(),
            [2, 1, 1, 0, 0],
        ),
        (
            "duplicates",
            format!("{a}\n{a}\n{b}\n{a}\n").into(),
            [4, 2, 2, 0, 0],
        ),
        (
            "empty lines",
            format!("\n{a}\n\r\n\n").into(),
            [4, 1, 0, 3, 0],
        ),
        (
            "blank ids",
            format!("{a}\nnull\n{blank_md5}\n{zeros}\n__IDFA__\n").into(),
            [5, 1, 0, 4, 0],
        ),
        (
            "invalid UTF-8",
            [a.as_bytes(), b"\n\xff\xfe\x80\n"].concat(),
            [2, 1, 0, 0, 1],
        ),
        (
            "NUL",
            [a.as_bytes(), b"\n\0\0\n", b.as_bytes(), b"\0\n"].concat(),
            [3, 1, 0, 1, 1],
        ),
        (
            "31 and 33 digits",
            format!("{a}\n{}\n{b}0\n", &b[..31]).into(),
            [3, 1, 0, 0, 2],
        ),
        (
            "a long line",
            format!("{a}\n{long}\n{b}\n").into(),
            [3, 2, 0, 0, 1],
        ),
        (
            "an endless line",
            format!("{a}\n{endless}\n{b}\n").into(),
            [3, 2, 0, 0, 1],
        ),
        (
            "an endless line at the end",
            format!("{a}\n{endless}").into(),
            [2, 1, 0, 0, 1],
        ),
        (
            "a 0x prefix",
            format!("{a}\n0x{}\n", &b[2..]).into(),
            [2, 1, 0, 0, 1],
        ),
    ];
    for (name, text, expected) in zoo {
        for (how, bytes) in [
            ("plain", text.clone()),
            ("gz", gzip(&text)),
            ("zst", zst(&text)),
        ] {
            let sandbox = Sandbox::new();
            // A name without a telling extension.
            sandbox.file("dump.txt", bytes);
            let built = sandbox.build("--max-reject-ratio 1 {}/dump.txt");
            assert_eq!(counts(&built), expected, "{name}, {how}");
            let verified = sandbox
                .run(
                    "verify --store {}/s --audience a --probes 10 --json --max-reject-ratio 1 \
                     --against {}/dump.txt",
                )
                .json();
            assert_eq!(
                verified["against"]["checked"],
                expected[1] + expected[2],
                "{name}, {how}"
            );
        }
    }
}

#[test]
fn concatenated_members_globs_and_stdin_are_read() {
    let all = ids(IdKind::Md5, 0..500);
    let part = |n: usize| lines(&all[n * 100..n * 100 + 100]);
    let sandbox = Sandbox::new();
    sandbox.file(
        "1.gz",
        [gzip(part(0).as_bytes()), gzip(part(1).as_bytes())].concat(),
    );
    // A skippable frame first, as parallel compressors write it.
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4];
    sandbox.file(
        "2.zst",
        [
            skippable.to_vec(),
            zst(part(2).as_bytes()),
            zst(part(3).as_bytes()),
        ]
        .concat(),
    );
    let built = sandbox
        .run_with(
            "build --store {}/s --audience a --json {}/*.gz {}/[12].zst -",
            part(4).as_bytes(),
        )
        .json();
    assert_eq!(counts(&built), [500, 500, 0, 0, 0]);
    let verify = "verify --store {}/s --audience a --probes 10 --json --against -";
    assert_eq!(
        sandbox
            .run_with(verify, &gzip(lines(&all).as_bytes()))
            .json()["against"]["checked"],
        500
    );
}

#[test]
fn unreadable_input_is_fatal_and_publishes_nothing() {
    let text = lines(&ids(IdKind::Md5, 0..20_000));
    let (gz, zstd) = (gzip(text.as_bytes()), zst(text.as_bytes()));
    let flipped = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64]
            .iter_mut()
            .for_each(|byte| *byte ^= 0xff);
        bytes
    };
    // A frame header that asks for a window of 2 GiB.
    let bomb = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3][..], &[0; 64]].concat();
    let sandbox = Sandbox::new();
    sandbox.file("good", &text);
    std::fs::create_dir(sandbox.path().join("folder")).unwrap();
    for (name, bytes, says) in [
        (
            "cut.gz",
            gz[..gz.len() / 2].to_vec(),
            "cut.gz: gzip data is cut short or corrupt after ",
        ),
        (
            "crc.gz",
            gz[..gz.len() - 8].to_vec(),
            "cut short or corrupt after 660000 bytes of text",
        ),
        ("flipped.gz", flipped(&gz), "flipped.gz: gzip data"),
        (
            "tail.gz",
            [&gz[..], b"trailing"].concat(),
            "tail.gz: gzip data",
        ),
        (
            "cut.zst",
            zstd[..zstd.len() / 2].to_vec(),
            "cut.zst: zstd data is cut short or corrupt after ",
        ),
        ("flipped.zst", flipped(&zstd), "flipped.zst: zstd data"),
        (
            "bomb.zst",
            bomb,
            "bomb.zst: zstd data needs a window of over 128 MiB",
        ),
    ] {
        sandbox.file(name, bytes);
        let outcome = sandbox.run(&format!(
            "build --store {{}}/s --audience a {{}}/good {{}}/{name} --json"
        ));
        outcome.fails(3, says);
    }
    sandbox
        .run("build --store {}/s --audience a {}/missing")
        .fails(3, "no such file");
    sandbox
        .run("build --store {}/s --audience a {}/none*")
        .fails(3, "no such file");
    sandbox
        .run("build --store {}/s --audience a {}/folder")
        .fails(3, "is a directory");
    sandbox
        .run("build --store {}/s --audience a - -")
        .fails(2, "only once");
    sandbox
        .run("build --store {}/s --audience a ftp://host/dump")
        .fails(2, "accepted: a path, a pattern, `-`");
    assert!(sandbox.store().is_empty(), "nothing was published");
}

#[test]
fn empty_input_needs_allow_empty() {
    let sandbox = Sandbox::new();
    sandbox.file("empty", "");
    sandbox.file("blank", "\n0\nnull\n");
    sandbox
        .run("build --store {}/s --audience a {}/empty")
        .fails(3, "no usable id in 0 rows");
    sandbox
        .run("build --store {}/s --audience a {}/blank")
        .fails(3, "no usable id in 3 rows");
    sandbox
        .run("build --store {}/s --audience a --format csv --column id {}/empty")
        .fails(3, "none: it is empty");
    assert!(sandbox.store().is_empty());
    let built = sandbox.build("--allow-empty {}/blank");
    assert_eq!(
        (counts(&built), &built["chunks"]),
        ([3, 0, 0, 3, 0], &0.into())
    );
    assert_eq!(
        sandbox
            .run("verify --store {}/s --audience a --probes 1000 --json")
            .json()["keys"],
        0
    );
}

#[test]
fn row_with_an_open_quote_is_refused() {
    let all = ids(IdKind::Idfa, 0..1000);
    let sandbox = Sandbox::new();
    let common = "build --store {}/s --audience a --json --format csv --column idfa=idfa";
    let mut text = String::from("\u{feff}\"when\",idfa,a,b,\"note\"\r\n");
    for (row, id) in all.iter().enumerate() {
        let note = if row == 999 {
            "\"open, \"\"x\"\""
        } else {
            "\"closed, \"\"x\"\"\""
        };
        text += &format!("\"2026-11-22\",{id},1,5\" screen,{note}\r\n");
    }
    sandbox.file("dump.csv", &text);
    sandbox.file("dump.csv.gz", gzip(text.as_bytes()));
    sandbox.file("dump.csv.zst", zst(text.as_bytes()));
    for name in ["dump.csv", "dump.csv.gz", "dump.csv.zst"] {
        sandbox
            .run(&format!("{common} {{}}/{name}"))
            .fails(3, "does not end; is a quote left open?");
    }

    // Closed quotes may have line ends.
    sandbox.file(
        "lines.csv",
        "idfa,note\r\n".to_owned() + &all[0] + ",\"two\r\nlines\"\r\n",
    );
    let whole = sandbox.run(&format!("{common} {{}}/lines.csv")).json();
    assert_eq!((&whole["rows"], &whole["keys"]), (&1.into(), &1.into()));
}

#[test]
fn csv_columns_may_have_different_kinds() {
    let (idfa, imei) = (ids(IdKind::Idfa, 0..100), ids(IdKind::Imei, 0..100));
    let mut text = String::from("\u{feff}when, idfa ,\"imei \"\"raw\"\"\",note\r\n");
    for (idfa, imei) in idfa.iter().zip(&imei) {
        text += &format!(
            "today,{},\"{imei}\",\"a, quoted\nnote\"\r\n",
            idfa.to_lowercase()
        );
    }
    text += "today,,,no ids\r\ntoday\r\n";
    let sandbox = Sandbox::new();
    sandbox.file("dump.csv", &text);
    sandbox.file(
        "dump.tsv",
        "idfa\timei\n".to_owned() + &idfa[0] + "\t" + &imei[0] + "\n",
    );
    // The helper splits arguments at spaces, and this column name has one.
    let mut command = command(
        sandbox.path(),
        "build --store {}/s --audience a --json --format csv --id-kind idfa --column idfa \
         --max-reject-ratio 0.02",
    );
    command
        .args(["--column", "imei \"raw\"=imei", "--rejects"])
        .arg(sandbox.path().join("rejects"));
    let built = outcome(spawn(command.arg(sandbox.path().join("dump.csv")))).json();
    assert_eq!(counts(&built), [102, 200, 0, 2, 1]);
    assert_eq!(
        (&built["values"], &built["rejected"]["row_length"]),
        (&203.into(), &1.into())
    );
    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    let reasons: Vec<_> = rejects
        .lines()
        .map(|row| row.split_once('\t').unwrap().1)
        .collect();
    // The row follows 1 header and 100 rows of two lines each.
    assert_eq!(reasons, ["203\trow_length\ttoday"], "no blank cells");
    for (kind, id) in [("idfa", &idfa[42]), ("imei", &imei[42])] {
        let answer = sandbox.run(&format!(
            "query --store {{}}/s --audience a --id-kind {kind} {id}"
        ));
        assert_eq!(answer.stdout, "1\tmember\n");
    }
    let tabs = sandbox.build(
        "--max-shrink 1 --format csv --delimiter \\t --column idfa=idfa --column imei=imei \
         {}/dump.tsv",
    );
    assert_eq!(counts(&tabs), [1, 2, 0, 0, 0]);
}

#[test]
fn csv_errors_name_the_file_and_no_id() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..3);
    sandbox.file("other.csv", "when,device\n");
    sandbox.file("twice.csv", "id,id\n1,2\n");
    sandbox.file("headless.csv", lines(&all));
    sandbox.file(
        "open.csv",
        format!("id\n{}\n\"{}", all[0], "x\n".repeat(9 << 20)),
    );
    let build = |name: &str| {
        sandbox.run(&format!(
            "build --store {{}}/s --audience a --format csv --column id {{}}/{name}"
        ))
    };
    build("other.csv").fails(3, "has no column \"id\"; columns found: when, device");
    build("twice.csv").fails(3, "more than one column \"id\"");
    build("open.csv").fails(
        3,
        "open.csv: the row at line 3 does not end; is a quote left open?",
    );
    // Also near the end of the file, and in another column: the rows inside the quotes would be
    // lost.
    sandbox.file(
        "open.csv",
        format!("id,note\n{},\n\r\n\n{},\"\n{},\n", all[0], all[1], all[2]),
    );
    build("open.csv").fails(3, "line 5 does not end; is a quote left open?");
    let headless = build("headless.csv");
    headless.fails(3, "is the header row missing?");
    assert!(!headless.stderr.contains(&all[0]));
    sandbox
        .run("build --store {}/s --audience a --format csv {}/other.csv")
        .fails(2, "needs --column");
    sandbox
        .run("build --store {}/s --audience a --column id {}/other.csv")
        .fails(2, "--column requires --format csv");
    // The header's last name may be empty.
    sandbox.file("other.csv", "a,\nx\n");
    for flags in [
        "--column=",
        "--column==md5",
        "--column a --filter ribbon --value=",
    ] {
        let outcome = sandbox.run(&format!(
            "build --store {{}}/s --audience a --format csv {flags} {{}}/other.csv"
        ));
        assert_eq!(outcome.status, Some(2), "{outcome:?}");
    }
    assert!(sandbox.store().is_empty());
}

#[test]
fn reject_ratio_decides_and_rejects_file_lists_rows() {
    let sandbox = Sandbox::new();
    let good = ids(IdKind::Md5, 0..98);
    sandbox.file("good", lines(&good));
    sandbox.build("{}/good");
    let before = sandbox.store();

    let long = "y".repeat(70_000);
    let text = format!("{}bad\tone\\\r\n\nzq\n{long}\n", lines(&good));
    sandbox.file("dump", text);
    sandbox.file("rejects", "from an earlier run, readable by all");
    let outcome =
        sandbox.run("build --store {}/s --audience a --json --rejects {}/rejects {}/dump");
    outcome.fails(
        3,
        "3 of 102 values are malformed: expected at most --max-reject-ratio 0.01;",
    );
    assert_eq!(
        sandbox.store(),
        before,
        "the store is unchanged, byte for byte"
    );

    let rejects = std::fs::read_to_string(sandbox.path().join("rejects")).unwrap();
    let rows: Vec<Vec<&str>> = rejects
        .lines()
        .map(|row| row.split('\t').collect())
        .collect();
    let dump = sandbox.path().join("dump").display().to_string();
    assert_eq!(rows[0], [&dump, "99", "malformed", "bad\\tone\\\\"]);
    assert_eq!(rows[1], [&dump, "101", "malformed", "zq"]);
    assert_eq!(rows[2], [&dump, "102", "too_long", &long[..1024]]);
    assert_eq!(rows.len(), 3, "no blank row");
    let mode = std::fs::metadata(sandbox.path().join("rejects"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    // The ratio is at the limit; blank ids do not count.
    let built = sandbox.build("--max-reject-ratio 0.03 {}/dump");
    assert_eq!(
        (counts(&built), &built["generation"]),
        ([102, 98, 0, 1, 3], &2.into())
    );
    let outcome = sandbox.run("build --store {}/s --audience a --rejects {}/dump {}/dump");
    outcome.fails(2, "is one of the inputs");
    assert!(
        std::fs::metadata(sandbox.path().join("dump"))
            .unwrap()
            .len()
            > 0
    );
    let outcome = sandbox
        .run("build --store {}/s --audience a --rejects /dev/full --max-reject-ratio 1 {}/dump");
    outcome.fails(1, "/dev/full: could not write it: No space left");
    let usage = sandbox.run("build --store {}/s --audience a --max-reject-ratio 2 {}/dump");
    assert_eq!((usage.status, usage.stdout.as_str()), (Some(2), ""));
}

#[test]
fn case_and_blank_flags_are_applied() {
    let sandbox = Sandbox::new();
    let idfa = &ids(IdKind::Idfa, 0..1)[0];
    sandbox.file(
        "dump",
        format!("{}\nSECRET-TEST-DEVICE\n", idfa.to_lowercase()),
    );
    let query = |id: &str| {
        sandbox
            .run(&format!(
                "query --store {{}}/s --audience a --id-kind openid {id}"
            ))
            .stdout
    };
    for (case, [lower, upper]) in [
        ("lower", [true, false]),
        ("upper", [false, true]),
        ("all", [true, true]),
    ] {
        sandbox.build(&format!("--id-kind openid --case {case} {{}}/dump"));
        let answer = |member| {
            if member {
                "1\tmember\n"
            } else {
                "1\tnot_member\n"
            }
        };
        assert_eq!(query(&idfa.to_lowercase()), answer(lower), "{case}");
        assert_eq!(query(idfa), answer(upper), "{case}");
    }
    let built = sandbox.build("--max-shrink 1 --id-kind openid --blank SECRET-TEST-DEVICE {}/dump");
    assert_eq!(counts(&built), [2, 1, 0, 1, 0]);
}

/// An id in place of a file is not repeated.
#[test]
fn missing_file_is_named_unless_it_could_be_an_id() {
    let sandbox = Sandbox::new();
    for name in ["old-users", "20261125", "dumps/0123456789ab"] {
        sandbox
            .run(&format!("dedup {name}"))
            .fails(3, &format!("input {name}: no such"));
    }
    let id = "727479405787894";
    let refused = sandbox.run(&format!("dedup --json {id}"));
    refused.fails(3, "looks like an id");
    assert!(
        !refused.stderr.contains(id) && !refused.stdout.contains(id),
        "{refused:?}"
    );
}

#[test]
fn output_contains_no_id() {
    let sandbox = Sandbox::new();
    let (md5, idfa) = (ids(IdKind::Md5, 0..50), ids(IdKind::Idfa, 0..50));
    // Valid ids, ids of the wrong kind, truncated ids: all identify a device.
    let cut: Vec<_> = md5.iter().map(|id| id[..30].to_owned()).collect();
    let all = [md5, idfa, cut].concat();
    sandbox.file("dump", lines(&all));
    sandbox.file("dump.csv", lines(&all).replace('\n', ",\n"));
    let mut said = String::new();
    for arguments in [
        "build --store {}/s --audience a {}/dump".to_owned(),
        "build --store {}/s --audience a --max-reject-ratio 1 {}/dump".to_owned(),
        "build --store {}/s --audience a --max-reject-ratio 1 --json {}/dump --rejects {}/rejects"
            .to_owned(),
        "build --store {}/s --audience a --format csv --column id {}/dump.csv".to_owned(),
        "verify --store {}/s --audience a --probes 10 --id-kind openid --against {}/dump"
            .to_owned(),
        "inspect --store {}/s --audience a".to_owned(),
        format!("query --store {{}}/s --audience a {}", all.join(" ")),
        format!("query --store {{}}/s --audience a --json {}", all.join(" ")),
        format!("query --store {{}}/nowhere --audience a {}", all.join(" ")),
    ] {
        let outcome = sandbox.run(&arguments);
        said += &outcome.stdout;
        said += &outcome.stderr;
    }
    for id in &all {
        assert!(
            !said.to_lowercase().contains(&id[..12].to_lowercase()),
            "an id in: {said}"
        );
    }
}

#[test]
fn stdout_has_one_json_object_or_the_commands_data() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..10)) + "bad\n");
    let object = |arguments: &str| {
        let failed = sandbox.run(arguments);
        let lines: Vec<_> = failed.stdout.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 1, "{failed:?}");
        let object: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(
            object["exit_code"].as_i64(),
            failed.status.map(Into::into),
            "{failed:?}"
        );
        object
    };
    let mistake = object("build --json --store {}/s --audience a --no-such {}/ids");
    assert_eq!(
        (&mistake["exit_code"], &mistake["error"]),
        (&2.into(), &"usage".into())
    );
    assert_eq!(mistake["message"], "unexpected argument '--no-such' found");
    let file = object("build --json --store {}/s --audience a --rejects - {}/ids");
    assert!(
        file["message"]
            .as_str()
            .unwrap()
            .contains("accepted: a file; stdout"),
        "{file}"
    );
    assert!(!std::path::Path::new("-").exists());
    assert_eq!(object("dedup --json {}/ids")["exit_code"], 3);

    // Ids come alone.
    let ids = sandbox.run("dedup {}/ids");
    assert_eq!(
        (ids.status, ids.stdout.lines().count()),
        (Some(3), 10),
        "{ids:?}"
    );
    let text = sandbox.run("build --store {}/s --audience a --no-such {}/ids");
    assert_eq!((text.status, &*text.stdout), (Some(2), ""));
    assert!(
        sandbox
            .run("build --json --help")
            .succeeds()
            .stdout
            .starts_with("Build an audience")
    );
}

#[test]
fn output_file_is_not_one_of_the_inputs() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..100));
    let input = sandbox.file("in", &text);
    sandbox.build("{}/in");
    std::fs::hard_link(&input, sandbox.path().join("linked")).unwrap();
    std::os::unix::fs::symlink(&input, sandbox.path().join("symbolic")).unwrap();
    let audience = "--store {}/s --audience a";
    for output in ["in", "linked", "symbolic"] {
        for command in [
            format!("build {audience} --rejects {{}}/OUT {{}}/in"),
            format!("append {audience} --rejects {{}}/OUT {{}}/in"),
            format!("verify {audience} --missing {{}}/OUT --against {{}}/in"),
        ] {
            let refused = sandbox.run(&command.replace("OUT", output));
            let error = format!("{output}: is one of the inputs and would be overwritten");
            refused.fails(2, &error);
            assert_eq!(std::fs::read_to_string(&input).unwrap(), text, "{command}");
        }
    }
    // Seen before the input is read, and before anything is published.
    let before = sandbox.store();
    let command = format!("build {audience} --rejects {{}}/nowhere/out {{}}/in");
    sandbox
        .run(&command)
        .fails(2, "nowhere/out: its folder does not exist");
    assert_eq!(sandbox.store(), before);
}
