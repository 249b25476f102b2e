//! `append` and `remove`, on a directory, and in a bucket if the `stores` suite has started a
//! server.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::Duration;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, signal, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines, stores};

/// A folder for inputs, and the URL of a store.
struct TestStore {
    sandbox: Sandbox,
    store: String,
}

impl TestStore {
    fn all(part: &str) -> impl Iterator<Item = Self> {
        stores(&format!("append-{part}")).map(|(sandbox, store)| Self { sandbox, store })
    }

    fn arguments(&self, command: &str, arguments: &str) -> String {
        format!("{command} --store {} --audience a {arguments}", self.store)
    }

    fn run(&self, command: &str, arguments: &str) -> Outcome {
        self.sandbox.run(&self.arguments(command, arguments))
    }

    /// Runs a command with these ids on stdin.
    fn over(&self, command: &str, ids: &[String]) -> Outcome {
        self.sandbox.run_with(&self.arguments(command, "--json -"), lines(ids).as_bytes())
    }

    fn start(&self, command_line: &str, arguments: &str) -> Child {
        spawn(&mut command(self.sandbox.path(), &self.arguments(command_line, arguments)))
    }

    /// Number of members among these ids, by `query`.
    fn members(&self, ids: &[String]) -> usize {
        let answers = self.run("query", &format!("--json {}", ids.join(" "))).json();
        answers["answers"].as_array().unwrap().iter().filter(|answer| *answer == "member").count()
    }

    fn live_deltas(&self) -> Value {
        self.run("list", "--json").json()["audiences"][0]["over"].clone()
    }
}

/// The unit tests of `rtad_store` and the model of ledgers have every order of changes.
#[test]
fn append_remove_and_build_report_their_changes() {
    for target in TestStore::all("life") {
        let all = ids(IdKind::Md5, 0..1300);
        let (old, new, gone) = (&all[..1000], &all[1000..1100], &all[..50]);
        target.over("append", new).fails(5, "audience a: no generation is published");
        assert_eq!(target.over("build", old).json()["generation"], 1);

        let appended = target.over("append", new).json();
        assert_eq!(
            (&appended["added"], &appended["sequence"], &appended["deltas"]),
            (&100.into(), &2.into(), &1.into())
        );
        assert_eq!(appended["written_bytes"], 64 + 1600);
        let removed = target.over("remove", gone).json();
        assert_eq!((&removed["removed"], &removed["sequence"]), (&50.into(), &3.into()));
        let over = target.live_deltas();
        assert_eq!(
            (&over["added"], &over["removed"], &over["state"]),
            (&100.into(), &50.into(), &"live".into())
        );
        // Devices removed after the build are no false negatives.
        target.sandbox.file("old", lines(old));
        let verified = target.run("verify", "--probes 1000 --json --against {}/old").json();
        assert_eq!(
            (&verified["against"]["removed"], &verified["against"]["false_negatives"]),
            (&50.into(), &0.into())
        );

        // A build of the same export merges the changes.
        let built = target.over("build", old).json();
        assert_eq!((&built["keys"], &built["generation"]), (&1050.into(), &2.into()));
        assert_eq!(
            (&built["deltas"]["added"], &built["deltas"]["removed"]),
            (&100.into(), &50.into())
        );
        assert_eq!((target.members(new), target.members(gone)), (100, 0));
        let text = target.run("inspect", "").stdout;
        assert!(text.contains("merged      deltas up to sequence 3"), "{text}");
        target.run("rollback", "--quiet --to 1");
        assert_eq!((target.members(new), target.members(gone)), (100, 0));
        let text = target.run("gc", "--keep 1 --min-age 0s").stdout;
        assert!(text.contains(" deltas removed"), "{text}");
    }
}

#[test]
fn tombstone_holds_until_it_is_lifted() {
    let target = TestStore::all("tomb").next().unwrap();
    let all = ids(IdKind::Md5, 0..300);
    target.over("build", &all).json();
    assert_eq!(target.over("remove --tombstone", &all[..20]).json()["tombstones"], 20);
    let appended = target.over("append", &all[..30]).json();
    assert_eq!((&appended["entombed"], &appended["added"]), (&20.into(), &10.into()));
    let text = target.run("list", "").stdout;
    assert!(text.contains("20 tombstones, live"), "{text}");
    let lifted = target.over("append --lift-tombstone", &all[..5]).json();
    assert_eq!((&lifted["tombstones"], &lifted["added"]), (&15.into(), &5.into()));
    assert_eq!(target.members(&all[..20]), 5);
}

