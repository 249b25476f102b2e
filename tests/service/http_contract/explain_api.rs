//! `POST /v1/explain/api`: explanations of requests to `/v1/decide`.

use serde_json::{Map, Value, json};

use crate::fixture::{
    FixtureServer, NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, PLATFORMS, RULES, TestStore,
};
use testkit::random::SplitMix64;
use testkit::wait_until;

/// Strategies of every kind beside those of the fixture.
const MORE: &str = r#"
[server.api]
public = true
[[experiment]]
name = "price"
unit = ["oaid", "imei"]
buckets = [{ name = "low", slots = "0..5000" }, { name = "high", slots = "5000..10000" }]
[[strategy]]
name = "by-attributes"
when = { any = [{ os = ["ios"] }, { all = ["vip", { slot = ["7"] }] }] }
[[strategy]]
name = "by-bucket"
when = { bucket = "price:high", none = ["old_users"] }
[[strategy.value]]
audience = "vip"
weight = 2.0
[[strategy.value]]
bucket = "price:high"
weight = 1.5
[[strategy]]
name = "shadow"
when = "vip"
shadow = true
[[strategy]]
name = "over"
exclude = ["old_users"]
valid_until = "2026-01-01T00:00:00+08:00"
[[strategy]]
name = "capped"
exclude = ["old_users"]
no_device = "bid"
cap = "daily"
[[cap]]
name = "daily"
limit = 2
period = "day"
time_zone = "UTC"
"#;
const STRATEGIES: [&str; 10] = [
    "new-users",
    "vip-only",
    "new-vip",
    "needs-missing",
    "needs-fresh",
    "by-attributes",
    "by-bucket",
    "shadow",
    "over",
    "capped",
];

fn server() -> FixtureServer {
    let rules = format!("{RULES}{MORE}{PLATFORMS}");
    let store = TestStore::with_everything();
    let server = FixtureServer::start(store, "max_body = \"2KiB\"", &rules);
    let mut admin = server.connect_admin();
    wait_until("the cap is granted", || {
        admin.get("/v1/status").ok()["caps"][0]["granted"] == 2
    });
    server
}

fn some_id(random: &mut SplitMix64) -> (String, String) {
    let (kind, id) = OLD_USERS[random.below(OLD_USERS.len())];
    let id = match random.below(8) {
        0 | 1 => return (kind.to_owned(), id.to_owned()),
        2 => OLD_VIP.to_owned(),
        3 => NEW_VIP.to_owned(),
        4 => NON_MEMBER.to_owned(),
        5 => format!("{:032x}", random.number()),
        6 => "__OAID__".to_owned(),
        _ => "x".repeat(random.below(3)),
    };
    let kinds = ["oaid", "oaid", "oaid_md5", "imei", "openid", "md5"];
    (kinds[random.below(kinds.len())].to_owned(), id)
}

/// A body of `/v1/decide`, at times one that it refuses.
fn some_body(random: &mut SplitMix64) -> Vec<u8> {
    let mut device = Map::new();
    for _ in 0..random.below(5) {
        let (kind, id) = some_id(random);
        let value = match random.below(4) {
            0 => json!([id, null, some_id(random).1, id]),
            1 if random.below(4) == 0 => Value::Null,
            _ => json!(id),
        };
        device.insert(kind, value);
    }
    if random.below(20) == 0 {
        let count = 62 + random.below(6);
        let many: Vec<_> = (0..count).map(|number| format!("user-{number}")).collect();
        device.insert("openid".to_owned(), json!(many));
    }

    let mut body = json!({ "device": device });
    if random.below(3) > 0 {
        body["request_id"] = json!(format!("r-{}", random.below(100)));
    }
    if random.below(2) == 0 {
        let count = random.below(4);
        let mut names: Vec<_> = (0..count).map(|_| STRATEGIES[random.below(10)]).collect();
        if random.below(15) == 0 {
            names.push("nobody");
        }
        body["strategies"] = json!(names);
    }
    if random.below(2) == 0 {
        let os = ["iOS", "android", " ", "HarmonyOS 9", "ios"][random.below(5)];
        let slot = [json!("7"), json!("8"), Value::Null][random.below(3)].clone();
        body["attributes"] = json!({ "os": os, "slot": slot });
    }
    let mut bytes = body.to_string().into_bytes();
    match random.below(25) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => bytes.resize(2049, b' '),
        _ => {}
    }
    bytes
}

/// The decisions that an explanation says are answered, in the form of the answer.
fn explained_decisions(explanation: &Value) -> Vec<Value> {
    let mut decisions = Vec::new();
    for one in explanation["strategies"].as_array().unwrap() {
        if one["shadow"] == true {
            continue;
        }
        assert_eq!(one["id"], one["strategy"]);
        let mut decision = json!({
            "strategy": one["strategy"], "bid": one["bid"], "reason": one["reason"],
        });
        for value in one["values"].as_array().into_iter().flatten() {
            if value["chosen"] == true {
                decision["value"] = value["value"].clone();
            }
        }
        for part in one["buckets"].as_array().into_iter().flatten() {
            let experiment = part["experiment"].as_str().unwrap();
            decision["buckets"][experiment] = part["bucket"].clone();
        }
        decisions.push(decision);
    }
    decisions
}

