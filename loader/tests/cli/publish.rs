//! Guarantees of a publish: reproducible chunks, atomicity, and one winner of concurrent builds.

use std::io::Write;
use std::process::Command;

use rtad_core::device::IdKind;
use testkit::process::{Outcome, outcome, run, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::store::{Files, files};
use testkit::wait_until;

use crate::support::LOADER;

#[test]
fn dry_run_writes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..1000)));
    let built = sandbox.build("--dry-run {}/ids");
    assert_eq!(
        (&built["keys"], &built["generation"]),
        (&1000.into(), &serde_json::Value::Null)
    );
    assert!(!sandbox.path().join("s").exists());
    sandbox.build("{}/ids");
    let before = sandbox.store();
    let text = sandbox.run("build --store {}/s --audience a --dry-run {}/ids");
    assert_eq!((text.status, text.stderr.as_str()), (Some(0), ""));
    assert!(
        text.stdout.starts_with("dry run of a: nothing was written"),
        "{text:?}"
    );
    assert_eq!(sandbox.store(), before);
    let quiet = sandbox.run("build --store {}/s --audience a --quiet {}/ids");
    assert_eq!(
        (quiet.status, quiet.stdout.as_str(), quiet.stderr.as_str()),
        (Some(0), "", "")
    );
}

#[test]
fn rollback_keeps_generation_numbers_increasing() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..4);
    for (n, id) in all.iter().take(3).enumerate() {
        sandbox.file("ids", format!("{id}\n"));
        let built = sandbox.build("--max-change any {}/ids");
        assert_eq!(built["generation"], n + 1);
    }
    let answers = || {
        sandbox
            .run(&format!(
                "query --store {{}}/s --audience a --json {}",
                all.join(" ")
            ))
            .json()
    };
    assert_eq!(
        answers()["answers"],
        serde_json::json!(["not_member", "not_member", "member", "not_member"])
    );

    let back = sandbox
        .run("rollback --store {}/s --audience a --json")
        .json();
    assert_eq!(
        (&back["generation"], &back["previous_generation"]),
        (&2.into(), &3.into())
    );
    assert_eq!(answers()["answers"][1], "member");
    let back = sandbox.run("rollback --store {}/s --audience a --to 1");
    assert_eq!(
        back.stdout.lines().next(),
        Some("a: generation 1 is live, replacing 2")
    );
    assert_eq!(answers()["answers"][0], "member");
    let before = sandbox.store();
    sandbox
        .run("rollback --store {}/s --audience a")
        .fails(2, "generation 3 was rolled back before");
    sandbox
        .run("rollback --store {}/s --audience a --to 1")
        .fails(2, "audience a: generation 1 is already live");
    sandbox
        .run("rollback --store {}/s --audience a --to 9")
        .fails(5, "audience a: generation 9 is not kept; kept are 1, 2, 3");
    sandbox
        .run("rollback --store {}/s --audience b")
        .fails(5, "audience b: no generation is published");
    assert_eq!(sandbox.store(), before);

    sandbox.file("ids", format!("{}\n", all[3]));
    assert_eq!(
        sandbox.build("--max-change any {}/ids")["generation"],
        4,
        "above all earlier generations"
    );
    let list = sandbox.run("list --store {}/s --json").json();
    let live: Vec<_> = list["audiences"][0]["generations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| {
            (
                g["generation"].as_u64().unwrap(),
                g["live"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(live, [(1, false), (2, false), (3, false), (4, true)]);
}

/// The base is read before the input, so a publish during the read always fails the build.
#[test]
fn publish_during_a_build_fails_the_build() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2);
    sandbox.file("ids", format!("{}\n", all[0]));
    sandbox.build("{}/ids");
    let mut slow = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --max-change any --rejects {}/r -",
    ));
    // The rejects file is made after the base was read.
    wait_until("the base is read", || sandbox.path().join("r").exists());
    sandbox.build("{}/ids");
    let before = sandbox.store();
    let mut pipe = slow.stdin.take().unwrap();
    pipe.write_all(all[1].as_bytes()).unwrap();
    drop(pipe);
    outcome(slow).fails(
        6,
        "generation 2 was published since this work began at generation 1",
    );
    assert_eq!(sandbox.store(), before);
}

/// A gc drops generations besides the live one, which is no publish.
#[test]
fn gc_runs_during_a_build() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..3);
    for id in &all[..2] {
        sandbox.file("ids", format!("{id}\n"));
        sandbox.build("--max-change any {}/ids");
    }
    let mut slow = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a --max-change any --json --rejects {}/r -",
    ));
    wait_until("the base is read", || sandbox.path().join("r").exists());
    for flags in ["", "--keep 1 --min-age 0s"] {
        sandbox
            .run(&format!("gc --store {{}}/s --audience a {flags}"))
            .succeeds();
    }
    let mut pipe = slow.stdin.take().unwrap();
    pipe.write_all(all[2].as_bytes()).unwrap();
    drop(pipe);
    assert_eq!(outcome(slow).json()["generation"], 3);

    let back = "rollback --store {}/s --audience a";
    sandbox
        .run(&format!("{back} --to 1"))
        .fails(5, "audience a: generation 1 is not kept; kept are 2, 3");
    sandbox.run(back).succeeds();
    sandbox
        .run("verify --store {}/s --audience a --against {}/ids --probes 1000")
        .succeeds();
}