#[test]
fn build_reports_and_limits_the_changes_that_its_input_undoes() {
    for target in TestStore::all("carried") {
        let all = ids(IdKind::Md5, 0..400);
        let (old, new, gone) = (&all[..300], &all[300..], &all[..50]);
        target.sandbox.file("old", lines(old));
        let build = |flags: &str| target.run("build", &format!("{flags} --json {{}}/old"));
        let carried = |flags: &str| {
            let built = build(flags);
            let warns = built.stderr.contains("warning: a: the input lacks ");
            assert_eq!(built.status, Some(0), "{}", built.stderr);
            let carried = &serde_json::from_str::<Value>(&built.stdout).unwrap()["carried"];
            let numbers = ["added", "removed", "dropped", "returned"]
                .map(|name| carried[name].as_u64().unwrap());
            assert_eq!(warns, numbers[2..] != [0, 0], "{}", built.stderr);
            (numbers, carried["kept"].as_bool().unwrap())
        };
        assert_eq!(carried(""), ([0; 4], false));
        target.over("append", new).json();
        target.over("remove", gone).json();
        assert_eq!(carried(""), ([0; 4], false), "deltas apply once");
        assert_eq!((target.members(new), target.members(gone)), (100, 0));

        let error = "changes carried from before the previous build: expected at most \
                     --max-carried-loss 99 undone, found 100 additions and 50 removals of 150";
        build("--max-carried-loss 99").fails(3, error);
        build("--max-carried-loss 99.9%").fails(3, "--max-carried-loss 99.9% undone");
        assert_eq!(carried("--dry-run --max-carried-loss 100%"), ([100, 50, 100, 50], false));

        // Two builds that carry them on, and one that is rolled back.
        for _ in 0..2 {
            assert_eq!(carried("--keep-carried"), ([100, 50, 0, 0], true));
            assert_eq!((target.members(new), target.members(gone)), (100, 0));
        }
        target.run("rollback", "--quiet");
        assert_eq!((target.members(new), target.members(gone)), (100, 0));

        // Later changes override carried ones. A compaction carries on the others.
        target.over("remove", &new[..10]).json();
        target.over("append", &gone[..5]).json();
        target.over("remove --tombstone", &new[10..20]).json();
        assert_eq!(carried("--dry-run"), ([80, 45, 80, 45], false));
        target.run("build", "--compact --quiet");
        assert_eq!((target.members(new), target.members(gone)), (80, 5));
        assert_eq!(carried("--dry-run --keep-carried").0, [85, 45, 0, 0]);
        assert_eq!(carried("--metrics-file {}/metrics"), ([85, 45, 80, 45], false));
        assert_eq!((target.members(new), target.members(gone)), (0, 50));
        let metrics = std::fs::read_to_string(target.sandbox.path().join("metrics")).unwrap();
        assert!(metrics.contains("\nrtad_build_carried_dropped{audience=\"a\"} 80\n"), "{metrics}");
        assert!(
            metrics.contains("\nrtad_build_carried_returned{audience=\"a\"} 45\n"),
            "{metrics}"
        );
        // Reported once. Only the removals that the compaction left as a delta are carried.
        assert_eq!(carried(""), ([0, 10, 0, 0], false));
    }
}

#[test]
fn bad_input_changes_nothing() {
    let target = TestStore::all("bad").next().unwrap();
    let all = ids(IdKind::Md5, 0..100);
    target.over("build", &all).json();
    let before = target.sandbox.store();
    target.over("append", &["nonsense".to_owned()]).fails(3, "no usable id in 1 rows");
    target.sandbox.file("new", lines(&all));
    let dry = target.run("append", "--dry-run --json {}/new").json();
    assert_eq!((&dry["dry_run"], &dry["usable"]), (&true.into(), &100.into()));
    target.run("append", "--follow {}/new").fails(2, "--follow reads stdin only");
    assert_eq!(target.run("append", "--every 1s {}/new").status, Some(2));
    assert_eq!(target.run("append", "").status, Some(2));
    assert_eq!(target.sandbox.store(), before);
}

