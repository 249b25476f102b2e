use const_hex::{decode, encode as hex};
use prost::Message as _;

use super::*;
use crate::platform::adapter::{Admission, RequestHead};
use crate::platform::read::{Failure, MAX_ASKED};
use crate::platform::testing::{
    BID, BID_UNAVAILABLE, NO_BID, NO_BID_UNAVAILABLE, Script, bid_with, fallback, reply, value,
};
use crate::strategy::Decision;

/// Android, `did` = an IMEI's md5, strategies 10003 and 10004, a device with that md5 and a raw
/// OAID. Made with protoc.
const REQUEST: &str = "\
    0801122038643365626433363534666234366132383332323936363639636631623533364801620e323032343036\
    31366162636465666a056c6f63616c7204934e944e78018a01480a20386433656264333635346662343661323833\
    32323936363639636631623533361a2431666539613937302d656662622d323965302d306264642d663564626266\
    373531616235";

const IMEI_MD5_VALUE: &str = "8d3ebd3654fb46a2832296669cf1b536";
const UUID: &str = "1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5";

/// 10003 and 10004 map to the strategies 0 and 1.
fn adapter() -> Ocean {
    let cache = CacheTimes {
        bid: Some(60),
        no_bid: Some(3600),
    };
    Ocean::new(vec![(10003, 0), (10004, 1)], cache)
}

fn bytes(hex: &str) -> Bytes {
    decode(hex).unwrap().into()
}

fn ask(request: &Req, decisions: &[Decision]) -> (Rsp, Script) {
    let mut script = Script::deciding(decisions);
    let answer = reply(&adapter(), request.encode_to_vec().into(), &mut script).unwrap();
    (Rsp::decode(answer).unwrap(), script)
}

fn asking(rta_ids: &[i64]) -> Req {
    Req {
        platform: Platform::Android as i32,
        rta_ids: rta_ids.to_vec(),
        ..Req::default()
    }
}

fn verdicts(response: &Rsp) -> Vec<(i64, bool)> {
    response
        .user_infos
        .iter()
        .map(|info| (info.rta_id, info.is_interested))
        .collect()
}

#[test]
fn golden_request_gets_golden_answer() {
    let mut script = Script::deciding(&[NO_BID, NO_BID]);
    let answer = reply(&adapter(), bytes(REQUEST), &mut script).unwrap();
    assert_eq!(
        hex(answer),
        "320e32303234303631366162636465663a0318934e3a0318944e4a02080150901c"
    );
    let expected = [
        format!("device.imei_md5 imei_md5 {IMEI_MD5_VALUE}"),
        format!("device.oaid oaid {UUID}"),
        format!("did imei_md5 {IMEI_MD5_VALUE}"),
    ];
    assert_eq!(script.ids, expected);
    let notes = [
        "request_id: 20240616abcdef",
        "strategy: 10003",
        "strategy: 10004",
    ];
    assert_eq!(script.notes, notes);
}

#[test]
fn bid_type_zero_is_written() {
    let mut script = Script::deciding(&[BID, NO_BID]);
    let answer = reply(&adapter(), bytes(REQUEST), &mut script).unwrap();
    // 10003 { is_interested, rta_id }, 10004 { rta_id }, bid_type {}, cache 60 s.
    assert_eq!(
        hex(answer),
        "320e32303234303631366162636465663a05080118934e3a0318944e4a00503c"
    );
}

#[test]
fn each_requested_strategy_has_a_verdict() {
    for (asked, decisions, expected, bid_type, cache) in [
        (
            &[10003, 10004][..],
            [BID, NO_BID],
            &[(10003, true), (10004, false)][..],
            0,
            60,
        ),
        (
            &[10004, 10003],
            [BID, NO_BID],
            &[(10004, false), (10003, true)],
            0,
            60,
        ),
        (&[10004], [BID, NO_BID], &[(10004, false)], 1, 3600),
        (
            &[5, -1, 10003, i64::MAX],
            [BID, NO_BID],
            &[(5, false), (-1, false), (10003, true), (i64::MAX, false)],
            0,
            60,
        ),
        // No decision, so no cache time.
        (&[5], [BID, BID], &[(5, false)], 1, 0),
        (
            &[10003, 10003],
            [BID, NO_BID],
            &[(10003, true), (10003, true)],
            0,
            60,
        ),
        (&[], [NO_BID, BID], &[], 0, 60),
        (&[], [NO_BID, NO_BID], &[], 1, 3600),
        (
            &[10003, 10004],
            [BID, NO_BID_UNAVAILABLE],
            &[(10003, true), (10004, false)],
            0,
            0,
        ),
        (&[10003], [BID_UNAVAILABLE, NO_BID], &[(10003, true)], 0, 0),
    ] {
        let (response, _) = ask(&asking(asked), &decisions);
        assert_eq!(verdicts(&response), expected, "{asked:?}");
        assert_eq!(
            (response.status_code, response.bid_type),
            (0, Some(bid_type)),
            "{asked:?}"
        );
        assert_eq!(response.cache_time_secs, cache, "{asked:?}");
    }
}

