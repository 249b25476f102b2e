//! `POST /v1/check/{audience}`, as JSON and as binary keys.

use serde_json::{Value, json};

use crate::fixture::{FixtureServer, NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, key};
use testkit::store::hex;

const ROUTE: &str = "/v1/check/old_users";
const MD5_OF_NOTHING: &str = "d41d8cd98f00b204e9800998ecf8427e";

fn binary(keys: &[&str]) -> Vec<u8> {
    keys.iter()
        .flat_map(|md5| *key("md5", md5).as_bytes())
        .collect()
}

#[test]
fn members_are_in_request_order_with_null_for_unusable_ids() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let ids = [
        OLD_VIP,
        NON_MEMBER,
        "has space",
        "__OAID__",
        "",
        NEW_VIP,
        OLD_USERS[3].1,
    ];
    let answer = client.post(ROUTE, json!({ "ids": ids, "kind": "oaid" }).to_string());
    answer.ok();
    assert_eq!(
        answer.text(),
        r#"{"members":[true,false,null,null,null,false,true]}"#
    );
    for (kind, id) in OLD_USERS {
        let answer = client.post(ROUTE, json!({ "kind": kind, "ids": [id] }).to_string());
        assert_eq!(answer.text(), r#"{"members":[true]}"#, "{kind}");
        let md5 = hex(&key(kind, id));
        let both = json!({ "ids": [md5, md5.to_uppercase(), null] });
        assert_eq!(
            client.post(ROUTE, both.to_string()).ok(),
            json!({ "members": [true, true, null] })
        );
    }
}

#[test]
fn up_to_ten_thousand_ids_are_accepted() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    assert_eq!(
        client.post(ROUTE, r#"{"ids":[]}"#).text(),
        r#"{"members":[]}"#
    );
    // The longest ids: a batch may be larger than `server.max_body`.
    let long: Vec<String> = (1..=10_000).map(|index| format!("{index:0>128}")).collect();
    let members = client
        .post(ROUTE, json!({ "ids": long, "kind": "openid" }).to_string())
        .ok();
    assert_eq!(
        members["members"],
        Value::from(vec![Value::from(false); 10_000])
    );
    let mut md5s = vec![NON_MEMBER.replace('-', ""); 9_999];
    md5s.push(OLD_USERS[0].1.to_owned());
    let members = client.post(ROUTE, json!({ "ids": md5s }).to_string()).ok();
    assert_eq!(
        (&members["members"][9_998], &members["members"][9_999]),
        (&json!(false), &json!(true))
    );
    md5s.push(OLD_USERS[0].1.to_owned());
    let answer = client.post(ROUTE, json!({ "ids": md5s }).to_string());
    assert_eq!(
        answer.problem(413, "too_large"),
        "10001 ids; accepted: up to 10000"
    );
}

#[test]
fn json_variants_are_accepted() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let id = OLD_USERS[0].1;
    for body in [
        format!(" {{ \"ids\" : [ \"{id}\" ] }} \n"),
        format!(r#"{{"kind":null,"ids":["{id}"]}}"#),
        format!(
            r#"{{"\u006bind":"m\u00645","\u0069ds":["\u0035{}"]}}"#,
            &id[1..]
        ),
    ] {
        assert_eq!(
            client.post(ROUTE, &body).text(),
            r#"{"members":[true]}"#,
            "{body}"
        );
        // The content type is ignored unless it is binary.
        for headers in [
            "",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/x-www-form-urlencoded\r\n",
        ] {
            assert_eq!(
                client.request("POST", ROUTE, headers, &body).text(),
                r#"{"members":[true]}"#,
                "{headers}"
            );
        }
    }
}

