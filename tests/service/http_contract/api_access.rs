//! Access to rtad's own routes beside platforms: `[server.api]`.

use crate::fixture::{FixtureServer, OLD_USERS, PLATFORMS, RULES, TestStore};
use testkit::client::{Client, metric};

const TOKEN: &str = "Authorization: Bearer 0123456789abcdef\r\n";

fn rules() -> String {
    format!("{RULES}{PLATFORMS}")
}

/// A server with platforms and these lines in `[server]`, in which TOKENS is a file with one token.
fn server(api: &str) -> FixtureServer {
    let store = TestStore::with_everything();
    let tokens = store.path().join("tokens");
    std::fs::write(&tokens, "0123456789abcdef\n").unwrap();
    let api = api.replace("TOKENS", &format!("{tokens:?}"));
    FixtureServer::start(store, &api, &rules())
}

fn check() -> String {
    format!("/v1/check/old_users/{}", OLD_USERS[0].1)
}

/// rtad's own routes answer 404, without names, before any body is read.
fn assert_closed(mut client: Client) {
    for (method, path) in [
        ("GET", check()),
        ("POST", "/v1/check/old_users".into()),
        ("POST", "/v1/decide".into()),
    ] {
        let detail = client
            .request(method, &path, "", "")
            .problem(404, "not_found");
        assert_eq!(detail, "accepted: the paths of platforms");
    }
    client.send("POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
    client
        .next()
        .expect("an answer without a body")
        .problem(404, "not_found");
}

#[test]
fn platforms_close_the_api_on_their_port() {
    let server = server("");
    assert_closed(server.connect());
    let answer = server.connect().request("POST", "/rta/ocean", "", "");
    assert_eq!(answer.status, 200);
    let unknown = r#"rtad_requests_total{route="unknown",code="404"}"#;
    assert_eq!(metric(&server.metrics(), unknown), 4.0);
}

#[test]
fn public_api_is_open_on_the_decision_port() {
    let server = server("api = { public = true }");
    server.connect().get(&check()).ok();
    server.connect().post("/v1/decide", "{}").ok();
}

#[test]
fn tokens_open_the_api() {
    let server = server("api = { token_files = [TOKENS] }");
    let mut client = server.connect();
    assert_eq!(
        client.request("GET", &check(), TOKEN, "").ok()["member"],
        true
    );
    client.request("POST", "/v1/decide", TOKEN, "{}").ok();

    for refused in [
        "",
        "Authorization: Bearer 0123456789abcdeg\r\n",
        "Authorization: x\r\n",
    ] {
        let answer = server.connect().request("GET", &check(), refused, "");
        answer.problem(401, "unauthorized");
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"rtad\"")
        );
    }

    let answer = server.connect().request("POST", "/rta/ocean", "", "");
    assert_eq!(answer.status, 200);
}

#[test]
fn changed_token_is_accepted_after_a_reload() {
    let server = server("api = { token_files = [TOKENS] }");
    let new = "Authorization: Bearer another-token-456\r\n";
    server
        .connect()
        .request("GET", &check(), new, "")
        .problem(401, "unauthorized");
    let tokens = server.store.path().join("tokens");
    std::fs::write(&tokens, "another-token-456\n").unwrap();
    server.write_config(&format!("api = {{ token_files = [{tokens:?}] }}"), &rules());
    let reloaded = server.connect_admin().post("/v1/reload", "").ok();
    assert_eq!(reloaded["needs_restart"], serde_json::json!([]));
    server.connect().request("GET", &check(), new, "").ok();
    server
        .connect()
        .request("GET", &check(), TOKEN, "")
        .problem(401, "unauthorized");
}
