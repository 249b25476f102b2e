//! The examples of mapped platforms with sample requests, and Tencent's `.proto` as a custom mapping.

use std::path::Path;

use prost_reflect::{DynamicMessage, Value};
use testkit::pages::platform_example;

use super::*;

fn example(name: &str) -> Assembly {
    let strategy = "[[strategy]]\nname = \"new-users\"\nwhen = { os = \"ios\" }\n";
    let text = format!("{}\n{strategy}", platform_example(name));
    let flags = vec![("store.url", "/data".to_owned())];
    Assembly::read(Some(("rtad.toml", &text)), |_| None, &flags).unwrap()
}

#[test]
fn kuaishou_example_answers_a_signed_request() {
    let custom = custom(&example("kuaishou"));
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/kuaishou.proto");
    let pool = schema::compile(&proto).unwrap();
    let message = |name: &str| DynamicMessage::new(pool.get_message_by_name(name).unwrap());
    let mut device = message("kuaishou.Device");
    device.set_field_by_name(
        "imei_md5",
        Value::String("8d3ebd3654fb46a2832296669cf1b536".to_owned()),
    );
    device.set_field_by_name(
        "oaid",
        Value::String("1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5".to_owned()),
    );
    let mut request = message("kuaishou.RtaRequest");
    request.set_field_by_name("request_id", Value::String("req-1".to_owned()));
    request.set_field_by_name("channel", Value::String("c".to_owned()));
    request.set_field_by_name("request_time", Value::I64(1_718_539_200_000));
    // md5 of "req-1", "1718539200000" and "replace-me"
    let sign = "5c18eb79131f0111cce0a33311029231";
    request.set_field_by_name("request_sign", Value::String(sign.to_owned()));
    request.set_field_by_name("device", Value::Message(device));
    let asked = ["1001", "9"].map(|id| Value::String(id.to_owned()));
    request.set_field_by_name("promotion_type", Value::List(asked.to_vec()));
    let body = prost::Message::encode_to_vec(&request);

    let headers = HeaderMap::new();
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    let ask = |body: &[u8], seconds| {
        asked_at(
            &custom,
            Admission::ByHeaders,
            head,
            body,
            Duration::from_secs(seconds),
        )
    };
    let (answer, script) = ask(&body, 1_718_539_210);
    let answer = answer.unwrap();
    assert_eq!(
        script.ids,
        [
            "device.imei_md5 imei_md5 8d3ebd3654fb46a2832296669cf1b536",
            "device.oaid oaid 1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5",
        ]
    );
    let expected = b"\x08\x00\x12\x08\x0a\x041001\x10\x01\x12\x05\x0a\x019\x10\x00";
    assert_eq!(answer, expected[..]);
    let mut response = message("kuaishou.RtaResponse");
    prost::Message::merge(&mut response, answer).unwrap();
    let verdicts =
        "promotion_type_result:[{promotion_type:\"1001\",accept:true},{promotion_type:\"9\"}]";
    assert_eq!(
        response.to_string(),
        verdicts,
        "a number that is 0 is not printed"
    );

    assert_eq!(ask(&body, 1_718_539_501).0, Err(Failure::BadTimestamp));
    request.set_field_by_name("request_id", Value::String("req-2".to_owned()));
    let body = prost::Message::encode_to_vec(&request);
    assert_eq!(ask(&body, 1_718_539_210).0, Err(Failure::BadSignature));
    assert_eq!(custom.refusal(), b"\x08\x01"[..]);
}

