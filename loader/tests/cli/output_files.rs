//! Files of flags: none overwrites an input or another one, and none is half-written.

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};

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
