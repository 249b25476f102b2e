use const_hex::{decode, encode as hex};

use super::*;
use crate::platform::testing::{BID, BID_UNAVAILABLE, NO_BID, NO_BID_UNAVAILABLE, Script};
use crate::strategy::Decision;

/// A request with id, Android, the md5 of an IMEI and of an OAID, cached under the latter, in one experiment; made with protoc.
const REQUEST: &str = "0a164a6f383235775f75456532784c6c4a554146777653512a4808021a20386433656264333635346662343661323833\
    323239363636396366316235333632203833653931353861346662353463306531656630623233383633396132336165\
    50034a0408808002";

/// `new` is the strategy at place 0, `vip` and `vip-too` stand for the one at place 1.
fn adapter() -> Tencent {
    let ids = [("new", 0), ("vip", 1), ("vip-too", 1)];
    let strategies = ids.map(|(id, place)| (Bytes::from_static(id.as_bytes()), place)).to_vec();
    Tencent::new(StrategyIds::new(strategies), CacheTimes { bid: Some(3600), no_bid: Some(86_400) })
}

/// Without times for the platform's cache, as in the golden answers.
fn plain(ids: &[(&'static str, usize)]) -> Tencent {
    let strategies =
        ids.iter().map(|(id, place)| (Bytes::from_static(id.as_bytes()), *place)).collect();
    Tencent::new(StrategyIds::new(strategies), CacheTimes::default())
}

fn bytes(hex: &str) -> Bytes {
    decode(hex).unwrap().into()
}

fn ask(body: Bytes, decisions: &[Decision]) -> (RtaResponse, Script) {
    let mut script = Script::deciding(decisions);
    let answer = adapter().reply(body, &mut script).unwrap();
    (RtaResponse::decode(answer).unwrap(), script)
}

fn ask_about(device: Device, decisions: &[Decision]) -> (RtaResponse, Script) {
    let request = RtaRequest { device: Some(device), ..RtaRequest::default() };
    ask(request.encode_to_vec().into(), decisions)
}

#[test]
fn the_golden_request_is_read_and_answered_to_the_byte() {
    let golden = [(BID, "0a164a6f383235775f75456532784c6c4a55414677765351100052036e6577")];
    for (decision, expected) in golden {
        let mut script = Script::deciding(&[decision]);
        let answer = plain(&[("new", 0)]).reply(bytes(REQUEST), &mut script).unwrap();
        assert_eq!(hex(answer), expected);
        let ids = [
            "device.imei_md5sum imei_md5 8d3ebd3654fb46a2832296669cf1b536",
            "device.oaid_md5sum oaid_md5 83e9158a4fb54c0e1ef0b238639a23ae",
        ];
        assert_eq!(script.ids, ids);
        assert!(
            script.notes.contains(&"cached_deviceid_type: CACHED_OAID_MD5".to_owned()),
            "{:?}",
            script.notes
        );
    }
}

#[test]
fn the_minimal_answers_are_to_the_byte() {
    let adapter = plain(&[("new", 0)]);
    let answer =
        |decision| hex(adapter.reply(Bytes::new(), &mut Script::deciding(&[decision])).unwrap());
    assert_eq!(answer(BID), "100052036e6577");
    assert_eq!(answer(NO_BID), "1001");
    assert_eq!(hex(adapter.refusal()), "1001");
}

#[test]
fn a_ping_is_answered_at_once_and_touches_nothing() {
    let mut script = Script::deciding(&[]);
    let answer = adapter().reply(bytes("0a0270311001"), &mut script).unwrap();
    assert_eq!(hex(answer), "0a0270311000");
    assert!(script.asked.is_empty() && script.ids.is_empty());
    let without_id = adapter().reply(bytes("1001"), &mut script).unwrap();
    assert_eq!(hex(without_id), "1000");
    let not_a_ping =
        adapter().reply(bytes("1000"), &mut Script::deciding(&[NO_BID, NO_BID])).unwrap();
    assert_eq!(RtaResponse::decode(not_a_ping).unwrap().code, Some(1));
}

#[test]
fn a_test_call_is_decided_like_any_other() {
    let request = RtaRequest { is_test: Some(true), ..RtaRequest::decode(bytes(REQUEST)).unwrap() };
    let (response, script) = ask(request.encode_to_vec().into(), &[NO_BID, NO_BID]);
    assert_eq!((response.code, script.ids.len()), (Some(1), 2));
    assert_eq!(script.asked, [0, 1], "each strategy once, however many ids stand for it");
}

#[test]
fn strategies_that_bid_are_listed_and_the_cache_is_told_how_long() {
    for (decisions, code, ids, cache) in [
        ([BID, BID], 0, &["new", "vip", "vip-too"][..], Some(3600)),
        ([BID, NO_BID], 0, &["new"], Some(3600)),
        ([NO_BID, BID], 0, &["vip", "vip-too"], Some(3600)),
        ([NO_BID, NO_BID], 1, &[], Some(86_400)),
        // What hangs on a missing audience is not to be remembered.
        ([BID, NO_BID_UNAVAILABLE], 0, &["new"], None),
        ([BID_UNAVAILABLE, NO_BID], 0, &["new"], None),
        ([NO_BID_UNAVAILABLE, NO_BID], 1, &[], None),
    ] {
        let (response, _) = ask(bytes(REQUEST), &decisions);
        assert_eq!(
            (response.code, response.response_cache_time),
            (Some(code), cache),
            "{decisions:?}"
        );
        assert_eq!(response.out_target_id, ids, "{decisions:?}");
    }
}

#[test]
fn without_a_request_to_go_by_each_strategy_says_what_it_would() {
    for (decisions, expected) in [
        ([NO_BID_UNAVAILABLE, NO_BID_UNAVAILABLE], "1001"),
        ([BID_UNAVAILABLE, NO_BID_UNAVAILABLE], "100052036e6577"),
    ] {
        assert_eq!(hex(adapter().unavailable(&mut Script::deciding(&decisions))), expected);
    }
}

#[test]
fn every_id_is_read_from_its_field() {
    let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let device = Device {
        idfa_md5sum: value("a"),
        imei_md5sum: value("b"),
        android_id_md5sum: value("c"),
        mac_md5sum: value("d"),
        oaid_md5sum: value("e"),
        oaid: value("f"),
        qaid_infos: vec![
            device::QaidInfo { qaid: value("g"), qaid_md5sum: None },
            device::QaidInfo { qaid: value("h"), qaid_md5sum: value("i") },
        ],
        wx_openid: vec![
            device::WxOpenid { openid: value("j") },
            device::WxOpenid { openid: None },
            device::WxOpenid { openid: value("k") },
        ],
        ..Device::default()
    };
    let (_, script) = ask_about(device.clone(), &[NO_BID, NO_BID]);
    let all = [
        "device.idfa_md5sum idfa_md5 a",
        "device.imei_md5sum imei_md5 b",
        "device.android_id_md5sum android_id_md5 c",
        "device.mac_md5sum mac_md5 d",
        "device.oaid_md5sum oaid_md5 e",
        "device.oaid oaid f",
        "device.qaid_infos.qaid caid g",
        "device.qaid_infos.qaid caid h",
        "device.qaid_infos.qaid_md5sum caid_md5 i",
        "device.wx_openid.openid openid j",
        "device.wx_openid.openid openid k",
    ];
    assert_eq!(script.ids, all);

    // In the order of the enum; the last one is every CAID.
    let dropped: [&[usize]; 7] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6, 7, 8]];
    for (doubtful, dropped) in dropped.into_iter().enumerate() {
        let list = vec![doubtful as i32, 99, -1];
        let (_, script) =
            ask_about(Device { doubtful_ids_list: list, ..device.clone() }, &[NO_BID, NO_BID]);
        let expected: Vec<_> = dropped.iter().map(|place| all[*place]).collect();
        assert_eq!(script.doubtful, expected);
        assert_eq!(script.ids.len(), all.len() - dropped.len());
    }
}