#[test]
fn alibaba_example_answers_a_request() {
    let platform = Arc::clone(&example("alibaba").platforms[0]);
    let body = br#"{"reqId": "r1", "rtaIds": "501,502", "os": "android", "dids": [
        {"type": "IMEI", "secure": "MD5", "did": "8D3EBD3654FB46A2832296669CF1B536"},
        {"type": "OAID", "secure": "", "did": "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"},
        {"type": "OAID", "did": "o"}, {"type": "IMEI", "secure": "AES", "did": "x"}, {"type": "UTDID", "did": "x"}]}"#;
    let (answer, script) = asked(&platform, body, &[BID]);
    assert_eq!(
        answer.unwrap(),
        r#"{"reqId":"r1","code":0,"rtaIds":["501"]}"#
    );
    assert_eq!(
        script.ids,
        [
            "dids.did imei_md5 8D3EBD3654FB46A2832296669CF1B536",
            "dids.did oaid 1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5",
            "dids.did oaid o",
        ]
    );
    let (answer, _) = asked(&platform, body, &[NO_BID]);
    assert_eq!(answer.unwrap(), r#"{"reqId":"r1","code":0,"rtaIds":[]}"#);
    assert_eq!(platform.adapter.refusal(), r#"{"code":1,"rtaIds":[]}"#);
}

#[test]
fn dahanghai_example_answers_a_signed_form() {
    let custom = custom(&example("dahanghai"));
    let headers = HeaderMap::new();
    let head = RequestHead {
        headers: &headers,
        query: None,
    };
    let ask = |sign: &str| {
        let body = format!(
            "channel=c&os=0&oaid_md5=83e9158a4fb54c0e1ef0b238639a23ae&imei=&sign={sign}\
             &advertising_space_id=7"
        );
        asked_at(
            &custom,
            Admission::ByHeaders,
            head,
            body.as_bytes(),
            Duration::ZERO,
        )
    };
    // md5 of "replace-me", the sorted names and values, and "replace-me"
    let (answer, script) = ask("4F83CD574D422F28D2389FF08F41E8C8");
    assert_eq!(
        answer.unwrap(),
        concat!(
            r#"{"usergrowth_dhh_delivery_ask_response":"#,
            r#"{"result":true,"errcode":0,"task_id_list":{"string":["501"]},"task_id":"501"}}"#
        )
    );
    assert_eq!(
        script.ids,
        [
            "imei imei ",
            "oaid_md5 oaid_md5 83e9158a4fb54c0e1ef0b238639a23ae"
        ]
    );
    assert_eq!(ask("").0, Err(Failure::BadSignature));
    assert_eq!(
        custom.refusal(),
        concat!(
            r#"{"usergrowth_dhh_delivery_ask_response":"#,
            r#"{"result":false,"errcode":2,"task_id_list":{"string":[]}}}"#
        )
    );
}

#[test]
fn alipay_example_answers_a_request() {
    let platform = Arc::clone(&example("alipay").platforms[0]);
    let body = "biz_content=%7B%22principal%22%3A%220c9e5e3d3e1b4a67b3a6c8b5d2f1e0a9_20230330%22%2C\
                %22principal_type%22%3A%22CAID%22%2C%22encrypt_type%22%3A%22%22%7D&app_id=1";
    let (answer, script) = asked(&platform, body.as_bytes(), &[BID]);
    let expected = r#"{"required_flow":"1","rta_info_list":[{"account_id":"501"}]}"#;
    assert_eq!(answer.unwrap(), expected);
    assert_eq!(
        script.ids,
        ["biz_content.principal caid 0c9e5e3d3e1b4a67b3a6c8b5d2f1e0a9"]
    );
    let (answer, _) = asked(&platform, body.as_bytes(), &[NO_BID]);
    assert_eq!(
        answer.unwrap(),
        r#"{"required_flow":"0","rta_info_list":[]}"#
    );
}

#[test]
fn huawei_example_answers_a_request() {
    let assembly = example("huawei");
    let body =
        br#"{"req_id": 1, "req_time": 1764115200, "campaign_id": 501, "oaids": ["a", "b", "c"]}"#;
    let (answer, read) = answered(&assembly.platforms[0], body, |id| id != b"b");
    assert_eq!(answer, r#"{"result_code":"0","oaids":["a","c"]}"#);
    assert_eq!(read, ["a 501", "b 501", "c 501"]);
    let (answer, _) = answered(&assembly.platforms[0], body, |_| false);
    assert_eq!(answer, r#"{"result_code":"0","oaids":[]}"#);
    assert_eq!(
        assembly.platforms[0].adapter.refusal(),
        r#"{"result_code":"1","oaids":[]}"#
    );
}

#[test]
fn openrtb_example_answers_a_request() {
    let platform = Arc::clone(&example("openrtb").platforms[0]);
    let body = br#"{"id": "r1", "imp": [{"id": "1"}], "app": {"bundle": "a.b"}, "device": {
        "os": "Android", "ifa": "2b3c", "didmd5": "d", "dpidmd5": "p", "geo": {"region": "SH"}}}"#;
    let (answer, script) = asked(&platform, body, &[BID]);
    assert_eq!(answer.unwrap(), r#"{"id":"r1","accepted":["501"]}"#);
    let mut ids = script.ids;
    ids.sort();
    let expected = [
        "device.didmd5 imei_md5 d",
        "device.dpidmd5 android_id_md5 p",
        "device.ifa gaid 2b3c",
        "device.ifa idfa 2b3c",
    ];
    assert_eq!(ids, expected);
}

#[test]
fn mapped_tencent_proto_equals_its_adapter() {
    let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "tencent.ad.rta.RtaRequest"
response_message = "tencent.ad.rta.RtaResponse"
[platform.request]
request_id = "id"
ping = "is_ping"
[platform.request.ids]
idfa_md5 = "device.idfa_md5sum"
imei_md5 = "device.imei_md5sum"
oaid_md5 = "device.oaid_md5sum"
oaid = "device.oaid"
caid = "device.qaid_infos.qaid"
[platform.response]
request_id = "request_id"
code = { field = "code", bid = 0, no_bid = 1 }
accepted = "out_target_id"
cache = "response_cache_time"
"#;
    let mapped = platform(include_str!("../../../../proto/tencent.proto"), mapping);
    let flags = vec![("store.url", "/data".to_owned())];
    let built_in = format!("{HEAD}{CACHE}").replace("\"custom\"", "\"tencent\"");
    let assembly = Assembly::read(Some(("rtad.toml", &built_in)), |_| None, &flags).unwrap();
    let built_in = &assembly.platforms[0];
    // The golden requests of docs/reference/platforms.md, made by protoc: an Android phone, and a
    // ping.
    for body in [
        "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a20386433656264333635346662343661\
         32383332323936363639\
         636631623533363220383365393135386134666235346330653165663062323338363339613233616550034a04\
         08808002",
        "0a0270311001",
    ] {
        let body = const_hex::decode(body).unwrap();
        for decisions in [
            [BID, BID],
            [NO_BID, BID],
            [NO_BID, NO_BID],
            [NO_BID_UNAVAILABLE, NO_BID],
        ] {
            let (answer, mut script) = asked(&mapped, &body, &decisions);
            let (expected, mut by_adapter) = asked(built_in, &body, &decisions);
            assert_eq!(answer, expected);
            script.ids.sort();
            by_adapter.ids.sort();
            assert_eq!(script.ids, by_adapter.ids);
            assert_eq!(script.asked, by_adapter.asked);
        }
    }
}
