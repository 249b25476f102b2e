//! Events of windows: exactly one `new` per key, counts, retries, full windows.

use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use serde_json::{Value, json};
use testkit::client::{Answer, metric};
use testkit::sandbox::Sandbox;
use testkit::wait_until;

use super::{WINDOW, ZONE, day, distinct_of, flags, info, keys, path, race, serve};
use crate::process::{Api, TOKEN};

#[test]
fn events_are_new_once_and_counted() {
    let sandbox = Sandbox::with_store();
    let serve = serve(&sandbox, &day());
    let mut api = serve.connect();
    let events = path("day", "events");
    let batch = json!({ "kind": "text", "ids": ["click-1", "click-2", "click-1", "", null] });
    let answer = api.post(&events, &batch).ok();
    let expected = json!({
        "new": [true, true, false, null, null],
        "counts": [1, 1, 2, null, null],
    });
    assert_eq!(answer, expected);
    for expected in [3, 3] {
        let answer = api
            .post(&events, &json!({ "kind": "text", "ids": ["click-1"] }))
            .ok();
        assert_eq!(answer, json!({ "new": [false], "counts": [expected] }));
    }
    let check = json!({ "kind": "text", "ids": ["click-1", "click-3", null] });
    for _ in 0..2 {
        let answer = api.post(&path("day", "check"), &check).ok();
        let expected = json!({ "seen": [true, false, null], "counts": [3, 0, null] });
        assert_eq!(answer, expected);
    }
    let answer = api.post(&path("day", "forget"), &check).ok();
    assert_eq!(answer, json!({ "forgotten": [true, false, null] }));
    let answer = api
        .post(&events, &json!({ "kind": "text", "ids": ["click-1"] }))
        .ok();
    assert_eq!(answer, json!({ "new": [true], "counts": [1] }));

    // The same device in JSON of its kind and in binary.
    let oaid = "8f3b6b1e-7c0a-4a5e-9c55-0123456789ab";
    api.post(&events, &json!({ "kind": "oaid", "ids": [oaid] }))
        .ok();
    let two = [
        DeviceKey::of_canonical(oaid.as_bytes()),
        DeviceKey::of_canonical(b"other"),
    ];
    assert_eq!(flags(&api.binary(&events, &two), 2), [false, true]);
    assert_eq!(
        flags(&api.binary(&path("day", "check"), &two), 2),
        [true, true]
    );

    let info = info(&mut api, "day");
    assert_eq!(
        (&info["length"], &info["time_zone"]),
        (&json!("day"), &json!(*ZONE))
    );
    assert_eq!(
        (&info["entries"], &info["events"]["duplicate"]),
        (&json!(4), &json!(4))
    );
    let metrics = serve.metrics();
    let counted = |result| {
        metric(
            &metrics,
            &format!("rtad_window_events_total{{window=\"day\",result=\"{result}\"}}"),
        )
    };
    assert_eq!(
        ["new", "duplicate", "unusable"].map(counted),
        [5.0, 4.0, 2.0]
    );
}

#[test]
fn invalid_requests_are_refused_and_counted_nowhere() {
    let sandbox = Sandbox::with_store();
    let serve = serve(&sandbox, &day());
    let mut api = serve.connect();
    let events = path("day", "events");
    let one = json!({ "ids": ["0123456789abcdef0123456789abcdef"] });
    api.post(&path("night", "events"), &one)
        .problem(404, "unknown_window");
    let kind = json!({ "kind": "email", "ids": ["x"] });
    let detail = api.post(&events, &kind).problem(404, "unknown_kind");
    assert!(detail.contains("openid, text"), "{detail}");
    api.ask("POST", &events, "[]").problem(400, "bad_body");
    api.post(&events, &json!({ "ids": "x" }))
        .problem(400, "bad_body");
    api.post(&events, &json!({ "ids": vec!["x"; 10_001] }))
        .problem(413, "too_large");
    api.binary(&events, &keys(0..10_001))
        .problem(413, "too_large");
    api.0
        .request("POST", &events, "", one.to_string())
        .problem(401, "unauthorized");
    assert_eq!(info(&mut api, "day")["entries"], 0);
}

