//! Experiments: buckets in decisions, answers, metrics, and at a reload.

use prost::Message as _;
use rtad::platform::tencent::{Device, RtaRequest};
use serde_json::{Value, json};

use crate::fixture::{FixtureServer, TestStore, key};
use testkit::client::{Client, metric};
use testkit::store::hex;

const STRATEGY: &str = r#"
[server.api]
public = true
[[audience]]
name = "old_users"
[[strategy]]
name = "high-bids"
when = { bucket = "price-test:high" }
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { T1 = "high-bids" }
"#;

fn rules(experiment: &str) -> String {
    format!("[[experiment]]\nname = \"price-test\"\n{experiment}\n{STRATEGY}")
}

const HALVES: &str = r#"buckets = [
    { name = "low", slots = "0..5000", tag = "low" },
    { name = "high", slots = "5000..10000", tag = "high", tag_number = 7 },
]"#;

/// The bucket of an OAID, computed as the guide says.
fn slot(oaid: &str) -> u32 {
    let text = format!("price-test-{}", hex(&key("oaid", oaid)));
    let hash = key("oaid", &text);
    u32::from_be_bytes(hash.as_bytes()[..4].try_into().unwrap()) % 10_000
}

/// An OAID in the bucket `high`, or in `low`.
fn oaid(is_high: bool) -> String {
    let oaids = (0..).map(|number| format!("oaid-{number}"));
    oaids
        .into_iter()
        .find(|oaid| (slot(oaid) >= 5000) == is_high)
        .unwrap()
}

fn decide(client: &mut Client, device: &Value) -> Value {
    let body = json!({ "strategies": ["high-bids"], "device": device });
    client.post("/v1/decide", body.to_string()).ok()["decisions"][0].clone()
}

fn start(experiment: &str) -> FixtureServer {
    let store = TestStore::empty();
    store.publish("old_users", &[key("oaid", "somebody")]);
    FixtureServer::start(store, "", &rules(experiment))
}

#[test]
fn buckets_decide_and_are_answered_and_counted() {
    let server = start(HALVES);
    let mut client = server.connect();
    let expected = |bid: bool, bucket: &str| {
        let buckets = json!({ "price-test": bucket });
        json!({ "strategy": "high-bids", "bid": bid, "reason": "bucket", "buckets": buckets })
    };
    let [low, high] = [oaid(false), oaid(true)];
    assert_eq!(
        decide(&mut client, &json!({ "oaid": low })),
        expected(false, "low")
    );
    assert_eq!(
        decide(&mut client, &json!({ "oaid": high })),
        expected(true, "high")
    );
    // The hashed form of an id is the same unit, and the kinds have an order.
    let hashed = hex(&key("oaid", &high));
    let device = json!({ "oaid_md5": &hashed, "imei": "868049039501257" });
    assert_eq!(decide(&mut client, &device), expected(true, "high"));
    let mac = json!({ "mac": "1c:b7:2c:aa:bb:cc" });
    assert_eq!(decide(&mut client, &mac), expected(false, "none"));
    assert_eq!(
        decide(&mut client, &json!({}))["buckets"],
        json!({ "price-test": "none" })
    );

    let device = Device {
        oaid_md5sum: Some(hashed.into()),
        ..Device::default()
    };
    let request = RtaRequest {
        device: Some(device),
        ..RtaRequest::default()
    };
    let answer = client.post("/rta/tencent", request.encode_to_vec());
    // out_target_id "T1"; target_infos with it, dsp_tag 7 and dsp_tag_str "high".
    let tagged = b"\x52\x02T1\x62\x0c\x0a\x02T1\x48\x07\x52\x04high";
    assert!(
        answer.body.ends_with(tagged),
        "{}",
        const_hex::encode(&answer.body)
    );

    let metrics = server.connect_admin().get("/metrics").text();
    for (bucket, decision, count) in [
        ("low", "no_bid", 1.0),
        ("high", "bid", 3.0),
        ("none", "no_bid", 2.0),
    ] {
        let series = format!(
            "rtad_bucket_decisions_total{{strategy=\"high-bids\",experiment=\"price-test\",\
             bucket=\"{bucket}\",decision=\"{decision}\"}}"
        );
        assert_eq!(metric(&metrics, &series), count, "{series}");
    }
}

