//! Explanations compared with served answers, and their sentences.

mod attributes;
mod batches;
mod requests;
mod strategies;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::input::Encoding;
use super::*;
use crate::catalog::{Audience, Catalog, CatalogParts};
use crate::log::LogKey;
use crate::platform::api::UNKNOWN_STRATEGY;
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
when = "vip"
[[strategy]]
name = "any"
exclude = ["gone"]
when = "stale"
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
    let (filter, target_fpr) = match audience {
        "scores" => (
            FilterSpec::with_values_for_fpr(FilterKind::Ribbon, 1e-4),
            1e-4,
        ),
        _ => (FilterSpec::for_fpr(FilterKind::Block512, 1e-7), 1e-7),
    };
    let filter = filter.unwrap();
    let mut keys: Vec<DeviceKey> = ids
        .iter()
        .map(|id| DeviceKey::of_canonical(id.as_bytes()))
        .collect();
    keys.sort_unstable();
    let spec = Spec {
        filter,
        target_fpr,
        created_unix_seconds,
        ..Spec::small()
    };
    testkit::store::snapshot(audience, 7, &keys, &spec)
}

/// `old` holds the OAID, `vip` another id, `scores` the OAID with value 14, `gone` has no snapshot,
/// and `stale` is three hours old.
fn catalog(config: &str, telemetry: &Telemetry) -> Catalog {
    let assembly = Assembly::read(Some(("rtad.toml", config)), |_| None, &Vec::new()).unwrap();
    let plan = assembly.plan();
    let now = now_unix_seconds();
    let parts = CatalogParts {
        audiences: plan.audiences,
        strategies: plan.strategies,
        experiments: plan.experiments,
        platforms: plan.platforms,
        ..CatalogParts::default()
    };
    Catalog::new(parts, telemetry).with_audiences(|audience| {
        let (ids, age) = match audience.name.as_str() {
            "old" | "scores" => ([OAID], 60),
            "vip" => (["somebody"], 60),
            "stale" => ([OAID], 3 * 3600),
            _ => return None,
        };
        let snapshot = Arc::new(snapshot(audience.name.as_str(), &ids, now - age));
        Some(Audience {
            snapshot: Some(snapshot),
            is_stale: age > 7200,
            ..audience.clone()
        })
    })
}

struct Fixture {
    catalog: Catalog,
    ids: IdReader,
    log_key: Option<LogKey>,
}

fn fixture() -> Fixture {
    fixture_of(RULES)
}

fn fixture_of(config: &str) -> Fixture {
    let telemetry = Telemetry::default();
    let catalog = catalog(config, &telemetry);
    Fixture {
        catalog,
        ids: IdReader::new(KeyMaker::default(), &telemetry),
        log_key: None,
    }
}

impl Fixture {
    fn with_headers(
        &self,
        platform: &str,
        headers: &[(&'static str, &'static str)],
        body: &[u8],
    ) -> Explanation {
        self.explained(platform, headers, body, None)
    }

    /// Explained under the schedules of a time.
    fn at(&self, platform: &str, body: &[u8], at: Option<SystemTime>) -> Explanation {
        self.explained(platform, &[], body, at)
    }

    fn explained(
        &self,
        platform: &str,
        headers: &[(&'static str, &'static str)],
        body: &[u8],
        at: Option<SystemTime>,
    ) -> Explanation {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        let headers: HeaderMap = headers.iter().map(pair).collect();
        let captured = Captured {
            at,
            head: RequestHead {
                headers: &headers,
                query: None,
            },
            has_headers: !headers.is_empty(),
            body: Bytes::copy_from_slice(body),
            encoding: Encoding::Binary,
            max_body: 1024,
        };
        let target = Target::named(&self.catalog, platform).unwrap();
        let explainer = Explainer {
            catalog: &self.catalog,
            ids: &self.ids,
            history: &SyncHistory::default(),
            log_key: self.log_key.as_ref(),
        };
        explain(&explainer, target, &captured)
    }

    fn json(&self, platform: &str, body: &[u8]) -> Value {
        serde_json::to_value(self.with_headers(platform, &[], body)).unwrap()
    }

