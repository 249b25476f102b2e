//! Build on Spark: `publish` and `chunk` give the same filters as `build`, allow retries, and
//! reject reports that do not add up.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout};

use rtad_core::device::{DeviceKey, IdKind, KeyMaker};
use serde_json::{Value, json};
use testkit::process::{Outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::store::files;

use crate::support::chunks;

/// A running `publish`.
struct Driver<'a> {
    sandbox: &'a Sandbox,
    child: Child,
    stdout: BufReader<ChildStdout>,
    job: String,
}

impl<'a> Driver<'a> {
    #[track_caller]
    fn begin(sandbox: &'a Sandbox, flags: &str) -> Self {
        let publish = format!("publish --store {{}}/s --audience a --json {flags}");
        let mut child = spawn(&mut command(sandbox.path(), &publish));
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut job = String::new();
        stdout.read_line(&mut job).unwrap();
        assert!(job.starts_with('{'), "{job}");
        Self {
            sandbox,
            child,
            stdout,
            job,
        }
    }

    /// Runs a task over sorted keys of its part.
    fn chunk(&self, part: &str, keys: &[u8]) -> Outcome {
        self.chunk_of(&self.job, part, keys)
    }

    fn chunk_of(&self, job: &str, part: &str, keys: &[u8]) -> Outcome {
        let chunk = format!("chunk --store {{}}/s --part {part}");
        let mut command = command(self.sandbox.path(), &chunk);
        let mut child = spawn(command.args(["--job", job]));
        let mut stdin = child.stdin.take().unwrap();
        let keys = keys.to_vec();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&keys)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Outcome {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The reports of all parts of these keys.
    #[track_caller]
    fn chunks(&self, keys: &[DeviceKey], parts: u32) -> Vec<String> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        let mut lines = Vec::new();
        for part in 0..parts {
            let shards = 65_536 / parts;
            let keys = sorted
                .iter()
                .filter(|key| u32::from(key.shard()) / shards == part);
            let bytes: Vec<u8> = keys.flat_map(|key| *key.as_bytes()).collect();
            let done = self.chunk(&format!("{part}/{parts}"), &bytes);
            assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
            lines.push(done.stdout);
        }
        lines
    }

    fn publish(mut self, lines: &[String]) -> Outcome {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(lines.join("\n").as_bytes()).unwrap();
        drop(stdin);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut stderr).unwrap();
        Outcome {
            status: self.child.wait().unwrap().code(),
            stdout,
            stderr,
        }
    }
}

fn keys(kind: IdKind, ids: &[String]) -> Vec<DeviceKey> {
    // Milliseconds: it hashes every blank id.
    let maker = KeyMaker::default();
    let mut keys = Vec::new();
    for id in ids {
        // Ids without a key are left out.
        let case = kind.canonical_case();
        let _ = maker.keys(kind, case, id.as_bytes(), &mut keys);
    }
    keys
}

/// The report of a task that made keys of one column of a file.
fn made(rows: usize, usable: usize, malformed: usize) -> String {
    made_of("f", rows, usable, malformed)
}

fn made_of(input: &str, rows: usize, usable: usize, malformed: usize) -> String {
    let blank = rows - usable - malformed;
    let column = json!({
        "name": "id", "kinds": "md5", "usable": usable, "blank": blank, "malformed": malformed
    });
    json!({ "what": "keys", "input": input, "rows": rows, "columns": [column] }).to_string()
}

fn with(made: String, chunks: &[String]) -> Vec<String> {
    [&[made], chunks].concat()
}

fn chunks_of(sandbox: &Sandbox) -> BTreeMap<String, Vec<u8>> {
    let files = files(&sandbox.path().join("s"));
    chunks(&files)
        .into_iter()
        .map(|name| (name.clone(), files[name].clone()))
        .collect()
}

/// Duplicates, blank and malformed ids, over a generation with deltas and tombstones.
#[test]
fn chunks_equal_those_of_a_build() {
    for filter in ["block512", "ribbon"] {
        check_chunks_equal_those_of_a_build(filter);
    }
}

