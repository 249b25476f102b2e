//! Protobuf: valid bytes that common writers rarely produce.

use super::*;

fn ids(body: &[u8]) -> Vec<String> {
    let (answer, script) = asked(&platform(PROTO2, PROTOBUF), body, &[BID, BID]);
    answer.unwrap();
    script.ids
}

#[test]
fn last_value_wins_across_merged_messages() {
    let body = b"\x22\x03\x0a\x01x\x22\x06\x12\x01o\x0a\x01y\x0a\x01q\x0a\x01r";
    assert_eq!(ids(body), ["device.imei imei y", "device.oaid oaid o"]);
    let (answer, _) = asked(&platform(PROTO2, PROTOBUF), body, &[BID, BID]);
    assert!(answer.unwrap().windows(3).any(|part| part == b"\x1a\x01r"));
}

#[test]
fn every_list_element_is_read() {
    assert_eq!(
        ids(b"\x22\x06\x1a\x01c\x1a\x01d\x22\x03\x1a\x01e"),
        [
            "device.caid caid c",
            "device.caid caid d",
            "device.caid caid e"
        ]
    );
}

#[test]
fn list_entry_fields_may_come_in_any_order() {
    // {OAID, a, true} {value b, then type OAID} {value c alone: the schema tells an absent type
    // from 0} {IMEI, d} {IMEI, e, true}
    let body = b"\x2a\x07\x08\x01\x12\x01a\x18\x01\x2a\x05\x12\x01b\x08\x01\x2a\x03\x12\x01c\x2a\
        \x05\x08\x00\x12\x01d\
                 \x2a\x07\x08\x00\x12\x01e\x18\x01";
    assert_eq!(
        ids(body),
        [
            "dids.value oaid_md5 a",
            "dids.value oaid b",
            "dids.value imei d"
        ]
    );
}

#[test]
fn absent_proto3_number_is_zero() {
    let proto = "syntax = \"proto3\"; enum K { IMEI = 0; OAID = 1; } message D { K k = 1; string v \
        = 2; bool h = 3; } \
                 message Q { repeated D d = 1; } message R { bool ok = 1; }";
    let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = { id_list = { list = "d", value = "v", type = "k", secure = "h", kinds = { "IMEI" = "imei", "1/0" = "oaid" } } }
response = { code = { field = "ok", bid = 1, no_bid = 0 } }
"#;
    let platform = platform(proto, mapping);
    let (answer, script) = asked(
        &platform,
        b"\x0a\x03\x12\x01a\x0a\x05\x08\x01\x12\x01b\x0a\x05\x18\x01\x12\x01c",
        &[BID, BID],
    );
    assert_eq!(answer.unwrap(), b"\x08\x01"[..]);
    assert_eq!(script.ids, ["d.v imei a", "d.v oaid b"]);
    assert_eq!(platform.adapter.refusal(), b"\x08\x00"[..]);
}

#[test]
fn packed_and_unpacked_lists_are_read() {
    for (mapping, bodies) in [
        (
            "asked",
            [
                &b"\x10\x01\x10\x02"[..],
                b"\x12\x02\x01\x02",
                b"\x10\x01\x12\x01\x02",
            ],
        ),
        (
            "packed",
            [
                b"\x1a\x08\x01\0\0\0\x02\0\0\0",
                b"\x1d\x01\0\0\0\x1d\x02\0\0\0",
                b"\x1d\x01\0\0\0\x1a\x04\x02\0\0\0",
            ],
        ),
    ] {
        let mapping = PROTOBUF.replace(
            "strategies = \"asked\"",
            &format!("strategies = \"{mapping}\""),
        );
        for body in bodies {
            let (answer, script) = asked(&platform(PROTO2, &mapping), body, &[BID, BID]);
            assert!(answer.is_ok(), "{body:?}");
            assert_eq!(script.notes, ["strategy: 1", "strategy: 2"], "{body:?}");
        }
    }
}

#[test]
fn unknown_value_of_a_proto2_enum_is_skipped() {
    let read = |syntax: &str, body: &[u8]| {
        let proto = format!(
            "syntax = \"{syntax}\"; enum K {{ NONE = 0; IMEI = 1; OAID = 2; }} message D {{ \
                 {} K k = 1; {} string v = 2; }} message Q {{ repeated D d = 1; repeated K s = 2; \
                 }} message R {{ repeated uint32 ok = 1; }}",
            if syntax == "proto2" { "optional" } else { "" },
            if syntax == "proto2" { "optional" } else { "" },
        );
        let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = { strategies = "s", id_list = { list = "d", value = "v", type = "k", kinds = { "IMEI" = "imei" } } }
response = { accepted = "ok" }
"#;
        let (answer, script) = asked(&platform(&proto, mapping), body, &[BID, BID]);
        answer.unwrap();
        (script.ids, script.notes)
    };
    // {type IMEI, then 77, value a}; strategies 1, 77 and 2, packed and not.
    for body in [
        &b"\x0a\x07\x08\x01\x08\x4d\x12\x01a\x10\x01\x10\x4d\x10\x02"[..],
        b"\x0a\x07\x08\x01\x08\x4d\x12\x01a\x12\x03\x01\x4d\x02",
    ] {
        let (ids, notes) = read("proto2", body);
        assert_eq!(ids, ["d.v imei a"], "{body:?}");
        assert_eq!(notes, ["strategy: 1", "strategy: 2"], "{body:?}");
        let (ids, _) = read("proto3", body);
        assert!(
            ids.is_empty(),
            "an enum of proto3 is open, and its last value wins"
        );
    }
}