    /// The served answer, in hex.
    fn served(&self, platform: &str, body: &[u8]) -> String {
        let served = self.catalog.platform_named(platform).unwrap();
        let headers = HeaderMap::new();
        let head = RequestHead {
            headers: &headers,
            query: None,
        };
        let body = Ok(Bytes::copy_from_slice(body)).and_then(|body: Bytes| {
            if body.len() > 1024 {
                Err(Failure::TooLarge)
            } else {
                Ok(body)
            }
        });
        let mut read = Read::default();
        let answered = served.platform.respond(
            Admission::Granted,
            head,
            &body,
            &mut read,
            |read, verdicts| {
                let mut keys = self.catalog.no_keys();
                self.catalog.add_keys(served, &self.ids, read, &mut keys);
                let mut facts = self.catalog.no_facts(&keys);
                self.catalog.add_facts(&keys, read, &mut facts);
                self.catalog.decide(read.strategies(), &facts, verdicts);
                self.catalog.admit(&keys, Instant::now(), verdicts);
                self.catalog.count(served, &facts, verdicts);
                self.catalog.remove_shadow(verdicts);
            },
        );
        const_hex::encode(answered.bytes)
    }
}

fn tencent(device: Device) -> Vec<u8> {
    RtaRequest {
        id: Some("r1".into()),
        device: Some(device),
        ..RtaRequest::default()
    }
    .encode_to_vec()
}

fn openids(count: usize) -> Device {
    let openid = |n| device::WxOpenid {
        openid: Some(format!("user-{n}").into()),
    };
    Device {
        wx_openid: (0..count).map(openid).collect(),
        ..Device::default()
    }
}

/// `result because` of each id, and `id reason because` of each strategy.
fn listed(explanation: &Value, list: &str, fields: &[&str]) -> Vec<String> {
    let text = |one: &Value| {
        let fields = fields.iter().filter_map(|field| one[*field].as_str());
        fields.collect::<Vec<_>>().join("; ")
    };
    explanation[list]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect()
}

