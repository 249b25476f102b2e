//! Shapes of bodies that platforms publish: forms, JSON in a text, codes that are no numbers.

use super::*;

const FORM: &str = r#"
body = "form"
[platform.request]
request_id = "id"
strategies = "asked"
ids = { imei = "imei", caid = "device.caid" }
[platform.response]
request_id = "id"
code = [{ field = "ok", bid = true, no_bid = false }, { field = "code", bid = "0", no_bid = "0", error = "2" }]
verdicts = { list = "hits", strategy = "account" }
"#;

fn read(query: Option<&str>, body: &str) -> (Result<Bytes, Failure>, Script) {
    let (custom, headers) = (custom(&assembly("", FORM)), HeaderMap::new());
    let head = RequestHead {
        headers: &headers,
        query,
    };
    asked_at(
        &custom,
        Admission::ByHeaders,
        head,
        body.as_bytes(),
        Duration::ZERO,
    )
}

#[test]
fn form_is_read_from_the_body_and_the_query() {
    let body =
        "id=r+1%21&asked=1&imei=x&x=y&imei=86804903950125%37&device=%7B%22caid%22%3A%22c%22%7D";
    for (query, body) in [
        (None, body),
        (Some(body), ""),
        (Some("id=no&asked=1"), body),
    ] {
        let (answer, script) = read(query, body);
        let expected = r#"{"id":"r 1!","ok":true,"code":"0","hits":[{"account":"1"}]}"#;
        assert_eq!(answer.unwrap(), expected);
        assert_eq!(
            script.ids,
            ["device.caid caid c", "imei imei 868049039501257"]
        );
        assert_eq!(script.asked, [0]);
    }
    for (query, body) in [
        (None, ""),
        (Some(""), ""),
        (None, "device=%7B"),
        (None, "device=1"),
    ] {
        assert_eq!(
            read(query, body).0,
            Err(Failure::BadBody),
            "{query:?} {body}"
        );
    }
    // An empty object, and a parameter without a value.
    assert!(read(None, "device=&imei").0.is_ok());
}

