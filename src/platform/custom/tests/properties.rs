//! Properties: requests written by prost-reflect are read back, and answers are readable by it.
//! `tests/platform_corpus` has hostile bodies.

use std::sync::LazyLock;

use proptest::prelude::*;
use prost_reflect::{DescriptorPool, DynamicMessage, Value as Dynamic};

use super::*;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("p.proto");
    std::fs::write(&file, PROTO2).unwrap();
    schema::compile(&file).unwrap()
});
static PLATFORM: LazyLock<Arc<Platform>> = LazyLock::new(|| platform(PROTO2, PROTOBUF));
static JSON: LazyLock<Arc<Platform>> = LazyLock::new(|| {
    let mapping = r#"
body = "json"
[platform.request]
request_id = "id"
strategies = "asked"
ids = { imei = ["device.imei", "list.imei"], caid = "device.caid" }
id_list = { list = "dids", value = "value", type = "type", kinds = { "IMEI" = "imei" } }
[platform.response]
request_id = "id"
verdicts = { list = "verdicts", strategy = "strategy", accepted = "accept" }
"#;
    platform("", mapping)
});

/// The contents of a request.
#[derive(Debug, Clone)]
struct Meant {
    id: Option<String>,
    asked: Vec<i64>,
    imei: Option<String>,
    oaid: Option<String>,
    caid: Vec<String>,
    number: Option<u64>,
    /// Type, value, hashed.
    dids: Vec<(Option<i32>, Option<String>, Option<bool>)>,
}

fn meant() -> impl Strategy<Value = Meant> {
    let text = || proptest::option::of("\\PC{0,40}");
    let did = (
        proptest::option::of(0..2_i32),
        text(),
        proptest::option::of(any::<bool>()),
    );
    let asked = proptest::collection::vec(prop_oneof![0_i64..4, any::<i64>()], 0..6);
    let caid = proptest::collection::vec("\\PC{0,9}", 0..4);
    let dids = proptest::collection::vec(did, 0..5);
    (
        text(),
        asked,
        text(),
        text(),
        caid,
        proptest::option::of(any::<u64>()),
        dids,
    )
        .prop_map(|(id, asked, imei, oaid, caid, number, dids)| Meant {
            id,
            asked,
            imei,
            oaid,
            caid,
            number,
            dids,
        })
}

fn message(name: &str) -> DynamicMessage {
    DynamicMessage::new(POOL.get_message_by_name(name).unwrap())
}

fn set(message: &mut DynamicMessage, name: &str, value: Option<Dynamic>) {
    if let Some(value) = value {
        message.set_field_by_name(name, value);
    }
}

impl Meant {
    fn encoded(&self) -> Vec<u8> {
        let text = |text: &Option<String>| text.clone().map(Dynamic::String);
        let mut device = message("t.Device");
        set(&mut device, "imei", text(&self.imei));
        set(&mut device, "oaid", text(&self.oaid));
        set(
            &mut device,
            "caid",
            Some(Dynamic::List(
                self.caid.iter().cloned().map(Dynamic::String).collect(),
            )),
        );
        set(&mut device, "number", self.number.map(Dynamic::U64));
        let did = |(kind, value, hashed): &(Option<i32>, Option<String>, Option<bool>)| {
            let mut did = message("t.Did");
            set(&mut did, "type", kind.map(Dynamic::EnumNumber));
            set(&mut did, "value", text(value));
            set(&mut did, "hashed", hashed.map(Dynamic::Bool));
            Dynamic::Message(did)
        };
        let mut request = message("t.Req");
        set(&mut request, "id", text(&self.id));
        set(
            &mut request,
            "asked",
            Some(Dynamic::List(
                self.asked.iter().copied().map(Dynamic::I64).collect(),
            )),
        );
        set(&mut request, "device", Some(Dynamic::Message(device)));
        set(
            &mut request,
            "dids",
            Some(Dynamic::List(self.dids.iter().map(did).collect())),
        );
        set(&mut request, "score", Some(Dynamic::F32(0.5)));
        prost::Message::encode_to_vec(&request)
    }

    fn ids(&self) -> Vec<String> {
        let mut ids = Vec::new();
        ids.extend(
            self.imei
                .iter()
                .map(|imei| format!("device.imei imei {imei}")),
        );
        ids.extend(
            self.oaid
                .iter()
                .map(|oaid| format!("device.oaid oaid {oaid}")),
        );
        ids.extend(
            self.caid
                .iter()
                .map(|caid| format!("device.caid caid {caid}")),
        );
        ids.extend(
            self.number
                .iter()
                .map(|number| format!("device.number openid {number}")),
        );
        for (kind, value, hashed) in &self.dids {
            // As in PROTOBUF's kinds: `hashed` is 1 or 0, and only OAID has a kind with it.
            let field = match (kind, hashed) {
                (Some(0), None) => "imei",
                (Some(1), None) => "oaid",
                (Some(1), Some(true)) => "oaid_md5",
                _ => continue,
            };
            ids.extend(
                value
                    .iter()
                    .map(|value| format!("dids.value {field} {value}")),
            );
        }
        ids.sort();
        ids
    }
}

