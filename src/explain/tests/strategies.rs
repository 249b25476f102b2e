//! Values, conditions, schedules and shadows of strategies in explanations.

use rtad_core::schedule::Moment;

use super::*;

/// Strategies with values, over the audiences of [`RULES`].
#[test]
fn values_of_bids_are_explained() {
    let values = r#"
[[strategy]]
name = "valued"
exclude = ["vip"]
[[strategy.value]]
audience = "old"
weight = 2.0
cpa_price = 3000
[[strategy.value]]
weight = 1
[[strategy]]
name = "careful"
exclude = ["vip"]
[[strategy.value]]
audience = "gone"
weight = 2.0
[[strategy.value]]
weight = 0.9
[[platform]]
kind = "tencent"
name = "values"
path = "/values"
strategies = { V1 = "valued", V2 = "careful" }
"#;
    let fixture = fixture_of(&format!("{RULES}{values}"));
    let body = tencent(Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    });
    let explanation = fixture.with_headers("values", &[], &body);
    let text = explanation.to_string();
    for sentence in [
        "no id is in vip; its value is weight 2 and cpa_price 3000, that of old",
        "no id is in vip; its value is weight 0.9, that of other bids, as gone is unavailable",
        "cpa_price: 3000\n    user_weight_factor: 2.0",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let expected = json!([
        { "audience": "old", "value": { "weight": 2.0, "cpa_price": 3000 }, "chosen": true },
        { "audience": null, "value": { "weight": 1.0 }, "chosen": false },
    ]);
    assert_eq!(json["strategies"][0]["values"], expected);
    assert_eq!(
        fixture.served("values", &body),
        json["answer"]["hex"].as_str().unwrap()
    );
}

#[test]
fn tiers_are_explained() {
    let tiers = r#"
[[audience]]
name = "scores"
[[strategy]]
name = "scored"
when = "old"
[[strategy.value]]
audience = "scores"
tier = "..=13"
weight = 0.5
[[strategy.value]]
audience = "scores"
tier = "14.."
weight = 3
[[strategy]]
name = "careful"
exclude = ["vip"]
[[strategy.value]]
audience = "old"
tier = 14
weight = 2
[[strategy.value]]
audience = "old"
tier = "none"
weight = 0.9
[[platform]]
kind = "tencent"
name = "tiers"
path = "/tiers"
strategies = { V1 = "scored", V2 = "careful" }
"#;
    let fixture = fixture_of(&format!("{RULES}{tiers}"));
    let mut device = Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    };
    let body = tencent(device.clone());
    let explanation = fixture.with_headers("tiers", &[], &body);
    let text = explanation.to_string();
    for sentence in [
        "shard 83e9, in old, not in vip, in scores with tier 14",
        "scores  member with tier 14  generation 7",
        "not in old; its value is weight 3, that of scores with tier 14..=15\n",
        "no id is in vip; its value is weight 0.9, that of old with tier none, as old was built \
         without values\n",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let named = |list: &Value| {
        let list = list.as_array().unwrap();
        list.iter()
            .find(|one| one["name"] == "scores")
            .unwrap()
            .clone()
    };
    assert_eq!(named(&json["audiences"])["tier"], 14);
    assert_eq!(named(&json["audiences"])["snapshot"]["has_values"], true);
    assert_eq!(named(&json["ids"][0]["audiences"])["tier"], 14);
    let second = &json["strategies"][0]["values"][1];
    assert_eq!(
        (&second["tier"], &second["chosen"]),
        (&json!("14..=15"), &json!(true))
    );
    assert_eq!(
        fixture.served("tiers", &body),
        json["answer"]["hex"].as_str().unwrap()
    );
    let missing: Vec<_> = fixture.catalog.are_tiers_missing().collect();
    assert_eq!(missing, [true, false, false, false, false]);

    // An id that is not read may have a greater value.
    device.wx_openid = openids(MAX_IDS + 1).wx_openid;
    let text = fixture
        .with_headers("tiers", &[], &tencent(device))
        .to_string();
    let sentence = "no value fits, as another id may have a greater value in scores";
    assert!(text.contains(sentence), "{text}");
}

