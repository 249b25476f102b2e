//! Control and downloads are apart: kill switches, expiry, other audiences and starts beside a slow
//! store.

use std::path::Path;
use std::time::{Duration, Instant};

use rtad::config::Config;
use rtad::sync::SwapMode;
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::State;
use rtad_store::write::Change;
use testkit::server::{Fault, FileServer};
use testkit::store::{Depot, Spec, hex, keys};
use testkit::wait_until;

use crate::rtad_process::Rtad;
use crate::server::{NEVER, Server, config};

const AUDIENCE: &str = "old_users";
const OTHER: &str = "vip";
const CONFIG: &str = "[[audience]]\nname = \"old_users\"\n[[audience]]\nname = \"vip\"\n\
                      required = false\n[[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";
const OFTEN: Duration = Duration::from_millis(100);

/// A store behind HTTP, with a generation of each audience, and a cache directory.
struct Site {
    depot: Depot,
    web: FileServer,
    folder: tempfile::TempDir,
}

fn members(seed: u64) -> Vec<DeviceKey> {
    keys(seed, 2000, |shard| shard)
}

fn change(say: impl Fn(&mut Change, DeviceKey), keys: &[DeviceKey]) -> Change {
    let mut change = Change::default();
    keys.iter().for_each(|key| say(&mut change, *key));
    change
}

/// The answer for a device; `None` if the audience is unavailable.
fn answer(server: &Server, audience: &str, key: &DeviceKey) -> Option<bool> {
    let answer = server
        .connect()
        .get(&format!("/v1/check/{audience}/{}", hex(key)));
    (answer.status == 200).then(|| answer.ok()["member"] == true)
}

