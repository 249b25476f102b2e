//! Signed publishing: keys as `minisign` writes them, the commands that verify, and a second
//! implementation that verifies the files.

use std::path::{Path, PathBuf};
use std::process::Command;

use rtad_core::device::IdKind;
use testkit::process::{Outcome, outcome, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::server::FileServer;

/// Keys of the reference implementation.
fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/minisign")
        .join(name)
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..1000)));
    for name in ["a.key", "a.pub", "b.pub", "protected.key", "protected.pub"] {
        std::fs::copy(key(name), sandbox.path().join(name)).expect("a writable folder");
    }
    sandbox
}

/// The path of a record in the store.
fn record(audience: &str, number: u64) -> String {
    format!("{audience}/records/{number:020}.json")
}

const BUILD: &str = "build --store {}/s --audience a --json {}/ids";

/// Runs with `RTAD_SIGN_PASSWORD` set.
fn with_password(sandbox: &Sandbox, arguments: &str, password: &str) -> Outcome {
    outcome(spawn(
        command(sandbox.path(), arguments).env("RTAD_SIGN_PASSWORD", password),
    ))
}

/// Verifies a record of an audience with the second implementation and the key of a `.pub` file.
fn python(sandbox: &Sandbox, public_key: &str, audience: &str, number: u64) -> Result<(), String> {
    let file = record(audience, number);
    let text = std::fs::read_to_string(key(public_key)).expect("a key");
    let checked = Command::new("python3")
        .arg(key("../minisign.py"))
        .arg(text.lines().nth(1).expect("a key's second line"))
        .arg(sandbox.path().join("s").join(&file))
        .arg(file)
        .output()
        .expect("python3 is installed");
    match checked.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&checked.stderr).into_owned()),
    }
}

#[test]
fn signatures_are_verified_by_commands_and_a_second_implementation() {
    let sandbox = sandbox();
    let signed = sandbox
        .run(&format!(
            "{BUILD} --sign-key {{}}/a.key --public-key {{}}/a.pub"
        ))
        .json();
    assert_eq!(
        (&signed["generation"], &signed["signed"]),
        (&1.into(), &true.into())
    );
    assert_eq!(python(&sandbox, "a.pub", "a", 1), Ok(()));
    assert!(
        python(&sandbox, "b.pub", "a", 1)
            .unwrap_err()
            .contains("signed by another key")
    );
    sandbox
        .run(&format!("{BUILD} --sign-key {{}}/a.key"))
        .json();

    let web = FileServer::serve(&sandbox.path().join("s"));
    let public = std::fs::read_to_string(key("a.pub")).expect("a key");
    let alone = public.lines().nth(1).expect("a key's second line");
    for keys in [
        "--public-key {}/a.pub",
        "--public-key {}/b.pub --public-key {}/a.pub",
        &format!("--public-key {alone}"),
    ] {
        for store in ["{}/s", &web.url()] {
            let verify = format!("verify --store {store} --audience a {keys} --json --probes 1000");
            sandbox.run(&verify).json();
        }
        let listed = sandbox
            .run(&format!("list --store {{}}/s {keys} --json"))
            .json();
        assert_eq!(listed["audiences"][0]["generations"][1]["keys"], 1000);
        let rollback = format!("rollback --store {{}}/s --audience a --sign-key {{}}/a.key {keys}");
        sandbox.run(&rollback).succeeds();
        sandbox.run(&format!("{rollback} --to 2")).succeeds();
    }
    let number = 8;
    assert_eq!(python(&sandbox, "a.pub", "a", number), Ok(()));
    for (name, is_accepted) in [("a.pub", true), ("b.pub", false)] {
        let public = std::fs::read_to_string(key(name)).expect("a key");
        let read = Command::new("python3")
            .arg(key("../snapshot_reader.py"))
            .arg(sandbox.path().join("s"))
            .args(["a", "--check", "--public-key"])
            .arg(public.lines().nth(1).expect("a key's second line"))
            .output()
            .expect("python3 is installed");
        assert_eq!(read.status.success(), is_accepted, "{read:?}");
    }
    let refused = format!(
        "{}: is signed by a key that is not among the public keys",
        record("a", number)
    );
    for name in [
        "verify --audience a",
        "gc --audience a",
        "list",
        "list --audience a",
    ] {
        sandbox
            .run(&format!(
                "{name} --store {{}}/s --public-key {{}}/b.pub --json"
            ))
            .fails(4, &refused);
    }
    let listed = sandbox.run("list --store {}/s --public-key {}/b.pub");
    assert!(
        listed
            .stdout
            .contains("newest record unreadable: signature\n"),
        "{listed:?}"
    );
    assert_eq!(listed.status, Some(4), "{listed:?}");
    assert!(listed.stderr.contains(&refused), "{listed:?}");
}