fn check_chunks_equal_those_of_a_build(filter: &str) {
    let all = ids(IdKind::Md5, 0..4000);
    let more = ids(IdKind::Md5, 5000..5300);
    let (built, stepped) = (Sandbox::new(), Sandbox::new());
    for sandbox in [&built, &stepped] {
        sandbox.file("first", lines(&ids(IdKind::Md5, 9000..9500)));
        sandbox.file("added", lines(&more));
        sandbox.file("gone", lines(&all[500..900]));
        sandbox.file("erased", lines(&all[900..1000]));
        sandbox.build("{}/first");
        for change in [
            "append {}/added",
            "remove {}/gone",
            "remove --tombstone {}/erased",
        ] {
            let (name, rest) = change.split_once(' ').unwrap();
            let change = format!("{name} --store {{}}/s --audience a --json {rest}");
            sandbox.run(&change).json();
        }
    }
    let repeated = [&all[..], &all[..500]].concat();
    built.file("ids", lines(&repeated) + &"nonsense\n".repeat(40) + "\n");
    let flags = format!("--filter {filter} --max-reject-ratio 0.1 --max-change any --label a=1");
    let expected = built.build(&format!("{flags} {{}}/ids"));

    let driver = Driver::begin(&stepped, &flags);
    // Later deltas apply to the new generation.
    stepped.file("late", lines(&ids(IdKind::Md5, 9990..9995)));
    stepped
        .run("append --store {}/s --audience a --json {}/late")
        .json();
    let repeated = keys(IdKind::Md5, &repeated);
    // A task that ran before and whose report was lost.
    driver.chunks(&repeated[..100], 1);
    let chunks = driver.chunks(&repeated, 4);
    let published = driver.publish(&with(made(4541, 4500, 40), &chunks)).json();

    let (found, expected_chunks) = (chunks_of(&stepped), chunks_of(&built));
    for (name, chunk) in expected_chunks {
        assert_eq!(found.get(&name), Some(&chunk), "{name}");
    }
    for field in [
        "generation",
        "keys",
        "rows",
        "values",
        "duplicates",
        "blank",
        "expected_fpr",
        "size_bytes",
        "chunks",
        "overlap",
        "largest_share",
        "skewed",
        "labels",
    ] {
        assert_eq!(published[field], expected[field], "{field}");
    }
    assert_eq!(published["removed"], expected["deltas"]["removed"]);
    assert_eq!(published["malformed"], 40);
    let manifest = |sandbox: &Sandbox| {
        let inspect = "inspect --store {}/s --audience a --json";
        sandbox.run(inspect).json()
    };
    let (one, other) = (manifest(&built), manifest(&stepped));
    for field in ["chunks", "build", "folded", "survey", "keys"] {
        assert_eq!(one[field], other[field], "{field}");
    }
    let listed = stepped.run("list --store {}/s --json").json();
    assert_eq!(listed["audiences"][0]["over"]["added"], 5);
}

#[test]
fn carried_changes_are_counted_and_kept() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2100);
    sandbox.file("new", lines(&all[2000..]));
    sandbox.file("gone", lines(&all[..50]));
    let old = keys(IdKind::Md5, &all[..2000]);
    let build = |flags: &str| {
        let driver = Driver::begin(&sandbox, flags);
        let chunks = driver.chunks(&old, 4);
        driver.publish(&with(made(2000, 2000, 0), &chunks))
    };
    let carried = |flags: &str| {
        let built = build(flags);
        assert_eq!(built.status, Some(0), "{}", built.stderr);
        let carried = &serde_json::from_str::<Value>(&built.stdout).unwrap()["carried"];
        let numbers = ["added", "removed", "dropped", "returned"]
            .map(|name| carried[name].as_u64().expect("a number"));
        let warns = built.stderr.contains("warning: a: the input lacks ");
        assert_eq!(warns, numbers[2..] != [0, 0], "{}", built.stderr);
        (numbers, carried["kept"] == true)
    };
    assert_eq!(carried(""), ([0; 4], false));
    for change in ["append", "remove"] {
        let file = if change == "append" { "new" } else { "gone" };
        let change = format!("{change} --store {{}}/s --audience a --json {{}}/{file}");
        sandbox.run(&change).json();
    }
    assert_eq!(carried(""), ([0; 4], false), "deltas apply once");

    assert_eq!(carried("--keep-carried"), ([100, 50, 0, 0], true));
    assert_eq!(carried("--keep-carried"), ([100, 50, 0, 0], true));
    assert_eq!(carried(""), ([100, 50, 100, 50], false));
}

