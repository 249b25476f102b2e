//! Rejected requests: status, code, message, and no change to the store.

use rtad_core::device::IdKind;
use serde_json::{Value, json};
use testkit::sandbox::{Sandbox, command, ids};

use crate::process::{AUDIENCE, Api, DEVICES, Serve, TOKEN, current};
use testkit::client::metric;
use testkit::process::{outcome, spawn};

#[test]
fn requests_without_a_token_are_rejected() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    for headers in [
        "",
        "Authorization: Bearer wrong-token-0123456789\r\n",
        "Authorization: Basic YTpi\r\n",
    ] {
        for (method, path) in [
            ("GET", "/v1/audiences"),
            ("GET", "/v1/audiences/nothing"),
            ("DELETE", AUDIENCE),
            ("POST", DEVICES),
            ("POST", "/anything"),
            ("PATCH", AUDIENCE),
        ] {
            let answer = api.0.request(method, path, headers, "");
            answer.problem(401, "unauthorized");
            assert_eq!(
                answer.header("www-authenticate"),
                Some("Bearer realm=\"rtad\"")
            );
        }
    }
    assert_eq!(current(&sandbox).sequence, 1);

    // Rotation: both tokens, then only the new one.
    let other = "Authorization: Bearer another-token-0123456789\r\n";
    assert_eq!(api.0.request("GET", AUDIENCE, other, "").status, 200);
    sandbox.file("tokens", "another-token-0123456789\n");
    serve.signal("HUP");
    serve.log("tokens reloaded", 1);
    assert_eq!(api.0.request("GET", AUDIENCE, other, "").status, 200);
    api.get(AUDIENCE).problem(401, "unauthorized");
    sandbox.file("tokens", "");
    serve.signal("HUP");
    let refused = serve.log("tokens not reloaded; the old tokens stay valid", 1);
    assert!(
        refused["error"].as_str().unwrap().contains("no token"),
        "{refused}"
    );
    assert_eq!(api.0.request("GET", AUDIENCE, other, "").status, 200);
    assert!(!serve.stderr().contains("another-token") && !serve.stderr().contains(TOKEN));
}

