use super::*;
use crate::strategy::ValueKey;
use crate::telemetry::Telemetry;
use rtad_core::device::{DeviceKey, KeyMaker};

fn reader() -> IdReader {
    IdReader::new(KeyMaker::default(), &Telemetry::default())
}

#[test]
fn full_request_is_decoded() {
    let body = br#"{"request_id":"r1","strategies":["new-users","b"],"device":{
        "imei":"868049039501257","oaid_md5":"83e9158a4fb54c0e1ef0b238639a23ae","idfa":null,
        "caid":["abcdefabcdefabcdefabcdefabcdef12",null,""],"mac":"02:00:00:00:00:00",
        "md5":"short"},"attributes":{"os":"ios","slot":null,"app":""}}"#;
    let reader = reader();
    let request = decode(body, &reader).unwrap();
    assert_eq!(request.request_id.as_deref(), Some("r1"));
    assert_eq!(request.strategies, ["new-users", "b"]);
    let of = DeviceKey::of_canonical;
    let expected = [
        of(b"868049039501257"),
        of(b"1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
        of(b"abcdefabcdefabcdefabcdefabcdef12"),
    ];
    assert!(request.attributes.values()[Attribute::Os as usize].is_some());
    assert!(request.attributes.values()[Attribute::Slot as usize].is_none());
    assert_eq!(
        request.keys.as_slice(),
        expected,
        "blank and malformed ids are left out"
    );
}

#[test]
fn attributes_have_no_case_and_no_spaces_around() {
    let telemetry = Telemetry::default();
    let reader = IdReader::new(KeyMaker::default(), &telemetry);
    let unknown = r#"rtad_ids_total{platform="api",kind="os",result="malformed"} "#;
    for (os, expected, count) in [
        ("iOS", Some("ios"), "0"),
        (" Android\\n", Some("android"), "0"),
        (" ", None, "0"),
        ("iPhone OS 17", None, "1"),
    ] {
        let body = format!(r#"{{"attributes":{{"os":"{os}","app":" Com.App "}}}}"#);
        let request = decode(body.as_bytes(), &reader).unwrap();
        let text = |attribute| match request.attributes.values()[attribute as usize] {
            Some(AttributeValue::Text(text)) => Some(str::from_utf8(text).unwrap()),
            _ => None,
        };
        assert_eq!(text(Attribute::Os), expected, "{os}");
        assert_eq!(text(Attribute::App), Some("Com.App"));
        let rendered = telemetry.render();
        let found = rendered.lines().find_map(|line| line.strip_prefix(unknown));
        assert_eq!(found.unwrap_or("0"), count, "{os}");
    }
}

#[test]
fn every_field_is_optional() {
    for body in [
        &b"{}"[..],
        br#"{"device":null,"strategies":null,"request_id":null}"#,
        br#"{"device":{}}"#,
    ] {
        let reader = reader();
        let request = decode(body, &reader).unwrap();
        assert!(
            request.keys.is_empty()
                && request.strategies.is_empty()
                && request.request_id.is_none()
        );
    }
}

fn refusal(body: &[u8], reader: &IdReader) -> String {
    match decode(body, reader) {
        Err(RequestError::BadBody(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_do_not_quote_ids() {
    let reader = reader();
    for (body, expected) in [
        (
            &br#"{"devcie":{}}"#[..],
            "unknown field, expected one of `request_id`, `strategies`, `device`, `attributes`",
        ),
        (
            br#"{"attributes":{"place":"868049039501257"}}"#,
            "expected one of `os`, `app`",
        ),
        (
            br#"{"device":{"imei_mdf5":"x"}}"#,
            "unknown id kind in device; accepted: md5, idfa, imei",
        ),
        (
            br#"{"device":{"imei":{"a":"868049039501257"}}}"#,
            "expected an id, a list of ids, or null",
        ),
        (
            br#"{"device":{"imei":true}}"#,
            "expected an id, a list of ids, or null",
        ),
        (br#"{"device":["868049039501257"]}"#, "expected an object"),
        (br#"{"strategies":"new-users"}"#, "expected a sequence"),
        (br#"{"request_id":"r1"} x"#, "trailing characters"),
        (br#"{"request_id":"r1""#, "EOF while parsing"),
        (b"", "expected an object with request_id"),
        (b"[]", "expected an object with request_id"),
        (
            br#"{"device":{"md5_md5":"868049039501257"}}"#,
            "unknown id kind in device",
        ),
    ] {
        let error = refusal(body, &reader);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("868049039501257"), "{error}");
    }
}

#[test]
fn number_of_strategies_and_ids_is_limited() {
    let reader = reader();
    let names = |count| format!(r#"{{"strategies":[{}]}}"#, vec![r#""a""#; count].join(","));
    assert_eq!(
        decode(names(64).as_bytes(), &reader)
            .unwrap()
            .strategies
            .len(),
        64
    );
    let error = refusal(names(65).as_bytes(), &reader);
    assert!(error.contains("more than 64 strategies"), "{error}");
    let ids = |count: usize| {
        let list: Vec<String> = (0..count).map(|n| format!("\"id-number-{n}\"")).collect();
        format!(r#"{{"device":{{"openid":[{}]}}}}"#, list.join(","))
    };
    assert_eq!(decode(ids(64).as_bytes(), &reader).unwrap().keys.len(), 64);
    let error = refusal(ids(65).as_bytes(), &reader);
    assert!(
        error.contains("more than 64 different usable ids"),
        "{error}"
    );
    let repeated = ids(64).replace("]", &format!("{}]", r#","id-number-3""#.repeat(100)));
    assert_eq!(decode(repeated.as_bytes(), &reader).unwrap().keys.len(), 64);
}

#[test]
fn decisions_are_written_in_order() {
    let value = BidValue::default().with(ValueKey::Weight, Some(2.0));
    let decision = |strategy, decision: Decision, value, buckets: &[_]| NamedDecision {
        strategy,
        bid: decision.is_bid(),
        reason: decision.reason,
        value,
        buckets: buckets.iter().copied().collect(),
    };
    let decisions = [
        decision("a", Decision::bid(Reason::NotMember), Some(&value), &[]),
        decision(
            "b",
            Decision::no_bid(Reason::Bucket),
            None,
            &[("price-test", "low")],
        ),
    ];
    assert_eq!(
        String::from_utf8(encode(Some("r\"1"), &decisions)).unwrap(),
        concat!(
            r#"{"request_id":"r\"1","decisions":[{"strategy":"a","bid":true,"#,
            r#""reason":"not_member","value":{"weight":2.0}},"#,
            r#"{"strategy":"b","bid":false,"reason":"bucket","#,
            r#""buckets":{"price-test":"low"}}]}"#
        )
    );
    assert_eq!(encode(None, &[]), br#"{"decisions":[]}"#);
}
