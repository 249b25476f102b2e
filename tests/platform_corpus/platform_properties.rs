//! Properties of the platforms' messages with random requests. Messages round-trip. Answers do not
//! depend on unknown fields, field order or packing.

use std::sync::LazyLock;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use rtad::platform::ocean::{Device as OceanDevice, Req, Rsp, UserInfo};
use rtad::platform::tencent::rta_response::{AdResult, TargetInfo};
use rtad::platform::tencent::{AdInfo, Device, RequestInfo, RtaRequest, RtaResponse, device};

use crate::properties::{Protocol, World};

static WORLD: LazyLock<World> = LazyLock::new(World::new);

const DEVICE_OF_TENCENT: u32 = 5;
const DOUBTS: u32 = 9;
const RTA_IDS: u32 = 14;
const DEVICE_OF_OCEAN: u32 = 17;
/// Highest field number; no platform uses more.
const UNKNOWN: std::ops::Range<u32> = 200..10_000;

/// Ids: of the known device, of others, blank and malformed.
fn id() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        Just("8d3ebd3654fb46a2832296669cf1b536"),
        Just("868049039501257"),
        Just("83e9158a4fb54c0e1ef0b238639a23ae"),
        Just("1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
        Just("00000000-0000-0000-0000-000000000000"),
        Just("null"),
        Just(""),
        Just("a b"),
    ]
    .prop_map(|id| Bytes::from_static(id.as_bytes()))
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

prop_compose! {
    fn tencent_device()(
        md5s in proptest::array::uniform5(option::of(id())),
        oaid in option::of(id()),
        doubtful_ids_list in vec(prop_oneof![0..8, any::<i32>()], 0..4),
        cached_deviceid_type in option::of(0..9),
        qaids in vec((option::of(id()), option::of(id())), 0..4),
        openids in vec(option::of(id()), 0..3),
    ) -> Device {
        let [idfa_md5sum, imei_md5sum, android_id_md5sum, mac_md5sum, oaid_md5sum] = md5s;
        let qaid = |(qaid, qaid_md5sum)| device::QaidInfo { qaid, qaid_md5sum };
        Device {
            idfa_md5sum, imei_md5sum, android_id_md5sum, mac_md5sum, oaid_md5sum, oaid,
            doubtful_ids_list,
            cached_deviceid_type,
            qaid_infos: qaids.into_iter().map(qaid).collect(),
            wx_openid: openids.into_iter().map(|openid| device::WxOpenid { openid }).collect(),
        }
    }
}

prop_compose! {
    fn tencent_request()(
        id in option::of(bytes()),
        is_ping in prop_oneof![6 => Just(None), 1 => any::<bool>().prop_map(Some)],
        is_test in option::of(any::<bool>()),
        device in option::weighted(0.9, tencent_device()),
        request_type in option::of(option::of(0..3)),
        ads in vec((option::of(any::<u64>()), option::of(prop_oneof!["T[0-5]", "new", ""])), 0..5),
    ) -> RtaRequest {
        let ad = |(adgroup_id, target): (_, Option<String>)| {
            AdInfo { adgroup_id, out_target_id: target.map(Bytes::from) }
        };
        RtaRequest {
            id, is_ping, is_test, device,
            request_info: request_type.map(|request_type| RequestInfo { request_type }),
            ad_infos: ads.into_iter().map(ad).collect(),
        }
    }
}

prop_compose! {
    fn tencent_response()(
        request_id in option::of(bytes()),
        code in option::of(any::<u32>()),
        processing_time_ms in option::of(any::<i32>()),
        response_cache_time in option::of(any::<u32>()),
        tags in (option::of(any::<u64>()), option::of(bytes())),
        out_target_id in vec(bytes(), 0..4),
        targets in vec(
            (option::of(bytes()), option::of(any::<u32>()), option::of(0.2_f32..5.0)),
            0..3,
        ),
        aid_whitelist in vec(any::<u64>(), 0..4),
        ads in vec(
            (option::of(any::<u64>()), option::of(any::<u32>()), option::of(any::<bool>())),
            0..4,
        ),
    ) -> RtaResponse {
        let target = |(out_target_id, cpc_price, user_weight_factor)| {
            TargetInfo { out_target_id, cpc_price, user_weight_factor, ..TargetInfo::default() }
        };
        let ad = |(adgroup_id, cpc_price, ignore)| AdResult { adgroup_id, cpc_price, ignore };
        RtaResponse {
            request_id, code, processing_time_ms, response_cache_time, out_target_id, aid_whitelist,
            dsp_tag: tags.0,
            dsp_tag_str: tags.1,
            target_infos: targets.into_iter().map(target).collect(),
            ad_results: ads.into_iter().map(ad).collect(),
        }
    }
}