#[test]
fn lists_of_numbers_may_be_packed_or_not() {
    // device { imei_md5sum: "x", doubtful_ids_list: [1, 4] }
    for device in ["1a017848014804", "1a01784a020104", "4a0201041a0178", "48011a01784a0104"] {
        let body = format!("2a{:02x}{device}", device.len() / 2);
        let (_, script) = ask(bytes(&body), &[NO_BID, NO_BID]);
        assert_eq!(script.doubtful, ["device.imei_md5sum imei_md5 x"], "{device}");
    }
}

#[test]
fn what_is_not_known_is_skipped_and_the_last_of_two_counts() {
    let unknown = "f2ff0703616263"; // Field 16382, a string.
    let group = "a30608011001a406"; // Field 100, a group of two numbers.
    let fixed = "b90601020304050607084dffffffff"; // A fixed64 in field 103; exps, which are not read, as a fixed32.
    let body = format!("{unknown}{REQUEST}{group}{fixed}");
    let (response, script) = ask(bytes(&body), &[BID, NO_BID]);
    assert_eq!(script.ids.len(), 2);
    assert_eq!(response.request_id.as_deref(), Some(&b"Jo825w_uEe2xLlJUAFwvSQ"[..]));

    // id "1", device { imei "a", oaid "b" }, id "2", device { imei "c" }: devices are merged, field by field.
    let (response, script) = ask(bytes("0a01312a061a01613201620a01322a031a0163"), &[BID, NO_BID]);
    assert_eq!(response.request_id.as_deref(), Some(&b"2"[..]));
    assert_eq!(script.ids, ["device.imei_md5sum imei_md5 c", "device.oaid_md5sum oaid_md5 b"]);

    // request_type 77, cached_deviceid_type 77, os 77 (which is not read).
    let (response, script) = ask(bytes("4202084d2a04084d504d"), &[BID, NO_BID]);
    assert_eq!(response.code, Some(0));
    assert!(script.notes.contains(&"cached_deviceid_type: not known".to_owned()));
}