#[test]
fn every_id_is_listed_with_its_result() {
    let qaid = |qaid: &'static str| device::QaidInfo {
        qaid: Some(qaid.into()),
        qaid_md5sum: None,
    };
    let body = tencent(Device {
        idfa_md5sum: Some("8D3E".into()),
        imei_md5sum: Some("00000000000000000000000000000000".into()),
        android_id_md5sum: Some(IMEI_MD5.into()),
        oaid_md5sum: Some(OAID_MD5.to_uppercase().into()),
        oaid: Some(OAID.into()),
        qaid_infos: vec![qaid(" abc "), qaid("def")],
        doubtful_ids_list: vec![device::DoubtfulId::DoubtfulAndroididMd5 as i32],
        wx_openid: vec![device::WxOpenid {
            openid: Some(Bytes::from_static(b"\xff\x1b[31m")),
        }],
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
    assert_eq!(
        (&usable["md5"], &usable["shard"]),
        (&json!(OAID_MD5), &json!("83e9"))
    );
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
        "it is not up to 128 letters, digits and -_.@+/",
    ] {
        assert!(
            text.contains(&format!("    ignored: {because}")),
            "{because} in\n{text}"
        );
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
    let old = text(&tencent(Device {
        oaid: Some(OAID.into()),
        ..Device::default()
    }));
    for line in [
        "member: device.oaid is in old, which it excludes",
        "rule: its rule vip does not hold; it would if the device were in vip",
        "unavailable: gone and stale are unavailable, and its `unavailable` answer is bid",
        "gone   unavailable  no snapshot of it has been loaded yet",
    ] {
        assert!(old.contains(&format!("  {line}\n")), "{line} in\n{old}");
    }
    // The age grows by a second when the test is slow.
    let stale = old
        .lines()
        .find(|line| line.contains("stale  unavailable"))
        .unwrap();
    assert!(stale.contains("  its snapshot is 3h"), "{stale}");
    assert!(stale.ends_with(" old, and max_age is 2h"), "{stale}");
    assert_eq!(
        conclusion(&old),
        "No bid for T1, because device.oaid is in old, which it excludes; no bid for T2, because \
         its rule vip does not hold; it would if the device were in vip; bid for T3, because gone and stale are \
         unavailable, and its `unavailable` answer is bid."
    );
    let vip = text(&tencent(Device {
        oaid: Some("somebody".into()),
        ..Device::default()
    }));
    for line in [
        "not_member: no id is in old",
        "rule: its rule vip holds; it would not if the device were not in vip",
    ] {
        assert!(vip.contains(&format!("  {line}\n")), "{line} in\n{vip}");
    }
    let nothing = conclusion(&text(&tencent(Device::default())));
    let expected =
        "No bid for T1 and T2, because the request has no id, and its `no_device` answer is no bid";
    assert!(nothing.starts_with(expected), "{nothing}");
    let ping = RtaRequest {
        is_ping: Some(true),
        ..RtaRequest::default()
    }
    .encode_to_vec();
    assert!(conclusion(&text(&ping)).starts_with("A ping is answered at once"));
    let audiences = &fixture.json("tx", b"")["audiences"];
    assert_eq!(
        audiences[2]["unavailable"],
        json!({ "reason": "not_loaded" })
    );
    assert_eq!(
        audiences[3]["unavailable"],
        json!({ "reason": "too_old", "max_age_seconds": 7200 })
    );
}

#[test]
fn missing_ids_are_named() {
    let experiment = r#"
[[experiment]]
name = "test"
unit = ["imei", "idfa"]
buckets = [{ name = "all", slots = "0..10000" }]
[[strategy]]
name = "bucket"
when = { bucket = "test:all" }
[[platform]]
kind = "tencent"
name = "bt"
path = "/bt"
strategies = { B1 = "bucket", B2 = "new" }
"#;
    let fixture = fixture_of(&format!("{RULES}{experiment}"));
    let oaid = Device {
        oaid: Some(OAID.into()),
        imei_md5sum: Some("short".into()),
        ..Device::default()
    };
    let explanation = fixture.with_headers("bt", &[], &tencent(oaid));
    let text = explanation.to_string();
    assert!(
        text.contains("the device is in test:none, as it has no usable imei or idfa"),
        "{text}"
    );
    let explained = serde_json::to_value(&explanation).unwrap();
    let bucket = json!({
        "experiment": "test", "bucket": "none", "unit": null, "kinds": ["imei", "idfa"],
    });
    assert_eq!(explained["strategies"][0]["buckets"], json!([bucket]));

    let blank = Device {
        oaid: Some("".into()),
        imei_md5sum: Some("short".into()),
        ..Device::default()
    };
    for (device, because) in [
        (blank, "no id is usable"),
        (Device::default(), "the request has no id"),
    ] {
        let text = fixture
            .with_headers("bt", &[], &tencent(device))
            .to_string();
        let line = format!("  no_device: {because}, and its `no_device` answer is no bid\n");
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn requested_strategies_are_listed_including_unknown_ones() {
    let request = ocean::Req {
        rta_ids: vec![9, 2, 1],
        did: OAID_MD5.into(),
        ..ocean::Req::default()
    };
    let explained = fixture().json("oc", &request.encode_to_vec());
    assert_eq!(
        listed(&explained, "strategies", &["id", "strategy", "reason"]),
        ["9; not_configured", "2; vips; rule", "1; new; member"]
    );
    assert_eq!(
        explained["answer"]["content_type"],
        "application/x-protobuf"
    );
    assert!(
        explained["answer"]["text"]
            .as_str()
            .unwrap()
            .contains("user_infos: [{\n  rta_id: 9\n}, {")
    );
}

#[test]
fn explained_answer_equals_served_answer() {
    let fixture = fixture();
    let request = ocean::Req {
        rta_ids: vec![9, 2, 1],
        did: OAID_MD5.into(),
        ..ocean::Req::default()
    };
    let bodies = [
        tencent(Device {
            oaid: Some(OAID.into()),
            ..Device::default()
        }),
        tencent(openids(MAX_IDS)),
        tencent(openids(MAX_IDS + 1)),
        tencent(Device {
            oaid: Some("somebody".into()),
            ..Device::default()
        }),
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
    assert_eq!(
        fixture.json("tx", &tencent(openids(MAX_IDS)))["failure"],
        Value::Null
    );
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
fn every_word_of_an_explanation_has_a_text() {
    use documented::DocumentedFieldsOpt as _;
    use testkit::reference::assert_texts;

    use crate::strategy::Reason;
    use crate::telemetry::Route;

    let ids = crate::catalog::IdResult::FIELD_NAMES;
    assert_texts("id", ids);
    assert_texts("because", ids.iter().filter(|&&word| word != "Usable"));
    assert_texts("access", super::report::AccessChecked::FIELD_NAMES);
    assert_texts("encoding", ["binary", "hex", "base64"]);
    assert_texts("failure", Failure::ALL.map(Failure::as_str));
    assert_texts("failure", [UNKNOWN_STRATEGY]);
    assert_texts("reason", Reason::ALL.map(Reason::as_str));
    assert_texts("route", Route::ALL.map(Route::as_str));
    assert_texts(
        "why",
        [
            "not_configured",
            "capped",
            "no_grant",
            "not_scheduled",
            "disabled",
            "deleted",
        ],
    );
    // Lists of the console.
    let kinds = format!(
        "KINDS = {:?};",
        rtad_core::device::IdKind::ALL.map(|kind| kind.as_str())
    );
    assert!(include_str!("../http/console/lookup.js").contains(&kinds));
    let reasons = format!("REASONS={:?};", Reason::ALL.map(Reason::as_str)).replace(' ', "");
    let list = include_str!("../http/console/strategies.js").replace([' ', '\n'], "");
    assert!(list.replace(",]", "]").contains(&reasons));
}
