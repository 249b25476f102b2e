//! SIGHUP reloads; SIGTERM drains, and a second one does not wait.

use serde_json::json;

use crate::fixture::{OLD_USERS, RULES, TestStore};
use crate::rtad_process::Rtad;
use testkit::client::{Client, metric};
use testkit::process::Outcome;
use testkit::wait_until;

fn target() -> String {
    format!("/v1/check/old_users/{}", OLD_USERS[0].1)
}

/// A request in flight, whose body has yet to come.
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
fn sighup_reloads_a_good_file_and_leaves_a_bad_one() {
    let store = TestStore::with_everything();
    let file = store.config_file("", RULES);
    let rtad = Rtad::serve(&file, &[]);
    let strategies = || rtad.connect_admin().get("/v1/status").ok()["strategies"].clone();
    let only_one =
        "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = [\"vip\"]";
    store.config_file("max_in_flight = 7", only_one);
    rtad.signal("HUP");
    assert_eq!(rtad.log("config reloaded", 1)["needs_restart"], "[\"server\"]");
    assert_eq!(strategies(), json!(["no-vip"]));

    store.config_file("max_in_flight = 0", &format!("{only_one}\ninclude = [\"x\"]"));
    rtad.signal("HUP");
    let message = "config not reloaded; the old one stays";
    let reason = rtad.log(message, 1)["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("server.max_in_flight") && reason.contains("include has \"x\""),
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

/// Makes a store that can be held: whoever opens this `CURRENT` waits for a writer that never
/// comes.
fn hang(store: &TestStore) {
    let current = store.path().join("old_users/CURRENT");
    std::fs::remove_file(&current).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&current).status().unwrap().success());
}

#[test]
fn sigterm_is_heard_while_a_reload_waits_for_the_store() {
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
fn signals_are_heard_while_the_first_snapshots_load() {
    let store = TestStore::with_everything();
    hang(&store);
    let file = store.config_file("", RULES);
    let rtad = Rtad::spawn(&["serve", "--config", file.to_str().unwrap()], &[]);
    rtad.log("admin port listens; loading the first snapshots", 1);
    rtad.signal("HUP");
    assert_eq!(rtad.connect_admin().get("/readyz").status, 503, "alive, and not ready");
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn sigterm_lets_requests_finish_and_closes_the_rest() {
    let store = TestStore::with_everything();
    // New connections and requests are still answered for half of it.
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
    assert_eq!((late.status, late.header("connection")), (200, Some("close")));
    idle.closes();
    fresh.closes();
    // The one in flight outlives the idle ones.
    held.send("}");
    let last = held.next().unwrap();
    last.ok();
    assert_eq!(last.header("connection"), Some("close"));
    held.closes();
    let drained = rtad.log("drained", 1);
    assert_eq!((&drained["in_time"], &drained["open_connections"]), (&json!(true), &json!(0)));
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

/// As a balancer does that is told `Connection: close`, until its checks have seen that readiness
/// has fallen.
#[test]
fn who_connects_anew_for_each_request_is_answered_after_sigterm() {
    let store = TestStore::with_everything();
    let rtad = Rtad::serve(&store.config_file("drain_timeout = \"1h\"", RULES), &[]);
    rtad.connect().get(&target()).ok();
    rtad.signal("TERM");
    rtad.is_draining();
    for _ in 0..5 {
        let mut client = rtad.connect();
        let answer = client.get(&target());
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        client.closes();
        // Long enough for it to see that nobody is connected.
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn sigterm_with_nothing_open_ends_at_once() {
    for signal in ["TERM", "INT"] {
        let store = TestStore::with_everything();
        let rtad = Rtad::serve(&store.config_file("drain_timeout = \"1h\"", RULES), &[]);
        rtad.signal(signal);
        let Outcome { status, stderr, .. } = rtad.wait();
        assert_eq!(status, Some(0), "{stderr}");
    }
}

#[test]
fn a_second_sigterm_waits_for_nobody() {
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