#[test]
fn os_values_are_numbers_or_names_of_an_enum() {
    let proto = "syntax = \"proto3\"; enum Os { UNKNOWN = 0; APPLE = 1; ANDROID = 2; } \
                 message Q { string id = 1; Os os = 2; } message R { repeated uint32 ok = 1; }";
    let mapping = |os_values: &str| {
        format!(
            "body = \"protobuf\"\nproto = \"p.proto\"\nrequest_message = \"Q\"\n\
             response_message = \"R\"\nresponse = {{ accepted = \"ok\" }}\n\
             request = {{ ids = {{ oaid = \"id\" }}, attributes = {{ os = \"os\" }}{os_values} }}\n"
        )
    };
    let platform = platform(
        proto,
        &mapping(", os_values = { APPLE = \"ios\", \"2\" = \"android\" }"),
    );
    for (body, os, is_unknown) in [
        (&b"\x0a\x01a\x10\x01"[..], Some("ios"), false),
        (b"\x0a\x01a\x10\x02", Some("android"), false),
        (b"\x0a\x01a\x10\x03", None, true),
    ] {
        let (body, headers) = (Bytes::copy_from_slice(body), HeaderMap::new());
        let head = RequestHead {
            headers: &headers,
            query: None,
        };
        let admission = Admission::ByHeaders;
        let (mut read, body) = (Read::default(), &body);
        let request = Request {
            admission,
            head,
            body,
        };
        platform.adapter.read(&request, &mut read).unwrap();
        let found = &read.attributes[Attribute::Os as usize];
        assert_eq!(
            found.is_text(os.unwrap_or_default().as_bytes()),
            os.is_some()
        );
        assert_eq!(
            (found.is_absent(), read.has_unknown_os),
            (os.is_none(), is_unknown)
        );
    }

    let wrong = refused(proto, &mapping(", os_values = { IOS = \"ios\" }")).join("; ");
    assert!(
        wrong.contains("accepted: UNKNOWN, APPLE, ANDROID"),
        "{wrong}"
    );
    let missing = refused(proto, &mapping("")).join("; ");
    assert!(
        missing.contains("request.os_values is not given"),
        "{missing}"
    );
}

#[test]
fn unmapped_fields_and_groups_are_skipped() {
    // group Old (8) with an imei in it; fields 100 of every wire type; a group in a group.
    let body =
        b"\x43\x4a\x01g\x44\xa0\x06\x05\xa1\x0612345678\xa2\x06\x01x\xa5\x061234\xa3\x06\xa3\
        \x06\xa4\x06\xa4\x06\
                 \x22\x03\x0a\x01i";
    assert_eq!(ids(body), ["device.imei imei i"]);
    for bad in [
        &b"\x43\x4a\x01g"[..],
        b"\x44",
        b"\x43\xa4\x06",
        b"\xa2\x06\x02x",
        b"\xa3\x06\x43\xa4\x06",
    ] {
        let (answer, _) = asked(&platform(PROTO2, PROTOBUF), bad, &[BID, BID]);
        assert_eq!(answer, Err(Failure::BadBody), "{bad:?}");
    }
    let deep = b"\xa3\x06".repeat(200_000);
    let (answer, _) = asked(&platform(PROTO2, PROTOBUF), &deep, &[BID, BID]);
    assert_eq!(answer, Err(Failure::BadBody), "nesting is bounded");
}

#[test]
fn mapped_field_of_another_type_is_a_bad_body() {
    let bad: [&[u8]; 8] = [
        b"\x08\x01",                                     // id as a varint
        b"\x11\0\0\0\0\0\0\0\0",                         // asked as a fixed64
        b"\x20\x01",                                     // device as a varint
        b"\x32\x01\x01",                                 // a single bool, packed
        b"\x12\x02\x01\x80",                             // packed, cut in a varint
        b"\x22\x05\x0a\x01i",                            // device longer than the body
        b"\x00\x01",                                     // field 0
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a length of 2^64 - 1
    ];
    for body in bad {
        let (answer, script) = asked(&platform(PROTO2, PROTOBUF), body, &[BID, BID]);
        assert_eq!(answer, Err(Failure::BadBody), "{body:?}");
        assert!(script.ids.is_empty());
    }
}

#[test]
fn invalid_utf8_is_accepted_and_echoed() {
    let (answer, _) = asked(
        &platform(PROTO2, PROTOBUF),
        b"\x0a\x02\xff\xfe\x10\x02",
        &[BID, BID],
    );
    assert!(
        answer
            .unwrap()
            .windows(4)
            .any(|part| part == b"\x1a\x02\xff\xfe")
    );
}

