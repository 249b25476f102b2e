//! Limits: timeouts, connections, and requests in flight.

use std::time::Duration;

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
    let server = FixtureServer::with_everything("max_in_flight = 1");
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

/// One client address holds at most half of the permits.
#[test]
fn unfinished_requests_of_one_address_leave_permits_for_others() {
    let server = FixtureServer::with_everything("max_in_flight = 4");
    let mut held: Vec<_> = (0..2).map(|_| server.connect()).collect();
    held.iter_mut().for_each(|client| client.send(HELD_HEAD));
    wait_until("rtad_in_flight is 2", || {
        metric(&server.metrics(), "rtad_in_flight") == 2.0
    });
    let mut third = server.connect();
    third.send(HELD_HEAD);
    third.next().unwrap().problem(503, "overloaded");
}

/// Heads and bodies of all connections share `max_buffered`.
#[test]
fn buffered_bytes_are_bounded_for_all_connections_together() {
    let server = FixtureServer::with_everything("max_buffered = \"256KiB\"\nmax_in_flight = 1000");
    let partial_head = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(60_000));
    let mut heads: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for head in &mut heads {
        head.send(&partial_head);
    }
    let mut refused = Vec::new();
    // 256 KiB are four heads of 60,000 bytes, less 8 KiB each.
    let buffered = wait_until("the heads are refused or buffered", || {
        refused.extend(heads.extract_if(.., |head| {
            let answer = head.try_next(Duration::from_millis(1));
            answer
                .inspect(|answer| assert_eq!(answer.status, 503))
                .is_some()
        }));
        let metrics = server.metrics();
        let (shed, buffered) = (
            metric(&metrics, "rtad_shed_total"),
            metric(&metrics, "rtad_buffered_bytes"),
        );
        let are_all = refused.len() >= 15 && shed == refused.len() as f64;
        (are_all && buffered >= 180_000.0).then_some(buffered)
    });
    assert!(refused.len() <= 16, "{} of 20 are refused", refused.len());
    assert!(buffered <= 262_144.0, "{buffered}");
    // Other requests are answered, but none that needs more than its own 8 KiB.
    server.connect().get(&target()).ok();
    let mut batch = server.connect();
    batch.send("POST /v1/check/old_users HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
    batch.send("x".repeat(100_000));
    batch
        .next()
        .expect("an answer to a body that found no memory")
        .problem(503, "overloaded");
    drop(heads);
    let body = format!(r#"{{"ids":["{}"]}}"#, "x".repeat(100_000));
    wait_until("memory is returned", || {
        server.connect().post("/v1/check/old_users", &body).status == 200
    });
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
fn delayed_batches_are_shed_and_platform_requests_are_not() {
    let server = FixtureServer::with_everything("max_wait = \"1ms\"");
    let ids = [OLD_USERS[0].1, "0123456789abcdef0123456789abcdee"]
        .map(|id| format!("{id:?}"))
        .join(",");
    let body = format!(r#"{{"ids":[{ids},{}]}}"#, vec!["\"x\""; 1500].join(","));
    let request = format!(
        "POST /v1/check/old_users HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut clients: Vec<_> = (0..64).map(|_| server.connect()).collect();
    let mut one = server.connect();
    let (mut answered, mut shed) = (0, 0);
    wait_until("some batches are answered and others are shed", || {
        // More requests than one worker can answer in a millisecond. On a busy machine all of them
        // may have waited for longer.
        clients.iter_mut().for_each(|client| client.send(&request));
        one.get(&target()).ok();
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
        answered > 0 && shed > 0
    });
    assert_eq!(
        metric(&server.metrics(), "rtad_shed_total"),
        f64::from(shed)
    );
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
    wait_until("rtad_in_flight is 0", || {
        metric(&server.metrics(), "rtad_in_flight") == 0.0
    });
    server.connect().get(&target()).ok();
}
