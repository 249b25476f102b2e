//! Commands on every kind of store: a directory, or a bucket if the `stores` suite has started a
//! server, and reads over plain HTTP.

use std::process::Child;
use std::time::Instant;

use rtad_core::device::IdKind;
use testkit::process::{Outcome, spawn};
use testkit::sandbox::{Sandbox, command, directory_or_bucket, ids, lines};
use testkit::server::FileServer;

/// A folder for inputs, and the URL of a store.
struct TestStore {
    sandbox: Sandbox,
    store: String,
}

impl TestStore {
    fn new(part: &str) -> Self {
        let (sandbox, store) = directory_or_bucket(&format!("loader-{part}"));
        Self { sandbox, store }
    }

    fn directory() -> Self {
        let sandbox = Sandbox::new();
        let store = sandbox.store_path();
        Self { sandbox, store }
    }

    fn run(&self, command: &str, arguments: &str) -> Outcome {
        self.sandbox
            .run(&format!("{command} --store {} {arguments}", self.store))
    }

    fn start(&self, arguments: &str) -> Child {
        let arguments = format!(
            "build --store {} --audience a --json {arguments}",
            self.store
        );
        spawn(&mut command(self.sandbox.path(), &arguments))
    }

    /// Builds these ids as the next generation.
    #[track_caller]
    fn build(&self, ids: &[String]) -> serde_json::Value {
        self.sandbox.file("ids", lines(ids));
        self.run("build", "--audience a --json --max-change any {}/ids")
            .json()
    }

    /// Verifies the live generation against these ids; returns its number.
    #[track_caller]
    fn verified(&self, ids: &[String]) -> u64 {
        self.sandbox.file("expected", lines(ids));
        let verified = self
            .run(
                "verify",
                "--audience a --json --probes 1000 --against {}/expected",
            )
            .json();
        assert_eq!(verified["keys"], ids.len());
        verified["generation"].as_u64().expect("a number")
    }
}

