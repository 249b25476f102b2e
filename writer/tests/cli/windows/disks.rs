//! Disks of owners that are full or fail.

use std::process::Command;

use rtad_core::device::DeviceKey;
use testkit::sandbox::{Sandbox, command};
use testkit::wait_until;

use super::{WINDOW, flags, keys, members, path, serve};
use crate::process::{Serve, TOKEN};

/// The limit on the size of files stands for a full disk: a write that fails, in the real process.
fn serve_limited(sandbox: &Sandbox, windows: &str) -> Serve {
    sandbox.file("tokens", format!("{TOKEN}\n"));
    let state = sandbox.path().join("state").display().to_string();
    sandbox.file("writer.toml", format!("state_dir = {state:?}\n{windows}"));
    let start = "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
                 {}/tokens --every 5ms --config {}/writer.toml";
    let program = command(sandbox.path(), start);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -S -f 200; exec \"$0\" \"$@\""]);
    limited.arg(program.get_program()).args(program.get_args());
    Serve::spawn(&mut limited).until_owner()
}

#[test]
fn failing_log_ends_the_process_and_the_next_start_has_what_was_acknowledged() {
    let sandbox = Sandbox::with_store();
    let windows = format!("{WINDOW}[[audience]]\nname = \"a\"\nfrom_window = \"w\"\n")
        .replace("5_000_000", "100_000");
    let limited = serve_limited(&sandbox, &windows);
    let mut api = limited.connect();
    let mut acknowledged = Vec::new();
    // Each batch takes more than the limit, and is a segment of its own.
    let refused = (0..50_000)
        .step_by(5000)
        .map(|first| keys(first..first + 5000))
        .find(|batch| {
            let answer = api.binary(&path("w", "events"), batch);
            if answer.status == 200 {
                acknowledged.extend(batch.iter().copied());
                return false;
            }
            answer.problem(503, "not_durable");
            true
        })
        .unwrap();
    let ended = limited.wait();
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("window w ended"), "{ended:?}");

    let serve = serve(&sandbox, &windows);
    let is_published = |keys: &[DeviceKey], expected: usize| {
        wait_until("the audience", || {
            members(&sandbox, "a", keys).len() == expected
        });
    };
    is_published(&acknowledged, acknowledged.len());
    let answer = serve.connect().binary(&path("w", "events"), &refused);
    assert_eq!(flags(&answer, refused.len()), vec![true; refused.len()]);
    is_published(&refused, refused.len());
}
