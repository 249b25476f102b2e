//! `append` and `remove`: exact changes between builds, by the real binary; on a directory, and on S3 if the `stores` suite has
//! started a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::Duration;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{Outcome, outcome, signal, spawn};

use crate::support::{Sandbox, command, ids, lines, stores};

/// A folder for inputs, and a store that may be elsewhere.
struct Place {
    sandbox: Sandbox,
    store: String,
}

impl Place {
    fn all(part: &str) -> impl Iterator<Item = Self> {
        stores(&format!("append-{part}")).map(|(sandbox, store)| Self { sandbox, store })
    }

    fn arguments(&self, command: &str, arguments: &str) -> String {
        format!("{command} --store {} --audience a {arguments}", self.store)
    }

    fn run(&self, command: &str, arguments: &str) -> Outcome {
        self.sandbox.run(&self.arguments(command, arguments))
    }

    /// One command over these ids, which come on stdin.
    fn over(&self, command: &str, ids: &[String]) -> Outcome {
        self.sandbox.run_with(&self.arguments(command, "--json -"), lines(ids).as_bytes())
    }

    fn start(&self, command_line: &str, arguments: &str) -> Child {
        spawn(&mut command(self.sandbox.path(), &self.arguments(command_line, arguments)))
    }

    /// How many of these are members, as `query` has it.
    fn members(&self, ids: &[String]) -> usize {
        let answers = self.run("query", &format!("--json {}", ids.join(" "))).json();
        answers["answers"].as_array().unwrap().iter().filter(|answer| *answer == "member").count()
    }

    fn over_it(&self) -> Value {
        self.run("list", "--json").json()["audiences"][0]["over"].clone()
    }
}

#[test]
fn what_is_appended_and_removed_is_so_until_the_next_build_and_after() {
    for place in Place::all("life") {
        let all = ids(IdKind::Md5, 0..1300);
        let (old, new, gone) = (&all[..1000], &all[1000..1100], &all[..50]);
        place.over("append", new).fails(5, "audience a: nothing was published");
        assert_eq!(place.over("build", old).json()["generation"], 1);

        let appended = place.over("append", new).json();
        assert_eq!(
            (&appended["added"], &appended["sequence"], &appended["deltas"]),
            (&100.into(), &2.into(), &1.into())
        );
        assert_eq!(appended["written_bytes"], 64 + 1600);
        let removed = place.over("remove", gone).json();
        assert_eq!(
            (&removed["removed"], &removed["sequence"], &removed["generation"]),
            (&50.into(), &3.into(), &1.into())
        );
        assert_eq!(
            (place.members(new), place.members(gone), place.members(&old[50..150])),
            (100, 0, 100)
        );
        let over = place.over_it();
        assert_eq!(
            (&over["added"], &over["removed"], &over["state"]),
            (&100.into(), &50.into(), &"live".into())
        );
        // Against what was built: what was removed since is no false negative.
        place.sandbox.file("old", lines(old));
        let verified = place.run("verify", "--probes 1000 --json --against {}/old").json();
        assert_eq!(
            (&verified["against"]["removed"], &verified["against"]["false_negatives"]),
            (&50.into(), &0.into())
        );

        // A build of the same export takes the changes up.
        let built = place.over("build", old).json();
        assert_eq!((&built["keys"], &built["generation"]), (&1050.into(), &2.into()));
        assert_eq!(
            (&built["deltas"]["added"], &built["deltas"]["removed"]),
            (&100.into(), &50.into())
        );
        assert_eq!((place.members(new), place.members(gone)), (100, 0));
        assert_eq!(place.over_it()["deltas"], 0);
        let inspected = place.run("inspect", "--json").json();
        assert_eq!(inspected["folded"]["through"], 3);
        let text = place.run("inspect", "").stdout;
        assert!(text.contains("includes    deltas up to sequence 3"), "{text}");

        // Going back does not undo them; the next export, which has the new ones, does without the removed ones' removal.
        place.run("rollback", "--quiet --to 1");
        assert_eq!((place.members(new), place.members(gone)), (100, 0));
        place.run("rollback", "--quiet --to 2");
        assert_eq!((place.members(new), place.members(gone)), (100, 0));
        assert_eq!(place.over("build", &all[..1100]).json()["keys"], 1100);
        assert_eq!(place.members(gone), 50);

        // Added and removed again, in one file or two: the last counts.
        place.over("remove", gone).json();
        place.over("append", &gone[..10]).json();
        assert_eq!(place.members(gone), 10);
        let text = place.run("gc", "--keep 1 --min-age 0s").stdout;
        assert!(text.contains(" deltas removed"), "{text}");
        assert_eq!(place.members(gone), 10);
    }
}