#[test]
fn an_id_of_any_bytes_is_echoed_as_it_came() {
    let (response, _) = ask(bytes("0a03ff00fe"), &[BID, NO_BID]);
    assert_eq!(response.request_id.as_deref(), Some(&[0xff, 0, 0xfe][..]));
}

#[test]
fn a_body_that_does_not_parse_is_one_failure_and_no_decision() {
    let cut = &REQUEST[..REQUEST.len() - 2];
    let deep = "2b".repeat(200); // Groups in groups, none of them ended.
    for body in
        [cut, "ff", "0a", "0a05616263", "2a020a", "0aff", "ffffffffffffffffffffff", "080a", &deep]
    {
        let mut script = Script::deciding(&[BID, BID]);
        assert_eq!(adapter().reply(bytes(body), &mut script), Err(Failure::BadBody), "{body}");
        assert!(script.asked.is_empty() && script.ids.is_empty());
    }
}

fn second_request(ads: &[(Option<u64>, Option<&'static str>)]) -> Bytes {
    let ad = |(adgroup_id, id): &(Option<u64>, Option<&'static str>)| AdInfo {
        adgroup_id: *adgroup_id,
        out_target_id: id.map(|id| Bytes::from_static(id.as_bytes())),
    };
    let request = RtaRequest {
        id: Some(Bytes::from_static(b"r2")),
        request_info: Some(RequestInfo { request_type: Some(RequestType::AdList as i32) }),
        ad_infos: ads.iter().map(ad).collect(),
        ..RtaRequest::default()
    };
    request.encode_to_vec().into()
}

#[test]
fn a_second_request_keeps_the_ads_whose_strategy_bids() {
    let ads = [
        (Some(7), Some("new")),
        (Some(8), Some("vip")),
        (Some(9), None),
        (Some(10), Some("else")),
        (None, None),
    ];
    let (response, script) = ask(second_request(&ads), &[BID, NO_BID]);
    assert_eq!((response.code, response.request_id.as_deref()), (Some(0), Some(&b"r2"[..])));
    let results: Vec<_> = response.ad_results.iter().map(|ad| (ad.adgroup_id, ad.ignore)).collect();
    let ignored = Some(true);
    let expected = [
        (Some(7), None),
        (Some(8), ignored),
        (Some(9), ignored),
        (Some(10), ignored),
        (None, ignored),
    ];
    assert_eq!(results, expected);
    assert!(response.out_target_id.is_empty() && response.response_cache_time.is_none());
    assert_eq!(script.asked, [0, 1]);
}

#[test]
fn a_second_request_comes_away_empty_handed_in_the_platforms_words() {
    let mut script = Script::deciding(&[NO_BID, NO_BID]);
    let answer =
        adapter().reply(second_request(&[(Some(1), Some("new")), (Some(300), None)]), &mut script);
    // request_id "r2", code 0, ad_results { 1, ignore } and { 300, ignore }.
    assert_eq!(hex(answer.unwrap()), "0a0272321000720408012001720508ac022001");
    let (response, _) = ask(second_request(&[]), &[BID, BID]);
    assert_eq!(response.code, Some(1), "0 without an ad would accept them all");
}
