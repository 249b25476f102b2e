//! The admin port's probes and status.

use serde_json::{Value, json};

use crate::fixture::{FixtureServer, OLD_USERS, TestStore, key};
use testkit::client::{Client, metric};
use testkit::store::record_path;
use testkit::wait_until;

fn readyz(admin: &mut Client) -> (u16, String) {
    let answer = admin.get("/readyz");
    (answer.status, answer.text())
}

#[test]
fn readiness_starts_with_first_snapshots_and_ends_with_drain() {
    let rules = "[[audience]]\nname = \"a\"\n[[audience]]\nname = \"b\"\n[[audience]]\n\
        name = \"c\"\nrequired = false";
    let server = FixtureServer::start(TestStore::empty(), "drain_timeout = \"1h\"", rules);
    let mut admin = server.connect_admin();
    let id = OLD_USERS[0].1;
    let waiting = |names: &str| {
        (
            503,
            format!("not ready: waiting for the first snapshot of {names}\n"),
        )
    };
    assert_eq!(readyz(&mut admin), waiting("a, b"));
    server
        .connect()
        .get(&format!("/v1/check/a/{id}"))
        .problem(503, "not_loaded");
    server.store.publish("a", &[key("md5", id)]);
    server.poll();
    assert_eq!(readyz(&mut admin), waiting("b"));
    server.connect().get(&format!("/v1/check/a/{id}")).ok();
    server.store.publish("b", &[]);
    server.poll();
    assert_eq!(readyz(&mut admin), (200, "ready\n".to_owned()));

    let record = format!("a/{}", record_path(2));
    std::fs::write(server.store.path().join(&record), "nonsense").unwrap();
    server.poll();
    assert_eq!(
        readyz(&mut admin),
        (200, "ready\n".to_owned()),
        "a refresh that fails takes nothing away"
    );
    let (mut held, mut idle) = (server.connect(), server.connect());
    assert_eq!(
        idle.get(&format!("/v1/check/a/{id}")).text(),
        r#"{"member":true}"#
    );
    let status = admin.get("/v1/status").ok();
    let [a, c] = [&status["audiences"][0], &status["audiences"][2]];
    assert_eq!(
        (&a["available"], &a["snapshot"]["generation"]),
        (&json!(true), &json!(1))
    );
    assert!(
        !["ok", "unchanged"].contains(&a["last_sync"]["result"].as_str().unwrap()),
        "{a}"
    );
    assert!(
        a["last_sync"]["error"].as_str().unwrap().contains(&record),
        "{a}"
    );
    assert_eq!(
        (&c["available"], &c["last_sync"]["result"]),
        (&json!(false), &json!("not_found"))
    );

    held.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n");
    wait_until("rtad_in_flight is 1", || {
        metric(&admin.get("/metrics").text(), "rtad_in_flight") == 1.0
    });
    let (drained, _store) = server.drain();
    wait_until("it drains", || {
        readyz(&mut admin) == (503, "draining\n".to_owned())
    });
    assert_eq!(
        admin.get("/livez").status,
        200,
        "alive as long as it drains"
    );
    let status = admin.get("/v1/status").ok();
    assert_eq!(
        (&status["ready"], &status["draining"]),
        (&json!(false), &json!(true))
    );
    let last = idle.get(&format!("/v1/check/a/{id}"));
    assert_eq!(
        (last.ok()["member"].as_bool(), last.header("connection")),
        (Some(true), Some("close"))
    );
    idle.closes();
    held.send("{}");
    let last = held.next().unwrap();
    assert_eq!(
        (
            last.ok()["decisions"].as_array().map(Vec::len),
            last.header("connection")
        ),
        (Some(0), Some("close"))
    );
    held.closes();
    drained.join().unwrap();
}