#[test]
fn a_tombstone_outlasts_appends_builds_and_rollbacks() {
    for place in Place::all("tomb") {
        let all = ids(IdKind::Md5, 0..300);
        let (erased, others) = (&all[..20], &all[20..120]);
        place.over("build", &all).json();
        assert_eq!(place.over("remove --tombstone", erased).json()["tombstones"], 20);
        for step in ["append", "build", "rollback"] {
            match step {
                "rollback" => assert_eq!(place.run("rollback", "").status, Some(0)),
                step => drop(place.over(step, &all).json()),
            }
            assert_eq!((place.members(erased), place.members(others)), (0, 100), "after {step}");
        }
        let appended = place.over("append", &all[..30]).json();
        assert_eq!((&appended["entombed"], &appended["added"]), (&20.into(), &10.into()));
        let text = place.run("list", "").stdout;
        assert!(text.contains("20 tombstones, live"), "{text}");
        // Until told otherwise.
        let lifted = place.over("append --lift-tombstone", &erased[..5]).json();
        assert_eq!((&lifted["tombstones"], &lifted["added"]), (&15.into(), &5.into()));
        assert_eq!(place.members(erased), 5);
    }
}

#[test]
fn bad_input_changes_nothing_and_says_why() {
    let place = Place::all("bad").next().unwrap();
    let all = ids(IdKind::Md5, 0..100);
    place.over("build", &all).json();
    let before = place.sandbox.store();
    place.over("append", &["nonsense".to_owned()]).fails(3, "1 of 1 values are malformed");
    place.sandbox.file("new", lines(&all));
    let dry = place.run("append", "--dry-run --json {}/new").json();
    assert_eq!((&dry["dry_run"], &dry["usable"]), (&true.into(), &100.into()));
    place.run("append", "--follow {}/new").fails(2, "--follow reads stdin alone");
    assert_eq!(place.run("append", "--every 1s {}/new").status, Some(2));
    assert_eq!(place.run("append", "").status, Some(2));
    assert_eq!(place.sandbox.store(), before);
}

#[test]
fn writers_at_once_lose_nothing() {
    for place in Place::all("many") {
        let all = ids(IdKind::Md5, 0..1000);
        place.over("build", &all[..100]).json();
        let mut writers: Vec<_> = (1..5).map(|_| place.start("append", "--json -")).collect();
        let mut builder = place.start("build", "--json -");
        for (writer, ids) in writers.iter_mut().zip(all[100..].chunks(100)) {
            writer.stdin.take().unwrap().write_all(lines(ids).as_bytes()).unwrap();
        }
        builder.stdin.take().unwrap().write_all(lines(&all[..100]).as_bytes()).unwrap();
        for child in writers.into_iter().chain([builder]) {
            outcome(child).json();
        }
        assert_eq!(place.members(&all[..500]), 500);
    }
}

