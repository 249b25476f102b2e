//! Warnings about valid settings: each is given, and none about the examples.

use std::path::{Path, PathBuf};

use crate::config::ConfigUse;
use crate::serve::Assembly;

/// A config without a warning.
const CONFIG: &str = r#"
[store]
url = "/data"
cache_dir = "/cache"
[[audience]]
name = "old_users"
[[audience]]
name = "vip"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
when = { any = ["vip", { bucket = "e:low" }] }
[[experiment]]
name = "e"
buckets = [{ name = "low", slots = "0..5000" }, { name = "high", slots = "5000..10000" }]
[[platform]]
kind = "tencent"
name = "tencent"
path = "/t"
strategies = { T1 = "new-users" }
bid_cache = "1h"
no_bid_cache = "24h"
"#;

fn warnings(text: &str) -> Vec<String> {
    let name = Some(("rtad.toml", text));
    let read = Assembly::read_for(ConfigUse::Rules, name, |_| None, &Vec::new());
    read.unwrap().warnings()
}

fn changed(from: &str, to: &str) -> String {
    assert!(CONFIG.contains(from), "{from}");
    CONFIG.replacen(from, to, 1)
}

#[test]
fn entries_that_nothing_uses_are_warned_about() {
    assert_eq!(warnings(CONFIG), [""; 0]);

    let strategy = "[[strategy]]\nname = \"spare\"\nexclude = [\"vip\"]\n[[platform]]";
    let unmapped = changed("[[platform]]", strategy);
    let expected = "no platform maps spare in its strategies: nothing asks for it, as rtad's own \
                    API is closed";
    assert_eq!(warnings(&unmapped), [expected]);

    let unread = changed(
        "[[strategy]]",
        "[[audience]]\nname = \"spare\"\n[[strategy]]",
    );
    let expected = "no strategy reads the audience spare: pods load it for nothing";
    assert_eq!(warnings(&unread), [expected]);

    // Clients of the API may ask for both, and a replay of the log for the audience.
    for config in [&unmapped, &unread] {
        let opened = format!("[server.api]\npublic = true\n{config}");
        assert_eq!(warnings(&opened), [""; 0]);
    }
    let logged = format!("{unread}[log]\nto = \"/log\"\nkey_secret = \"0123456789abcdef\"\n");
    assert_eq!(warnings(&logged), [""; 0]);
}

#[test]
fn branch_that_exclude_makes_dead_is_warned_about() {
    let dead = "any = [{ bucket = \"e:low\", none = [\"old_users\"] }, { all = [\"old_users\", \"vip\"] }]";
    let retargeting = changed("any = [\"vip\", { bucket = \"e:low\" }]", dead);
    let warning = "when.any[1] of new-users holds only for members of its exclude, who get no bid: \
                   it never applies";
    assert_eq!(warnings(&retargeting), [warning]);

    for alive in [
        "any = [\"vip\", { bucket = \"e:low\", none = [\"old_users\"] }]",
        "bucket = \"e:low\", none = [{ all = [\"old_users\", \"vip\"] }]",
    ] {
        let config = changed("any = [\"vip\", { bucket = \"e:low\" }]", alive);
        assert_eq!(warnings(&config), [""; 0], "{alive}");
    }
    let inner = "all = [\"vip\", { any = [{ bucket = \"e:low\" }, \"old_users\"] }]";
    let config = changed("any = [\"vip\", { bucket = \"e:low\" }]", inner);
    assert!(warnings(&config)[0].starts_with("when.all[1].any[1] of new-users holds only"));
}

#[test]
fn empty_slots_are_warned_about() {
    let gap = changed("\"5000..10000\"", "\"5001..10000\"");
    let expected = "the buckets of e leave 1 of 10000 slots empty: their devices have no bucket";
    assert_eq!(warnings(&gap), [expected]);

    // One bucket is compared with the rest.
    let alone = changed(", { name = \"high\", slots = \"5000..10000\" }", "");
    assert_eq!(warnings(&alone), [""; 0]);

    // A rule about devices without a bucket has a use for the slots.
    let used = gap.replace("e:low", "e:none");
    assert_eq!(warnings(&used), [""; 0]);
}

#[test]
fn cache_times_that_surprise_are_warned_about() {
    let short = changed("bid_cache = \"1h\"", "bid_cache = \"10m\"");
    let expected = "bid_cache = 10m of the platform tencent is less than the 1h for which it keeps \
                    every answer";
    assert_eq!(warnings(&short), [expected]);

    let unset = changed("bid_cache = \"1h\"\nno_bid_cache = \"24h\"\n", "");
    assert_eq!(warnings(&unset), [""; 0]);
    let bid = "bid_cache of the platform tencent is not set: it may keep bids of new-users beyond \
               the end of a cap's period or of a schedule";
    let no_bid = "no_bid_cache of the platform tencent is not set: it keeps refusals by caps and \
                  schedules of new-users for an hour at most, and other answers without a bid as \
                  long as it decides";
    let cap = "[[cap]]\nname = \"c\"\nlimit = 5\nperiod = \"day\"\ntime_zone = \"UTC\"\n";
    for (timed, more) in [
        ("cap = \"c\"", cap),
        ("valid_until = \"2030-01-01T00:00:00Z\"", ""),
    ] {
        let exclude = "exclude = [\"old_users\"]\n";
        let timed = format!("{exclude}{timed}\n");
        let set = changed(exclude, &timed);
        assert_eq!(warnings(&format!("{set}{more}")), [""; 0], "{timed}");
        let unset = unset.replacen(exclude, &timed, 1);
        assert_eq!(
            warnings(&format!("{unset}{more}")),
            [bid, no_bid],
            "{timed}"
        );
    }
}

/// The configs of the docs, of the packages and of Kubernetes are examples of good ones.
#[test]
fn examples_have_no_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut examples = Vec::new();
    for file in [
        "k8s/overlays/dev/rtad.toml",
        "k8s/overlays/prod/rtad.toml",
        "loadtest/rtad.toml",
        "packaging/etc/rtad.toml",
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        examples.push((file.to_owned(), text));
    }
    let head = std::fs::read_to_string(root.join("src/commands/init/head.toml")).unwrap();
    let head = head.replace("STORE", "\"/data\"");
    for kind in crate::platform::KINDS {
        let name = format!("init {}", kind.rules.word);
        examples.push((name, format!("{head}\n{}", kind.example)));
    }
    for page in pages(&root.join("docs")) {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.display().to_string();
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            examples.push((name.clone(), block.to_owned()));
        }
    }

    let mut read = 0;
    for (name, text) in examples {
        let environment = |variable: &str| (variable == "RTAD_STORE").then(|| "/data".to_owned());
        let file = Some((name.as_str(), text.as_str()));
        let assembly = Assembly::read_for(ConfigUse::Rules, file, environment, &Vec::new());
        // Many pages show parts of a config.
        let Ok(assembly) = assembly else { continue };
        read += 1;
        assert_eq!(assembly.warnings(), [""; 0], "{name}:\n{text}");
    }
    assert!(read > 10, "{read} examples");
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}
