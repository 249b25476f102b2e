//! `POST /v1/explain/{platform}` and `POST /v1/explain` of the admin port: routes, problems and
//! privacy. `src/explain/tests.rs` has the contents.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::fixture::{FixtureServer, OLD_USERS, PLATFORMS, RULES, TestStore, key};
use testkit::platform::{OCEAN_REQUEST, REQUEST_IMEI_MD5};

fn server() -> FixtureServer {
    let store = TestStore::with_everything();
    store.publish("old_users", &[key("md5", REQUEST_IMEI_MD5)]);
    FixtureServer::start(store, "max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}"))
}

#[test]
fn explanation_has_the_served_answer_and_is_not_counted() {
    let server = server();
    let body = const_hex::decode(OCEAN_REQUEST).unwrap();
    let given = server.connect().request("POST", "/rta/ocean", "", &body);
    let counted = || {
        let names = [
            "rtad_ids_total",
            "rtad_decisions_total",
            "rtad_platform_failures_total",
        ];
        let metrics = server.metrics();
        let is_counter = |line: &&str| names.iter().any(|name| line.starts_with(name));
        metrics
            .lines()
            .filter(is_counter)
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let before = counted();
    let mut admin = server.connect_admin();
    for (body, read_as) in [(&body[..], "binary"), (OCEAN_REQUEST.as_bytes(), "hex")] {
        let explained = admin.post("/v1/explain/ocean", body).ok();
        assert_eq!(explained["body"]["read_as"], read_as);
        assert_eq!(explained["answer"]["hex"], const_hex::encode(&given.body));
        assert_eq!(
            explained["answer"]["content_type"].as_str(),
            given.header("content-type")
        );
    }
    admin
        .post("/v1/explain", json!({ "id": OLD_USERS[0].1 }).to_string())
        .ok();
    assert!(counted() == before, "an explanation is counted");
}

#[test]
fn id_is_explained_as_each_possible_kind() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let mut readings =
        |body: Value| admin.post("/v1/explain", body.to_string()).ok()["readings"].clone();
    // A UUID in a case that is canonical for neither UUID kind, and as is for three others.
    let uuid = readings(json!({ "id": "38400A60-8cf0-11bd-b23e-10b96e40000d", "kind": null }));
    let kinds: Vec<_> = uuid
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["kinds"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            json!(["idfa"]),
            json!(["oaid", "caid", "openid"]),
            json!(["gaid"])
        ]
    );
    assert_eq!(uuid[2]["canonical"], "38400a60-8cf0-11bd-b23e-10b96e40000d");
    assert_eq!(uuid[2]["audiences"][0]["answer"], "member");
    assert_eq!(uuid[2]["strategies"][0]["reason"], "member");
    for (id, kind, result) in [("null", "imei", "blank"), ("xyz", "imei", "malformed")] {
        let reading = readings(json!({ "id": id, "kind": kind }))[0].clone();
        assert_eq!(
            (&reading["result"], reading.get("md5")),
            (&json!(result), None),
            "{id}"
        );
        assert_eq!(reading["strategies"][0]["reason"], "no_device", "{id}");
    }
}

#[test]
fn invalid_explain_requests_are_problems_without_the_id() {
    let server = server();
    let mut admin = server.connect_admin();
    let detail = admin
        .post("/v1/explain/kuaishou", "")
        .problem(404, "unknown_platform");
    assert_eq!(detail, "accepted: tencent, ocean, api");
    admin
        .get("/v1/explain/tencent")
        .problem(405, "method_not_allowed");
    let id = OLD_USERS[2].1;
    for body in [
        "",
        "null",
        &format!("[\"{id}\"]"),
        &format!("{{\"id\":\"{id}\",\"{id}\":1}}"),
        id,
    ] {
        let detail = admin.post("/v1/explain", body).problem(400, "bad_body");
        assert!(!detail.contains(id), "{detail}");
    }
    let detail = admin
        .post("/v1/explain", json!({ "id": id, "kind": id }).to_string())
        .problem(404, "unknown_kind");
    assert_eq!(
        detail,
        "accepted: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid"
    );
    let large = admin
        .post("/v1/explain/tencent", vec![b'0'; 4096])
        .problem(413, "too_large");
    assert_eq!(large, "the body is over 3072 bytes");
}

#[test]
fn time_of_an_explained_id_has_an_offset() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let id = OLD_USERS[0].1;
    let at = |time: &str| json!({ "id": id, "at": time }).to_string();
    admin
        .post("/v1/explain", at("2026-12-01T15:00:00+08:00"))
        .ok();
    let detail = admin
        .post("/v1/explain", at("2026-12-01T15:00:00"))
        .problem(400, "bad_body");
    assert!(detail.contains("with an offset"), "{detail}");
}

/// The query string and all other headers are those of the captured request.
#[test]
fn time_of_an_explained_request_is_a_header() {
    let scheduled = "exclude = [\"old_users\"]\nhours = [\"09:00-18:00\"]\ntime_zone = \"UTC\"";
    let rules = RULES.replacen("exclude = [\"old_users\"]", scheduled, 1);
    let store = TestStore::with_everything();
    let server = FixtureServer::start(store, "", &format!("{rules}{PLATFORMS}"));
    let mut admin = server.connect_admin();

    for (time, reason) in [
        ("2026-12-01T17:59:00+00:00", "not_member"),
        ("2026-12-01T17:59:00+08:00", "not_member"),
        ("2026-12-01T08:00:00+08:00", "not_scheduled"),
    ] {
        let header = format!("Rtad-At: {time}\r\n");
        let answer = admin.request("POST", "/v1/explain/ocean?at=x", &header, OCEAN_REQUEST);
        assert_eq!(answer.ok()["strategies"][0]["reason"], reason, "{time}");
    }

    let expected = "header Rtad-At: time: expected a date and time with an offset, such as \
                    2026-12-01T00:00:00+08:00";
    let twice = "Rtad-At: 2026-12-01T00:00:00Z\r\nRtad-At: 2026-12-02T00:00:00Z\r\n";
    for (headers, expected) in [
        ("Rtad-At: 2026-12-01T15:00:00\r\n", expected),
        ("Rtad-At: \r\n", expected),
        (twice, "header Rtad-At: expected at most one, found more"),
    ] {
        let answer = admin.request("POST", "/v1/explain/ocean", headers, OCEAN_REQUEST);
        assert_eq!(answer.problem(400, "bad_body"), expected);
    }

    let header = "Rtad-At: 2026-12-01T00:00:00Z\r\n";
    let body = json!({ "id": OLD_USERS[0].1 }).to_string();
    let detail = admin.request("POST", "/v1/explain", header, body);
    assert_eq!(
        detail.problem(400, "bad_body"),
        "header Rtad-At: expected as `at` in the body"
    );
}