/// The zone has noon now: the day before has ended, and today has begun an hour ago.
#[test]
fn events_of_an_ended_day_are_reported_apart() {
    let sandbox = Sandbox::with_store();
    let hour = "[[window]]\nname = \"hour\"\nlength = \"1h\"\ncapacity = 1000\n";
    let serve = serve(&sandbox, &format!("{}{hour}", day()));
    let mut api = serve.connect();
    let now = now_unix_seconds();
    let mut count = |window, id: &str, at: Value| {
        let batch = json!({ "kind": "text", "ids": [id, null], "at_unix_seconds": at });
        api.post(&path(window, "events"), &batch)
    };
    let late = json!({ "new": [null, null], "counts": [null, null], "late": 1 });
    let new = json!({ "new": [true, null], "counts": [1, null] });
    for (window, id, at, expected) in [
        ("day", "a", json!(now - 24 * 3600), &late),
        ("day", "a", json!(now - 3600), &new),
        ("day", "b", Value::Null, &new),
        // The clock of the client is ahead.
        ("day", "c", json!(now + 60), &new),
        ("hour", "a", json!(now - 2 * 3600), &late),
        ("hour", "a", json!(now - 1800), &new),
    ] {
        assert_eq!(count(window, id, at).ok(), *expected, "{window} {id}");
    }
    let detail = count("day", "d", json!(now * 1000)).problem(400, "bad_body");
    assert!(detail.contains("divide milliseconds by 1,000"), "{detail}");
    count("day", "d", json!("soon")).problem(400, "bad_body");

    let binary = |at: u64| path("day", &format!("events?at_unix_seconds={at}"));
    let keys = keys(0..3);
    let late = api.binary(&binary(now - 24 * 3600), &keys);
    assert_eq!(flags(&late, 3), [false; 3]);
    assert_eq!(late.header("rtad-late"), Some("3"));
    let counted = api.binary(&binary(now), &keys);
    assert_eq!(
        (flags(&counted, 3), counted.header("rtad-late")),
        (vec![true; 3], None)
    );
    // The time belongs to the request of a key.
    let with_key = "Idempotency-Key: 1\r\n";
    let first = api.binary_with(with_key, &binary(now), &keys);
    assert_eq!(flags(&first, 3), [false; 3]);
    api.binary_with(with_key, &binary(now - 1), &keys)
        .problem(422, "idempotency_key_reused");
    let twice = format!("{with_key}{with_key}");
    api.binary_with(&twice, &binary(now), &keys)
        .problem(400, "bad_body");
    api.binary(&binary(now * 1000), &keys)
        .problem(400, "bad_body");
    // An ignored time would count in the wrong day.
    let batch = json!({ "kind": "text", "ids": ["e"] });
    api.post(&binary(now - 24 * 3600), &batch)
        .problem(400, "bad_body");
    for route in ["check", "forget"] {
        let batch = json!({ "kind": "text", "ids": ["a"], "at_unix_seconds": now });
        api.post(&path("day", route), &batch)
            .problem(400, "bad_body");
    }

    let metrics = serve.metrics();
    let counted = |window: &str| {
        let labels = format!("{{window=\"{window}\",result=\"late\"}}");
        metric(&metrics, &format!("rtad_window_events_total{labels}"))
    };
    assert_eq!((counted("day"), counted("hour")), (4.0, 1.0));
    assert_eq!(info(&mut api, "day")["events"]["late"], 4);
}

fn post_with_key(api: &mut Api, window: &str, key: &str, body: &Value) -> Answer {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nIdempotency-Key: {key}\r\n");
    api.0
        .request("POST", &path(window, "events"), &headers, body.to_string())
}

#[test]
fn retry_with_its_idempotency_key_gets_the_first_answer() {
    let sandbox = Sandbox::with_store();
    let mut windows = serve(&sandbox, WINDOW);
    let body = json!({ "kind": "text", "ids": ["a", "b", "a"] });
    let send = |api: &mut Api, key: &str, body: &Value| post_with_key(api, "w", key, body);
    let mut api = windows.connect();
    let first = send(&mut api, "k1", &body).ok();
    assert_eq!(
        first,
        json!({ "new": [true, true, false], "counts": [1, 1, 2] })
    );
    assert_eq!(send(&mut api, "k1", &body).ok(), first);
    windows.kill();
    windows = serve(&sandbox, WINDOW);
    api = windows.connect();
    assert_eq!(send(&mut api, "k1", &body).ok(), first);
    let other = json!({ "kind": "text", "ids": ["c"] });
    send(&mut api, "k1", &other).problem(422, "idempotency_key_reused");
    let again = send(&mut api, "k2", &body).ok();
    assert_eq!(again["new"], json!([false, false, false]));
}

#[test]
fn events_that_find_a_window_full_are_new() {
    let sandbox = Sandbox::with_store();
    let window =
        "[[window]]\nname = \"w\"\nlength = \"10m\"\ncapacity = 1\ndurability = \"store\"\n";
    let serve = serve(&sandbox, window);
    let mut api = serve.connect();
    let text = |range: std::ops::Range<u32>| {
        let ids: Vec<String> = range.map(|n| n.to_string()).collect();
        json!({ "kind": "text", "ids": ids })
    };
    // Room for 32 keys.
    api.post(&path("w", "events"), &text(0..32)).ok();
    for _ in 0..2 {
        let full = api.post(&path("w", "events"), &text(32..100)).ok();
        assert_eq!(full["new"], json!(vec![true; 68]));
        assert_eq!(full["counts"], json!(vec![1; 68]));
    }
    let checked = api.post(&path("w", "check"), &text(32..100)).ok();
    assert_eq!(checked["seen"], json!(vec![false; 68]));
    let known = api.post(&path("w", "events"), &text(0..32)).ok();
    assert_eq!(known["new"], json!(vec![false; 32]));

    assert_eq!(info(&mut api, "w")["events"]["full"], 136);
    let full = "rtad_window_events_total{window=\"w\",result=\"full\"}";
    wait_until("the metric", || metric(&serve.metrics(), full) == 136.0);
}

/// Two million events with 149,000 duplicates from 64 connections; ten million in a long run.
#[test]
fn each_of_millions_of_events_is_new_once() {
    let events = std::env::var("EVENTS").map_or(2_000_000, |text| text.parse().unwrap());
    let sandbox = Sandbox::with_store();
    let serve = serve(
        &sandbox,
        &format!(
            "[[window]]\nname = \"w\"\nlength = \"24h\"\ncapacity = {}\ncount = 2\n",
            distinct_of(events)
        ),
    );
    let distinct = race(&serve, 64, events);
    let counted = |result| {
        let name = format!("rtad_window_events_total{{window=\"w\",result=\"{result}\"}}");
        metric(&serve.metrics(), &name) as u64
    };
    let expected = [distinct, events - distinct, 0];
    assert_eq!(["new", "duplicate", "full"].map(counted), expected);
}
