//! SIGTERM and SIGINT: a message, an object with `--json`, and nothing published.

use std::os::unix::process::ExitStatusExt;

use rtad_core::device::IdKind;
use serde_json::Value;
use testkit::process::{signal, spawn};
use testkit::sandbox::{Sandbox, command, ids, lines};
use testkit::wait_until;

/// A command that waits for the rest of its stdin, stopped by a signal.
fn stopped_while_reading(sandbox: &Sandbox, arguments: &str, name: &str) -> std::process::Output {
    let mut child = spawn(&mut command(sandbox.path(), arguments));
    let stdin = child.stdin.take().expect("a pipe");
    // Before that, a signal ends it without a word.
    wait_until("signals are watched", || watches_signals(child.id()));
    signal(child.id(), name);
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    output
}

fn watches_signals(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut names = Vec::new();
    for task in tasks {
        let name = std::fs::read_to_string(task.expect("a thread").path().join("comm"));
        names.push(name.unwrap_or_default());
    }
    names.iter().any(|name| name.trim() == "signals")
}

#[test]
fn stopped_command_says_so_and_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..1000)));
    sandbox.build("{}/ids");
    let before = sandbox.store();
    let store = "--store {}/s --audience a";
    for (name, number, code, error) in [
        ("TERM", 15, 143, "terminated"),
        ("INT", 2, 130, "interrupted"),
    ] {
        for (command, effect) in [
            (format!("build {store} -"), "nothing was published"),
            (
                format!("build {store} --dry-run -"),
                "nothing was published",
            ),
            (
                format!("build {store} --memory 64MiB -"),
                "nothing was published",
            ),
            (format!("publish {store}"), "nothing was published"),
            (format!("append {store} -"), "nothing was changed"),
            (format!("remove {store} -"), "nothing was changed"),
            (
                format!("verify {store} --against -"),
                "the output is incomplete",
            ),
            ("dedup -".to_owned(), "the output is incomplete"),
        ] {
            let message = format!("stopped by SIG{name}; {effect}");
            let output = stopped_while_reading(&sandbox, &command, name);
            assert_eq!(output.status.signal(), Some(number), "{command}");
            let stderr = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!(stderr, format!("error: {message}\n"), "{command}");

            let output = stopped_while_reading(&sandbox, &format!("{command} --json"), name);
            let stdout = String::from_utf8(output.stdout).expect("UTF-8");
            let last = stdout.lines().last().expect("an object");
            let failure: Value = serde_json::from_str(last).expect("JSON");
            assert_eq!(failure["exit_code"], code, "{command}");
            assert_eq!(failure["error"], error, "{command}");
            assert_eq!(failure["message"], message, "{command}");
            assert_eq!(sandbox.store(), before, "{command}");
        }
    }
}

/// A reader that has stopped must not keep the command alive.
#[test]
fn stopped_command_ends_although_its_stdout_is_full() {
    let sandbox = Sandbox::new();
    let mut child = spawn(&mut command(
        sandbox.path(),
        "synth --count 10000000 --id-kind md5",
    ));
    wait_until("the pipe is full", || watches_signals(child.id()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(child.id(), "TERM");
    // stdout is not read meanwhile.
    wait_until("it has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(15));
}

/// As of a shell's command in the background.
#[test]
fn ignored_signal_stays_ignored() {
    let sandbox = Sandbox::new();
    sandbox.file("ids", lines(&ids(IdKind::Md5, 0..1000)));
    let program = command(sandbox.path(), "").get_program().to_owned();
    let folder = sandbox.path().display();
    let shell = format!(
        "trap '' INT; exec {} build --store {folder}/s --audience a {folder}/ids -",
        program.display()
    );
    let mut child = spawn(std::process::Command::new("sh").args(["-c", &shell]));
    wait_until("it runs", || watches_signals(child.id()));
    signal(child.id(), "INT");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
