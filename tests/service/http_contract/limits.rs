//! Limits: timeouts, connections, and requests in flight.

use std::time::Duration;

use crate::fixture::{FixtureServer, OLD_USERS};
use testkit::client::{Client, metric};
use testkit::wait_until;

const HELD_HEAD: &str = "POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
/// Room for one incomplete body: each takes at least 1 KiB.
const ROOM_FOR_ONE: &str = "max_body = \"1KiB\"\nmax_buffered = \"1KiB\"";

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
        "the body did not arrive within 1s"
    );
    half_a_body.closes();
    for dawdler in [idle, idle_admin, mute, half_a_head] {
        dawdler.closes();
    }
    wait_until("rtad_connections is 0", || {
        metric(&server.metrics(), "rtad_connections") == 0.0
    });
}

/// Kubernetes restarts a pod whose probes fail for a minute.
#[test]
fn idle_connections_fail_no_second_probe() {
    let server = FixtureServer::with_everything("idle_timeout = \"1h\"");
    let holding = |number| {
        let mut client = server.connect_admin();
        match number % 3 {
            0 => client.send("GET /livez HTTP/1.1\r\nHost: x\r\n"),
            1 => assert_eq!(client.get("/livez").text(), "ok\n"),
            _ => {}
        }
        client
    };
    let held: Vec<_> = (0..256).map(holding).collect();
    let probe = || {
        let mut client = server.connect_admin();
        client.send("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
        client.next().map(|answer| answer.status)
    };
    assert_ne!(probe(), Some(200), "the port is full");
    wait_until("a probe is answered", || probe() == Some(200));
    drop(held);
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
        assert_eq!(
            (answer.status, answer.header("connection")),
            (503, Some("close"))
        );
        rejected.closes();
    }
    let [mut first, second] = clients;
    first.get(&target()).ok();
    let metrics = server.metrics();
    assert_eq!(metric(&metrics, "rtad_shed_total"), 1.0);
    assert_eq!(metric(&metrics, "rtad_connections"), 2.0);
    drop(second);
    wait_until("rtad_connections is 1", || {
        metric(&server.metrics(), "rtad_connections") == 1.0
    });
    server.connect().get(&target()).ok();
    first.get(&target()).ok();
}

/// A request in flight, without its body.
fn hold(server: &FixtureServer) -> Client {
    let mut held = server.connect();
    held.send(HELD_HEAD);
    wait_until("rtad_in_flight is 1", || {
        metric(&server.metrics(), "rtad_in_flight") == 1.0
    });
    held
}

#[test]
fn incomplete_requests_over_the_limit_are_shed_and_complete_ones_answered() {
    let server = FixtureServer::with_everything(ROOM_FOR_ONE);
    let mut held = hold(&server);
    let mut client = server.connect();
    client.get(&target()).ok();
    client.post("/v1/check/old_users", r#"{"ids":[]}"#).ok();
    let body = format!(r#"{{"device":{{"md5":"{}"}}}}"#, OLD_USERS[0].1);
    let decisions = client.post("/v1/decide", &body).ok();
    assert_eq!(decisions["decisions"][0]["reason"], "member");
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), 0.0);
    let mut late = server.connect();
    late.send(HELD_HEAD);
    late.next().unwrap().problem(503, "overloaded");
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), 1.0);

    held.send("{}");
    let answer = held.next().unwrap().ok();
    assert_eq!(answer["decisions"][0]["reason"], "no_device");
    let metrics = server.metrics();
    assert_eq!(
        (
            metric(&metrics, "rtad_shed_total"),
            metric(&metrics, "rtad_in_flight")
        ),
        (1.0, 0.0)
    );
}

fn buffered(server: &FixtureServer) -> f64 {
    metric(&server.metrics(), "rtad_buffered_bytes")
}

