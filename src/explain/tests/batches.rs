//! Requests of which each id is a device of its own.

use super::*;

const BATCH: &str = r#"
[[platform]]
kind = "custom"
name = "batch"
path = "/batch"
strategies = { 1 = "new", 2 = "vips" }
body = "json"
request = { request_id = "id", ids = { openid = "users" } }
response = { request_id = "id", code = { field = "code", bid = 0, no_bid = 1 }, accepted_ids = "users" }
"#;

#[test]
fn each_id_of_a_batch_is_decided_and_counted_as_a_device() {
    let telemetry = Telemetry::default();
    let catalog = catalog(&format!("{RULES}{BATCH}"), &telemetry);
    let fixture = Fixture {
        catalog,
        ids: IdReader::new(KeyMaker::default(), &telemetry),
        log_key: None,
    };
    let body = format!(r#"{{"id":"r1","users":["{OAID}","somebody","u1","","u1"]}}"#);
    let explanation = fixture.with_headers("batch", &[], body.as_bytes());
    let explained = serde_json::to_value(&explanation).unwrap();
    let answer = r#"{"id":"r1","code":0,"users":["somebody","u1","u1"]}"#;
    assert_eq!(explained["answer"]["text"], answer);
    assert_eq!(explained["failure"], Value::Null);
    assert_eq!(
        listed(&explained, "ids", &["value", "result"]),
        [
            &format!("{OAID}; usable"),
            "somebody; usable",
            "u1; usable",
            "; blank",
            "u1; usable",
        ]
    );
    assert_eq!(
        explained["ids"][0]["audiences"][0],
        json!({ "name": "old", "answer": "member" })
    );
    assert_eq!(explained["audiences"][0]["answer"], Value::Null);
    assert_eq!(
        listed(&explained, "strategies", &["id", "device", "reason"]),
        [
            &format!("1; {OAID}; member"),
            &format!("2; {OAID}; rule"),
            "1; somebody; not_member",
            "2; somebody; rule",
            "1; u1; not_member",
            "2; u1; rule",
            "1; ; no_device",
            "2; ; no_device",
            "1; u1; not_member",
            "2; u1; rule",
        ]
    );
    let text = explanation.to_string();
    assert!(text.contains("  1 of somebody  "), "{text}");
    for sentence in [
        "users is in old, which it excludes",
        "its rule vip holds; it would not if the device were not in vip",
    ] {
        assert_eq!(text.matches(sentence).count(), 1, "{sentence}\n{text}");
    }
    assert!(
        text.ends_with("\nAccepts 2 of 4 different ids, each a device of its own.\n"),
        "{text}"
    );

    assert_eq!(
        explained["answer"]["hex"],
        fixture.served("batch", body.as_bytes())
    );
    let metrics = telemetry.render();
    for (name, labels, count) in [
        (
            "rtad_decisions_total",
            r#"platform="batch",strategy="new",decision="bid",reason="not_member""#,
            3,
        ),
        (
            "rtad_decisions_total",
            r#"platform="batch",strategy="new",decision="no_bid",reason="member""#,
            1,
        ),
        (
            "rtad_decisions_total",
            r#"platform="batch",strategy="new",decision="no_bid",reason="no_device""#,
            1,
        ),
        (
            "rtad_decisions_total",
            r#"platform="batch",strategy="vips",decision="bid",reason="rule""#,
            1,
        ),
        (
            "rtad_ids_total",
            r#"platform="batch",kind="openid",result="usable""#,
            4,
        ),
        (
            "rtad_ids_total",
            r#"platform="batch",kind="openid",result="blank""#,
            1,
        ),
    ] {
        let is_line = |line: &&str| line.starts_with(name) && line.contains(labels);
        let line = metrics.lines().find(is_line).unwrap_or_default();
        assert!(line.ends_with(&format!(" {count}")), "{labels}: {line:?}");
    }
}

/// Ids beyond the limit get the `unavailable` answer, which is a bid of `any` alone.
#[test]
fn batch_has_a_limit_of_devices() {
    let batch = BATCH.replace("{ 1 = \"new\", 2 = \"vips\" }", "{ 1 = \"new\" }");
    let any = batch
        .replace("\"batch\"", "\"any\"")
        .replace("/batch", "/any");
    let any = any.replace("= \"new\"", "= \"any\"");
    let telemetry = Telemetry::default();
    let catalog = catalog(&format!("{RULES}{batch}{any}"), &telemetry);
    let fixture = Fixture {
        catalog,
        ids: IdReader::new(KeyMaker::default(), &telemetry),
        log_key: None,
    };
    let users = |count: usize| {
        let users: Vec<_> = (0..count).map(|n| format!("u{n}")).collect();
        (users.clone(), json!({ "users": users }).to_string())
    };
    for (platform, accepted, answered) in [("batch", MAX_IDS, 70), ("any", 70, 70)] {
        let (users, body) = users(answered);
        let explained = fixture.json(platform, body.as_bytes());
        let answer = json!({ "code": 0, "users": users[..accepted] }).to_string();
        assert_eq!(explained["answer"]["text"], answer, "{platform}");
        assert_eq!(explained["failure"]["cause"], "too_many_ids");
        let results = listed(&explained, "ids", &["result"]);
        assert_eq!(
            (&*results[MAX_IDS - 1], &*results[MAX_IDS]),
            ("usable", "not_looked_at")
        );
        let audience = if platform == "batch" {
            json!(["old"])
        } else {
            json!(["gone", "stale"])
        };
        assert_eq!(
            explained["strategies"][MAX_IDS]["unknown"]["audiences"],
            audience
        );
        assert_eq!(
            explained["answer"]["hex"],
            fixture.served(platform, body.as_bytes())
        );
        let failures = format!(
            "rtad_platform_failures_total{{platform=\"{platform}\",cause=\"too_many_ids\"}} 1"
        );
        assert!(
            telemetry.render().contains(&failures),
            "{}",
            telemetry.render()
        );
    }
    let (_, body) = users(MAX_IDS);
    assert_eq!(
        fixture.json("batch", body.as_bytes())["failure"],
        Value::Null
    );
    // No id is known, whatever the strategy answers.
    for body in [&b"{"[..], br#"{"users":[]}"#, b"{}"] {
        assert_eq!(
            fixture.json("any", body)["answer"]["text"],
            r#"{"code":1,"users":[]}"#
        );
        assert_eq!(
            fixture.json("any", body)["answer"]["hex"],
            fixture.served("any", body)
        );
    }
}
