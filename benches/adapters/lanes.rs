//! Lanes: request bodies per protocol, for the same devices with three ids each, half of them
//! members.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use rtad::platform::{ocean, tencent};
use rtad_core::device::DeviceKey;

/// Distinct bodies per lane: too many for the L1 and L2 caches.
const BODIES: u64 = 4096;

/// Files of the platforms are relative to it.
pub const CONFIG_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench.toml");

pub const PLATFORMS: &str = r#"
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { new = "new-users" }
bid_cache = "1h"
no_bid_cache = "24h"
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = { 10003 = "new-users" }
bid_cache = "1h"
no_bid_cache = "24h"
[[platform]]
kind = "custom"
name = "custom-protobuf"
path = "/rta/custom-protobuf"
strategies = { new = "new-users" }
bid_cache = "1h"
no_bid_cache = "24h"
body = "protobuf"
proto = "proto/tencent.proto"
request_message = "tencent.ad.rta.RtaRequest"
response_message = "tencent.ad.rta.RtaResponse"
[platform.request]
request_id = "id"
ping = "is_ping"
[platform.request.ids]
idfa_md5 = "device.idfa_md5sum"
imei_md5 = "device.imei_md5sum"
android_id_md5 = "device.android_id_md5sum"
oaid_md5 = "device.oaid_md5sum"
caid = "device.qaid_infos.qaid"
[platform.response]
request_id = "request_id"
code = { field = "code", bid = 0, no_bid = 1 }
accepted = "out_target_id"
cache = "response_cache_time"
[[platform]]
kind = "custom"
name = "custom-signed"
path = "/rta/custom-signed"
strategies = { 1001 = "new-users" }
body = "protobuf"
proto = "docs/examples/kuaishou.proto"
request_message = "kuaishou.RtaRequest"
response_message = "kuaishou.RtaResponse"
[platform.request]
request_id = "request_id"
strategies = "promotion_type"
ids = { imei = "device.imei", imei_md5 = "device.imei_md5", oaid = "device.oaid", idfa = "device.idfa" }
[platform.response]
code = { field = "status", bid = 0, no_bid = 0, error = 1 }
verdicts = { list = "promotion_type_result", strategy = "promotion_type", accepted = "accept" }
[platform.signature]
algorithm = "md5"
template = "{request_id}{request_time}{secret}"
in = "body:request_sign"
secrets = [{ value = "bench" }]
[[platform]]
kind = "custom"
name = "custom-json"
path = "/rta/custom-json"
strategies = { 501 = "new-users" }
body = "json"
[platform.request]
request_id = "reqId"
strategies = "rtaIds"
strategies_separator = ","
[platform.request.id_list]
list = "dids"
value = "did"
type = "type"
secure = "secure"
kinds = { "IMEI/MD5" = "imei_md5", "OAID/MD5" = "oaid_md5", "ANDROIDID/MD5" = "android_id_md5" }
[platform.response]
request_id = "reqId"
code = { field = "code", bid = 0, no_bid = 0, error = 1 }
accepted = "rtaIds"
"#;

/// One row of the tables.
pub struct Lane {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) bodies: Arc<[Bytes]>,
}

/// Member `index` of the audience.
pub fn member(index: u64) -> DeviceKey {
    DeviceKey::of_canonical(format!("member-{index}").as_bytes())
}

/// The md5s of a device's three ids, in hex.
struct Device([String; 3]);

impl Device {
    /// Every other device is a member by its last id; members are spread over the audience.
    fn number(index: u64, keys: u64) -> Self {
        let hex = |key: DeviceKey| const_hex::encode(key.as_bytes());
        let other = |n: u64| {
            hex(DeviceKey::of_canonical(
                format!("other-{index}-{n}").as_bytes(),
            ))
        };
        let last = match index % 2 {
            0 => hex(member(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys)),
            _ => other(2),
        };
        Self([other(0), other(1), last])
    }
}