/// Incomplete bodies of all connections share `max_buffered`, and batches have half of it.
#[test]
fn incomplete_bodies_are_bounded_for_all_connections_together() {
    let server = FixtureServer::with_everything("max_body = \"64KiB\"\nmax_buffered = \"256KiB\"");
    let incomplete = |path: &str, length: usize| {
        let mut client = server.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\nx"
        ));
        client
    };
    let batch = incomplete("/v1/check/old_users", 100 << 10);
    wait_until("the batch has its room", || buffered(&server) == 102_400.0);
    let mut second = incomplete("/v1/check/old_users", 100 << 10);
    second.next().unwrap().problem(503, "overloaded");

    let held = [(); 2].map(|()| incomplete("/v1/decide", 64 << 10));
    wait_until("the others have theirs", || buffered(&server) == 233_472.0);
    let mut third = incomplete("/v1/decide", 64 << 10);
    third.next().unwrap().problem(503, "overloaded");
    assert_eq!(metric(&server.metrics(), "rtad_shed_total"), 2.0);
    // Complete requests, and incomplete ones for which there is room, are answered.
    server.connect().get(&target()).ok();
    server.connect().post("/v1/decide", "{}").ok();
    let mut small = incomplete("/v1/decide", 1_000);
    small.send("x".repeat(999));
    small.next().unwrap().problem(400, "bad_body");

    drop((batch, held));
    wait_until("the room is returned", || buffered(&server) == 0.0);
    let body = format!(r#"{{"ids":["{}"]}}"#, "x".repeat(100_000));
    server.connect().post("/v1/check/old_users", &body).ok();
}

/// A client that sends no length takes as much as the largest body.
#[test]
fn chunked_body_takes_the_room_of_the_largest() {
    let server = FixtureServer::with_everything("max_body = \"64KiB\"");
    let mut client = server.connect();
    client.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    wait_until("the body has its room", || buffered(&server) == 65_536.0);
    client.send("2\r\n{}\r\n0\r\n\r\n");
    client.next().unwrap().ok();
    wait_until("the room is returned", || buffered(&server) == 0.0);
}

#[test]
fn head_over_the_limit_is_refused() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(16 << 10)));
    assert_eq!(client.next().unwrap().status, 431);
    client.closes();
}

/// A client that has closed its side gets its answer.
#[test]
fn half_closed_client_is_answered() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    client.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", target()));
    client.close_writing();
    client.next().expect("an answer").ok();
    client.closes();
    let mut client = server.connect();
    client.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
    client.close_writing();
    client.next().expect("an answer").ok();
}

/// No body is requested from a client whose body is too large.
#[test]
fn oversized_expectation_is_refused_without_100_continue() {
    let server = FixtureServer::with_everything("");
    for path in ["/v1/decide", "/v1/check/old_users"] {
        let mut client = server.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
             Content-Length: 1000000000\r\n\r\n"
        ));
        client.next().expect("an answer").problem(413, "too_large");
        client.closes();
    }
}

/// Early answers reach a client that still sends its body.
#[test]
fn early_answer_is_not_lost_to_a_reset() {
    let server = FixtureServer::with_everything("");
    for (path, status) in [
        ("/v1/check/nobody", 404),
        ("/v1/nothing", 404),
        ("/v1/check/missing", 503),
    ] {
        let mut client = server.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n"
        ));
        let part = "x".repeat(100_000);
        for _ in 0..9 {
            // Sending fails after a reset, and many clients then do not look for an answer.
            assert_eq!(client.send_until_blocked(&part, 1), 1, "{path}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let answer = client.next().expect("the answer is not lost");
        assert_eq!(answer.status, status, "{path}");
        client.closes();
    }
}

/// Pipelined requests of a client that reads no answers do not fill the memory with answers.
#[test]
fn pipelined_requests_wait_while_answers_are_not_read() {
    let server = FixtureServer::with_everything("");
    let mut client = server.connect();
    let request = "HEAD /nothing HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    // Sockets and rtad hold some megabytes; an unbounded server would accept all 400.
    let sent = client.send_until_blocked(&request, 10_000);
    assert!(sent < 2_000, "{sent} of 10,000 parts accepted");
}

#[test]
fn disconnect_releases_the_request_permit() {
    let server = FixtureServer::with_everything(ROOM_FOR_ONE);
    drop(hold(&server));
    wait_until("rtad_in_flight is 0", || {
        metric(&server.metrics(), "rtad_in_flight") == 0.0
    });
    server.connect().get(&target()).ok();
}
