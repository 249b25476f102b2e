//! Durability of acknowledged writes: killed processes, failing stores, shutdown.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rtad_core::device::IdKind;
use serde_json::json;
use testkit::sandbox::{Sandbox, ids};

use crate::process::{DEVICES, Serve, count, snapshot, stored};
use testkit::client::metric;
use testkit::store::{bucket_url, newest_record};
use testkit::wait_until;

/// Requests of ten ids each.
const IDS: usize = 10;

/// Several clients write requests until one gets no answer, or `enough` were answered. Returns the
/// numbers of acknowledged and of unacknowledged requests.
fn load(
    serve: &Serve,
    op: &str,
    first: usize,
    enough: usize,
    then: impl FnOnce(),
) -> (Vec<usize>, Vec<usize>) {
    let (next, done) = (AtomicUsize::new(first), AtomicUsize::new(0));
    let (acknowledged, others) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut api = serve.connect();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    match api.try_write(op, &ids_of_request(number)) {
                        Some(_) => acknowledged.lock().unwrap().push(number),
                        None => return others.lock().unwrap().push(number),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_until("enough are answered", || {
            done.load(Ordering::Relaxed) >= enough
        });
        then();
    });
    (
        acknowledged.into_inner().unwrap(),
        others.into_inner().unwrap(),
    )
}

fn ids_of_request(number: usize) -> Vec<String> {
    let first = (number * IDS) as u64;
    ids(IdKind::Md5, first..first + IDS as u64)
}

/// Killed at random moments under load: acknowledged requests are stored, and every other request
/// is stored completely or not at all.
#[test]
fn acknowledged_writes_survive_a_kill() {
    let sandbox = Sandbox::with_store();
    Serve::start(&sandbox).connect().create();
    let (mut acknowledged, mut others, mut removed) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for round in 0..8 {
        let serve = Serve::over(&sandbox, "{}/s", "--every 0ms");
        let op = if round % 2 == 0 {
            "add"
        } else {
            "add_if_absent"
        };
        let first = round * 100_000;
        let (done, undone) = load(&serve, op, first, 5 + 17 * round, || serve.signal("KILL"));
        assert!(!undone.is_empty(), "it was killed under load");
        serve.kill();
        // The next process removes some of them.
        let serve = Serve::start(&sandbox);
        let mut api = serve.connect();
        for number in &done[..3] {
            api.write("remove", &ids_of_request(*number));
            removed.insert(*number);
        }
        acknowledged.extend(done);
        others.extend(undone);
        let snapshot = stored(&sandbox);
        for number in &acknowledged {
            let expected = if removed.contains(number) { 0 } else { IDS };
            assert_eq!(
                count(&snapshot, &ids_of_request(*number)),
                expected,
                "request {number} of round {round}"
            );
        }
        for number in &others {
            let found = count(&snapshot, &ids_of_request(*number));
            assert!(
                found == 0 || found == IDS,
                "{found} ids of request {number} of round {round}"
            );
        }
    }
    let files = sandbox.store();
    assert!(files.keys().filter(|name| name.ends_with(".delta")).count() > 0);
}

#[test]
fn shutdown_finishes_accepted_writes() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    serve.connect().create();
    let (done, undone) = load(&serve, "add", 0, 50, || serve.signal("TERM"));
    assert_eq!(serve.wait().status, Some(0));
    let snapshot = stored(&sandbox);
    assert!(
        done.iter()
            .all(|number| count(&snapshot, &ids_of_request(*number)) == IDS)
    );
    // Connections close after an answer, so requests without an answer were not read.
    assert!(
        undone
            .iter()
            .all(|number| count(&snapshot, &ids_of_request(*number)) == 0)
    );
}