#[test]
fn unusable_key_fails_before_input_is_read() {
    let sandbox = sandbox();
    sandbox.file("text", "not a key");
    sandbox.file("binary", [0xff; 100]);
    let checked = std::fs::read_to_string(key("checked.key")).expect("a key");
    let key = std::fs::read_to_string(key("a.key")).expect("a key");
    sandbox.file("cut", &key[..150]);
    // A letter of the secret, and one of its checksum.
    assert!(key.contains("OAjftC") && checked.contains("zHcdHvz"));
    sandbox.file("changed", key.replace("OAjftC", "OBjftC"));
    sandbox.file("miscounted", checked.replace("zHcdHvz", "zHcdHvy"));
    let secret = key.lines().nth(1).expect("a key's second line");
    for (flags, text) in [
        ("--sign-key {}/none", "none: No such file or directory"),
        (
            "--sign-key {}/text",
            "text: not a minisign secret key; create one with `minisign -G`",
        ),
        ("--sign-key {}/binary", "not a minisign secret key"),
        ("--sign-key {}/cut", "not a minisign secret key"),
        ("--sign-key {}/changed", "not a minisign secret key"),
        ("--sign-key {}/miscounted", "not a minisign secret key"),
        ("--sign-key {}/a.pub", "not a minisign secret key"),
        (
            "--sign-key {}/protected.key",
            "is protected by a password; set the environment variable RTAD_SIGN_PASSWORD",
        ),
        ("--public-key {}/a.pub", "--public-key without --sign-key"),
    ] {
        let failed = sandbox.run(&format!(
            "build --store {{}}/s --audience a {flags} {{}}/never-read"
        ));
        failed.fails(2, text);
        assert!(!failed.stderr.contains(&secret[60..100]), "{failed:?}");
    }
    let other =
        "build --store {}/s --audience a --sign-key {}/a.key --public-key {}/b.pub {}/never-read";
    sandbox
        .run(other)
        .fails(4, "is signed by a key that is not among the public keys");
    let usage = sandbox.run("verify --store {}/s --audience a --public-key {}/a.key");
    assert!(
        usage.status == Some(2) && usage.stderr.contains("not a minisign public key"),
        "{usage:?}"
    );
    assert!(!usage.stderr.contains(&secret[60..100]), "{usage:?}");
    // The secret itself in place of its file.
    for command in [
        format!("verify --store {{}}/s --audience a --public-key {secret}"),
        format!("build --store {{}}/s --audience a --sign-key {secret} {{}}/never-read"),
    ] {
        let failed = sandbox.run(&command);
        failed.fails(2, "(the text of a key, which is not repeated)");
        assert!(!failed.stderr.contains(&secret[60..100]), "{failed:?}");
    }
    assert!(sandbox.store().is_empty());
}

/// One test for both cases, because the key derivation takes a second and 1 GiB.
#[test]
fn protected_key_takes_its_password_from_the_environment() {
    let sandbox = sandbox();
    let build = format!("{BUILD} --sign-key {{}}/protected.key");
    with_password(&sandbox, &build, "wrong horse")
        .fails(2, "RTAD_SIGN_PASSWORD is not its password");
    assert!(sandbox.store().is_empty());
    with_password(&sandbox, &build, "correct horse").json();
    assert_eq!(python(&sandbox, "protected.pub", "a", 1), Ok(()));
    // A key without a password needs no variable, whichever tool created it.
    for name in ["a", "checked"] {
        std::fs::copy(key(&format!("{name}.key")), sandbox.path().join("key"))
            .expect("a writable folder");
        let audience = format!("of-{name}");
        let build =
            format!("build --store {{}}/s --audience {audience} --json --sign-key {{}}/key");
        with_password(&sandbox, &format!("{build} {{}}/ids"), "whatever").json();
        assert_eq!(
            python(&sandbox, &format!("{name}.pub"), &audience, 1),
            Ok(())
        );
    }
}

