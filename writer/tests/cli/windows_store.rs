//! Checkpoints of windows in the store: an owner with an empty directory starts from them, and the
//! previous owner is fenced.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rtad_core::device::DeviceKey;
use testkit::client::metric;
use testkit::process::{Outcome, Service};
use testkit::sandbox::{Sandbox, command, directory_or_bucket};
use testkit::store::{Depot, newest_record};
use testkit::wait_until;

use crate::process::{Api, Serve, TOKEN};

const EVENTS: &str = "/v1/windows/w/events";
const WINDOW: &str = "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = 100_000\n\
                      count = 2\ndurability = \"fsync\"\n";

fn config(sandbox: &Sandbox, state: &str, windows: &str) {
    let dir = sandbox.path().join(state).display().to_string();
    let file = format!("state_dir = {dir:?}\nlease = \"3s\"\n{windows}");
    sandbox.file(&format!("{state}.toml"), file);
}

/// An owner with its own directory.
fn serve(sandbox: &Sandbox, store: &str, state: &str) -> Serve {
    config(sandbox, state, WINDOW);
    Serve::over(sandbox, store, &format!("--config {{}}/{state}.toml"))
}

/// An owner with an empty directory, of a window that was not given back.
fn take_over(sandbox: &Sandbox, store: &str, state: &str) -> Serve {
    config(sandbox, state, WINDOW);
    Serve::over(
        sandbox,
        store,
        &format!("--config {{}}/{state}.toml --take-over w"),
    )
}

/// The message of an owner that does not start.
fn refused(sandbox: &Sandbox, store: &str, state: &str) -> String {
    refused_with(sandbox, store, state, WINDOW)
}

fn refused_with(sandbox: &Sandbox, store: &str, state: &str, windows: &str) -> String {
    config(sandbox, state, windows);
    let outcome = ended(sandbox, store, &format!("{state}.toml --take-over w"));
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    outcome.stderr
}

/// A start that ends, with this config and these flags.
fn ended(sandbox: &Sandbox, store: &str, config: &str) -> Outcome {
    sandbox.file("tokens", format!("{TOKEN}\n"));
    sandbox.run(&format!(
        "--store {store} --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
         {{}}/tokens --config {{}}/{config}"
    ))
}

fn stop(serve: Serve) {
    serve.signal("TERM");
    let outcome = serve.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
}

/// Whether an event is acknowledged.
fn is_acknowledged(api: &mut Api) -> bool {
    let answer = api.binary(EVENTS, &[DeviceKey::of_canonical(b"another")]);
    if answer.status != 200 {
        answer.problem(503, "not_durable");
        return false;
    }
    true
}

