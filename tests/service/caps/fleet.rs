//! Caps that pods share in a store.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::client::{Client, metric_sum};
use testkit::sandbox::make_old;
use testkit::wait_until;

use super::{API, ask, cap, capped_by, decide_oaid, number, rules, start_with, without_cap};
use crate::fixture::{FixtureServer, TestStore};
use crate::rtad_process::{Rtad, command};

/// The rules with a cap that is shared in this directory: they follow the lines of `[store]`.
fn shared_rules(limit: u64, caps: &Path) -> String {
    format!("caps_url = {caps:?}\n{}", rules(limit))
}

fn start(limit: u64, caps: &Path) -> FixtureServer {
    std::fs::create_dir_all(caps.join(".caps")).unwrap();
    start_with(TestStore::with_everything(), &shared_rules(limit, caps))
}

/// Bids for new devices until one is refused; returns their number.
fn use_up(server: &FixtureServer, from: u64) -> u64 {
    let mut client = server.connect();
    (from..)
        .take_while(|n| decide_oaid(&mut client, *n) == "+not_member")
        .count() as u64
}

#[test]
fn pod_without_the_store_goes_on_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let caps = folder.path().join("caps");
    let away = folder.path().join("away");
    let server = start(100_000, &caps);
    std::fs::rename(&caps, &away).unwrap();
    let granted = number(&cap(&server)["granted"]);
    assert_eq!(use_up(&server, 0), granted);

    // The cap is not reached: no platform may keep the answer until the end of the day.
    assert_eq!(decide_oaid(&mut server.connect(), granted), "-no_grant");
    for path in ["/rta/tencent", "/rta/uncached"] {
        assert_eq!(ask(&mut server.connect(), path, granted), (Some(1), None));
    }
    let no_grant = capped_by("tencent").replace("\"capped\"}", "\"no_grant\"}");
    assert_eq!(metric_sum(&server.metrics(), &no_grant), 1);
    wait_until("the failure is reported", || {
        cap(&server)["grants"]["failing"] == "store"
    });
    let failed = "rtad_cap_records_total{cap=\"daily\",result=\"failed\"}";
    assert!(metric_sum(&server.metrics(), failed) > 0);
    let counted_before = decide_oaid(&mut server.connect(), 0);
    assert_eq!(counted_before, "+not_member");

    std::fs::rename(&away, &caps).unwrap();
    let mut client = server.connect();
    wait_until("a block", || {
        decide_oaid(&mut client, granted) == "+not_member"
    });
    assert!(cap(&server)["grants"].get("failing").is_none());
    let all = "rtad_cap_granted_devices{cap=\"daily\"}";
    let limit = number(&cap(&server)["granted"]);
    assert_eq!(metric_sum(&server.metrics(), all), limit);
}

#[test]
fn drained_pod_gives_back_what_it_did_not_use() {
    let caps = tempfile::tempdir().unwrap();
    let first = start(100_000, caps.path());
    let mut client = first.connect();
    (0..5).for_each(|n| assert_eq!(decide_oaid(&mut client, n), "+not_member"));
    drop(client);
    let (drained, _store) = first.drain();
    drained.join().unwrap();

    let second = cap(&start(100_000, caps.path()));
    let all = number(&second["grants"]["all_devices"]);
    assert_eq!(all, 5 + number(&second["granted"]));
}

#[test]
fn removed_cap_gives_back_what_it_did_not_use() {
    let caps = tempfile::tempdir().unwrap();
    let first = start(100_000, caps.path());
    let mut client = first.connect();
    (0..5).for_each(|n| assert_eq!(decide_oaid(&mut client, n), "+not_member"));
    let removed = without_cap(&shared_rules(100_000, caps.path()));
    first.write_config(API, &removed);
    let mut admin = first.connect_admin();
    admin.request("POST", "/v1/reload", "", "").ok();

    let second = start(100_000, caps.path());
    let mut client = second.connect();
    let mut devices = 1_000..;
    // A pod learns what others have given back with its next block.
    wait_until("the second knows", || {
        decide_oaid(&mut client, devices.next().unwrap());
        let cap = cap(&second);
        number(&cap["grants"]["all_devices"]) == 5 + number(&cap["granted"])
    });
}

/// Pods as processes of their own, which share a clock.
struct Fleet {
    folder: tempfile::TempDir,
    _stores: Vec<TestStore>,
    pods: Vec<Pod>,
    devices: u64,
    bids: u64,
    started: u64,
}

struct Pod {
    name: String,
    rtad: Rtad,
    client: Client,
    file: PathBuf,
    bids: u64,
}

const LIMIT: u64 = 5_000;

impl Fleet {
    /// Four pods, half an hour before the end of the period.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("caps/.caps")).unwrap();
        let mut fleet = Self {
            folder,
            _stores: Vec::new(),
            pods: Vec::new(),
            devices: 0,
            bids: 0,
            started: 0,
        };
        fleet.set_time_left(1_800);