#[test]
fn inconsistent_reports_are_not_published() {
    let sandbox = Sandbox::new();
    let all = keys(IdKind::Md5, &ids(IdKind::Md5, 0..2000));
    let begin = |flags: &str| Driver::begin(&sandbox, flags);
    let counts = || made(2000, 2000, 0);
    let chunks = begin("").chunks(&all, 4);

    let without_last = with(counts(), &chunks[..3]);
    begin("")
        .publish(&without_last)
        .fails(3, "part 3 of 4: its chunks are not reported");
    begin("")
        .publish(&[])
        .fails(3, "part 0 of 1: its chunks are not reported");
    let twice = [&chunks[..], &chunks[1..2]].concat();
    begin("")
        .publish(&with(counts(), &twice))
        .fails(3, "part 1 of 4 is reported twice");
    let other = begin("").chunks(&all, 2);
    begin("")
        .publish(&with(counts(), &[&chunks[..3], &other[1..]].concat()))
        .fails(3, "part 1 of 2: expected 4 parts");
    begin("")
        .publish(&chunks)
        .fails(3, "read 2000 keys: expected 0");
    begin("")
        .publish(&with(made(2001, 2001, 0), &chunks))
        .fails(3, "read 2000 keys: expected 2001");
    begin("")
        .publish(&with("{}".into(), &chunks))
        .fails(3, "stdin, line 1: expected a report");
    begin("")
        .publish(&with(made(2100, 2000, 100), &chunks))
        .fails(3, "--max-reject-ratio");
    let none = begin("").chunks(&[], 1);
    begin("")
        .publish(&with(made(5, 0, 0), &none))
        .fails(3, "5 rows");
    let require_live = "publish --store {}/s --audience a --require-live";
    sandbox
        .run(require_live)
        .fails(5, "audience a: no generation is published");

    let line: Value = serde_json::from_str(&chunks[3]).unwrap();
    let digest = line["chunks"][0]["record"]["entry"]["digest"].as_str();
    let gone = format!("s/a/chunks/{}.chunk", digest.unwrap());
    let gone = sandbox.path().join(gone);
    std::fs::remove_file(&gone).unwrap();
    begin("")
        .publish(&with(counts(), &chunks))
        .fails(5, "1 of 16 chunks are missing from the store");
    assert!(!sandbox.path().join("s/a/records").exists());

    // A repeated task stores it again. The second of two builds at once fails.
    let (first, second) = (begin("--expires 1h"), begin(""));
    assert_eq!(first.chunks(&all, 4).len(), 4);
    let published = first.publish(&with(counts(), &chunks)).json();
    assert_eq!(published["generation"], 1);
    second.publish(&with(counts(), &chunks)).fails(
        6,
        "generation 1 was published since this work began at generation 0",
    );

    // The gate is the same as for `build`.
    let halved = begin("");
    let half = halved.chunks(&all[..900], 2);
    halved
        .publish(&with(made(900, 900, 0), &half))
        .fails(3, "expected at least 1800 by --max-change 0.2");
    let others = keys(IdKind::Md5, &ids(IdKind::Md5, 7000..9000));
    let replaced = begin("");
    let chunks = replaced.chunks(&others, 2);
    replaced.publish(&with(counts(), &chunks)).fails(
        3,
        "overlap: expected at least 0.800 of the devices of live generation 1",
    );
}

