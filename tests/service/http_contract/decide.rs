//! `POST /v1/decide`.

use serde_json::{Value, json};

use crate::fixture::{FixtureServer, NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, key};
use testkit::client::{Client, metric};
use testkit::store::hex;

const ROUTE: &str = "/v1/decide";

/// Each strategy's decision: `+` bid, `-` no bid, and the reason.
fn decide(client: &mut Client, strategies: &[&str], device: &Value) -> Vec<String> {
    let body = json!({ "request_id": "r1", "strategies": strategies, "device": device });
    let answer = client.post(ROUTE, body.to_string()).ok();
    assert_eq!(answer["request_id"], "r1");
    let decisions = answer["decisions"].as_array().unwrap();
    if !strategies.is_empty() {
        let named: Vec<_> = decisions
            .iter()
            .map(|decision| decision["strategy"].as_str().unwrap())
            .collect();
        assert_eq!(named, strategies, "answers are in request order");
    }
    let sign = |bid: &Value| if bid.as_bool().unwrap() { '+' } else { '-' };
    let word = |one: &Value| format!("{}{}", sign(&one["bid"]), one["reason"].as_str().unwrap());
    decisions.iter().map(word).collect()
}

#[test]
fn answer_matches_the_documented_bytes() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let body =
        json!({ "request_id": "r1", "strategies": ["new-users"], "device": { "oaid": OLD_VIP } });
    let answer = client.post(ROUTE, body.to_string());
    answer.ok();
    let expected = concat!(
        r#"{"request_id":"r1","decisions":["#,
        r#"{"strategy":"new-users","bid":false,"reason":"member"}]}"#
    );
    assert_eq!(answer.text(), expected);
    let anonymous = client.post(ROUTE, r#"{"strategies":["vip-only"]}"#);
    let expected = r#"{"decisions":[{"strategy":"vip-only","bid":true,"reason":"no_device"}]}"#;
    assert_eq!(anonymous.text(), expected);
    let echoed = client
        .post(
            ROUTE,
            r#"{"request_id":"\"\u4e2d\n","strategies":["vip-only"]}"#,
        )
        .ok();
    assert_eq!(echoed["request_id"], "\"中\n");
}

#[test]
fn missing_or_stale_audience_makes_its_strategies_unavailable() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let device = json!({ "oaid": OLD_USERS[3].1 });
    let expected = ["+unavailable", "-unavailable", "-member"];
    assert_eq!(
        decide(
            &mut client,
            &["needs-missing", "needs-fresh", "new-users"],
            &device
        ),
        expected
    );
}

#[test]
fn strategies_are_answered_in_request_or_config_order() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let device = json!({ "oaid": NEW_VIP });
    let two = decide(&mut client, &["vip-only", "new-users"], &device);
    assert_eq!(two, ["+rule", "+not_member"]);
    let twice = decide(
        &mut client,
        &["new-users", "vip-only", "new-users"],
        &device,
    );
    assert_eq!(twice, ["+not_member", "+rule", "+not_member"]);
    // One decision about each strategy and request.
    let labels = r#"platform="api",strategy="new-users",decision="bid",reason="not_member""#;
    let series = format!("rtad_decisions_total{{{labels}}}");
    assert_eq!(metric(&server.metrics(), &series), 2.0);
    for body in [r#"{"strategies":[]}"#, r#"{"strategies":null}"#, "{}"] {
        let all = client.post(ROUTE, body).ok();
        let names: Vec<_> = all["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["strategy"])
            .collect();
        assert_eq!(
            names,
            [
                "new-users",
                "vip-only",
                "new-vip",
                "needs-missing",
                "needs-fresh"
            ]
        );
    }
}

#[test]
fn device_is_member_by_any_of_its_ids() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for (kind, id) in OLD_USERS {
        let mut device = json!({
            "caid": [NON_MEMBER, "x"], "imei": null, "gaid": NON_MEMBER, "mac": [], "md5": "broken",
        });
        device[kind] = json!(["__MACRO__", null, id]);
        assert_eq!(
            decide(&mut client, &["new-users"], &device),
            ["-member"],
            "{kind}"
        );
        if kind != "md5" {
            let hashed =
                json!({ format!("{kind}_md5"): hex(&key(kind, id)).to_uppercase(), "md5": null });
            assert_eq!(
                decide(&mut client, &["new-users"], &hashed),
                ["-member"],
                "{kind}"
            );
        }
    }
}

#[test]
fn unknown_names_are_rejected_and_not_quoted() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let secret = "868049039501257";
    let body = format!(r#"{{"strategies":["new-users","{secret}"]}}"#);
    let detail = client.post(ROUTE, body).problem(404, "unknown_strategy");
    assert_eq!(
        detail,
        "accepted: new-users, vip-only, new-vip, needs-missing, needs-fresh"
    );
    // The unit tests of `platform::api` have every mistake.
    for (body, expected) in [
        (r#"{"request_id":868049039501257}"#, "expected a string"),
        (
            r#"{"strategies":["new-users",868049039501257]}"#,
            "expected a string",
        ),
        (
            &format!(r#"{{"device":{{"imei":{}"#, "[".repeat(1000)),
            "expected a string",
        ),
    ] {
        let detail = client.post(ROUTE, body).problem(400, "bad_body");
        assert!(detail.contains(expected), "{body}: {detail}");
        assert!(!detail.contains(secret), "{detail}");
    }
    client
        .post(ROUTE, b"{\"request_id\":\"\xff\"}")
        .problem(400, "bad_body");
}

#[test]
fn compressed_bodies_are_refused() {
    let server = FixtureServer::with_everything("");
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";
    for route in [ROUTE, "/v1/check/old_users"] {
        for headers in [
            "",
            "Content-Encoding: gzip\r\n",
            "Content-Encoding: zstd\r\nContent-Type: application/octet-stream\r\n",
        ] {
            let answer = server.connect().request("POST", route, headers, gzip);
            answer.problem(415, "bad_encoding");
            assert_eq!(
                answer.header("accept-encoding"),
                Some("identity"),
                "{route} {headers}"
            );
        }
        let headers = "Content-Encoding: identity\r\n";
        let body = if route == ROUTE {
            "{}"
        } else {
            r#"{"ids":[]}"#
        };
        assert_eq!(
            server
                .connect()
                .request("POST", route, headers, body)
                .status,
            200
        );
    }
    let mut admin = server.connect_admin();
    let headers = "Content-Encoding: gzip\r\n";
    admin
        .request("POST", "/v1/explain", headers, gzip)
        .problem(415, "bad_encoding");
}
