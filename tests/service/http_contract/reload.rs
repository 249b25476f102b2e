//! `POST /v1/reload`: applied completely or not at all.

use serde_json::{Value, json};

use crate::fixture::{FixtureServer, OLD_USERS, RULES, TestStore, key};
use testkit::client::{Client, metric};
use testkit::store::hex;

fn reload(admin: &mut Client) -> testkit::client::Answer {
    admin.request("POST", "/v1/reload", "", "")
}

const ONLY_VIP: &str = "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = \
    [\"vip\"]\nno_device = \"bid\"";

#[test]
fn valid_config_applies_to_the_next_request() {
    let server = FixtureServer::with_everything("");
    let (mut admin, mut client) = (server.connect_admin(), server.connect());
    server.write_config("", ONLY_VIP);
    let reloaded = reload(&mut admin).ok();
    assert_eq!(
        (&reloaded["reloaded"], &reloaded["needs_restart"]),
        (&json!(true), &json!([]))
    );
    let changed = reloaded["changed"].as_array().unwrap();
    assert!(changed.contains(&json!("strategy.no-vip")), "{reloaded}");
    let decisions = client.post("/v1/decide", "{}").ok();
    assert_eq!(
        decisions["decisions"],
        json!([{ "strategy": "no-vip", "bid": true, "reason": "no_device" }])
    );
    client
        .get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1))
        .problem(404, "unknown_audience");
    server.write_config("", RULES);
    reload(&mut admin).ok();
    assert_eq!(
        client
            .get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1))
            .text(),
        r#"{"member":true}"#,
        "an audience that comes back is loaded again"
    );
}

#[test]
fn new_audience_that_the_store_lacks_is_named() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let audience = "[[audience]]\nname = \"payers\"\nrequired = false\n";
    server.write_config("", &format!("{audience}{RULES}"));
    let reloaded = reload(&mut admin).ok();
    assert_eq!(
        reloaded["without_snapshot"],
        json!(["payers"]),
        "{reloaded}"
    );

    // Known since the last reload, like the audience of the fixture that the store lacks.
    let reloaded = reload(&mut admin).ok();
    assert_eq!(reloaded.get("without_snapshot"), None, "{reloaded}");
}

/// Pods with one config show one hash, so a fleet that is divided can be seen.
#[test]
fn served_config_is_shown_by_its_id() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let first = admin.get("/v1/status").ok()["config"].clone();
    let id = |config: &Value| config["id"].as_str().unwrap().to_owned();
    let shows = |server: &FixtureServer, config: &Value| {
        let metrics = server.metrics();
        let hash = u64::from_str_radix(&id(config)[..12], 16).unwrap();
        assert_eq!(metric(&metrics, "rtad_config_hash"), hash as f64);
        assert_eq!(
            metric(&metrics, "rtad_config_loaded_timestamp_seconds"),
            config["loaded_unix_seconds"].as_f64().unwrap()
        );
    };
    shows(&server, &first);

    server.write_config("", "not toml");
    reload(&mut admin).problem(422, "bad_config");
    assert_eq!(admin.get("/v1/status").ok()["config"], first);

    server.write_config("", ONLY_VIP);
    reload(&mut admin).ok();
    let second = admin.get("/v1/status").ok()["config"].clone();
    assert_ne!(id(&second), id(&first));
    shows(&server, &second);
}

#[test]
fn invalid_config_keeps_the_old_one_and_lists_every_mistake() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let mut before = admin.get("/v1/status").ok();
    let mistakes = format!("{ONLY_VIP}\nunavailable = \"maybe\"\nwhen = 7\n[servers]\nx = 1");
    server.write_config("max_body = \"large\"", &mistakes);
    let detail = reload(&mut admin).problem(422, "bad_config");
    for mistake in [
        "server.max_body",
        "unavailable is \"maybe\"",
        "when is 7",
        "servers is not known",
    ] {
        assert!(detail.contains(mistake), "{mistake}: {detail}");
    }
    assert_eq!(detail.lines().count(), 4, "{detail}");
    let mistakes = detail.strip_prefix("nothing was changed: ").unwrap();
    let mut after = admin.get("/v1/status").ok();
    assert_eq!(after["refused_config"], mistakes);
    assert!(before.get("refused_config").is_none());
    for status in [&mut before, &mut after] {
        for audience in status["audiences"].as_array_mut().unwrap() {
            // Seconds may pass between both requests.
            audience
                .get_mut("snapshot")
                .map(|snapshot| snapshot["age_seconds"].take());
        }
    }
    assert_eq!(
        (&before["strategies"], &before["audiences"]),
        (&after["strategies"], &after["audiences"])
    );
    server.write_config("", "not toml");
    assert_eq!(
        reload(&mut admin)
            .problem(422, "bad_config")
            .lines()
            .count(),
        1
    );
    let is_served = || metric(&server.metrics(), "rtad_config_last_reload_successful");
    assert_eq!(is_served(), 0.0);
    server.write_config("", RULES);
    reload(&mut admin).ok();
    assert_eq!(is_served(), 1.0);
    assert!(admin.get("/v1/status").ok().get("refused_config").is_none());
}

