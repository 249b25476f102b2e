//! Audiences that follow a window.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rtad_core::device::{DeviceKey, IdKind};
use serde_json::json;
use testkit::client::metric;
use testkit::sandbox::{Sandbox, ids};
use testkit::wait_until;

use super::{day, flags, keys, members, members_in, path, serve, serve_over};
use crate::process::{Api, Serve, key};

#[test]
fn audience_follows_counts_erasure_and_restarts() {
    let windows = format!(
        "{}[[audience]]\nname = \"clicked\"\nfrom_window = \"day\"\n\
         [[audience]]\nname = \"clicked-out\"\nfrom_window = \"day\"\nmin_count = 3\n",
        day()
    );
    let sandbox = Sandbox::with_store();
    let mut windows_of = serve(&sandbox, &windows);
    let mut api = windows_of.connect();
    let keys = keys(0..4);
    let send = |api: &mut Api, numbers: &[usize]| {
        let keys: Vec<DeviceKey> = numbers.iter().map(|number| keys[*number]).collect();
        flags(&api.binary(&path("day", "events"), &keys), keys.len())
    };
    send(&mut api, &[0, 1, 1, 2, 2, 2, 2]);
    wait_until("both audiences have their members", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 2])
            && members(&sandbox, "clicked-out", &keys) == HashSet::from([2])
    });
    send(&mut api, &[1]);
    wait_until("a third event", || {
        members(&sandbox, "clicked-out", &keys) == HashSet::from([1, 2])
    });
    let erased = api.binary(&path("day", "forget"), &[keys[2]]);
    assert_eq!(flags(&erased, 1), [true]);
    wait_until("the erased device leaves both", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1])
            && members(&sandbox, "clicked-out", &keys) == HashSet::from([1])
    });
    // A click id is no device.
    let clicks = json!({ "kind": "text", "ids": ["click-1"] });
    api.post(&path("day", "events"), &clicks).ok();
    let message =
        "ids of kind text match no device in an audience; send device ids with their kind";
    assert_eq!(windows_of.log(message, 1)["audience"], "clicked");
    // Only the window decides, except for tombstones.
    let write = |op: &str| json!({ "op": op, "ids": ["0123456789abcdef0123456789abcdef"] });
    let devices = "/v1/audiences/clicked/devices";
    api.post(devices, &write("add")).problem(409, "owned");
    api.ask("DELETE", "/v1/audiences/clicked", "")
        .problem(409, "owned");
    let elsewhere = Serve::over(&sandbox, "{}/s", "--every 5ms");
    for op in ["add", "remove", "add_if_absent"] {
        let answer = elsewhere.connect().post(devices, &write(op));
        answer.problem(409, "owned");
    }
    elsewhere.connect().post(devices, &write("tombstone")).ok();
    api.post(devices, &write("tombstone")).ok();
    let entombed = [key("0123456789abcdef0123456789abcdef")];
    api.binary(&path("day", "events"), &entombed);
    send(&mut api, &[3]);
    wait_until("an event after a tombstone", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 3])
    });
    assert!(members(&sandbox, "clicked", &entombed).is_empty());
    api.post(devices, &write("lift")).ok();
    wait_until("an event before the tombstone was lifted", || {
        members(&sandbox, "clicked", &entombed).len() == 1
    });
    let lag = "rtad_window_audience_lag_seconds{audience=\"clicked\"}";
    wait_until("nothing waits", || {
        metric(&windows_of.metrics(), lag) == 0.0
    });
    drop(api);
    windows_of.signal("TERM");
    assert_eq!(windows_of.wait().status, Some(0));
    windows_of = serve(&sandbox, &windows);
    api = windows_of.connect();
    assert_eq!(send(&mut api, &[0, 2]), [false, true]);
    wait_until("the audience of the restarted process", || {
        members(&sandbox, "clicked", &keys) == HashSet::from([0, 1, 2, 3])
    });
}