impl Site {
    fn new() -> Self {
        let depot = Depot::new();
        depot.publish(AUDIENCE, &members(1), &Spec::small());
        depot.publish(OTHER, &members(2), &Spec::small());
        let web = FileServer::serve(&depot.root);
        Self {
            depot,
            web,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn start(&self, cache: Option<&Path>) -> Server {
        self.start_polling(cache, OFTEN)
    }

    fn start_polling(&self, cache: Option<&Path>, interval: Duration) -> Server {
        Server::start(self.config(cache, interval))
    }

    fn config(&self, cache: Option<&Path>, interval: Duration) -> Config {
        let mut config = config(&self.web.url(), CONFIG, interval);
        config.store.cache_dir = cache.map(Into::into);
        config
    }
}

#[test]
fn slow_download_delays_no_kill_switch_no_erasure_and_no_other_audience() {
    let site = Site::new();
    let server = site.start(None);
    let (old, new) = (members(1), members(3));
    assert_eq!(answer(&server, AUDIENCE, &old[0]), Some(true));

    site.web.misbehave(Fault::Trickle, "chunks/");
    site.depot.publish(AUDIENCE, &new, &Spec::small());
    let before = site.web.requests("old_users/chunks/");
    wait_until("the download", || {
        site.web.requests("old_users/chunks/") > before
    });

    site.depot.append(OTHER, change(Change::add, &new[..1]));
    wait_until("another audience", || {
        answer(&server, OTHER, &new[0]) == Some(true)
    });
    site.depot
        .append(AUDIENCE, change(Change::entomb, &old[..1]));
    wait_until("the erasure", || {
        answer(&server, AUDIENCE, &old[0]) == Some(false)
    });
    for _ in 0..2 {
        site.depot.set(AUDIENCE, State::Disabled, None);
        wait_until("it is disabled", || {
            answer(&server, AUDIENCE, &old[1]).is_none()
        });
        site.depot.set(AUDIENCE, State::Live, None);
        wait_until("it is enabled", || {
            answer(&server, AUDIENCE, &old[1]) == Some(true)
        });
    }
    assert_eq!(server.generation(AUDIENCE), 1);

    site.web.behave();
    wait_until("the next", || server.generation(AUDIENCE) == 2);
    site.depot.set(AUDIENCE, State::Disabled, None);
    wait_until("it is disabled", || {
        answer(&server, AUDIENCE, &new[1]).is_none()
    });
}

#[test]
fn older_record_undoes_no_erasure_of_a_load_that_fails() {
    let site = Site::new();
    let mut server = site.start(None);
    let old = members(1);
    site.web.misbehave(Fault::Gate, "chunks/");
    let loads = site.web.requests("old_users/manifests/");
    site.depot.publish(AUDIENCE, &members(3), &Spec::small());
    wait_until("the load", || {
        site.web.requests("old_users/manifests/") > loads
    });
    site.depot
        .append(AUDIENCE, change(Change::entomb, &old[..1]));
    wait_until("the erasure", || {
        answer(&server, AUDIENCE, &old[0]) == Some(false)
    });

    // A copy that lags has no record of it.
    let newest = site.depot.newest_record(AUDIENCE);
    site.depot.put(AUDIENCE, &newest, None);
    site.web
        .misbehave(Fault::Status("404 Not Found", ""), "chunks/");
    wait_until("the load fails", || {
        server.sync_count(AUDIENCE, "not_found") > 0
    });
    wait_until("the older one is read", || {
        server.sync_count(AUDIENCE, "stale") > 0
    });
    assert_eq!(answer(&server, AUDIENCE, &old[0]), Some(false));
}

/// Publishes a change of `depot` to the store that is served: its other deltas are damaged, and
/// only its tombstones can be read.
fn publish_with_damaged_deltas(served: &Depot, audience: &str, change: Change) {
    let copy = tempfile::tempdir().unwrap();
    served.copy_to(copy.path());
    let ahead = Depot::at(copy.path().to_owned());
    ahead.append(audience, change);
    let current = ahead.current(audience).unwrap();
    let [damaged] = &current.deltas[..] else {
        panic!("one delta");
    };
    let damaged = damaged.sha256.to_string();

    let held = served.files(audience);
    std::fs::create_dir_all(served.path(audience, "deltas")).unwrap();
    // In the order of their names: the record last.
    for (name, bytes) in ahead.files(audience) {
        if held.contains_key(&name) || name == "LATEST" {
            continue;
        }
        let is_damaged = name.contains(&damaged);
        let bytes = if is_damaged { &b"damaged"[..] } else { &bytes };
        served.put(audience, &name, Some(bytes));
    }
}

/// A record of the load erases a device, and its other deltas are damaged. Then the load ends, and
/// the records cannot be read.
#[test]
fn end_of_a_load_undoes_no_erasure() {
    for (has_cache, swap) in [
        (false, SwapMode::Whole),
        (true, SwapMode::Whole),
        (true, SwapMode::Rolling),
    ] {
        let site = Site::new();
        let cache = site.folder.path().join("cache");
        let mut config = site.config(has_cache.then_some(&*cache), OFTEN);
        config.store.swap = swap;
        let server = Server::start(config);
        let old = members(1);
        site.web.misbehave(Fault::Gate, "chunks/");
        site.depot.publish(AUDIENCE, &old[..1900], &Spec::small());
        wait_until("the load", || site.web.is_gate_used());

        let mut erasure = change(Change::entomb, &old[..1]);
        erasure.remove(old[1]);
        publish_with_damaged_deltas(&site.depot, AUDIENCE, erasure);
        wait_until("the erasure", || {
            answer(&server, AUDIENCE, &old[0]) == Some(false)
        });
        site.web.misbehave(Fault::Gate, "records/");
        wait_until("the next", || server.generation(AUDIENCE) == 2);
        assert_eq!(answer(&server, AUDIENCE, &old[0]), Some(false), "{swap:?}");
        assert_eq!(answer(&server, AUDIENCE, &old[2]), Some(true), "{swap:?}");
    }
}

/// The same while nothing is served.
#[test]
fn end_of_the_first_load_undoes_no_erasure() {
    let site = Site::new();
    site.depot.delete(OTHER);
    let server = site.start(None);
    let added = members(2);
    site.web.misbehave(Fault::Gate, "chunks/");
    site.depot.publish(OTHER, &added, &Spec::small());
    wait_until("the load", || site.web.is_gate_used());

    let mut erasure = change(Change::entomb, &added[..1]);
    erasure.remove(added[1]);
    publish_with_damaged_deltas(&site.depot, OTHER, erasure);
    let damaged = site.depot.current(OTHER).unwrap().deltas[0].sha256;
    let damaged = format!("{damaged}");
    wait_until("a second read", || site.web.requests(&damaged) > 3);
    site.web.misbehave(Fault::Gate, "records/");
    wait_until("the first", || server.generation(OTHER) > 0);
    assert_eq!(answer(&server, OTHER, &added[0]), Some(false));
    assert_eq!(answer(&server, OTHER, &added[2]), Some(true));
}

#[test]
fn generation_expires_between_polls() {
    let depot = Depot::new();
    depot.publish(OTHER, &members(2), &Spec::small());
    // A busy machine may take longer to start a server than the generation is valid.
    let answering = |valid_seconds: &u64| {
        let expires_unix_seconds = Some(now_unix_seconds() + valid_seconds);
        let spec = Spec {
            expires_unix_seconds,
            ..Spec::small()
        };
        depot.publish(AUDIENCE, &members(1), &spec);
        let server = Server::start(config(depot.url(), CONFIG, NEVER));
        (answer(&server, AUDIENCE, &members(1)[0]) == Some(true)).then_some(server)
    };
    let server = [4, 20, 200].iter().find_map(answering).unwrap();
    wait_until("it expires", || {
        answer(&server, AUDIENCE, &members(1)[0]).is_none()
    });
    assert_eq!(answer(&server, OTHER, &members(2)[0]), Some(true));
}

#[test]
fn warm_cache_is_served_within_seconds_while_the_store_is_slow() {
    let site = Site::new();
    let cache = site.folder.path().join("cache");
    // A server with polls might load the next generation while it ends.
    drop(site.start_polling(Some(&cache), NEVER));
    site.depot.publish(AUDIENCE, &members(3), &Spec::small());
    site.depot.publish(OTHER, &members(3), &Spec::small());
    for (fault, word) in [(Fault::Trickle, "chunks/"), (Fault::Mute, "")] {
        site.web.misbehave(fault, word);
        let mut config = site.config(Some(&cache), OFTEN);
        if matches!(fault, Fault::Mute) {
            config.store.stall_timeout = Duration::from_secs(2);
        }
        let begun = Instant::now();
        let mut server = Server::start(config);
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
        assert!(server.is_ready());
        assert_eq!(server.generation(AUDIENCE), 1, "{fault:?}");
        assert_eq!(answer(&server, AUDIENCE, &members(1)[0]), Some(true));
    }
    site.web.behave();
    let server = site.start(Some(&cache));
    wait_until("the next", || server.generation(AUDIENCE) == 2);
}

/// Deltas of generations that are not loaded do not pile up over the served one.
#[test]
fn refused_generations_leave_no_layers() {
    let depot = Depot::new();
    depot.publish(AUDIENCE, &members(1), &Spec::small());
    depot.append(AUDIENCE, change(Change::add, &members(9)[..3]));
    let mut limited = config(depot.url(), CONFIG, NEVER);
    limited.store.max_snapshot_size = depot.manifest(AUDIENCE).size_bytes() + 10_000;
    let servers = [
        Server::start(config(depot.url(), CONFIG, NEVER)),
        Server::start(limited),
    ];
    for round in 0..6 {
        depot.publish(
            AUDIENCE,
            &keys(20 + round, 4000, |shard| shard),
            &Spec::small(),
        );
        for from in 0..3 {
            depot.append(
                AUDIENCE,
                change(Change::add, &members(9)[10 * from..10 * from + 5]),
            );
        }
        depot.append(
            AUDIENCE,
            change(Change::entomb, &members(1)[..=round as usize]),
        );
        let chunk = depot.manifest(AUDIENCE).chunks()[0].digest;
        depot.put(AUDIENCE, &format!("chunks/{chunk}.chunk"), None);
        for server in &servers {
            server.poll();
            let snapshot = server.snapshot(AUDIENCE).unwrap();
            assert_eq!(snapshot.manifest().generation(), 1);
            let layers = snapshot.overlay().layers();
            assert!(layers <= 6, "{layers} in round {round}");
            // Erasures apply although the generation is refused.
            assert_eq!(
                answer(server, AUDIENCE, &members(1)[round as usize]),
                Some(false)
            );
        }
    }
}

/// A writer that appends often must not have each pod download a corrupt generation again.
#[test]
fn appends_apply_to_the_served_generation_and_do_not_retry_a_corrupt_one() {
    let site = Site::new();
    let server = site.start(None);
    site.web.misbehave(Fault::Gate, "records/");
    site.depot.publish(AUDIENCE, &members(3), &Spec::small());
    let chunk = site.depot.manifest(AUDIENCE).chunks()[0].digest;
    let chunk = format!("chunks/{chunk}.chunk");
    let mut rotten = site.depot.files(AUDIENCE)[&chunk].clone();
    *rotten.last_mut().unwrap() ^= 1;
    site.depot.put(AUDIENCE, &chunk, Some(&rotten));
    site.web.behave();
    for key in &members(4)[..24] {
        site.depot.append(AUDIENCE, change(Change::add, &[*key]));
        wait_until("the append", || {
            answer(&server, AUDIENCE, key) == Some(true)
        });
    }
    site.depot
        .append(AUDIENCE, change(Change::entomb, &members(1)[..1]));
    wait_until("the erasure", || {
        answer(&server, AUDIENCE, &members(1)[0]) == Some(false)
    });
    assert_eq!(server.generation(AUDIENCE), 1);
    // Loads at polls 1, 2, 4, 8, 16, 32 and 64.
    let loads = site.web.requests(&chunk);
    assert!((2..=8).contains(&loads), "{loads}");
}

#[test]
fn failed_cache_copy_keeps_the_last_whole_generation() {
    let site = Site::new();
    let cache = site.folder.path().join("cache");
    let server = site.start(Some(&cache));
    site.web.misbehave(Fault::Gate, "records/");
    site.depot.publish(AUDIENCE, &members(3), &Spec::small());
    // A directory where the copy belongs.
    let chunk = site.depot.manifest(AUDIENCE).chunks()[0].digest;
    let copy = format!("chunks/{chunk}.chunk");
    std::fs::create_dir(cache.join(AUDIENCE).join(copy)).unwrap();
    site.web.behave();
    wait_until("the next", || server.generation(AUDIENCE) == 2);
    drop(server);
    site.web.misbehave(Fault::Dead, "");
    let server = site.start(Some(&cache));
    assert_eq!(server.generation(AUDIENCE), 1);
    assert_eq!(answer(&server, AUDIENCE, &members(1)[0]), Some(true));
}

#[test]
fn reload_is_recorded_although_its_caller_hangs_up() {
    let site = Site::new();
    // Polls never come: only the reload reads from the store.
    let mut server = site.start_polling(None, NEVER);
    server
        .reload(Err::<rtad::config::Config, _>("nonsense".to_owned()))
        .unwrap_err();
    assert_eq!(server.metric("rtad_config_last_reload_successful"), 0);
    site.web.misbehave(Fault::Gate, "records/");
    let text = format!("{CONFIG}[[strategy]]\nname = \"t\"\nexclude = [\"vip\"]\n");
    server.write_config(Ok(config(&site.web.url(), &text, NEVER)));
    {
        use std::io::Write as _;
        let mut caller = std::net::TcpStream::connect(server.admin_address()).unwrap();
        // A reset: a client that only closes its side may await the answer.
        socket2::SockRef::from(&caller)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        caller
            .write_all(b"POST /v1/reload HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        wait_until("the reload polls the store", || site.web.is_gate_used());
    }
    site.web.behave();
    let recorded = "rtad_config_last_reload_successful";
    wait_until("it is recorded", || server.metric(recorded) == 1);
}

/// Neither the load of a served audience nor that of a new optional one delays a reload.
#[test]
fn reload_is_answered_during_loads() {
    let site = Site::new();
    let with = |text: &str| {
        let mut config = config(&site.web.url(), text, OFTEN);
        config.store.stall_timeout = Duration::from_secs(120);
        config
    };
    let only = "[[audience]]\nname = \"old_users\"\n";
    let server = Server::start(with(only));
    site.web.misbehave(Fault::Gate, "chunks/");
    site.depot.publish(AUDIENCE, &members(3), &Spec::small());
    wait_until("the load", || {
        site.web.requests("old_users/manifests/2-") > 0
    });
    server.write_config(Ok(with(CONFIG)));
    assert_eq!(
        server.connect_admin().post("/v1/reload", "").ok()["reloaded"],
        true
    );
    assert_eq!(
        (server.generation(AUDIENCE), server.generation(OTHER)),
        (1, 0)
    );
    assert_eq!(server.catalog().strategies().len(), 1);
    site.web.behave();
    wait_until("both", || {
        (server.generation(AUDIENCE), server.generation(OTHER)) == (2, 1)
    });
}

/// While nothing is served, there are no requests to delay.
#[test]
fn first_load_runs_at_normal_priority_and_later_ones_at_the_lowest() {
    let site = Site::new();
    site.web.misbehave(Fault::Gate, "chunks/");
    let file = site.folder.path().join("rtad.toml");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
         [store]\nurl = {:?}\npoll_interval = \"100ms\"\n{CONFIG}",
        site.web.url()
    );
    std::fs::write(&file, config).unwrap();
    let arguments = ["serve".as_ref(), "--config".as_ref(), file.as_os_str()];
    let rtad = Rtad::spawn(&arguments, &[]);
    wait_until("the first load", || site.web.is_gate_used());
    let normal = rtad.niceness("rtad");
    assert_eq!(rtad.niceness("sync"), normal);
    site.web.behave();
    rtad.log("decision port listens", 1);
    assert_eq!(rtad.niceness("sync"), Some(19));
}
