//! Caps of distinct devices, through the service: reasons, caches, reloads and grants.

mod fleet;

use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use rtad::platform::tencent::{Device, RtaRequest, RtaResponse};
use rtad_core::clock::now_unix_seconds;
use serde_json::{Value, json};
use testkit::client::{Client, metric_sum};
use testkit::store::hex;
use testkit::wait_until;

use crate::fixture::{FixtureServer, OLD_USERS, TestStore, key};

/// A zone in which it is about noon: no test runs over midnight.
static ZONE: LazyLock<String> = LazyLock::new(|| {
    let hour = (now_unix_seconds() / 3600 % 24) as i64;
    // Names of this family have the opposite sign.
    format!("Etc/GMT{:+}", hour - 12)
});

/// A strategy with a cap of `limit` devices a day, and one without.
fn rules(limit: u64) -> String {
    let zone = &*ZONE;
    format!(
        r#"
[[audience]]
name = "old_users"
[[strategy]]
name = "capped"
exclude = ["old_users"]
no_device = "bid"
cap = "daily"
[[strategy]]
name = "free"
exclude = ["old_users"]
[[cap]]
name = "daily"
limit = {limit}
period = "day"
time_zone = "{zone}"
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = {{ "T1" = "capped" }}
bid_cache = "7d"
no_bid_cache = "7d"
[[platform]]
kind = "tencent"
name = "uncached"
path = "/rta/uncached"
strategies = {{ "T1" = "capped" }}
[[platform]]
kind = "tencent"
name = "free"
path = "/rta/free"
strategies = {{ "T1" = "free" }}
bid_cache = "7d"
"#
    )
}

/// The rules with neither the cap nor a strategy that has it.
fn without_cap(rules: &str) -> String {
    let (before, rest) = rules.split_once("[[cap]]").unwrap();
    let (_, after) = rest.split_once("[[platform]]").unwrap();
    format!("{before}[[platform]]{after}").replace("cap = \"daily\"\n", "")
}

/// `/v1/decide` beside platforms.
const API: &str = "api = { public = true }";

/// A pod with the first block of its cap.
fn start(store: TestStore, limit: u64) -> FixtureServer {
    start_with(store, &rules(limit))
}

fn start_with(store: TestStore, rules: &str) -> FixtureServer {
    let server = FixtureServer::start(store, API, rules);
    wait_until("the first block", || {
        cap(&server)["granted"].as_u64() > Some(0)
    });
    server
}