#[test]
fn requested_strategies_are_limited() {
    let most = vec![10003; MAX_ASKED];
    assert_eq!(verdicts(&ask(&asking(&most), &[BID]).0).len(), MAX_ASKED);
    let mut script = Script::deciding(&[BID]);
    let body = asking(&[&most[..], &[10003]].concat())
        .encode_to_vec()
        .into();
    assert_eq!(reply(&adapter(), body, &mut script), Err(Failure::BadBody));
    assert!(script.asked.is_empty());
    assert_eq!(
        script.notes,
        ["unreadable: it names 1025 strategies or ads, 1024 are allowed"]
    );
}

#[test]
fn requested_strategies_decide_once() {
    assert_eq!(
        ask(&asking(&[10004, 10004, 7]), &[BID, NO_BID]).1.asked,
        [1]
    );
    assert_eq!(ask(&asking(&[]), &[BID, NO_BID]).1.asked, [0, 1]);
}

#[test]
fn packed_and_unpacked_strategies_are_read() {
    for body in ["7204934e944e", "70934e70944e", "7202934e70944e"] {
        let mut script = Script::deciding(&[BID, NO_BID]);
        let response = Rsp::decode(reply(&adapter(), bytes(body), &mut script).unwrap()).unwrap();
        assert_eq!(
            verdicts(&response),
            [(10003, true), (10004, false)],
            "{body}"
        );
    }
}

#[test]
fn ids_are_read_from_their_fields() {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let device = Device {
        imei_md5: text("a"),
        android_id_md5: text("b"),
        oaid: text("c"),
        idfa: text("d"),
        caid1: text("e"),
        caid2: text("f"),
        gaid: text("g"),
        caid: text("h"),
    };
    let (_, script) = ask(
        &Req {
            device: Some(device),
            ..asking(&[10003])
        },
        &[BID],
    );
    let expected = [
        "device.imei_md5 imei_md5 a",
        "device.android_id_md5 android_id_md5 b",
        "device.oaid oaid c",
        "device.idfa idfa d",
        "device.caid1 caid e",
        "device.caid2 caid f",
        "device.caid caid h",
        "device.gaid gaid g",
    ];
    assert_eq!(script.ids, expected);
}

#[test]
fn kind_of_did_follows_did_type_or_length() {
    let (android, ios) = (Platform::Android as i32, Platform::Ios as i32);
    for (platform, did_type, did, expected) in [
        (0, 1, IMEI_MD5_VALUE, &["imei_md5"][..]),
        (0, 2, "d0d4845ae4495a83", &["android_id"]),
        (0, 3, IMEI_MD5_VALUE, &["android_id_md5"]),
        (0, 4, UUID, &["idfa"]),
        (0, 5, IMEI_MD5_VALUE, &["idfa_md5"]),
        (0, 6, UUID, &["oaid"]),
        (0, 7, IMEI_MD5_VALUE, &["oaid_md5"]),
        (0, 8, UUID, &["gaid"]),
        (0, 9, IMEI_MD5_VALUE, &["gaid_md5"]),
        // Unset or unknown types.
        (0, 0, IMEI_MD5_VALUE, &["md5"]),
        (android, 0, "868049039501257", &["imei"]),
        (0, 0, "a0000049395012", &["imei"]),
        (0, 0, UUID, &["idfa", "oaid"]),
        (ios, 0, UUID, &["idfa"]),
        (android, 0, UUID, &["idfa", "oaid"]),
        (0, 77, IMEI_MD5_VALUE, &["md5"]),
        (0, 0, " 8d3ebd3654fb46a2832296669cf1b536", &["md5"]),
        (0, 0, "8d3ebd3654fb46a2832296669cf1b536\u{a0}", &["md5"]),
        (0, 0, "8d3ebd3654fb46a2832296669cf1b53x", &["imei"]),
        (0, 0, "1fe9a970-efbb-29e0-0bdd-f5dbbf751abx", &["imei"]),
        (ios, 0, "1fe9a970fefbbf29e0f0bddff5dbbf751ab5", &["imei"]),
        (99, -3, UUID, &["idfa", "oaid"]),
        (0, 4, "", &[]),
    ] {
        let request = Req {
            platform,
            did_type,
            did: Bytes::from_static(did.as_bytes()),
            ..asking(&[10003])
        };
        let (_, script) = ask(&request, &[BID]);
        let expected: Vec<_> = expected
            .iter()
            .map(|field| format!("did {field} {did}"))
            .collect();
        assert_eq!(script.ids, expected, "{platform} {did_type} {did}");
    }
}

