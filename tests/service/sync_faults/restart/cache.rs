//! Starts whose cache has nothing to serve.

use super::*;

#[test]
fn cached_chunks_that_a_store_created_anew_does_not_continue_are_not_read() {
    let site = Site::new();
    let cache = site.cache();
    site.publish(2);
    assert_serves(&mut site.start(Some(&cache)), 2, 2);
    std::fs::remove_dir_all(site.depot.root.join(AUDIENCE)).unwrap();
    // An empty directory would be a lost mount.
    std::fs::create_dir(site.depot.root.join("other")).unwrap();
    site.publish(3);
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 3);
    assert_eq!(server.metric("rtad_chunks_read_total{source=\"cache\"}"), 0);
}

/// A start waits 5 s for `CURRENT` before it serves the cache; here the cache has nothing to serve.
#[test]
fn pod_whose_cache_is_of_no_use_waits_for_a_slow_store() {
    let site = Site::new();
    let (empty, damaged) = (site.cache(), site.folder.path().join("damaged"));
    let mut change = Change::default();
    change.add(members(2)[0]);
    change.entomb(members(2)[1]);
    site.depot.append(AUDIENCE, change);
    drop(site.start(Some(&damaged)));
    for file in std::fs::read_dir(damaged.join(AUDIENCE)).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|end| end == "chunk") {
            std::fs::remove_file(path).unwrap();
        }
    }
    // Over 8 s for over 400 bytes.
    site.unruly.misbehave(Fault::Drip, "CURRENT");
    std::thread::scope(|scope| {
        for (cache, late) in [(&empty, 0), (&damaged, 1)] {
            let url = site.unruly.url();
            scope.spawn(move || {
                let mut config = config(&url, CONFIG, OFTEN);
                config.store.stall_timeout = Duration::from_secs(60);
                config.store.cache_dir = Some(cache.clone());
                let mut server = Server::start(config);
                wait_until("it is ready", || server.is_ready());
                assert_serves(&mut server, 1, 1);
                assert_eq!(server.sync_count(AUDIENCE, "store"), late);
            });
        }
    });
}
