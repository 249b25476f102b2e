//! Concurrency: many clients and several processes.

use std::collections::HashMap;
use std::sync::Mutex;

use rtad_core::device::IdKind;
use testkit::sandbox::{Sandbox, ids, lines};

use crate::process::{Serve, count, current, stored};
use testkit::client::metric;

const CLIENTS: usize = 8;

/// Adds all ids from all clients, in different orders and batch sizes. Returns how often each id
/// was new.
fn race(serves: &[&Serve], all: &[String]) -> HashMap<String, u32> {
    let new = Mutex::new(HashMap::new());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let new = &new;
            scope.spawn(move || {
                let mut api = serves[client % serves.len()].connect();
                let mut mine = all.to_vec();
                mine.rotate_left(client * all.len() / CLIENTS / 2);
                for ids in mine.chunks(200 + 37 * client) {
                    let answer = api.write("add_if_absent", ids);
                    let members = answer["new"].as_array().unwrap();
                    assert_eq!(
                        (members.len(), &answer["accepted"]),
                        (ids.len(), &ids.len().into())
                    );
                    let mut new = new.lock().unwrap();
                    for (id, _) in ids
                        .iter()
                        .zip(members)
                        .filter(|(_, is_new)| **is_new == true)
                    {
                        *new.entry(id.clone()).or_default() += 1;
                    }
                }
            });
        }
    });
    new.into_inner().unwrap()
}

#[test]
fn concurrent_clients_see_each_id_as_new_once() {
    let sandbox = Sandbox::with_store();
    let serve = Serve::start(&sandbox);
    serve.connect().create();
    let all = ids(IdKind::Md5, 0..10_000);
    let new = race(&[&serve], &all);
    assert_eq!(new.len(), all.len());
    assert!(new.values().all(|times| *times == 1));
    assert_eq!(count(&stored(&sandbox), &all), all.len());
    let requests = metric(
        &serve.metrics(),
        "rtad_writer_writes_total{audience=\"a\",op=\"add_if_absent\",result=\"ok\"}",
    );
    assert!(
        current(&sandbox).sequence < requests as u64,
        "waiting requests were coalesced"
    );
    assert_eq!(
        metric(
            &serve.metrics(),
            "rtad_writer_conflicts_total{audience=\"a\"}"
        ),
        0.0
    );
}

/// A build publishes a generation while two processes write the same ids.
#[test]
fn concurrent_builds_keep_each_id_new_once() {
    let sandbox = Sandbox::with_store();
    let all = ids(IdKind::Md5, 0..6000);
    sandbox.file("ids", lines(&all[..1000]));
    sandbox.build("{}/ids");
    let serves = [Serve::start(&sandbox), Serve::start(&sandbox)];
    let new = std::thread::scope(|scope| {
        let racing = scope.spawn(|| race(&[&serves[0], &serves[1]], &all));
        // The writers publish only deltas, so the build gets no conflict. A second build would lose
        // the deltas merged by the first: they are not in its input.
        sandbox.build("{}/ids");
        racing.join().unwrap()
    });
    assert!(new.values().all(|times| *times == 1));
    assert!(
        all[..1000].iter().all(|id| !new.contains_key(id)),
        "members are not new"
    );
    // The false-positive rate is 1 in 10,000.
    assert!(new.len() > 4980, "{} were new", new.len());
    assert_eq!(
        count(&stored(&sandbox), &new.into_keys().collect::<Vec<_>>()),
        count(&stored(&sandbox), &all) - 1000
    );
}
