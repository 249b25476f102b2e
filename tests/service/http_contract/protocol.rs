//! HTTP/1.1 on a raw socket: pipelining, malformed requests and Expect.

use crate::fixture::{FixtureServer, NON_MEMBER, OLD_USERS};
use testkit::client::Client;

fn check(id: &str) -> String {
    format!("GET /v1/check/old_users/{id}?kind=oaid HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn is_member(client: &mut Client) -> bool {
    client.next().unwrap().ok()["member"].as_bool().unwrap()
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let old = check(OLD_USERS[3].1);
    let new = check(NON_MEMBER);
    let body = r#"{"request_id":"in the middle","strategies":["new-users"]}"#;
    let decide = format!(
        "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let unknown = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n";
    client.send([old.as_str(), &new, &decide, unknown, &old, &old].concat());
    assert!(is_member(&mut client));
    assert!(!is_member(&mut client));
    assert_eq!(client.next().unwrap().ok()["request_id"], "in the middle");
    client.next().unwrap().problem(404, "not_found");
    assert!(is_member(&mut client) && is_member(&mut client));
}

#[test]
fn malformed_http_gets_400_and_close() {
    let server = FixtureServer::with_everything("");
    for garbage in [
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03 a TLS hello\r\n\r\n",
        "GET\r\n\r\n",
        "GET /v1/decide HTTP/9.9\r\n\r\n",
        "GET /v1/decide HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
        "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    ] {
        let mut client = server.connect();
        client.send(garbage);
        assert_eq!(
            client.next().map(|answer| answer.status),
            Some(400),
            "{garbage:?}"
        );
        client.closes();
    }
    let mut client = server.connect();
    client.send(
        "POST /v1/decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n",
    );
    client.next().unwrap().problem(400, "bad_body");
    client.closes();
    let mut client = server.connect();
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(128 << 10)
    ));
    assert_eq!(client.next().unwrap().status, 431);
}

#[test]
fn expect_continue_is_answered() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    client.send(
        "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.next().unwrap().status, 100);
    client.send("{}");
    client.next().unwrap().ok();
    // A request that is rejected gets no 100.
    client.send(
        "POST /v1/check/none HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: \
            100-continue\r\n\r\n",
    );
    client.next().unwrap().problem(404, "unknown_audience");
}