/// Number of new keys.
fn send(api: &mut Api, keys: std::ops::Range<u64>) -> usize {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    let keys: Vec<DeviceKey> = keys
        .map(|n| DeviceKey::of_canonical(&n.to_le_bytes()))
        .collect();
    let body: Vec<u8> = keys.iter().flat_map(DeviceKey::as_bytes).copied().collect();
    let request = REQUESTS.fetch_add(1, Ordering::Relaxed);
    let headers = format!(
        "Authorization: Bearer {TOKEN}\r\nContent-Type: \
         application/octet-stream\r\nIdempotency-Key: {request}\r\n"
    );
    // A busy machine may let a short lease end, also after the events were counted.
    let answer = wait_until("a lease", || {
        let answer = api.0.request("POST", EVENTS, &headers, &body);
        (answer.status != 503).then_some(answer)
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
        .body
        .iter()
        .map(|byte| byte.count_ones() as usize)
        .sum()
}

/// A claim after the stop would fence the owner, and nobody would own the window.
#[test]
fn stop_before_the_claim_leaves_the_window_to_its_owner() {
    let sandbox = Sandbox::with_store();
    config(&sandbox, "one", WINDOW);
    sandbox.file("tokens", format!("{TOKEN}\n"));
    // A store that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let arguments = "--store s3://bucket/x --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 \
                     --token-file {}/tokens --config {}/one.toml";
    let mut command = command(sandbox.path(), arguments);
    command.envs([
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
    ]);
    let serve = Service::spawn(&mut command);
    let (_reading, _) = silent.accept().unwrap();
    serve.signal("TERM");
    let outcome = serve.wait();
    assert_eq!(outcome.status, Some(0), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("stopped before a window was claimed"),
        "{outcome:?}"
    );
}

/// The lease stays, which a later owner must know.
#[test]
fn second_signal_gives_up_the_last_checkpoint_and_says_so() {
    let sandbox = Sandbox::with_store();
    let store = sandbox.store_path();
    let one = serve(&sandbox, &store, "one");
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    // A request whose body does not end keeps the drain waiting.
    let mut open = TcpStream::connect(one.address("listening for writes", "address")).unwrap();
    let head = format!(
        "POST {EVENTS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: \
         application/octet-stream\r\nContent-Length: 16\r\nExpect: 100-continue\r\n\r\n"
    );
    open.write_all(head.as_bytes()).unwrap();
    // It is in progress.
    open.read_exact(&mut [0; 12]).unwrap();
    one.signal("TERM");
    one.log("stop requested; finishing accepted writes", 1);
    one.signal("TERM");
    let outcome = one.wait();
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    for words in [
        "lease of the window not given back",
        "stopped by a second signal",
    ] {
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
}

#[test]
fn empty_directory_starts_from_a_checkpoint_and_fences_the_other_in_every_store() {
    let (sandbox, store) = directory_or_bucket("windows-store");
    let one = serve(&sandbox, &store, "one");
    let uploaded = "rtad_window_checkpoint_uploaded_timestamp_seconds{window=\"w\"}";
    // The first upload belongs to the start.
    wait_until("an upload", || metric(&one.metrics(), uploaded) > 0.0);
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    stop(one);

    let two = serve(&sandbox, &store, "two");
    // The earlier owner stopped cleanly: its checkpoint has all events.
    two.log("window started from its checkpoint in the store", 1);
    assert!(!two.stderr().contains("events are lost"));
    assert_eq!(send(&mut two.connect(), 0..1010), 10);
    // An owner restarts with its own files, which have more than the store.
    two.kill();
    let two = serve(&sandbox, &store, "two");
    assert_eq!(send(&mut two.connect(), 0..1010), 0);
    let message = refused(&sandbox, &store, "one");
    assert!(
        message.contains("another owner has claimed the window"),
        "{message}"
    );

    let three = take_over(&sandbox, &store, "three");
    three.log(
        "window started from its checkpoint in the store; its later events are lost",
        1,
    );
    let mut api = two.connect();
    two.log(
        "another owner has claimed the window; its events are refused",
        1,
    );
    assert!(!is_acknowledged(&mut api));
    let key = [DeviceKey::of_canonical(b"another")];
    api.binary("/v1/windows/w/forget", &key)
        .problem(503, "not_durable");
    wait_until("the lease is over", || {
        is_acknowledged(&mut three.connect())
    });
    let writable = "rtad_window_writable{window=\"w\"}";
    wait_until("the fence shows", || {
        metric(&two.metrics(), writable) == 0.0
    });
    let ready = two.admin().get("/readyz");
    let expected = (503, "another owner has claimed the windows\n");
    assert_eq!((ready.status, ready.text().as_str()), expected);
    drop(api);
    stop(two);
    // The fenced owner has replaced nothing.
    assert_eq!(send(&mut three.connect(), 2000..2010), 10);
    stop(three);
    let four = serve(&sandbox, &store, "four");
    assert_eq!(send(&mut four.connect(), 0..1000), 0);
    assert_eq!(send(&mut four.connect(), 2000..2011), 1);
    let depot = Depot::over(&store);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(depot.store.audiences()).unwrap(), []);
}

#[test]
fn two_owners_never_acknowledge_at_a_time() {
    let sandbox = Sandbox::with_store();
    let way = sandbox.path().join("way");
    let connect = || symlink(sandbox.path().join("s"), &way).unwrap();
    connect();
    let one = serve(&sandbox, "{}/way", "one");
    let mut earlier = one.connect();
    let uploaded = "rtad_window_checkpoint_uploaded_timestamp_seconds{window=\"w\"}";
    wait_until("an upload", || metric(&one.metrics(), uploaded) > 0.0);

    // An owner without the store goes on for its lease.
    std::fs::remove_file(&way).unwrap();
    wait_until("the lease ends", || !is_acknowledged(&mut earlier));
    one.log(
        "store has not confirmed the owner for the time of its lease; events are refused",
        1,
    );
    let writable = "rtad_window_writable{window=\"w\"}";
    wait_until("the end shows", || metric(&one.metrics(), writable) == 0.0);
    connect();
    wait_until("the store confirms the owner", || {
        is_acknowledged(&mut earlier)
    });

    // The earlier owner cannot know of the later one.
    std::fs::remove_file(&way).unwrap();
    let two = take_over(&sandbox, "{}/s", "two");
    let refusing =
        "previous owner did not stop cleanly; events are refused until its lease is over";
    two.log(refusing, 1);
    // One that is killed while it waits, waits again.
    two.kill();
    let two = serve(&sandbox, "{}/s", "two");
    two.log(refusing, 1);
    let mut later = two.connect();
    wait_until("the lease before it is over", || {
        is_acknowledged(&mut later)
    });
    assert!(!is_acknowledged(&mut earlier));
    two.log("window accepts events", 1);
    // An owner that is killed after its wait needs no other.
    let folder = sandbox.path().join("s/.windows/w");
    wait_until("the store knows", || {
        std::fs::read_to_string(newest_record(&folder))
            .unwrap()
            .contains("\"wait_seconds\":0")
    });
    two.kill();
    let two = serve(&sandbox, "{}/s", "two");
    assert_eq!(send(&mut two.connect(), 0..10), 10);
    assert!(!two.stderr().contains(refusing));
    stop(two);
    let three = serve(&sandbox, "{}/s", "three");
    assert_eq!(send(&mut three.connect(), 0..11), 1);
    assert!(!three.stderr().contains(refusing));

    connect();
    one.log(
        "another owner has claimed the window; its events are refused",
        1,
    );
    assert!(!is_acknowledged(&mut earlier));
}

#[test]
fn start_that_fails_leaves_the_window_to_its_owner() {
    let sandbox = Sandbox::with_store();
    let store = sandbox.store_path();
    let owner = serve(&sandbox, &store, "one");
    let uploaded = "rtad_window_checkpoint_uploaded_timestamp_seconds{window=\"w\"}";
    wait_until("an upload", || metric(&owner.metrics(), uploaded) > 0.0);
    assert_eq!(send(&mut owner.connect(), 0..1000), 1000);

    // The window itself, with an empty directory.
    let larger = WINDOW.replace("100_000", "200_000");
    let message = refused_with(&sandbox, &store, "two", &larger);
    let found = "expected sliding 1day, capacity 200000, wide slots, found sliding 1day, \
                 capacity 100000, wide slots";
    assert!(message.contains(found), "{message}");
    assert!(
        message.contains("checkpoint in the store is of another"),
        "{message}"
    );
    let way_out = "give the changed window another name, or remove";
    assert!(message.contains(way_out), "{message}");
    // The download is of no use.
    let left = sandbox.path().join("two/w").read_dir().unwrap();
    let mut names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["LOCK"]);
    // Its files could be opened, but those of another window cannot.
    let other = |name: &str, more: &str| {
        format!("{WINDOW}[[window]]\nname = \"{name}\"\nlength = \"1h\"\n{more}\n")
    };
    let other_dir = sandbox.path().join("two/other");
    std::fs::create_dir_all(&other_dir).unwrap();
    std::fs::write(other_dir.join("checkpoint-0000000000000001"), [0; 100]).unwrap();
    let message = refused_with(&sandbox, &store, "two", &other("other", "capacity = 1000"));
    assert!(
        message.contains("not a checkpoint of a window"),
        "{message}"
    );
    // An owner asks for its claim every five seconds.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(send(&mut owner.connect(), 0..1001), 1);
    let writable = "rtad_window_writable{window=\"w\"}";
    wait_until("no fence", || metric(&owner.metrics(), writable) == 1.0);
    stop(owner);

    let follower = "[[audience]]\nname = \"a\"\nfrom_window = \"w\"\n";
    let message = refused_with(&sandbox, &store, "one", &format!("{WINDOW}{follower}"));
    assert!(message.contains("directory is of another"), "{message}");
    assert!(message.contains("100000, whole slots, found"), "{message}");
}

#[test]
fn damaged_checkpoint_in_the_store_ends_the_start() {
    let sandbox = Sandbox::with_store();
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    stop(one);
    let checkpoints = sandbox.path().join("s/.windows/w/checkpoints");
    let files: Vec<PathBuf> = checkpoints
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [file] = &files[..] else {
        panic!("expected the last checkpoint, found {files:?}")
    };
    let sound = std::fs::read(file).unwrap();
    let middle = sound.len() / 2;
    let mut flipped = sound.clone();
    flipped[middle] ^= 1;
    for damaged in [&flipped[..], &sound[..middle]] {
        std::fs::write(file, damaged).unwrap();
        let message = refused(&sandbox, "{}/s", "two");
        assert!(message.contains("checkpoints/"), "{message}");
        let left = sandbox.path().join("two/w").read_dir().unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            !names
                .iter()
                .any(|name| name.to_string_lossy().starts_with("checkpoint-"))
        );
    }
    std::fs::write(file, &sound).unwrap();
    let two = serve(&sandbox, "{}/s", "two");
    assert_eq!(send(&mut two.connect(), 0..1001), 1);
}

