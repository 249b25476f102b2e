//! Event windows: exactly one `new` per key, files, erasure, and the audiences that follow them.

use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rtad_core::device::{DeviceKey, IdKind};
use serde_json::{Value, json};
use testkit::client::{Answer, metric};
use testkit::store::Depot;
use testkit::wait_until;

use super::process::{Api, Serve, TOKEN, key};
use crate::support::{Sandbox, command, ids, stores};

const DAY: &str = "[[window]]\nname = \"day\"\nlength = \"day\"\ntime_zone = \"Asia/Shanghai\"\n\
                   capacity = 100_000\nfpr = 1e-9\ncount = 3\n";
/// Room for 200 kills: a full window answers `new` without storing the event.
const FSYNC: &str = "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = 5_000_000\n\
                     fpr = 1e-9\nwhen_full = \"error\"\ndurability = \"fsync\"\n";

/// A running service with windows, on a directory.
fn serve(sandbox: &Sandbox, windows: &str) -> Serve {
    serve_over(sandbox, "{}/s", windows)
}

fn serve_over(sandbox: &Sandbox, store: &str, windows: &str) -> Serve {
    let state = sandbox.path().join("state").display().to_string();
    sandbox.file("loader.toml", format!("state_dir = {state:?}\n{windows}"));
    Serve::over(sandbox, store, "--every 5ms --config {}/loader.toml")
}

fn keys(range: std::ops::Range<u64>) -> Vec<DeviceKey> {
    range.map(|n| DeviceKey::of_canonical(&n.to_le_bytes())).collect()
}

fn path(window: &str, route: &str) -> String {
    format!("/v1/windows/{window}/{route}")
}

/// Flags of a binary answer.
fn flags(answer: &Answer, count: usize) -> Vec<bool> {
    assert_eq!((answer.status, answer.body.len()), (200, count.div_ceil(8)), "{answer:?}");
    (0..count).map(|index| answer.body[index / 8] >> (index % 8) & 1 == 1).collect()
}

/// The window's entry in the list.
fn info(api: &mut Api, window: &str) -> Value {
    let list = api.get("/v1/windows").ok();
    let windows = list["windows"].as_array().unwrap();
    windows.iter().find(|info| info["window"] == window).unwrap().clone()
}

#[test]
fn events_are_new_once_and_counted() {
    let sandbox = Sandbox::new();
    let serve = serve(&sandbox, DAY);
    let mut api = serve.connect();
    let events = path("day", "events");
    let batch = json!({ "kind": "text", "ids": ["click-1", "click-2", "click-1", "", null] });
    let answer = api.post(&events, &batch).ok();
    let expected = json!({
        "new": [true, true, false, null, null],
        "counts": [1, 1, 2, null, null],
    });
    assert_eq!(answer, expected);
    for expected in [3, 3] {
        let answer = api.post(&events, &json!({ "kind": "text", "ids": ["click-1"] })).ok();
        assert_eq!(answer, json!({ "new": [false], "counts": [expected] }));
    }
    let check = json!({ "kind": "text", "ids": ["click-1", "click-3", null] });
    for _ in 0..2 {
        let answer = api.post(&path("day", "check"), &check).ok();
        let expected = json!({ "seen": [true, false, null], "counts": [3, 0, null] });
        assert_eq!(answer, expected);
    }
    let answer = api.post(&path("day", "forget"), &check).ok();
    assert_eq!(answer, json!({ "forgotten": [true, false, null] }));
    let answer = api.post(&events, &json!({ "kind": "text", "ids": ["click-1"] })).ok();
    assert_eq!(answer, json!({ "new": [true], "counts": [1] }));

    // The same device in JSON of its kind and in binary.
    let oaid = "8f3b6b1e-7c0a-4a5e-9c55-0123456789ab";
    api.post(&events, &json!({ "kind": "oaid", "ids": [oaid] })).ok();
    let two = [DeviceKey::of_canonical(oaid.as_bytes()), DeviceKey::of_canonical(b"other")];
    assert_eq!(flags(&api.binary(&events, &two), 2), [false, true]);
    assert_eq!(flags(&api.binary(&path("day", "check"), &two), 2), [true, true]);

    let info = info(&mut api, "day");
    assert_eq!((&info["length"], &info["time_zone"]), (&json!("day"), &json!("Asia/Shanghai")));
    assert_eq!((&info["entries"], &info["events"]["duplicate"]), (&json!(4), &json!(4)));
    let metrics = serve.metrics();
    let counted = |result| {
        metric(&metrics, &format!("rtad_window_events_total{{window=\"day\",result=\"{result}\"}}"))
    };
    assert_eq!(["new", "duplicate", "unusable"].map(counted), [5.0, 4.0, 2.0]);
}