#[test]
fn invalid_bodies_are_explained_without_quoting_ids() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let secret = "868049039501257";
    for (body, expected) in [
        ("", "expected an object with ids and kind"),
        ("[]", "expected an object with ids and kind"),
        (
            r#"[["868049039501257"],"imei"]"#,
            "expected an object with ids and kind",
        ),
        (r#"{"ids":["868049039501257""#, "EOF"),
        (r#"{"ids":"868049039501257"}"#, "expected a sequence"),
        (r#"{"ids":[868049039501257]}"#, "expected a string"),
        (r#"{"ids":[["868049039501257"]]}"#, "expected a string"),
        (r#"{"ids":[{"868049039501257":1}]}"#, "expected a string"),
        (r#"{"ids":[true]}"#, "expected a string"),
        (r#"{"ids":null}"#, "expected a sequence"),
        (r#"{"ids":[],"kind":868049039501257}"#, "expected a string"),
        (r#"{"kind":"md5"}"#, "missing field `ids`"),
        (
            r#"{"ids":[],"868049039501257":1}"#,
            "unknown field, expected `ids` or `kind`",
        ),
        (
            r#"{"ids":[],"invalid type: 868049039501257, expected x":1}"#,
            "unknown field, expected `ids` or `kind`",
        ),
        (
            r#"{"ids":["868049039501257"],"ids":[]}"#,
            "duplicate field `ids`",
        ),
        (
            r#"{"ids":[],"kind":"md5","kind":"md5"}"#,
            "duplicate field `kind`",
        ),
        (r#"{"ids":[]} 868049039501257"#, "trailing characters"),
        (
            r#"{"ids":["\ud800 868049039501257"]}"#,
            "surrogate|hex escape",
        ),
        (r#"{"ids":["868049039501257 \x"]}"#, "invalid escape"),
    ] {
        let detail = client.post(ROUTE, body).problem(400, "bad_body");
        assert!(
            expected
                .split('|')
                .any(|expected| detail.contains(expected)),
            "{body}: {detail}"
        );
        assert!(!detail.contains(secret), "{detail}");
    }
    let detail = client
        .post(ROUTE, b"{\"ids\":[\"\xff868049039501257\"]}")
        .problem(400, "bad_body");
    assert!(
        detail.contains("unicode") && !detail.contains(secret),
        "{detail}"
    );
    let detail = client
        .post(ROUTE, format!(r#"{{"ids":[],"kind":"{secret}"}}"#))
        .problem(404, "unknown_kind");
    assert_eq!(
        detail,
        "accepted: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid"
    );
}

#[test]
fn binary_answer_has_one_bit_per_key_lowest_first() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let (member, other) = (OLD_USERS[0].1, "00112233445566778899aabbccddeeff");
    for (keys, expected) in [
        (vec![], vec![]),
        (vec![member], vec![1]),
        (vec![other], vec![0]),
        (vec![other, member], vec![0b10]),
        (vec![MD5_OF_NOTHING, member, MD5_OF_NOTHING], vec![0b010]),
        (vec![member; 8], vec![0xff]),
        (vec![member; 9], vec![0xff, 1]),
        (
            [vec![other; 8], vec![member, other, member]].concat(),
            vec![0, 0b101],
        ),
    ] {
        let answer = client.post_binary(ROUTE, binary(&keys));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, expected.as_slice())
        );
        assert_eq!(
            answer.header("content-type"),
            Some("application/octet-stream")
        );
    }
}

#[test]
fn binary_body_must_be_whole_keys_up_to_ten_thousand() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let member = binary(&[OLD_USERS[0].1]);
    for length in [1, 15, 17, 160_001] {
        let detail = client
            .post_binary(ROUTE, vec![0; length])
            .problem(400, "bad_body");
        assert_eq!(
            detail,
            format!("{length} bytes are not a whole number of 16-byte keys")
        );
    }
    let answer = client.post_binary(ROUTE, member.repeat(10_000));
    assert_eq!((answer.status, answer.body), (200, vec![0xff; 1250]));
    let detail = client
        .post_binary(ROUTE, member.repeat(10_001))
        .problem(413, "too_large");
    assert_eq!(detail, "10001 ids; accepted: up to 10000");
}

#[test]
fn kind_in_the_query_and_text_in_place_of_keys_are_refused() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let detail = client.post(&format!("{ROUTE}?kind=idfa"), r#"{"ids":[]}"#);
    assert_eq!(
        detail.problem(400, "bad_body"),
        "query: kind: expected in a JSON body"
    );
    let detail = client
        .post_binary(ROUTE, OLD_USERS[0].1.repeat(4))
        .problem(400, "bad_body");
    assert!(detail.starts_with("the body is text"), "{detail}");
}

#[test]
fn binary_is_selected_by_content_type_only() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let member = binary(&[OLD_USERS[0].1]);
    for kind in [
        "APPLICATION/Octet-Stream",
        "application/octet-stream; v=1",
        " application/octet-stream ;x",
    ] {
        let answer = client.request("POST", ROUTE, &format!("Content-Type: {kind}\r\n"), &member);
        assert_eq!((answer.status, answer.body), (200, vec![1]), "{kind}");
    }
    for kind in [
        "application/octet-streams",
        "application/octet",
        "x; application/octet-stream",
    ] {
        client
            .request("POST", ROUTE, &format!("Content-Type: {kind}\r\n"), &member)
            .problem(400, "bad_body");
    }
}