#[test]
fn new_required_audience_that_fails_to_load_is_rejected() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    let more = format!("{ONLY_VIP}\n[[audience]]\nname = \"more\"");
    server.write_config("", &more);
    let detail = reload(&mut admin).problem(422, "bad_config");
    assert!(
        detail.contains("audience more is not in the store"),
        "{detail}"
    );
    let mut client = server.connect();
    client
        .get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1))
        .ok();
    client
        .get(&format!("/v1/check/more/{}", OLD_USERS[0].1))
        .problem(404, "unknown_audience");
    server.write_config("", &format!("{more}\nrequired = false"));
    reload(&mut admin).ok();
    client
        .get(&format!("/v1/check/more/{}", OLD_USERS[0].1))
        .problem(503, "not_loaded");
    server.write_config("", RULES);
    reload(&mut admin).ok();
    server.store.publish("more", &[key("md5", OLD_USERS[0].1)]);
    server.write_config("", &more);
    reload(&mut admin).ok();
    let answer = client.get(&format!("/v1/check/more/{}", OLD_USERS[0].1));
    assert_eq!(
        answer.text(),
        r#"{"member":true}"#,
        "served as soon as the reload is answered"
    );
}

#[test]
fn restart_only_settings_are_reported_and_the_rest_applied() {
    let server = FixtureServer::with_everything("");
    let mut admin = server.connect_admin();
    server.write_config(
        "max_connections = 1",
        &format!("{ONLY_VIP}\n[ids]\nblank = [\"junk\"]"),
    );
    assert_eq!(
        reload(&mut admin).ok()["needs_restart"],
        json!(["server", "ids"])
    );
    assert_eq!(
        admin.get("/v1/status").ok()["strategies"],
        json!(["no-vip"])
    );
    server.write_config("", ONLY_VIP);
    assert_eq!(
        reload(&mut admin).ok()["needs_restart"],
        json!([]),
        "compared with what runs"
    );
}

const ONLY_A_PLATFORM: &str = "[[platform]]\nkind = \"tencent\"\nname = \"t\"\npath = \"/t\"\n\
    strategies = { T1 = \"new-users\" }";

/// Asserts that a request of an old user is rejected.
fn old_user_is_rejected(client: &mut Client) {
    let request = format!(
        "\x2a\x22\x32\x20{}",
        hex(&key(OLD_USERS[3].0, OLD_USERS[3].1))
    );
    assert_eq!(client.request("POST", "/t", "", request).body, b"\x10\x01");
}

#[test]
fn platform_keeps_its_strategy_after_reordering() {
    // The first strategy is now another one, which would bid.
    let rules = "[[audience]]\nname = \"old_users\"\n[[audience]]\nname = \"vip\"\n[[strategy]]\n\
        name = \"bold\"\n\
                 when = \"old_users\"\n[[strategy]]\nname = \"new-users\"\nexclude = \
                 [\"old_users\"]\n";
    let server = FixtureServer::start(
        TestStore::with_everything(),
        "",
        &format!("{rules}{ONLY_A_PLATFORM}"),
    );
    let (mut admin, mut client) = (server.connect_admin(), server.connect());
    old_user_is_rejected(&mut client);
    let alone = rules.replace(
        "[[strategy]]\nname = \"bold\"\ninclude = [\"old_users\"]\n",
        "",
    );
    for rules in [&*alone, rules] {
        server.write_config("", &format!("{rules}{ONLY_A_PLATFORM}"));
        reload(&mut admin).ok();
        old_user_is_rejected(&mut client);
    }
}