/// Reads one line of a child's stdout as JSON.
fn line(from: &mut impl BufRead) -> Value {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn follow_publishes_what_comes_and_says_what_is_durable() {
    for place in Place::all("follow") {
        let all = ids(IdKind::Md5, 0..400);
        place.over("build", &all[..100]).json();
        let mut follower = place.start("append", "--follow --every 1h --max-ids 50 --json");
        let mut pipe = follower.stdin.take().unwrap();
        let mut said = BufReader::new(follower.stdout.take().unwrap());
        for (round, batch) in (1..).zip(all[100..300].chunks(50)) {
            pipe.write_all(lines(batch).as_bytes()).unwrap();
            let published = line(&mut said);
            assert_eq!(
                (&published["rows"], &published["keys"]),
                (&(50 * round).into(), &50.into())
            );
            assert_eq!(place.members(batch), 50);
        }
        // Fewer than are asked for wait; the end, or a signal, publishes them, and half a line is a line.
        pipe.write_all(format!("nonsense\n\n{}", lines(&all[300..310]).trim_end()).as_bytes())
            .unwrap();
        drop(pipe);
        let published = line(&mut said);
        assert_eq!(
            (&published["rows"], &published["keys"], &published["malformed"]),
            (&212.into(), &10.into(), &1.into())
        );
        assert_eq!((&published["blank"], follower.wait().unwrap().code()), (&1.into(), Some(0)));
        assert_eq!(place.members(&all[..310]), 310);

        let mut follower = place.start("remove", "--follow --every 50ms --json");
        let mut pipe = follower.stdin.take().unwrap();
        let mut said = BufReader::new(follower.stdout.take().unwrap());
        pipe.write_all(lines(&all[..10]).as_bytes()).unwrap();
        pipe.flush().unwrap();
        // By time this time.
        assert_eq!(line(&mut said)["keys"], 10);
        assert_eq!(place.members(&all[..20]), 10);
        // Rows without an id are done with too: whoever commits an offset waits for them.
        pipe.write_all(b"\n\nnonsense\n").unwrap();
        let published = line(&mut said);
        assert_eq!((&published["rows"], &published["keys"]), (&13.into(), &0.into()));
        assert_eq!((&published["blank"], &published["malformed"]), (&2.into(), &1.into()));
        signal(follower.id(), "TERM");
        assert_eq!(follower.wait().unwrap().code(), Some(0));
        drop(pipe);
    }
}

#[test]
fn a_follower_that_nobody_listens_to_says_that_it_stopped() {
    let place = Place::all("unheard").next().unwrap();
    let all = ids(IdKind::Md5, 0..110);
    place.over("build", &all[..100]).json();
    let mut follower = place.start("append", "--follow --every 20ms");
    drop(follower.stdout.take());
    let mut pipe = follower.stdin.take().unwrap();
    pipe.write_all(lines(&all[100..]).as_bytes()).unwrap();
    let mut complaint = String::new();
    follower.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(complaint.contains("stdout is closed"), "{complaint}");
    assert_eq!((follower.wait().unwrap().code(), place.members(&all)), (Some(1), 110));
}

/// `kill -9` all over an endless append: what was said to be durable is there, and what is there is whole.
#[test]
fn a_follower_killed_at_any_moment_has_lost_nothing_that_it_called_durable() {
    for place in Place::all("kill") {
        let all = ids(IdKind::Md5, 0..3000);
        place.over("build", &all[..10]).json();
        for round in 0..8_usize {
            let ids = &all[100 + round * 300..100 + (round + 1) * 300];
            let mut follower = place.start("append", "--follow --every 1h --max-ids 10 --json");
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
            // Somewhere in the next publish, or in the one after it.
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
            assert_eq!(place.members(&ids[..durable]), durable, "round {round}");
            place.sandbox.file("first", lines(&all[..10]));
            place.run("verify", "--probes 1000 --json --against {}/first").json();
        }
    }
}

#[test]
fn compacting_folds_what_was_added_and_keeps_what_was_removed_a_delta() {
    for place in Place::all("compact") {
        let all = ids(IdKind::Md5, 0..2300);
        let (old, new, gone) = (&all[..2000], &all[2000..2200], &all[..30]);
        place.run("build", "--compact").fails(5, "audience a: nothing was published");
        place.over("build", old).json();
        let nothing = place.run("build", "--compact --json").json();
        assert_eq!(nothing["generation"], Value::Null);
        place.over("append", new).json();
        place.over("remove", gone).json();
        place.over("remove --tombstone", &all[50..60]).json();

        let dry = place.run("build", "--compact --dry-run --json").json();
        assert_eq!(
            (&dry["generation"], &dry["added"], &dry["removed"]),
            (&Value::Null, &200.into(), &30.into())
        );
        // The gate has an opinion of this too.
        place.run("build", "--compact --max-fpr 0").fails(3, "--max-fpr");
        let done = place.run("build", "--compact --json").json();
        // Most of them are in shards that had no keys, and have filters of their size now.
        assert_eq!((&done["generation"], &done["added"]), (&2.into(), &200.into()));
        assert!(done["inserted"].as_u64().unwrap() < 100, "{done}");
        assert_eq!(
            (place.members(new), place.members(gone), place.members(&all[50..60])),
            (200, 0, 0)
        );
        let over = place.over_it();
        assert_eq!(
            (&over["added"], &over["removed"], &over["tombstones"]),
            (&0.into(), &30.into(), &10.into())
        );
        place.sandbox.file("all", lines(&all[..2200]));
        let verified = place.run("verify", "--probes 100000 --json --against {}/all").json();
        assert_eq!(verified["against"]["removed"], 40);

        // Back and forth it stays so; a build proper leaves nothing over it.
        for generation in [1, 2] {
            place.run("rollback", &format!("--quiet --to {generation}"));
            assert_eq!(
                (place.members(new), place.members(gone)),
                (200, 0),
                "generation {generation}"
            );
        }
        place.over("append", &gone[..5]).json();
        assert_eq!(place.members(gone), 5);
        place.run("build", "--compact --quiet");
        assert_eq!((place.members(gone), place.members(new)), (5, 200));
        let built = place.over("build", &all[..2200]).json();
        assert_eq!(built["keys"], 2200 - 25 - 10);
        assert_eq!(place.over_it()["removed"], 0);
    }
}

#[test]
fn with_a_key_deltas_are_signed_and_without_it_pods_would_refuse_them() {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/minisign");
    for place in Place::all("signed") {
        let all = ids(IdKind::Md5, 0..300);
        let sign = format!("--sign-key {keys}/a.key --public-key {keys}/a.pub");
        place.over(&format!("build {sign}"), &all[..100]).json();
        place.over(&format!("append {sign}"), &all[100..200]).json();
        place.over(&format!("remove --tombstone {sign}"), &all[..10]).json();
        let query = |ids: &[String]| {
            place.run("query", &format!("--public-key {keys}/a.pub --json {}", ids.join(" ")))
        };
        let answers = query(&all[5..105]).json()["answers"].clone();
        assert_eq!(
            answers.as_array().unwrap().iter().filter(|answer| *answer == "member").count(),
            95
        );
        place
            .over(&format!("append --public-key {keys}/a.pub"), &all[200..])
            .fails(2, "--sign-key");
        // Who does not know of the key.
        place.over("append", &all[200..]).json();
        query(&all[..1]).fails(4, "is not signed");
        place.over(&format!("build {sign} --max-shrink 1"), &all[..100]).fails(4, "is not signed");
    }
}

#[test]
fn a_follower_ends_when_it_is_told_to_also_while_its_store_fails() {
    let place = Place::all("ends").next().unwrap();
    let all = ids(IdKind::Md5, 0..20);
    place.over("build", &all[..10]).json();
    let deltas = place.sandbox.path().join("s/a/deltas");
    std::fs::write(&deltas, "in the way").unwrap();
    let mut follower = place.start("append", "--follow --every 20ms --json");
    let mut pipe = follower.stdin.take().unwrap();
    let mut complaints = BufReader::new(follower.stderr.take().unwrap());
    pipe.write_all(lines(&all[10..]).as_bytes()).unwrap();
    let mut complaint = String::new();
    complaints.read_line(&mut complaint).unwrap();
    assert!(complaint.starts_with("error: "), "{complaint}");
    signal(follower.id(), "TERM");
    // What it has read it still has; a minute is left to the store.
    std::fs::remove_file(&deltas).unwrap();
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    let published = line(&mut BufReader::new(follower.stdout.take().unwrap()));
    assert_eq!(published["rows"], 10);
    assert_eq!(place.members(&all), 20);
    drop(pipe);
}

#[test]
fn what_has_expired_is_not_made_to_last_by_compacting_it() {
    let place = Place::all("expired").next().unwrap();
    let all = ids(IdKind::Md5, 0..20);
    place.over("build --expires 1s", &all[..10]).json();
    place.over("append", &all[10..]).json();
    let mut tried = place.run("build", "--compact --dry-run");
    while tried.status == Some(0) {
        std::thread::sleep(Duration::from_millis(100));
        tried = place.run("build", "--compact --dry-run");
    }
    tried.fails(4, "has expired");
    place.run("build", "--compact").fails(4, "has expired");
    assert_eq!(place.run("build", "--compact --expires 1h --json").json()["generation"], 2);
    assert_eq!(place.members(&all), 20);
}

#[test]
fn going_back_over_a_damaged_manifest_says_what_would_be_lost() {
    let place = Place::all("damaged").next().unwrap();
    let all = ids(IdKind::Md5, 0..120);
    place.over("build", &all[..100]).json();
    place.over("append", &all[100..110]).json();
    place.over("build", &all[..100]).json();
    place.over("append", &all[110..]).json();
    let manifest = place.sandbox.path().join("s/a/manifests/2.json");
    let sound = std::fs::read(&manifest).unwrap();
    for damage in [Some("{"), None] {
        match damage {
            Some(text) => std::fs::write(&manifest, text).unwrap(),
            None => std::fs::remove_file(&manifest).unwrap(),
        }
        let before = place.sandbox.store();
        place.run("rollback", "--to 1").fails(5, "--lose-deltas goes back without those");
        assert_eq!(place.sandbox.store(), before);
    }
    place.run("rollback", "--to 1 --lose-deltas --quiet");
    // What no generation has taken up is there still.
    assert_eq!(
        (place.members(&all[..100]), place.members(&all[100..110]), place.members(&all[110..])),
        (100, 0, 10)
    );
    std::fs::write(&manifest, sound).unwrap();
    place.run("rollback", "--to 2 --quiet");
    assert_eq!(place.members(&all), 120);
}
