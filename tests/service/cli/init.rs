//! Tests of `rtad init`.

use std::path::Path;

use crate::rtad_process::run;
use rtad::platform::KINDS;

#[test]
fn written_config_is_valid_for_each_platform_alone_and_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = KINDS.map(|kind| kind.rules.word);
    let single = kinds.iter().chain(&["none"]).map(|kind| vec![*kind]);
    for (number, kinds) in single.chain([kinds.to_vec()]).enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        let file = file.to_str().unwrap();
        let mut arguments = vec!["init", "--store", "s3://ads/it's", file];
        arguments.extend(kinds.iter().flat_map(|kind| ["--platform", kind]));
        let made = run(&arguments, &[]);
        assert_eq!((made.status, &*made.stderr), (Some(0), ""), "{kinds:?}");
        let build = "rtad-loader build --store 's3://ads/it'\\''s' --audience old_users ids.txt";
        for line in [build, &format!("rtad serve --config {file}")] {
            assert!(
                made.stdout.lines().any(|found| found == line),
                "{}",
                made.stdout
            );
        }
        let checked = run(&["check-config", file], &[]);
        assert_eq!(checked.status, Some(0), "{}", checked.stderr);
        for kind in kinds.iter().filter(|kind| **kind != "none") {
            let platform = format!(": {kind} at /rta/");
            assert!(checked.stderr.contains(&platform), "{}", checked.stderr);
        }
        let rule = "strategy   new-users: bid unless in old_users";
        assert!(checked.stderr.contains(rule), "{}", checked.stderr);
    }
}

#[test]
fn placeholder_in_a_value_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtad.toml");
    let file = file.to_str().unwrap();
    let values = ["--store", "./STORE"];
    let made = run(
        &[&["init", "--platform", "none"], &values[..], &[file]].concat(),
        &[],
    );
    assert_eq!((made.status, &*made.stderr), (Some(0), ""));
    let checked = run(&["check-config", file], &[]);
    let line = "url = \"./STORE\"";
    assert!(
        checked.stdout.lines().any(|found| found == line),
        "{}",
        checked.stdout
    );
}

#[test]
fn existing_file_and_mistakes_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtad.toml");
    let init = |arguments: &[&str]| {
        let file = file.to_str().unwrap();
        let made = run(
            &[&["init", "--platform", "none"], arguments, &[file]].concat(),
            &[],
        );
        (made.status, made.stderr.replace(file, "FILE"))
    };
    let required = "error: --store: required without a terminal\n";
    assert_eq!(init(&[]), (Some(2), required.to_owned()));
    let (status, message) = init(&["--store", "ftp://ads"]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.starts_with("error: FILE:"), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(&file, "mine").unwrap();
    let exists = "error: FILE: exists already; give another name, or remove it\n";
    assert_eq!(init(&["--store", "./store"]), (Some(1), exists.to_owned()));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    let made = run(
        &["init", "--store=s", "--platform=none", "/nowhere/rtad.toml"],
        &[],
    );
    assert_eq!(made.status, Some(1));
    assert!(
        made.stderr
            .starts_with("error: could not write /nowhere/rtad.toml: "),
        "{made:?}"
    );
    assert!(!Path::new("/nowhere").exists());
}
