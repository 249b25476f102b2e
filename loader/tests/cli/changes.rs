//! `append` and `remove` in a directory: damage, signatures and expiry.

use rtad_core::device::IdKind;
use testkit::sandbox::{ids, lines};
use testkit::store::manifest_file;

use crate::appending::TestStore;

#[test]
fn tombstone_holds_until_it_is_lifted() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..300);
    target.over("build", &all).json();
    assert_eq!(
        target.over("remove --tombstone", &all[..20]).json()["tombstones"],
        20
    );
    let appended = target.over("append", &all[..30]).json();
    assert_eq!(
        (&appended["entombed"], &appended["added"]),
        (&20.into(), &10.into())
    );
    let text = target.run("list", "").stdout;
    assert!(text.contains("20 tombstones, live"), "{text}");
    let lifted = target.over("append --lift-tombstone", &all[..5]).json();
    assert_eq!(
        (&lifted["tombstones"], &lifted["added"]),
        (&15.into(), &5.into())
    );
    assert_eq!(target.members(&all[..20]), 5);
}

#[test]
fn bad_input_changes_nothing() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..100);
    target.over("build", &all).json();
    let before = target.sandbox.store();
    target
        .over("append", &["nonsense".to_owned()])
        .fails(3, "no usable id in 1 rows");
    target.sandbox.file("new", lines(&all));
    let dry = target.run("append", "--dry-run --json {}/new").json();
    assert_eq!(
        (&dry["dry_run"], &dry["usable"]),
        (&true.into(), &100.into())
    );
    assert_eq!(target.run("append", "").status, Some(2));
    assert_eq!(target.sandbox.store(), before);
}

#[test]
fn rollback_past_a_damaged_manifest_needs_lose_deltas() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..120);
    target.over("build", &all[..100]).json();
    target.over("append", &all[100..110]).json();
    target.over("build", &all[..100]).json();
    target.over("append", &all[110..]).json();
    let manifest = manifest_file(&target.sandbox.path().join("s/a"), 2);
    let sound = std::fs::read(&manifest).unwrap();
    for damage in [Some("{"), None] {
        match damage {
            Some(text) => std::fs::write(&manifest, text).unwrap(),
            None => std::fs::remove_file(&manifest).unwrap(),
        }
        let before = target.sandbox.store();
        target
            .run("rollback", "--to 1")
            .fails(5, "--lose-deltas rolls back without them");
        assert_eq!(target.sandbox.store(), before);
    }
    target.run("rollback", "--to 1 --lose-deltas --quiet");
    // Deltas that no generation merged are kept.
    assert_eq!(
        (
            target.members(&all[..100]),
            target.members(&all[100..110]),
            target.members(&all[110..])
        ),
        (100, 0, 10)
    );
    std::fs::write(&manifest, sound).unwrap();
    target.run("rollback", "--to 2 --quiet");
    assert_eq!(target.members(&all), 120);
}

/// As of a job that is retried after a lost answer.
#[test]
fn repeated_rollback_needs_to() {
    let target = TestStore::directory();
    let all = ids(IdKind::Md5, 0..120);
    target.over("build", &all).json();
    target.run("rollback", "").fails(
        5,
        "no generation is kept that was live before 1; --to makes another one live",
    );
    for _ in 0..2 {
        target.over("build", &all).json();
    }
    assert_eq!(target.run("rollback", "--json").json()["generation"], 2);
    let before = target.sandbox.store();
    target.run("rollback", "").fails(
        2,
        "generation 3 was rolled back before, and generation 2 is live; to roll back further, \
         name the generation with --to",
    );
    assert_eq!(target.sandbox.store(), before);
    let back = target.run("rollback", "--to 1 --json").json();
    assert_eq!(back["generation"], 1);

    target.over("build", &all).json();
    assert_eq!(target.run("rollback", "--json").json()["generation"], 1);
}