#[test]
fn failing_store_acknowledges_nothing_until_it_recovers() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    let mut api = serve.connect();
    api.create();
    let all = ids(IdKind::Md5, 0..40);
    api.write("add", &all[..10]);
    // Root ignores permissions, so a file takes the path of the deltas folder instead.
    let (deltas, away) = (
        sandbox.path().join("s/a/deltas"),
        sandbox.path().join("away"),
    );
    std::fs::rename(&deltas, &away).unwrap();
    std::fs::write(&deltas, "").unwrap();
    for op in ["add", "remove", "tombstone", "add_if_absent"] {
        api.post(DEVICES, &json!({"op": op, "ids": all[..20]}))
            .problem(503, "store");
    }
    assert_eq!(serve.admin().get("/readyz").status, 200);
    std::fs::remove_file(&deltas).unwrap();
    std::fs::rename(&away, &deltas).unwrap();
    assert_eq!(count(&stored(&sandbox), &all), 10);
    let absent = api.write("add_if_absent", &all[5..20]);
    assert_eq!(
        absent["new"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|new| **new == true)
            .count(),
        10
    );
    assert_eq!(count(&stored(&sandbox), &all), 20);

    // The same for failing reads.
    let live = newest_record(&sandbox.path().join("s/a"));
    let bytes = std::fs::read(&live).unwrap();
    std::fs::write(&live, "{").unwrap();
    api.post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(503, "store");
    api.get("/v1/audiences/a").problem(503, "store");
    assert_eq!(
        api.get("/v1/audiences").ok()["audiences"][0]["fault"],
        "format"
    );
    std::fs::write(&live, bytes).unwrap();
    api.write("add", &all);
    assert_eq!(count(&stored(&sandbox), &all), 40);
    let failed = "rtad_writer_writes_total{audience=\"a\",op=\"add\",result=\"store\"}";
    assert_eq!(metric(&serve.metrics(), failed), 2.0);
    let logged = serve.log("not written", 1);
    assert_eq!(
        (&logged["audience"], &logged["level"]),
        (&json!("a"), &json!("WARN"))
    );
}

#[test]
fn overload_is_counted() {
    let sandbox = Sandbox::with_store();
    // The writer pauses after the first write for longer than this test.
    let serve = Serve::over(&sandbox, "{}/s", "--every 10m");
    let mut api = serve.connect();
    api.create();
    let all = ids(IdKind::Md5, 0..100_000);
    api.write("add", &all[..1]);
    let counted = |result| {
        let labels = format!("{{audience=\"a\",op=\"remove\",result=\"{result}\"}}");
        metric(
            &serve.metrics(),
            &format!("rtad_writer_writes_total{labels}"),
        )
    };
    // The limit of waiting keys of an audience.
    let mut others: Vec<_> = (0..31).map(|_| serve.connect()).collect();
    for (index, other) in others.iter_mut().enumerate() {
        other.send_write("remove", &all);
        let queued = (index + 1) as f64;
        wait_until("it is queued", || {
            metric(&serve.metrics(), "rtad_writer_queue") == queued
        });
    }
    api.post(DEVICES, &json!({"op": "remove", "ids": all}))
        .problem(503, "overloaded");
    assert_eq!(counted("overloaded"), 1.0);
    // Others have room, also one that does not exist.
    api.post(
        "/v1/audiences/b/devices",
        &json!({"op": "remove", "ids": all}),
    )
    .problem(404, "unknown_audience");
    assert!(!serve.metrics().contains("audience=\"b\""));
}

#[test]
fn two_processes_share_an_audience_in_a_bucket() {
    let Some(url) = bucket_url("serve") else {
        return;
    };
    let sandbox = Sandbox::with_store();
    let start = || Serve::over(&sandbox, &url, "--every 20ms");
    let serves = [start(), start()];
    serves[0].connect().create();
    let all = ids(IdKind::Md5, 0..2000);
    let new: usize = std::thread::scope(|scope| {
        let clients = serves.iter().cycle().take(4).map(|serve| {
            let all = &all;
            scope.spawn(move || {
                let mut api = serve.connect();
                let answers = all.chunks(300).map(|ids| api.write("add_if_absent", ids));
                let new = |answer: serde_json::Value| {
                    answer["new"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .filter(|new| **new == true)
                        .count()
                };
                answers.map(new).sum::<usize>()
            })
        });
        clients
            .collect::<Vec<_>>()
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    assert_eq!(new, all.len(), "each was new once");
    let mut api = serves[1].connect();
    api.write("remove", &all[..100]);
    let found = snapshot(&url);
    assert_eq!((count(&found, &all), count(&found, &all[..100])), (1900, 0));
    api.ask("DELETE", "/v1/audiences/a", "").ok();
    serves[0]
        .connect()
        .post(DEVICES, &json!({"op": "add", "ids": all}))
        .problem(410, "deleted");
    let created = api.ask("PUT", "/v1/audiences/a", "");
    assert_eq!(created.status, 201, "{created:?}");
    serves[0].connect().write("add", &all[..10]);
    assert_eq!(count(&snapshot(&url), &all), 10);
}