pub fn all(keys: u64) -> Vec<Lane> {
    let lane = |name, path, encode: fn(&Device) -> Vec<u8>| {
        let bodies = (0..BODIES)
            .map(|index| encode(&Device::number(index, keys)).into())
            .collect();
        Lane { name, path, bodies }
    };
    vec![
        lane("Tencent Ads", "/rta/tencent", tencent_body),
        lane("Ocean Engine", "/rta/ocean", ocean_body),
        lane(
            "custom: Tencent's file, mapped",
            "/rta/custom-protobuf",
            tencent_body,
        ),
        lane(
            "custom: Kuaishou's example, signed with md5",
            "/rta/custom-signed",
            kuaishou_body,
        ),
        lane(
            "custom: JSON like Alibaba's",
            "/rta/custom-json",
            alibaba_body,
        ),
        lane("rtad's own JSON", "/v1/decide", json_body),
    ]
}

fn tencent_body(Device([imei, oaid, android]): &Device) -> Vec<u8> {
    let text = |text: &String| Some(text.clone().into());
    let device = tencent::Device {
        imei_md5sum: text(imei),
        oaid_md5sum: text(oaid),
        android_id_md5sum: text(android),
        cached_deviceid_type: Some(3),
        ..Default::default()
    };
    let id = Some("Jo825w_uEe2xLlJUAFwvSQ".into());
    tencent::RtaRequest {
        id,
        device: Some(device),
        ..Default::default()
    }
    .encode_to_vec()
}

/// The OAID is raw in this protocol, so one md5 is computed.
fn ocean_body(Device([imei, oaid, android]): &Device) -> Vec<u8> {
    let device = ocean::Device {
        imei_md5: imei.clone().into(),
        oaid: oaid.clone().into(),
        android_id_md5: android.clone().into(),
        ..Default::default()
    };
    let request = ocean::Req {
        platform: 1,
        did: imei.clone().into(),
        did_type: 1,
        req_id: "20240616abcdef".into(),
        rta_ids: vec![10003],
        device: Some(device),
        ..Default::default()
    };
    request.encode_to_vec()
}

/// By `docs/examples/kuaishou.proto`: one hashed id, and two raw ones of non-members.
fn kuaishou_body(Device([imei, oaid, last]): &Device) -> Vec<u8> {
    let sign = DeviceKey::of_canonical(b"Jo825w_uEe2xLlJUAFwvSQ1795000000000bench");
    let sign = const_hex::encode(sign.as_bytes());
    let mut device = Vec::new();
    text(1, &imei[..15], &mut device);
    text(2, last, &mut device);
    text(3, oaid, &mut device);
    let mut body = Vec::new();
    text(1, "Jo825w_uEe2xLlJUAFwvSQ", &mut body);
    prost::encoding::int64::encode(3, &1_795_000_000_000, &mut body);
    text(4, &sign, &mut body);
    prost::encoding::bytes::encode(5, &device, &mut body);
    text(6, "1001", &mut body);
    body
}

fn text(number: u32, text: &str, body: &mut Vec<u8>) {
    prost::encoding::string::encode(number, &text.to_owned(), body);
}

fn alibaba_body(Device([imei, oaid, android]): &Device) -> Vec<u8> {
    format!(
        concat!(
            r#"{{"reqId":"r1","rtaIds":"501","dids":["#,
            r#"{{"type":"IMEI","secure":"MD5","did":"{}"}},"#,
            r#"{{"type":"OAID","secure":"MD5","did":"{}"}},"#,
            r#"{{"type":"ANDROIDID","secure":"MD5","did":"{}"}}]}}"#
        ),
        imei, oaid, android
    )
    .into_bytes()
}

fn json_body(Device([imei, oaid, android]): &Device) -> Vec<u8> {
    format!(
        concat!(
            r#"{{"request_id":"r1","strategies":["new-users"],"#,
            r#""device":{{"imei_md5":"{}","oaid_md5":"{}","android_id_md5":"{}"}}}}"#
        ),
        imei, oaid, android
    )
    .into_bytes()
}