#[test]
fn invalid_requests_are_refused_and_counted_nowhere() {
    let sandbox = Sandbox::new();
    let serve = serve(&sandbox, DAY);
    let mut api = serve.connect();
    let events = path("day", "events");
    let one = json!({ "ids": ["0123456789abcdef0123456789abcdef"] });
    api.post(&path("night", "events"), &one).problem(404, "unknown_window");
    let kind = json!({ "kind": "email", "ids": ["x"] });
    let detail = api.post(&events, &kind).problem(404, "unknown_kind");
    assert!(detail.contains("openid, text"), "{detail}");
    api.ask("POST", &events, "[]").problem(400, "bad_body");
    api.post(&events, &json!({ "ids": "x" })).problem(400, "bad_body");
    api.post(&events, &json!({ "ids": vec!["x"; 10_001] })).problem(413, "too_large");
    api.binary(&events, &keys(0..10_001)).problem(413, "too_large");
    api.0.request("POST", &events, "", one.to_string()).problem(401, "unauthorized");
    assert_eq!(info(&mut api, "day")["entries"], 0);
}

#[test]
fn retry_with_its_idempotency_key_gets_the_first_answer() {
    let sandbox = Sandbox::new();
    let mut windows = serve(&sandbox, FSYNC);
    let body = json!({ "kind": "text", "ids": ["a", "b", "a"] }).to_string();
    let send = |api: &mut Api, key: &str, body: &str| {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nIdempotency-Key: {key}\r\n");
        api.0.request("POST", &path("w", "events"), &headers, body)
    };
    let mut api = windows.connect();
    let first = send(&mut api, "k1", &body).ok();
    assert_eq!(first, json!({ "new": [true, true, false], "counts": [1, 1, 1] }));
    assert_eq!(send(&mut api, "k1", &body).ok(), first);
    windows.kill();
    windows = serve(&sandbox, FSYNC);
    api = windows.connect();
    assert_eq!(send(&mut api, "k1", &body).ok(), first);
    let other = json!({ "kind": "text", "ids": ["c"] }).to_string();
    send(&mut api, "k1", &other).problem(422, "idempotency_key_reused");
    let again = send(&mut api, "k2", &body).ok();
    assert_eq!(again["new"], json!([false, false, false]));
}

#[test]
fn full_window_answers_as_configured() {
    let sandbox = Sandbox::new();
    let window = |name: &str| {
        format!(
            "[[window]]\nname = \"{name}\"\nlength = \"10m\"\ncapacity = 1\nwhen_full = \
             \"{name}\"\ndurability = \"none\"\n"
        )
    };
    let serve = serve(&sandbox, &["new", "duplicate", "error"].map(window).concat());
    let mut api = serve.connect();
    let text = |range: std::ops::Range<u32>| {
        let ids: Vec<String> = range.map(|n| n.to_string()).collect();
        json!({ "kind": "text", "ids": ids })
    };
    for (name, expected) in
        [("new", json!(true)), ("duplicate", json!(false)), ("error", Value::Null)]
    {
        let events = path(name, "events");
        // Room for 32 keys.
        let answer = api.post(&events, &text(0..100)).ok();
        assert_eq!(answer["window_full"], 68);
        assert_eq!((&answer["new"][99], &answer["counts"][99]), (&expected, &Value::Null));
        let answer = api.post(&events, &text(200..201));
        match name {
            "error" => assert!(answer.problem(503, "window_full").contains("raise its capacity")),
            _ => assert_eq!(answer.ok()["new"], json!([expected])),
        }
    }
    let full = "rtad_window_events_total{window=\"error\",result=\"full\"}";
    assert_eq!(metric(&serve.metrics(), full), 69.0);
}