/// The steps of the guide, without the wait of one length.
#[test]
fn window_grows_under_another_name() {
    let follower = |name: &str, window: &str| {
        format!("[[audience]]\nname = \"{name}\"\nfrom_window = \"{window}\"\nmin_count = 2\n")
    };
    let larger = day()
        .replace("\"day\"\nlength", "\"day-2\"\nlength")
        .replace("100_000", "200_000");
    let before = format!("{}{}", day(), follower("often", "day"));
    let both = format!("{before}{larger}{}", follower("often-2", "day-2"));
    let after = format!("{larger}{}", follower("often", "day-2"));
    let sandbox = Sandbox::with_store();
    let keys = keys(0..3);
    let send = |api: &mut Api, window: &str, keys: &[DeviceKey]| {
        flags(&api.binary(&path(window, "events"), keys), keys.len())
    };
    let stop = |serve: Serve| {
        serve.signal("TERM");
        assert_eq!(serve.wait().status, Some(0));
    };
    let running = serve(&sandbox, &before);
    send(&mut running.connect(), "day", &[keys[0], keys[0]]);
    stop(running);

    let running = serve(&sandbox, &both);
    let mut api = running.connect();
    for (window, expected) in [("day", [false, true]), ("day-2", [true, true])] {
        assert_eq!(send(&mut api, window, &keys[..2]), expected);
        send(&mut api, window, &keys[1..2]);
    }
    wait_until("both audiences", || {
        members(&sandbox, "often", &keys) == HashSet::from([0, 1])
            && members(&sandbox, "often-2", &keys) == HashSet::from([1])
    });
    drop(api);
    stop(running);

    let running = serve(&sandbox, &after);
    let mut api = running.connect();
    wait_until("the audience of the new window", || {
        members(&sandbox, "often", &keys) == HashSet::from([1])
    });
    assert_eq!(send(&mut api, "day-2", &keys), [false, false, true]);
    api.ask("DELETE", "/v1/audiences/often-2", "").ok();
    for folder in ["state/day", "s/.windows/day"] {
        std::fs::remove_dir_all(sandbox.path().join(folder)).unwrap();
    }
    drop(api);
    stop(running);
    assert_eq!(
        send(&mut serve(&sandbox, &after).connect(), "day-2", &keys),
        [false; 3]
    );
}

#[test]
fn audience_of_a_sliding_window_loses_expired_devices() {
    let keys = keys(0..3);
    // A busy machine may take longer to publish members than they stay.
    let published = |seconds: &u64| {
        let length = Duration::from_secs(*seconds);
        let windows = format!(
            "[[window]]\nname = \"w\"\nlength = \"{seconds}s\"\ncapacity = 1000\n\
             [[audience]]\nname = \"recent\"\nfrom_window = \"w\"\n"
        );
        let sandbox = Sandbox::with_store();
        let serve = serve(&sandbox, &windows);
        let mut api = serve.connect();
        let mut send = |sent: &[DeviceKey], are_there: fn(&HashSet<usize>) -> bool| {
            let begun = Instant::now();
            api.binary(&path("w", "events"), sent);
            wait_until("members", || {
                begun.elapsed() >= length || are_there(&members(&sandbox, "recent", &keys))
            });
            begun.elapsed() < length
        };
        let begun = Instant::now();
        let are_first = send(&keys[..2], |found| *found == HashSet::from([0, 1]));
        // The second event of a key does not prolong its entry.
        std::thread::sleep((length / 2).saturating_sub(begun.elapsed()));
        let is_third = send(&keys[1..], |found| found.contains(&2));
        (are_first && is_third).then_some((sandbox, serve, api, begun, length))
    };
    let (sandbox, _serve, mut api, begun, length) =
        [10, 60, 240].iter().find_map(published).unwrap();
    wait_until("expiry", || {
        members(&sandbox, "recent", &keys).is_disjoint(&[0, 1].into())
    });
    assert!(begun.elapsed() >= length);
    wait_until("expiry of the last", || {
        members(&sandbox, "recent", &keys).is_empty()
    });
    let answer = api.binary(&path("w", "events"), &keys);
    assert_eq!(flags(&answer, 3), [true; 3]);
}

/// 2,000 events per second, in a directory or a bucket: the audience follows while they come.
#[test]
fn audience_follows_a_stream_of_events() {
    let windows = format!(
        "{}[[audience]]\nname = \"clicked\"\nfrom_window = \"day\"\n",
        day()
    );
    let sandbox = Sandbox::with_store();
    let store = sandbox.store_path();
    let serve = serve_over(&sandbox, &store, &windows);
    let mut api = serve.connect();
    let all: Vec<DeviceKey> = ids(IdKind::Md5, 0..10_000)
        .iter()
        .map(|id| key(id))
        .collect();
    for keys in all.chunks(200) {
        assert_eq!(
            flags(&api.binary(&path("day", "events"), keys), keys.len()).len(),
            200
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let has_all = || members_in(&store, "clicked", &all).len() == all.len();
    wait_until("all are members", has_all);
    let sequence = api.get("/v1/audiences/clicked").ok()["sequence"].clone();
    assert!(sequence.as_u64().unwrap() > 5, "{sequence}");
    let lag = "rtad_window_audience_lag_seconds{audience=\"clicked\"}";
    wait_until("nothing waits", || metric(&serve.metrics(), lag) == 0.0);
}
