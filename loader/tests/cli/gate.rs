//! Publish gate: rejects empty, halved, foreign and damaged exports, and the flag that accepts
//! them.

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};
use testkit::store::{Depot, manifest_file};

const BUILD: &str = "build --store {}/s --audience a";

/// Files of as many ids as their names say, and a generation of `live` of them.
fn sandbox(live: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    for count in [0, 1, 500, 829, 899, 900, 910, 999, 1000, 2000] {
        sandbox.file(&count.to_string(), lines(&all[..count]));
    }
    if live > 0 {
        sandbox.build(&format!("{{}}/{live}"));
    }
    sandbox
}

#[test]
fn export_that_lost_more_than_a_tenth_is_rejected() {
    let sandbox = sandbox(1000);
    let before = sandbox.store();
    for (flags, least, change, needed) in [
        ("{}/899", 900, "0.2", "0.202"),
        ("--dry-run {}/899", 900, "0.2", "0.202"),
        ("--json {}/899", 900, "0.2", "0.202"),
        ("{}/500", 900, "0.2", "1"),
        ("--max-change 0 {}/999", 1000, "0", "0.002"),
        ("--max-change 1 {}/1", 500, "1", "any"),
        ("--max-change 1 --allow-empty {}/0", 500, "1", "any"),
    ] {
        let keys = flags.rsplit('/').next().expect("a file");
        let said = format!(
            "{keys} keys: expected at least {least} by --max-change {change}, as the largest of \
the last seven generations has 1000; nothing was published; --max-change {needed} accepts it"
        );
        let refused = sandbox.run(&format!("{BUILD} {flags}"));
        refused.fails(3, &said);
        assert_eq!(
            refused.stdout.contains(r#""exit_code":3"#),
            flags.contains("--json"),
            "{flags}"
        );
        assert_eq!(sandbox.store(), before, "{flags}: nothing was written");
    }
    // At the limit; beyond it by the flag that the error named; growth; everything.
    for (generation, flags) in [
        "{}/900",
        "--max-change 1 {}/500",
        "{}/2000",
        "--max-change any --allow-empty {}/0",
        "{}/1",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            sandbox.build(flags)["generation"],
            generation + 2,
            "{flags}"
        );
    }
}

/// A list that loses nine in a hundred every night would be halved in a week.
#[test]
fn export_cannot_shrink_a_little_every_night() {
    for gc in [false, true] {
        let sandbox = sandbox(1000);
        sandbox.build("{}/910");
        if gc {
            sandbox
                .run("gc --store {}/s --audience a --keep 1 --min-age 0s")
                .succeeds();
        }
        sandbox.run(&format!("{BUILD} {{}}/829")).fails(
            3,
            "829 keys: expected at least 900 by --max-change 0.2, as the largest of the last seven \
             generations has 1000; nothing was published; --max-change 0.342 accepts it",
        );

        // Once accepted, it is what the next night is compared with.
        let gate = &sandbox.build("--max-change 0.342 {}/829")["gate"];
        assert_eq!(gate["largest_keys"], 1000);
        let gate = &sandbox.build("{}/829")["gate"];
        assert_eq!(
            (&gate["largest_keys"], &gate["min_keys"]),
            (&829.into(), &747.into())
        );
        assert_eq!(gate["recent_keys"], serde_json::json!([910, 1000]));
        // A run that accepts that much every night is compared with the larger ones, too.
        sandbox
            .run(&format!("{BUILD} --max-change 0.36 {{}}/500"))
            .fails(3, "expected at least 820 by --max-change 0.36");
    }
}