/// The arms of a price test share a target id, and differ in the value alone.
#[test]
fn bucket_chooses_the_value_of_a_bid() {
    let store = TestStore::empty();
    for audience in ["old_users", "vip"] {
        store.publish(audience, &[key("oaid", "somebody")]);
    }
    let values = r#"
[[strategy.value]]
audience = "vip"
bucket = "price-test:high"
weight = 4.0
[[strategy.value]]
bucket = "price-test:high"
weight = 2.0
[[strategy.value]]
weight = 1.0
[[platform]]"#;
    let rules = rules(HALVES)
        .replacen("[[platform]]", values, 1)
        .replacen(
            "[[audience]]",
            "[[audience]]\nname = \"vip\"\n[[audience]]",
            1,
        )
        .replace("\"high-bids\" }", "\"new-users\" }");
    let server = FixtureServer::start(store, "", &rules);
    let mut client = server.connect();
    let [low, high] = [oaid(false), oaid(true)];
    for (device, weight, bucket) in [
        (json!({ "oaid": low }), 1.0, "low"),
        (json!({ "oaid": high }), 2.0, "high"),
        (json!({ "mac": "1c:b7:2c:aa:bb:cc" }), 1.0, "none"),
    ] {
        let body = json!({ "strategies": ["new-users"], "device": device });
        let answer = client.post("/v1/decide", body.to_string()).ok();
        let expected = json!({
            "strategy": "new-users", "bid": true, "reason": "not_member",
            "value": { "weight": weight }, "buckets": { "price-test": bucket },
        });
        assert_eq!(answer["decisions"][0], expected);
    }

    let device = Device {
        oaid: Some(high.into()),
        ..Device::default()
    };
    let request = RtaRequest {
        device: Some(device),
        ..RtaRequest::default()
    };
    let answer = client.post("/rta/tencent", request.encode_to_vec());
    // user_weight_factor 2, and the tag of the bucket, in the one target_infos of "T1".
    let valued = b"\x52\x02T1\x62\x11\x0a\x02T1\x35\x00\x00\x00\x40\x48\x07\x52\x04high";
    assert!(
        answer.body.ends_with(valued),
        "{}",
        const_hex::encode(&answer.body)
    );

    let metrics = server.metrics();
    let series = "rtad_bid_values_total{strategy=\"new-users\",row=\"1\",audience=\"\",tier=\"\",\
                  experiment=\"price-test\",bucket=\"high\"}";
    assert_eq!(metric(&metrics, series), 2.0);
    let series = "rtad_bucket_decisions_total{strategy=\"new-users\",experiment=\"price-test\",\
                  bucket=\"high\",decision=\"bid\"}";
    assert_eq!(metric(&metrics, series), 2.0);
}

#[test]
fn reload_refuses_moved_slots() {
    let server = start(HALVES);
    let mut admin = server.connect_admin();
    let mut reload = |experiment: &str| {
        server.write_config("", &rules(experiment));
        admin.request("POST", "/v1/reload", "", "")
    };
    let moved = HALVES.replace("5000", "4000");
    let detail = reload(&moved).problem(422, "bad_config");
    let expected = "experiment.price-test: slot 4000 moves from low to high; accepted: the buckets \
                    of before, free slots, or an experiment of another name";
    assert!(detail.ends_with(expected), "{detail}");
    let detail = reload(&format!("layer = \"2\"\n{HALVES}")).problem(422, "bad_config");
    assert!(detail.contains("another layer moves devices"), "{detail}");
    let renamed = rules(&moved).replace("price-test", "price-test-2");
    server.write_config("", &renamed);
    admin.request("POST", "/v1/reload", "", "").ok();
}

/// The way back from a wider experiment is open, and no way around leads to another bucket.
#[test]
fn experiment_may_be_rolled_back_and_keeps_its_slots() {
    let server = start(HALVES);
    let mut admin = server.connect_admin();
    let mut reload = |rules: &str| {
        server.write_config("", rules);
        admin.request("POST", "/v1/reload", "", "")
    };
    let narrow = format!("traffic = \"0..500\"\n{HALVES}");
    let less = HALVES.replace("0..5000", "0..4000");
    for experiment in [&narrow, HALVES, &less] {
        reload(&rules(experiment)).ok();
    }

    let moved = HALVES
        .replace("0..5000", "0..4000")
        .replace("5000..10000", "4000..10000");
    let expected = "slot 4000 moves from low to high";
    let detail = reload(&rules(&moved)).problem(422, "bad_config");
    assert!(detail.contains(expected), "{detail}");

    let without = STRATEGY.replace("{ bucket = \"price-test:high\" }", "\"old_users\"");
    reload(&without).ok();
    let detail = reload(&rules(&moved)).problem(422, "bad_config");
    assert!(detail.contains(expected), "{detail}");
    reload(&rules(HALVES)).ok();
}
