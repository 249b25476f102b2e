//! Explanations compared with served answers, and their sentences.

mod attributes;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message as _;
use serde_json::{Value, json};

use super::input::Encoding;
use super::*;
use crate::catalog::{Audience, Catalog};
use crate::platform::tencent::{Device, RtaRequest, device};
use crate::platform::{Admission, Failure, IdReader, MAX_IDS, Read, RequestHead, ocean};
use crate::serve::Assembly;
use crate::sync::SyncHistory;
use crate::telemetry::Telemetry;
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::{DeviceKey, KeyMaker};
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::Snapshot;
use testkit::store::Spec;

const OAID: &str = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";
const OAID_MD5: &str = "83e9158a4fb54c0e1ef0b238639a23ae";
const IMEI_MD5: &str = "8d3ebd3654fb46a2832296669cf1b536";

const RULES: &str = r#"
[store]
url = "/nowhere"
[server]
max_body = "1KiB"
[[audience]]
name = "old"
[[audience]]
name = "vip"
[[audience]]
name = "gone"
[[audience]]
name = "stale"
max_age = "2h"
[[strategy]]
name = "new"
exclude = ["old"]
[[strategy]]
name = "vips"
include = ["vip"]
[[strategy]]
name = "any"
exclude = ["gone"]
include = ["stale"]
no_device = "bid"
unavailable = "bid"
[[platform]]
kind = "tencent"
name = "tx"
path = "/tx"
strategies = { T1 = "new", T2 = "vips", T3 = "any" }
headers = [{ name = "X-Token", value = "hush-hush" }]
[[platform]]
kind = "ocean"
name = "oc"
path = "/oc"
strategies = { 1 = "new", 2 = "vips", 3 = "any" }
"#;

fn snapshot(audience: &str, ids: &[&str], created_unix_seconds: u64) -> Snapshot {
    let target_fpr = 1e-7;
    let filter = FilterSpec::for_fpr(FilterKind::Block512, target_fpr).unwrap();
    let mut keys: Vec<DeviceKey> =
        ids.iter().map(|id| DeviceKey::of_canonical(id.as_bytes())).collect();
    keys.sort_unstable();
    let spec = Spec { filter, target_fpr, created_unix_seconds, ..Spec::small() };
    testkit::store::snapshot(audience, 7, &keys, &spec)
}

/// `old` holds the OAID, `vip` another id, `gone` has no snapshot, and `stale` is three hours old.
fn catalog(config: &str, telemetry: &Telemetry) -> Catalog {
    let assembly = Assembly::read(Some(("rtad.toml", config)), |_| None, &Vec::new()).unwrap();
    let plan = assembly.plan();
    let now = now_unix_seconds();
    Catalog::new(plan.audiences, plan.strategies, plan.platforms, telemetry).with_audiences(
        |audience| {
            let (ids, age) = match audience.name.as_str() {
                "old" => ([OAID], 60),
                "vip" => (["somebody"], 60),
                "stale" => ([OAID], 3 * 3600),
                _ => return None,
            };
            let snapshot = Arc::new(snapshot(audience.name.as_str(), &ids, now - age));
            Some(Audience { snapshot: Some(snapshot), is_stale: age > 7200, ..audience.clone() })
        },
    )
}

struct Fixture {
    catalog: Catalog,
    ids: IdReader,
}

fn fixture() -> Fixture {
    fixture_of(RULES)
}

fn fixture_of(config: &str) -> Fixture {
    let telemetry = Telemetry::default();
    let catalog = catalog(config, &telemetry);
    Fixture { catalog, ids: IdReader::new(KeyMaker::default(), &telemetry) }
}

impl Fixture {
    fn with_headers(
        &self,
        platform: &str,
        headers: &[(&'static str, &'static str)],
        body: &[u8],
    ) -> Explanation {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(pair).collect();
        let captured = Captured {
            head: RequestHead { headers: &headers, query: None },
            has_headers: !headers.is_empty(),
            body: Bytes::copy_from_slice(body),
            encoding: Encoding::Binary,
            max_body: 1024,
        };
        let platform = &self.catalog.platform_named(platform).unwrap().platform;
        explain(&self.catalog, platform, &self.ids, &SyncHistory::default(), captured)
    }

