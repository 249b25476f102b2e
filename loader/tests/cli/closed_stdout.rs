//! Stdout without a reader: files are written nevertheless, and lost data is a failure.

use std::process::Stdio;

use rtad_core::device::IdKind;
use testkit::process::Outcome;
use testkit::sandbox::{Sandbox, command, ids, lines};

/// Runs a command whose stdout never has a reader.
fn without_a_reader(sandbox: &Sandbox, arguments: &str) -> Outcome {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(sandbox.path(), arguments);
    let output = command.stdin(Stdio::null()).stdout(writer).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Outcome { status: output.status.code(), stdout: String::new(), stderr }
}

#[test]
fn metrics_are_written_without_a_reader_of_the_report() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..100)));
    let built =
        without_a_reader(&sandbox, "build --store {}/s --audience a --metrics-file {}/m {}/ids");
    built.succeeds();
    let metrics = std::fs::read_to_string(sandbox.path().join("m")).unwrap();
    assert!(metrics.contains("rtad_build_timestamp_seconds{audience=\"a\"} "), "{metrics}");
}

/// The job is needed by every later step.
#[test]
fn lost_job_is_a_failure() {
    let sandbox = Sandbox::new();
    let begin = "begin --store {}/s --audience a --changes {}/changes";
    let job = sandbox.run(begin).json();
    sandbox.file("job", job.to_string());
    for arguments in [begin, "chunk --cut --keys 2000 --job {}/job"] {
        without_a_reader(&sandbox, arguments).fails(1, "could not write to stdout");
    }
}