#[test]
fn empty_directory_takes_no_window_that_was_not_given_back() {
    let sandbox = Sandbox::with_store();
    let store = sandbox.store_path();
    let one = serve(&sandbox, &store, "one");
    let uploaded = "rtad_window_checkpoint_uploaded_timestamp_seconds{window=\"w\"}";
    wait_until("an upload", || metric(&one.metrics(), uploaded) > 0.0);
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);

    // By mistake, beside an owner that runs.
    config(&sandbox, "two", WINDOW);
    let refused = ended(&sandbox, &store, "two.toml");
    refused.fails(2, "has not given it back");
    refused.fails(2, "start with --take-over w");
    ended(&sandbox, &store, "two.toml --take-over x").fails(2, "--take-over x: not a window");
    assert_eq!(send(&mut one.connect(), 0..1001), 1);
    // After its end, too: its disk may come back.
    one.kill();
    ended(&sandbox, &store, "two.toml").fails(2, "has not given it back");
    // Its own directory needs no permission.
    let one = serve(&sandbox, &store, "one");
    assert_eq!(send(&mut one.connect(), 0..1001), 0);
    one.kill();
    let two = take_over(&sandbox, &store, "two");
    assert_eq!(send(&mut two.connect(), 2000..2010), 10);
    stop(two);
}