#[test]
fn invalid_requests_are_rejected_without_quoting_values() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let secret = "5f93f983524def3dca464469d2cf9f3e";
    let too_many = json!({"op": "add", "ids": vec!["x"; 100_001]}).to_string();
    for (body, status, code, words) in [
        (
            "",
            400,
            "bad_body",
            "expected an object with op, kind, ids and values",
        ),
        (
            &format!("[\"add\", null, [\"{secret}\"]]"),
            400,
            "bad_body",
            "expected an object",
        ),
        (
            &format!("{{\"op\": \"add\", \"ids\": [\"{secret}\""),
            400,
            "bad_body",
            "EOF while parsing",
        ),
        (
            &format!("{{\"op\": \"add\", \"ids\": \"{secret}\"}}"),
            400,
            "bad_body",
            "expected a list of ids",
        ),
        (
            &format!("{{\"op\": \"add\", \"ids\": [], \"{secret}\": 1}}"),
            400,
            "bad_body",
            "unknown field, expected one of",
        ),
        (
            &format!("{{\"op\": \"remove\", \"ids\": [\"{secret}\"], \"values\": [1]}}"),
            400,
            "bad_body",
            "values: accepted with add and add_if_absent",
        ),
        (
            &format!("{{\"op\": \"add\", \"ids\": [\"{secret}\"], \"values\": [1, 2]}}"),
            400,
            "bad_body",
            "values: expected one for each of the 1 ids, found 2",
        ),
        (
            &format!("{{\"op\": \"add\", \"ids\": [\"{secret}\"], \"values\": [16]}}"),
            400,
            "bad_body",
            "values: 0: expected 0 to 15, or null for none",
        ),
        ("{\"op\": \"add\"}", 400, "bad_body", "missing field `ids`"),
        ("{\"ids\": []}", 400, "bad_body", "missing field `op`"),
        (
            "{\"op\": \"add\", \"ids\": [5938351]}",
            400,
            "bad_body",
            "expected",
        ),
        (
            &format!("{{\"op\": \"{secret}\", \"ids\": []}}"),
            400,
            "unknown_op",
            "add, remove, add_if_absent",
        ),
        (
            &format!("{{\"op\": \"add\", \"kind\": \"{secret}\", \"ids\": []}}"),
            404,
            "unknown_kind",
            "md5, idfa",
        ),
        (
            &too_many,
            413,
            "too_large",
            "100001 ids; accepted: up to 100000",
        ),
    ] {
        let answer = api.ask("POST", DEVICES, body);
        let detail = answer.problem(status, code);
        assert!(detail.contains(words), "{words:?} in {detail:?}");
        assert!(
            !answer.text().contains(secret) && !answer.text().contains("5938351"),
            "{}",
            answer.text()
        );
    }
    api.binary(DEVICES, &[]).problem(400, "unknown_op");
    api.binary("/v1/audiences/a/devices?op=delete", &[])
        .problem(400, "unknown_op");
    let headers =
        format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/octet-stream\r\n");
    let both = json!({ "op": "remove", "ids": [] });
    let both = api
        .post("/v1/audiences/a/devices?op=add", &both)
        .problem(400, "bad_body");
    assert!(
        both.contains("op: accepted beside a binary body only"),
        "{both}"
    );
    let odd = api
        .0
        .request("POST", "/v1/audiences/a/devices?op=add", &headers, [0; 17]);
    assert_eq!(
        odd.problem(400, "bad_body"),
        "17 bytes are not a whole number of 16-byte keys"
    );
    let kind = api.post(
        "/v1/audiences/a/devices?kind=oaid",
        &json!({ "op": "add", "ids": [] }),
    );
    assert_eq!(
        kind.problem(400, "bad_body"),
        "query: kind: expected in a JSON body"
    );
    let digits = "8d3ebd3654fb46a2832296669cf1b536";
    let text = api.0.request(
        "POST",
        "/v1/audiences/a/devices?op=remove",
        &headers,
        digits,
    );
    assert!(
        text.problem(400, "bad_body")
            .starts_with("the body is text"),
        "{text:?}"
    );
    let encoded = format!("{headers}Content-Encoding: gzip\r\n");
    let encoded = api
        .0
        .request("POST", "/v1/audiences/a/devices?op=add", &encoded, [1; 16]);
    encoded.problem(415, "bad_encoding");
    assert_eq!(encoded.header("accept-encoding"), Some("identity"));
    for path in [DEVICES, "/v1/audiences/b"] {
        let method = if path == DEVICES { "POST" } else { "PUT" };
        api.ask(method, path, b"\x1f\x8b\x08\0\0\0")
            .problem(415, "bad_encoding");
    }
    let many = api.0.request(
        "POST",
        "/v1/audiences/a/devices?op=add",
        &headers,
        vec![1; 16 * 100_001],
    );
    many.problem(413, "too_large");

    for (method, path, status, code) in [
        ("GET", "/v1/audiences/A", 400, "bad_audience"),
        ("PUT", "/v1/audiences/..%2fa", 400, "bad_audience"),
        ("POST", "/v1/audiences/b/devices", 400, "bad_body"),
        ("POST", "/v1/audiences/b/disable", 404, "unknown_audience"),
        ("DELETE", "/v1/audiences/b", 404, "unknown_audience"),
        ("GET", "/v1/audiences/a/nothing", 404, "not_found"),
        ("GET", DEVICES, 405, "method_not_allowed"),
        ("POST", AUDIENCE, 405, "method_not_allowed"),
    ] {
        api.ask(method, path, "").problem(status, code);
    }
    let allowed = api.ask("PATCH", AUDIENCE, "");
    assert!(
        allowed.header("allow").unwrap().contains("DELETE"),
        "{allowed:?}"
    );
    api.post(
        "/v1/audiences/b/devices",
        &json!({"op": "add", "ids": [secret]}),
    )
    .problem(404, "unknown_audience");
    for (body, words) in [
        ("{\"fpr\": 2}", "false-positive rate"),
        ("{\"filter\": \"cuckoo\"}", "the kinds are block512, ribbon"),
        ("{\"x\": 1}", "unknown field"),
        ("[]", "expected an object"),
    ] {
        let detail = api
            .ask("PUT", "/v1/audiences/b", body)
            .problem(400, "bad_body");
        assert!(detail.contains(words), "{detail}");
    }
    assert_eq!(current(&sandbox).sequence, 1, "nothing was changed");
    assert!(!sandbox.path().join("s/b").exists());
    assert!(!serve.stderr().contains(secret));
}