#[test]
fn explained_answers_and_verdicts_are_those_of_decide() {
    let server = server();
    let mut client = server.connect();
    let mut admin = server.connect_admin();
    let mut random = SplitMix64::new(1);
    let mut statuses = std::collections::BTreeSet::new();
    for _ in 0..1_000 {
        let body = some_body(&mut random);
        let text = String::from_utf8_lossy(&body);
        // Before the decision, which counts the device in the cap.
        let explanation = admin.post("/v1/explain/api", &body).ok();
        let answer = client.post("/v1/decide", &body);

        let explained = &explanation["answer"];
        assert_eq!(explained["status"], answer.status, "{text}");
        let content_type = answer.header("content-type");
        assert_eq!(explained["content_type"].as_str(), content_type, "{text}");
        assert_eq!(
            explained["hex"],
            const_hex::encode(&answer.body),
            "{text}\n{}",
            answer.text()
        );
        statuses.insert(answer.status);
        if answer.status != 200 {
            assert_eq!(explanation["failure"]["cause"], answer.json()["code"]);
            assert_eq!(explanation["failure"]["detail"], answer.json()["detail"]);
            continue;
        }
        assert_eq!(explanation["failure"], Value::Null);
        assert_eq!(
            json!(explained_decisions(&explanation)),
            answer.json()["decisions"],
            "{text}"
        );
    }
    assert_eq!(
        statuses.into_iter().collect::<Vec<_>>(),
        [200, 400, 404, 413]
    );
}

#[test]
fn each_id_of_a_device_is_explained() {
    let server = server();
    let mut admin = server.connect_admin();
    let body = json!({
        "request_id": "r1", "strategies": ["new-vip", "by-bucket"],
        "device": { "imei": "__IMEI__", "oaid": [NEW_VIP, OLD_VIP], "caid": "a b" },
        "attributes": { "os": "HarmonyOS 9", "app": " shop " },
    });
    let explained = admin.post("/v1/explain/api", body.to_string()).ok();
    assert_eq!(explained["path"], "/v1/decide");
    assert_eq!(explained["access"], "open");
    let mut ids = Vec::new();
    for id in explained["ids"].as_array().unwrap() {
        let mut members = Vec::new();
        for audience in id["audiences"].as_array().into_iter().flatten() {
            members.push(&audience["answer"]);
        }
        ids.push(json!([id["path"], id["result"], members]));
    }
    // Audiences of the named strategies: old_users and vip.
    assert_eq!(
        json!(ids),
        json!([
            ["device.caid", "malformed", []],
            ["device.imei", "blank", []],
            ["device.oaid", "usable", ["not_member", "member"]],
            ["device.oaid", "usable", ["member", "member"]],
        ])
    );
    let notes = json!([
        { "what": "request_id", "value": "r1" },
        { "what": "app", "value": "shop" },
        { "what": "os, not known", "value": "HarmonyOS 9" },
    ]);
    assert_eq!(explained["notes"], notes);
    assert_eq!(explained["strategies"][0]["reason"], "member");

    let all = admin.post("/v1/explain/api", "{}").ok();
    assert_eq!(all["audiences"].as_array().unwrap().len(), 4);
    assert_eq!(all["strategies"].as_array().unwrap().len(), 10);
}

#[test]
fn explained_request_takes_a_time_and_hex() {
    let server = server();
    let mut admin = server.connect_admin();
    let body = const_hex::encode(json!({ "strategies": ["over"] }).to_string());
    let header = "Rtad-At: 2025-12-31T00:00:00Z\r\n";
    for (header, reason) in [("", "not_scheduled"), (header, "no_device")] {
        let answer = admin.request("POST", "/v1/explain/api", header, &body).ok();
        assert_eq!(answer["strategies"][0]["reason"], reason);
    }
}

#[test]
fn access_of_the_api_is_explained() {
    let store = TestStore::with_everything();
    let token = store.path().join("token");
    std::fs::write(&token, "right-token-0123456789").unwrap();
    let rules = format!("{RULES}{PLATFORMS}");
    let server = FixtureServer::start(store, "", &rules);
    let closed = server.connect_admin().post("/v1/explain/api", "{}").ok();
    assert_eq!(closed["access"], "closed");
    assert_eq!(closed["strategies"][0]["reason"], "no_device");

    let store = TestStore::with_everything();
    let lines = format!("api = {{ token_files = [{token:?}] }}");
    let server = FixtureServer::start(store, &lines, &rules);
    let mut admin = server.connect_admin();
    let mut client = server.connect();
    for (header, access) in [
        ("", "not_checked"),
        (
            "Authorization: Bearer right-token-0123456789\r\n",
            "admitted",
        ),
        (
            "Authorization: Bearer wrong-token-0123456789\r\n",
            "refused",
        ),
    ] {
        let explained = admin.request("POST", "/v1/explain/api", header, "{}").ok();
        assert_eq!(explained["access"], access);
        let answer = client.request("POST", "/v1/decide", header, "{}");
        if access != "not_checked" {
            assert_eq!(explained["answer"]["text"], answer.text());
        }
        assert!(!explained.to_string().contains("-token-"));
    }
}
