//! Starts with a cache that has nothing to serve, or other records than the store.

use super::*;

#[test]
fn store_created_anew_is_stale_until_the_cache_is_removed() {
    let site = Site::new();
    let cache = site.cache();
    site.publish(2);
    assert_serves(&mut site.start(Some(&cache)), 2, 2);
    std::fs::remove_dir_all(site.depot.root.join(AUDIENCE)).unwrap();
    // An empty directory would be a lost mount.
    std::fs::create_dir(site.depot.root.join("other")).unwrap();
    site.publish(3);
    for _ in 0..2 {
        let mut server = site.start(Some(&cache));
        assert_serves(&mut server, 2, 2);
        let (result, error) = server.last_sync(AUDIENCE);
        assert!(
            result == "stale" && error.contains("restart without the cache's folder"),
            "{result}: {error}"
        );
    }
    std::fs::remove_dir_all(cache.join(AUDIENCE)).unwrap();
    let mut server = site.start(Some(&cache));
    assert_serves(&mut server, 1, 3);
    assert_eq!(server.metric("rtad_chunks_read_total{source=\"cache\"}"), 0);
}

/// A higher generation is new, whatever its number.
#[test]
fn store_created_anew_is_served_once_its_generation_is_higher() {
    let site = Site::new();
    let cache = site.cache();
    assert_serves(&mut site.start(Some(&cache)), 1, 1);
    std::fs::remove_dir_all(site.depot.root.join(AUDIENCE)).unwrap();
    std::fs::create_dir(site.depot.root.join("other")).unwrap();
    site.publish(2);
    site.publish(3);
    assert_eq!(site.depot.current(AUDIENCE).unwrap().sequence, 2);
    let mut server = site.start(Some(&cache));
    wait_until("the new store", || server.generation(AUDIENCE) == 2);
    assert_serves(&mut server, 2, 3);
    drop(server);
    site.unruly.misbehave(Fault::Dead, "");
    assert_serves(&mut site.start(Some(&cache)), 2, 3);
}

/// A start waits 5 s for the record before it serves the cache; here the cache has nothing to
/// serve.
#[test]
fn pod_whose_cache_is_of_no_use_waits_for_a_slow_store() {
    let site = Site::new();
    let (empty, damaged) = (site.cache(), site.folder.path().join("damaged"));
    let mut change = Change::default();
    change.add(members(2)[0]);
    change.entomb(members(2)[1]);
    site.depot.append(AUDIENCE, change);
    drop(site.start(Some(&damaged)));
    std::fs::remove_dir_all(damaged.join(AUDIENCE).join("chunks")).unwrap();
    // Over 8 s for over 400 bytes.
    site.unruly.misbehave(Fault::Drip, "records/");
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