#[test]
fn oversized_bodies_are_rejected() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    serve.connect().create();
    let head =
        format!("POST {DEVICES} HTTP/1.1\r\nHost: rtad\r\nAuthorization: Bearer {TOKEN}\r\n");
    let mut stated = serve.connect();
    stated
        .0
        .send(format!("{head}Content-Length: {}\r\n\r\n", (16 << 20) + 1));
    stated.0.next().unwrap().problem(413, "too_large");
    // A body without a length is read up to the limit.
    let mut chunked = serve.connect();
    chunked
        .0
        .send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    for _ in 0..17 {
        chunked
            .0
            .send(format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20)));
    }
    chunked.0.next().unwrap().problem(413, "too_large");
}

#[test]
fn requests_are_counted_without_ids() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut admin = serve.admin();
    assert_eq!(
        (
            admin.get("/livez").text().as_str(),
            admin.get("/readyz").status
        ),
        ("ok\n", 200)
    );
    assert_eq!(
        admin.get("/v1/audiences").status,
        404,
        "the admin port accepts no writes"
    );
    let mut api = serve.connect();
    api.create();
    let all = ids(IdKind::Md5, 0..10);
    api.write("add", &all);
    api.write("add_if_absent", &all);
    api.ask("POST", "/v1/audiences/a/disable", "").ok();
    api.post(DEVICES, &json!({"op": "remove", "ids": all}))
        .problem(409, "disabled");
    api.post(
        "/v1/audiences/b/devices",
        &json!({"op": "remove", "ids": all}),
    )
    .problem(404, "unknown_audience");
    let metrics = serve.metrics();
    for (name, value) in [
        (
            "rtad_writer_writes_total{audience=\"a\",op=\"add\",result=\"ok\"}",
            1.0,
        ),
        (
            "rtad_writer_writes_total{audience=\"a\",op=\"add_if_absent\",result=\"ok\"}",
            1.0,
        ),
        (
            "rtad_writer_writes_total{audience=\"a\",op=\"remove\",result=\"disabled\"}",
            1.0,
        ),
        // Present before the first failure.
        (
            "rtad_writer_writes_total{audience=\"a\",op=\"add\",result=\"store\"}",
            0.0,
        ),
        (
            "rtad_writer_writes_total{audience=\"a\",op=\"lift\",result=\"deltas_full\"}",
            0.0,
        ),
        (
            "rtad_writer_append_duration_seconds_count{audience=\"a\"}",
            1.0,
        ),
        (
            "rtad_writer_requests_total{route=\"devices\",code=\"200\"}",
            2.0,
        ),
        (
            "rtad_writer_requests_total{route=\"devices\",code=\"409\"}",
            1.0,
        ),
        ("rtad_writer_queue", 0.0),
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
        assert_eq!(metric(&metrics, name), value, "{name} in {metrics}");
    }
    assert!(
        !metrics.contains("audience=\"b\""),
        "no labels for nonexistent audiences"
    );
    assert!(
        all.iter()
            .all(|id| !metrics.contains(id) && !serve.stderr().contains(id))
    );
}

