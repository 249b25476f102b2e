//! `dedup`: first occurrences and counts. Also `plan --table`.

use std::collections::HashSet;
use std::io::Write;
use std::process::Stdio;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{outcome, spawn};
use testkit::random::SplitMix64;
use testkit::sandbox::{Sandbox, command, ids, lines};

use crate::support::gzip;

/// Runs `dedup`; returns its output and report.
#[track_caller]
fn dedup(sandbox: &Sandbox, arguments: &str, stdin: &[u8]) -> (String, Value) {
    // The input is a file: a thread would have to feed a command that writes while it reads.
    let stdin = sandbox.file("stdin", stdin);
    let mut command = command(sandbox.path(), &format!("dedup --json {arguments}"));
    let child = command
        .stdin(std::fs::File::open(stdin).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let outcome = outcome(child.spawn().unwrap());
    assert_eq!(
        (outcome.status, outcome.stderr.lines().count()),
        (Some(0), 1),
        "{outcome:?}"
    );
    (
        outcome.stdout,
        serde_json::from_str(&outcome.stderr).unwrap(),
    )
}

/// A closed output ends the read, even of an endless input, as a failure: ids are missing in it.
#[test]
fn closed_output_ends_reading() {
    const MOST_BYTES: usize = 256 << 20;
    for arguments in [
        "dedup -",
        "dedup --format csv --column id=md5 -",
        "keys --threads 2 --format csv --column id=md5 -",
        "keys --threads 2 --frames -",
    ] {
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
    let audience = "--store {}/s --audience a";
    let begin = format!("begin {audience} --changes {{}}/changes");
    sandbox.file("job", sandbox.run(&begin).json().to_string());
    let keys = command(sandbox.path(), "keys --frames --report {}/keys {}/ids")
        .output()
        .unwrap();
    let frames = sandbox.file("frames", keys.stdout);
    for (arguments, status) in [
        ("dedup {}/ids", 1),
        ("keys --report {}/report {}/ids", 1),
        ("distinct --report {}/report", 1),
        ("chunk --store {}/s --job {}/job --keys 3 --frames", 1),
        ("chunk --cut --keys 2000 --job {}/job", 1),
        // Every later step needs the job.
        (&begin, 1),
        ("dedup --count {}/ids", 0),
        ("synth --count 3", 0),
        ("plan --keys 3", 0),
        ("build --store {}/s --audience a {}/ids", 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(sandbox.path(), arguments);
        let stdin = std::fs::File::open(&frames).unwrap();
        let child = command
            .stdin(stdin)
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
        assert!(!sandbox.path().join("report").exists(), "{arguments}");
    }
}

#[test]
fn text_lines_are_compared_by_bytes() {
    let sandbox = Sandbox::new();
    let (written, report) = dedup(&sandbox, "--text -", b"a\r\na\na\r\n\xef\xbb\xbfa\n");
    assert_eq!(
        (written.as_str(), &report["first_seen"]),
        ("a\r\na\n\u{feff}a\n", &3.into())
    );
    let id = "0123456789abcdef0123456789abcdef";
    let (written, _) = dedup(&sandbox, "-", format!("{id}\r\n{id}\n").as_bytes());
    assert_eq!(written, format!("{id}\n"));
}

/// Deterministic lower-case words of 4 to 12 letters; short words repeat often.
fn words(count: usize) -> String {
    let mut numbers = SplitMix64::new(7);
    let mut text = String::new();
    for _ in 0..count {
        let mut random = numbers.number();
        for _ in 0..4 + random % 9 {
            random = if random < 26 {
                numbers.number()
            } else {
                random / 26
            };
            text.push(char::from(b'a' + (random % 26) as u8));
        }
        text.push('\n');
    }
    text
}

#[test]
fn first_occurrences_are_written_in_order() {
    let sandbox = Sandbox::new();
    let text = words(300_000);
    let mut seen = HashSet::new();
    let expected: String = text
        .lines()
        .filter(|word| seen.insert(*word))
        .flat_map(|word| [word, "\n"])
        .collect();
    assert!(seen.len() < 299_000, "some words repeat: {}", seen.len());
    for how in [
        "",
        "--bloom --expected 300000 --bits-per-key 429 --hashes 8",
    ] {
        let (written, report) = dedup(&sandbox, &format!("--text {how} -"), text.as_bytes());
        assert!(written == expected, "{how}");
        assert_eq!(
            (&report["rows"], &report["first_seen"]),
            (&300_000.into(), &seen.len().into())
        );
        assert_eq!(report["duplicates"], 300_000 - seen.len());
        assert_eq!(report["exact"], how.is_empty());
        assert!(report["expected_false_positives"].as_f64().unwrap() < 1e-3);
    }
    // An undersized filter drops new words and reports the expected number.
    let (_, report) = dedup(
        &sandbox,
        "--text --bloom --expected 300000 --bits-per-key 8 --hashes 4 -",
        text.as_bytes(),
    );
    let missed = seen.len() as f64 - report["first_seen"].as_f64().unwrap();
    let expected = report["expected_false_positives"].as_f64().unwrap();
    assert!(
        missed > 500.0 && (missed - expected).abs() < 5.0 * expected.sqrt(),
        "{missed} for {expected}"
    );
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

    // --count alone.
    let counted = sandbox
        .run("dedup --id-kind idfa --count --json {}/ids.gz")
        .json();
    assert_eq!(counted["first_seen"], 500);
    let text = sandbox.run("dedup --id-kind idfa --count {}/ids.gz");
    assert!(
        text.stdout.contains("first seen  500\n") && text.stderr.is_empty(),
        "{text:?}"
    );
    let quiet = sandbox.run("dedup --id-kind idfa --quiet --report {}/report {}/ids.gz");
    assert!(quiet.stderr.is_empty() && quiet.stdout.lines().count() == 500);
    assert!(
        std::fs::read_to_string(sandbox.path().join("report"))
            .unwrap()
            .contains("\"first_seen\":500")
    );
    assert!(packed.exists());
}

#[test]
fn unusual_lines_are_counted() {
    let sandbox = Sandbox::new();
    let long = "x".repeat(70_000);
    let text = format!("{long}\nb\r\n\nb\n \n\u{feff}b\nb\nlast");
    let (written, report) = dedup(&sandbox, "--text --max-reject-ratio 1 -", text.as_bytes());
    assert_eq!(written, "b\r\n\nb\n \n\u{feff}b\nlast\n");
    assert_eq!(
        (&report["rows"], &report["malformed"], &report["duplicates"]),
        (&8.into(), &1.into(), &1.into())
    );
    let (written, report) = dedup(&sandbox, "--text -", b"");
    assert_eq!((written.as_str(), &report["rows"]), ("", &0.into()));
    for (arguments, text) in [
        ("--bloom -", "--expected"),
        ("--expected 5 -", "--bloom"),
        ("--bloom --expected 5 --hashes 3 -", "--bits-per-key"),
        (
            "--bloom --expected 5 --hashes 99 --bits-per-key 9 -",
            "1..=30",
        ),
        ("--text --id-kind idfa -", "--text"),
        ("", "INPUT"),
    ] {
        let refused = sandbox.run(&format!("dedup {arguments}"));
        assert!(
            refused.status == Some(2) && refused.stderr.contains(text),
            "{arguments}: {refused:?}"
        );
    }
    sandbox.run("dedup {}/nowhere").fails(3, "no such file");
}

#[test]
fn plan_table_lists_false_positive_rates() {
    let sandbox = Sandbox::new();
    let table = sandbox.run("plan --table --json").json();
    let rows: Vec<_> = table["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["fpr"].as_f64().unwrap())
        .collect();
    // The rates do not depend on the number of keys.
    for (rate, expected) in rows
        .iter()
        .zip([9.011e-6, 7.264e-7, 2.284e-7, 1.001e-9].repeat(2))
    {
        assert!((rate / expected - 1.0).abs() < 0.001, "{rate} {expected}");
    }
    assert_eq!(sandbox.run("plan").status, Some(2));
    assert_eq!(sandbox.run("plan --table --keys 5").status, Some(2));
}

#[test]
fn report_is_written_whole_or_to_a_pipe() {
    let sandbox = Sandbox::new();
    let report = sandbox.file("report", "old");
    let link = sandbox.path().join("link");
    std::fs::hard_link(&report, &link).unwrap();
    sandbox
        .run_with("dedup --count --quiet --report {}/report -", b"")
        .succeeds();
    assert_eq!(std::fs::read_to_string(link).unwrap(), "old");
    let piped = sandbox.run_with("dedup --count --report /dev/stderr -", b"");
    assert!(
        piped.status == Some(0) && piped.stderr.contains("\"rows\":0"),
        "{piped:?}"
    );
}

#[test]
fn input_without_any_usable_id_is_an_error() {
    let sandbox = Sandbox::new();
    let ids: String = (0..10).map(|n| format!("not-an-md5-{n}\n")).collect();
    for flags in ["--count", "", "--count --json"] {
        let deduped = sandbox.run_with(&format!("dedup {flags} -"), ids.as_bytes());
        assert_eq!(deduped.status, Some(3), "{flags}");
        let error = "error: input -: no usable id in 10 rows: 0 values are blank, 10 malformed";
        assert!(deduped.stderr.contains(error), "{}", deduped.stderr);
    }
    // Blank ids are valid.
    assert_eq!(sandbox.run_with("dedup --count -", b"\n\n").status, Some(0));
}