/// As those of a build: a few malformed values of one of several files may be chance.
#[test]
fn limits_are_of_each_file_and_of_each_column() {
    let sandbox = Sandbox::new();
    let all = keys(IdKind::Md5, &ids(IdKind::Md5, 0..2000));
    let none: [DeviceKey; 0] = [];
    let check = |made: &[String], keys: &[DeviceKey], error: &str| {
        let driver = Driver::begin(&sandbox, "--allow-empty --max-change any");
        let chunks = driver.chunks(keys, 1);
        let published = driver.publish(&[made, &chunks].concat());
        if error.is_empty() {
            published.json();
        } else {
            published.fails(3, error);
        }
    };

    let most = made_of("most", 1950, 1950, 0);
    let few = made_of("few", 60, 50, 9);
    check(&[most.clone(), few.clone()], &all, "");
    // Two tasks of one file.
    let more = made_of("few", 2, 0, 2);
    check(
        &[few, more, most.clone()],
        &all,
        "input few: 11 of 61 values are malformed: expected at most --max-reject-ratio 0.01; \
         `rtad-loader build --dry-run --rejects FILE` keeps them",
    );
    let unusable = made_of("other", 1, 0, 1);
    check(
        &[most.clone(), unusable],
        &all[..1950],
        "input other: no usable id in 1 rows",
    );
    let blank = made_of("blank", 100, 0, 0);
    check(&[most, blank], &all[..1950], "");
    check(&[made_of("a", 5, 0, 0)], &none, "");
    let parts: Vec<_> = (0..5)
        .map(|n| made_of(&format!("{n}"), 400, 391, 9))
        .collect();
    check(
        &parts,
        &all[..1955],
        "all inputs: 45 of 2,000 values are malformed",
    );

    let columns = json!([
        { "name": "device.oaid", "kinds": "oaid", "usable": 1000, "blank": 0, "malformed": 0 },
        { "name": "imei", "kinds": "imei", "usable": 985, "blank": 0, "malformed": 15 },
    ]);
    let made = json!({ "what": "keys", "input": "f", "rows": 1000, "columns": columns });
    check(
        &[made.to_string()],
        &all[..1985],
        "column imei of input f: 15 of 1,000 values are malformed",
    );
}

/// Otherwise the manifest would list the deltas as merged, and the record would drop them.
#[test]
fn tasks_over_other_deltas_are_detected() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    sandbox.file("ids", lines(&all));
    sandbox.file("added", lines(&ids(IdKind::Md5, 5000..5007)));
    sandbox.build("{}/ids");
    sandbox
        .run("append --store {}/s --audience a --json {}/added")
        .json();
    let mut driver = Driver::begin(&sandbox, "");
    let job = driver.job.clone();
    let mut other: Value = serde_json::from_str(&job).unwrap();
    other["current"].as_object_mut().unwrap().remove("deltas");
    driver.job = other.to_string();
    let chunks = driver.chunks(&keys(IdKind::Md5, &all), 2);
    driver
        .publish(&with(made(2000, 2000, 0), &chunks))
        .fails(3, "read 0 keys that deltas added: expected 7");
}

#[test]
fn invalid_tasks_are_refused() {
    let sandbox = Sandbox::new();
    let mut sorted = keys(IdKind::Md5, &ids(IdKind::Md5, 0..2000));
    sorted.sort_unstable();
    let bytes: Vec<u8> = sorted.iter().flat_map(|key| *key.as_bytes()).collect();
    let driver = Driver::begin(&sandbox, "");

    let reversed: Vec<u8> = sorted
        .iter()
        .rev()
        .flat_map(|key| *key.as_bytes())
        .collect();
    driver
        .chunk("0/1", &reversed)
        .fails(3, "key 2 is smaller than the one before");
    driver
        .chunk("0/1", &bytes[..39])
        .fails(3, "key 3 is cut: expected 16 bytes");
    driver.chunk("1/2", &bytes).fails(3, "is outside of --part");
    assert_eq!(driver.chunk("1/3", b"").status, Some(2));
    let job = driver.job.replace("\"version\":\"", "\"version\":\"0.0.");
    let other = driver.chunk_of(&job, "0/1", &bytes);
    assert!(
        other.status == Some(2) && other.stderr.contains("install the same rtad-loader"),
        "{other:?}"
    );
    assert_eq!(driver.chunk_of("{}", "0/1", &bytes).status, Some(2));
}
