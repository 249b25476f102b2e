//! Distributed build: gives the same chunks as `build`, allows retries, and rejects inconsistent
//! reports.

mod refusals;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::store::files;

use crate::support::chunks;

/// The steps of one job over a store.
struct Steps<'a> {
    sandbox: &'a Sandbox,
    job: String,
    /// Reports of the steps.
    lines: Vec<String>,
    changes: Vec<u8>,
}

/// Runs a command with bytes on stdin and out.
#[track_caller]
fn pipe(mut command: Command, stdin: &[u8]) -> (Vec<u8>, String, Option<i32>) {
    let mut child = spawn(&mut command);
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    let feeder = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    (
        output.stdout,
        String::from_utf8(output.stderr).unwrap(),
        output.status.code(),
    )
}

impl<'a> Steps<'a> {
    #[track_caller]
    fn begin(sandbox: &'a Sandbox) -> Self {
        Self::begin_with(sandbox, "")
    }

    #[track_caller]
    fn begin_with(sandbox: &'a Sandbox, flags: &str) -> Self {
        let begin = format!("begin --store {{}}/s --audience a --changes {{}}/changes {flags}");
        let begun = sandbox.run(&begin).json();
        let changes = std::fs::read(sandbox.path().join("changes")).unwrap();
        Self {
            sandbox,
            job: begun.to_string(),
            lines: Vec::new(),
            changes,
        }
    }

    /// Runs a step; returns its data and keeps its report.
    #[track_caller]
    fn step(&mut self, arguments: &str, stdin: &[u8]) -> Vec<u8> {
        let (data, report, status) = pipe(command(self.sandbox.path(), arguments), stdin);
        assert_eq!((status, report.lines().count()), (Some(0), 1), "{report}");
        self.lines.push(report.trim_end().to_owned());
        data
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = command(self.sandbox.path(), arguments);
        command.args(["--job", &self.job]);
        command
    }

    /// The distinct keys of these files, in several parts.
    #[track_caller]
    fn distinct(&mut self, inputs: &[&str], parts: u32) -> Vec<Vec<u8>> {
        let mut frames = self.changes.clone();
        for input in inputs {
            frames.extend(self.step(&format!("keys --frames {input}"), b""));
        }
        (0..parts)
            .map(|part| self.step(&format!("distinct --part {part}/{parts}"), &frames))
            .collect()
    }

    fn total(&self) -> u64 {
        let lines = self
            .lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["what"] == "distinct")
            .map(|line| line["keys"].as_u64().unwrap())
            .sum()
    }

    #[track_caller]
    fn chunks(&self, total: u64, frames: &[u8]) -> Vec<String> {
        let command = self.command(&format!("chunk --store {{}}/s --frames --keys {total}"));
        let (out, errors, status) = pipe(command, frames);
        assert_eq!((status, errors.as_str()), (Some(0), ""));
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn publish(&self, arguments: &str, lines: &[String]) -> Outcome {
        let command = self.command(&format!("publish --store {{}}/s --json {arguments} -"));
        let (stdout, stderr, status) = pipe(command, lines.join("\n").as_bytes());
        Outcome {
            status,
            stdout: String::from_utf8(stdout).unwrap(),
            stderr,
        }
    }
}

fn chunks_of(sandbox: &Sandbox, store: &str) -> BTreeMap<String, Vec<u8>> {
    let files = files(&sandbox.path().join(store));
    chunks(&files)
        .into_iter()
        .map(|name| (name.clone(), files[name].clone()))
        .collect()
}

#[test]
fn sha1_ids_make_an_audience_of_sha1() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Sha1, 0..3000)));
    sandbox.file("others", lines(&ids(IdKind::Md5, 0..3000)));
    let published = |input: &str| {
        let mut steps = Steps::begin(&sandbox);
        let parts = steps.distinct(&[input], 2);
        let chunks = steps.chunks(steps.total(), &parts.concat());
        let all: Vec<_> = steps.lines.iter().cloned().chain(chunks).collect();
        steps.publish("", &all)
    };
    assert_eq!(published("--id-kind sha1 {}/ids").json()["keys"], 3000);
    let idfas = ids(IdKind::Idfa, 0..50).join(" ");
    let query = format!("query --store {{}}/s --audience a --json --id-kind idfa {idfas}");
    let answers = sandbox.run(&query).json()["answers"].clone();
    assert!(
        answers
            .as_array()
            .unwrap()
            .iter()
            .all(|answer| answer == "member")
    );

    let refused = published("--id-kind md5 {}/others");
    assert_eq!(refused.status, Some(3));
    assert!(
        refused
            .stderr
            .contains("has keys of sha1, and the ids are of md5")
    );
}