    fn json(&self, platform: &str, body: &[u8]) -> Value {
        serde_json::to_value(self.with_headers(platform, &[], body)).unwrap()
    }

    /// The served answer, in hex.
    fn served(&self, platform: &str, body: &[u8]) -> String {
        let served = self.catalog.platform_named(platform).unwrap();
        let headers = HeaderMap::new();
        let head = RequestHead { headers: &headers, query: None };
        let body = Ok(Bytes::copy_from_slice(body)).and_then(|body: Bytes| {
            if body.len() > 1024 { Err(Failure::TooLarge) } else { Ok(body) }
        });
        let mut read = Read::default();
        let answered = served.platform.respond(
            Admission::Granted,
            head,
            &body,
            &mut read,
            |read, verdicts| {
                self.catalog.decide_request(served, &self.ids, read, Instant::now(), verdicts);
            },
        );
        const_hex::encode(answered.bytes)
    }
}

fn tencent(device: Device) -> Vec<u8> {
    RtaRequest { id: Some("r1".into()), device: Some(device), ..RtaRequest::default() }
        .encode_to_vec()
}

fn openids(count: usize) -> Device {
    let openid = |n| device::WxOpenid { openid: Some(format!("user-{n}").into()) };
    Device { wx_openid: (0..count).map(openid).collect(), ..Device::default() }
}

