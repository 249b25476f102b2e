use super::*;
use std::time::Duration;

use crate::serve::Assembly;
use crate::sync::Shared;
use rtad_store::Store;
use rtad_store::write::Change;
use testkit::store::{Depot, Spec, keys};

const AUDIENCE: &str = "old_users";

/// The newest record of a store.
fn newest(depot: &Depot) -> Current {
    depot.current(AUDIENCE).unwrap()
}

/// A pod that serves the first generation, with a cache.
fn syncer(depot: &Depot, cache: &std::path::Path) -> Syncer {
    let text = "[[audience]]\nname = \"old_users\"\n";
    let flags = vec![("store.url", depot.url().to_owned())];
    let mut assembly = Assembly::read(Some(("rtad.toml", text)), |_| None, &flags).unwrap();
    assembly.config.store.poll_interval = Duration::from_millis(1);
    let store = Store::open(depot.url()).unwrap();
    Syncer::new(store, assembly.plan(), Shared::default()).with_cache(Some(cache.to_owned()))
}

/// Runs until the served overlay is that of a record.
async fn served_from(sync: &Syncer, name: &AudienceName, sequence: u64) {
    poll_until(|| sync.served(name).unwrap().overlay().sequence() == sequence).await;
}

async fn poll_until(is_done: impl Fn() -> bool) {
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if is_done() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// The load may end at any `await` of `follow`.
#[test]
fn changes_of_the_served_overlay_are_in_that_of_the_load_at_once() {
    let (depot, cache) = (Depot::new(), tempfile::tempdir().unwrap());
    let members = keys(1, 500, |shard| shard);
    depot.publish(AUDIENCE, &members, &Spec::small());
    let sync = syncer(&depot, cache.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(sync.poll_all());

    depot.publish(AUDIENCE, &members[..400], &Spec::small());
    let current = newest(&depot);
    let mut progress = Progress::default();
    progress.see(&current);
    let shared = Mutex::new(Loading {
        chunk_bytes: 0,
        overlay: Overlay::new(&current, Vec::new()),
        applied: current,
    });
    let mut change = Change::default();
    change.entomb(members[0]);
    change.remove(members[1]);
    depot.append(AUDIENCE, change);
    let record = newest(&depot);

    let name: AudienceName = AUDIENCE.parse().unwrap();
    runtime.block_on(async {
        tokio::select! {
            () = sync.follow(&name, &shared, &mut progress) => panic!("the same generation"),
            () = served_from(&sync, &name, record.sequence) => {}
        }
    });
    let Loading {
        applied, overlay, ..
    } = shared.into_inner();
    assert_eq!(applied, record);
    for key in &members[..2] {
        assert_eq!(overlay.membership(key), Some(false));
    }
}

/// Only their tombstones are.
#[test]
fn deltas_that_exceed_the_size_limit_during_a_load_are_not_read() {
    let (depot, cache) = (Depot::new(), tempfile::tempdir().unwrap());
    let members = keys(1, 500, |shard| shard);
    depot.publish(AUDIENCE, &members, &Spec::small());
    let sync = syncer(&depot, cache.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(sync.poll_all());

    depot.publish(AUDIENCE, &members[..400], &Spec::small());
    let current = newest(&depot);
    let mut progress = Progress::default();
    progress.see(&current);
    let shared = Mutex::new(Loading {
        chunk_bytes: sync.settings().max_snapshot_bytes - 1_000,
        overlay: Overlay::new(&current, Vec::new()),
        applied: current.clone(),
    });
    let mut change = Change::default();
    change.entomb(members[0]);
    for key in &members[1..200] {
        change.remove(*key);
    }
    depot.append(AUDIENCE, change);

    let name: AudienceName = AUDIENCE.parse().unwrap();
    let is_entombed = |overlay: &Overlay| overlay.membership(&members[0]) == Some(false);
    runtime.block_on(async {
        tokio::select! {
            () = sync.follow(&name, &shared, &mut progress) => panic!("the same generation"),
            () = poll_until(|| is_entombed(&shared.lock().overlay)) => {}
        }
    });
    let Loading {
        applied, overlay, ..
    } = shared.into_inner();
    assert_eq!(applied, current);
    assert_eq!(overlay.membership(&members[1]), None);
}