#[test]
fn every_command_works_in_every_store() {
    let target = TestStore::new("every");
    let all = ids(IdKind::Md5, 0..3000);
    for (generation, count) in [(1, 1000), (2, 3000), (3, 2000), (4, 2001)] {
        let built = target.build(&all[..count]);
        assert_eq!(built["generation"], generation);
    }
    assert_eq!(
        target.build(&all[..2001])["chunks_written"],
        0,
        "equal keys give equal chunks"
    );
    assert_eq!(target.verified(&all[..2001]), 5);

    let list = target.run("list", "--json").json();
    assert_eq!(list["audiences"][0]["live_generation"], 5);
    assert_eq!(
        list["audiences"][0]["generations"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    let inspected = target
        .run("inspect", "--audience a --generation 2 --json")
        .json();
    assert_eq!(inspected["keys"], 3000);
    let query = format!("--audience a --json {} {}", all[2000], all[2999]);
    assert_eq!(
        target.run("query", &query).json()["answers"],
        serde_json::json!(["member", "not_member"])
    );

    // One more key changes one chunk.
    let diff = target.run("diff", "--audience a 3 4 --json").json();
    let part = |name: &str| {
        (
            diff[name]["chunks"].as_u64().unwrap(),
            diff[name]["size_bytes"].as_u64().unwrap(),
        )
    };
    assert_eq!(
        (
            &diff["keys_difference"],
            part("added").0,
            part("removed").0,
            part("unchanged").0
        ),
        (&1.into(), 1, 1, 15)
    );
    assert!(diff["fetch_bytes"].as_u64().unwrap() > part("added").1);
    assert_eq!(
        diff["to"]["size_bytes"],
        part("added").1 + part("unchanged").1
    );
    assert_eq!(
        diff["from"]["size_bytes"],
        part("removed").1 + part("unchanged").1
    );
    let text = target.run("diff", "--audience a 2 1").stdout;
    assert!(
        text.starts_with("a from generation 2 to 1\n") && text.contains("  -2,000\n"),
        "{text}"
    );
    target
        .run("diff", "--audience a 1 9")
        .fails(5, "generation 9 is not kept; kept are 1, 2, 3, 4, 5");

    assert_eq!(
        target.run("rollback", "--audience a --to 2 --json").json()["generation"],
        2
    );
    assert_eq!(target.verified(&all), 2);
    assert_eq!(
        target.run("rollback", "--audience a --to 5 --json").json()["generation"],
        5
    );

    // gc: a dry run, then nothing because all files are young, then a removal.
    let dry = target
        .run("gc", "--audience a --keep 2 --min-age 0s --dry-run --json")
        .json();
    assert_eq!(
        (&dry["dry_run"], &dry["removed_generations"]),
        (&true.into(), &serde_json::json!([1, 2, 3]))
    );
    assert_eq!(
        target.run("gc", "--audience a --json").json()["removed_generations"],
        serde_json::json!([])
    );
    let list = target.run("list", "--json").json();
    assert_eq!(
        list["audiences"][0]["generations"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    let done = target
        .run("gc", "--audience a --keep 2 --min-age 0s --json")
        .json();
    for field in [
        "kept_generations",
        "removed_generations",
        "removed_manifests",
        "removed_chunks",
        "removed_bytes",
    ] {
        assert_eq!(done[field], dry[field], "{field}");
    }
    assert_eq!(target.verified(&all[..2001]), 5);
    target
        .run("rollback", "--audience a --to 2")
        .fails(5, "generation 2 is not kept; kept are 4, 5");
    let text = target.run("gc", "--audience a --min-age 0s");
    assert_eq!(text.stdout.lines().next(), Some("a: 0 generations removed"));

    for command in ["list", "inspect", "verify", "rollback", "gc"] {
        target
            .run(command, "--audience none")
            .fails(5, "audience none: no generation is published");
    }
    assert_eq!(target.run("gc", "--audience a --keep 0").status, Some(2));
    assert_eq!(
        target.run("gc", "--audience a --min-age soon").status,
        Some(2)
    );
}

/// A chunk is not an id export, but its lines can be counted.
#[test]
fn object_is_an_input_in_every_store() {
    let target = TestStore::new("input");
    target.build(&ids(IdKind::Md5, 0..1000));
    let dry = "--audience b --dry-run --allow-empty --max-reject-ratio 1 --json";
    let read = |file: &str| target.run("build", &format!("{dry} {}/a/{file}", target.store));
    assert_eq!(read("LATEST").json()["rows"], 1);
    let is_remote = target.store.contains("://");
    read("NOTHING").fails(
        if is_remote { 5 } else { 3 },
        if is_remote {
            "does not exist"
        } else {
            "no such file"
        },
    );
}

/// `kill -9` at many moments of a build and of a gc: the live generation is the old or the new one,
/// and intact.
#[test]
fn killed_build_or_gc_leaves_an_intact_generation() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..60_000);
    let started = Instant::now();
    target.build(&all[..30_000]);
    let mut whole = started.elapsed();
    let (mut live, mut count, mut killed) = (1, 30_000, 0);
    for step in 0..12_usize {
        let next = 30_000 + 1000 * (step + 1);
        target.sandbox.file("next", lines(&all[..next]));
        let mut child = target.start("{}/next");
        std::thread::sleep(whole * (step as u32 * 7 % 12) / 12);
        let _ = child.kill();
        if child.wait().unwrap().success() {
            // The first build may have been slower, as on a busy machine.
            whole = whole * 3 / 4;
        } else {
            killed += 1;
        }
        let list = target.run("list", "--audience a --json").json();
        let now = list["audiences"][0]["live_generation"].as_u64().unwrap();
        if now != live {
            assert!(now > live);
            (live, count) = (now, next);
        }
        assert_eq!(target.verified(&all[..count]), live, "step {step}");
    }
    assert!(killed > 2, "{killed} were killed");

    let started = Instant::now();
    target
        .run("gc", "--audience a --min-age 0s --dry-run")
        .stdout
        .lines()
        .next()
        .unwrap();
    let whole = started.elapsed() * 2;
    for step in 0..6_u32 {
        // Files to remove each time, independent of what a killed gc left.
        let ids = &all[4000 * step as usize..][..4000];
        target.build(&ids[2000..]);
        live = target.build(&ids[..2000])["generation"].as_u64().unwrap();
        let arguments = format!(
            "gc --store {} --audience a --keep 1 --min-age 0s",
            target.store
        );
        let mut child = spawn(&mut command(target.sandbox.path(), &arguments));
        std::thread::sleep(whole * step / 6);
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(target.verified(&ids[..2000]), live);
    }
    // The next gc removes its leftovers.
    target
        .run("gc", "--audience a --keep 1 --min-age 0s --json")
        .json();
    let list = target.run("list", "--audience a --json").json();
    assert_eq!(
        list["audiences"][0]["generations"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let again = target
        .run("gc", "--audience a --keep 1 --min-age 0s --json")
        .json();
    assert_eq!(
        (&again["removed_chunks"], &again["young_chunks"]),
        (&0.into(), &0.into())
    );
    assert_eq!(target.verified(&all[20_000..22_000]), live);
}

#[test]
fn http_store_is_read_only_and_lists_no_audiences() {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    for count in [1000, 2000] {
        sandbox.file("ids", lines(&all[..count]));
        sandbox.build("{}/ids");
    }
    let before = sandbox.store();
    let web = FileServer::serve(&sandbox.path().join("s"));
    let run = |command: &str, arguments: &str| {
        sandbox.run(&format!(
            "{command} --store {} --audience a {arguments}",
            web.url()
        ))
    };
    assert_eq!(run("inspect", "--json").json()["keys"], 2000);
    assert_eq!(run("inspect", "--generation 1 --json").json()["keys"], 1000);
    assert_eq!(
        run("verify", "--probes 1000 --json --against {}/ids").json()["generation"],
        2
    );
    assert_eq!(
        run("query", &format!("--json {}", all[1999])).json()["answers"][0],
        "member"
    );
    assert_eq!(run("diff", "1 2 --json").json()["keys_difference"], 1000);
    let listed = run("list", "--json").json();
    let generations = listed["audiences"][0]["generations"].as_array().unwrap();
    let keys: Vec<_> = generations.iter().map(|found| &found["keys"]).collect();
    assert_eq!(keys, [1000, 2000]);
    run("rollback", "").fails(
        2,
        "is read-only: nothing can be published or removed over plain HTTP",
    );
    run("gc", "").fails(2, "is read-only");
    run("build", "{}/ids").fails(2, "is read-only");
    run("inspect", "--generation 7").fails(5, "generation 7 is not kept; kept are 1, 2");
    sandbox
        .run(&format!("list --store {}", web.url()))
        .fails(2, "cannot be listed over plain HTTP");
    assert_eq!(sandbox.store(), before);
}