/// `result because` of each id, and `id reason because` of each strategy.
fn listed(explanation: &Value, list: &str, fields: &[&str]) -> Vec<String> {
    let text = |one: &Value| {
        let fields = fields.iter().filter_map(|field| one[*field].as_str());
        fields.collect::<Vec<_>>().join("; ")
    };
    explanation[list].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn every_id_is_listed_with_its_result() {
    let qaid = |qaid: &'static str| device::QaidInfo { qaid: Some(qaid.into()), qaid_md5sum: None };
    let body = tencent(Device {
        idfa_md5sum: Some("8D3E".into()),
        imei_md5sum: Some("00000000000000000000000000000000".into()),
        android_id_md5sum: Some(IMEI_MD5.into()),
        oaid_md5sum: Some(OAID_MD5.to_uppercase().into()),
        oaid: Some(OAID.into()),
        qaid_infos: vec![qaid(" abc "), qaid("def")],
        doubtful_ids_list: vec![device::DoubtfulId::DoubtfulAndroididMd5 as i32],
        wx_openid: vec![device::WxOpenid { openid: Some(Bytes::from_static(b"\xff\x1b[31m")) }],
        ..Device::default()
    });
    let fixture = fixture();
    let explained = fixture.json("tx", &body);
    assert_eq!(
        listed(&explained, "ids", &["path", "kind", "result"]),
        [
            "device.idfa_md5sum; idfa_md5; malformed",
            "device.imei_md5sum; imei_md5; blank",
            "device.android_id_md5sum; android_id_md5; doubtful",
            "device.oaid_md5sum; oaid_md5; usable",
            "device.oaid; oaid; duplicate",
            "device.qaid_infos.qaid; caid; usable",
            "device.qaid_infos.qaid; caid; usable",
            "device.wx_openid.openid; openid; malformed",
        ]
    );
    let usable = &explained["ids"][3];
    assert_eq!((&usable["md5"], &usable["shard"]), (&json!(OAID_MD5), &json!("83e9")));
    let unavailable = |name| json!({ "name": name, "answer": "unavailable" });
    assert_eq!(
        usable["audiences"],
        json!([{ "name": "old", "answer": "member" }, { "name": "vip", "answer": "not_member" },
            unavailable("gone"), unavailable("stale")])
    );
    assert_eq!(explained["ids"][5]["canonical"], "abc");
    assert_eq!(explained["ids"][7]["value"], "\u{fffd}\u{1b}[31m");
    let text = fixture.with_headers("tx", &[], &body).to_string();
    assert!(
        !text.contains('\u{1b}') && text.contains(r"\u{1b}[31m"),
        "control characters are escaped"
    );
    for because in [
        "it is not 32 hex digits",
        "it stands for \"no id\"",
        "the platform marks it as doubtful",
        "an earlier id has the same md5",
        "it is not up to 128 visible ASCII characters",
    ] {
        assert!(text.contains(&format!("    ignored: {because}")), "{because} in\n{text}");
    }
    assert!(
        text.contains(
            "    hashed as abc, md5 900150983cd24fb0d6963f7d28e17f72, shard 9001, not in old"
        ),
        "{text}"
    );
}

#[test]
fn every_decision_has_a_reason() {
    let fixture = fixture();
    let text = |body: &[u8]| fixture.with_headers("tx", &[], body).to_string();
    let conclusion = |text: &str| text.lines().last().unwrap().to_owned();
    let old = text(&tencent(Device { oaid: Some(OAID.into()), ..Device::default() }));
    for line in [
        "member: device.oaid is in old, which it excludes",
        "not_member: it bids only for members of vip, and no id is",
        "unavailable: gone and stale are unavailable, and its `unavailable` answer is bid",
        "gone   unavailable  no snapshot of it has been loaded yet",
    ] {
        assert!(old.contains(&format!("  {line}\n")), "{line} in\n{old}");
    }
    // The age grows by a second when the test is slow.
    let stale = old.lines().find(|line| line.contains("stale  unavailable")).unwrap();
    assert!(stale.contains("  its snapshot is 3h"), "{stale}");
    assert!(stale.ends_with(" old, and max_age is 2h"), "{stale}");
    assert_eq!(
        conclusion(&old),
        "No bid for T1, because device.oaid is in old, which it excludes; no bid for T2, because \
         it bids only for members of vip, and no id is; bid for T3, because gone and stale are \
         unavailable, and its `unavailable` answer is bid."
    );
    let vip = text(&tencent(Device { oaid: Some("somebody".into()), ..Device::default() }));
    for line in ["not_member: no id is in old", "member: device.oaid is in vip, which it includes"]
    {
        assert!(vip.contains(&format!("  {line}\n")), "{line} in\n{vip}");
    }
    let nothing = conclusion(&text(&tencent(Device::default())));
    let expected =
        "No bid for T1 and T2, because no id is usable, and its `no_device` answer is no bid";
    assert!(nothing.starts_with(expected), "{nothing}");
    let ping = RtaRequest { is_ping: Some(true), ..RtaRequest::default() }.encode_to_vec();
    assert!(conclusion(&text(&ping)).starts_with("A ping is answered at once"));
    let audiences = &fixture.json("tx", b"")["audiences"];
    assert_eq!(audiences[2]["unavailable"], json!({ "reason": "not_loaded" }));
    assert_eq!(
        audiences[3]["unavailable"],
        json!({ "reason": "too_old", "max_age_seconds": 7200 })
    );
}

#[test]
fn requested_strategies_are_listed_including_unknown_ones() {
    let request =
        ocean::Req { rta_ids: vec![9, 2, 1], did: OAID_MD5.into(), ..ocean::Req::default() };
    let explained = fixture().json("oc", &request.encode_to_vec());
    assert_eq!(
        listed(&explained, "strategies", &["id", "strategy", "reason"]),
        ["9; not_configured", "2; vips; not_member", "1; new; member"]
    );
    assert_eq!(explained["answer"]["content_type"], "application/x-protobuf");
    assert!(
        explained["answer"]["text"]
            .as_str()
            .unwrap()
            .contains("\nuser_infos: rta_id 9: not interested\n")
    );
}

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
    let body = tencent(Device { oaid: Some(OAID.into()), ..Device::default() });
    let explanation = fixture.with_headers("values", &[], &body);
    let text = explanation.to_string();
    for sentence in [
        "no id is in vip; its value is weight 2 and cpa_price 3000, that of old",
        "no id is in vip; its value is weight 0.9, that of other bids, as gone is unavailable",
        "target_infos: \"V1\", user_weight_factor 2, cpa_price 3000",
    ] {
        assert!(text.contains(sentence), "{sentence}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let expected = json!([
        { "audience": "old", "value": { "weight": 2.0, "cpa_price": 3000 }, "chosen": true },
        { "audience": null, "value": { "weight": 1.0 }, "chosen": false },
    ]);
    assert_eq!(json["strategies"][0]["values"], expected);
    assert_eq!(fixture.served("values", &body), json["answer"]["hex"].as_str().unwrap());
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
[[platform]]
kind = "tencent"
name = "rules"
path = "/rules"
strategies = { R1 = "refused", R2 = "held", R3 = "unknown", R4 = "later" }
"#;
    let fixture = fixture_of(&format!("{RULES}{conditions}"));
    let body = tencent(Device { oaid: Some(OAID.into()), ..Device::default() });
    let explanation = fixture.with_headers("rules", &[], &body);
    let text = explanation.to_string();
    let sentences = [
        "rule: its rule any(vip, all(all(old), none(old))) does not hold; it would if the device \
         were in vip",
        "rule: its rule any(old, gone) holds; it would not if the device were not in old",
        "unavailable: gone is unavailable, and its `unavailable` answer is no bid",
        "not_scheduled: its schedule does not hold now, and holds from 2099-12-31T16:00:00Z",
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
    assert_eq!(fixture.served("rules", &body), json["answer"]["hex"].as_str().unwrap());
    // A schedule refuses a request without ids, and one that is unreadable.
    for body in [&tencent(Device::default())[..], b"not a message"] {
        let reasons = fixture.json("rules", body)["strategies"].clone();
        assert_eq!(reasons[3]["reason"], "not_scheduled", "{reasons}");
    }
}

#[test]
fn explained_answer_equals_served_answer() {
    let fixture = fixture();
    let request =
        ocean::Req { rta_ids: vec![9, 2, 1], did: OAID_MD5.into(), ..ocean::Req::default() };
    let bodies = [
        tencent(Device { oaid: Some(OAID.into()), ..Device::default() }),
        tencent(openids(MAX_IDS)),
        tencent(openids(MAX_IDS + 1)),
        tencent(Device { oaid: Some("somebody".into()), ..Device::default() }),
        request.encode_to_vec(),
        b"\x0a\x02p1\x10\x01".to_vec(),
        b"{}".to_vec(),
        vec![b' '; 1025],
        Vec::new(),
    ];
    for platform in ["tx", "oc"] {
        for body in &bodies {
            assert_eq!(
                fixture.json(platform, body)["answer"]["hex"],
                fixture.served(platform, body),
                "{body:?}"
            );
        }
    }
}

#[test]
fn too_many_ids_prove_membership_only() {
    let fixture = fixture();
    assert_eq!(fixture.json("tx", &tencent(openids(MAX_IDS)))["failure"], Value::Null);
    let explained = fixture.json("tx", &tencent(openids(MAX_IDS + 1)));
    assert_eq!(explained["failure"]["cause"], "too_many_ids");
    let results = listed(&explained, "ids", &["result"]);
    assert_eq!(
        (results[MAX_IDS - 1].as_str(), results[MAX_IDS].as_str()),
        ("usable", "not_looked_at")
    );
    let mut device = openids(MAX_IDS + 1);
    device.oaid = Some(OAID.into());
    let proven = fixture.json("tx", &tencent(device));
    assert_eq!(proven["failure"]["cause"], "too_many_ids");
    assert_eq!(proven["strategies"][0]["reason"], "member");
}

#[test]
fn failures_are_explained() {
    let fixture = fixture();
    let bad = fixture.json("tx", b"{}");
    assert_eq!(bad["failure"]["cause"], "bad_body");
    let detail = bad["failure"]["detail"].as_str().unwrap();
    assert!(detail.starts_with("failed to decode"), "{detail}");
    assert_eq!(
        listed(&bad, "strategies", &["id", "reason"]),
        ["T1; unavailable", "T2; unavailable", "T3; unavailable"]
    );
    let large = fixture.json("oc", &[0; 1025]);
    assert_eq!(large["failure"], json!({ "cause": "too_large" }));
    let text = fixture.with_headers("oc", &[], &[0; 1025]).to_string();
    let because = "because the body has 1025 bytes, and server.max_body is 1024.\n";
    assert!(text.ends_with(because), "{text}");
}

#[test]
fn access_is_shown_and_secrets_are_not() {
    let fixture = fixture();
    let body = tencent(Device { oaid: Some(OAID.into()), ..Device::default() });
    for (platform, headers, access, cause) in [
        ("oc", &[("x-token", "hush-hush")][..], "open", Value::Null),
        ("tx", &[], "not_checked", Value::Null),
        ("tx", &[("x-token", "hush-hush")], "admitted", Value::Null),
        ("tx", &[("x-token", "hush-hussh")], "refused", json!("unauthorized")),
    ] {
        let explanation = fixture.with_headers(
            platform,
            headers,
            if platform == "oc" { b"\x08\x01" } else { &body },
        );
        let explained = serde_json::to_value(&explanation).unwrap();
        assert_eq!(
            (&explained["access"], &explained["failure"]["cause"]),
            (&json!(access), &cause)
        );
        assert!(
            !explained.to_string().contains("hush") && !explanation.to_string().contains("hush")
        );
        if access == "refused" {
            assert_eq!(
                (&explained["answer"]["hex"], &explained["ids"]),
                (&json!("1001"), &json!([]))
            );
        }
    }
}

#[test]
fn explanation_of_a_hostile_body_is_bounded() {
    let rta_ids = (0..600).map(|n| n % 128).collect();
    let body = ocean::Req { rta_ids, ..Default::default() }.encode_to_vec();
    let explained = fixture().json("oc", &body);
    assert!(explained["strategies"].as_array().unwrap().len() <= 256);
    let last = explained["notes"].as_array().unwrap().last().unwrap();
    let expected = json!({ "what": "ids and strategies that are not listed", "value": "344" });
    assert_eq!(*last, expected);
}

#[test]
fn every_word_of_an_explanation_has_a_text() {
    use documented::DocumentedFieldsOpt as _;
    use testkit::reference::assert_texts;

    use crate::strategy::Reason;
    use crate::telemetry::Route;

    let ids = crate::catalog::IdResult::FIELD_NAMES;
    assert_texts("id", ids);
    assert_texts("because", ids.iter().filter(|&&word| word != "Usable"));
    assert_texts("access", super::report::AccessChecked::FIELD_NAMES);
    assert_texts("encoding", Encoding::ALL.map(Encoding::as_str));
    assert_texts("failure", Failure::ALL.map(Failure::as_str));
    assert_texts("reason", Reason::ALL.map(Reason::as_str));
    assert_texts("route", Route::ALL.map(Route::as_str));
    assert_texts(
        "why",
        ["not_configured", "capped", "no_lease", "not_scheduled", "disabled", "deleted"],
    );
    // Lists of the console.
    let kinds = format!("KINDS = {:?};", rtad_core::device::IdKind::ALL.map(|kind| kind.as_str()));
    assert!(include_str!("../http/console/lookup.js").contains(&kinds));
    let reasons = format!("REASONS={:?};", Reason::ALL.map(Reason::as_str)).replace(' ', "");
    let list = include_str!("../http/console/strategies.js").replace([' ', '\n'], "");
    assert!(list.replace(",]", "]").contains(&reasons));
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
    let fixture = Fixture { catalog, ids: IdReader::new(KeyMaker::default(), &telemetry) };
    let request = ocean::Req {
        rta_ids: vec![1, 2, 3],
        device: Some(ocean::Device { oaid: OAID.into(), ..ocean::Device::default() }),
        ..ocean::Req::default()
    };
    let body = request.encode_to_vec();
    let explanation = fixture.with_headers("trials", &[], &body);
    let text = explanation.to_string();
    for part in [
        "not_member: no id is in vip (in shadow: not answered)",
        "rta_id 1: not interested",
        "rta_id 3: not interested",
        "bid_type: 1",
        "cache_time_secs: 3600 s",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json = serde_json::to_value(explanation).unwrap();
    let first = &json["strategies"][0];
    assert_eq!((&first["bid"], &first["shadow"]), (&json!(true), &json!(true)));
    assert_eq!(fixture.served("trials", &body), json["answer"]["hex"].as_str().unwrap());
    let labels = r#"platform="trials",strategy="trial",decision="bid",reason="not_member""#;
    let series = format!("rtad_shadow_decisions_total{{{labels}}} 1");
    let metrics = telemetry.render();
    assert!(metrics.lines().any(|line| line == series), "{metrics}");
    assert!(telemetry.decision_totals().keys().all(|labels| labels.strategy != "trial"));
}