#[test]
fn invalid_configs_and_directories_in_use_end_the_start() {
    let sandbox = Sandbox::new();
    sandbox.file("tokens", format!("{TOKEN}\n"));
    sandbox.file("loader.toml", "[[window]]\nname = \"a\"\nlength = \"soon\"\ncapacity = 0\n");
    let start = "serve --store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
                 {}/tokens --config {}/loader.toml";
    let refused = sandbox.run(start);
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("window \"a\": length: expected a time of"), "{refused:?}");
    let _running = serve(&sandbox, FSYNC);
    let refused = sandbox.run(start);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("the directory is locked: another process has this window open"),
        "{refused:?}"
    );
}

#[test]
fn console_of_the_admin_port_shows_windows_and_their_audiences() {
    let sandbox = Sandbox::new();
    let follower = "[[audience]]\nname = \"often\"\nfrom_window = \"day\"\nmin_count = 2\n";
    let serve = serve(&sandbox, &format!("{DAY}{follower}"));
    serve
        .connect()
        .post(&path("day", "events"), &json!({ "kind": "text", "ids": ["a", "a"] }))
        .ok();
    let mut admin = serve.admin();
    let list = admin.get("/v1/windows").ok();
    assert_eq!(
        (&list["windows"][0]["window"], &list["windows"][0]["entries"]),
        (&json!("day"), &json!(1))
    );
    let audience = &list["audiences"][0];
    assert_eq!(
        (&audience["audience"], &audience["window"], &audience["min_count"]),
        (&json!("often"), &json!("day"), &json!(2))
    );
    assert!(audience["lag_seconds"].is_f64(), "{audience}");
    serve.connect().0.get("/v1/windows").problem(401, "unauthorized");

    let page = admin.request("GET", "/", "Accept: text/html\r\n", "");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let script = admin.get("/console/windows.js").text();
    let names = [(page.text(), "=\"console/"), (script, "from \"./")];
    for name in names.iter().flat_map(|(text, before)| text.split(before).skip(1)) {
        let name = name.split('"').next().unwrap();
        let part = admin.get(&format!("/console/{name}"));
        assert_eq!((part.status, part.header("x-content-type-options")), (200, Some("nosniff")));
        let text = part.text().replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("://") && !text.contains("innerHTML"), "{name}");
    }
    assert!(admin.get("/").text().contains("\n/v1/windows\n"), "routes for terminals");
    let unknown = admin.get("/console/main.js");
    assert!(unknown.status == 404 && unknown.text().starts_with("accepted: /, /livez"));
}

/// Sends `events` events, of which 7.45 % repeat an earlier key, some within one batch, from
/// `clients` connections in binary batches of 1,000. Asserts that each key is new once. Returns the
/// number of distinct keys.
fn race(serves: &[&Serve], clients: usize, events: u64) -> u64 {
    let distinct = distinct_of(events);
    // Number `n >= distinct` repeats an earlier key; the stride spreads repeats over all batches.
    let number = |index: u64| {
        let n = index * 6_700_417 % events;
        if n < distinct { n } else { (n - distinct) * 7 % distinct }
    };
    let next = AtomicU64::new(0);
    let new = Mutex::new(vec![0_u8; distinct as usize]);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (next, new) = (&next, &new);
            scope.spawn(move || {
                let mut api = serves[client % serves.len()].connect();
                loop {
                    let first = next.fetch_add(1000, Ordering::Relaxed);
                    if first >= events {
                        return;
                    }
                    let numbers: Vec<u64> = (first..events.min(first + 1000)).map(number).collect();
                    let keys: Vec<DeviceKey> =
                        numbers.iter().map(|n| DeviceKey::of_canonical(&n.to_le_bytes())).collect();
                    let flags = flags(&api.binary(&path("w", "events"), &keys), keys.len());
                    let mut new = new.lock().unwrap();
                    for (number, _) in numbers.iter().zip(&flags).filter(|(_, is_new)| **is_new) {
                        new[*number as usize] += 1;
                    }
                }
            });
        }
    });
    assert!(new.into_inner().unwrap().iter().all(|times| *times == 1));
    distinct
}

fn distinct_of(events: u64) -> u64 {
    events - events / 10_000 * 745
}

/// The number of events: `EVENTS`, or the given one.
fn events_or(default: u64) -> u64 {
    std::env::var("EVENTS").map_or(default, |text| text.parse().unwrap())
}

