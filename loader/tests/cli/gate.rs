//! The publish gate: what an empty, halved or broken export meets before it goes live, and what lets it through on purpose.

use crate::support::{Sandbox, ids, lines};
use rtad_core::device::IdKind;

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
fn a_halved_export_does_not_go_live_by_accident() {
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
            "{keys} keys, and generation 1, which is live, has 1000: --max-shrink {shrink} allows no fewer than {least}; \
             nothing was published; --max-shrink {needed} lets it through"
        );
        sandbox.run(&format!("{BUILD} {flags}")).fails(3, &said);
        assert_eq!(sandbox.store(), before, "{flags}: not a byte was written");
    }
    // At the limit, beyond it on purpose, and what grows.
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
        assert_eq!(sandbox.build(flags)["generation"], generation + 2, "{flags}");
    }
}

#[test]
fn a_first_publish_has_nothing_to_shrink_from() {
    let sandbox = sandbox(0);
    let built = sandbox.build("--max-shrink 0 {}/1");
    assert_eq!(
        (&built["generation"], &built["gate"]["live_generation"]),
        (&1.into(), &serde_json::Value::Null)
    );
}

#[test]
fn what_was_rolled_back_to_is_what_is_compared_with() {
    let sandbox = sandbox(500);
    sandbox.build("{}/2000");
    sandbox
        .run(&format!("{BUILD} {{}}/500"))
        .fails(3, "500 keys, and generation 2, which is live, has 2000");
    sandbox.run("rollback --store {}/s --audience a");
    let gate = &sandbox.build("{}/500")["gate"];
    assert_eq!((&gate["live_generation"], &gate["live_keys"]), (&1.into(), &500.into()));
}

#[test]
fn filters_that_are_too_full_or_err_too_often_do_not_go_live() {
    let sandbox = sandbox(1000);
    let live = |sandbox: &Sandbox| sandbox.store()["a/CURRENT"].clone();
    let before = live(&sandbox);
    for dry in ["", "--dry-run "] {
        sandbox.run(&format!("{BUILD} {dry}--max-fill 0.01 {{}}/2000")).fails(
            3,
            "of its bits set, --max-fill is 0.01; nothing was published; a higher --max-fill lets it through",
        );
        sandbox.run(&format!("{BUILD} {dry}--max-fpr 0 {{}}/2000")).fails(
            3,
            "--max-fpr is 0e0; nothing was published; a higher --max-fpr lets it through",
        );
    }
    assert_eq!(live(&sandbox), before);
    assert!(!sandbox.store().contains_key("a/manifests/2.json"));
    let gate = &sandbox.build("--max-fill 0.3 --max-fpr 0.01 {}/2000")["gate"];
    assert_eq!((&gate["max_fill"], &gate["max_fpr"]), (&0.3.into(), &0.01.into()));
    let gate = &sandbox.build("--fpr 0.001 {}/2000")["gate"];
    assert_eq!((&gate["max_fpr"], &gate["max_shrink"]), (&0.002.into(), &0.5.into()));
}

#[test]
fn what_cannot_be_compared_with_is_told_and_let_through_on_purpose() {
    let sandbox = sandbox(1000);
    std::fs::remove_file(sandbox.path().join("s/a/manifests/1.json")).expect("it was published");
    sandbox.run(&format!("{BUILD} {{}}/1000")).fails(
        5,
        "generation 1, which is live, cannot be compared with; nothing was published; --max-shrink 1",
    );
    assert_eq!(sandbox.build("--max-shrink 1 {}/1000")["generation"], 2);
}

#[test]
fn a_dry_run_says_that_it_would_have_gone_live() {
    let sandbox = sandbox(1000);
    let said = sandbox.run(&format!("{BUILD} --dry-run {{}}/2000"));
    assert!(said.stdout.contains("dry run of a: nothing was written to the store"), "{said:?}");
    assert!(
        said.stdout.contains(
            "  gate        passed: at least 500 keys, fpr up to 2.000e-4, fill up to 0.4"
        ),
        "{said:?}"
    );
    for flag in ["--max-shrink 1.1", "--max-shrink -1", "--max-fpr x", "--max-fill nan"] {
        assert_eq!(sandbox.run(&format!("{BUILD} {flag} {{}}/1")).status, Some(2), "{flag}");
    }
}