/// Two kinds of ids with duplicates, blanks and malformed ones; over a generation with deltas and
/// tombstones.
#[test]
fn chunks_equal_those_of_a_build() {
    for filter in ["block512", "ribbon"] {
        check_chunks_equal_those_of_a_build(filter);
    }
}

fn check_chunks_equal_those_of_a_build(filter: &str) {
    let (idfas, imeis) = (ids(IdKind::Idfa, 0..4000), ids(IdKind::Imei, 0..4000));
    let mut table = String::from("idfa,imei\n");
    for (row, (idfa, imei)) in idfas.iter().zip(&imeis).enumerate() {
        let imei = if row % 100 == 0 { "not an imei" } else { imei };
        let idfa = if row % 7 == 0 { "" } else { idfa };
        table += &format!("{idfa},{imei}\n{},\n", idfa.to_lowercase());
    }
    let columns = "--format csv --column idfa=idfa --column imei=imei";
    let (mut built, mut stepped) = (Sandbox::new(), Sandbox::new());
    for sandbox in [&mut built, &mut stepped] {
        sandbox.file("table", &table);
        sandbox.file("first", lines(&ids(IdKind::Md5, 9000..9500)));
        sandbox.file("added", lines(&ids(IdKind::Oaid, 0..300)));
        sandbox.file("gone", lines(&idfas[500..900]));
        sandbox.file("erased", lines(&imeis[500..600]));
        sandbox.build("{}/first");
        for change in [
            "append --id-kind oaid {}/added",
            "remove --id-kind idfa {}/gone",
            "remove --tombstone --id-kind imei {}/erased",
            "append --id-kind imei --max-reject-ratio 1 {}/erased",
        ] {
            let (name, rest) = change.split_once(' ').unwrap();
            sandbox
                .run(&format!("{name} --store {{}}/s --audience a --json {rest}"))
                .json();
        }
    }
    let expected = built.build(&format!(
        "--filter {filter} --max-reject-ratio 0.1 --max-shrink 1 --label a=1 {columns} {{}}/table"
    ));

    let mut steps = Steps::begin_with(&stepped, &format!("--filter {filter}"));
    // Later deltas apply to the new generation.
    stepped.file("late", lines(&ids(IdKind::Md5, 9990..9995)));
    stepped
        .run("append --store {}/s --audience a --json {}/late")
        .json();
    let parts = steps.distinct(&[&format!("{columns} {{}}/table")], 4);
    let total = steps.total();
    assert_eq!(expected["keys"], total);
    let chunks = steps.chunks(total, &parts.concat());
    // A retry of all chunks, and one chunk from keys in any order.
    let (mut all, again) = (steps.lines.clone(), steps.chunks(total, &parts[1]));
    all.extend(again.into_iter().rev().chain(chunks));
    let published = steps
        .publish("--max-reject-ratio 0.1 --max-shrink 1 --label a=1", &all)
        .json();

    assert_eq!(chunks_of(&stepped, "s"), chunks_of(&built, "s"));
    for field in [
        "generation",
        "keys",
        "rows",
        "values",
        "duplicates",
        "expected_fpr",
        "size_bytes",
        "overlap",
        "largest_share",
        "skewed",
        "labels",
        "columns",
    ] {
        assert_eq!(published[field], expected[field], "{field}");
    }
    assert_eq!(published["removed"], expected["deltas"]["removed"]);
    assert_eq!(published["rejected"]["malformed"], 40);
    let manifest = |sandbox: &Sandbox| {
        sandbox
            .run("inspect --store {}/s --audience a --json")
            .json()
    };
    let (one, other) = (manifest(&built), manifest(&stepped));
    for field in [
        "chunks",
        "fill_ratio",
        "diverted_keys",
        "listed_keys",
        "build",
        "folded",
        "survey",
        "keys",
    ] {
        assert_eq!(one[field], other[field], "{field}");
    }
    // No member is lost, and no removed device is back.
    let query = |ids: &[String], kind| {
        let asked = format!(
            "query --store {{}}/s --audience a --json --id-kind {kind} {}",
            ids.join(" ")
        );
        let answers = stepped.run(&asked).json();
        answers["answers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|answer| *answer == "member")
            .count()
    };
    assert_eq!(query(&ids(IdKind::Oaid, 0..300), "oaid"), 300);
    assert_eq!(query(&ids(IdKind::Md5, 9990..9995), "md5"), 5);
    assert_eq!(
        (
            query(&idfas[500..900], "idfa"),
            query(&imeis[500..600], "imei")
        ),
        (0, 0)
    );
    assert_eq!(
        stepped.run("list --store {}/s --json").json()["audiences"][0]["over"]["added"],
        5
    );
}

#[test]
fn carried_changes_are_counted_limited_and_kept() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2100);
    let (old, new, gone) = (&all[..2000], &all[2000..], &all[..50]);
    sandbox.file("ids", lines(old));
    sandbox.file("new", lines(new));
    sandbox.file("gone", lines(gone));
    let build = |begin: &str, publish: &str, omit: bool| {
        let mut steps = Steps::begin_with(&sandbox, begin);
        if omit {
            steps.changes.clear();
        }
        let frames = steps.distinct(&["{}/ids"], 4).concat();
        let lines = [steps.lines.clone(), steps.chunks(steps.total(), &frames)].concat();
        steps.publish(publish, &lines)
    };
    let carried = |begin: &str, publish: &str| {
        let built = build(begin, publish, false);
        assert_eq!(built.status, Some(0), "{}", built.stderr);
        let carried = &serde_json::from_str::<Value>(&built.stdout).unwrap()["carried"];
        let numbers = ["added", "removed", "dropped", "returned"]
            .map(|name| carried[name].as_u64().expect("a number"));
        let warns = built.stderr.contains("warning: a: the input lacks ");
        assert_eq!(warns, numbers[2..] != [0, 0], "{}", built.stderr);
        (numbers, carried["kept"] == true)
    };
    assert_eq!(carried("", ""), ([0; 4], false));
    sandbox
        .run("append --store {}/s --audience a --json {}/new")
        .json();
    sandbox
        .run("remove --store {}/s --audience a --json {}/gone")
        .json();
    assert_eq!(carried("", ""), ([0; 4], false), "deltas apply once");

    let error = "expected at most --max-carried-loss 99 undone, found 100 additions and 50 \
                 removals of 150";
    build("", "--max-carried-loss 99", false).fails(3, error);
    let unread = "read 0 keys that earlier deltas added: expected 100";
    build("", "", true).fails(3, unread);
    for _ in 0..2 {
        assert_eq!(
            carried("--keep-carried", "--max-carried-loss 0"),
            ([100, 50, 0, 0], true)
        );
    }
    let members = |file: &str| {
        let verified = sandbox.run(&format!(
            "verify --store {{}}/s --audience a --json --probes 1 --against {{}}/{file}"
        ));
        verified.status == Some(0)
    };
    assert!(members("new") && !members("gone"));
    // A build on one machine reads the same changes.
    let one = sandbox.run("build --store {}/s --audience a --json --dry-run {}/ids");
    let counts = r#""carried":{"added":100,"removed":50,"dropped":100,"returned":50,"kept":false}"#;
    assert!(one.stdout.contains(counts), "{}", one.stdout);
    let flags = "--max-carried-loss 100%";
    assert_eq!(carried("", flags), ([100, 50, 100, 50], false));
    assert!(!members("new") && members("gone"));
}