#[test]
fn answer_lists_only_the_strategies_that_bid() {
    let assembly = assembly("", FORM);
    let (answer, _) = asked(&assembly.platforms[0], b"imei=x", &[NO_BID, BID]);
    assert_eq!(
        answer.unwrap(),
        r#"{"ok":true,"code":"0","hits":[{"account":"2"}]}"#
    );
    let (answer, _) = asked(&assembly.platforms[0], b"imei=x", &[NO_BID, NO_BID]);
    assert_eq!(answer.unwrap(), r#"{"ok":false,"code":"0","hits":[]}"#);
    let refusal = assembly.platforms[0].adapter.refusal();
    assert_eq!(refusal, r#"{"ok":false,"code":"2","hits":[]}"#);
}

#[test]
fn version_is_no_part_of_a_caid() {
    let caid = "0c9e5e3d3e1b4a67b3a6c8b5d2f1e0a9";
    let digits = "01234567890123456789012345678901";
    for (given, expected) in [
        (format!("{caid}_20230330"), caid),
        (format!("20230330_{caid}"), caid),
        (format!("{caid}:20230330"), caid),
        (format!("20230330_{caid} "), caid),
        (format!(" {caid}_20230330\u{3000}"), caid),
        (format!("{digits}_20230330"), digits),
        (caid.to_owned(), caid),
        (format!("{caid}_"), caid),
        ("a_b".to_owned(), "a_b"),
    ] {
        let (_, script) = read(None, &format!("device={{\"caid\":\"{given}\"}}&imei=1_2"));
        assert_eq!(
            script.ids,
            [&format!("device.caid caid {expected}"), "imei imei 1_2"]
        );
    }
}

#[test]
fn object_may_be_json_in_a_text() {
    let mapping = FORM.replace("\"form\"", "\"json\"");
    let platform = platform("", &mapping);
    for body in [
        r#"{"device": "{\"caid\": \"c\"}", "id": "r"}"#,
        r#"{"device": {"caid": "c"}, "id": "r"}"#,
        r#"{"device": "{\"\\u0063aid\": \"\\u0063\", \"x\": [1]}", "id": "r"}"#,
    ] {
        let (_, script) = asked(&platform, body.as_bytes(), &[BID, BID]);
        assert_eq!(script.ids, ["device.caid caid c"], "{body}");
    }
    for body in [
        r#"{"device": "\"{}\""}"#,
        r#"{"device": "{} x"}"#,
        r#"{"device": "c"}"#,
    ] {
        assert_eq!(
            asked(&platform, body.as_bytes(), &[BID]).0,
            Err(Failure::BadBody),
            "{body}"
        );
    }
}

#[test]
fn codes_of_protobuf_have_the_type_of_their_field() {
    let proto = r#"
syntax = "proto3";
message Q { string i = 1; }
message R { bool ok = 1; string c = 2; repeated V v = 3; }
message V { string s = 1; }
"#;
    let mapping = |codes: &str| {
        format!(
            r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = {{ ids = {{ imei = "i" }} }}
[platform.response]
code = {codes}
verdicts = {{ list = "v", strategy = "s" }}
"#
        )
    };
    let codes = concat!(
        r#"[{ field = "ok", bid = true, no_bid = false },"#,
        r#" { field = "c", bid = "y", no_bid = "n" }]"#
    );
    let platform = platform(proto, &mapping(codes));
    let (answer, _) = asked(&platform, b"\x0a\x01i", &[NO_BID, BID]);
    assert_eq!(answer.unwrap(), b"\x08\x01\x12\x01y\x1a\x03\x0a\x012"[..]);
    let (answer, _) = asked(&platform, b"\x0a\x01i", &[NO_BID, NO_BID]);
    assert_eq!(answer.unwrap(), b"\x08\x00\x12\x01n"[..]);
}

/// The signature of a gateway: the secret on both sides of all parameters, sorted.
#[test]
fn signature_covers_the_parameters_of_query_and_body() {
    let mapping = FORM.to_owned()
        + r#"
[platform.signature]
algorithm = "md5"
template = "{secret}{parameters}{secret}"
in = "query:sign"
timestamp = "body:t"
max_skew = "5m"
secrets = [{ value = "s" }]
"#;
    let (custom, headers) = (custom(&assembly("", &mapping)), HeaderMap::new());
    // md5 of "sappkid" + "r 1" + "imeixt100s": an empty parameter is not signed.
    let sign = const_hex::encode_upper(<md5::Md5 as md5::Digest>::digest(b"sappkidr 1imeixt100s"));
    let ask = |query: &str, body: &str| {
        let head = RequestHead {
            headers: &headers,
            query: Some(query),
        };
        let now = Duration::from_secs(100);
        asked_at(&custom, Admission::ByHeaders, head, body.as_bytes(), now).0
    };
    let query = format!("t=100&sign={sign}&app=k");
    assert!(ask(&query, "id=r+1&imei=x&empty=").is_ok());
    for (query, body) in [
        (query.clone(), "id=r+1&imei=y"),
        (query.clone(), "id=r+1&imei=x&more=1"),
        (format!("t=101&sign={sign}&app=k"), "id=r+1&imei=x"),
        ("t=100&app=k".to_owned(), "id=r+1&imei=x"),
    ] {
        assert_eq!(
            ask(&query, body),
            Err(Failure::BadSignature),
            "{query} {body}"
        );
    }

    let mistakes = refused("", &mapping.replace("query:sign", "body:device.sign"));
    assert!(
        mistakes[0].contains("has {parameters}, one of which contains it"),
        "{mistakes:?}"
    );
}

#[test]
fn answer_lists_the_ids_that_are_accepted() {
    let mapping = r#"
body = "form"
request = { strategies = "asked", ids = { imei_md5 = "device.imeis", oaid = "device.oaids" } }
response = { code = { field = "ok", bid = true, no_bid = false }, accepted_ids = "hits.ids" }
"#;
    let ask = |platform: &Platform, body: &[u8]| answered(platform, body, |id| id != b"b");
    let form = platform("", mapping);
    let body = br#"device={"oaids":[7,"d"],"imeis":["a","b","c"]}&asked=1"#;
    let (answer, decided) = ask(&form, body);
    assert_eq!(answer, r#"{"ok":true,"hits":{"ids":[7,"d","a","c"]}}"#);
    assert_eq!(decided, ["7 1", "d 1", "a 1", "b 1", "c 1"]);
    assert_eq!(
        ask(&form, br#"device={"imeis":["b"]}"#).0,
        r#"{"ok":false,"hits":{"ids":[]}}"#
    );

    let caids = platform("", &mapping.replace("oaid =", "caid ="));
    let versioned = "0c9e5e3d3e1b4a67b3a6c8b5d2f1e0a9_20230330";
    let body = format!(r#"device={{"oaids":["{versioned}"]}}&asked=1"#);
    assert_eq!(
        ask(&caids, body.as_bytes()).0,
        format!(r#"{{"ok":true,"hits":{{"ids":["{versioned}"]}}}}"#)
    );

    let proto = r#"
syntax = "proto2";
message Q { repeated string ids = 1; }
message R { optional int32 code = 1; repeated bytes ids = 2; optional string one = 3; repeated int32 n = 4; }
"#;
    let mapping = |field: &str| {
        format!(
            r#"
body = "protobuf"
proto = "p.proto"
request_message = "Q"
response_message = "R"
request = {{ ids = {{ oaid = "ids" }} }}
response = {{ code = {{ field = "code", bid = 1, no_bid = 0 }}, accepted_ids = "{field}" }}
"#
        )
    };
    let protobuf = platform(proto, &mapping("ids"));
    assert_eq!(
        ask(&protobuf, b"\x0a\x01a\x0a\x01b\x0a\x01c").0,
        "\x08\x01\x12\x01a\x12\x01c"
    );
    for field in ["one", "n"] {
        let found = refused(proto, &mapping(field));
        assert!(
            found.len() == 1 && found[0].contains("it is not a list of strings"),
            "{found:?}"
        );
    }
}

#[test]
fn accepted_ids_exclude_answers_about_one_device() {
    let mapping = r#"
body = "json"
[platform.request]
ids = { caid = "ids" }
[platform.response]
accepted_ids = "ids"
cache = "cache"
accepted = "strategies"
verdicts = { list = "verdicts", strategy = "strategy" }
"#;
    let found = refused("", mapping);
    for key in ["response.cache", "response.accepted", "response.verdicts"] {
        assert!(
            found
                .iter()
                .any(|mistake| mistake.contains(&format!("{key} is given with"))),
            "{key}: {found:#?}"
        );
    }
}
