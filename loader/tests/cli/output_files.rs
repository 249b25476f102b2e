//! Files of flags: none overwrites an input or another one, and none is half-written.

use std::process::Command;

use rtad_core::device::IdKind;
use testkit::process::run;
use testkit::sandbox::{Sandbox, ids, lines};

use crate::support::LOADER;

/// Names of the files in the folder, sorted.
fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = std::fs::read_dir(sandbox.path()).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn temporary_name_of_a_file_is_no_input() {
    let sandbox = Sandbox::new();
    let text = lines(&ids(IdKind::Md5, 0..100));
    let input = sandbox.file("out.partial", &text);
    sandbox
        .run("dedup --count --quiet --report {}/out {}/out.partial")
        .succeeds();
    assert_eq!(std::fs::read_to_string(&input).unwrap(), text);
    assert_eq!(names(&sandbox), ["out", "out.partial"]);
}

/// A file-size limit stands in for a full disk.
#[test]
fn picture_on_a_full_disk_keeps_the_old_one() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..100)));
    sandbox.build("{}/ids");
    let inspect = "inspect --store {}/s --audience a --quiet --plot";
    sandbox
        .run(&format!("{inspect} -"))
        .status
        .filter(|code| *code == 2)
        .unwrap();
    let old = sandbox.file("p.svg", "the old picture");
    let limited = format!(
        "trap '' XFSZ; ulimit -f 8; exec {LOADER} inspect --store {dir}/s --audience a --plot \
         {dir}/p.svg",
        dir = sandbox.path().display()
    );
    run(Command::new("sh").args(["-c", &limited]), b"").fails(1, "p.svg: could not write it");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "the old picture");
    assert_eq!(names(&sandbox), ["ids", "p.svg", "s"]);
    sandbox.run(&format!("{inspect} {{}}/p.svg")).succeeds();
    assert!(std::fs::read_to_string(&old).unwrap().ends_with("</svg>\n"));
}
