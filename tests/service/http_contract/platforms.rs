//! Platform routes: failures get a 200 in the platform's protocol and are counted by cause.

use prost::Message as _;
use rtad::platform::ocean::{self, Rsp};
use rtad::platform::tencent::{self, RtaRequest, RtaResponse};

use crate::fixture::{
    FixtureServer, NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, RULES, TestStore, key,
};
use testkit::client::{Answer, Client, metric};
use testkit::pages::platform_example;
use testkit::store::hex;
use testkit::wait_until;

/// `new` bids for new users. `bold` and `careful` depend on a missing audience: `bold` bids,
/// `careful` does not.
const PLATFORMS: &str = r#"
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { new = "new-users", vip = "vip-only" }
bid_cache = "1h"
no_bid_cache = "24h"
[[platform]]
kind = "tencent"
name = "bold"
path = "/rta/bold"
strategies = { new = "new-users", bold = "needs-missing", careful = "needs-fresh" }
[[platform]]
kind = "tencent"
name = "closed"
path = "/rta/closed"
strategies = { bold = "needs-missing" }
headers = [{ name = "X-Rta-Token", value = "old" }, { name = "x-rta-token", value = "new" }]
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = { 10003 = "new-users", 10004 = "vip-only" }
no_bid_cache = "1h"
"#;

fn rules() -> String {
    format!("{RULES}{PLATFORMS}")
}

/// A server with all audiences, strategies and platforms.
pub fn server(lines: &str) -> FixtureServer {
    FixtureServer::start(TestStore::with_everything(), lines, &rules())
}

/// A request for a device with this OAID.
fn tencent_request(oaid: &str) -> Vec<u8> {
    let device = tencent::Device {
        oaid_md5sum: Some(hex(&key("oaid", oaid)).into()),
        ..Default::default()
    };
    RtaRequest {
        id: Some("r1".into()),
        device: Some(device),
        ..Default::default()
    }
    .encode_to_vec()
}

fn post(client: &mut Client, path: &str, body: impl AsRef<[u8]>) -> Answer {
    client.request("POST", path, "", body)
}

/// The strategies of a Tencent answer. Asserts status 200 and that `code` is present.
fn accepted(answer: &Answer) -> Option<Vec<String>> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let response = RtaResponse::decode(&answer.body[..]).unwrap();
    let names = response
        .out_target_id
        .iter()
        .map(|id| String::from_utf8(id.to_vec()).unwrap())
        .collect();
    match response.code.expect("a code is always written") {
        0 => Some(names),
        _ => {
            assert_eq!(names, [""; 0]);
            None
        }
    }
}

fn failures(server: &FixtureServer, platform: &str) -> Vec<(String, f64)> {
    let prefix = format!(r#"rtad_platform_failures_total{{platform="{platform}",cause=""#);
    let metrics = server.metrics();
    let lines = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"} "));
    let counted = lines.map(|(cause, count)| (cause.to_owned(), count.parse().unwrap()));
    let mut counted: Vec<(String, f64)> = counted.filter(|(_, count)| *count > 0.0).collect();
    counted.sort_by(|a, b| a.0.cmp(&b.0));
    counted
}

fn counted(server: &FixtureServer, platform: &str, expected: &[(&str, f64)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(cause, count)| ((*cause).to_owned(), *count))
        .collect();
    assert_eq!(failures(server, platform), expected, "{platform}");
}