/// Ten million events with 745,000 duplicates from 64 connections.
#[test]
fn each_of_ten_million_events_is_new_once() {
    let events = events_or(10_000_000);
    let sandbox = Sandbox::new();
    let serve = serve(
        &sandbox,
        &format!(
            "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = {}\nfpr = 1e-10\n",
            distinct_of(events)
        ),
    );
    let distinct = race(&[&serve], 64, events);
    let counted = |result| {
        let name = format!("rtad_window_events_total{{window=\"w\",result=\"{result}\"}}");
        metric(&serve.metrics(), &name) as u64
    };
    let expected = [distinct, events - distinct, 0];
    assert_eq!(["new", "duplicate", "full"].map(counted), expected);
}

/// Sends batches from four connections until the process is killed. Returns the keys acknowledged
/// as new with the time, and all keys sent.
fn load_until_killed(serve: Serve, round: u64) -> (Vec<(Instant, Vec<DeviceKey>)>, Instant) {
    let acknowledged = Mutex::new(Vec::new());
    let next = AtomicU64::new(round << 32);
    let is_killed = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut api = serve.connect();
            let (acknowledged, next, is_killed) = (&acknowledged, &next, &is_killed);
            scope.spawn(move || {
                while !is_killed.load(Ordering::Relaxed) {
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
                    acknowledged.lock().unwrap().push((Instant::now(), keys));
                }
            });
        }
        // A moment that differs from round to round.
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 200));
        let killed = Instant::now();
        serve.kill();
        is_killed.store(true, Ordering::Relaxed);
        killed
    });
    (acknowledged.into_inner().unwrap(), killed)
}

fn kills() -> u64 {
    std::env::var("KILLS").map_or(20, |text| text.parse().unwrap())
}

/// `KILLS` sets the number of kills.
#[test]
fn acknowledged_events_survive_every_kill() {
    let sandbox = Sandbox::new();
    let mut acknowledged = Vec::new();
    for round in 0..kills() / 2 {
        let batches = load_until_killed(serve(&sandbox, FSYNC), round).0;
        assert!(!batches.is_empty(), "nothing was acknowledged in round {round}");
        acknowledged.extend(batches.into_iter().flat_map(|(_, keys)| keys));
        let serve = serve(&sandbox, FSYNC);
        let mut api = serve.connect();
        for keys in acknowledged.chunks(10_000) {
            let seen = flags(&api.binary(&path("w", "check"), keys), keys.len());
            let lost = seen.iter().filter(|seen| !**seen).count();
            assert_eq!(lost, 0, "round {round}, {} acknowledged", acknowledged.len());
        }
        serve.kill();
    }
}

#[test]
fn kill_loses_no_event_older_than_the_interval() {
    let interval = Duration::from_millis(100);
    let windows = FSYNC.replace("fsync", "interval") + "sync_interval = \"100ms\"\n";
    let sandbox = Sandbox::new();
    for round in 0..kills() / 2 {
        let (batches, killed) = load_until_killed(serve(&sandbox, &windows), round);
        let serve = serve(&sandbox, &windows);
        let mut api = serve.connect();
        for (at, keys) in batches {
            // A busy disk may sync late: another interval.
            if at + interval * 2 < killed {
                let seen = flags(&api.binary(&path("w", "check"), &keys), keys.len());
                assert_eq!(seen, vec![true; keys.len()], "round {round}");
            }
        }
        serve.kill();
    }
}

/// The members of an audience among keys, in the sandbox's directory.
fn members(sandbox: &Sandbox, audience: &str, keys: &[DeviceKey]) -> HashSet<usize> {
    members_in(&sandbox.path().join("s").display().to_string(), audience, keys)
}

fn members_in(store: &str, audience: &str, keys: &[DeviceKey]) -> HashSet<usize> {
    let depot = Depot::over(store);
    if depot.current(audience).is_none() {
        return HashSet::new();
    }
    let snapshot = depot.read(audience).unwrap();
    (0..keys.len()).filter(|index| snapshot.contains(&keys[*index])).collect()
}