/// The cap in `/v1/status`.
fn cap(server: &FixtureServer) -> Value {
    server.connect_admin().get("/v1/status").ok()["caps"][0].clone()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

fn oaid(n: u64) -> String {
    format!("c0ffee00-1234-4abc-8def-{n:012x}")
}

/// Outcome and reason of the strategy with a cap.
fn decide(client: &mut Client, device: &Value) -> String {
    let body = json!({ "strategies": ["capped"], "device": device });
    let answer = client.post("/v1/decide", body.to_string()).ok();
    let decision = &answer["decisions"][0];
    let sign = if decision["bid"].as_bool().unwrap() {
        '+'
    } else {
        '-'
    };
    format!("{sign}{}", decision["reason"].as_str().unwrap())
}

fn decide_oaid(client: &mut Client, n: u64) -> String {
    decide(client, &json!({ "oaid": oaid(n) }))
}

/// Code and cache time of a platform's answer.
fn ask(client: &mut Client, path: &str, n: u64) -> (Option<u32>, Option<u32>) {
    let oaid = hex(&key("oaid", &oaid(n)));
    let device = Device {
        oaid_md5sum: Some(Bytes::from(oaid)),
        ..Device::default()
    };
    let request = RtaRequest {
        device: Some(device),
        ..RtaRequest::default()
    };
    let answer = client.post(path, request.encode_to_vec());
    let response = RtaResponse::decode(&answer.body[..]).unwrap();
    (response.code, response.response_cache_time)
}

/// The series of a platform's capped decisions.
fn capped_by(platform: &str) -> String {
    let labels = r#"strategy="capped",decision="no_bid",reason="capped""#;
    format!("rtad_decisions_total{{platform=\"{platform}\",{labels}}}")
}

#[test]
fn devices_beyond_the_cap_get_no_bid_and_counted_ones_still_do() {
    let server = start(TestStore::with_everything(), 2);
    let (mut client, mut admin) = (server.connect(), server.connect_admin());
    let old_user = json!({ "oaid": OLD_USERS[3].1 });
    assert_eq!(
        decide(&mut client, &old_user),
        "-member",
        "a no-bid is not counted"
    );
    assert_eq!(decide(&mut client, &json!({})), "+no_device");
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    // Explanations count nothing.
    let explain = |admin: &mut Client, n| {
        let asked = json!({ "id": oaid(n), "kind": "oaid" }).to_string();
        let explained = admin.post("/v1/explain", asked).ok();
        explained["readings"][0]["strategies"][0]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(explain(&mut admin, 2), "not_member");
    assert_eq!(explain(&mut admin, 3), "not_member");
    assert_eq!(decide_oaid(&mut client, 2), "+not_member");
    assert_eq!(decide_oaid(&mut client, 3), "-capped");
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    assert_eq!(decide(&mut client, &json!({})), "-capped");
    assert_eq!(decide(&mut client, &old_user), "-member");
    assert_eq!(explain(&mut admin, 3), "capped");
    assert_eq!(explain(&mut admin, 1), "not_member");

    let status = admin.get("/v1/status").ok();
    let cap = &status["caps"][0];
    assert_eq!(status["caps"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&cap["name"], &cap["devices"]),
        (&json!("daily"), &json!(2))
    );
    assert_eq!((&cap["limit"], &cap["period"]), (&json!(2), &json!("day")));
    let seconds = |field: &str| cap[field].as_u64().unwrap();
    let length = seconds("period_end_unix_seconds") - seconds("period_start_unix_seconds");
    assert_eq!(length, 86_400);
    let metrics = server.metrics();
    assert_eq!(metric_sum(&metrics, "rtad_cap_devices{cap=\"daily\"}"), 2);
    assert_eq!(metric_sum(&metrics, "rtad_cap_limit{cap=\"daily\"}"), 2);
    assert_eq!(metric_sum(&metrics, &capped_by("api")), 2);
}

#[test]
fn platforms_share_the_cap_and_cache_no_answer_beyond_its_period() {
    let server = start(TestStore::with_everything(), 1);
    let mut client = server.connect();
    let end = server.connect_admin().get("/v1/status").ok()["caps"][0]["period_end_unix_seconds"]
        .as_u64()
        .unwrap();
    assert_eq!(ask(&mut client, "/rta/tencent", 1).0, Some(0));
    let left = end - now_unix_seconds();
    let (answered, cached) = ask(&mut client, "/rta/tencent", 1);
    assert_eq!(answered, Some(0));
    let cached = u64::from(cached.unwrap());
    assert!(
        (left - 60..=left + 1).contains(&cached),
        "{cached} of {left} seconds"
    );
    assert_eq!(ask(&mut client, "/rta/uncached", 1), (Some(0), None));
    // Other pods may give back.
    for path in ["/rta/tencent", "/rta/uncached"] {
        assert_eq!(ask(&mut client, path, 2), (Some(1), Some(60)), "{path}");
    }
    assert_eq!(
        ask(&mut client, "/rta/free", 2),
        (Some(0), Some(7 * 86_400))
    );
    assert_eq!(metric_sum(&server.metrics(), &capped_by("tencent")), 1);
}

#[test]
fn reload_keeps_unchanged_caps_and_removes_the_metrics_of_others() {
    let server = start(TestStore::with_everything(), 1);
    let (mut client, mut admin) = (server.connect(), server.connect_admin());
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    let mut reload = |rules: &str| {
        server.write_config(API, rules);
        admin.request("POST", "/v1/reload", "", "").ok();
    };
    let other = "\n[[strategy]]\nname = \"other\"\nexclude = [\"old_users\"]\n";
    reload(&format!("{}{other}", rules(1)));
    assert_eq!(decide_oaid(&mut client, 2), "-capped");
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    assert!(
        server
            .metrics()
            .contains("rtad_cap_devices{cap=\"daily\"} 1")
    );
    // A changed limit is that of the whole period.
    reload(&rules(2));
    wait_until("a block", || decide_oaid(&mut client, 2) == "+not_member");
    assert_eq!(decide_oaid(&mut client, 3), "-capped");
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    let uncapped = rules(2);
    reload(&without_cap(&uncapped));
    assert_eq!(decide_oaid(&mut client, 1), "+not_member");
    assert!(
        server
            .metrics()
            .contains("rtad_cap_devices{cap=\"daily\"} NaN")
    );
}

/// A device counts once, whichever of the strategies bids for it first.
#[test]
fn strategies_share_a_cap() {
    let other = "[[strategy]]\nname = \"other\"\nexclude = [\"vip\"]\ncap = \"daily\"\n\
                 [[audience]]\nname = \"vip\"\nrequired = false\n[[cap]]";
    let rules = rules(2).replacen("[[cap]]", other, 1);
    let server = start_with(TestStore::with_everything(), &rules);
    let mut client = server.connect();
    let mut reasons = |n: u64, strategies: &[&str]| {
        let body = json!({ "strategies": strategies, "device": { "oaid": oaid(n) } });
        let answer = client.post("/v1/decide", body.to_string()).ok();
        let decisions = answer["decisions"].as_array().unwrap().iter();
        let reasons = decisions.map(|one| one["reason"].as_str().unwrap().to_owned());
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(
        reasons(1, &["capped", "other"]),
        ["not_member", "not_member"]
    );
    assert_eq!(reasons(2, &["other"]), ["not_member"]);
    assert_eq!(reasons(3, &["capped", "other"]), ["capped", "capped"]);
    assert_eq!(reasons(2, &["capped"]), ["not_member"]);
    assert_eq!(reasons(3, &["free"]), ["not_member"]);

    let mut admin = server.connect_admin();
    let caps = admin.get("/v1/status").ok()["caps"].clone();
    assert_eq!(caps.as_array().unwrap().len(), 1);
    let found = (&caps[0]["strategies"], &caps[0]["devices"]);
    assert_eq!(found, (&json!(["capped", "other"]), &json!(2)));
    let asked = json!({ "id": oaid(3), "kind": "oaid" }).to_string();
    let explained = admin.post("/v1/explain", asked).ok();
    let strategies = &explained["readings"][0]["strategies"];
    let caps = [0, 1, 2].map(|index| strategies[index]["cap"].as_str());
    assert_eq!(caps, [Some("daily"), None, Some("daily")], "{explained:#}");
}

/// The device of a body that was not read may be one that the full cap has counted.
#[test]
fn refusal_of_an_unreadable_body_is_cached_for_a_second() {
    let rules = rules(1).replace("cap = \"daily\"", "cap = \"daily\"\nunavailable = \"bid\"");
    let server = start_with(TestStore::with_everything(), &rules);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "/rta/tencent", 1).0, Some(0));

    let answer = client.post("/rta/tencent", vec![0xff]);
    let response = RtaResponse::decode(&answer.body[..]).unwrap();
    assert_eq!(
        (response.code, response.response_cache_time),
        (Some(1), Some(1))
    );
}
