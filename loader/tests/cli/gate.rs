//! Publish gate: rejects empty, halved and damaged exports, and its override flags.

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};
use testkit::store::Depot;

fn sandbox(live: usize) -> Sandbox {
    let sandbox = Sandbox::new();
    let all = ids(IdKind::Md5, 0..2000);
    for count in [0, 1, 499, 500, 999, 1000, 2000] {
        sandbox.file(&count.to_string(), lines(&all[..count]));
    }
    if live > 0 {
        sandbox.build(&format!("{{}}/{live}"));
    }
    sandbox
}

const BUILD: &str = "build --store {}/s --audience a";

#[test]
fn halved_export_is_rejected() {
    let sandbox = sandbox(1000);
    let before = sandbox.store();
    for (flags, least, needed) in [
        ("{}/499", 500, "0.501"),
        ("--dry-run {}/499", 500, "0.501"),
        ("--json {}/499", 500, "0.501"),
        ("--max-shrink 0 {}/999", 1000, "0.001"),
        ("--max-shrink 0.5 --allow-empty {}/0", 500, "1"),
    ] {
        let keys = flags.rsplit('/').next().expect("a file");
        let (words, _) = flags.rsplit_once(' ').unwrap_or(("", flags));
        let shrink = words
            .split("--max-shrink ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or("0.5");
        let said = format!(
            "{keys} keys: expected at least {least} by --max-shrink {shrink}, as live generation 1 \
has 1000; nothing was published; --max-shrink {needed} allows it"
        );
        sandbox.run(&format!("{BUILD} {flags}")).fails(3, &said);
        assert_eq!(sandbox.store(), before, "{flags}: nothing was written");
    }
    // The cases are the limit, beyond it with an override, and growth.
    for (generation, flags) in [
        "{}/500",
        "--max-shrink 0.999 {}/1",
        "{}/2000",
        "--max-shrink 1 --allow-empty {}/0",
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

#[test]
fn first_publish_is_not_compared() {
    let sandbox = sandbox(0);
    let built = sandbox.build("--max-shrink 0 {}/1");
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
    let built = sandbox.build("--min-overlap 0.9 {}/1");
    assert_eq!(
        (&built["generation"], &built["gate"]["live_generation"]),
        (&2.into(), &serde_json::Value::Null)
    );
}

#[test]
fn comparison_uses_the_live_generation_after_a_rollback() {
    let sandbox = sandbox(500);
    sandbox.build("{}/2000");
    sandbox.run(&format!("{BUILD} {{}}/500")).fails(
        3,
        "500 keys: expected at least 1000 by --max-shrink 0.5, as live generation 2 has \
            2000",
    );
    sandbox.run("rollback --store {}/s --audience a");
    let gate = &sandbox.build("{}/500")["gate"];
    assert_eq!(
        (&gate["live_generation"], &gate["live_keys"]),
        (&1.into(), &500.into())
    );
}

/// The flag asks for a comparison, which an override of another limit must not omit.
#[test]
fn minimal_overlap_with_an_unreadable_generation_is_unknown() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..1000)));
    sandbox.build("{}/ids");
    sandbox.file("s/a/manifests/1.json", "damaged");
    let build = "build --store {}/s --audience a --max-shrink 1 {}/ids";
    sandbox
        .run(&format!("{build} --min-overlap 0.9"))
        .fails(5, "--min-overlap");
    assert_eq!(sandbox.run(build).status, Some(0));
}

#[test]
fn unreadable_live_generation_needs_an_override() {
    let sandbox = sandbox(1000);
    std::fs::remove_file(sandbox.path().join("s/a/manifests/1.json")).expect("it was published");
    sandbox.run(&format!("{BUILD} {{}}/1000")).fails(
        5,
        "live generation 1 is unreadable, so the sizes cannot be compared; nothing was published; \
--max-shrink 1",
    );
    let built = sandbox.run(&format!("{BUILD} --max-shrink 1 --json {{}}/1000"));
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
    for flag in ["--max-shrink 1.1", "--max-shrink -1"] {
        assert_eq!(
            sandbox.run(&format!("{BUILD} {flag} {{}}/1")).status,
            Some(2),
            "{flag}"
        );
    }
}

#[test]
fn foreign_or_grown_list_is_rejected() {
    let sandbox = Sandbox::new();
    let list = |name: &str, range| sandbox.file(name, lines(&ids(IdKind::Md5, range)));
    list("live", 0..5000);
    list("grown", 0..25_001);
    list("foreign", 30_000..35_000);
    list("half", 2500..7500);
    sandbox.build("{}/live");
    let before = sandbox.store();
    let grown = "25001 keys, was 5,000: expected at most 25000 by --max-growth 4 over live \
                 generation 1; nothing was published; --max-growth 4.01 allows it";
    for memory in ["", "--memory 64MiB"] {
        sandbox
            .run(&format!("{BUILD} {memory} {{}}/grown"))
            .fails(3, grown);
    }
    let overlap = "overlap: expected at least --min-overlap 0.9 of the live generation's keys to \
                   stay members, found 0.5000";
    sandbox
        .run(&format!("{BUILD} --min-overlap 0.9 {{}}/half"))
        .fails(3, overlap);
    assert_eq!(sandbox.store(), before, "nothing was written");

    let overlap = |flags: &str| {
        let built = sandbox.build(&format!("--dry-run {flags}"));
        (
            built["overlap"]["live_keys_checked"].as_u64(),
            built["overlap"]["kept"].as_u64(),
        )
    };
    assert_eq!(overlap("{}/foreign"), (Some(5000), Some(0)));
    assert_eq!(
        overlap("--min-overlap 0.5 {}/half"),
        (Some(5000), Some(2500))
    );
    let text = sandbox
        .run(&format!("{BUILD} --max-growth inf {{}}/grown"))
        .stdout;
    assert!(
        text.contains("live keys checked 5,000, kept 5,000, ratio 1\n"),
        "{text}"
    );
}

/// Erased devices would be members again, and nothing would say so.
#[test]
fn build_after_a_lost_current_gives_up_no_changes_in_silence() {
    let sandbox = sandbox(1000);
    sandbox.file("erased", lines(&ids(IdKind::Md5, 0..1)));
    sandbox
        .run("remove --store {}/s --audience a --tombstone {}/erased")
        .succeeds();
    std::fs::remove_file(sandbox.path().join("s/a/CURRENT")).unwrap();
    let before = sandbox.store();
    for command in [BUILD, "publish --store {}/s --audience a"] {
        let input = if command == BUILD { " {}/1000" } else { "" };
        let refused = sandbox.run(&format!("{command}{input}"));
        refused.fails(
            5,
            "a/CURRENT is missing, and the files in a/deltas have appends, removals",
        );
        assert_eq!(sandbox.store(), before, "{command}: nothing was written");
    }
    sandbox.build("--max-shrink 1 {}/1000");
}