#[test]
fn audience_follows_counts_erasure_and_restarts() {
    let windows = format!(
        "{DAY}[[audience]]\nname = \"clicked\"\nfrom_window = \"day\"\n\
         [[audience]]\nname = \"clicked-out\"\nfrom_window = \"day\"\nmin_count = 3\n"
    );
    let sandbox = Sandbox::new();
    let mut windows_of = serve(&sandbox, &windows);
    let mut api = windows_of.connect();
    let keys = keys(0..4);
    let send = |api: &mut Api, numbers: &[usize]| {
        let keys: Vec<DeviceKey> = numbers.iter().map(|number| keys[*number]).collect();
        flags(&api.binary(&path("day", "events"), &keys), keys.len())
    };
    send(&mut api, &[0, 1, 1, 2, 2, 2, 2]);
    wait_until("both audiences have their members", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 2])
            && members(&sandbox, "clicked-out", &keys) == HashSet::from([2])
    });
    send(&mut api, &[1]);
    wait_until("a third event", || {
        members(&sandbox, "clicked-out", &keys) == HashSet::from([1, 2])
    });
    let erased = api.binary(&path("day", "forget"), &[keys[2]]);
    assert_eq!(flags(&erased, 1), [true]);
    wait_until("the erased device leaves both", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1])
            && members(&sandbox, "clicked-out", &keys) == HashSet::from([1])
    });
    // Only the window decides, except for tombstones.
    let write = |op: &str| json!({ "op": op, "ids": ["0123456789abcdef0123456789abcdef"] });
    let devices = "/v1/audiences/clicked/devices";
    api.post(devices, &write("add")).problem(409, "owned");
    api.ask("DELETE", "/v1/audiences/clicked", "").problem(409, "owned");
    api.post(devices, &write("tombstone")).ok();
    send(&mut api, &[3]);
    wait_until("an event after a tombstone", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 3])
    });
    let lag = "rtad_window_audience_lag_seconds{audience=\"clicked\"}";
    wait_until("nothing waits", || metric(&windows_of.metrics(), lag) == 0.0);
    drop(api);
    windows_of.signal("TERM");
    assert_eq!(windows_of.wait().status, Some(0));
    windows_of = serve(&sandbox, &windows);
    api = windows_of.connect();
    assert_eq!(send(&mut api, &[0, 2]), [false, true]);
    wait_until("the audience of the restarted process", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 2, 3])
    });
}

#[test]
fn audience_of_a_sliding_window_loses_expired_devices() {
    let windows = "[[window]]\nname = \"w\"\nlength = \"3s\"\ncapacity = 1000\n\
                   [[audience]]\nname = \"recent\"\nfrom_window = \"w\"\n";
    let sandbox = Sandbox::new();
    let serve = serve(&sandbox, windows);
    let mut api = serve.connect();
    let keys = keys(0..3);
    let begun = Instant::now();
    api.binary(&path("w", "events"), &keys[..2]);
    wait_until("members", || members(&sandbox, "recent", &keys) == HashSet::from([0, 1]));
    // The second event of a key does not prolong its entry.
    std::thread::sleep(Duration::from_secs(2).saturating_sub(begun.elapsed()));
    api.binary(&path("w", "events"), &keys[1..]);
    wait_until("expiry", || members(&sandbox, "recent", &keys) == HashSet::from([2]));
    assert!(begun.elapsed() >= Duration::from_secs(3));
    wait_until("expiry of the last", || members(&sandbox, "recent", &keys).is_empty());
    let answer = api.binary(&path("w", "events"), &keys);
    assert_eq!(flags(&answer, 3), [true; 3]);
}

/// 2,000 events per second, on a directory and in a bucket: the audience follows while they come.
#[test]
fn audience_follows_a_stream_of_events() {
    let windows = format!("{DAY}[[audience]]\nname = \"clicked\"\nfrom_window = \"day\"\n");
    for (sandbox, store) in stores("stream-of-events") {
        let serve = serve_over(&sandbox, &store, &windows);
        let mut api = serve.connect();
        let all: Vec<DeviceKey> = ids(IdKind::Md5, 0..10_000).iter().map(|id| key(id)).collect();
        for keys in all.chunks(200) {
            assert_eq!(flags(&api.binary(&path("day", "events"), keys), keys.len()).len(), 200);
            std::thread::sleep(Duration::from_millis(100));
        }
        let has_all = || members_in(&store, "clicked", &all).len() == all.len();
        wait_until("all are members", has_all);
        let writes = "rtad_window_audience_writes_total{audience=\"clicked\"}";
        assert!(metric(&serve.metrics(), writes) >= 5.0);
        let lag = "rtad_window_audience_lag_seconds{audience=\"clicked\"}";
        wait_until("nothing waits", || metric(&serve.metrics(), lag) == 0.0);
    }
}

