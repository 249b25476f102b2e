use const_hex::{decode, encode as hex};
use prost::Message as _;

use super::*;
use crate::platform::adapter::{Admission, RequestHead};
use crate::platform::read::{Failure, MAX_ASKED};
use crate::platform::testing::{
    BID, BID_UNAVAILABLE, NO_BID, NO_BID_UNAVAILABLE, Script, bid_with, fallback, reply, value,
};
use crate::strategy::{Decision, Reason};

/// A request with an id, Android, the md5 of an IMEI and of an OAID (the cache key), and one
/// experiment. Made with protoc.
const REQUEST: &str = "\
    0a164a6f383235775f75456532784c6c4a554146777653512a4808021a2038643365626433363534666234366132\
    38333232393636363963663162353336322038336539313538613466623534633065316566306232333836333961\
    3233616550034a0408808002";

/// `new` maps to strategy 0, `vip` and `vip-too` to strategy 1.
fn adapter() -> Tencent {
    let ids = [("new", 0), ("vip", 1), ("vip-too", 1)];
    let ids = ids.map(|(id, index)| (id.to_owned(), index)).to_vec();
    Tencent::new(
        ids,
        CacheTimes {
            bid: Some(3600),
            no_bid: Some(86_400),
        },
    )
}

/// Without cache times, as in the golden answers.
fn plain(ids: &[(&'static str, usize)]) -> Tencent {
    let ids = ids
        .iter()
        .map(|(id, index)| ((*id).to_owned(), *index))
        .collect();
    Tencent::new(ids, CacheTimes::default())
}

fn bytes(hex: &str) -> Bytes {
    decode(hex).unwrap().into()
}

fn ask(body: Bytes, decisions: &[Decision]) -> (RtaResponse, Script) {
    let mut script = Script::deciding(decisions);
    let answer = reply(&adapter(), body, &mut script).unwrap();
    (RtaResponse::decode(answer).unwrap(), script)
}

fn ask_about(device: Device, decisions: &[Decision]) -> (RtaResponse, Script) {
    let request = RtaRequest {
        device: Some(device),
        ..RtaRequest::default()
    };
    ask(request.encode_to_vec().into(), decisions)
}

#[test]
fn golden_request_gets_golden_answer() {
    let golden = [(
        BID,
        "0a164a6f383235775f75456532784c6c4a55414677765351100052036e6577",
    )];
    for (decision, expected) in golden {
        let mut script = Script::deciding(&[decision]);
        let answer = reply(&plain(&[("new", 0)]), bytes(REQUEST), &mut script).unwrap();
        assert_eq!(hex(answer), expected);
        let ids = [
            "device.imei_md5sum imei_md5 8d3ebd3654fb46a2832296669cf1b536",
            "device.oaid_md5sum oaid_md5 83e9158a4fb54c0e1ef0b238639a23ae",
        ];
        assert_eq!(script.ids, ids);
        assert!(
            script
                .notes
                .contains(&"cached_deviceid_type: CACHED_OAID_MD5".to_owned()),
            "{:?}",
            script.notes
        );
    }
}

#[test]
fn minimal_answers_equal_golden_bytes() {
    let adapter = plain(&[("new", 0)]);
    let test_call = bytes("1801");
    let answer = |decision| {
        hex(reply(
            &adapter,
            test_call.clone(),
            &mut Script::deciding(&[decision]),
        )
        .unwrap())
    };
    assert_eq!(answer(BID), "100052036e6577");
    assert_eq!(answer(NO_BID), "1001");
    assert_eq!(hex(adapter.refusal()), "1001");
}

#[test]
fn ping_is_answered_without_a_decision() {
    let mut script = Script::deciding(&[]);
    let answer = reply(&adapter(), bytes("0a0270311001"), &mut script).unwrap();
    assert_eq!(hex(answer), "0a0270311000");
    assert!(script.asked.is_empty() && script.ids.is_empty());
    let without_id = reply(&adapter(), bytes("1001"), &mut script).unwrap();
    assert_eq!(hex(without_id), "1000");
    let not_a_ping = reply(
        &adapter(),
        bytes("1000"),
        &mut Script::deciding(&[NO_BID, NO_BID]),
    )
    .unwrap();
    assert_eq!(RtaResponse::decode(not_a_ping).unwrap().code, Some(1));
}

#[test]
fn cut_body_is_unreadable_where_prost_cannot_read_it() {
    let whole = bytes(REQUEST);
    let unreadable = (1..whole.len()).filter(|end| {
        let cut = whole.slice(..*end);
        let read = reply(
            &adapter(),
            cut.clone(),
            &mut Script::deciding(&[NO_BID, NO_BID]),
        );
        assert_eq!(
            read.is_err(),
            RtaRequest::decode(cut).is_err(),
            "the first {end} bytes"
        );
        read.is_err()
    });
    assert!(unreadable.count() > whole.len() / 2);
}

#[test]
fn test_call_is_decided_as_usual() {
    let request = RtaRequest {
        is_test: Some(true),
        ..RtaRequest::decode(bytes(REQUEST)).unwrap()
    };
    let (response, script) = ask(request.encode_to_vec().into(), &[NO_BID, NO_BID]);
    assert_eq!((response.code, script.ids.len()), (Some(1), 2));
    assert_eq!(
        script.asked,
        [0, 1],
        "each strategy decides once, even with two ids"
    );
}

#[test]
fn bidding_strategies_and_cache_time_are_written() {
    for (decisions, code, ids, cache) in [
        ([BID, BID], 0, &["new", "vip", "vip-too"][..], Some(3600)),
        ([BID, NO_BID], 0, &["new"], Some(3600)),
        ([NO_BID, BID], 0, &["vip", "vip-too"], Some(3600)),
        ([NO_BID, NO_BID], 1, &[], Some(86_400)),
        // Answers that depend on a missing audience carry no cache time.
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

/// Without a configured time, and with no change of a schedule or cap ahead.
#[test]
fn refusals_carry_a_cache_time_without_a_configured_one() {
    let adapter = plain(&[("new", 0), ("vip", 1)]);
    let not_scheduled = Decision::no_bid(Reason::NotScheduled);
    for (decisions, expected) in [
        ([not_scheduled, NO_BID], Some(3600)),
        ([Decision::CAPPED, NO_BID], Some(3600)),
        ([Decision::NO_GRANT, NO_BID], None),
        ([NO_BID, NO_BID], None),
        // The time of an answer with a bid is configured, or the platform's own.
        ([not_scheduled, BID], None),
        ([BID, Decision::CAPPED], None),
    ] {
        let answer = reply(&adapter, bytes(REQUEST), &mut Script::deciding(&decisions)).unwrap();
        let response = RtaResponse::decode(answer).unwrap();
        assert_eq!(response.response_cache_time, expected, "{decisions:?}");
    }
}

#[test]
fn unavailable_answer_lists_strategies_that_bid() {
    for (decisions, expected) in [
        ([NO_BID_UNAVAILABLE, NO_BID_UNAVAILABLE], "1001"),
        ([BID_UNAVAILABLE, NO_BID_UNAVAILABLE], "100052036e6577"),
    ] {
        assert_eq!(hex(fallback(&adapter(), &decisions)), expected);
    }
}

#[test]
fn ids_are_read_from_their_fields() {
    let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let device = Device {
        idfa_md5sum: value("a"),
        imei_md5sum: value("b"),
        android_id_md5sum: value("c"),
        mac_md5sum: value("d"),
        oaid_md5sum: value("e"),
        oaid: value("f"),
        qaid_infos: vec![
            device::QaidInfo {
                qaid: value("g"),
                qaid_md5sum: None,
            },
            device::QaidInfo {
                qaid: value("h"),
                qaid_md5sum: value("i"),
            },
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
        let (_, script) = ask_about(
            Device {
                doubtful_ids_list: list,
                ..device.clone()
            },
            &[NO_BID, NO_BID],
        );
        let expected: Vec<_> = dropped.iter().map(|index| all[*index]).collect();
        assert_eq!(script.doubtful, expected);
        assert_eq!(script.ids.len(), all.len() - dropped.len());
    }
}

#[test]
fn packed_and_unpacked_lists_are_read() {
    // device { imei_md5sum: "x", doubtful_ids_list: [1, 4] }
    for device in [
        "1a017848014804",
        "1a01784a020104",
        "4a0201041a0178",
        "48011a01784a0104",
    ] {
        let body = format!("2a{:02x}{device}", device.len() / 2);
        let (_, script) = ask(bytes(&body), &[NO_BID, NO_BID]);
        assert_eq!(
            script.doubtful,
            ["device.imei_md5sum imei_md5 x"],
            "{device}"
        );
    }
}

#[test]
fn unknown_fields_are_skipped_and_last_value_wins() {
    let unknown = "f2ff0703616263"; // Field 16382, a string.
    let group = "a30608011001a406"; // Field 100, a group of two numbers.
    // A fixed64 in field 103; exps, which are not read, as a fixed32.
    let fixed = "b90601020304050607084dffffffff";
    let body = format!("{unknown}{REQUEST}{group}{fixed}");
    let (response, script) = ask(bytes(&body), &[BID, NO_BID]);
    assert_eq!(script.ids.len(), 2);
    assert_eq!(
        response.request_id.as_deref(),
        Some(&b"Jo825w_uEe2xLlJUAFwvSQ"[..])
    );

    // id "1", device { imei "a", oaid "b" }, id "2", device { imei "c" }: devices are merged.
    let (response, script) = ask(
        bytes("0a01312a061a01613201620a01322a031a0163"),
        &[BID, NO_BID],
    );
    assert_eq!(response.request_id.as_deref(), Some(&b"2"[..]));
    assert_eq!(
        script.ids,
        [
            "device.imei_md5sum imei_md5 c",
            "device.oaid_md5sum oaid_md5 b"
        ]
    );

    // request_type 77, cached_deviceid_type 77, os 77.
    let (response, script) = ask(bytes("4202084d2a04084d504d"), &[BID, NO_BID]);
    assert_eq!(response.code, Some(0));
    assert!(
        script
            .notes
            .contains(&"cached_deviceid_type: unknown".to_owned())
    );
}

/// As in the platform's decoder, an unknown value of an enum leaves the field as it is.
#[test]
fn unknown_os_and_cached_kind_do_not_replace_known_ones() {
    for (device, os, is_unknown) in [
        ("08015005", "ios", false),
        ("0801084d5005504d", "ios", false),
        ("084d0801504d5005", "ios", false),
        ("084d5005", "", true),
        ("5005", "", false),
    ] {
        let body = bytes(&format!("2a{:02x}{device}", device.len() / 2));
        let (headers, platform) = (http::HeaderMap::new(), adapter());
        let request = Request {
            admission: Admission::Granted,
            head: RequestHead {
                headers: &headers,
                query: None,
            },
            body: &body,
        };
        let mut read = Read::default();
        platform.read(&request, &mut read).unwrap();
        let found = &read.attributes[Attribute::Os as usize];
        assert_eq!(found.to_string(), os, "{device}");
        assert_eq!(read.has_unknown_os, is_unknown, "{device}");
        assert_eq!(read.cached_kind, Some(IdKind::Mac), "{device}");
    }
}

#[test]
fn request_id_of_any_bytes_is_echoed() {
    let (response, _) = ask(bytes("0a03ff00fe"), &[BID, NO_BID]);
    assert_eq!(response.request_id.as_deref(), Some(&[0xff, 0, 0xfe][..]));
}

#[test]
fn unreadable_body_fails_without_a_decision() {
    let cut = &REQUEST[..REQUEST.len() - 2];
    let deep = "2b".repeat(200); // Nested groups without end.
    for body in [
        "",
        cut,
        "ff",
        "0a",
        "0a05616263",
        "2a020a",
        "0aff",
        "ffffffffffffffffffffff",
        "080a",
        &deep,
    ] {
        let mut script = Script::deciding(&[BID, BID]);
        assert_eq!(
            reply(&adapter(), bytes(body), &mut script),
            Err(Failure::BadBody),
            "{body}"
        );
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
        request_info: Some(RequestInfo {
            request_type: Some(RequestType::AdList as i32),
        }),
        ad_infos: ads.iter().map(ad).collect(),
        ..RtaRequest::default()
    };
    request.encode_to_vec().into()
}

#[test]
fn second_request_keeps_ads_of_bidding_strategies() {
    let ads = [
        (Some(7), Some("new")),
        (Some(8), Some("vip")),
        (Some(9), None),
        (Some(10), Some("else")),
        (None, None),
    ];
    let (response, script) = ask(second_request(&ads), &[BID, NO_BID]);
    assert_eq!(
        (response.code, response.request_id.as_deref()),
        (Some(0), Some(&b"r2"[..]))
    );
    let results: Vec<_> = response
        .ad_results
        .iter()
        .map(|ad| (ad.adgroup_id, ad.ignore))
        .collect();
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
fn ads_of_a_second_request_are_limited() {
    let most = vec![(Some(1), Some("new")); MAX_ASKED];
    assert_eq!(
        ask(second_request(&most), &[BID]).0.ad_results.len(),
        MAX_ASKED
    );
    let mut script = Script::deciding(&[BID]);
    let body = second_request(&[&most[..], &most[..1]].concat());
    assert_eq!(reply(&adapter(), body, &mut script), Err(Failure::BadBody));
    assert!(script.asked.is_empty());
}

#[test]
fn unknown_request_type_does_not_replace_a_known_one() {
    // An ad of the strategy that bids.
    let ad = "5a0708072a036e6577";
    for (info, is_second) in [
        ("0802", true),
        ("0802084d", true),
        ("084d0802", true),
        ("080208ffffffffffffffffff01", true),
        ("08020801", false),
        ("084d", false),
        ("", false),
    ] {
        let body = format!("42{:02x}{info}{ad}", info.len() / 2);
        let (response, _) = ask(bytes(&body), &[BID, NO_BID]);
        assert_eq!(!response.ad_results.is_empty(), is_second, "{info}");
    }
    // Split over two parts of the message.
    let (response, _) = ask(bytes(&format!("420208024202084d{ad}")), &[BID, NO_BID]);
    assert!(!response.ad_results.is_empty());
}

/// Cases in which decoders differ. Tencent's own decoder (C++) ignores the surplus bits of a varint
/// of ten bytes, and rejects tags of more than five.
#[test]
fn malformed_varints_are_rejected_and_long_tags_accepted() {
    let mut script = Script::deciding(&[BID, BID]);
    let surplus_bits = bytes("9806ffffffffffffffffff7f");
    assert_eq!(
        reply(&adapter(), surplus_bits, &mut script),
        Err(Failure::BadBody)
    );
    // Field 1 in a tag of six bytes: a request id "r".
    let (response, _) = ask(bytes("8a80808080000172"), &[BID, NO_BID]);
    assert_eq!(response.request_id.as_deref(), Some(&b"r"[..]));
}

#[test]
fn second_request_without_a_kept_ad_is_rejected() {
    let mut script = Script::deciding(&[NO_BID, NO_BID]);
    let answer = reply(
        &adapter(),
        second_request(&[(Some(1), Some("new")), (Some(300), None)]),
        &mut script,
    );
    // request_id "r2", code 1.
    assert_eq!(hex(answer.unwrap()), "0a0272321001");
    let (response, _) = ask(second_request(&[]), &[BID, BID]);
    assert_eq!(
        response.code,
        Some(1),
        "0 without an ad would accept them all"
    );
}

/// The answers are made with protoc.
#[test]
fn bids_with_values_get_golden_answers() {
    let values = [
        vec![
            value(&[(ValueKey::Weight, 2.0), (ValueKey::CpaPrice, 3000.0)]),
            value(&[(ValueKey::Quality, 0.5)]),
        ],
        vec![value(&[
            (ValueKey::CpcPrice, 10.0),
            (ValueKey::CpcFactor, 0.2),
        ])],
    ];
    let adapter = plain(&[("new", 0), ("vip", 1)]).with_values(&values);
    let answer = |body: Bytes, decisions: [Decision; 2]| {
        hex(reply(&adapter, body, &mut Script::deciding(&decisions)).unwrap())
    };
    let without = "0a164a6f383235775f75456532784c6c4a55414677765351100052036e65775203766970";
    let new = "620d0a036e657728b8173500000040";
    let vip = "620c0a03766970180a3dcdcc4c3e";
    for (decisions, infos) in [
        ([bid_with(0), bid_with(0)], format!("{new}{vip}")),
        // The protocol has no number of the second value.
        ([bid_with(1), bid_with(0)], vip.to_owned()),
        ([BID, BID], String::new()),
    ] {
        assert_eq!(
            answer(bytes(REQUEST), decisions),
            format!("{without}{infos}")
        );
    }
    let ads = second_request(&[(Some(7), Some("new")), (Some(8), Some("vip"))]);
    let expected = "0a02723210007205080730b817720408082001";
    assert_eq!(answer(ads, [bid_with(0), NO_BID]), expected);
}

#[test]
fn default_in_place_of_an_unknown_value_carries_no_cache_time() {
    let mut decision = bid_with(0);
    assert_eq!(
        ask(bytes(REQUEST), &[decision, NO_BID])
            .0
            .response_cache_time,
        Some(3600)
    );
    decision.value.is_fallback = true;
    assert_eq!(
        ask(bytes(REQUEST), &[decision, NO_BID])
            .0
            .response_cache_time,
        None
    );
}
