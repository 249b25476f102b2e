//! Signals: SIGHUP reloads, SIGTERM drains, a second SIGTERM exits at once.

use serde_json::json;

use crate::fixture::{OLD_USERS, RULES, TestStore};
use crate::rtad_process::Rtad;
use testkit::client::{Client, metric};
use testkit::process::Outcome;
use testkit::store::newest_record;
use testkit::wait_until;

fn target() -> String {
    format!("/v1/check/old_users/{}", OLD_USERS[0].1)
}

/// A request in flight, without its body.
fn hold(rtad: &Rtad) -> Client {
    let mut held = rtad.connect();
    held.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{");
    let mut admin = rtad.connect_admin();
    wait_until("rtad_in_flight is 1", || {
        metric(&admin.get("/metrics").text(), "rtad_in_flight") == 1.0
    });
    held
}

#[test]
fn sighup_reloads_valid_config_and_rejects_invalid() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let rtad = Rtad::serve(&file, &[]);
    let strategies = || rtad.connect_admin().get("/v1/status").ok()["strategies"].clone();
    let only_one =
        "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = [\"vip\"]";
    store.config_file("max_connections = 7", only_one);
    rtad.signal("HUP");
    let reloaded = rtad.log("config reloaded", 1);
    assert_eq!(reloaded["needs_restart"], "server");
    let changed = reloaded["changed"].as_str().unwrap();
    assert!(
        changed.starts_with("audience.missing, audience.old_users, "),
        "{changed}"
    );
    assert!(
        changed.contains("server.max_connections, strategy."),
        "{changed}"
    );
    assert_eq!(strategies(), json!(["no-vip"]));

    store.config_file(
        "max_connections = 0",
        &format!("{only_one}\nshadow = \"x\""),
    );
    rtad.signal("HUP");
    let message = "config not reloaded; the old one stays";
    let reason = rtad.log(message, 1)["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("server.max_connections") && reason.contains("shadow is \"x\""),
        "{reason}"
    );
    assert_eq!(strategies(), json!(["no-vip"]));
    std::fs::remove_file(&file).unwrap();
    rtad.signal("HUP");
    rtad.log(message, 2);

    store.config_file("", RULES);
    rtad.signal("HUP");
    rtad.log("config reloaded", 2);
    assert_eq!(strategies().as_array().unwrap().len(), 5);
    assert_eq!(rtad.connect().get(&target()).text(), r#"{"member":true}"#);
}

/// Replaces the newest record by a FIFO without a writer: opening it blocks.
fn hang(store: &TestStore) {
    let record = newest_record(&store.path().join("old_users"));
    std::fs::remove_file(&record).unwrap();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&record)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn sigterm_works_during_a_blocked_reload() {
    let store = TestStore::with_everything();
    let rtad = Rtad::serve(&store.config_file("", RULES), &[]);
    hang(&store);
    rtad.signal("HUP");
    rtad.log("reloading the config", 1);
    assert_eq!(
        rtad.connect_admin().get("/livez").text(),
        "ok\n",
        "probes do not wait for the store"
    );
    assert_eq!(rtad.connect().get(&target()).text(), r#"{"member":true}"#);
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn signals_work_during_the_first_load() {
    let store = TestStore::with_everything();
    hang(&store);
    let file = store.config_file("", RULES);
    let rtad = Rtad::spawn(&["serve", "--config", file.to_str().unwrap()], &[]);
    rtad.log("admin port listens; loading the first snapshots", 1);
    rtad.signal("HUP");
    assert_eq!(
        rtad.connect_admin().get("/readyz").status,
        503,
        "alive, and not ready"
    );
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn sigterm_finishes_requests_and_closes_idle_connections() {
    let store = TestStore::with_everything();
    // New connections and requests are answered for half of the drain timeout.
    let file = store.config_file("drain_timeout = \"6s\"", RULES);
    let rtad = Rtad::serve(&file, &[]);
    let (mut idle, mut busy, fresh) = (rtad.connect(), rtad.connect(), rtad.connect());
    for client in [&mut idle, &mut busy] {
        assert_eq!(client.get(&target()).header("connection"), None);
    }
    let mut held = hold(&rtad);
    rtad.signal("TERM");
    rtad.is_draining();
    let last = busy.get(&target());
    last.ok();
    assert_eq!(last.header("connection"), Some("close"));
    busy.closes();
    let late = rtad.connect().get(&target());
    assert_eq!(
        (late.status, late.header("connection")),
        (200, Some("close"))
    );
    idle.closes();
    fresh.closes();
    // The request in flight finishes after idle connections are closed.
    held.send("}");
    let last = held.next().unwrap();
    last.ok();
    assert_eq!(last.header("connection"), Some("close"));
    held.closes();
    let drained = rtad.log("drained", 1);
    assert_eq!(
        (&drained["in_time"], &drained["open_connections"]),
        (&json!(true), &json!(0))
    );
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

/// A load balancer without keep-alive connects until its checks see the failed readiness.
#[test]
fn new_connections_are_answered_during_drain() {
    let store = TestStore::with_everything();
    let rtad = Rtad::serve(&store.config_file("drain_timeout = \"1h\"", RULES), &[]);
    rtad.connect().get(&target()).ok();
    rtad.signal("TERM");
    rtad.is_draining();
    for _ in 0..5 {
        let mut client = rtad.connect();
        let answer = client.get(&target());
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("close"))
        );
        client.closes();
        // Long enough for the drain to see no connections.
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn sigterm_without_connections_exits_at_once() {
    for signal in ["TERM", "INT"] {
        let store = TestStore::with_everything();
        let rtad = Rtad::serve(&store.config_file("drain_timeout = \"1h\"", RULES), &[]);
        rtad.signal(signal);
        let Outcome { status, stderr, .. } = rtad.wait();
        assert_eq!(status, Some(0), "{stderr}");
    }
}

#[test]
fn second_sigterm_exits_at_once() {
    let store = TestStore::with_everything();
    let rtad = Rtad::serve(&store.config_file("drain_timeout = \"1h\"", RULES), &[]);
    let held = hold(&rtad);
    rtad.signal("TERM");
    rtad.is_draining();
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("second signal"), "{stderr}");
    held.closes();
}