        let rules = shared_rules(LIMIT, &fleet.caps()).replace("\"day\"", "\"hour\"");
        for _ in 0..4 {
            let store = TestStore::with_everything();
            let server = format!("{API}\ndrain_timeout = \"1s\"");
            let file = store.config_file(&server, &rules);
            make_old(&file);
            let pod = fleet.start_pod(file);
            fleet.pods.push(pod);
            fleet._stores.push(store);
        }
        fleet
    }

    fn caps(&self) -> PathBuf {
        self.folder.path().join("caps")
    }

    fn start_pod(&mut self, file: PathBuf) -> Pod {
        let libraries = std::fs::read_dir("/usr/lib").unwrap();
        let libraries = libraries.map(|entry| entry.unwrap().path());
        let mut libraries = libraries.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
        let library = libraries.find(|library| library.exists());
        let library = library.expect("the package libfaketime");
        let clock = self.folder.path().join("clock");
        self.started += 1;
        let name = format!("pod-{}", self.started);
        let variables = [
            ("HOSTNAME", &*name),
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let arguments = [
            OsStr::new("serve"),
            OsStr::new("--config"),
            file.as_os_str(),
        ];
        let rtad = Rtad::start(&mut command(&arguments, &variables));
        let rtad = rtad.serving().unwrap();
        let client = rtad.connect();
        Pod {
            name,
            rtad,
            client,
            file,
            bids: 0,
        }
    }

    /// Devices that a pod was granted, less those that it gave back.
    fn granted(&self, name: &str) -> u64 {
        let periods = std::fs::read_dir(self.caps().join(".caps/daily")).unwrap();
        let mut granted = 0;
        for period in periods {
            let records = period.unwrap().path().join("records");
            for record in std::fs::read_dir(records).unwrap() {
                let path = record.unwrap().path();
                if path.extension() != Some(OsStr::new("json")) {
                    continue;
                }
                let bytes = std::fs::read(path).unwrap();
                let record: Value = serde_json::from_slice(&bytes).unwrap();
                if record["pod"] == name {
                    granted += record["amount"].as_i64().unwrap();
                }
            }
        }
        u64::try_from(granted).unwrap()
    }

    /// Sets the clock of all pods so that the period ends in so many seconds.
    fn set_time_left(&self, seconds: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let offset = 2 * 3_600 - now.as_secs() % 3_600 - seconds;
        let clock = self.folder.path().join("clock");
        let written = clock.with_extension("new");
        std::fs::write(&written, format!("+{offset}")).unwrap();
        std::fs::rename(written, clock).unwrap();
    }

    /// New devices ask each pod. Returns whether all were refused because of the cap.
    fn ask(&mut self, devices: usize) -> bool {
        let mut are_capped = true;
        for _ in 0..devices {
            for pod in &mut self.pods {
                self.devices += 1;
                let decision = decide_oaid(&mut pod.client, self.devices);
                let bids = u64::from(decision == "+not_member");
                pod.bids += bids;
                self.bids += bids;
                are_capped &= decision == "-capped";
            }
        }
        are_capped
    }

    /// Asks until this many devices got bids.
    fn ask_until(&mut self, bids: u64) {
        wait_until("more bids", || {
            self.ask(10);
            self.bids >= bids
        });
    }

    /// Replaces the first pod by one that begins anew. Returns what the old one keeps unused.
    fn replace_pod(&mut self, signal: &str) -> u64 {
        let old = self.pods.remove(0);
        drop(old.client);
        old.rtad.signal(signal);
        old.rtad.wait();
        let pod = self.start_pod(old.file);
        self.pods.push(pod);
        self.granted(&old.name) - old.bids
    }
}

fn cap_of(rtad: &Rtad) -> Value {
    rtad.connect_admin().get("/v1/status").ok()["caps"][0].clone()
}

/// Rolling restarts, a lost store, the end of a period, and kills.
#[test]
fn pods_bid_for_exactly_the_cap_together() {
    let mut fleet = Fleet::start();
    for step in 1..=4 {
        fleet.ask_until(step * LIMIT / 8);
        let away = fleet.folder.path().join("away");
        std::fs::rename(fleet.caps(), &away).unwrap();
        fleet.ask(20);
        std::fs::rename(&away, fleet.caps()).unwrap();
        assert_eq!(fleet.replace_pod("TERM"), 0, "it gave back the rest");
    }
    wait_until("the cap is reached", || fleet.ask(5) && fleet.bids >= LIMIT);
    assert!(fleet.ask(50));
    assert_eq!(fleet.bids, LIMIT);

    // The blocks of the next period are there when it begins.
    fleet.set_time_left(10);
    let has_begun = |pod: &Pod| number(&cap_of(&pod.rtad)["devices"]) == 0;
    wait_until("the next period", || fleet.pods.iter().all(has_begun));
    assert!(!fleet.ask(1));
    assert_eq!(fleet.bids, LIMIT + 4, "each pod has a block");

    let mut lost = 0;
    for step in 1..=4 {
        fleet.ask_until(LIMIT + step * LIMIT / 8);
        lost += fleet.replace_pod("KILL");
    }
    wait_until("the cap is reached again", || fleet.ask(50));
    assert!(fleet.bids <= 2 * LIMIT, "{}", fleet.bids);
    assert_eq!(fleet.bids, 2 * LIMIT - lost);
    assert_eq!(
        decide_oaid(&mut fleet.pods[3].client, fleet.devices + 1),
        "-capped"
    );
}