#[test]
fn status_reports_served_generations() {
    let server = FixtureServer::with_everything("");
    let status = server.connect_admin().get("/v1/status").ok();
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime_seconds"].is_u64());
    assert_eq!(
        (&status["ready"], &status["draining"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        status["strategies"],
        json!([
            "new-users",
            "vip-only",
            "new-vip",
            "needs-missing",
            "needs-fresh"
        ])
    );
    let vip_only = json!({
        "strategy": "vip-only", "shadow": false, "exclude": [], "when": "vip", "values": [],
    });
    assert_eq!(status["rules"][1], vip_only);
    let audiences = status["audiences"].as_array().unwrap();
    let names: Vec<_> = audiences
        .iter()
        .map(|audience| audience["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["old_users", "vip", "missing", "too_old"]);
    let [old_users, _, missing, too_old] = &audiences[..] else {
        unreachable!()
    };
    assert_eq!(
        (&old_users["required"], &old_users["available"]),
        (&json!(true), &json!(true))
    );
    let snapshot = &old_users["snapshot"];
    assert_eq!(
        (&snapshot["generation"], &snapshot["keys"]),
        (&json!(1), &json!(10))
    );
    assert!(snapshot["size_bytes"].as_u64().unwrap() > 0);
    assert_eq!(snapshot["target_fpr"], json!(1e-6));
    assert!((0.0..1e-6).contains(&snapshot["expected_fpr"].as_f64().unwrap()));
    assert!(snapshot["created_unix_seconds"].as_u64().unwrap() > 1_700_000_000);
    assert!(snapshot["age_seconds"].is_u64() && snapshot["filter"].is_string());
    assert_eq!(old_users["last_sync"]["result"], "ok");
    assert!(old_users["last_sync"]["at_unix_seconds"].is_u64());
    assert_eq!(
        (&missing["available"], missing.get("snapshot")),
        (&json!(false), None)
    );
    assert!(
        missing["last_sync"]["error"]
            .as_str()
            .unwrap()
            .contains("rtad-loader build --audience missing")
    );
    assert_eq!(
        (&too_old["available"], &too_old["max_age_seconds"]),
        (&json!(false), &json!(172_800))
    );
    assert!(too_old["snapshot"]["age_seconds"].as_u64().unwrap() >= 49 * 3600);
    let fields = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        fields(&status),
        "audiences caps config draining platforms ready rules strategies uptime_seconds version"
    );
    assert_eq!(
        fields(old_users),
        "available last_sync name required snapshot syncs tiers_missing"
    );
    let syncs = &old_users["syncs"][0];
    assert_eq!(
        fields(syncs),
        "at_unix_seconds count generation result seconds since_unix_seconds"
    );
    assert_eq!(
        (&syncs["result"], &syncs["generation"], &syncs["count"]),
        (&json!("ok"), &json!(1), &json!(1))
    );
    server.poll();
    server.poll();
    let status = server.connect_admin().get("/v1/status").ok();
    let [old_users, _, missing, _] = &status["audiences"].as_array().unwrap()[..] else {
        unreachable!()
    };
    let syncs = |audience: &Value| {
        let of = |syncs: &Value| {
            (
                syncs["result"].as_str().unwrap().to_owned(),
                syncs["count"].as_u64().unwrap(),
            )
        };
        audience["syncs"]
            .as_array()
            .unwrap()
            .iter()
            .map(of)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        syncs(old_users),
        [("unchanged".to_owned(), 2), ("ok".to_owned(), 1)],
        "equal ones are one"
    );
    assert_eq!(syncs(missing), [("not_found".to_owned(), 3)]);
    assert_eq!(missing["syncs"][0]["error"], missing["last_sync"]["error"]);
}

#[test]
fn probes_and_console_answer_get_and_head() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    for (path, kind) in [
        ("/livez", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/v1/status", "application/json"),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = admin.request(method, path, "", "");
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (200, Some(kind)),
                "{method} {path}"
            );
        }
    }
    assert_eq!(admin.get("/livez").text(), "ok\n");
    let page = admin.get("/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("/v1/status"));
}
