//! Windows in Redis.

use serde_json::{Value, json};
use testkit::client::metric;
use testkit::port::free_port;
use testkit::redis::Redis;
use testkit::sandbox::Sandbox;
use testkit::wait_until;

use super::{info, path, race, serve};
use crate::process::{Api, Serve, TOKEN};

/// Two owners share a window in Redis: each of the events is new once. `EVENTS` sets the number.
#[test]
fn owners_share_a_window_in_redis() {
    let sandbox = Sandbox::with_store();
    let redis = Redis::start();
    let backend = redis.url();
    let window = format!(
        "[[window]]\nname = \"w\"\nlength = \"1h\"\nbackend = {backend:?}\n\
         backend_timeout = \"10s\"\n"
    );
    let serves = [serve(&sandbox, &window), serve(&sandbox, &window)];
    race(&[&serves[0], &serves[1]], 8, 400_000);

    let [mut one, mut other] = [serves[0].connect(), serves[1].connect()];
    let ids = json!({ "kind": "text", "ids": ["a", "b", ""] });
    let answer = one.post(&path("w", "events"), &ids).ok();
    assert_eq!(
        answer,
        json!({ "new": [true, true, null], "counts": [1, 1, null] })
    );
    let answer = other.post(&path("w", "check"), &ids).ok();
    assert_eq!(answer["seen"], json!([true, true, null]));
    let answer = other.post(&path("w", "forget"), &ids).ok();
    assert_eq!(answer, json!({ "forgotten": [true, true, null] }));
    // A retry at any owner gets the first answer. An owner counts it once.
    let send = |api: &mut Api, key: &str, ids: &Value| {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nIdempotency-Key: {key}\r\n");
        api.0
            .request("POST", &path("w", "events"), &headers, ids.to_string())
            .ok()["new"]
            .clone()
    };
    let counted = |serve: &Serve| {
        let metrics = serve.metrics();
        ["new", "duplicate", "unusable"].map(|result| {
            let labels = format!("window=\"w\",result=\"{result}\"");
            metric(&metrics, &format!("rtad_window_events_total{{{labels}}}")) as i64
        })
    };
    for (serve, api) in serves.iter().zip([&mut one, &mut other]) {
        let before = counted(serve);
        let rise = || {
            let now = counted(serve);
            [0, 1, 2].map(|index| now[index] - before[index])
        };
        for _ in 0..3 {
            assert_eq!(send(api, "k", &ids), json!([true, true, null]));
            assert_eq!(rise(), [2, 0, 1]);
        }
        // The key of another request, and another key.
        send(api, "k", &json!({ "kind": "text", "ids": ["a"] }));
        assert_eq!(rise(), [3, 0, 1]);
        send(api, "k2", &json!({ "kind": "text", "ids": ["a"] }));
        assert_eq!(rise(), [3, 1, 1]);
    }
    assert_eq!(info(&mut one, "w")["backend"], "redis");
    drop(redis);
    one.post(&path("w", "events"), &ids).problem(503, "backend");
    let writable = "rtad_window_writable{window=\"w\"}";
    wait_until("the failure shows", || {
        metric(&serves[0].metrics(), writable) == 0.0
    });
}

#[test]
fn full_server_says_that_a_part_may_be_counted() {
    let sandbox = Sandbox::with_store();
    let full = ["--maxmemory", "1", "--maxmemory-policy", "noeviction"];
    let redis = Redis::start_with("redis-server".as_ref(), free_port(), &full);
    let backend = redis.url();
    let window = format!("[[window]]\nname = \"w\"\nlength = \"1h\"\nbackend = {backend:?}\n");
    let serve = serve(&sandbox, &window);
    let mut api = serve.connect();
    let answer = api.post(
        &path("w", "events"),
        &json!({ "kind": "text", "ids": ["a"] }),
    );
    let detail = answer.problem(503, "window_full");
    assert!(
        detail.contains("some events may have been counted"),
        "{detail}"
    );
}
