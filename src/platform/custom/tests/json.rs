//! JSON bodies.

use super::*;

const JSON: &str = r#"
body = "json"
[platform.request]
request_id = "id"
strategies = "asked"
strategies_separator = ","
ping = "ping"
ids = { imei = "device.imei", caid = ["device.caids", "caid.value"] }
[platform.request.id_list]
list = "dids"
value = "did"
type = "type"
secure = "how.secure"
kinds = { "imei" = "imei", "imei/md5" = "imei_md5", "7" = "oaid" }
[platform.response]
request_id = "id"
code = { field = "head.code", bid = 0, no_bid = 1, error = 2 }
verdicts = { list = "results", strategy = "id", accepted = "ok" }
accepted = "hits"
cache = "head.cache"
"#;

fn read(body: &str) -> (String, Script) {
    let (answer, script) = asked(&platform("", JSON), body.as_bytes(), &[BID, NO_BID]);
    (String::from_utf8(answer.unwrap().to_vec()).unwrap(), script)
}

#[test]
fn answer_fields_follow_the_order_of_the_config() {
    let (answer, script) = read(
        r#"{"x": [{"id": 1}], "id": "r\"1", "asked": "1, 9,,", "device": {"imei": "i", "caids": ["c", null, "d"]},
            "caid": [{"value": "e"}, {}, {"value": "f"}], "dids": [
            {"did": "a", "type": "imei", "how": {"secure": "md5"}}, {"type": "imei", "did": "b", "how": null},
            {"did": "c"}, {"type": 7, "did": "d", "how": {"secure": ""}}, {"type": "imei", "how": {"secure": "sha1"}, "did": "x"}]}"#,
    );
    assert_eq!(
        answer,
        concat!(
            r#"{"id":"r\"1","head":{"code":0,"cache":3600},"#,
            r#""results":[{"id":"1","ok":true},{"id":"9","ok":false}],"hits":["1"]}"#
        )
    );
    assert_eq!(
        script.notes,
        ["request_id: r\"1", "strategy: 1", "strategy: 9"]
    );
    let skipped = [
        "dids.did: type \"\" is not in kinds",
        "dids.did: type \"imei\" with secure \"sha1\" is not in kinds",
    ];
    assert_eq!(script.skipped, skipped);
    let mut ids = script.ids;
    ids.sort();
    let expected = [
        "caid.value caid e",
        "caid.value caid f",
        "device.caids caid c",
        "device.caids caid d",
        "device.imei imei i",
        "dids.did imei b",
        "dids.did imei_md5 a",
        "dids.did oaid d",
    ];
    assert_eq!(ids, expected);
}

