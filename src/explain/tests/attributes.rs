//! Attributes of requests: from each protocol to a decision, its cache time and its explanation.

use super::*;
use crate::platform::tencent::{RequestInfo, RequestType};

const CONDITIONS: &str = r#"
[[strategy]]
name = "ios"
when = { os = "ios" }
[[strategy]]
name = "slots"
exclude = ["vip"]
when = { slot = ["7", "banner"], none = [{ region = "110000", app = "9" }] }
[[strategy]]
name = "first"
exclude = ["vip"]
when = { any = [{ request_type = "normal" }, { absent = "request_type" }] }
[[platform]]
kind = "tencent"
name = "a-tencent"
path = "/a-tencent"
bid_cache = "1h"
strategies = { A1 = "ios", A2 = "slots", A3 = "first" }
[[platform]]
kind = "ocean"
name = "a-ocean"
path = "/a-ocean"
bid_cache = "1h"
strategies = { 1 = "ios", 2 = "slots", 3 = "first" }
[[platform]]
kind = "custom"
name = "a-json"
path = "/a-json"
strategies = { 1 = "ios", 2 = "slots", 3 = "first" }
body = "json"
request = { ids = { oaid = "oaid" }, attributes = { os = "os", slot = "slot" }, os_values = { 1 = "ios" } }
response = { accepted = "accepted" }
"#;

#[test]
fn attributes_decide_and_are_explained() {
    let fixture = fixture_of(&format!("{RULES}{CONDITIONS}"));
    let reasons = |platform: &str, body: &[u8]| {
        let json = fixture.json(platform, body);
        assert_eq!(
            fixture.served(platform, body),
            json["answer"]["hex"].as_str().unwrap()
        );
        let reason = |index: usize| {
            let strategy = &json["strategies"][index];
            (
                strategy["bid"] == true,
                strategy["reason"].as_str().unwrap().to_owned(),
            )
        };
        (
            [0, 1, 2].map(reason),
            json["answer"]["text"].as_str().unwrap().to_owned(),
        )
    };
    let bid = |reason: &str| (true, reason.to_owned());
    let no_bid = |reason: &str| (false, reason.to_owned());
    let (held, failed) = (bid("rule"), no_bid("rule"));
    let (in_slot, absent) = (bid("not_member"), no_bid("unavailable"));

    let of_tencent = |os: device::Os, request_type: RequestType| {
        let device = Device {
            os: Some(os as i32),
            oaid: Some(OAID.into()),
            ..Device::default()
        };
        let request_info = Some(RequestInfo {
            request_type: Some(request_type as i32),
        });
        let request = RtaRequest {
            device: Some(device),
            request_info,
            ..RtaRequest::default()
        };
        reasons("a-tencent", &request.encode_to_vec())
    };
    let (found, _) = of_tencent(device::Os::Ios, RequestType::Normal);
    assert_eq!(found, [held.clone(), absent.clone(), in_slot.clone()]);
    let (found, _) = of_tencent(device::Os::Harmony, RequestType::Click);
    assert_eq!(found, [failed.clone(), absent.clone(), failed.clone()]);
    let (found, _) = of_tencent(device::Os::Unknown, RequestType::Normal);
    assert_eq!(found[0], absent);

    let of_ocean = |platform: ocean::Platform, slot_id: i64, city: i64, asked: &[i64]| {
        let request = ocean::Req {
            platform: platform as i32,
            slot_id,
            app_id: 9,
            geo: Some(ocean::Geo { city }),
            rta_ids: asked.to_vec(),
            device: Some(ocean::Device {
                oaid: OAID.into(),
                ..ocean::Device::default()
            }),
            ..ocean::Req::default()
        };
        request.encode_to_vec()
    };
    let all = [1, 2, 3];
    let (found, text) = reasons("a-ocean", &of_ocean(ocean::Platform::Ios, 7, 310_000, &all));
    assert_eq!(found, [held.clone(), in_slot.clone(), in_slot.clone()]);
    // Another slot may get another answer for the same device.
    assert!(text.contains("cache_time_secs: 1"), "{text}");
    let (found, _) = reasons(
        "a-ocean",
        &of_ocean(ocean::Platform::Android, 7, 110_000, &all),
    );
    assert_eq!(found, [failed.clone(), failed.clone(), in_slot.clone()]);
    let only_os = fixture.json("a-ocean", &of_ocean(ocean::Platform::Ios, 7, 0, &[1]));
    let text = only_os["answer"]["text"].as_str().unwrap();
    assert!(text.contains("cache_time_secs: 3600"), "{text}");

    let (found, _) = reasons("a-json", br#"{"oaid":"x1","os":1,"slot":"banner"}"#);
    // A condition on the region is unknown without one.
    assert_eq!(found, [held, absent.clone(), in_slot.clone()]);
    let (found, _) = reasons("a-json", br#"{"oaid":"x1","os":" 1 ","slot":" Banner "}"#);
    assert_eq!(found[2], in_slot);
    let body = br#"{"oaid":"x1","os":"0","slot":""}"#;
    let text = fixture.with_headers("a-json", &[], body).to_string();
    assert!(text.contains("os, not known"), "{text}");
    let sentence = "unavailable: the request lacks os, and its `unavailable` answer is no bid";
    assert!(text.contains(sentence), "{text}");
    assert!(
        text.contains("the request lacks slot, app and region"),
        "{text}"
    );
}