#[test]
fn unknown_fields_are_skipped_and_last_value_wins() {
    // Ages, cities, installed apps, encrypted ids (fields 5 and 10), a group, a fixed64.
    let unknown =
        "2001280132026265420361626342016a8a01062a0178520179a30608011001a406b9060102030405060708";
    let body = format!("{unknown}{REQUEST}{unknown}62013162026162");
    let mut script = Script::deciding(&[NO_BID, NO_BID]);
    let response = Rsp::decode(reply(&adapter(), bytes(&body), &mut script).unwrap()).unwrap();
    assert_eq!((script.ids.len(), response.user_infos.len()), (3, 2));
    assert_eq!(response.req_id, "ab");
}

#[test]
fn unavailable_answer_is_an_error_with_all_verdicts() {
    let answer = fallback(&adapter(), &[BID_UNAVAILABLE, NO_BID_UNAVAILABLE]);
    let response = Rsp::decode(answer).unwrap();
    assert_eq!(
        (
            response.status_code,
            response.bid_type,
            response.cache_time_secs
        ),
        (1, Some(0), 0)
    );
    assert_eq!(verdicts(&response), [(10003, true), (10004, false)]);
    let refused = Rsp::decode(adapter().refusal()).unwrap();
    assert_eq!(
        (
            refused.status_code,
            refused.bid_type,
            refused.user_infos.len()
        ),
        (1, Some(1), 0)
    );
}

#[test]
fn unreadable_body_fails_without_a_decision() {
    for body in [
        "",
        &REQUEST[..REQUEST.len() - 2],
        "ff",
        "12",
        "1205616263",
        "8a0102120a",
        "7203934e94",
        "0a00",
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

/// The first answer is made with protoc.
#[test]
fn bid_with_a_value_has_one_score() {
    let values = [vec![
        value(&[(ValueKey::Weight, 1.5), (ValueKey::CpaPrice, 3000.0)]),
        value(&[(ValueKey::Weight, 1.5), (ValueKey::Quality, 0.75)]),
        value(&[(ValueKey::CpaPrice, 3000.0)]),
    ]];
    let adapter = adapter().with_values(&values);
    let answer = |decision| {
        reply(
            &adapter,
            bytes(REQUEST),
            &mut Script::deciding(&[decision, NO_BID]),
        )
        .unwrap()
    };
    let golden = "320e32303234303631366162636465663a120801120b080111000000000000f83f18934e3a03\
                  18944e4a00503c";
    assert_eq!(hex(answer(bid_with(0))), golden);
    let score = |index| Rsp::decode(answer(bid_with(index))).unwrap().user_infos[0].user_scores;
    let quality = UserScore {
        user_type: UserType::Default as i32,
        quality: 0.75,
    };
    assert_eq!([score(1), score(2)], [Some(quality), None]);
}

#[test]
fn unknown_platform_is_counted_as_an_unknown_os() {
    for (platform, is_unknown) in [(1, false), (7, true)] {
        let request = Req {
            platform,
            ..Req::default()
        };
        let (headers, body) = (http::HeaderMap::new(), request.encode_to_vec().into());
        let request = Request {
            admission: Admission::Granted,
            head: RequestHead {
                headers: &headers,
                query: None,
            },
            body: &body,
        };
        let (platform, mut read) = (adapter(), Read::default());
        platform.read(&request, &mut read).unwrap();
        assert_eq!(read.has_unknown_os, is_unknown);
    }
}