#[test]
fn build_killed_while_reading_changes_nothing() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..100_000));
    sandbox.file("ids", &text);
    sandbox.build("{}/ids");
    let before = sandbox.store();
    let mut child = spawn(&mut command(
        sandbox.path(),
        "build --store {}/s --audience a -",
    ));
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sandbox.store(), before);
}

/// A file-size limit stands in for a full disk: the write fails in the middle of a chunk.
#[test]
fn full_disk_is_reported_and_keeps_the_old_generation() {
    let sandbox = Sandbox::new();
    sandbox.file("old", lines(&ids(IdKind::Md5, 0..1000)));
    sandbox.file("new", lines(&ids(IdKind::Md5, 0..200_000)));
    sandbox
        .run("build --store {}/s --audience a {}/old --json")
        .json();
    let before = files(&sandbox.path().join("s"));
    let build = format!(
        "trap '' XFSZ; ulimit -f 40; exec {} build --store {dir}/s --audience a {dir}/new",
        LOADER,
        dir = sandbox.path().display()
    );
    let Outcome { status, stderr, .. } = run(Command::new("sh").args(["-c", &build]), b"");
    assert_eq!(status, Some(5), "{stderr}");
    assert!(
        stderr.starts_with("error: could not write a/chunks/") && stderr.contains("File too large"),
        "{stderr}"
    );
    let names = |files: &Files| {
        files
            .keys()
            .filter(|name| !name.contains("chunks/"))
            .cloned()
            .collect::<Vec<_>>()
    };
    let after = files(&sandbox.path().join("s"));
    assert_eq!(
        names(&after),
        names(&before),
        "no manifest, and the same record"
    );
    sandbox
        .run("verify --store {}/s --audience a --against {}/old --probes 1000 --json")
        .json();
    sandbox
        .run("build --store {}/s --audience a {}/new --json")
        .json();
    sandbox
        .run("gc --store {}/s --audience a --min-age 0s")
        .succeeds();
    let swept = files(&sandbox.path().join("s"));
    assert!(
        swept.keys().all(|name| !name.contains('#')),
        "partial files are removed"
    );
}

#[test]
fn labels_and_inputs_are_in_the_manifest() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..30);
    sandbox.file("one", lines(&all[..20]));
    sandbox.file("two", lines(&all[10..]) + "\n");
    let build = "build --store {}/s --audience a";
    sandbox
        .run(&format!("{build} --require-live {{}}/one"))
        .fails(5, "check the path and the mount");
    let text = sandbox
        .run(&format!(
            "{build} --label dt=2026-11-24 --label job=nightly {{}}/one {{}}/two"
        ))
        .stdout;
    assert!(
        text.contains("; no generation of this audience was live in this store\n"),
        "{text}"
    );
    assert!(text.contains("  dt=2026-11-24 job=nightly\n"), "{text}");
    let row = text.lines().find(|line| line.contains("/two")).unwrap();
    let cells: Vec<_> = row.split_whitespace().skip(1).collect();
    assert_eq!(cells, ["661", "B", "21", "20", "1", "0"]);
    let inspected = sandbox
        .run("inspect --store {}/s --audience a --json")
        .json();
    assert_eq!(inspected["labels"]["dt"], "2026-11-24");
    let input = &inspected["inputs"][1];
    assert!(input["name"].as_str().unwrap().ends_with("/two"), "{input}");
    let counts = ["size_bytes", "rows", "usable", "blank", "malformed"].map(|name| &input[name]);
    assert_eq!(counts, [661, 21, 20, 1, 0]);
    assert!(
        inspected["created"].as_str().unwrap().ends_with('Z'),
        "{inspected}"
    );
    let again = sandbox
        .run(&format!("{build} --require-live --json {{}}/one {{}}/two"))
        .json();
    assert_eq!(
        (&again["generation"], &again["labels"]),
        (&2.into(), &serde_json::Value::Null)
    );
    for label in ["x", "=1", "a/b=1"] {
        assert_eq!(
            sandbox
                .run(&format!("{build} --label {label} {{}}/one"))
                .status,
            Some(2)
        );
    }
}

#[test]
fn ids_that_are_no_hashes_are_named() {
    let sandbox = Sandbox::new();
    let counters: Vec<_> = (1..2000)
        .map(|number| format!("018f3a1b{number:024x}"))
        .collect();
    sandbox.file("counters", lines(&counters));
    let built = sandbox.run("build --store {}/s --audience a --json {}/counters");
    let report = built.json_with_warning("a chunk has 65536.0 times its share of the keys");
    assert_eq!(
        (&report["skewed"], &report["largest_share"]),
        (&true.into(), &65536.0.into())
    );
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..2000)));
    let hashes = sandbox.build("--max-change any {}/ids");
    assert_eq!(hashes["skewed"], false);
    assert!(hashes["largest_share"].as_f64().unwrap() < 1.5);
}
