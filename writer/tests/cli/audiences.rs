//! Changes of whole audiences through the writer.

use std::io::Write as _;

use rtad_core::device::IdKind;
use serde_json::{Value, json};
use testkit::sandbox::{Sandbox, ids, lines, loader};

use crate::process::{AUDIENCE, Api, DEVICES, Serve, count, stored};
use testkit::process::{outcome, spawn};
use testkit::wait_until;

fn states(list: &Value) -> Vec<(&str, &str)> {
    let audiences = list["audiences"].as_array().unwrap();
    audiences
        .iter()
        .map(|info| {
            (
                info["audience"].as_str().unwrap(),
                info["state"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn audience_lifecycle() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.get(AUDIENCE).problem(404, "unknown_audience");
    assert_eq!(api.get("/v1/audiences").ok(), json!({"audiences": []}));

    let created = api.ask("PUT", AUDIENCE, r#"{"fpr": 0.001, "filter": "block512"}"#);
    assert_eq!(
        (created.status, created.json()),
        (201, json!({"audience": "a", "sequence": 1}))
    );
    api.ask("PUT", AUDIENCE, "").problem(409, "exists");
    let all = ids(IdKind::Md5, 0..100);
    api.write("add", &all[..60]);
    api.write("remove", &all[..5]);
    api.write("tombstone", &all[5..8]);
    let info = api.get(AUDIENCE).ok();
    for (field, value) in [
        ("audience", json!("a")),
        ("state", json!("live")),
        ("sequence", json!(4)),
        ("generation", json!(1)),
        ("keys", json!(0)),
        ("filter", json!("block512")),
        ("target_fpr", json!(0.001)),
        ("added", json!(60)),
        ("removed", json!(5)),
        ("tombstones", json!(3)),
    ] {
        assert_eq!(info[field], value, "{field} of {info}");
    }
    assert!(
        info["created_unix_seconds"].as_u64() > Some(1_700_000_000) && info["age_seconds"].is_u64()
    );
    assert!(info["appended_unix_seconds"].is_u64() && info.get("expires_unix_seconds").is_none());

    let order = |api: &mut Api, what: &str, body: &str| {
        api.ask("POST", &format!("{AUDIENCE}/{what}"), body).ok()["sequence"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(order(&mut api, "disable", ""), 5);
    assert_eq!(order(&mut api, "disable", ""), 5, "already disabled");
    assert_eq!(api.get(AUDIENCE).ok()["state"], "disabled");
    api.post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(409, "disabled");
    assert_eq!(
        order(&mut api, "expire", r#"{"at_unix_seconds": 4000000000}"#),
        6
    );
    assert_eq!(
        api.get(AUDIENCE).ok()["expires_unix_seconds"],
        4_000_000_000_u64
    );
    assert_eq!(order(&mut api, "enable", ""), 7);
    assert_eq!(order(&mut api, "expire", r#"{"at_unix_seconds": null}"#), 8);
    let info = api.get(AUDIENCE).ok();
    assert!(
        info["state"] == "live" && info.get("expires_unix_seconds").is_none(),
        "{info}"
    );
    api.ask("POST", "/v1/audiences/a/expire", "{}")
        .problem(400, "bad_body");
    let detail = api
        .ask(
            "POST",
            "/v1/audiences/a/expire",
            r#"{"at_unix_seconds": 4000000000000}"#,
        )
        .problem(400, "bad_body");
    assert!(detail.contains("divide milliseconds by 1,000"), "{detail}");
    api.ask(
        "POST",
        "/v1/audiences/a/expire",
        r#"{"at_unix_seconds": -1}"#,
    )
    .problem(400, "bad_body");

    assert_eq!(
        api.ask("DELETE", AUDIENCE, "").ok(),
        json!({"audience": "a", "sequence": 9})
    );
    assert_eq!(api.ask("DELETE", AUDIENCE, "").ok()["sequence"], 9);
    let info = api.get(AUDIENCE).ok();
    assert!(
        info["state"] == "deleted" && info.get("keys").is_none(),
        "{info}"
    );
    assert_eq!(states(&api.get("/v1/audiences").ok()), [("a", "deleted")]);
    // The tombstones stay too.
    let names: Vec<_> = sandbox.store().into_keys().collect();
    let is_kept = |name: &&String| {
        name.starts_with("a/records/") || name.ends_with(".delta") || *name == "a/LATEST"
    };
    assert_eq!(names.iter().find(|name| !is_kept(name)), None, "{names:?}");
    api.post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(410, "deleted");
    for what in ["disable", "enable"] {
        api.ask("POST", &format!("{AUDIENCE}/{what}"), "")
            .problem(410, "deleted");
    }

    let created = api.ask("PUT", AUDIENCE, "");
    assert_eq!(
        (created.status, created.json()["sequence"].as_u64()),
        (201, Some(10))
    );
    assert_eq!(api.get(AUDIENCE).ok()["generation"], 2);
    // Erased devices stay erased until their tombstones are lifted.
    api.write("lift", &all[5..8]);
    let new = api.write("add_if_absent", &all)["new"].clone();
    assert!(
        new.as_array().unwrap().iter().all(|new| *new == true),
        "a recreated audience is empty"
    );
    assert_eq!(count(&stored(&sandbox), &all), 100);
    // The loader works on it too.
    sandbox.file("ids", lines(&all[..10]));
    assert_eq!(sandbox.build("{}/ids")["generation"], 3);
    // The build includes the online writes, although its input has a tenth of them.
    assert_eq!(api.get(AUDIENCE).ok()["keys"], 100);
    assert_eq!(count(&stored(&sandbox), &all), 100);
}

#[test]
fn changes_by_other_writers_are_noticed() {
    let sandbox = Sandbox::with_store();
    let (first, second) = (Serve::start(&sandbox), Serve::start(&sandbox));
    let (mut one, mut other) = (first.connect(), second.connect());
    let all = ids(IdKind::Md5, 0..10);
    one.create();
    other.ask("PUT", AUDIENCE, "").problem(409, "exists");
    for api in [&mut one, &mut other] {
        api.write("add", &all[..1]);
    }
    one.ask("POST", "/v1/audiences/a/disable", "").ok();
    other
        .post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(409, "disabled");
    other.ask("POST", "/v1/audiences/a/enable", "").ok();
    one.write("add", &all[1..2]);
    // A member needs no write, but a removal by another writer is still noticed.
    assert_eq!(
        one.write("add_if_absent", &all[..2])["new"],
        json!([false, false])
    );
    other.write("remove", &all[..1]);
    assert_eq!(
        one.write("add_if_absent", &all[..2])["new"],
        json!([true, false])
    );
    other.ask("DELETE", AUDIENCE, "").ok();
    one.post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(410, "deleted");
    other.create();
    assert_eq!(
        one.write("add_if_absent", &all[..2])["new"],
        json!([true, true])
    );
}

#[test]
fn deletion_during_a_build_fails_the_build() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let all = ids(IdKind::Md5, 0..10);
    // The rejects file is created after the base was read.
    let mut build = spawn(&mut loader(
        sandbox.path(),
        "build --store {}/s --audience a --rejects {}/r -",
    ));
    wait_until("the build has read its base", || {
        sandbox.path().join("r").exists()
    });
    api.ask("DELETE", AUDIENCE, "").ok();
    let mut stdin = build.stdin.take().unwrap();
    stdin.write_all(lines(&all).as_bytes()).unwrap();
    drop(stdin);
    outcome(build).fails(6, "nothing was changed");
    assert_eq!(api.get(AUDIENCE).ok()["state"], "deleted");
}
