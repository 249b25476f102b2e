//! What is asked: for each protocol the same devices, three ids each, every other one a member.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use rtad::device::DeviceKey;
use rtad::platform::{ocean, tencent};

/// Different bodies per lane; more than fit the caches nearest to a core, so that look-ups are not all hot.
const BODIES: u64 = 4096;

/// Where files that the platforms name are looked for.
pub(crate) const CONFIG_FILE: &str = "bench.toml";

pub(crate) const PLATFORMS: &str = r#"
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
"#;

/// One row of the tables.
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) bodies: Arc<[Bytes]>,
}

/// Member `index` of the audience.
pub(crate) fn member(index: u64) -> DeviceKey {
    DeviceKey::of_canonical(format!("member-{index}").as_bytes())
}

/// The md5s, in hex, of a device's three ids.
struct Device([String; 3]);

impl Device {
    /// Every other device is a member by its last id, spread over the whole audience.
    fn number(index: u64, keys: u64) -> Self {
        let hex =
            |key: DeviceKey| key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let stranger = |n: u64| hex(DeviceKey::of_canonical(format!("stranger-{index}-{n}").as_bytes()));
        let last = match index % 2 {
            0 => hex(member(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys)),
            _ => stranger(2),
        };
        Self([stranger(0), stranger(1), last])
    }
}

pub(crate) fn all(keys: u64) -> Vec<Lane> {
    let lane = |name, path, encode: fn(&Device) -> Vec<u8>| {
        let bodies = (0..BODIES).map(|index| encode(&Device::number(index, keys)).into()).collect();
        Lane { name, path, bodies }
    };
    vec![
        lane("Tencent Ads", "/rta/tencent", tencent_body),
        lane("Ocean Engine", "/rta/ocean", ocean_body),
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
    tencent::RtaRequest { id, device: Some(device), ..Default::default() }.encode_to_vec()
}

/// The OAID is raw in this protocol, so one md5 is worked out.
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
    };
    request.encode_to_vec()
}

fn json_body(Device([imei, oaid, android]): &Device) -> Vec<u8> {
    format!(
        r#"{{"request_id":"r1","strategies":["new-users"],"device":{{"imei_md5":"{imei}","oaid_md5":"{oaid}","android_id_md5":"{android}"}}}}"#
    )
    .into_bytes()
}