#[test]
fn members_are_rejected_and_non_members_accepted() {
    let server = server("");
    let mut client = server.connect();
    for (oaid, expected) in [
        (OLD_USERS[3].1, None),
        (OLD_VIP, Some(&["vip"][..])),
        (NEW_VIP, Some(&["new", "vip"])),
        (NON_MEMBER, Some(&["new"])),
    ] {
        let answer = post(&mut client, "/rta/tencent", tencent_request(oaid));
        let expected: Option<Vec<_>> =
            expected.map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(accepted(&answer), expected, "{oaid}");
        let response = RtaResponse::decode(&answer.body[..]).unwrap();
        assert_eq!(response.request_id.as_deref(), Some(&b"r1"[..]));
        assert_eq!(
            response.response_cache_time,
            Some(if expected.is_some() { 3600 } else { 86_400 })
        );

        let device = ocean::Device {
            oaid: oaid.to_owned().into(),
            ..Default::default()
        };
        let request = ocean::Req {
            rta_ids: vec![10003, 10004, 10005],
            req_id: "r1".into(),
            device: Some(device),
            ..Default::default()
        };
        let answer = post(&mut client, "/rta/ocean?x=y", request.encode_to_vec());
        assert_eq!(
            answer.header("content-type"),
            Some("application/x-protobuf")
        );
        let response = Rsp::decode(&answer.body[..]).unwrap();
        let bids = |name: &str| {
            expected
                .as_ref()
                .is_some_and(|names| names.iter().any(|one| one == name))
        };
        let verdicts: Vec<_> = response
            .user_infos
            .iter()
            .map(|info| (info.rta_id, info.is_interested))
            .collect();
        assert_eq!(
            verdicts,
            [(10003, bids("new")), (10004, bids("vip")), (10005, false)]
        );
        assert_eq!(response.bid_type, Some(i32::from(expected.is_none())));
    }
    let metrics = server.metrics();
    let member = r#"member",condition="old_users"#;
    let not_vip = r#"rule",condition="vip"#;
    for (platform, strategy, decision, reason, expected) in [
        ("tencent", "new-users", "bid", "not_member", 2.0),
        ("tencent", "new-users", "no_bid", member, 2.0),
        ("ocean", "vip-only", "bid", "rule", 2.0),
        ("ocean", "vip-only", "no_bid", not_vip, 2.0),
        ("api", "new-users", "bid", "not_member", 0.0),
    ] {
        let labels = format!(
            r#"platform="{platform}",strategy="{strategy}",decision="{decision}",reason="{reason}""#
        );
        assert_eq!(
            metric(&metrics, &format!("rtad_decisions_total{{{labels}}}")),
            expected,
            "{labels}"
        );
    }
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_requests_total{route="tencent",code="200"}"#
        ),
        4.0
    );
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_request_duration_seconds_count{route="ocean"}"#
        ),
        4.0
    );
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_ids_total{platform="tencent",kind="oaid_md5",result="usable"}"#
        ),
        4.0
    );
    counted(&server, "tencent", &[]);
}

#[test]
fn any_method_and_content_type_is_answered() {
    let server = server("");
    let mut client = server.connect();
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "POST"] {
        let test_call = "\x18\x01";
        let answer = client.request(method, "/rta/tencent", "", test_call);
        assert_eq!(
            accepted(&answer),
            Some(vec!["vip".to_owned()]),
            "{method}: no device is a bid for vip-only"
        );
    }
    for kind in ["application/json", "text/plain; charset=x", "\u{1}"] {
        let headers = format!("Content-Type: {kind}\r\n");
        let answer = client.request(
            "POST",
            "/rta/tencent",
            &headers,
            tencent_request(NON_MEMBER),
        );
        if kind != "\u{1}" {
            assert_eq!(accepted(&answer), Some(vec!["new".to_owned()]), "{kind}");
        }
    }
    server
        .connect()
        .request("POST", "/rta/tencent/", "", "")
        .problem(404, "not_found");
    server
        .connect()
        .request("POST", "/rta", "", "")
        .problem(404, "not_found");
}

