//! Scopes of tokens: routes, windows and audiences that a token may use.

use serde_json::json;
use testkit::sandbox::{Sandbox, command};

use crate::process::{AUDIENCE, Api, DEVICES, Serve};

const CONFIG: &str = r#"
[[token]]
file = "stream"
scopes = ["events:clicks"]

[[token]]
file = "crm"
scopes = ["devices:a", "events:*"]

[[window]]
name = "clicks"
length = "1h"
capacity = 1000
durability = "store"

[[window]]
name = "views"
length = "1h"
capacity = 1000
durability = "store"
"#;
const STREAM: &str = "a-token-of-the-stream";
const CRM: &str = "a-token-of-the-crm-0";

fn start(sandbox: &Sandbox) -> Serve {
    sandbox.file("stream", STREAM);
    sandbox.file("crm", CRM);
    sandbox.file("writer.toml", CONFIG);
    Serve::over(sandbox, "{}/s", "--every 5ms --config {}/writer.toml").until_owner()
}

#[test]
fn token_may_only_do_what_its_scopes_name() {
    let sandbox = Sandbox::with_store();
    let serve = start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let Api(client) = &mut api;
    let body = json!({ "op": "add", "kind": "oaid", "ids": ["click-1"] }).to_string();
    let event = json!({ "kind": "oaid", "ids": ["click-1"] }).to_string();
    for (token, method, path, body, missing) in [
        (STREAM, "POST", "/v1/windows/clicks/events", &event, None),
        (STREAM, "POST", "/v1/windows/clicks/check", &event, None),
        (STREAM, "POST", "/v1/windows/clicks/forget", &event, None),
        (
            STREAM,
            "POST",
            "/v1/windows/views/events",
            &event,
            Some("events:views"),
        ),
        (
            STREAM,
            "POST",
            "/v1/windows/VIEWS/events",
            &event,
            Some("events:*"),
        ),
        (STREAM, "GET", "/v1/windows", &event, Some("admin")),
        (STREAM, "POST", DEVICES, &body, Some("devices:a")),
        (STREAM, "GET", AUDIENCE, &body, Some("devices:a")),
        (STREAM, "DELETE", AUDIENCE, &body, Some("admin")),
        (CRM, "POST", "/v1/windows/views/events", &event, None),
        (CRM, "POST", DEVICES, &body, None),
        (CRM, "GET", AUDIENCE, &body, None),
        (
            CRM,
            "POST",
            "/v1/audiences/b/devices",
            &body,
            Some("devices:b"),
        ),
        (CRM, "GET", "/v1/audiences", &body, Some("admin")),
        (CRM, "PUT", "/v1/audiences/a", &body, Some("admin")),
        (CRM, "POST", "/v1/audiences/a/disable", &body, Some("admin")),
        (CRM, "DELETE", AUDIENCE, &body, Some("admin")),
    ] {
        let header = format!("Authorization: Bearer {token}\r\n");
        let answer = client.request(method, path, &header, body);
        let Some(missing) = missing else {
            assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
            continue;
        };
        let detail = answer.problem(403, "missing_scope");
        assert!(
            detail.contains(&format!("scope {missing};")),
            "{method} {path}: {detail}"
        );
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(
            challenge.ends_with(&format!("scope=\"{missing}\"")),
            "{challenge}"
        );
    }
    assert_eq!(api.get(AUDIENCE).ok()["state"], "live");
}

#[test]
fn token_files_of_the_config_are_reread() {
    let sandbox = Sandbox::with_store();
    let serve = start(&sandbox);
    let Api(client) = &mut serve.connect();
    let header = "Authorization: Bearer a-new-token-of-the-stream\r\n";
    let mut count = || client.request("POST", "/v1/windows/clicks/events", header, "{\"ids\":[]}");
    count().problem(401, "unauthorized");
    sandbox.file("stream", "a-new-token-of-the-stream");
    serve.signal("HUP");
    serve.log("tokens reloaded", 1);
    assert_eq!(count().status, 200);
}

#[test]
fn service_starts_with_tokens_of_the_config_alone() {
    let sandbox = Sandbox::with_store();
    sandbox.file("stream", STREAM);
    sandbox.file("crm", CRM);
    sandbox.file("writer.toml", CONFIG);
    let checked = sandbox.run("check-config {}/writer.toml");
    let stdout = &checked.stdout;
    assert!(stdout.contains("stream: events:clicks\n"), "{stdout}");
    let start = "--store {}/s --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --config \
                 {}/writer.toml";
    let serve = Serve::spawn(&mut command(sandbox.path(), start));
    serve
        .connect()
        .get("/v1/audiences")
        .problem(401, "unauthorized");
    sandbox.file("crm", "short");
    std::fs::remove_file(sandbox.path().join("stream")).unwrap();
    let checked = sandbox.run("check-config {}/writer.toml");
    assert_eq!(checked.status, Some(2));
    for message in [
        "writer.toml:3: [[token]] \"stream\": file: {}/stream: could not read it: No such file",
        "writer.toml:7: [[token]] \"crm\": file: {}/crm, line 1: not a token: expected at least",
    ] {
        let message = message.replace("{}", sandbox.path().to_str().unwrap());
        assert!(
            checked.stderr.contains(&message),
            "{message}: {}",
            checked.stderr
        );
    }
}