proptest! {
    #[test]
    fn requests_and_answers_round_trip(meant in meant(), bids in any::<[bool; 2]>()) {
        let decisions = bids.map(|bids| if bids { BID } else { NO_BID });
        let (answer, mut script) = asked(&PLATFORM, &meant.encoded(), &decisions);
        script.ids.sort();
        prop_assert_eq!(script.ids, meant.ids());

        let bids_of = |id: i64| matches!(id, 1 | 2) && bids[usize::try_from(id - 1).unwrap()];
        let asked = if meant.asked.is_empty() { vec![1, 2] } else { meant.asked.clone() };
        let mut accepted: Vec<i64> = Vec::new();
        for id in &asked {
            if bids_of(*id) && !accepted.contains(id) {
                accepted.push(*id);
            }
        }
        let verdict = |id: &i64| {
            let mut verdict = message("t.Verdict");
            verdict.set_field_by_name("strategy", Dynamic::I64(*id));
            verdict.set_field_by_name("accept", Dynamic::Bool(bids_of(*id)));
            Dynamic::Message(verdict)
        };
        let mut inner = message("t.Rsp.Inner");
        let seconds = if accepted.is_empty() { 7200 } else { 3600 };
        inner.set_field_by_name("cache", Dynamic::U32(seconds));
        let mut head = message("t.Rsp.RequestHead");
        head.set_field_by_name("inner", Dynamic::Message(inner));
        let mut expected = message("t.Rsp");
        set(&mut expected, "id", meant.id.clone().map(Dynamic::String));
        set(&mut expected, "code", Some(Dynamic::I32(accepted.is_empty().into())));
        set(&mut expected, "verdicts", Some(Dynamic::List(asked.iter().map(verdict).collect())));
        if !accepted.is_empty() {
            let accepted = accepted.iter().map(|id| Dynamic::I32(i32::try_from(*id).unwrap()));
            set(&mut expected, "accepted", Some(Dynamic::List(accepted.collect())));
        }
        // Without a decision there is no cache time.
        let decides = asked.iter().any(|id| matches!(id, 1 | 2));
        set(&mut expected, "head", decides.then_some(Dynamic::Message(head)));
        let mut response = message("t.Rsp");
        prost::Message::merge(&mut response, answer.unwrap()).unwrap();
        prop_assert_eq!(response, expected);
    }

    #[test]
    fn json_requests_are_read(meant in meant()) {
        let kind = |kind: &Option<i32>| kind.map(|kind| if kind == 0 { "IMEI" } else { "OAID" });
        let did = |(k, v, _): &(Option<i32>, Option<String>, Option<bool>)| {
            serde_json::json!({"type": kind(k), "value": v})
        };
        let body = serde_json::json!({
            "id": meant.id,
            "asked": meant.asked,
            "device": {"imei": meant.imei, "caid": meant.caid, "x": {"imei": "no"}},
            "list": [{"imei": meant.oaid}, {"oaid": "no"}, {"imei": "yes"}],
            "dids": meant.dids.iter().map(did).collect::<Vec<_>>(),
        });
        let body = body.to_string();
        let (answer, mut script) = asked(&JSON, body.as_bytes(), &[BID, NO_BID]);
        let mut ids = vec!["list.imei imei yes".to_owned()];
        ids.extend(meant.imei.iter().map(|imei| format!("device.imei imei {imei}")));
        ids.extend(meant.caid.iter().map(|caid| format!("device.caid caid {caid}")));
        ids.extend(meant.oaid.iter().map(|imei| format!("list.imei imei {imei}")));
        let of_imei = meant.dids.iter().filter(|(kind, ..)| *kind == Some(0));
        ids.extend(of_imei.filter_map(|(_, value, _)| Some(format!("dids.value imei \
            {}", value.as_ref()?))));
        ids.sort();
        script.ids.sort();
        prop_assert_eq!(script.ids, ids);
        let answer: serde_json::Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        prop_assert_eq!(answer["id"].as_str(), meant.id.as_deref());
        let asked_ids = if meant.asked.is_empty() { vec![1, 2] } else { meant.asked };
        let verdicts: Vec<_> = asked_ids
            .iter()
            .map(|id| serde_json::json!({"strategy": id.to_string(), "accept": *id == 1}))
            .collect();
        prop_assert_eq!(&answer["verdicts"], &serde_json::Value::Array(verdicts));
    }
}