#[test]
fn unreadable_bodies_get_each_strategys_unavailable_answer() {
    let server = server("max_body = \"2KiB\"");
    let bold = Some(vec!["bold".to_owned()]);
    let truncated = &tencent_request(NON_MEMBER)[..20];
    for garbage in [&b""[..], b"\xff", b"{\"id\":1}", &[0x0a; 100], truncated] {
        assert_eq!(
            accepted(&post(&mut server.connect(), "/rta/tencent", garbage)),
            None
        );
        assert_eq!(
            accepted(&post(&mut server.connect(), "/rta/bold", garbage)),
            bold
        );
    }
    counted(&server, "tencent", &[("bad_body", 5.0)]);
    // Too large by Content-Length, and too large while reading.
    assert_eq!(
        accepted(&post(&mut server.connect(), "/rta/bold", vec![0; 2049])),
        bold
    );
    let mut chunked = server.connect();
    chunked.send("POST /rta/tencent HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.send(format!("1000\r\n{}\r\n0\r\n\r\n", "\0".repeat(4096)));
    assert_eq!(accepted(&chunked.next().unwrap()), None);
    let mut good = server.connect();
    let body = tencent_request(NON_MEMBER);
    good.send("POST /rta/tencent HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    good.send(
        [
            format!("{:x}\r\n", body.len()).as_bytes(),
            &body,
            b"\r\n0\r\n\r\n",
        ]
        .concat(),
    );
    assert_eq!(
        accepted(&good.next().unwrap()),
        Some(vec!["new".to_owned()])
    );
    counted(&server, "tencent", &[("bad_body", 5.0), ("too_large", 1.0)]);
    counted(&server, "bold", &[("bad_body", 5.0), ("too_large", 1.0)]);
    // Ocean Engine: an error status, with every strategy's verdict.
    let answer = post(&mut server.connect(), "/rta/ocean", "\u{7f}");
    assert_eq!(answer.status, 200);
    let response = Rsp::decode(&answer.body[..]).unwrap();
    assert_eq!(
        (
            response.status_code,
            response.bid_type,
            response.user_infos.len()
        ),
        (1, Some(1), 2)
    );
}

#[test]
fn body_that_never_completes_gets_each_strategys_unavailable_answer() {
    let server = server("idle_timeout = \"1s\"");
    let mut slow = server.connect();
    slow.send("POST /rta/bold HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx");
    assert_eq!(
        accepted(&slow.next().unwrap()),
        Some(vec!["bold".to_owned()])
    );
    counted(&server, "bold", &[("body_lost", 1.0)]);
}

#[test]
fn compressed_bodies_get_a_cause_of_their_own() {
    let server = server("");
    let bold = Some(vec!["bold".to_owned()]);
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";
    // A body of another encoding has no known beginning.
    for (headers, body) in [
        ("Content-Encoding: gzip\r\n", &gzip[..]),
        ("", gzip),
        ("", b"\x28\xb5\x2f\xfd\x04\0\x01\0\0\xff"),
        ("Content-Encoding: identity, br\r\n", b"\x0b\x02\x80{}\x03"),
    ] {
        let answer = server.connect().request("POST", "/rta/bold", headers, body);
        assert_eq!(accepted(&answer), bold);
        let explained = server
            .connect_admin()
            .request("POST", "/v1/explain/bold", headers, body)
            .json();
        assert_eq!(explained["failure"]["cause"], "bad_encoding", "{explained}");
    }
    // Some proxies keep the header of a body that they have decoded.
    let (headers, body) = ("Content-Encoding: gzip\r\n", tencent_request(NON_MEMBER));
    let answer = server
        .connect()
        .request("POST", "/rta/tencent", headers, body);
    assert_eq!(accepted(&answer), Some(vec!["new".to_owned()]));
    counted(&server, "bold", &[("bad_encoding", 4.0)]);
    counted(&server, "tencent", &[]);
}

#[test]
fn client_still_sending_receives_the_answer_to_an_oversized_body() {
    let server = server("max_body = \"2KiB\"\napi = { public = true }");
    for (head, chunked) in [
        ("Content-Length: 900000", false),
        ("Transfer-Encoding: chunked", true),
    ] {
        for (path, status) in [("/rta/bold", 200), ("/v1/decide", 413)] {
            let mut client = server.connect();
            client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n"));
            for _ in 0..9 {
                let part = "\0".repeat(100_000);
                client.send(if chunked {
                    format!("{:x}\r\n{part}\r\n", part.len())
                } else {
                    part
                });
                // Slow sender: without reading on, the server's close would reset the connection.
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            if chunked {
                client.send("0\r\n\r\n");
            }
            let answer = client.next().expect("the answer is not lost to a reset");
            assert_eq!(answer.status, status, "{path} {head}");
            client.closes();
        }
    }
}

#[test]
fn overload_sheds_only_requests_with_incomplete_bodies() {
    let server = server("max_body = \"1KiB\"\nmax_buffered = \"1KiB\"");
    let mut held = server.connect();
    held.send("POST /rta/bold HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    wait_until("rtad_in_flight is 1", || {
        metric(&server.metrics(), "rtad_in_flight") == 1.0
    });
    let mut client = server.connect();
    let answer = post(&mut client, "/rta/tencent", tencent_request(NEW_VIP));
    assert_eq!(
        accepted(&answer).unwrap().len(),
        2,
        "complete requests are decided as ever"
    );
    // A body that comes within 100 ms leaves the connection open. A busy machine may send it later,
    // or read it with its head: then the request is complete.
    let shed = || metric(&server.metrics(), "rtad_shed_total");
    wait_until("a request is shed and its connection stays open", || {
        let before = shed();
        let mut late = server.connect();
        late.send("POST /rta/bold HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n");
        std::thread::sleep(std::time::Duration::from_millis(20));
        late.send([0x0a; 100]);
        assert_eq!(
            accepted(&late.next().unwrap()),
            Some(vec!["bold".to_owned()])
        );
        late.send("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
        late.next().is_some_and(|answer| answer.status == 404) && shed() > before
    });
    counted(&server, "tencent", &[]);
    let mut failures = failures(&server, "bold");
    failures.retain(|(cause, _)| cause != "bad_body");
    assert_eq!(failures, [("overload".to_owned(), shed())]);
    held.send([0; 9]);
    assert_eq!(held.next().unwrap().status, 200);
}

/// An unauthorized caller with an unfinished body is refused at once: it takes no permit.
#[test]
fn callers_without_credentials_cannot_hold_permits() {
    let server = server("max_body = \"1KiB\"\nmax_buffered = \"1KiB\"");
    let body = tencent_request(NON_MEMBER);
    let head = |headers: &str| {
        let length = body.len();
        format!("POST /rta/closed HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n")
    };
    for _ in 0..4 {
        let mut caller = server.connect();
        caller.send(head(""));
        // There is room for one body: that caller would have it.
        let mut known = server.connect();
        known.send(head("X-Rta-Token: new\r\n"));
        let answer = caller
            .next()
            .expect("an answer before the body is complete");
        assert_eq!(accepted(&answer), None);
        known.send(&body);
        assert_eq!(
            accepted(&known.next().unwrap()),
            Some(vec!["bold".to_owned()])
        );
    }
    counted(&server, "closed", &[("unauthorized", 4.0)]);
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), 0.0);
}