/// Reads one line of a child's stdout as JSON.
fn line(from: &mut impl BufRead) -> Value {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn follow_publishes_ids_and_reports_durable_rows() {
    for target in TestStore::all("follow") {
        let all = ids(IdKind::Md5, 0..400);
        target.over("build", &all[..100]).json();
        let mut follower = target.start("append", "--follow --every 1h --max-ids 50 --json");
        let mut pipe = follower.stdin.take().unwrap();
        let mut said = BufReader::new(follower.stdout.take().unwrap());
        for (round, batch) in (1..).zip(all[100..300].chunks(50)) {
            pipe.write_all(lines(batch).as_bytes()).unwrap();
            let published = line(&mut said);
            assert_eq!(
                (&published["rows"], &published["keys"]),
                (&(50 * round).into(), &50.into())
            );
            assert_eq!(target.members(batch), 50);
        }
        // Fewer ids than --max-ids wait. The end of stdin or a signal publishes them, including an
        // unterminated line.
        pipe.write_all(format!("nonsense\n\n{}", lines(&all[300..310]).trim_end()).as_bytes())
            .unwrap();
        drop(pipe);
        let published = line(&mut said);
        assert_eq!(
            (&published["rows"], &published["keys"], &published["malformed"]),
            (&212.into(), &10.into(), &1.into())
        );
        assert_eq!((&published["blank"], follower.wait().unwrap().code()), (&1.into(), Some(0)));
        assert_eq!(target.members(&all[..310]), 310);

        let mut follower = target.start("remove", "--follow --every 50ms --json");
        let mut pipe = follower.stdin.take().unwrap();
        let mut said = BufReader::new(follower.stdout.take().unwrap());
        pipe.write_all(lines(&all[..10]).as_bytes()).unwrap();
        pipe.flush().unwrap();
        // This time by --every.
        assert_eq!(line(&mut said)["keys"], 10);
        assert_eq!(target.members(&all[..20]), 10);
        // Rows without an id count as durable, for clients that commit offsets.
        pipe.write_all(b"\n\nnonsense\n").unwrap();
        let published = line(&mut said);
        assert_eq!((&published["rows"], &published["keys"]), (&13.into(), &0.into()));
        assert_eq!((&published["blank"], &published["malformed"]), (&2.into(), &1.into()));
        signal(follower.id(), "TERM");
        // One of 13 values is malformed: more than --max-reject-ratio.
        assert_eq!(follower.wait().unwrap().code(), Some(3));
        drop(pipe);
    }
}

/// A stream of a wrong kind ends at its end, or after a thousand values, with what is usable
/// published.
#[test]
fn follow_of_malformed_lines_fails() {
    let target = TestStore::all("malformed").next().unwrap();
    let all = ids(IdKind::Md5, 0..110);
    target.over("build", &all[..100]).json();
    let follow = |kind: &str, ids: &[String]| {
        let arguments = target.arguments("append", &format!("--follow --id-kind {kind}"));
        target.sandbox.run_with(&arguments, lines(ids).as_bytes())
    };
    let short = follow("imei", &all[..2]);
    assert_eq!(short.status, Some(3));
    assert!(short.stdout.contains("2 rows are durable, 2 malformed"), "{}", short.stdout);
    let reason = "input -: no usable id in 2 rows: 0 values are blank, 2 malformed; most look like \
                  ids of kind md5";
    assert!(short.stderr.contains(reason), "{}", short.stderr);
    let raw = follow("oaid", &all[..2]);
    assert!(raw.stderr.contains("2 of 2 ids of kind oaid look like ids of kind md5"));
    assert_eq!(raw.status, Some(3));
    let mixed = [ids(IdKind::Imei, 0..5), all[100..].to_vec()].concat();
    assert_eq!((follow("md5", &mixed).status, target.members(&all)), (Some(3), 110));

    let mut endless = target.start("append", "--follow --every 20ms");
    let mut pipe = endless.stdin.take().unwrap();
    pipe.write_all(lines(&ids(IdKind::Imei, 0..1000)).as_bytes()).unwrap();
    assert_eq!(endless.wait().unwrap().code(), Some(3));
}

/// An append of known devices, and a removal of unknown ones, say so.
#[test]
fn reports_have_the_members_before_and_after() {
    for target in TestStore::all("members") {
        let all = ids(IdKind::Md5, 0..400);
        target.over("build", &all[..100]).json();
        let members = |command: &str, ids: &[String]| {
            let members = target.over(command, ids).json()["members"].clone();
            ["checked", "before", "after"].map(|name| members[name].as_u64())
        };
        let counts = |counts: [u64; 3]| counts.map(Some);
        assert_eq!(members("append --dry-run", &all[90..110]), [Some(20), Some(10), None]);
        assert_eq!(members("append", &all[90..110]), counts([20, 10, 20]));
        assert_eq!(members("append", &all[90..110]), counts([20, 20, 20]));
        assert_eq!(members("remove", &all[100..300]), counts([200, 10, 0]));
        assert_eq!(members("remove --tombstone", &all[..50]), counts([50, 50, 0]));
        assert_eq!(members("append", &all[40..60]), counts([20, 10, 10]));
        target.sandbox.file("new", lines(&all[380..]));
        let text = target.run("append", "{}/new {}/new").stdout;
        assert!(text.contains("members     0 of 20 devices before, 20 after: 20 new"), "{text}");
    }
}

#[test]
fn follow_with_a_closed_stdout_fails() {
    let target = TestStore::all("unheard").next().unwrap();
    let all = ids(IdKind::Md5, 0..110);
    target.over("build", &all[..100]).json();
    let mut follower = target.start("append", "--follow --every 20ms");
    drop(follower.stdout.take());
    let mut pipe = follower.stdin.take().unwrap();
    pipe.write_all(lines(&all[100..]).as_bytes()).unwrap();
    let mut complaint = String::new();
    follower.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(complaint.contains("the reader of the durable row counts is gone"), "{complaint}");
    assert_eq!((follower.wait().unwrap().code(), target.members(&all)), (Some(1), 110));
}

/// `kill -9` at many moments of an endless append: rows reported as durable are stored, and the
/// store is intact.
#[test]
fn killed_follow_keeps_durable_rows() {
    for target in TestStore::all("kill") {
        let all = ids(IdKind::Md5, 0..3000);
        target.over("build", &all[..10]).json();
        for round in 0..8_usize {
            let ids = &all[100 + round * 300..100 + (round + 1) * 300];
            let mut follower = target.start("append", "--follow --every 1h --max-ids 10 --json");
            let mut pipe = follower.stdin.take().unwrap();
            let mut said = BufReader::new(follower.stdout.take().unwrap());
            let mut batches = ids.chunks(10);
            let mut durable = 0;
            for batch in batches.by_ref().take(round + 1) {
                pipe.write_all(lines(batch).as_bytes()).unwrap();
                durable = line(&mut said)["rows"].as_u64().unwrap() as usize;
            }
            for batch in batches {
                pipe.write_all(lines(batch).as_bytes()).unwrap();
            }
            // The kill comes during one of the next two publishes.
            std::thread::sleep(Duration::from_millis(round as u64 * 3));
            follower.kill().unwrap();
            let mut rest = String::new();
            while said.read_line(&mut rest).unwrap() > 0 {
                if let Ok(published) = serde_json::from_str::<Value>(&rest) {
                    durable = published["rows"].as_u64().unwrap() as usize;
                }
                rest.clear();
            }
            follower.wait().unwrap();
            assert!(durable >= 10 * (round + 1));
            assert_eq!(target.members(&ids[..durable]), durable, "round {round}");
            target.sandbox.file("first", lines(&all[..10]));
            target.run("verify", "--probes 1000 --json --against {}/first").json();
        }
    }
}

#[test]
fn compaction_merges_additions_and_keeps_removals_as_a_delta() {
    for target in TestStore::all("compact") {
        let all = ids(IdKind::Md5, 0..2300);
        let (old, new, gone) = (&all[..2000], &all[2000..2200], &all[..30]);
        target.run("build", "--compact").fails(5, "audience a: no generation is published");
        target.over("build", old).json();
        let nothing = target.run("build", "--compact --json").json();
        assert_eq!(nothing["generation"], Value::Null);
        target.over("append", new).json();
        target.over("remove", gone).json();
        target.over("remove --tombstone", &all[50..60]).json();

        let dry = target.run("build", "--compact --dry-run --json").json();
        assert_eq!(
            (&dry["generation"], &dry["added"], &dry["removed"]),
            (&Value::Null, &200.into(), &30.into())
        );
        // The gate also applies to a compaction.
        target.run("build", "--compact --max-fpr 0").fails(3, "--max-fpr");
        let done = target.run("build", "--compact --json").json();
        // Most are in shards that had no keys and now have filters of the right size.
        assert_eq!((&done["generation"], &done["added"]), (&2.into(), &200.into()));
        assert!(done["inserted"].as_u64().unwrap() < 100, "{done}");
        assert_eq!(
            (target.members(new), target.members(gone), target.members(&all[50..60])),
            (200, 0, 0)
        );
        let over = target.live_deltas();
        assert_eq!(
            (&over["added"], &over["removed"], &over["tombstones"]),
            (&0.into(), &30.into(), &10.into())
        );
        let built = target.over("build", &all[..2200]).json();
        assert_eq!(built["keys"], 2200 - 30 - 10);
        assert_eq!(target.live_deltas()["removed"], 0);
    }
}

#[test]
fn deltas_are_signed_and_unsigned_ones_are_rejected() {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/minisign");
    let target = TestStore::all("signed").next().unwrap();
    let all = ids(IdKind::Md5, 0..30);
    let sign = format!("--sign-key {keys}/a.key --public-key {keys}/a.pub");
    target.over(&format!("build {sign}"), &all[..10]).json();
    target.over(&format!("append {sign}"), &all[10..20]).json();
    let query = || target.run("query", &format!("--public-key {keys}/a.pub --json {}", all[15]));
    assert_eq!(query().json()["answers"][0], "member");
    target.over(&format!("append --public-key {keys}/a.pub"), &all[20..]).fails(2, "--sign-key");
    // A writer without the key.
    target.over("append", &all[20..]).json();
    query().fails(4, "is not signed");
    target.over(&format!("build {sign} --max-shrink 1"), &all[..10]).fails(4, "is not signed");
}

#[test]
fn follow_stops_on_a_signal_while_its_store_fails() {
    let target = TestStore::all("ends").next().unwrap();
    let all = ids(IdKind::Md5, 0..20);
    target.over("build", &all[..10]).json();
    let deltas = target.sandbox.path().join("s/a/deltas");
    std::fs::write(&deltas, "in the way").unwrap();
    let mut follower = target.start("append", "--follow --every 20ms --json");
    let mut pipe = follower.stdin.take().unwrap();
    let mut complaints = BufReader::new(follower.stderr.take().unwrap());
    pipe.write_all(lines(&all[10..]).as_bytes()).unwrap();
    let mut complaint = String::new();
    complaints.read_line(&mut complaint).unwrap();
    assert!(complaint.starts_with("error: "), "{complaint}");
    signal(follower.id(), "TERM");
    // It keeps its keys and retries for up to a minute.
    std::fs::remove_file(&deltas).unwrap();
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    let published = line(&mut BufReader::new(follower.stdout.take().unwrap()));
    assert_eq!(published["rows"], 10);
    assert_eq!(target.members(&all), 20);
    drop(pipe);
}

#[test]
fn compaction_does_not_extend_an_expiry() {
    let target = TestStore::all("expired").next().unwrap();
    let all = ids(IdKind::Md5, 0..20);
    target.over("build --expires 1s", &all[..10]).json();
    target.over("append", &all[10..]).json();
    let mut tried = target.run("build", "--compact --dry-run");
    while tried.status == Some(0) {
        std::thread::sleep(Duration::from_millis(100));
        tried = target.run("build", "--compact --dry-run");
    }
    tried.fails(4, "has expired");
    target.run("build", "--compact").fails(4, "has expired");
    assert_eq!(target.run("build", "--compact --expires 1h --json").json()["generation"], 2);
    assert_eq!(target.members(&all), 20);
}

#[test]
fn rollback_past_a_damaged_manifest_needs_lose_deltas() {
    let target = TestStore::all("damaged").next().unwrap();
    let all = ids(IdKind::Md5, 0..120);
    target.over("build", &all[..100]).json();
    target.over("append", &all[100..110]).json();
    target.over("build", &all[..100]).json();
    target.over("append", &all[110..]).json();
    let manifest = target.sandbox.path().join("s/a/manifests/2.json");
    let sound = std::fs::read(&manifest).unwrap();
    for damage in [Some("{"), None] {
        match damage {
            Some(text) => std::fs::write(&manifest, text).unwrap(),
            None => std::fs::remove_file(&manifest).unwrap(),
        }
        let before = target.sandbox.store();
        target.run("rollback", "--to 1").fails(5, "--lose-deltas rolls back without them");
        assert_eq!(target.sandbox.store(), before);
    }
    target.run("rollback", "--to 1 --lose-deltas --quiet");
    // Deltas that no generation merged are kept.
    assert_eq!(
        (target.members(&all[..100]), target.members(&all[100..110]), target.members(&all[110..])),
        (100, 0, 10)
    );
    std::fs::write(&manifest, sound).unwrap();
    target.run("rollback", "--to 2 --quiet");
    assert_eq!(target.members(&all), 120);
}
