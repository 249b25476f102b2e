//! `append` and `remove`.

use std::io::Write as _;
use std::process::Child;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, outcome, spawn};
use testkit::sandbox::{Sandbox, command, directory_or_bucket, ids, lines};
use testkit::store::{Depot, Spec};

/// A folder for inputs, and the URL of a store.
pub struct TestStore {
    pub(crate) sandbox: Sandbox,
    store: String,
}

impl TestStore {
    fn directory_or_bucket() -> Self {
        let (sandbox, store) = directory_or_bucket("append");
        Self { sandbox, store }
    }

    pub fn directory() -> Self {
        let sandbox = Sandbox::new();
        let store = sandbox.store_path();
        Self { sandbox, store }
    }

    pub fn arguments(&self, command: &str, arguments: &str) -> String {
        format!("{command} --store {} --audience a {arguments}", self.store)
    }

    pub fn run(&self, command: &str, arguments: &str) -> Outcome {
        self.sandbox.run(&self.arguments(command, arguments))
    }

    /// Runs a command with these ids on stdin.
    pub fn over(&self, command: &str, ids: &[String]) -> Outcome {
        self.sandbox
            .run_with(&self.arguments(command, "--json -"), lines(ids).as_bytes())
    }

    fn start(&self, command_line: &str, arguments: &str) -> Child {
        spawn(&mut command(
            self.sandbox.path(),
            &self.arguments(command_line, arguments),
        ))
    }

    /// Number of members among these ids, by `query`.
    pub fn members(&self, ids: &[String]) -> usize {
        let answers = self
            .run("query", &format!("--json {}", ids.join(" ")))
            .json();
        answers["answers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|answer| *answer == "member")
            .count()
    }

    fn live_deltas(&self) -> Value {
        self.run("list", "--json").json()["audiences"][0]["over"].clone()
    }
}

/// Its writer would replace the change by the members of the window.
#[test]
fn audience_of_a_window_takes_only_tombstones() {
    let target = TestStore::directory();
    let devices = ids(IdKind::Md5, 0..3);
    let depot = Depot::at(target.sandbox.path().join("s"));
    let spec = Spec {
        from_window: Some("clicks"),
        ..Spec::small()
    };
    depot.publish("a", &[], &spec);
    for command in ["build --allow-empty", "append", "remove"] {
        let refused = target.over(command, &devices);
        refused.fails(
            2,
            "audience a: generation 1 is from window clicks, whose writer would",
        );
    }
    target.run("publish", "").fails(
        2,
        "audience a: generation 1 is from window clicks, whose writer would",
    );

    for command in ["remove --tombstone", "append --lift-tombstone"] {
        assert_eq!(target.over(command, &devices).status, Some(0), "{command}");
    }
    depot.delete("a");
    assert_eq!(target.over("build", &devices).json()["keys"], 3);
}

/// The unit tests of `rtad_store` and the model of ledgers have every order of changes.
#[test]
fn append_remove_and_build_report_their_changes_in_every_store() {
    let target = TestStore::directory_or_bucket();
    let all = ids(IdKind::Md5, 0..1300);
    let (old, new, gone) = (&all[..1000], &all[1000..1100], &all[..50]);
    target
        .over("append", new)
        .fails(5, "audience a: no generation is published");
    assert_eq!(target.over("build", old).json()["generation"], 1);

    let appended = target.over("append", new).json();
    assert_eq!(
        (
            &appended["added"],
            &appended["sequence"],
            &appended["deltas"]
        ),
        (&100.into(), &2.into(), &1.into())
    );
    assert_eq!(appended["written_bytes"], 64 + 1600);
    let removed = target.over("remove", gone).json();
    assert_eq!(
        (&removed["removed"], &removed["sequence"]),
        (&50.into(), &3.into())
    );
    let over = target.live_deltas();
    assert_eq!(
        (&over["added"], &over["removed"], &over["state"]),
        (&100.into(), &50.into(), &"live".into())
    );
    // Devices removed after the build are no false negatives.
    target.sandbox.file("old", lines(old));
    let verified = target
        .run("verify", "--probes 1000 --json --against {}/old")
        .json();
    assert_eq!(
        (
            &verified["against"]["removed"],
            &verified["against"]["false_negatives"]
        ),
        (&50.into(), &0.into())
    );

    // A build of the same export merges the changes.
    let built = target.over("build", old).json();
    assert_eq!(
        (&built["keys"], &built["generation"]),
        (&1050.into(), &2.into())
    );
    assert_eq!(
        (&built["deltas"]["added"], &built["deltas"]["removed"]),
        (&100.into(), &50.into())
    );
    assert_eq!((target.members(new), target.members(gone)), (100, 0));
    let text = target.run("inspect", "").stdout;
    assert!(text.contains("through  3"), "{text}");
    target.run("rollback", "--quiet --to 1");
    assert_eq!((target.members(new), target.members(gone)), (100, 0));
    let text = target.run("gc", "--keep 1 --min-age 0s").stdout;
    assert!(text.contains("removed deltas"), "{text}");
}

#[test]
fn build_reports_the_changes_that_its_input_undoes() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..400);
    let (old, new, gone) = (&all[..300], &all[300..], &all[..50]);
    target.sandbox.file("old", lines(old));
    let build = |flags: &str| {
        target.run(
            "build",
            &format!("{flags} --max-change any --json {{}}/old"),
        )
    };
    let carried = |flags: &str| {
        let built = build(flags);
        let warns = built.stderr.contains("warning: a: the input lacks ");
        assert_eq!(built.status, Some(0), "{}", built.stderr);
        let carried = &serde_json::from_str::<Value>(&built.stdout).unwrap()["carried"];
        let numbers =
            ["added", "removed", "dropped", "returned"].map(|name| carried[name].as_u64().unwrap());
        assert_eq!(warns, numbers[2..] != [0, 0], "{}", built.stderr);
        (numbers, carried["kept"].as_bool().unwrap())
    };
    assert_eq!(carried(""), ([0; 4], false));
    target.over("append", new).json();
    target.over("remove", gone).json();
    assert_eq!(carried(""), ([0; 4], false), "deltas apply once");
    assert_eq!((target.members(new), target.members(gone)), (100, 0));

    assert_eq!(carried("--dry-run"), ([100, 50, 100, 50], false));

    // Two builds that carry them on, and one that is rolled back.
    for _ in 0..2 {
        assert_eq!(carried("--keep-carried"), ([100, 50, 0, 0], true));
        assert_eq!((target.members(new), target.members(gone)), (100, 0));
    }
    target.run("rollback", "--quiet");
    assert_eq!((target.members(new), target.members(gone)), (100, 0));

    // Later changes override carried ones.
    target.over("remove", &new[..10]).json();
    target.over("append", &gone[..5]).json();
    target.over("remove --tombstone", &new[10..20]).json();
    assert_eq!(carried("--dry-run"), ([80, 45, 80, 45], false));
    assert_eq!(carried("--keep-carried"), ([80, 45, 0, 0], true));
    assert_eq!((target.members(new), target.members(gone)), (80, 5));
    assert_eq!(carried("--dry-run --keep-carried").0, [85, 55, 0, 0]);
    assert_eq!(carried(""), ([85, 55, 80, 45], false));
    // Reported once.
    assert_eq!(carried(""), ([0; 4], false));
}

