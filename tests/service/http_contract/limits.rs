//! Limits: timeouts, connections, and requests in flight.

use crate::fixture::{FixtureServer, OLD_USERS};
use testkit::client::{Client, metric};
use testkit::wait_until;

const HELD_HEAD: &str = "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";

fn target() -> String {
    format!("/v1/check/old_users/{}", OLD_USERS[0].1)
}

#[test]
fn slow_connections_are_closed() {
    let server = FixtureServer::with_everything("idle_timeout = \"1s\"");
    let mut idle = server.connect();
    idle.get(&target()).ok();
    let mut idle_admin = server.connect_admin();
    idle_admin.get("/livez");
    let mute = server.connect();
    let mut half_a_head = server.connect();
    half_a_head.send("GET /v1/check/old_users/5f93f983 HTTP/1.1\r\nHost: ");
    let mut half_a_body = server.connect();
    half_a_body.send(HELD_HEAD);
    half_a_body.send("{");
    let answer = half_a_body.next().unwrap();
    assert_eq!(
        answer.problem(408, "timeout"),
        "the body did not arrive within 5 s, or server.idle_timeout if that is less"
    );
    half_a_body.closes();
    for dawdler in [idle, idle_admin, mute, half_a_head] {
        dawdler.closes();
    }
    wait_until("rtad_connections is 0", || metric(&server.metrics(), "rtad_connections") == 0.0);
}

#[test]
fn connection_over_the_limit_is_rejected() {
    let server = FixtureServer::with_everything("max_connections = 2");
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.get(&target()).ok();
    }
    let mut rejected = server.connect();
    // The server may close before it reads the request; the kernel may then drop the answer.
    if let Some(answer) = rejected.next() {
        assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
        rejected.closes();
    }
    let [mut first, second] = clients;
    first.get(&target()).ok();
    let metrics = server.metrics();
    assert_eq!(metric(&metrics, "rtad_shed_total"), 1.0);
    assert_eq!(metric(&metrics, "rtad_connections"), 2.0);
    drop(second);
    wait_until("rtad_connections is 1", || metric(&server.metrics(), "rtad_connections") == 1.0);
    server.connect().get(&target()).ok();
    first.get(&target()).ok();
}

/// A request in flight, without its body.
fn hold(server: &FixtureServer) -> Client {
    let mut held = server.connect();
    held.send(HELD_HEAD);
    wait_until("rtad_in_flight is 1", || metric(&server.metrics(), "rtad_in_flight") == 1.0);
    held
}

#[test]
fn request_over_the_limit_is_shed_with_the_unavailable_answer() {
    let server = FixtureServer::with_everything("max_in_flight = 1");
    let mut held = hold(&server);
    let mut client = server.connect();
    client.get(&target()).problem(503, "overloaded");
    client.post("/v1/check/old_users", r#"{"ids":[]}"#).problem(503, "overloaded");
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), 2.0);
    let body = format!(r#"{{"request_id":"r1","device":{{"md5":"{}"}}}}"#, OLD_USERS[0].1);
    let answer = client.post("/v1/decide", &body).ok();
    assert_eq!(answer["request_id"], "r1");
    let decisions = answer["decisions"].as_array().unwrap();
    let bids: Vec<_> =
        decisions.iter().map(|decision| decision["bid"].as_bool().unwrap()).collect();
    assert_eq!(bids, [false, false, false, true, false], "each strategy's own answer");
    assert!(decisions.iter().all(|decision| decision["reason"] == "unavailable"), "{decisions:?}");
    // Errors stay errors, and incomplete bodies are not awaited.
    client.post("/v1/decide", "[]").problem(400, "bad_body");
    client.post("/v1/decide", r#"{"strategies":["x"]}"#).problem(404, "unknown_strategy");
    let mut late = server.connect();
    late.send(HELD_HEAD);
    late.next().unwrap().problem(503, "overloaded");
    let metrics = server.metrics();
    assert_eq!(metric(&metrics, "rtad_shed_total"), 6.0);
    let shed = concat!(
        r#"rtad_decisions_total{platform="api",strategy="new-users","#,
        r#"decision="no_bid",reason="unavailable"}"#
    );
    assert_eq!(metric(&metrics, shed), 1.0);

    held.send("{}");
    let answer = held.next().unwrap().ok();
    assert_eq!(
        answer["decisions"][0]["reason"], "no_device",
        "the one in flight is answered as ever"
    );
    client.get(&target()).ok();
    let metrics = server.metrics();
    assert_eq!(
        (metric(&metrics, "rtad_shed_total"), metric(&metrics, "rtad_in_flight")),
        (6.0, 0.0)
    );
}

#[test]
fn delayed_batches_are_shed_and_platform_requests_are_not() {
    let server = FixtureServer::with_everything("max_wait = \"1ms\"");
    let ids =
        [OLD_USERS[0].1, "0123456789abcdef0123456789abcdee"].map(|id| format!("{id:?}")).join(",");
    let body = format!(r#"{{"ids":[{ids},{}]}}"#, vec!["\"x\""; 1500].join(","));
    let request = format!(
        "POST /v1/check/old_users HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    let mut one = server.connect();
    // More requests than one worker can answer in a millisecond.
    clients.iter_mut().for_each(|client| client.send(&request));
    one.get(&target()).ok();
    let (mut answered, mut shed) = (0, 0);
    for client in &mut clients {
        let answer = client.next().unwrap();
        if answer.status == 200 {
            let members = answer.ok()["members"].clone();
            assert_eq!(
                (&members[0], &members[1], &members[2]),
                (&true.into(), &false.into(), &().into())
            );
            answered += 1;
        } else {
            answer.problem(503, "overloaded");
            shed += 1;
        }
    }
    assert!(answered > 0 && shed > 0, "{answered} answered, {shed} shed");
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), f64::from(shed));
    // The connection stays open, and a single batch is answered.
    wait_until("a lone batch is answered", || {
        clients[63].send(&request);
        clients[63].next().unwrap().status == 200
    });
}

#[test]
fn disconnect_releases_the_request_permit() {
    let server = FixtureServer::with_everything("max_in_flight = 1");
    drop(hold(&server));
    wait_until("rtad_in_flight is 0", || metric(&server.metrics(), "rtad_in_flight") == 0.0);
    server.connect().get(&target()).ok();
}
