//! `rtad explain`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use testkit::process::{Outcome, run};

use crate::fixture::{PLATFORMS, RULES, TestStore, key};
use crate::rtad_process::command;
use testkit::platform::{OCEAN_REQUEST, REQUEST_IMEI_MD5, TENCENT_REQUEST};
use testkit::store::record_path;

/// A store where the device of the two requests is an old user, and its config.
fn served() -> (TestStore, PathBuf) {
    let store = TestStore::empty();
    store.publish("old_users", &[key("md5", REQUEST_IMEI_MD5)]);
    let file = store.config_file("max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}"));
    (store, file)
}

fn explain(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> Outcome {
    let base = [
        "explain",
        "--config",
        config.to_str().unwrap(),
        "--platform",
        platform,
    ];
    run(&mut command(&[&base[..], more, &["-"]].concat(), &[]), body)
}

fn text(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> String {
    let output = explain(config, platform, more, body);
    assert_eq!(
        (output.status, output.stderr.as_str()),
        (Some(0), ""),
        "{output:?}"
    );
    output.stdout
}

fn json(config: &Path, platform: &str, body: &[u8]) -> Value {
    serde_json::from_str(&text(config, platform, &["--json"], body)).unwrap()
}

fn usage_error(config: &Path, platform: &str, more: &[&str], body: &[u8]) -> String {
    let output = explain(config, platform, more, body);
    assert_eq!(
        (output.status, output.stdout.len()),
        (Some(2), 0),
        "{output:?}"
    );
    output.stderr
}

#[test]
fn text_lists_ids_memberships_and_decisions() {
    let (_store, config) = served();
    let text = text(&config, "tencent", &[], TENCENT_REQUEST.as_bytes());
    for line in [
        "Platform tencent, protocol tencent, path /rta/tencent",
        "Body     104 bytes, decoded from hex",
        "Access   not checked: the platform's headers were not given",
        "  request_id            Jo825w_uEe2xLlJUAFwvSQ",
        "  cached_deviceid_type  CACHED_OAID_MD5",
        "Ids: 2 found, 2 usable",
        "  device.imei_md5sum  imei_md5  usable  8d3ebd3654fb46a2832296669cf1b536",
        "    shard 8d3e, in old_users, missing unavailable",
        "    shard 83e9, not in old_users, missing unavailable",
        "  T1001  new-users      no bid  member: device.imei_md5sum is in old_users, which it \
            excludes",
        "Answer   200, 33 bytes, no content type",
        "  code: 0",
        "  out_target_id: [\"T1002\"]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(
        text.contains("  missing    unavailable  audience missing is not in the store: publish it"),
        "{text}"
    );
    assert_eq!(
        text.lines().last(),
        Some(
            "No bid for T1001, because device.imei_md5sum is in old_users, which it excludes; \
             bid for T1002, because \
             missing is unavailable, and its `unavailable` answer is bid."
        )
    );
}

/// The name is that of `src/log/key.rs`: `868049039501257` under this secret.
#[test]
fn device_has_its_name_of_the_decision_log() {
    let (store, config) = served();
    let before = text(&config, "tencent", &[], TENCENT_REQUEST.as_bytes());
    assert!(!before.contains("decision log"), "{before}");

    let log = "[log]\nto = \"log\"\nkey_secret = \"0123456789abcdef\"\n";
    let config = store.config_file("max_body = \"1KiB\"", &format!("{RULES}{PLATFORMS}{log}"));
    let explained = text(&config, "ocean", &[], OCEAN_REQUEST.as_bytes());
    let line = "Device in the decision log: 7460cbe53605aee394a38fdc30c478f5";
    assert!(explained.lines().any(|found| found == line), "{explained}");
    // The platform caches the answer by the other id.
    let explained = json(&config, "tencent", TENCENT_REQUEST.as_bytes());
    let name = explained["log_device"].as_str().unwrap();
    assert_ne!(name, "7460cbe53605aee394a38fdc30c478f5");
    let unread = json(&config, "tencent", b"ff");
    assert_eq!(unread.get("log_device"), None);
}

#[test]
fn request_to_decide_is_explained() {
    let (store, config) = served();
    // Only the audiences of the named strategies are loaded.
    let records = store.path().join("vip/records");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join("00000000000000000001.json"), "broken").unwrap();
    let device = serde_json::json!({ "oaid": "a b", "imei_md5": REQUEST_IMEI_MD5 });
    let request = serde_json::json!({ "strategies": ["new-users"], "device": device });
    let explained = text(&config, "api", &[], request.to_string().as_bytes());
    for line in [
        "Platform api, protocol api, path /v1/decide",
        "Access   closed: /v1/decide answers 404 beside platforms, unless [server.api] opens it",
        "Ids: 2 found, 1 usable",
        "  device.oaid      oaid      malformed  a b",
        "    shard 8d3e, in old_users",
        "  new-users  new-users  no bid  member: device.imei_md5 is in old_users, which it excludes",
        "Answer   200, 70 bytes, application/json",
        r#"  {"decisions":[{"strategy":"new-users","bid":false,"reason":"member"}]}"#,
        "No bid for new-users, because device.imei_md5 is in old_users, which it excludes.",
    ] {
        assert!(
            explained.lines().any(|found| found == line),
            "{line} in\n{explained}"
        );
    }

    let refused = text(&config, "api", &[], br#"{"strategies":["new"]}"#);
    let because = "Rejected, because it names a strategy that the config does not have; accepted: \
                   new-users, vip-only, new-vip, needs-missing, needs-fresh.";
    assert_eq!(refused.lines().last(), Some(because));
    let refused = json(&config, "api", br#"{"devices":{}}"#);
    assert_eq!(refused["answer"]["status"], 400);
    assert_eq!(refused["failure"]["cause"], "bad_body");
}

/// Only a pod knows the counts of a cap.
#[test]
fn unchecked_caps_of_bids_are_named() {
    let (store, config) = served();
    let strategy = "name = \"needs-missing\"";
    let capped = format!("{strategy}\ncap = \"daily\"");
    let cap = "[[cap]]\nname = \"daily\"\nlimit = 1\nperiod = \"day\"\ntime_zone = \"UTC\"\n";
    let rules = format!("{}{cap}{PLATFORMS}", RULES.replace(strategy, &capped));
    let before = json(&config, "tencent", TENCENT_REQUEST.as_bytes());
    assert!(before.get("unchecked_caps").is_none());
    let config = store.config_file("max_body = \"1KiB\"", &rules);
    let explained = json(&config, "tencent", TENCENT_REQUEST.as_bytes());
    assert_eq!(explained["unchecked_caps"], serde_json::json!(["daily"]));
    let text = text(&config, "tencent", &[], TENCENT_REQUEST.as_bytes());
    let line = concat!(
        "Caps     not checked: daily. A pod knows its counts: ",
        "POST /v1/explain/tencent on its admin port"
    );
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[test]
fn headers_are_checked_and_never_printed() {
    let (_store, config) = served();
    for (header, answer) in [
        ("X-Rta-Token: hush-hush", "10013880a305"),
        ("Accept: hush/*", "1001"),
    ] {
        let more = ["--header", header, "--query", "token=hush"];
        let text = text(&config, "tencent", &more, b"2a00");
        assert!(
            text.contains(&format!("  {answer}\n")) && !text.contains("hush"),
            "{text}"
        );
    }
    let error = usage_error(&config, "tencent", &["--header", "hush-hush"], b"");
    assert_eq!(
        error,
        "error: --header; accepted: a name, a colon and a value\n"
    );
}

#[test]
fn only_audiences_of_the_platform_are_loaded() {
    let (store, config) = served();
    // The platform's strategies do not use vip, so its broken record is not read.
    for audience in ["vip", "old_users"] {
        let record = store.path().join(audience).join(record_path(1));
        std::fs::create_dir_all(record.parent().unwrap()).unwrap();
        std::fs::write(record, "broken").unwrap();
    }
    let explained = json(&config, "ocean", OCEAN_REQUEST.as_bytes());
    let names: Vec<_> = explained["audiences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["old_users"]);
    assert_eq!(explained["audiences"][0]["answer"], "unavailable");
    assert_eq!(explained["strategies"][0]["reason"], "unavailable");
}

#[test]
fn mistakes_name_what_is_accepted() {
    let (_store, config) = served();
    let error = usage_error(&config, "tencen", &[], b"");
    assert_eq!(
        error,
        "error: --platform \"tencen\"; accepted: tencent, ocean, api\n"
    );
    let error = usage_error(Path::new("/none.toml"), "tencent", &[], b"");
    assert!(
        error.starts_with("error: /none.toml: No such file"),
        "{error}"
    );
}