#[test]
fn reload_adds_and_removes_platforms() {
    let server = server("");
    let mut client = server.connect();
    let body = tencent_request(NON_MEMBER);
    let other = PLATFORMS
        .replace("/rta/tencent", "/rta/gdt")
        .replace("new = \"new-users\"", "fresh = \"new-users\"");
    server.write_config("", &format!("{RULES}{other}"));
    assert_eq!(
        server.connect_admin().post("/v1/reload", "").ok()["reloaded"],
        true
    );
    assert_eq!(
        accepted(&post(&mut client, "/rta/gdt", &body)),
        Some(vec!["fresh".to_owned()])
    );
    let status = server.connect_admin().get("/v1/status").ok();
    let first = serde_json::json!({ "name": "tencent", "kind": "tencent", "path": "/rta/gdt" });
    assert_eq!(status["platforms"][0], first);
    server
        .connect()
        .request("POST", "/rta/tencent", "", &body)
        .problem(404, "not_found");
    server.write_config(
        "",
        &format!("{RULES}{}", PLATFORMS.replace("new-users", "no-such")),
    );
    let detail = server
        .connect_admin()
        .post("/v1/reload", "")
        .problem(422, "bad_config");
    assert!(
        detail.contains("[[platform]] \"tencent\": strategies.new is \"no-such\""),
        "{detail}"
    );
    assert_eq!(
        accepted(&post(&mut client, "/rta/gdt", &body)),
        Some(vec!["fresh".to_owned()]),
        "the old platforms stay"
    );
}

#[test]
fn signed_platform_requires_its_signature() {
    use prost::encoding::{bytes, int64, string};
    let examples = ["kuaishou", "alibaba"].map(platform_example).concat();
    let examples = format!("{RULES}{examples}");
    let server = FixtureServer::start(TestStore::with_everything(), "", &examples);
    let mut client = server.connect();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    let request = |milliseconds: u128, secret: &str| {
        let sign = hex(&key("openid", &format!("r1{milliseconds}{secret}")));
        let (mut device, mut body) = (Vec::new(), Vec::new());
        string::encode(3, &NON_MEMBER.to_owned(), &mut device);
        string::encode(1, &"r1".to_owned(), &mut body);
        int64::encode(3, &i64::try_from(milliseconds).unwrap(), &mut body);
        string::encode(4, &sign, &mut body);
        bytes::encode(5, &device, &mut body);
        string::encode(6, &"1001".to_owned(), &mut body);
        body
    };
    let bid = b"\x08\x00\x12\x08\x0a\x041001\x10\x01";
    assert_eq!(
        post(&mut client, "/rta/kuaishou", request(now, "replace-me")).body,
        bid
    );
    let forged = request(now, "guessed");
    assert_eq!(
        post(&mut client, "/rta/kuaishou", &forged).body,
        b"\x08\x01"
    );
    let old = request(now - 3_600_000, "replace-me");
    assert_eq!(post(&mut client, "/rta/kuaishou", &old).body, b"\x08\x01");
    counted(
        &server,
        "kuaishou",
        &[("bad_signature", 1.0), ("bad_timestamp", 1.0)],
    );
    // A captured request is always too old: that is reported, and the rest is explained.
    let explained = server
        .connect_admin()
        .post("/v1/explain/kuaishou", &old)
        .ok();
    let text = explained.to_string();
    assert!(
        text.contains("bad_timestamp") && text.contains(&const_hex::encode(bid)),
        "{text}"
    );
    // A forged one is rejected there too.
    let explained = server
        .connect_admin()
        .post("/v1/explain/kuaishou", &forged)
        .ok();
    assert_eq!(explained["failure"]["cause"], "bad_signature");
    assert_eq!(explained["answer"]["hex"], "0801");
    counted(
        &server,
        "kuaishou",
        &[("bad_signature", 1.0), ("bad_timestamp", 1.0)],
    );
}