#[test]
fn export_of_other_devices_is_rejected() {
    let sandbox = Sandbox::new();
    let list = |name: &str, range| sandbox.file(name, lines(&ids(IdKind::Md5, range)));
    list("live", 0..5000);
    list("other-audience", 30_000..35_000);
    list("next-night", 30_010..35_020);
    list("much-older", 1250..6250);
    list("older", 1000..6000);
    let mut rows = "device,request\n".to_owned();
    let requests = ids(IdKind::Md5, 50_000..55_000);
    for (device, request) in ids(IdKind::Md5, 0..5000).iter().zip(requests) {
        rows += &format!("{device},{request}\n");
    }
    sandbox.file("log.csv", rows);
    sandbox.build("{}/live");
    let before = sandbox.store();
    let column = "--format csv --column request {}/log.csv";
    for (input, found, needed) in [
        ("{}/other-audience", "0.0000", "1"),
        ("--memory 64MiB {}/other-audience", "0.0000", "1"),
        (column, "0.0000", "1"),
        ("{}/much-older", "0.7500", "0.25"),
    ] {
        let said = format!(
            "overlap: expected at least 0.800 of the devices of live generation 1 to stay members \
             by --max-change 0.2, found {found}; nothing was published; check whether the input is \
             another list; --max-change {needed} accepts it"
        );
        sandbox.run(&format!("{BUILD} {input}")).fails(3, &said);
        assert_eq!(sandbox.store(), before, "{input}: nothing was written");
    }

    let kept = |flags: &str| {
        let built = sandbox.build(flags);
        let overlap = &built["overlap"];
        (
            overlap["live_keys_checked"].as_u64(),
            overlap["kept"].as_u64(),
        )
    };
    assert_eq!(kept("{}/older"), (Some(5000), Some(4000)));
    assert_eq!(
        kept("--max-change 1 {}/other-audience"),
        (Some(5000), Some(0))
    );
    assert_eq!(kept("{}/next-night"), (Some(5000), Some(4990)));

    // `list` has what stayed of each generation before.
    let listed = sandbox.run("list --store {}/s");
    for kept in ["kept 0.8000", "kept 0.0000", "kept 0.9980"] {
        assert!(listed.stdout.contains(kept), "{listed:?}");
    }
    let listed = sandbox.run("list --store {}/s --json").json();
    let generations = &listed["audiences"][0]["generations"];
    assert!(generations[0]["overlap"].is_null(), "{generations}");
    assert_eq!(generations[1]["overlap"], 0.8);
}

#[test]
fn export_of_five_times_the_keys_is_accepted() {
    let sandbox = Sandbox::new();
    let list = |name: &str, range| sandbox.file(name, lines(&ids(IdKind::Md5, range)));
    list("live", 0..5000);
    list("five", 0..25_000);
    list("more", 0..25_001);
    sandbox.build("{}/live");
    let before = sandbox.store();
    for flags in ["", "--memory 64MiB", "--max-change 1"] {
        sandbox.run(&format!("{BUILD} {flags} {{}}/more")).fails(
            3,
            "25001 keys: expected at most 25000, five times those of live generation 1; nothing \
             was published; --max-change any accepts it",
        );
    }
    assert_eq!(sandbox.store(), before, "nothing was written");
    sandbox.build("--dry-run {}/five");
    let text = sandbox
        .run(&format!("{BUILD} --max-change any {{}}/more"))
        .stdout;
    assert!(
        text.contains("live keys checked 5,000, kept 5,000, ratio 1\n"),
        "{text}"
    );
}

#[test]
fn first_export_may_follow_a_trial() {
    let sandbox = sandbox(1000);
    sandbox.file("export", lines(&ids(IdKind::Md5, 5000..10_001)));
    sandbox.file("trial", lines(&ids(IdKind::Md5, 5000..6000)));
    // Lists of the same size are compared, however small.
    sandbox
        .run(&format!("{BUILD} {{}}/trial"))
        .fails(3, "overlap: expected at least 0.800");
    assert_eq!(sandbox.build("{}/export")["generation"], 2);
}

#[test]
fn first_publish_is_not_compared() {
    let sandbox = sandbox(0);
    let built = sandbox.build("--max-change 0 {}/1");
    assert_eq!(
        (&built["generation"], &built["gate"]["live_generation"]),
        (&1.into(), &serde_json::Value::Null)
    );
}

#[test]
fn first_build_after_a_deletion_is_not_compared() {
    let sandbox = sandbox(500);
    Depot::at(sandbox.path().join("s")).delete("a");
    sandbox
        .run(&format!("{BUILD} --require-live {{}}/1"))
        .fails(5, "no generation is published");
    let built = sandbox.build("--max-change 0 {}/1");
    assert_eq!(
        (&built["generation"], &built["gate"]["live_generation"]),
        (&2.into(), &serde_json::Value::Null)
    );
}

