//! `GET /v1/check/{audience}/{id}`.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::fixture::{FixtureServer, NON_MEMBER, OLD_USERS, key};
use testkit::store::hex;

const MEMBER: &str = r#"{"member":true}"#;
const STRANGE: &str = r#"{"member":false}"#;

fn encoded(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string()
}

#[test]
fn every_kind_matches_raw_and_hashed_in_either_case() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for (kind, id) in OLD_USERS {
        let raw = client.get(&format!("/v1/check/old_users/{}?kind={kind}", encoded(id)));
        raw.ok();
        assert_eq!(raw.text(), MEMBER, "{kind}");
        let md5 = hex(&key(kind, id));
        for md5 in [md5.to_uppercase(), md5] {
            assert_eq!(
                client.get(&format!("/v1/check/old_users/{md5}")).text(),
                MEMBER,
                "{kind}"
            );
            assert_eq!(
                client
                    .get(&format!("/v1/check/old_users/{md5}?kind=md5"))
                    .text(),
                MEMBER,
                "{kind}"
            );
            assert_eq!(
                client.get(&format!("/v1/check/vip/{md5}")).text(),
                STRANGE,
                "{kind}"
            );
        }
    }
}

#[test]
fn path_and_query_may_be_percent_encoded() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for target in [
        "/v1/check/old_users/3C:5A:B4:01:e2:f3?kind=mac",
        "/v1/check/old_users/3C%3A5A%3ab4%3A01%3Ae2%3Af3?kind=mac"
            .replace("b4", "B4")
            .as_str(),
        "/v1/check/old%5Fusers/%33C:5A:B4:01:e2:f3?kind=mac",
        "/v1/check/old_users/%203C:5A:B4:01:e2:f3%20?kind=mac",
        "/v1/check/old_users/8a3b5c7d9e0f1122?kind=android%5Fid",
        "/v1/check/old_users/8a3b5c7d9e0f1122?%6Bind=android_id",
    ] {
        assert_eq!(client.get(target).text(), MEMBER, "{target}");
    }
    // `+` is no space: that is an encoding of forms.
    client
        .get("/v1/check/old_users/+3C:5A:B4:01:e2:f3?kind=mac")
        .problem(400, "bad_id");
}

#[test]
fn unknown_query_parameters_are_ignored_and_last_kind_wins() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let imei = OLD_USERS[2].1;
    for query in [
        "kind=imei",
        "a=b&kind=imei&c",
        "kind=mac&kind=imei",
        "&&kind=imei&",
        "kinds=mac&kind=imei",
    ] {
        assert_eq!(
            client
                .get(&format!("/v1/check/old_users/{imei}?{query}"))
                .text(),
            MEMBER,
            "{query}"
        );
    }
    for query in ["", "kinds=imei", "Kind=imei"] {
        client
            .get(&format!("/v1/check/old_users/{imei}?{query}"))
            .problem(400, "bad_id");
    }
}

#[test]
fn head_equals_get_without_body() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let target = format!("/v1/check/old_users/{}", OLD_USERS[0].1);
    let head = client.request("HEAD", &target, "", "");
    let get = client.get(&target);
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, get.header("content-length"))
    );
    assert_eq!(head.header("content-type"), get.header("content-type"));
    assert_eq!(
        client
            .request("HEAD", "/v1/check/old_users/x", "", "")
            .status,
        400
    );
    assert_eq!(
        client.get(&target).text(),
        MEMBER,
        "the connection is still in step"
    );
}

#[test]
fn unusable_ids_are_classified_and_not_quoted() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    for (id, kind, expected) in [
        (
            "5f93f983524def3dca464469d2cf9f3",
            "md5",
            "kind md5 accepts 32 hex digits",
        ),
        (
            "5f93f983524def3dca464469d2cf9f3g",
            "md5",
            "kind md5 accepts 32 hex digits",
        ),
        (
            "0x93f983524def3dca464469d2cf9f3e",
            "md5",
            "kind md5 accepts 32 hex digits",
        ),
        ("%FF%FE", "md5", "kind md5 accepts 32 hex digits"),
        (
            "1E2DFA89496A47FD9941DF1FC4E6484A",
            "idfa",
            "kind idfa accepts a UUID with dashes",
        ),
        ("86804903", "imei", "kind imei accepts 14 to 17 hex digits"),
        (
            "has%20space",
            "oaid",
            "kind oaid accepts up to 64 letters, digits, - and _, but not 40 or 56, which are digests",
        ),
        (
            "%E4%B8%AD",
            "openid",
            "kind openid accepts up to 128 letters, digits and -_.@+/, but no fractions or signed exponents",
        ),
        (
            "d41d8cd98f00b204e9800998ecf8427e",
            "md5",
            "this md5 stands for \"no id\"",
        ),
        (
            "00000000-0000-0000-0000-000000000000",
            "idfa",
            "this idfa stands for \"no id\"",
        ),
        ("02:00:00:00:00:00", "mac", "this mac stands for \"no id\""),
        ("__OAID__", "oaid", "this oaid stands for \"no id\""),
        ("null", "imei", "this imei stands for \"no id\""),
    ] {
        let answer = client.get(&format!("/v1/check/old_users/{id}?kind={kind}"));
        assert_eq!(answer.problem(400, "bad_id"), expected);
        assert!(
            id == "null" || !answer.text().contains(id),
            "{}",
            answer.text()
        );
    }
    let long = "x".repeat(129);
    client
        .get(&format!("/v1/check/old_users/{long}?kind=openid"))
        .problem(400, "bad_id");
    assert_eq!(
        client
            .get(&format!("/v1/check/old_users/{NON_MEMBER}?kind=oaid"))
            .text(),
        STRANGE
    );
}