/// The device is in `test:a`, as in [`requests`].
#[test]
fn values_by_bucket_are_explained() {
    let rules = r#"
[[experiment]]
name = "test"
buckets = [{ name = "a", slots = "0..10000" }]
[[experiment]]
name = "other"
buckets = [{ name = "a", slots = "0..10000" }]
[[strategy]]
name = "factor"
exclude = ["vip"]
[[strategy.value]]
audience = "gone"
bucket = "test:none"
weight = 4
[[strategy.value]]
bucket = "test:a"
weight = 3
[[strategy]]
name = "both"
exclude = ["vip"]
[[strategy.value]]
audience = "old"
bucket = "other:a"
weight = 2
[[platform]]
kind = "tencent"
name = "buckets"
path = "/buckets"
strategies = { V1 = "factor", V2 = "both" }
"#;
    let fixture = fixture_of(&format!("{RULES}{rules}"));
    let mut device = Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    };
    let explanation = fixture.with_headers("buckets", &[], &tencent(device.clone()));
    let text = explanation.to_string();
    for sentence in [
        "its value is weight 3, that of test:a; the device is in test:a by its oaid\n",
        "its value is weight 2, that of old and other:a; the device is in other:a by its oaid\n",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let expected = json!([
        { "audience": "gone", "bucket": "test:none", "value": { "weight": 4.0 }, "chosen": false },
        { "audience": null, "bucket": "test:a", "value": { "weight": 3.0 }, "chosen": true },
    ]);
    assert_eq!(json["strategies"][0]["values"], expected);

    // An id that is not read may be the unit.
    device.oaid = None;
    device.wx_openid = openids(MAX_IDS + 1).wx_openid;
    let json = fixture.json("buckets", &tencent(device.clone()));
    assert_eq!(json["strategies"][0]["buckets"], json!(null), "{json}");
    let text = fixture
        .with_headers("buckets", &[], &tencent(device))
        .to_string();
    assert!(!text.contains("its value"), "{text}");
}

/// Strategies with conditions and schedules, over the audiences of [`RULES`].
#[test]
fn conditions_and_schedules_are_explained() {
    let conditions = r#"
[[strategy]]
name = "refused"
when = { any = ["vip", { all = ["old"], none = ["old"] }] }
[[strategy]]
name = "held"
when = { any = ["old", "gone"] }
[[strategy]]
name = "unknown"
when = { any = ["vip", "gone"] }
[[strategy]]
name = "later"
exclude = ["gone"]
valid_from = "2100-01-01T00:00:00+08:00"
unavailable = "bid"
no_device = "bid"
[[strategy]]
name = "slots"
when = { slot = "7" }
valid_from = "2100-01-01T00:00:00+08:00"
[[platform]]
kind = "tencent"
name = "slots"
path = "/slots"
strategies = { S1 = "slots" }
[[platform]]
kind = "tencent"
name = "rules"
path = "/rules"
strategies = { R1 = "refused", R2 = "held", R3 = "unknown", R4 = "later" }
"#;
    let fixture = fixture_of(&format!("{RULES}{conditions}"));
    let body = tencent(Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    });
    let explanation = fixture.with_headers("rules", &[], &body);
    let text = explanation.to_string();
    let sentences = [
        "rule: its rule any(vip, all(all(old), none(old))) does not hold; it would if the device \
         were in vip",
        "rule: its rule any(old, gone) holds; it would not if the device were not in old",
        "unavailable: gone is unavailable, and its `unavailable` answer is no bid",
        "not_scheduled: its schedule does not hold before 2099-12-31T16:00:00+00:00",
    ];
    for sentence in sentences {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let bids = [0, 1, 2, 3].map(|index| json["strategies"][index]["bid"] == true);
    assert_eq!(bids, [false, true, false, false]);
    let change = json!([[{ "audience": "vip", "answer": "member" }]]);
    assert_eq!(json["strategies"][0]["when"]["changes"], change);
    assert_eq!(json["strategies"][2]["when"]["truth"], "unknown");
    assert_eq!(
        json["strategies"][3]["schedule"],
        json!({ "holds": false, "next_change_unix_seconds": 4_102_416_000_u64 })
    );
    assert_eq!(
        fixture.served("rules", &body),
        json["answer"]["hex"].as_str().unwrap()
    );
    // Another slot changes nothing outside the schedule.
    let cached = fixture.with_headers("slots", &[], &body).to_string();
    assert!(cached.contains("response_cache_time: 3600"), "{cached}");
    // A schedule refuses a request without ids, and one that is unreadable.
    for body in [&tencent(Device::default())[..], b"not a message"] {
        let reasons = fixture.json("rules", body)["strategies"].clone();
        assert_eq!(reasons[3]["reason"], "not_scheduled", "{reasons}");
    }
}

