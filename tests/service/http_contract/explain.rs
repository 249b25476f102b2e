//! `POST /v1/explain/{platform}` and `POST /v1/explain` of the admin port.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::fixture::{
    FixtureServer, NON_MEMBER, OLD_USERS, OLD_VIP, PLATFORMS, RULES, TestStore, key,
};
use testkit::platform::{OCEAN_REQUEST, REQUEST_IMEI_MD5, TENCENT_REQUEST};
use testkit::store::hex;

const TOKEN: &str = "X-Rta-Token: hush-hush\r\n";

fn server() -> FixtureServer {
    let store = TestStore::with_everything();
    store.publish("old_users", &[key("md5", REQUEST_IMEI_MD5)]);
    FixtureServer::start(store, "max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    const_hex::decode(hex).unwrap()
}

/// Valid and invalid bodies of both platforms.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let tencent =
        ["", "0a0270311001", "2a00", "42021002", "5a050802 2a0154", "ff", TENCENT_REQUEST];
    let ocean = ["", "72029003", "ff", OCEAN_REQUEST];
    let of = |name, bodies: &[&'static str]| {
        bodies.iter().map(|body| (name, bytes(&body.replace(' ', "")))).collect::<Vec<_>>()
    };
    let too_large = ["tencent", "ocean"].map(|name| (name, vec![0; 1025]));
    [of("tencent", &tencent), of("ocean", &ocean), too_large.to_vec()].concat()
}

#[test]
fn explained_answer_equals_the_real_answer() {
    let server = server();
    let mut admin = server.connect_admin();
    for (platform, body) in bodies() {
        let given = server.connect().request("POST", &format!("/rta/{platform}"), TOKEN, &body);
        let route = format!("/v1/explain/{platform}");
        let explained = admin.post(&route, &body).ok();
        assert_eq!(
            explained["answer"]["hex"],
            const_hex::encode(&given.body),
            "{platform} {body:?}"
        );
        assert_eq!(explained["answer"]["status"], given.status);
        assert_eq!(explained["answer"]["content_type"].as_str(), given.header("content-type"));
        assert_eq!(explained["body"], json!({ "read_as": "binary", "size_bytes": body.len() }));
        if !body.is_empty() {
            let in_hex = admin.post(&route, const_hex::encode(&body)).ok();
            assert_eq!(in_hex["body"], json!({ "read_as": "hex", "size_bytes": body.len() }));
            assert_eq!(
                (&in_hex["answer"], &in_hex["ids"]),
                (&explained["answer"], &explained["ids"])
            );
        }
    }
}

#[test]
fn explanation_has_ids_audiences_and_reasons() {
    let explained = server().connect_admin().post("/v1/explain/ocean", OCEAN_REQUEST).ok();
    let fields: Vec<_> = explained.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        fields.join(" "),
        "access answer audiences body conclusion failure ids kind notes path platform strategies"
    );
    assert_eq!(
        explained["ids"][0],
        json!({
            "path": "device.imei_md5", "kind": "imei_md5", "value": REQUEST_IMEI_MD5,
            "result": "usable", "md5": REQUEST_IMEI_MD5, "shard": "8d3e",
            "audiences": [{ "name": "old_users", "answer": "member" }],
        })
    );
    assert_eq!(
        explained["strategies"],
        json!([{
            "id": "10003", "strategy": "new-users", "exclude": ["old_users"], "include": [],
            "bid": false,
            "reason": "member", "because": "device.imei_md5 is in old_users, which it excludes",
        }, {
            "id": "10004", "strategy": null, "exclude": [], "include": [], "bid": false,
            "reason": "not_configured", "because": "the config does not map this id to a strategy",
        }])
    );
    assert_eq!(explained["failure"], Value::Null);
}

#[test]
fn only_platform_headers_are_evaluated() {
    let server = server();
    let mut admin = server.connect_admin();
    for (headers, access, answer) in [
        ("", "not_checked", "10013880a305"),
        ("Authorization: x\r\n", "not_checked", "10013880a305"),
        (TOKEN, "admitted", "10013880a305"),
        ("X-Rta-Token: hush\r\n", "refused", "1001"),
    ] {
        let explained = admin.request("POST", "/v1/explain/tencent?token=hush", headers, "2a00");
        assert!(!explained.text().contains("hush"), "{}", explained.text());
        let explained = explained.ok();
        assert_eq!(
            (&explained["access"], &explained["answer"]["hex"]),
            (&json!(access), &json!(answer)),
            "{headers}"
        );
    }
}