#[test]
fn start_without_the_mounted_store_changes_nothing() {
    let sandbox = Sandbox::with_store();
    let store = sandbox.path().join("s");
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    one.kill();
    let mounted = sandbox.path().join("mounted");
    std::fs::rename(&store, &mounted).unwrap();

    ended(&sandbox, "{}/s", "one.toml").fails(5, "check the path and the mount");
    assert!(!store.exists());
    sandbox.file("none.toml", "state_dir = \"none\"\n");
    ended(&sandbox, "{}/s", "none.toml").fails(5, "check the path and the mount");
    assert!(!store.exists());

    std::fs::create_dir(&store).unwrap();
    let message = refused(&sandbox, "{}/s", "one");
    assert!(message.contains("check its mount and URL"), "{message}");
    assert_eq!(std::fs::read_dir(&store).unwrap().count(), 0);

    std::fs::remove_dir(&store).unwrap();
    std::fs::rename(&mounted, &store).unwrap();
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..1001), 1);
}

#[test]
fn restored_directory_does_not_replace_a_newer_checkpoint() {
    let sandbox = Sandbox::with_store();
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..1000), 1000);
    let state = |name: &str| sandbox.path().join(name).join("w");
    let copy = |from: PathBuf, to: PathBuf| {
        let _ = std::fs::remove_dir_all(&to);
        std::fs::create_dir_all(&to).unwrap();
        for entry in from.read_dir().unwrap() {
            let file = entry.unwrap().path();
            std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    };
    copy(state("one"), state("snapshot"));
    assert_eq!(send(&mut one.connect(), 1000..2000), 1000);
    stop(one);
    copy(state("one"), state("newest"));
    copy(state("snapshot"), state("one"));
    let message = refused(&sandbox, "{}/s", "one");
    assert!(message.contains("an older copy was restored"), "{message}");
    // Nothing was changed: each way out of the message loses nothing.
    copy(state("newest"), state("one"));
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..2001), 1);
    stop(one);
    std::fs::remove_dir_all(state("one")).unwrap();
    let one = serve(&sandbox, "{}/s", "one");
    assert_eq!(send(&mut one.connect(), 0..2002), 1);
}

#[test]
fn unfinished_requests_do_not_hold_the_last_checkpoint() {
    for (unfinished, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n", 0),
        (
            "POST /v1/windows/w/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
            1,
        ),
    ] {
        let sandbox = Sandbox::with_store();
        config(&sandbox, "one", WINDOW);
        let one = Serve::over(&sandbox, "{}/s", "--config {}/one.toml --drain-timeout 6s");
        assert_eq!(send(&mut one.connect(), 0..1000), 1000);
        let Api(mut client) = one.connect();
        let token = format!("\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length");
        client.send(unfinished.replace("\r\nContent-Length", &token));
        one.signal("TERM");
        let outcome = one.wait();
        assert_eq!(outcome.status, Some(status), "{outcome:?}");
        let record = newest_record(&sandbox.path().join("s/.windows/w"));
        let record = std::fs::read_to_string(record).unwrap();
        assert!(
            record.contains("\"lease_seconds\":0"),
            "given back: {record}"
        );
        let two = serve(&sandbox, "{}/s", "two");
        assert_eq!(send(&mut two.connect(), 0..1001), 1);
    }
}