#[test]
fn decisions_in_shadow_are_counted_and_not_answered() {
    let shadow = r#"
[[strategy]]
name = "trial"
exclude = ["vip"]
shadow = true
[[platform]]
kind = "ocean"
name = "trials"
path = "/trials"
no_bid_cache = "1h"
strategies = { 1 = "trial", 2 = "trial", 3 = "new" }
"#;
    let telemetry = Telemetry::default();
    let catalog = catalog(&format!("{RULES}{shadow}"), &telemetry);
    let fixture = Fixture {
        catalog,
        ids: IdReader::new(KeyMaker::default(), &telemetry),
        log_key: None,
    };
    let request = ocean::Req {
        rta_ids: vec![1, 2, 3],
        device: Some(ocean::Device {
            oaid: OAID.into(),
            ..ocean::Device::default()
        }),
        ..ocean::Req::default()
    };
    let body = request.encode_to_vec();
    let explanation = fixture.with_headers("trials", &[], &body);
    let text = explanation.to_string();
    for part in [
        "not_member: no id is in vip (in shadow: not answered)",
        "rta_id: 1",
        "rta_id: 3",
        "bid_type {\n    value: 1\n  }",
        "cache_time_secs: 3600",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("is_interested"), "{text}");
    let json = serde_json::to_value(explanation).unwrap();
    let first = &json["strategies"][0];
    assert_eq!(
        (&first["bid"], &first["shadow"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        fixture.served("trials", &body),
        json["answer"]["hex"].as_str().unwrap()
    );
    let labels = r#"platform="trials",strategy="trial",decision="bid",reason="not_member""#;
    let series = format!("rtad_shadow_decisions_total{{{labels}}} 1");
    let metrics = telemetry.render();
    assert!(metrics.lines().any(|line| line == series), "{metrics}");
}

#[test]
fn schedules_of_another_time_are_explained_in_their_zone() {
    const HOURS: &str = r#"
[store]
url = "/data"
[[audience]]
name = "old"
[[strategy]]
name = "days"
exclude = ["old"]
hours = ["09:00-18:00"]
time_zone = "Asia/Shanghai"
[[platform]]
kind = "tencent"
name = "days"
path = "/days"
strategies = { D1 = "days" }
"#;
    let fixture = fixture_of(HOURS);
    let body = tencent(Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    });
    let at = |time: &str| {
        let time: Moment = time.parse().unwrap();
        fixture.at("days", &body, Some(time.into()))
    };

    let night = at("2026-11-28T03:00:00+08:00");
    let text = night.to_string();
    let sentence = "not_scheduled: its schedule does not hold before 2026-11-28T09:00:00+08:00";
    assert!(text.contains(sentence), "{text}");
    let night = serde_json::to_value(night).unwrap();
    assert_eq!(night["strategies"][0]["schedule"]["holds"], false);

    let day = serde_json::to_value(at("2026-11-28T15:00:00+08:00")).unwrap();
    assert_eq!(day["strategies"][0]["schedule"]["holds"], true);
    // The audience was asked, although the schedule may not hold now.
    assert_eq!(day["strategies"][0]["reason"], "member");
}