#[test]
fn dry_run_checks_the_key_and_signs_nothing() {
    let sandbox = sandbox();
    let dry = sandbox
        .run(&format!("{BUILD} --sign-key {{}}/a.key --dry-run"))
        .json();
    assert_eq!((&dry["signed"], sandbox.store().len()), (&false.into(), 0));
}

const UNSIGNED: &str = "a is signed, and pods with public keys refuse unsigned changes to it; \
                        nothing was changed; sign them with --sign-key";

#[test]
fn unsigned_change_of_a_signed_audience_is_refused() {
    let sandbox = sandbox();
    sandbox.file("some", lines(&ids(IdKind::Md5, 0..9)));
    for _ in 0..2 {
        sandbox
            .run(&format!("{BUILD} --sign-key {{}}/a.key"))
            .json();
    }
    let before = sandbox.store();
    for command in [
        BUILD,
        "publish --store {}/s --audience a",
        "append --store {}/s --audience a {}/some",
        "remove --store {}/s --audience a --tombstone {}/some",
        "rollback --store {}/s --audience a",
        "gc --store {}/s --audience a --keep 1 --min-age 0s",
    ] {
        sandbox.run(command).fails(4, UNSIGNED);
        assert_eq!(sandbox.store(), before, "{command}");
    }
    // A gc that drops no generation signs nothing, but removes only what a trusted record allows.
    let gc = "gc --store {}/s --audience a";
    sandbox.run(gc).fails(4, UNSIGNED);
    sandbox
        .run(&format!("{gc} --public-key {{}}/a.pub"))
        .succeeds();
    sandbox
        .run("gc --store {}/s --audience a --keep 1 --min-age 0s --dry-run")
        .succeeds();
    assert_eq!(sandbox.store(), before);

    sandbox
        .run("rollback --store {}/s --audience a --public-key {}/a.pub")
        .fails(2, "--public-key without --sign-key");
}

#[test]
fn rollback_and_gc_sign_their_records() {
    let sandbox = sandbox();
    for _ in 0..2 {
        sandbox
            .run(&format!("{BUILD} --sign-key {{}}/a.key"))
            .json();
    }
    let list = "list --store {}/s --public-key {}/a.pub";
    let back = sandbox
        .run("rollback --store {}/s --audience a --sign-key {}/a.key --json")
        .json();
    assert_eq!(
        (&back["generation"], &back["signed"]),
        (&1.into(), &true.into())
    );
    sandbox.run(list).succeeds();
    sandbox
        .run("rollback --store {}/s --audience a --sign-key {}/a.key --to 2")
        .succeeds();

    let gc = "gc --store {}/s --audience a --keep 1 --min-age 0s --json";
    std::fs::copy(key("checked.key"), sandbox.path().join("new.key")).expect("a writable folder");
    sandbox
        .run(&format!("{gc} --sign-key {{}}/new.key"))
        .fails(4, "is not signed by the key of --sign-key");
    let done = sandbox.run(&format!("{gc} --sign-key {{}}/a.key")).json();
    assert_eq!(done["removed_generations"], serde_json::json!([1]));
    assert_eq!(python(&sandbox, "a.pub", "a", 5), Ok(()));
    sandbox.run(list).succeeds();
}