/// An append of known devices, and a removal of unknown ones, say so.
#[test]
fn reports_have_the_members_before_and_after() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..400);
    target.over("build", &all[..100]).json();
    let members = |command: &str, ids: &[String]| {
        let members = target.over(command, ids).json()["members"].clone();
        ["checked", "before", "after"].map(|name| members[name].as_u64())
    };
    let counts = |counts: [u64; 3]| counts.map(Some);
    assert_eq!(
        members("append --dry-run", &all[90..110]),
        [Some(20), Some(10), None]
    );
    assert_eq!(members("append", &all[90..110]), counts([20, 10, 20]));
    assert_eq!(members("append", &all[90..110]), counts([20, 20, 20]));
    assert_eq!(members("remove", &all[100..300]), counts([200, 10, 0]));
    assert_eq!(
        members("remove --tombstone", &all[..50]),
        counts([50, 50, 0])
    );
    assert_eq!(members("append", &all[40..60]), counts([20, 10, 10]));
    target.sandbox.file("new", lines(&all[380..]));
    let text = target.run("append", "{}/new {}/new").stdout;
    assert!(text.contains("checked 20, before 0, after 20"), "{text}");
    // The members are those of the moment at which the input was read.
    let mut slow = target.start("remove", "--json -");
    let mut input = slow.stdin.take().unwrap();
    // More than a pipe holds: it has begun to read.
    input.write_all(&[b'\n'; 1 << 17]).unwrap();
    target.over("append", &all[300..310]).json();
    input.write_all(lines(&all[300..310]).as_bytes()).unwrap();
    drop(input);
    assert_eq!(outcome(slow).json()["members"]["before"], 10);
}

/// Such an audience never had an export: its deltas are its keys.
#[test]
fn audience_of_appended_devices_alone_is_built_from_its_deltas() {
    let all = ids(IdKind::Md5, 0..3000);
    for filter in ["block512", "ribbon"] {
        let target = TestStore::directory();
        target.sandbox.file("empty", "");
        let build = |flags: &str| {
            let build = format!("--filter {filter} --allow-empty {flags} {{}}/empty --json");
            target.run("build", &build)
        };
        build("").json();
        target.over("append", &all[..2000]).json();
        target.over("remove", &all[..100]).json();
        let built = build("--keep-carried --expires 48h").json();
        assert_eq!(
            (&built["generation"], &built["keys"]),
            (&2.into(), &1900.into())
        );
        assert_eq!(target.live_deltas()["added"], 0);

        // Later builds carry on what earlier ones merged, after a gc too.
        target.over("append", &all[2000..]).json();
        target.run("gc", "--keep 1 --min-age 0s --quiet").succeeds();
        for generation in [3, 4] {
            let built = build("--keep-carried").json();
            assert_eq!(built["generation"], generation);
            assert_eq!(built["keys"], 2900);
            assert!(built["expected_fpr"].as_f64() <= built["target_fpr"].as_f64());
        }
        assert_eq!(
            (target.members(&all[100..]), target.members(&all[..100])),
            (2900, 0)
        );

        // Without the flag the input decides, and the gate stops the loss.
        build("").fails(3, "0 keys: expected at least 2610 by --max-change 0.2");
    }
}