/// A Redis server, ended on drop.
struct Redis {
    process: Child,
    port: u16,
}

impl Redis {
    fn start(sandbox: &Sandbox) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--dir"])
            .arg(sandbox.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed: apt-get install redis-server");
        wait_until("redis accepts", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two owners share a window in Redis: each of the events is new once. `EVENTS` sets the number.
#[test]
fn owners_share_a_window_in_redis() {
    let sandbox = Sandbox::new();
    let redis = Redis::start(&sandbox);
    let window = format!(
        "[[window]]\nname = \"w\"\nlength = \"1h\"\nbackend = \"redis://127.0.0.1:{}\"\n",
        redis.port
    );
    let serves = [serve(&sandbox, &window), serve(&sandbox, &window)];
    race(&[&serves[0], &serves[1]], 8, events_or(400_000));

    let [mut one, mut other] = [serves[0].connect(), serves[1].connect()];
    let ids = json!({ "kind": "text", "ids": ["a", "b", ""] });
    let answer = one.post(&path("w", "events"), &ids).ok();
    assert_eq!(answer, json!({ "new": [true, true, null], "counts": [1, 1, null] }));
    let answer = other.post(&path("w", "check"), &ids).ok();
    assert_eq!(answer["seen"], json!([true, true, null]));
    let answer = other.post(&path("w", "forget"), &ids).ok();
    assert_eq!(answer, json!({ "forgotten": [true, true, null] }));
    // A retry at the other owner gets the first answer.
    for api in [&mut one, &mut other] {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nIdempotency-Key: k\r\n");
        let answer = api.0.request("POST", &path("w", "events"), &headers, ids.to_string());
        assert_eq!(answer.ok()["new"], json!([true, true, null]));
    }
    assert_eq!(info(&mut one, "w")["backend"], "redis");
    drop(redis);
    one.post(&path("w", "events"), &ids).problem(503, "backend");
    let writable = "rtad_window_writable{window=\"w\"}";
    wait_until("the failure shows", || metric(&serves[0].metrics(), writable) == 0.0);
}

/// The limit on the size of files stands for a full disk: a write that fails, in the real process.
#[test]
fn full_disk_refuses_events_and_loses_none() {
    let sandbox = Sandbox::new();
    sandbox.file("tokens", format!("{TOKEN}\n"));
    let state = sandbox.path().join("state").display().to_string();
    sandbox.file("loader.toml", format!("state_dir = {state:?}\n{FSYNC}"));
    let start = "serve --store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --token-file \
                 {}/tokens --config {}/loader.toml";
    let program = command(sandbox.path(), start);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -S -f 200; exec \"$0\" \"$@\""]);
    limited.arg(program.get_program()).args(program.get_args());
    let limited = Serve::spawn(&mut limited);
    let mut api = limited.connect();
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    let mut next = 0;
    while refused.is_empty() {
        let batch = keys(next..next + 500);
        next += 500;
        let answer = api.binary(&path("w", "events"), &batch);
        if answer.status == 200 {
            acknowledged.extend(batch);
        } else {
            answer.problem(503, "not_durable");
            refused = batch;
        }
        assert!(next < 100_000, "the log never reached the limit");
    }
    assert!(!acknowledged.is_empty());
    let seen = |api: &mut Api, keys: &[DeviceKey]| {
        let flags = keys
            .chunks(10_000)
            .flat_map(|keys| flags(&api.binary(&path("w", "check"), keys), keys.len()));
        flags.filter(|seen| *seen).count()
    };
    assert_eq!((seen(&mut api, &acknowledged), seen(&mut api, &refused)), (acknowledged.len(), 0));
    let failures = "rtad_window_log_failures_total{window=\"w\"}";
    wait_until("the failure shows", || metric(&limited.metrics(), failures) >= 1.0);
    // The limit is per file: the next segment has room, as a disk after files were removed.
    wait_until("events are accepted again", || {
        api.binary(&path("w", "events"), &refused).status == 200
    });
    limited.kill();
    let serve = serve(&sandbox, FSYNC);
    let mut api = serve.connect();
    assert_eq!(seen(&mut api, &acknowledged), acknowledged.len());
    assert_eq!(seen(&mut api, &refused), refused.len());
}