#[test]
fn objects_of_a_list_may_be_json_in_strings() {
    for body in [
        r#"{"dids": [{"did": "a", "type": "imei"}, "{\"did\": \"b\", \"type\": \"7\"}"]}"#,
        r#"{"dids": ["{\"type\": \"imei\", \"did\": \"a\"}", {"type": "7", "did": "b"}, null]}"#,
        r#"{"dids":["{\"did\": \"a\", \"type\": \"imei\"}", "", "{\"did\": \"b\", \"type\": 7}"]}"#,
    ] {
        assert_eq!(
            read(body).1.ids,
            ["dids.did imei a", "dids.did oaid b"],
            "{body}"
        );
    }
    let (answer, _) = asked(&platform("", JSON), br#"{"dids": ["{"]}"#, &[BID, BID]);
    assert_eq!(answer, Err(Failure::BadBody));
}

#[test]
fn single_value_comes_from_a_list_of_one_object() {
    let mapping = r#"
body = "json"
request = { request_id = "imp.id", ids = { imei = "imp.ids.imei" } }
response = { request_id = "id", accepted = "hits" }
"#;
    let asked = |body: &str| asked(&platform("", mapping), body.as_bytes(), &[NO_BID, NO_BID]);
    for (body, id) in [
        (
            r#"{"imp": [{"id": "r", "ids": [{"imei": "a"}, {"imei": "b"}]}]}"#,
            r#""id":"r","#,
        ),
        (r#"{"imp": {"ids": [{"imei": "a"}, {"imei": "b"}]}}"#, ""),
    ] {
        let (answer, script) = asked(body);
        assert_eq!(answer.unwrap(), format!(r#"{{{id}"hits":[]}}"#), "{body}");
        assert_eq!(script.ids, ["imp.ids.imei imei a", "imp.ids.imei imei b"]);
    }
    assert_eq!(
        asked(r#"{"imp": [{"id": "r"}, {}]}"#).0,
        Err(Failure::BadBody)
    );
}

#[test]
fn strategies_may_be_a_list_a_value_or_numbers() {
    for (asked, notes) in [
        (r#"["1", 2]"#, &["strategy: 1", "strategy: 2"][..]),
        (
            r#"["1,2", "3"]"#,
            &["strategy: 1", "strategy: 2", "strategy: 3"],
        ),
        ("2", &["strategy: 2"]),
        ("-2", &["strategy: -2"]),
        (r#""\u0031,2""#, &["strategy: 1", "strategy: 2"]),
        ("null", &[]),
        ("[]", &[]),
        (r#"" ""#, &[]),
    ] {
        assert_eq!(
            read(&format!(r#"{{"asked": {asked}}}"#)).1.notes,
            notes,
            "{asked}"
        );
    }
}

#[test]
fn last_value_wins_and_null_is_absent() {
    let (answer, script) = read(
        r#"{"id": "a", "id": 7, "device": {"imei": "x"}, "device": {"imei": "y", "imei": "z"},
            "asked": "2"}"#,
    );
    assert!(
        answer.starts_with(r#"{"id":7,"head":{"code":1,"cache":7200},"#),
        "{answer}"
    );
    assert_eq!(script.ids, ["device.imei imei z"]);
    let (answer, script) =
        read(r#"{"id": "a", "id": null, "device": {"imei": "x"}, "device": null, "dids": null}"#);
    assert!(answer.starts_with(r#"{"head":"#), "{answer}");
    assert!(script.ids.is_empty());
}

#[test]
fn ping_unavailable_and_refusal_have_their_codes() {
    assert_eq!(
        read(r#"{"ping": true, "id": "r"}"#).0,
        r#"{"id":"r","head":{"code":0},"results":[],"hits":[]}"#
    );
    let platform = platform("", JSON);
    assert_eq!(
        platform.adapter.refusal(),
        r#"{"head":{"code":2},"results":[],"hits":[]}"#
    );
    let answer = fallback(&*platform.adapter, &[BID_UNAVAILABLE, NO_BID_UNAVAILABLE]);
    assert_eq!(
        answer,
        r#"{"head":{"code":2},"results":[{"id":"1","ok":true},{"id":"2","ok":false}],"hits":["1"]}"#
    );
    assert_eq!(platform.content_type(), Some("application/json"));
}

#[test]
fn invalid_json_or_type_is_a_bad_body() {
    let platform = platform("", JSON);
    for bad in [
        "",
        "[]",
        "null",
        "{",
        "{}x",
        r#"{"id": ["a"]}"#,
        r#"{"id": {}}"#,
        r#"{"id": 1.5}"#,
        r#"{"id": 123456789012345678901234567890}"#,
        r#"{"device": "i"}"#,
        r#"{"device": [[{"imei": "i"}]]}"#,
        r#"{"device": {"caids": [["c"]]}}"#,
        r#"{"dids": [{"did": ["a"], "type": "imei"}]}"#,
        r#"{"id": "\ud800"}"#,
    ] {
        let (answer, script) = asked(&platform, bad.as_bytes(), &[BID, BID]);
        assert_eq!(answer, Err(Failure::BadBody), "{bad}");
        assert!(script.ids.is_empty() && script.asked.is_empty(), "{bad}");
    }
    assert_eq!(
        asked(&platform, b"{\"id\": \"\xff\"}", &[BID, BID]).0,
        Err(Failure::BadBody)
    );
}

#[test]
fn accepted_strategies_are_in_the_order_of_the_request() {
    let mapping = r#"
body = "json"
request = { ids = { imei = "imei" }, strategies = "s" }
response = { accepted = "hits", first_accepted = "first" }
"#;
    let of = |body: &str, decisions| {
        let (answer, _) = asked(&platform("", mapping), body.as_bytes(), decisions);
        String::from_utf8(answer.unwrap().to_vec()).unwrap()
    };

    let both = r#"{"s": [2, "x", 1, 2]}"#;
    assert_eq!(of(both, &[BID, BID]), r#"{"hits":["2","1"],"first":"2"}"#);
    assert_eq!(of(both, &[BID, NO_BID]), r#"{"hits":["1"],"first":"1"}"#);
    assert_eq!(of("{}", &[BID, BID]), r#"{"hits":["1","2"],"first":"1"}"#);
}

#[test]
fn id_list_without_list_reads_the_top_level() {
    let mapping = r#"
body = "json"
request = { id_list = { value = "did", type = "kind", kinds = { "2" = "oaid" } }, strategies = "s" }
response = { accepted = "hits", verdicts = { list = "all", strategy = "id", accepted = "ok" } }
"#;
    let (answer, script) = asked(
        &platform("", mapping),
        br#"{"did": "o", "kind": 2, "s": [2, "x", 1]}"#,
        &[BID, BID],
    );
    assert_eq!(
        answer.unwrap(),
        r#"{"all":[{"id":"2","ok":true},{"id":"x","ok":false},{"id":"1","ok":true}],"hits":["2","1"]}"#
    );
    assert_eq!(script.ids, ["did oaid o"]);
}

#[test]
fn entry_of_the_id_list_is_read_whole_before_its_type_counts() {
    let mapping = r#"
body = "json"
request = { id_list = { list = "dids", value = "id.did", type = "type", kinds = { "2" = "oaid" } } }
response = { accepted = "hits" }
"#;
    let ids = |entry: &str| {
        let body = format!(r#"{{"dids": [{{{entry}}}, {{"id": {{"did": "b"}}, "type": 2}}]}}"#);
        let (answer, script) = asked(&platform("", mapping), body.as_bytes(), &[NO_BID, NO_BID]);
        answer.map(|_| script.ids.join(", "))
    };
    let both = Ok("dids.id.did oaid a, dids.id.did oaid b".to_owned());
    assert_eq!(ids(r#""type": 2, "id": [{"did": "a"}]"#), both);
    assert_eq!(ids(r#""id": [{"did": "a"}], "type": 2"#), both);
    assert_eq!(
        ids(r#""id": [{"did": "a"}, {"did": "c"}], "type": 2"#),
        Err(Failure::BadBody)
    );
}

#[test]
fn skipped_values_may_be_nested_deeply() {
    let deep = format!(
        r#"{{"x": {}1{}, "device": {{"imei": "i"}}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    assert_eq!(read(&deep).1.ids, ["device.imei imei i"]);
    let deep = deep.replace("]", "");
    let (answer, _) = asked(&platform("", JSON), deep.as_bytes(), &[BID, BID]);
    assert_eq!(answer, Err(Failure::BadBody));
}

#[test]
fn recorded_skipped_ids_are_limited() {
    let body = format!(
        r#"{{"dids": [{}{{}}]}}"#,
        r#"{"did": "a", "type": "t"},"#.repeat(1000)
    );
    let script = read(&body).1;
    assert_eq!(script.skipped.len(), crate::platform::MAX_IDS);
    assert!(script.ids.is_empty());
}