#[test]
fn invalid_command_lines_are_rejected() {
    let sandbox = Sandbox::with_store();
    sandbox.file("tokens", "a-token-0123456789\n");
    sandbox.file("empty", "");
    let serve = "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0";
    sandbox
        .run(&format!("{serve} --token-file {{}}/empty"))
        .fails(2, "no token");
    sandbox
        .run(&format!("{serve} --token-file {{}}/nothing"))
        .fails(2, "could not read it: No such file");
    let open = "--store {}/s --listen 0.0.0.0:0 --no-token";
    sandbox.run(open).fails(
        2,
        "--no-token: --listen 0.0.0.0:0 is not a loopback address",
    );
    sandbox.run(serve).fails(
        2,
        "no tokens: expected --token-file, a [[token]] of --config",
    );
    sandbox.file(
        "writer.toml",
        "[[token]]\nfile = \"tokens\"\nscopes = [\"devices:*\"]\n",
    );
    sandbox
        .run(&format!("{serve} --no-token --config {{}}/writer.toml"))
        .fails(2, "--no-token: expected no [[token]] beside it, found");
    assert_eq!(
        sandbox
            .run(&format!("{serve} --no-token --token-file {{}}/tokens"))
            .status,
        Some(2),
        "both"
    );
    let http = "--store http://127.0.0.1:1/s --listen 127.0.0.1:0 --no-token";
    sandbox.run(http).fails(2, "is read-only");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let arguments = format!("--store {{}}/s --listen {taken} --no-token");
    let ended = outcome(spawn(&mut command(sandbox.path(), &arguments)));
    ended.fails(1, "could not listen on --listen");
}

/// A path that is not UTF-8 names no audience, window or token.
#[test]
fn path_that_is_not_utf8_is_refused_like_another_unknown_name() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut client = serve.connect().0;
    client.get("/v1/audiences/%ff").problem(401, "unauthorized");
    client
        .get("/v1/windows/clicks/events/%ff?oaid=abc123")
        .problem(401, "unauthorized");
    let mut api = serve.connect();
    api.get("/v1/audiences/%ff").problem(400, "bad_audience");
    api.ask("POST", "/v1/windows/%ff/events", "{}")
        .problem(404, "unknown_window");
    let counted = "rtad_writer_requests_total{route=\"callback\",code=\"401\"} 1\n";
    assert!(serve.metrics().contains(counted), "{}", serve.metrics());
}

#[test]
fn loopback_address_allows_no_token() {
    let sandbox = Sandbox::with_store();
    let arguments = "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --no-token";
    let serve = Serve::spawn(&mut command(sandbox.path(), arguments));
    assert_eq!(
        serve.log("listening for writes", 1)["token"],
        Value::Bool(false)
    );
    let Api(client) = &mut serve.connect();
    assert_eq!(client.request("PUT", AUDIENCE, "", "").status, 201);
    // A browser on this machine reaches the port for any page.
    let disable = format!("{AUDIENCE}/disable");
    for headers in [
        "Origin: http://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        client
            .request("POST", &disable, headers, "")
            .problem(403, "cross_site");
    }
    assert_eq!(client.request("POST", &disable, "", "").status, 200);
    client.send("GET /v1/audiences HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    client.next().unwrap().problem(403, "cross_site");
}

/// A page under a public name that resolves to the port could read the answers.
#[test]
fn admin_port_rejects_public_host_names_unless_configured() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::over(&sandbox, "{}/s", "--admin-host writer.example");
    let mut admin = serve.admin();
    let mut get = |path: &str, host: &str| {
        admin.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        admin.next().expect("an answer")
    };
    for path in ["/", "/metrics", "/v1/windows", "/nothing"] {
        get(path, "evil.example:9070").problem(403, "cross_site");
    }
    for (path, host) in [
        ("/metrics", "writer"),
        ("/metrics", "writer.example"),
        ("/livez", "evil.example"),
    ] {
        assert_eq!(get(path, host).status, 200, "{path} {host}");
    }
}

/// Bodies of unknown length take memory as they arrive, not ahead.
#[test]
fn unfinished_chunked_bodies_do_not_refuse_other_writes() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    serve.connect().ask("PUT", AUDIENCE, "");
    let head = format!(
        "POST {AUDIENCE}/devices HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"
    );
    let mut stalled: Vec<Api> = (0..40).map(|_| serve.connect()).collect();
    stalled
        .iter_mut()
        .for_each(|Api(client)| client.send(&head));
    // The wait ends when they are all being read; a fault could be missed without it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let id = "5f93f983524def3dca464469d2cf9f3e";
    let body = format!(r#"{{"op":"add","ids":["{id}"]}}"#);
    let answer = serve
        .connect()
        .ask("POST", &format!("{AUDIENCE}/devices"), body);
    assert_eq!(answer.status, 200, "{answer:?}");
}
