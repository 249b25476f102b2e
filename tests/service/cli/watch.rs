//! `server.watch_config` with Kubernetes mounts: files are links into a linked directory, and a
//! change replaces that link.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::fixture::{NON_MEMBER, RULES, TestStore, key};
use crate::rtad_process::Rtad;
use rtad_store::write::Change;
use testkit::client::metric;
use testkit::store::Depot;
use testkit::wait_until;

/// A mounted ConfigMap or Secret.
struct Volume(tempfile::TempDir);

impl Volume {
    fn mounted(file: &str, text: &str) -> Self {
        let volume = Self(tempfile::tempdir().unwrap());
        symlink(format!("..data/{file}"), volume.file(file)).unwrap();
        volume.change("..1", file, text);
        volume
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn change(&self, version: &str, file: &str, text: &str) {
        std::fs::create_dir(self.file(version)).unwrap();
        std::fs::write(self.file(version).join(file), text).unwrap();
        symlink(version, self.file("..data_tmp")).unwrap();
        std::fs::rename(self.file("..data_tmp"), self.file("..data")).unwrap();
    }
}

#[test]
fn changed_config_map_or_secret_is_applied_and_invalid_one_logged_once() {
    let store = TestStore::with_everything();
    let secret = Volume::mounted("token", "first");
    let config = |rules: &str| {
        let token = secret.file("token");
        store.config("watch_config = \"100ms\"", rules)
            + &format!(
                "\n[[platform]]\nkind = \"tencent\"\nname = \"tencent\"\npath = \"/rta/tencent\"\n\
                 headers = [{{ name = \"X-Rta-Token\", value_file = {token:?} }}]\n\
                 strategies = {{ T1 = \"no-vip\" }}"
            )
    };
    let one = "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = [\"vip\"]";
    let two = format!("{one}\n[[strategy]]\nname = \"vip-only\"\nwhen = \"vip\"");
    let map = Volume::mounted("rtad.toml", &config(one));
    let rtad = Rtad::serve(&map.file("rtad.toml"), &[]);
    let mut admin = rtad.connect_admin();
    let metrics = |name: &str| metric(&rtad.connect_admin().get("/metrics").text(), name);
    assert_eq!(metrics("rtad_config_last_reload_successful"), 1.0);
    assert_eq!(
        admin.get("/v1/status").ok()["strategies"],
        json!(["no-vip"])
    );

    map.change("..2", "rtad.toml", &config(&two));
    rtad.log("config reloaded", 1);
    assert_eq!(
        admin.get("/v1/status").ok()["strategies"],
        json!(["no-vip", "vip-only"])
    );

    // `T1` names a strategy that no longer exists.
    map.change("..3", "rtad.toml", &config(RULES));
    let event = rtad.log("config not reloaded; the old one stays", 1);
    assert!(
        event["reason"].as_str().unwrap().contains("no-vip"),
        "{event}"
    );
    assert_eq!(metrics("rtad_config_last_reload_successful"), 0.0);
    assert_eq!(
        admin.get("/v1/status").ok()["strategies"],
        json!(["no-vip", "vip-only"])
    );

    // The served content counts as a change after that.
    map.change("..4", "rtad.toml", &config(&two));
    rtad.log("config reloaded", 2);
    assert_eq!(metrics("rtad_config_last_reload_successful"), 1.0);

    let rejected =
        || metrics("rtad_platform_failures_total{platform=\"tencent\",cause=\"unauthorized\"}");
    let ask = |token: &str| {
        rtad.connect().request(
            "POST",
            "/rta/tencent",
            &format!("X-Rta-Token: {token}\r\n"),
            "",
        )
    };
    ask("first");
    assert_eq!(rejected(), 0.0);
    secret.change("..2", "token", "second");
    let reloaded = rtad.log("config reloaded", 3);
    assert_eq!(reloaded["changed"], "contents of secrets or files");
    ask("second");
    assert_eq!(rejected(), 0.0);
    ask("first");
    assert_eq!(rejected(), 1.0);

    // A missing file is an error, and its return a change.
    std::fs::remove_file(secret.file("..data")).unwrap();
    rtad.log("config not reloaded; the old one stays", 2);
    symlink("..2", secret.file("..data")).unwrap();
    rtad.log("config reloaded", 4);
    rtad.signal("TERM");
    let ended = rtad.wait();
    assert_eq!(ended.status, Some(0));
    assert_eq!(
        ended.stderr.matches("config not reloaded").count(),
        2,
        "each mistake is logged once: {}",
        ended.stderr
    );
}

#[test]
fn file_that_is_saved_in_place_counts_once_it_is_whole() {
    let store = TestStore::with_everything();
    let config = |rules: &str| store.config("watch_config = \"100ms\"", rules);
    let half = "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"";
    let whole = format!("{half}\nexclude = [\"vip\"]");
    let other = format!("{whole}\nwhen = {{ os = \"ios\" }}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rtad.toml");
    std::fs::write(&file, config(&whole)).unwrap();
    let rtad = Rtad::serve(&file, &[]);

    // A save that takes a second: the file is read many times, and never twice alike.
    for written in 0..20 {
        let text = if written == 0 { "" } else { &config(half) };
        std::fs::write(&file, format!("{text}\n# {written}\n")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(&file, config(&other)).unwrap();
    let reloaded = rtad.log("config reloaded", 1);
    assert_eq!(reloaded["changed"], "strategy.no-vip.when");

    std::fs::write(&file, "# Written later.\n").unwrap();
    wait_until("the empty file is refused", || {
        let status = rtad.connect_admin().get("/v1/status").ok();
        status["refused_config"]
            .to_string()
            .contains("content is missing")
    });
    std::fs::write(&file, config(&whole)).unwrap();
    let removed = rtad.log("the reloaded config lacks what was served", 1);
    assert_eq!(removed["removed"], "strategy.no-vip.when");
}

#[test]
fn start_over_a_file_that_is_being_written_is_refused() {
    let store = TestStore::with_everything();
    let folder = tempfile::tempdir().unwrap();
    let (file, aside) = (folder.path().join("rtad.toml"), folder.path().join("aside"));
    let write = |version: u32| {
        std::fs::write(&aside, store.config("", &format!("{RULES}# {version}\n"))).unwrap();
        std::fs::rename(&aside, &file).unwrap();
    };
    write(0);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1.. {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                write(version);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let arguments = ["serve".as_ref(), "--config".as_ref(), file.as_os_str()];
        let started = Rtad::spawn(&arguments, &[]).serving();
        has_ended.store(true, Ordering::Relaxed);
        let log = started.err().expect("it ends");
        assert!(
            log.contains("the files of the config changed within 500ms"),
            "{log}"
        );
    });
}

/// An audience that follows a window has new deltas at every poll.
#[test]
fn deltas_leave_no_line_in_the_log() {
    let store = TestStore::with_everything();
    let rtad = Rtad::serve(&store.config_file("", RULES), &[]);
    let depot = Depot::at(store.path().to_owned());
    for say in [Change::add, Change::remove] {
        let mut change = Change::default();
        say(&mut change, key("oaid", NON_MEMBER));
        depot.append("vip", change);
        rtad.connect_admin().post("/v1/reload", "").ok();
    }
    wait_until("both deltas are served", || {
        let status = rtad.connect_admin().get("/v1/status").ok();
        let audiences = status["audiences"].as_array().unwrap().iter();
        audiences
            .clone()
            .any(|it| it["name"] == "vip" && it["snapshot"]["deltas"]["sequence"] == 3)
    });
    rtad.signal("TERM");
    let log = rtad.wait().stderr;
    let loaded = |line: &&str| line.contains("\"snapshot loaded\"") && line.contains("\"vip\"");
    assert_eq!(log.lines().filter(loaded).count(), 1, "{log}");
}

#[test]
fn config_is_applied_when_its_audience_becomes_available() {
    let store = TestStore::with_everything();
    let one = "[[audience]]\nname = \"vip\"\n[[strategy]]\nname = \"no-vip\"\nexclude = [\"vip\"]";
    let config = |rules: &str| store.config("watch_config = \"100ms\"", rules);
    let map = Volume::mounted("rtad.toml", &config(one));
    let rtad = Rtad::serve(&map.file("rtad.toml"), &[]);
    let more = format!(
        "{one}\n[[audience]]\nname = \"late\"\n[[strategy]]\nname = \"no-late\"\n\
         exclude = [\"late\"]"
    );
    map.change("..2", "rtad.toml", &config(&more));
    let event = rtad.log("config not reloaded; the old one stays", 1);
    assert!(
        event["reason"].as_str().unwrap().contains("late"),
        "{event}"
    );
    store.publish("late", &[key("oaid", NON_MEMBER)]);
    rtad.log("config reloaded", 1);
    let status = rtad.connect_admin().get("/v1/status").ok();
    assert_eq!(status["strategies"], json!(["no-vip", "no-late"]));
}