/// `rtad serve` with the new key alone reads what a rotation leaves.
#[test]
fn rotation_signs_the_next_record() {
    let sandbox = sandbox();
    sandbox.file("gone", lines(&ids(IdKind::Md5, 0..3)));
    std::fs::copy(key("checked.key"), sandbox.path().join("new.key")).expect("a writable folder");
    std::fs::copy(key("checked.pub"), sandbox.path().join("new.pub")).expect("a writable folder");
    sandbox
        .run(&format!("{BUILD} --sign-key {{}}/a.key"))
        .json();
    sandbox
        .run("remove --store {}/s --audience a --tombstone --sign-key {}/a.key {}/gone --quiet")
        .succeeds();
    let rotate = format!("{BUILD} --sign-key {{}}/new.key");
    sandbox
        .run(&rotate)
        .fails(4, "is not signed by the key of --sign-key");
    sandbox
        .run("list --store {}/s --public-key {}/a.pub")
        .succeeds();
    let both = "--public-key {}/a.pub --public-key {}/new.pub";
    sandbox.run(&format!("{rotate} {both}")).json();
    sandbox
        .run("list --store {}/s --public-key {}/new.pub")
        .succeeds();
    sandbox
        .run("verify --store {}/s --audience a --probes 1000 --public-key {}/new.pub")
        .succeeds();
    // A record by the old key is refused by readers of the new one.
    sandbox.file("more", lines(&ids(IdKind::Md5, 5..6)));
    sandbox
        .run(&format!(
            "remove --store {{}}/s --audience a --tombstone --sign-key {{}}/a.key {both} {{}}/more"
        ))
        .succeeds();
    sandbox
        .run("list --store {}/s --public-key {}/new.pub --json")
        .fails(
            4,
            ".json: is signed by a key that is not among the public keys",
        );
}

#[test]
fn signing_run_refuses_what_others_wrote() {
    let sandbox = sandbox();
    sandbox.file("evil", lines(&ids(IdKind::Md5, 5000..5001)));
    let sign = "--sign-key {}/a.key";
    sandbox.run(&format!("{BUILD} {sign}")).json();
    sandbox
        .run(&format!(
            "append --store {{}}/s --audience a {sign} {{}}/evil --quiet"
        ))
        .succeeds();
    // An intruder with write access has no key.
    let newest = sandbox.path().join("s").join(record("a", 2));
    let signed = std::fs::read_to_string(&newest).expect("a record");
    let (content, _) = signed.split_once('\n').expect("a signature");
    std::fs::write(&newest, format!("{content}\n")).expect("a writable folder");
    let before = sandbox.store();
    for command in [
        format!("{BUILD} {sign}"),
        format!("publish --store {{}}/s --audience a {sign}"),
        format!("append --store {{}}/s --audience a {sign} {{}}/evil"),
        format!("remove --store {{}}/s --audience a {sign} {{}}/evil"),
        format!("rollback --store {{}}/s --audience a {sign}"),
        format!("gc --store {{}}/s --audience a {sign}"),
    ] {
        sandbox
            .run(&command)
            .fails(4, ".json: is not signed by the key of --sign-key");
    }
    assert_eq!(sandbox.store(), before);
    sandbox.run("list --store {}/s").succeeds();
    let list = "list --store {}/s --public-key {}/a.pub --json";
    sandbox
        .run(list)
        .fails(4, "is not signed, and public keys are configured");

    // The way out is to remove the record, and to say so: a lost record looks the same.
    std::fs::remove_file(&newest).expect("a writable folder");
    sandbox.run(list).fails(5, "/LATEST names it");
    std::fs::write(sandbox.path().join("s/a/LATEST"), "1\n").expect("a writable folder");
    sandbox.run(list).json();
    sandbox.run(&format!("{BUILD} {sign}")).json();
    sandbox.run(list).json();
}

#[test]
fn unsigned_audience_cannot_become_signed() {
    let sandbox = sandbox();
    sandbox.run(BUILD).json();
    let sign = format!("{BUILD} --sign-key {{}}/a.key");
    sandbox
        .run(&sign)
        .fails(4, "1.json: is not signed by the key of --sign-key")
        .fails(4, "to begin signing, publish to a new audience");
    sandbox
        .run(&format!("{sign} --public-key {{}}/a.pub"))
        .fails(4, "1.json: is not signed, and public keys are configured");
    sandbox
        .run(&sign.replace("--audience a", "--audience b"))
        .json();
    assert_eq!(python(&sandbox, "a.pub", "b", 1), Ok(()));
}