/// Otherwise the manifest would list the deltas as merged, and `CURRENT` would drop them.
#[test]
fn unread_changes_are_detected() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..2000)));
    sandbox.file("added", lines(&ids(IdKind::Md5, 5000..5007)));
    sandbox.file("gone", lines(&ids(IdKind::Md5, 0..5)));
    sandbox.build("{}/ids");
    sandbox
        .run("append --store {}/s --audience a --json {}/added")
        .json();
    sandbox
        .run("remove --store {}/s --audience a --json {}/gone")
        .json();
    for (given, message) in [
        ("none", "read 0 keys that deltas added: expected 7"),
        ("added", "read 0 keys that deltas removed: expected 5"),
        ("all", ""),
    ] {
        let mut steps = Steps::begin(&sandbox);
        let mut changes = &steps.changes[..];
        let (mut kept, added) = (Vec::new(), 1);
        while let [_, _, what, _, count, _, _, _, ..] = changes {
            let (frame, rest) = changes.split_at(8 + 16 * usize::from(*count));
            if given == "all" || (given == "added" && *what == added) {
                kept.extend_from_slice(frame);
            }
            changes = rest;
        }
        // Repeated frames have no effect.
        steps.changes = kept.repeat(2);
        let frames = steps.distinct(&["{}/ids"], 2).concat();
        let lines = [steps.lines.clone(), steps.chunks(steps.total(), &frames)].concat();
        let outcome = steps.publish("", &lines);
        match message {
            "" => assert_eq!(outcome.json()["keys"], 2002),
            message => drop(outcome.fails(3, message)),
        }
    }
}