prop_compose! {
    fn ocean_request()(
        platform in 0..4,
        did in id(),
        did_type in 0..12,
        req_id in bytes(),
        rta_ids in vec(
            prop_oneof![Just(10003), Just(10004), Just(-7), Just(0), any::<i64>()],
            0..6,
        ),
        device in option::weighted(0.7, (vec(id(), 8), any::<[bool; 8]>())),
    ) -> Req {
        let device = device.map(|(ids, is_there)| {
            let id = |index: usize| if is_there[index] { ids[index].clone() } else { Bytes::new() };
            OceanDevice {
                imei_md5: id(0), android_id_md5: id(1), oaid: id(2), idfa: id(3),
                caid1: id(4), caid2: id(5), gaid: id(6), caid: id(7),
            }
        });
        Req { platform, did, did_type, req_id, rta_ids, device }
    }
}

prop_compose! {
    fn ocean_response()(
        numbers in any::<(i32, i64, i32, i32)>(),
        bid_type in option::of(any::<i32>()),
        (req_id, rta_vid) in (bytes(), bytes()),
        infos in vec(any::<(bool, i64)>(), 0..5),
    ) -> Rsp {
        let (status_code, ts, cache_time_secs, cus_vid) = numbers;
        let info = |(is_interested, rta_id)| UserInfo { is_interested, rta_id };
        let user_infos = infos.into_iter().map(info).collect();
        Rsp { status_code, req_id, user_infos, ts, bid_type, cache_time_secs, rta_vid, cus_vid }
    }
}

/// A field's number and bytes on the wire.
type Field = (u32, Vec<u8>);

/// Splits a message written by this test into fields.
fn fields_of(mut body: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    while !body.is_empty() {
        let whole = body;
        let (number, wire_type) = decode_key(&mut body).unwrap();
        let length = match wire_type {
            WireType::LengthDelimited => decode_varint(&mut body).unwrap() as usize,
            WireType::Varint => decode_varint(&mut body).map(|_| 0).unwrap(),
            other => panic!("{other:?}"),
        };
        body = &body[length..];
        fields.push((number, whole[..whole.len() - body.len()].to_vec()));
    }
    fields
}

fn message_of(fields: impl IntoIterator<Item = Field>) -> Vec<u8> {
    fields.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

fn delimited(number: u32, value: &[u8]) -> Field {
    let mut field = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut field);
    encode_varint(value.len() as u64, &mut field);
    field.extend(value);
    (number, field)
}

fn varint(number: u32, value: u64) -> Field {
    let mut field = Vec::new();
    encode_key(number, WireType::Varint, &mut field);
    encode_varint(value, &mut field);
    (number, field)
}

/// Unknown fields of every wire type, including groups.
fn unknown() -> impl Strategy<Value = Field> {
    let fixed = |number, wire_type, value: &[u8]| {
        let mut field = Vec::new();
        encode_key(number, wire_type, &mut field);
        field.extend(value);
        (number, field)
    };
    let simple = prop_oneof![
        (UNKNOWN, any::<u64>()).prop_map(|(number, value)| varint(number, value)),
        (UNKNOWN, vec(any::<u8>(), 0..300)).prop_map(|(number, value)| delimited(number, &value)),
        (UNKNOWN, any::<[u8; 8]>()).prop_map(move |(number, value)| fixed(
            number,
            WireType::SixtyFourBit,
            &value
        )),
        (UNKNOWN, any::<[u8; 4]>()).prop_map(move |(number, value)| fixed(
            number,
            WireType::ThirtyTwoBit,
            &value
        )),
    ];
    simple.prop_recursive(4, 16, 4, |inside| {
        (UNKNOWN, vec(inside, 0..4), any::<bool>()).prop_map(|(number, fields, is_group)| {
            let inside = message_of(fields);
            if !is_group {
                return delimited(number, &inside);
            }
            let mut field = Vec::new();
            encode_key(number, WireType::StartGroup, &mut field);
            field.extend(inside);
            encode_key(number, WireType::EndGroup, &mut field);
            (number, field)
        })
    })
}

/// Fields to insert, with their positions modulo the number of fields.
type Insertions = Vec<(usize, Field)>;

fn with_unknown(body: &[u8], insertions: &Insertions) -> Vec<u8> {
    let mut fields = fields_of(body);
    for (position, field) in insertions {
        fields.insert(position % (fields.len() + 1), field.clone());
    }
    message_of(fields)
}

/// The body with its device changed.
fn with_device(body: &[u8], device: u32, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    message_of(fields_of(body).into_iter().map(|(number, field)| {
        if number != device {
            return (number, field);
        }
        let mut inside = &field[..];
        decode_key(&mut inside).unwrap();
        decode_varint(&mut inside).unwrap();
        delimited(number, &change(inside))
    }))
}

