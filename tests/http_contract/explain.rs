//! `POST /v1/explain/{platform}` of the admin port.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::common::server::{
    ASKED_IMEI_MD5, OCEAN_REQUEST, PLATFORMS, RULES, Server, TENCENT_REQUEST, TestStore, key,
};

const TOKEN: &str = "X-Rta-Token: hush-hush\r\n";

fn server() -> Server {
    let store = TestStore::with_everything();
    store.publish("old_users", &[key("md5", ASKED_IMEI_MD5)]);
    Server::start(store, "max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}"))
}

fn bytes(hex: &str) -> Vec<u8> {
    const_hex::decode(hex).unwrap()
}

/// Bodies good and bad of both platforms.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let tencent = ["", "0a0270311001", "2a00", "42021002", "5a050802 2a0154", "ff", TENCENT_REQUEST];
    let ocean = ["", "72029003", "ff", OCEAN_REQUEST];
    let of = |name, bodies: &[&'static str]| {
        bodies.iter().map(|body| (name, bytes(&body.replace(' ', "")))).collect::<Vec<_>>()
    };
    let too_large = ["tencent", "ocean"].map(|name| (name, vec![0; 1025]));
    [of("tencent", &tencent), of("ocean", &ocean), too_large.to_vec()].concat()
}

#[test]
fn the_answer_explained_is_the_answer_given() {
    let server = server();
    let mut admin = server.connect_admin();
    for (platform, body) in bodies() {
        let given = server.connect().request("POST", &format!("/rta/{platform}"), TOKEN, &body);
        let route = format!("/v1/explain/{platform}");
        let explained = admin.post(&route, &body).ok();
        assert_eq!(explained["answer"]["hex"], const_hex::encode(&given.body), "{platform} {body:?}");
        assert_eq!(explained["answer"]["status"], given.status);
        assert_eq!(explained["answer"]["content_type"].as_str(), given.header("content-type"));
        assert_eq!(explained["body"], json!({ "read_as": "binary", "size_bytes": body.len() }));
        if !body.is_empty() {
            let in_hex = admin.post(&route, const_hex::encode(&body)).ok();
            assert_eq!(in_hex["body"], json!({ "read_as": "hex", "size_bytes": body.len() }));
            assert_eq!((&in_hex["answer"], &in_hex["ids"]), (&explained["answer"], &explained["ids"]));
        }
    }
}

#[test]
fn the_explanation_names_ids_audiences_and_reasons() {
    let explained = server().connect_admin().post("/v1/explain/ocean", OCEAN_REQUEST).ok();
    let fields: Vec<_> = explained.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        fields.join(" "),
        "access answer audiences body conclusion failure ids kind notes path platform strategies"
    );
    assert_eq!(
        explained["ids"][0],
        json!({
            "path": "device.imei_md5", "kind": "imei_md5", "value": ASKED_IMEI_MD5, "result": "usable",
            "md5": ASKED_IMEI_MD5, "shard": "8d3e", "audiences": [{ "name": "old_users", "answer": "member" }],
        })
    );
    assert_eq!(
        explained["strategies"],
        json!([{
            "id": "10003", "strategy": "new-users", "exclude": ["old_users"], "include": [], "bid": false,
            "reason": "member", "because": "device.imei_md5 is in old_users, which it excludes",
        }, {
            "id": "10004", "strategy": null, "exclude": [], "include": [], "bid": false,
            "reason": "not_configured", "because": "the config does not map this id to a strategy",
        }])
    );
    assert_eq!(explained["failure"], Value::Null);
}

#[test]
fn headers_of_the_platform_count_and_others_do_not() {
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
fn explaining_leaves_no_trace_in_the_metrics() {
    let server = server();
    // Whatever is served once is in the metrics from then on.
    for (platform, body) in bodies() {
        server.connect().request("POST", &format!("/rta/{platform}"), TOKEN, &body);
    }
    let counted = || {
        let metrics = server.metrics();
        let is_counter = |line: &&str| {
            ["rtad_ids_total", "rtad_decisions_total", "rtad_platform_failures_total", "rtad_requests_total"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        metrics.lines().filter(is_counter).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let before = counted();
    assert!(before.iter().any(|line| line.contains("too_large") && line.ends_with(" 1")), "{before:#?}");
    let mut admin = server.connect_admin();
    for (platform, body) in bodies() {
        for headers in ["", TOKEN, "X-Rta-Token: wrong\r\n"] {
            admin.request("POST", &format!("/v1/explain/{platform}"), headers, &body).ok();
        }
    }
    let after = counted();
    assert!(after == before, "{:#?}", after.difference(&before).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_explained_is_a_problem() {
    let server = server();
    let mut admin = server.connect_admin();
    for name in ["kuaishou", "%ff", "rta%2ftencent"] {
        let detail = admin.post(&format!("/v1/explain/{name}"), "").problem(404, "unknown_platform");
        assert_eq!(detail, "accepted: tencent, ocean");
    }
    let detail =
        server.connect_admin().post("/v1/explain/tencent", vec![b'0'; 4096]).problem(413, "too_large");
    assert_eq!(detail, "the body is over 3072 bytes");
    admin.get("/v1/explain/tencent").problem(405, "method_not_allowed");
    assert!(admin.get("/").text().contains("POST /v1/explain/{platform}"));
    assert!(admin.get("/v1/explain").problem(404, "not_found").contains("/v1/explain/{platform}"));
    let none = Server::with_everything("").connect_admin().post("/v1/explain/tencent", "");
    assert_eq!(none.problem(404, "unknown_platform"), "accepted: none, as the config has no [[platform]]");
}
