//! Files of windows: kills, and disks that are full or fail.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rtad_core::device::DeviceKey;
use testkit::sandbox::{Sandbox, command};
use testkit::wait_until;

use super::{FSYNC, flags, keys, members, path, serve};
use crate::process::{Api, Serve, TOKEN};

/// Sends batches from four connections until `end` has ended the process, which it does some time
/// after the first answer. Returns the keys acknowledged as new.
fn load_until(end: impl FnOnce(Serve), serve: Serve, round: u64) -> Vec<DeviceKey> {
    let acknowledged = Mutex::new(Vec::new());
    let next = AtomicU64::new(round << 32);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut api = serve.connect();
            let (acknowledged, next, has_ended) = (&acknowledged, &next, &has_ended);
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    let first = next.fetch_add(50, Ordering::Relaxed);
                    let keys = keys(first..first + 50);
                    let body: Vec<u8> =
                        keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
                    let head = format!(
                        "POST {} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer \
                         {TOKEN}\r\nContent-Type: application/octet-stream\r\nContent-Length: \
                         {}\r\n\r\n",
                        path("w", "events"),
                        body.len()
                    );
                    api.0.send(head);
                    api.0.send(body);
                    let Some(answer) = api.0.next() else { return };
                    assert_eq!(flags(&answer, 50), [true; 50]);
                    acknowledged.lock().unwrap().extend(keys);
                }
            });
        }
        wait_until("the first answer", || {
            !acknowledged.lock().unwrap().is_empty()
        });
        // A moment that differs from round to round.
        std::thread::sleep(Duration::from_millis(round * 37 % 200));
        end(serve);
        has_ended.store(true, Ordering::Relaxed);
    });
    acknowledged.into_inner().unwrap()
}

fn kills() -> u64 {
    std::env::var("KILLS").map_or(20, |text| text.parse().unwrap())
}

/// Room for the events of all rounds: a full window refuses events.
fn with_room(windows: &str) -> String {
    windows.replace("5_000_000", &5_000_000.max(kills() * 120_000).to_string())
}

/// `KILLS` sets the number of kills. Also with `interval`, only the machine's end loses events.
#[test]
fn acknowledged_events_survive_every_kill() {
    for durability in ["fsync", "interval"] {
        let (sandbox, windows) = (
            Sandbox::with_store(),
            with_room(&FSYNC.replace("fsync", durability)),
        );
        let mut acknowledged = Vec::new();
        for round in 0..kills() / 4 {
            acknowledged.extend(load_until(Serve::kill, serve(&sandbox, &windows), round));
            let serve = serve(&sandbox, &windows);
            let mut api = serve.connect();
            for keys in acknowledged.chunks(10_000) {
                let seen = flags(&api.binary(&path("w", "check"), keys), keys.len());
                let lost = seen.iter().filter(|seen| !**seen).count();
                let total = acknowledged.len();
                assert_eq!(lost, 0, "{durability}, round {round}, {total} acknowledged");
            }
            serve.kill();
        }
    }
}

/// `STOPS` sets the number of stops. Each start after one has an empty directory: it finds what the
/// store has, and only if the lease was given back.
#[test]
fn stop_under_load_brings_every_acknowledged_event_to_the_store() {
    let stops = std::env::var("STOPS").map_or(4, |text| text.parse().unwrap());
    let windows = FSYNC.replace("5_000_000", &5_000_000.max(stops * 120_000).to_string());
    let (sandbox, mut acknowledged) = (Sandbox::with_store(), Vec::new());
    for round in 0..stops {
        let owner = serve(&sandbox, &windows);
        let Api(mut unfinished) = owner.connect();
        unfinished.send("GET / HTTP/1.1\r\nHost: rtad\r\n");
        let stop = |owner: Serve| {
            owner.signal("TERM");
            let outcome = owner.wait();
            assert_eq!(outcome.status, Some(0), "stop {round}: {outcome:?}");
        };
        acknowledged.extend(load_until(stop, owner, round));
        std::fs::remove_dir_all(sandbox.path().join("state")).unwrap();
        let moved = serve(&sandbox, &windows);
        let mut api = moved.connect();
        for keys in acknowledged.chunks(10_000) {
            let seen = flags(&api.binary(&path("w", "check"), keys), keys.len());
            let lost = seen.iter().filter(|seen| !**seen).count();
            assert_eq!(lost, 0, "stop {round}, {} acknowledged", acknowledged.len());
        }
        moved.signal("TERM");
        assert_eq!(moved.wait().status, Some(0));
    }
}

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
    Serve::spawn(&mut limited)
}

#[test]
fn failing_log_ends_the_process_and_the_next_start_has_what_was_acknowledged() {
    let sandbox = Sandbox::with_store();
    let windows = format!("{FSYNC}[[audience]]\nname = \"a\"\nfrom_window = \"w\"\n")
        .replace("5_000_000", "100_000");
    let limited = serve_limited(&sandbox, &windows);
    let mut api = limited.connect();
    let mut acknowledged = Vec::new();
    let refused = (0..50_000)
        .step_by(500)
        .map(|first| keys(first..first + 500))
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
    assert!(!acknowledged.is_empty());
    let ended = limited.wait();
    let message = "log of a window not written";
    assert!(
        ended.status == Some(1) && ended.stderr.contains(message),
        "{ended:?}"
    );

    let serve = serve(&sandbox, &windows);
    let is_published = |keys: &[DeviceKey], expected: usize| {
        wait_until("the audience", || {
            members(&sandbox, "a", keys).len() == expected
        });
    };
    is_published(&acknowledged, acknowledged.len());
    is_published(&refused, 0);
    let answer = serve.connect().binary(&path("w", "events"), &refused);
    assert_eq!(flags(&answer, 500), [true; 500]);
    is_published(&refused, refused.len());
}