#[test]
fn generations_that_were_rolled_back_from_are_not_compared() {
    let sandbox = sandbox(500);
    sandbox.build("{}/2000");
    sandbox
        .run(&format!("{BUILD} {{}}/500"))
        .fails(3, "500 keys: expected at least 1800");
    sandbox.run("rollback --store {}/s --audience a");
    let gate = &sandbox.build("{}/500")["gate"];
    assert_eq!(
        (&gate["live_generation"], &gate["live_keys"]),
        (&1.into(), &500.into())
    );
    let gate = &sandbox.build("{}/500")["gate"];
    assert_eq!(
        (&gate["live_generation"], &gate["largest_keys"]),
        (&3.into(), &500.into())
    );
}

/// A nightly build repairs the files of a store; their loss is no reason to keep the old list.
#[test]
fn damaged_live_filters_are_replaced() {
    let sandbox = sandbox(1000);
    for chunk in std::fs::read_dir(sandbox.path().join("s/a/chunks")).expect("it was published") {
        std::fs::write(chunk.expect("a chunk").path(), "damaged").expect("a file");
    }
    let refused = sandbox.run(&format!("{BUILD} {{}}/899"));
    assert_eq!(refused.status, Some(3), "{refused:?}");
    let keys = "error: 899 keys: expected at least 900";
    assert!(refused.stderr.contains(keys), "{refused:?}");
    let built = sandbox.run(&format!("{BUILD} --json {{}}/1000"));
    let built =
        built.json_with_warning("the live filters are unreadable, so the overlap is unknown");
    assert!(built["overlap"].is_null(), "{built}");
    assert_eq!(built["generation"], 2);
}

#[test]
fn unreadable_live_generation_needs_an_override() {
    let sandbox = sandbox(1000);
    std::fs::remove_file(manifest_file(&sandbox.path().join("s/a"), 1)).expect("a manifest");
    sandbox.run(&format!("{BUILD} {{}}/1000")).fails(
        5,
        "live generation 1 is unreadable, so the build cannot be compared with it; nothing was \
published; --max-change any",
    );
    let built = sandbox.run(&format!("{BUILD} --max-change any --json {{}}/1000"));
    assert_eq!(built.status, Some(0), "{built:?}");
    assert!(built.stdout.contains("\"generation\":2,"), "{built:?}");
    let warning = "the changes merged into the live generation are unreadable";
    assert!(built.stderr.contains(warning), "{built:?}");
}

#[test]
fn dry_run_reports_the_gate() {
    let sandbox = sandbox(1000);
    let said = sandbox.run(&format!("{BUILD} --dry-run {{}}/2000"));
    assert!(
        said.stdout
            .contains("dry run of a: nothing was written to the store"),
        "{said:?}"
    );
    assert!(
        said.stdout.contains("  gate\n    live generation"),
        "{said:?}"
    );
    for flag in ["--max-change 1.1", "--max-change -1", "--max-change all"] {
        assert_eq!(
            sandbox.run(&format!("{BUILD} {flag} {{}}/1")).status,
            Some(2),
            "{flag}"
        );
    }
}

/// Erased devices would be members again, and nothing would say so.
#[test]
fn build_after_lost_records_gives_up_no_changes_in_silence() {
    let sandbox = sandbox(1000);
    sandbox.file("erased", lines(&ids(IdKind::Md5, 0..1)));
    sandbox
        .run("remove --store {}/s --audience a --tombstone {}/erased")
        .succeeds();
    std::fs::remove_dir_all(sandbox.path().join("s/a/records")).unwrap();
    let before = sandbox.store();
    for command in [BUILD, "publish --store {}/s --audience a"] {
        let input = if command == BUILD { " {}/1000" } else { "" };
        let refused = sandbox.run(&format!("{command}{input}"));
        refused.fails(
            5,
            "a/records is empty, and the files in a/deltas have appends, removals",
        );
        assert_eq!(sandbox.store(), before, "{command}: nothing was written");
    }
    sandbox.build("--max-change any {}/1000");
}