/// Reorders fields by number, keeping the order of equal numbers: that of a list matters.
fn shuffled(body: &[u8], order: u64) -> Vec<u8> {
    let mut fields = fields_of(body);
    let rank =
        |number: u32| (u64::from(number) + 1).wrapping_mul(order | 1).rotate_left(number) ^ order;
    fields.sort_by_key(|(number, _)| rank(*number));
    message_of(fields)
}

/// The same list, partly packed.
fn repacked(body: &[u8], list: u32, values: &[u64], parts: usize) -> Vec<u8> {
    let mut fields: Vec<Field> =
        fields_of(body).into_iter().filter(|(number, _)| *number != list).collect();
    for (index, part) in values.chunks(parts % 4 + 1).enumerate() {
        if (index + parts).is_multiple_of(2) {
            fields.extend(part.iter().map(|value| varint(list, *value)));
        } else {
            let mut packed = Vec::new();
            part.iter().for_each(|value| encode_varint(*value, &mut packed));
            fields.push(delimited(list, &packed));
        }
    }
    message_of(fields)
}

fn assert_same_answer(protocol: Protocol, body: &[u8], other: Vec<u8>) {
    if body.is_empty() {
        // An error, unlike the same with unknown fields.
        return;
    }
    let expected = WORLD.answer(protocol, Bytes::copy_from_slice(body));
    assert_eq!(expected.failure, None);
    let other = Bytes::from(other);
    WORLD.answer_and_check(protocol, other.clone());
    let answer = WORLD.answer(protocol, other.clone());
    let (body, other) = (const_hex::encode(body), const_hex::encode(&other));
    assert_eq!((answer.failure, &answer.bytes), (None, &expected.bytes), "\n {body}\n {other}");
}

fn assert_round_trip<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M) {
    assert_eq!(&M::decode(Bytes::from(message.encode_to_vec())).unwrap(), message);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn messages_round_trip(
        request in tencent_request(),
        response in tencent_response(),
        req in ocean_request(),
        rsp in ocean_response(),
    ) {
        assert_round_trip(&request);
        assert_round_trip(&response);
        assert_round_trip(&req);
        assert_round_trip(&rsp);
    }

    #[test]
    fn unknown_fields_do_not_change_tencent_answers(
        request in tencent_request(),
        outside in vec((any::<usize>(), unknown()), 0..4),
        inside in vec((any::<usize>(), unknown()), 0..4),
    ) {
        let body = request.encode_to_vec();
        let other = with_device(&body, DEVICE_OF_TENCENT, |device| with_unknown(device, &inside));
        assert_same_answer(Protocol::Tencent, &body, with_unknown(&other, &outside));
    }

    #[test]
    fn unknown_fields_do_not_change_ocean_answers(
        request in ocean_request(),
        outside in vec((any::<usize>(), unknown()), 0..4),
        inside in vec((any::<usize>(), unknown()), 0..4),
    ) {
        let body = request.encode_to_vec();
        let other = with_device(&body, DEVICE_OF_OCEAN, |device| with_unknown(device, &inside));
        assert_same_answer(Protocol::Ocean, &body, with_unknown(&other, &outside));
    }

    #[test]
    fn field_order_does_not_change_answers(
        tencent in tencent_request(),
        ocean in ocean_request(),
        order: u64,
    ) {
        let body = tencent.encode_to_vec();
        let other = with_device(&body, DEVICE_OF_TENCENT, |device| shuffled(device, order));
        assert_same_answer(Protocol::Tencent, &body, shuffled(&other, order));
        let body = ocean.encode_to_vec();
        let other = with_device(&body, DEVICE_OF_OCEAN, |device| shuffled(device, order));
        assert_same_answer(Protocol::Ocean, &body, shuffled(&other, order));
    }

    #[test]
    fn packing_does_not_change_answers(
        tencent in tencent_request(),
        ocean in ocean_request(),
        parts: usize,
    ) {
        let body = tencent.encode_to_vec();
        let doubts = tencent.device.map(|device| device.doubtful_ids_list).unwrap_or_default();
        let doubts: Vec<u64> = doubts.into_iter().map(|kind| i64::from(kind) as u64).collect();
        let repack = |device: &[u8]| repacked(device, DOUBTS, &doubts, parts);
        let other = with_device(&body, DEVICE_OF_TENCENT, repack);
        assert_same_answer(Protocol::Tencent, &body, other);
        let ids: Vec<u64> = ocean.rta_ids.iter().map(|id| *id as u64).collect();
        let body = ocean.encode_to_vec();
        assert_same_answer(Protocol::Ocean, &body, repacked(&body, RTA_IDS, &ids, parts));
    }
}