#[test]
fn number_can_be_an_id() {
    assert_eq!(
        ids(b"\x22\x0b\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ["device.number openid 18446744073709551615"]
    );
}

#[test]
fn every_number_type_is_read_and_written() {
    let types = [
        (
            "int32",
            &b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
            "-1",
        ),
        (
            "int64",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "-1",
        ),
        ("uint32", b"\x08\xff\xff\xff\xff\x0f", "4294967295"),
        (
            "uint64",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "18446744073709551615",
        ),
        ("sint32", b"\x08\xff\xff\xff\xff\x0f", "-2147483648"),
        (
            "sint64",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "-9223372036854775808",
        ),
        ("fixed32", b"\x0d\xff\xff\xff\xff", "4294967295"),
        (
            "fixed64",
            b"\x09\xff\xff\xff\xff\xff\xff\xff\xff",
            "18446744073709551615",
        ),
        ("sfixed32", b"\x0d\xfe\xff\xff\xff", "-2"),
        ("sfixed64", b"\x09\xfe\xff\xff\xff\xff\xff\xff\xff", "-2"),
        ("bool", b"\x08\x01", "1"),
        ("E", b"\x08\x07", "7"),
        ("string", b"\x0a\x01r", "r"),
    ];
    for (name, body, text) in types {
        let proto = format!(
            "syntax = \"proto2\"; enum E {{ A = 0; B = 7; }} message Q {{ optional {name} id = 1; \
             repeated string x = 2; }}"
        );
        let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "Q"
request = { request_id = "id", ids = { openid = "id" } }
response = { request_id = "id", accepted = "x" }
"#;
        let (answer, script) = asked(&platform(&proto, mapping), body, &[NO_BID, NO_BID]);
        assert_eq!(answer.unwrap(), body, "{name}");
        assert_eq!(script.ids, [format!("id openid {text}")], "{name}");
    }
}

#[test]
fn required_proto2_fields_are_always_written() {
    let proto = "syntax = \"proto2\"; message Q { optional string id = 1; repeated string s = 2; } \
                 message R { required string id = 1; repeated string joined = 2; required H must = \
                 3; optional H may = 4; \
                 required C code = 5; required string first = 6; } \
                 message H { required uint32 cache = 1; } message C { required int32 is = 1; \
                 optional uint32 cache = 2; required int64 id = 3; }";
    let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = { request_id = "id", ids = { imei = "id" }, strategies = "s" }
response = { request_id = "id", accepted = "joined", first_accepted = "first", cache = "must.cache", code = { field = "code.is", bid = 0, no_bid = 1 } }
"#;
    let platform_of = |mapping: &str| {
        platform(
            &proto.replace("required int64 id", "optional int64 id"),
            mapping,
        )
    };
    let required = platform_of(mapping);
    let empty = b"\x0a\x00\x1a\x02\x08\x00\x2a\x02\x08\x01\x32\x00";
    assert_eq!(required.adapter.refusal(), empty[..]);
    let (answer, _) = asked(
        &required,
        b"\x78\x01",
        &[NO_BID_UNAVAILABLE, NO_BID_UNAVAILABLE],
    );
    assert_eq!(answer.unwrap(), empty[..]);
    let answer = fallback(
        &*required.adapter,
        &[NO_BID_UNAVAILABLE, NO_BID_UNAVAILABLE],
    );
    assert_eq!(answer, empty[..]);
    // An optional message without values is omitted, even with required fields.
    let proto = proto
        .replace("required H must = 3; ", "")
        .replace("required int64 id", "optional int64 id");
    let optional = platform(&proto, &mapping.replace("must.cache", "may.cache"));
    assert_eq!(
        optional.adapter.refusal(),
        b"\x0a\x00\x2a\x02\x08\x01\x32\x00"[..]
    );
    // The first strategy, beside all of them.
    let (answer, _) = asked(&required, b"\x12\x01\x31\x12\x01\x32", &[BID, BID]);
    let both = b"\x0a\x00\x12\x011\x12\x012\x1a\x03\x08\x90\x1c\x2a\x02\x08\x00\x32\x011";
    assert_eq!(answer.unwrap(), both[..]);
}

#[test]
fn non_canonical_strategy_is_not_echoed() {
    let proto = "syntax = \"proto3\"; message Q { repeated string s = 1; string i = 2; } message V \
        { int64 id = 1; int32 ok = 2; } \
                 message R { repeated V v = 1; repeated int32 hits = 2; }";
    let mapping = r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = { ids = { imei = "i" }, strategies = "s" }
response = { verdicts = { list = "v", strategy = "id", accepted = "ok" }, accepted = "hits" }
"#;
    let (answer, _) = asked(
        &platform(proto, mapping),
        b"\x0a\x02\x301\x0a\x01\x31\x0a\x02+1",
        &[BID, BID],
    );
    assert_eq!(answer.unwrap(), b"\x0a\x04\x08\x01\x10\x01\x12\x01\x01"[..]);
}
