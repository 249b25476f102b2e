//! Unwritable or full cache disk during rolling: the old generation stays, with an error.

use rtad::sync::{Shared, SwapMode, Syncer};
use rtad_core::filter::FilterKind;
use rtad_store::Store;
use testkit::cgroup::Cgroup;

use super::*;

#[test]
fn unwritable_cache_keeps_the_old_generation() {
    let mut site = Site::new();
    // A file instead of the directory: permissions do not apply to root.
    std::fs::write(site.cache(), b"a file").unwrap();
    let mut server = site.start();
    site.assert_serves(&mut server, 1);
    site.publish();
    wait_until("the failure of the cache", || {
        server.sync_count(AUDIENCE, "cache") >= 1
    });
    let (result, error) = server.last_sync(AUDIENCE);
    let words = "store.swap = \"rolling\" needs all chunks in the cache, and ";
    assert!(
        result == "cache" && error.starts_with(words) && error.contains("Not a directory"),
        "{error}"
    );
    assert!(server.metric("rtad_cache_errors_total") >= 1);
    site.assert_serves(&mut server, 1);

    std::fs::remove_file(site.cache()).unwrap();
    wait_until("the roll continues", || server.generation(AUDIENCE) == 2);
    site.assert_serves(&mut server, 2);
}

#[test]
fn full_disk_keeps_the_old_generation() {
    let mut site = Site::new();
    // Limit on the size of written files, in blocks of 512; SIGXFSZ is ignored.
    let mut pod = site.pod("trap '' XFSZ; ulimit -f 4;");
    assert_eq!(pod.generation(), 1);
    assert!(pod.metric("rtad_cache_errors_total") >= 1);
    site.publish();
    // The next poll may report `unchanged`.
    let rejected = || Some(pod.last_sync()).filter(|(result, _)| result == "cache");
    let (_, error) = wait_until("the failure of the cache", rejected);
    assert!(error.contains("File too large"), "{error}");
    let count = "rtad_sync_total{audience=\"old_users\",result=\"cache\"}";
    wait_until("the count of the failure", || pod.metric(count) >= 1);
    assert_eq!(
        (pod.generation(), pod.metric("rtad_snapshot_mixed{")),
        (1, 0)
    );
    site.assert_answers(&mut pod.connect(), 1);
    // Each poll writes the beginning of a chunk anew, and removes it.
    let chunks = site.cache().join(AUDIENCE).join("chunks");
    wait_until("the removal of what could not be written", || {
        std::fs::read_dir(&chunks).unwrap().next().is_none()
    });
    drop(pod);

    let mut pod = site.pod("");
    assert_eq!(pod.generation(), 2);
    site.assert_answers(&mut pod.connect(), 2);
}

#[test]
fn rolling_needs_disk_memory_for_chunks_only() {
    let mut site = Site::new();
    let group = Cgroup::with_limit(1_000_000_000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let start = |site: &Site, swap| {
        let shared = Shared::default();
        let mut plan = crate::server::Served::from(config(site.depot.url(), CONFIG, OFTEN))
            .0
            .plan();
        plan.swap = swap;
        let store = Store::open(site.depot.url()).unwrap();
        let sync = Syncer::new(store, plan, shared.clone()).with_headroom(group.headroom());
        (sync.with_cache(Some(site.cache())), shared)
    };
    let mut syncs = [SwapMode::Whole, SwapMode::Rolling].map(|swap| start(&site, swap));
    let mut poll = |leave_bytes: u64| {
        group.set_used(1_000_000_000 - leave_bytes);
        let results = syncs.each_mut().map(|(sync, shared)| {
            runtime.block_on(sync.poll_all());
            shared.polls.last(&AUDIENCE.parse().unwrap()).unwrap()
        });
        results.map(|last| (last.result, last.error.unwrap_or_default()))
    };
    let ok = || ("ok", String::new());
    assert_eq!(poll(500_000_000), [ok(), ok()]);

    let bytes = |site: &Site, generation| {
        let chunks = site
            .snapshot(generation)
            .manifest()
            .chunks()
            .iter()
            .map(|chunk| chunk.filter_bytes(FilterKind::Block512));
        (chunks.clone().sum::<u64>(), chunks.max().unwrap())
    };
    let next = site.publish();
    let ((old, old_chunk), (new, new_chunk)) = (bytes(&site, next - 1), bytes(&site, next));
    let two_chunks = new.saturating_sub(old) + old_chunk + new_chunk;
    assert!(two_chunks < new, "{two_chunks} {new}");
    let [(whole, words), rolling] = poll(two_chunks);
    assert_eq!((whole, rolling), ("too_large", ok()));
    assert!(words.contains("set store.swap = \"rolling\""), "{words}");

    site.publish();
    let [_, (result, words)] = poll(1000);
    assert!(
        result == "too_large" && words.contains("the container has 1000 left"),
        "{words}"
    );
}
