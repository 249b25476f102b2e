//! `dedup`: first occurrences and counts.

use std::io::Write;
use std::process::Stdio;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};

use crate::support::gzip;

/// Runs `dedup`; returns its output, and the report of `--json`.
#[track_caller]
fn dedup(sandbox: &Sandbox, arguments: &str, stdin: &[u8]) -> (String, Value) {
    // The input is a file: a thread would have to feed a command that writes while it reads.
    let stdin = sandbox.file("stdin", stdin);
    let run = |flags: &str| {
        let mut command = command(sandbox.path(), &format!("dedup {flags} {arguments}"));
        let child = command
            .stdin(std::fs::File::open(&stdin).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        outcome(child.spawn().unwrap())
    };
    let written = run("");
    assert_eq!(written.status, Some(0), "{written:?}");
    (written.stdout, run("--json").json())
}

/// A closed output ends the read, even of an endless input, as a failure: ids are missing in it.
#[test]
fn closed_output_ends_reading() {
    const MOST_BYTES: usize = 256 << 20;
    for arguments in ["dedup -", "dedup --format csv --column id=md5 -"] {
        let sandbox = Sandbox::new();
        let mut child = spawn(&mut command(sandbox.path(), arguments));
        drop(child.stdout.take());
        let mut pipe = child.stdin.take().unwrap();
        let (mut fed, mut row) = (0, 0_u128);
        let mut block = b"id\n".to_vec();
        while fed < MOST_BYTES && pipe.write_all(&block).is_ok() {
            fed += block.len();
            block.clear();
            for _ in 0..4096 {
                row += 1;
                writeln!(
                    block,
                    "{:032x}",
                    row.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                )
                .unwrap();
            }
        }
        drop(pipe);
        let outcome = outcome(child);
        assert!(fed < MOST_BYTES, "{arguments}: read it all, {outcome:?}");
        outcome.fails(1, "could not write to stdout");
    }
}

/// A closed output of a short input, which is written at the end.
#[test]
fn closed_output_of_data_is_a_failure() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..3)));
    for (arguments, status) in [
        ("dedup {}/ids", 1),
        // Every task needs the job.
        ("publish --store {}/s --audience a", 1),
        ("dedup --json {}/ids", 0),
        ("synth --count 3", 0),
        ("plan --keys 3", 0),
        ("build --store {}/s --audience a {}/ids", 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(sandbox.path(), arguments);
        let child = command
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let outcome = outcome(child);
        assert_eq!(outcome.status, Some(status), "{arguments}: {outcome:?}");
        assert_eq!(
            outcome.stderr.contains("could not write to stdout"),
            status == 1
        );
    }
}

#[test]
fn spellings_of_an_id_are_equal() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Idfa, 0..500);
    let text = [
        lines(&all[..300]),
        lines(&all).to_lowercase(),
        "00000000-0000-0000-0000-000000000000\njunk\n\n".into(),
    ];
    let packed = sandbox.file("ids.gz", gzip(text.concat().as_bytes()));
    let (written, report) = dedup(&sandbox, "--id-kind idfa {}/ids.gz", b"");
    assert_eq!(
        written,
        lines(&all[..300]) + &lines(&all[300..]).to_lowercase()
    );
    assert_eq!(
        (&report["rows"], &report["duplicates"]),
        (&803.into(), &300.into())
    );
    assert_eq!(
        (&report["blank"], &report["malformed"]),
        (&2.into(), &1.into())
    );

    // Formats with columns write the md5.
    let row = |id: &String| format!("{id},x\n");
    let table = format!(
        "id,note\n{}",
        all.iter().chain(&all[..9]).map(row).collect::<String>()
    );
    let (written, report) = dedup(
        &sandbox,
        "--id-kind idfa --format csv --column id -",
        table.as_bytes(),
    );
    assert_eq!(written, lines(&ids(IdKind::Md5, 0..500)));
    assert_eq!(report["duplicates"], 9);

    assert_eq!(report["first_seen"], 500);
    let text = sandbox.run("dedup --id-kind idfa {}/ids.gz");
    assert!(text.stderr.starts_with("500 distinct ids\n"), "{text:?}");
    let quiet = sandbox.run("dedup --id-kind idfa --quiet {}/ids.gz");
    assert!(quiet.stderr.is_empty() && quiet.stdout.lines().count() == 500);
    assert!(packed.exists());
}

#[test]
fn unusual_lines_are_counted() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(70_000);
    let id = "0123456789abcdef0123456789abcdef";
    let text = format!("{long}\n{id}\r\n\n\u{feff}{id}\nlast");
    let (written, report) = dedup(&sandbox, "--max-reject-ratio 1 -", text.as_bytes());
    assert_eq!(written, format!("{id}\n"));
    assert_eq!(
        (&report["rows"], &report["malformed"], &report["blank"]),
        (&5.into(), &2.into(), &1.into())
    );
    assert_eq!(report["duplicates"], 1);

    let (written, report) = dedup(&sandbox, "-", b"");
    assert_eq!((written.as_str(), &report["rows"]), ("", &0.into()));
    assert_eq!(sandbox.run("dedup").status, Some(2));
    sandbox.run("dedup {}/nowhere").fails(3, "no such file");
}

#[test]
fn input_without_any_usable_id_is_an_error() {
    let sandbox = Sandbox::new();
    let ids: String = (0..10).map(|n| format!("not-an-md5-{n}\n")).collect();
    for flags in ["", "--json"] {
        let deduped = sandbox.run_with(&format!("dedup {flags} -"), ids.as_bytes());
        assert_eq!(deduped.status, Some(3), "{flags}");
        let error = "error: input -: no usable id in 10 rows: 0 values are blank, 10 malformed";
        assert!(deduped.stderr.contains(error), "{}", deduped.stderr);
    }
    // Blank ids are valid.
    assert_eq!(sandbox.run_with("dedup -", b"\n\n").status, Some(0));
}