#[test]
fn explain_does_not_change_metrics() {
    let server = server();
    // A series exists from its first request on.
    for (platform, body) in bodies() {
        server.connect().request("POST", &format!("/rta/{platform}"), TOKEN, &body);
    }
    let counted = || {
        let metrics = server.metrics();
        let is_counter = |line: &&str| {
            [
                "rtad_ids_total",
                "rtad_decisions_total",
                "rtad_platform_failures_total",
                "rtad_requests_total",
            ]
            .iter()
            .any(|name| line.starts_with(name))
        };
        metrics.lines().filter(is_counter).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let before = counted();
    assert!(
        before.iter().any(|line| line.contains("too_large") && line.ends_with(" 1")),
        "{before:#?}"
    );
    let mut admin = server.connect_admin();
    for (platform, body) in bodies() {
        for headers in ["", TOKEN, "X-Rta-Token: wrong\r\n"] {
            admin.request("POST", &format!("/v1/explain/{platform}"), headers, &body).ok();
        }
    }
    for (kind, id) in OLD_USERS.into_iter().chain([("oaid", NON_MEMBER), ("imei", "null")]) {
        admin.post("/v1/explain", json!({ "id": id, "kind": kind }).to_string()).ok();
        admin.post("/v1/explain", json!({ "id": id }).to_string()).ok();
    }
    let after = counted();
    assert!(after == before, "{:#?}", after.difference(&before).collect::<Vec<_>>());
}

#[test]
fn invalid_explain_requests_are_problems() {
    let server = server();
    let mut admin = server.connect_admin();
    for name in ["kuaishou", "%ff", "rta%2ftencent"] {
        let detail =
            admin.post(&format!("/v1/explain/{name}"), "").problem(404, "unknown_platform");
        assert_eq!(detail, "accepted: tencent, ocean");
    }
    let detail = server
        .connect_admin()
        .post("/v1/explain/tencent", vec![b'0'; 4096])
        .problem(413, "too_large");
    assert_eq!(detail, "the body is over 3072 bytes");
    admin.get("/v1/explain/tencent").problem(405, "method_not_allowed");
    assert!(admin.get("/").text().contains("POST /v1/explain/{platform}"));
    admin.get("/v1/explain").problem(405, "method_not_allowed");
    assert!(admin.get("/v1/explain/").problem(404, "not_found").contains("/v1/explain/{platform}"));
    let none = FixtureServer::with_everything("").connect_admin().post("/v1/explain/tencent", "");
    assert_eq!(
        none.problem(404, "unknown_platform"),
        "accepted: none: the config has no [[platform]]"
    );
}

fn kinds(reading: &Value) -> Vec<&str> {
    reading["kinds"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect()
}

#[test]
fn id_is_explained_as_each_possible_kind() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let mut explain =
        |body: Value| admin.post("/v1/explain", body.to_string()).ok()["readings"].clone();
    for (kind, id) in OLD_USERS {
        let found = explain(json!({ "id": id, "kind": kind }));
        assert_eq!(found.as_array().unwrap().len(), 1, "{kind}");
        let guessed = explain(json!({ "id": format!(" {id}\n") }));
        let of_kind = guessed
            .as_array()
            .unwrap()
            .iter()
            .find(|reading| kinds(reading).contains(&kind))
            .unwrap();
        for reading in [&found[0], of_kind] {
            assert_eq!(
                (&reading["result"], &reading["md5"]),
                (&json!("usable"), &json!(hex(&key(kind, id))))
            );
            assert_eq!(reading["shard"], hex(&key(kind, id))[..4]);
            assert_eq!(
                (&reading["audiences"][0]["name"], &reading["audiences"][0]["answer"]),
                (&json!("old_users"), &json!("member"))
            );
            let new_users = &reading["strategies"][0];
            assert_eq!(
                (&new_users["id"], &new_users["bid"], &new_users["reason"]),
                (&json!("new-users"), &json!(false), &json!("member"))
            );
        }
        assert!(
            guessed.as_array().unwrap().iter().all(|reading| reading["result"] == "usable"),
            "{guessed}"
        );
    }
    // A UUID in a case that is canonical for neither UUID kind, and as is for three others.
    let uuid = explain(json!({ "id": "38400A60-8cf0-11bd-b23e-10b96e40000d", "kind": null }));
    let readings: Vec<_> = uuid.as_array().unwrap().iter().map(kinds).collect();
    assert_eq!(readings, [vec!["idfa"], vec!["oaid", "caid", "openid"], vec!["gaid"]]);
    assert_eq!(uuid[2]["canonical"], "38400a60-8cf0-11bd-b23e-10b96e40000d");
    assert_eq!(
        (uuid[1].get("canonical"), &uuid[2]["audiences"][0]["answer"]),
        (None, &json!("member"))
    );
}

#[test]
fn id_is_explained_for_each_audience_and_strategy() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let mut reading = |id: &str, kind: &str| {
        admin.post("/v1/explain", json!({ "id": id, "kind": kind }).to_string()).ok()["readings"][0]
            .clone()
    };
    let fields =
        |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    let vip = reading(OLD_VIP, "oaid");
    assert_eq!(fields(&vip), "audiences kinds md5 result shard strategies");
    let answers: Vec<_> = vip["audiences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|audience| audience["answer"].clone())
        .collect();
    assert_eq!(answers, ["member", "member", "unavailable", "unavailable"]);
    assert!(vip["audiences"][3]["unavailable_because"].as_str().unwrap().contains("max_age"));
    let of = |reading: &Value| {
        let strategies = reading["strategies"].as_array().unwrap().iter();
        strategies
            .map(|one| (one["bid"].as_bool().unwrap(), one["reason"].as_str().unwrap().to_owned()))
            .collect::<Vec<_>>()
    };
    let expected =
        |answers: [(bool, &str); 5]| answers.map(|(bid, reason)| (bid, reason.to_owned())).to_vec();
    let (no, yes) = (false, true);
    assert_eq!(
        of(&vip),
        expected([
            (no, "member"),
            (yes, "member"),
            (no, "member"),
            (yes, "unavailable"),
            (no, "unavailable")
        ])
    );
    assert_eq!(vip["strategies"][0]["because"], "the id is in old_users, which it excludes");
    let non_member = of(&reading(NON_MEMBER, "oaid"));
    assert_eq!(
        non_member[..3],
        expected([(yes, "not_member"), (no, "not_member"), (no, "not_member"), (no, ""), (no, "")])
            [..3]
    );
    for (id, kind, result) in
        [("null", "imei", "blank"), ("", "md5", "blank"), ("xyz", "imei", "malformed")]
    {
        let reading = reading(id, kind);
        assert_eq!(
            (&reading["result"], reading.get("md5"), reading.get("shard")),
            (&json!(result), None, None),
            "{id}"
        );
        assert!(reading["because"].as_str().is_some_and(|because| !because.is_empty()));
        assert_eq!(of(&reading)[0], (no, "no_device".to_owned()), "{id}");
        assert_eq!(
            (of(&reading)[1].0, &reading["audiences"][0]["answer"]),
            (yes, &Value::Null),
            "{id}"
        );
    }
    let blank = admin.post("/v1/explain", r#"{"id":"00000000000000000000000000000000"}"#).ok();
    assert_eq!(
        (blank["readings"].as_array().unwrap().len(), kinds(&blank["readings"][0]).len() > 3),
        (1, true),
        "{blank}"
    );
    let nothing = admin.post("/v1/explain", r#"{"id":"two words"}"#).ok();
    assert_eq!(
        (&nothing["readings"][0]["result"], kinds(&nothing["readings"][0]).len()),
        (&json!("malformed"), 9)
    );
}

#[test]
fn unusable_id_is_a_problem_without_the_id() {
    let server = FixtureServer::with_everything("max_body = \"1KiB\"");
    let mut admin = server.connect_admin();
    let id = OLD_USERS[2].1;
    for body in [
        "",
        "{}",
        "null",
        &format!("[\"{id}\"]"),
        &format!("{{\"{id}\":1}}"),
        &format!("{{\"id\":[\"{id}\"]}}"),
        &format!("{{\"id\":\"{id}\",\"{id}\":1}}"),
        &format!("{{\"id\":{id}}}"),
        id,
        &format!("{{\"id\":\"{id}\",\"kind\":7}}"),
        r#"{"kind":"imei"}"#,
        r#"{"id":null}"#,
    ] {
        let detail = admin.post("/v1/explain", body).problem(400, "bad_body");
        assert!(!detail.contains(id), "{detail}");
    }
    for kind in ["", "IMEI", "imei_md5", id] {
        let detail = admin
            .post("/v1/explain", json!({ "id": id, "kind": kind }).to_string())
            .problem(404, "unknown_kind");
        assert_eq!(detail, "accepted: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid");
    }
    let long = admin.post("/v1/explain", json!({ "id": "x".repeat(1100) }).to_string());
    assert_eq!(long.problem(413, "too_large"), "the body is over 1024 bytes");
    let longest = server
        .connect_admin()
        .post("/v1/explain", json!({ "id": "xy".repeat(450) }).to_string())
        .ok();
    assert_eq!(longest["readings"][0]["result"], "malformed");
}
