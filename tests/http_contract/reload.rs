//! `POST /v1/reload`: all of it or nothing.

use serde_json::json;

use crate::common::client::Client;
use crate::common::server::{OLD_USERS, RULES, Server, key};

fn reload(admin: &mut Client) -> crate::common::client::Answer {
    admin.request("POST", "/v1/reload", "", "")
}

const ONLY_VIP: &str =
    "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = [\"vip\"]\nno_device = \"bid\"";

#[test]
fn a_good_config_is_served_from_one_request_to_the_next() {
    let server = Server::with_everything("");
    let (mut admin, mut client) = (server.connect_admin(), server.connect());
    server.write_config("", ONLY_VIP);
    assert_eq!(reload(&mut admin).ok(), json!({ "reloaded": true, "needs_restart": [] }));
    let decisions = client.post("/v1/decide", "{}").ok();
    assert_eq!(decisions["decisions"], json!([{ "strategy": "no-vip", "bid": true, "reason": "no_device" }]));
    client.get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1)).problem(404, "unknown_audience");
    server.write_config("", RULES);
    reload(&mut admin).ok();
    assert_eq!(
        client.get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1)).text(),
        r#"{"member":true}"#,
        "an audience that comes back is loaded again"
    );
}

#[test]
fn a_bad_config_leaves_the_old_one_and_every_mistake_is_told() {
    let server = Server::with_everything("");
    let mut admin = server.connect_admin();
    let before = admin.get("/v1/status").ok();
    let mistakes = format!("{ONLY_VIP}\nunavailable = \"maybe\"\ninclude = [\"nobody\"]\n[servers]\nx = 1");
    server.write_config("max_body = \"large\"", &mistakes);
    let detail = reload(&mut admin).problem(422, "bad_config");
    for mistake in
        ["server.max_body", "unavailable is \"maybe\"", "include has \"nobody\"", "servers is not known"]
    {
        assert!(detail.contains(mistake), "{mistake}: {detail}");
    }
    assert_eq!(detail.lines().count(), 4, "{detail}");
    assert!(detail.starts_with("nothing was changed: "));
    let after = admin.get("/v1/status").ok();
    assert_eq!((&before["strategies"], &before["audiences"]), (&after["strategies"], &after["audiences"]));
    server.write_config("", "not toml");
    assert_eq!(reload(&mut admin).problem(422, "bad_config").lines().count(), 1);
}

#[test]
fn a_new_required_audience_that_cannot_be_loaded_is_refused() {
    let server = Server::with_everything("");
    let mut admin = server.connect_admin();
    let more = format!("{ONLY_VIP}\n[[audience]]\nname = \"more\"");
    server.write_config("", &more);
    let detail = reload(&mut admin).problem(422, "bad_config");
    assert!(detail.contains("audience more is not in the store"), "{detail}");
    let mut client = server.connect();
    client.get(&format!("/v1/check/old_users/{}", OLD_USERS[0].1)).ok();
    client.get(&format!("/v1/check/more/{}", OLD_USERS[0].1)).problem(404, "unknown_audience");
    server.write_config("", &format!("{more}\nrequired = false"));
    reload(&mut admin).ok();
    client.get(&format!("/v1/check/more/{}", OLD_USERS[0].1)).problem(503, "not_loaded");
    server.write_config("", RULES);
    reload(&mut admin).ok();
    server.store.publish("more", &[key("md5", OLD_USERS[0].1)]);
    server.write_config("", &more);
    reload(&mut admin).ok();
    let answer = client.get(&format!("/v1/check/more/{}", OLD_USERS[0].1));
    assert_eq!(answer.text(), r#"{"member":true}"#, "served as soon as the reload is answered");
}

#[test]
fn what_takes_a_restart_is_told_and_the_rest_is_served() {
    let server = Server::with_everything("");
    let mut admin = server.connect_admin();
    server.write_config("max_in_flight = 1", &format!("{ONLY_VIP}\n[ids]\nblank = [\"junk\"]"));
    assert_eq!(reload(&mut admin).ok()["needs_restart"], json!(["server", "ids"]));
    assert_eq!(admin.get("/v1/status").ok()["strategies"], json!(["no-vip"]));
    server.write_config("", ONLY_VIP);
    assert_eq!(reload(&mut admin).ok()["needs_restart"], json!([]), "compared with what runs");
}
