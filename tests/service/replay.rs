//! `rtad replay`: logged decisions made again by the same config, and by others.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use prost::Message as _;
use rtad::platform::MAX_READ_IDS;
use rtad::platform::tencent::{Device, RtaRequest, device};
use rtad_log::folder::closed;
use serde_json::{Value, json};
use testkit::process::Outcome;
use testkit::wait_until;

use crate::fixture::{NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, RULES, TestStore};
use crate::rtad_process::{Rtad, run};

/// Every thing on which decisions depend. `AT` is a time, and `LOG` a directory.
const MORE: &str = r#"
[[strategy]]
name = "ios-vip"
when = { any = [{ os = ["ios"] }, { all = ["vip", { bucket = "price:high" }] }], none = ["old_users"] }
[[strategy.value]]
audience = "vip"
weight = 2.0
[[strategy.value]]
bucket = "price:high"
weight = 3.0
[[strategy.value]]
weight = 0.5
[[strategy]]
name = "capped"
exclude = ["old_users"]
cap = "daily"
[[strategy]]
name = "scheduled"
exclude = ["old_users"]
valid_from = "AT"
[[strategy]]
name = "trial"
exclude = ["vip"]
shadow = true
[[cap]]
name = "daily"
limit = 2
period = "day"
time_zone = "Asia/Shanghai"
[[experiment]]
name = "price"
buckets = [{ name = "low", slots = "0..5000" }, { name = "high", slots = "5000..10000" }]
[[platform]]
kind = "tencent"
name = "tencent"
path = "/rta/tencent"
strategies = { T1 = "new-users", T2 = "ios-vip", T3 = "capped", T4 = "scheduled", T5 = "trial" }
[[platform]]
kind = "custom"
name = "mapped"
path = "/rta/mapped"
body = "json"
strategies = { "7" = "new-vip", "8" = "needs-missing" }
request = { strategies = "asked", ids = { oaid = "oaid" }, attributes = { slot = "slot" } }
response = { accepted = "accepted" }
[log]
to = "LOG"
key_secret = "0123456789abcdef"
sample = 1.0
"#;

/// Devices: members of each audience, and others, each with a few attributes.
fn send(rtad: &Rtad, rounds: usize) {
    let mut client = rtad.connect();
    let named = OLD_USERS
        .iter()
        .filter(|(kind, _)| *kind == "oaid")
        .map(|(_, id)| *id);
    let named: Vec<_> = named
        .chain([NON_MEMBER, NEW_VIP, OLD_VIP])
        .map(str::to_owned)
        .collect();
    for round in 0..rounds {
        let others = (0..6).map(|number| format!("device-{}", 6 * round + number));
        for (number, oaid) in named.iter().cloned().chain(others).enumerate() {
            let os = [None, Some(1), Some(2)][number % 3];
            let device = Device {
                oaid: Some(oaid.clone().into()),
                os,
                ..Device::default()
            };
            let id = Some(format!("t-{round}-{number}").into());
            let request = RtaRequest {
                id,
                device: Some(device),
                ..RtaRequest::default()
            };
            client.post("/rta/tencent", request.encode_to_vec());
            let asked = [json!(["7", "8"]), json!(["8"]), json!([])][number % 3].clone();
            let mapped = json!({ "asked": asked, "oaid": oaid, "slot": number });
            client.post("/rta/mapped", mapped.to_string());
            let os = if number % 2 == 0 { "ios" } else { "android" };
            let attributes = json!({ "os": os });
            let body = json!({ "device": { "oaid": oaid }, "attributes": attributes });
            client.post("/v1/decide", body.to_string()).ok();
        }
        client
            .post("/v1/decide", json!({ "device": {} }).to_string())
            .ok();
        client.post("/rta/tencent", "garbage");
        // Too many ids, none of them usable.
        let openid = device::WxOpenid {
            openid: Some("null".into()),
        };
        let wx_openid = vec![openid; MAX_READ_IDS + 1];
        let device = Some(Device {
            wx_openid,
            ..Device::default()
        });
        let request = RtaRequest {
            device,
            ..RtaRequest::default()
        };
        client.post("/rta/tencent", request.encode_to_vec());
    }
}

struct Logged {
    store: TestStore,
    rules: String,
    rows: u64,
}

impl Logged {
    /// The log of a pod that answered for a while, over a change of a schedule.
    fn new() -> Self {
        let store = TestStore::with_everything();
        let folder = store.path().join("log").display().to_string();
        let more = MORE.replace("LOG", &folder);
        let rules = |at: SystemTime| {
            let at = humantime::format_rfc3339_seconds(at).to_string();
            format!("{RULES}{}", more.replace("AT", &at))
        };
        let write = |rules: &str| store.config_file("api = { public = true }", rules);
        let day = Duration::from_secs(86_400);
        let rtad = Rtad::serve(&write(&rules(SystemTime::now() + day)), &[]);
        let mut admin = rtad.connect_admin();
        wait_until("the cap is granted", || {
            admin.get("/v1/status").ok()["caps"][0]["granted"] == 2
        });
        send(&rtad, 10);
        // The schedule's time is after the first answers, however long the start took.
        let at = SystemTime::now() + Duration::from_secs(3);
        let rules = rules(at);
        write(&rules);
        rtad.signal("HUP");
        rtad.log("config reloaded", 1);
        // The time in the config has whole seconds.
        if SystemTime::now() + Duration::from_secs(1) < at {
            rtad.log("schedule of the strategy has changed", 1);
        }
        wait_until("the schedule holds", || {
            let rules = admin.get("/v1/status").ok()["rules"].clone();
            let mut rules = rules.as_array().unwrap().iter();
            rules.any(|rule| rule["strategy"] == "scheduled" && rule["schedule"]["holds"] == true)
        });
        send(&rtad, 10);
        rtad.signal("TERM");
        let Outcome { status, stderr, .. } = rtad.wait();
        assert_eq!(status, Some(0), "{stderr}");
        Self {
            store,
            rules,
            rows: 20 * (10 * 3 + 3),
        }
    }

    fn log(&self) -> PathBuf {
        self.store.path().join("log")
    }

    /// The config with a part replaced, in a file of its own.
    fn config(&self, from: &str, to: &str) -> PathBuf {
        assert!(self.rules.contains(from), "{from}");
        let file = self.store.path().join("new.toml");
        let rules = self.rules.replacen(from, to, 1);
        fs::write(&file, self.store.config("api = { public = true }", &rules)).unwrap();
        file
    }

    fn replay(&self, config: &Path, more: &[&str]) -> Outcome {
        let (config, log) = (
            config.display().to_string(),
            self.log().display().to_string(),
        );
        let arguments = [&["replay", "--config", &config][..], more, &[&log]].concat();
        run(&arguments, &[])
    }

    fn report(&self, config: &Path) -> Value {
        let Outcome {
            status,
            stdout,
            stderr,
        } = self.replay(config, &["--json"]);
        assert_eq!(status, Some(0), "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    }
}

fn line<'r>(report: &'r Value, platform: &str, strategy: &str) -> &'r Value {
    let lines = report["strategies"].as_array().unwrap();
    let is_it = |line: &&Value| line["platform"] == platform && line["strategy"] == strategy;
    lines.iter().find(is_it).unwrap()
}

/// The decisions after all changes of a strategy that had this decision before.
fn change<'r>(report: &'r Value, platform: &str, strategy: &str, before: &str) -> Vec<&'r str> {
    let changes = report["changes"].as_array().unwrap().iter();
    let changes = changes.filter(|it| it["platform"] == platform && it["strategy"] == strategy);
    changes
        .filter(|it| it["before"] == before)
        .map(|it| it["after"].as_str().unwrap())
        .collect()
}

#[test]
fn same_config_changes_nothing_and_others_just_what_they_change() {
    let logged = Logged::new();
    let same = logged.config("[[audience]]", "[[audience]]");
    let Outcome {
        status,
        stdout,
        stderr,
    } = logged.replay(&same, &["--max-change", "0%"]);
    assert_eq!(status, Some(0), "{stdout} {stderr}");
    assert!(
        stdout.contains("changed: 0 rows, 0.0000 % of requests"),
        "{stdout}"
    );
    let all = logged.report(&same);
    assert_eq!(all["rows"], logged.rows, "{stdout}");
    // A file beside the folders of days counts too.
    let (day, loose) = (
        closed(&logged.log()).unwrap(),
        logged.log().join("loose.parquet"),
    );
    fs::copy(logged.log().join(&day[0]), &loose).unwrap();
    let files = all["files"].as_u64().unwrap();
    assert_eq!(logged.report(&same)["files"], files + 1);
    fs::remove_file(&loose).unwrap();
    let before = ["--against", same.to_str().unwrap(), "--max-change", "0%"];
    assert_eq!(logged.replay(&same, &before).status, Some(0));

    let report = logged.report(&logged.config("{ os = [\"ios\"] }", "{ os = [\"windows\"] }"));
    let changed = line(&report, "api", "ios-vip");
    assert_eq!(changed["gained"], 0, "{report:#}");
    // Every second device has the system; a VIP may be in the bucket, and one is an old user.
    assert!(
        (20 * 3..=20 * 5).contains(&changed["lost"].as_u64().unwrap()),
        "{report:#}"
    );
    assert_eq!(line(&report, "tencent", "new-users")["lost"], 0);

    // The row names what made a no-bid.
    let report = logged.report(&logged.config(
        "name = \"new-users\"\nexclude = [\"old_users\"]",
        "name = \"new-users\"\nexclude = [\"vip\"]",
    ));
    let found = change(&report, "tencent", "new-users", "no bid: member old_users");
    assert_eq!(found, ["bid: not_member"], "{report:#}");

    // Everyone but old users and those without an id: each device of the run is counted once.
    let report = logged.report(&logged.config(
        "name = \"new-users\"\nexclude = [\"old_users\"]",
        "name = \"new-users\"\nexclude = [\"old_users\", \"vip\"]",
    ));
    let new_users = line(&report, "tencent", "new-users");
    assert_eq!(
        new_users["lost"], 20,
        "the new VIP in each round: {report:#}"
    );
    assert_eq!(new_users["bids_before"], 20 * 8);
    let change = &report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["platform"] == "tencent");
    let change = change.unwrap();
    assert_eq!(change["before"], "bid: not_member");
    assert_eq!(change["after"], "no bid: member vip");
    assert_eq!(change["rows"], 20);
    assert_eq!(change["examples"].as_array().unwrap().len(), 3);

    // A value.
    let report = logged.report(&logged.config("weight = 0.5", "weight = 0.7"));
    let values = line(&report, "api", "ios-vip");
    let (changed, bids) = (&values["values_changed"], &values["bids_after"]);
    assert!(
        changed.as_u64() > Some(0) && changed.as_u64() < bids.as_u64(),
        "{report:#}"
    );

    // The factor of one arm of a price test.
    let report = logged.report(&logged.config("weight = 3.0", "weight = 3.5"));
    let values = line(&report, "api", "ios-vip");
    let (changed, bids) = (&values["values_changed"], &values["bids_after"]);
    assert!(
        changed.as_u64() > Some(0) && changed.as_u64() < bids.as_u64(),
        "{report:#}"
    );

    // Devices of one bucket move to another.
    let report =
        logged.report(&logged.config("slots = \"5000..10000\"", "slots = \"6000..10000\""));
    let moved = report["buckets"].as_array().unwrap();
    assert_eq!(moved.len(), 1, "{report:#}");
    let moved = &moved[0];
    assert_eq!(
        (&moved["before"], &moved["after"]),
        (&json!("high"), &json!("none"))
    );
    assert!(moved["rows"].as_u64().unwrap() > 0);
}

#[test]
fn changes_in_shadow_are_counted_apart() {
    let logged = Logged::new();
    let trial = "exclude = [\"vip\"]\nshadow = true";
    let other = logged.config(trial, "when = \"vip\"\nshadow = true");
    let Outcome {
        status,
        stdout,
        stderr,
    } = logged.replay(&other, &["--max-change", "0%"]);
    assert_eq!(status, Some(0), "{stdout} {stderr}");
    assert!(
        stdout.contains("changed: 0 rows, 0.0000 % of requests"),
        "{stdout}"
    );
    assert!(stdout.contains("\nchanged in shadow: "), "{stdout}");
    let report = logged.report(&other);
    let lost = &line(&report, "api", "trial")["lost"];
    assert!(lost.as_u64() > Some(0) && report["shadow_changed_rows"].as_u64() > lost.as_u64());
    let found = change(&report, "api", "trial", "bid in shadow: not_member");
    assert_eq!(found, ["no bid in shadow: rule vip"], "{report:#}");

    let added = format!("[[strategy]]\nname = \"second\"\n{trial}\n[[experiment]]");
    let report = logged.report(&logged.config("[[experiment]]", &added));
    let second = line(&report, "api", "second");
    let (before, after, gained) = (
        &second["bids_before"],
        &second["bids_after"],
        &second["gained"],
    );
    assert!(
        *before == 0 && after.as_u64() > Some(0) && gained == after,
        "{report:#}"
    );
    assert_eq!(report["changed_rows"], 0, "{report:#}");
    let found = change(&report, "api", "second", "absent");
    assert_eq!(found, ["bid in shadow: not_member"], "{report:#}");

    // The answers of a strategy that leaves the shadow change.
    let report = logged.report(&logged.config(trial, "exclude = [\"vip\"]"));
    let found = change(&report, "api", "trial", "bid in shadow: not_member");
    assert_eq!(found, ["bid: not_member"], "{report:#}");
    assert!(report["changed_rows"].as_u64() > Some(0), "{report:#}");
    assert_eq!(report["shadow_changed_rows"], 0, "{report:#}");

    // A fact that only a strategy in shadow lacks leaves no answer open.
    let unlogged = logged.config(trial, "exclude = [\"payers\"]\nshadow = true");
    let audience = "\n[[audience]]\nname = \"payers\"\nrequired = false\n";
    fs::write(&unlogged, fs::read_to_string(&unlogged).unwrap() + audience).unwrap();
    let Outcome { status, stdout, .. } = logged.replay(&unlogged, &["--max-change", "0%"]);
    assert_eq!(status, Some(0), "{stdout}");
    assert!(
        stdout.contains("audience payers is not in the rows"),
        "{stdout}"
    );
}

#[test]
fn fact_that_no_decision_needs_is_no_gap() {
    let logged = Logged::new();
    let report = |from: &str, to: &str| {
        let audience = "[[audience]]\nname = \"payers\"\nrequired = false\n";
        logged.report(&logged.config(from, &format!("{audience}{to}")))
    };
    // An old user is excluded in either order.
    let [one, other] = ["\"old_users\", \"payers\"", "\"payers\", \"old_users\""].map(|names| {
        let strategy = "[[strategy]]\nname = \"new-users\"\nexclude = ";
        report(
            &format!("{strategy}[\"old_users\"]"),
            &format!("{strategy}[{names}]"),
        )
    });
    assert_eq!(one, other);
    let (missing, rows) = (one["incomplete_rows"].as_u64(), one["rows"].as_u64());
    assert!(missing > Some(0) && missing < rows, "{one:#}");
    // The value of a bid needs it: each bid of this strategy, and no other decision.
    let value = "[[strategy.value]]\naudience = \"vip\"\nweight = 2.0";
    let payers = value.replace("vip", "payers");
    let added = "\n[[audience]]\nname = \"payers\"\nrequired = false\n";
    let file = logged.config(value, &format!("{payers}\n{value}"));
    fs::write(&file, fs::read_to_string(&file).unwrap() + added).unwrap();
    let report = logged.report(&file);
    let bids: u64 = ["api", "tencent"]
        .map(|platform| {
            line(&report, platform, "ios-vip")["bids_after"]
                .as_u64()
                .unwrap()
        })
        .iter()
        .sum();
    assert_eq!(
        report["gaps"],
        json!([{ "gap": "audience payers is not in the rows", "times": bids }])
    );
    assert_eq!(report["incomplete_rows"], bids, "{report:#}");
}

/// The rows have the cap's verdict about a device, of whichever strategy it was.
#[test]
fn strategy_that_joins_a_cap_is_decided_by_its_verdicts() {
    let logged = Logged::new();
    let scheduled = "name = \"scheduled\"\n";
    let joined = logged.config(scheduled, &format!("{scheduled}cap = \"daily\"\n"));
    let report = logged.report(&joined);
    assert_eq!(report["gaps"], json!([]), "{report:#}");
    let found = change(&report, "api", "scheduled", "bid: not_member");
    assert_eq!(found, ["no bid: capped"], "{report:#}");

    let other = "cap = \"other\"\n[[cap]]\nname = \"other\"\nlimit = 3\nperiod = \"day\"\n\
                 time_zone = \"Asia/Shanghai\"\n";
    let moved = logged.config("cap = \"daily\"\n", other);
    let report = logged.report(&moved);
    let gap = report["gaps"][0]["gap"].as_str();
    assert_eq!(gap, Some("cap other is not in the rows"), "{report:#}");
}

/// Both configs decide alike about each strategy; the answers for two ids change places.
#[test]
fn swapped_ids_of_a_platform_are_a_gap() {
    let logged = Logged::new();
    let ids = "T1 = \"new-users\", T2 = \"ios-vip\"";
    let before = logged.store.path().join("before.toml");
    fs::copy(logged.config(ids, ids), &before).unwrap();
    let swapped = logged.config(ids, "T2 = \"new-users\", T1 = \"ios-vip\"");
    let against = ["--against", before.to_str().unwrap(), "--max-change", "0%"];
    let Outcome { status, stdout, .. } = logged.replay(&swapped, &against);
    assert_eq!(status, Some(3), "{stdout}");
    assert!(
        stdout.contains("ids of platform tencent name other strategies"),
        "{stdout}"
    );

    let Outcome { status, stdout, .. } = logged.replay(&before, &against);
    assert_eq!(status, Some(0), "{stdout}");
}

/// The answers under other values of these keys are not in the rows: each is named, and counts.
#[test]
fn keys_that_the_rows_do_not_decide_are_gaps() {
    let logged = Logged::new();
    let gap = |from: &str, to: &str, gap: &str| {
        let file = logged.config(from, to);
        let Outcome { status, stdout, .. } = logged.replay(&file, &["--max-change", "0%"]);
        assert_eq!(status, Some(3), "{to}: {stdout}");
        let line = format!("not answered by the rows: {gap} (");
        assert!(stdout.contains(&line), "{to}: {stdout}");

        // The config that decided, given as a file, shows the same.
        let before = logged.store.path().join("before.toml");
        fs::copy(logged.config(from, from), &before).unwrap();
        let file = logged.config(from, to);
        let against = ["--against", before.to_str().unwrap(), "--max-change", "0%"];
        let Outcome { status, stdout, .. } = logged.replay(&file, &against);
        assert!(
            status == Some(3) && stdout.contains(&line),
            "{to}: {stdout}"
        );
    };
    let cap = "cap.daily";
    gap(
        "limit = 2\n",
        "limit = 1\n",
        &format!("{cap}.limit differs"),
    );
    gap(
        "period = \"day\"",
        "period = \"hour\"",
        &format!("{cap}.period differs"),
    );
    gap(
        "Asia/Shanghai",
        "Asia/Tokyo",
        &format!("{cap}.time_zone differs"),
    );
    gap(
        "path = \"/rta/tencent\"",
        "path = \"/rta/tencent\"\nno_bid_cache = \"1h\"",
        "platform.tencent.no_bid_cache differs",
    );
    gap(
        "accepted = \"accepted\"",
        "accepted = \"winners\"",
        "platform.mapped.response.accepted differs",
    );
    gap(
        "slots = \"0..5000\"",
        "slots = \"0..5000\", tag = \"low\"",
        "experiment.price.buckets.low.tag differs",
    );
    gap(
        "name = \"old_users\"\n",
        "name = \"old_users\"\nmax_age = \"1d\"\n",
        "audience.old_users.max_age differs",
    );
    gap(
        "T1 = \"new-users\", T2 = \"ios-vip\"",
        "T1 = \"ios-vip\", T2 = \"new-users\"",
        "ids of platform tencent name other strategies",
    );
    gap(
        "[log]",
        "[ids]\nblank = [\"tester\"]\n[log]",
        "ids.blank differs",
    );

    // Rows of requests that the cap does not concern are known.
    let report = logged.report(&logged.config("limit = 2\n", "limit = 1\n"));
    let (open, rows) = (report["incomplete_rows"].as_u64(), report["rows"].as_u64());
    assert!(open > Some(0) && open < rows, "{report:#}");

    // Keys that change no answer.
    let file = logged.config("sample = 1.0", "sample = 0.5");
    let Outcome { status, stdout, .. } = logged.replay(&file, &["--max-change", "0%"]);
    assert_eq!(status, Some(0), "{stdout}");
    let more_ids = logged.config("T1 = \"new-users\"", "T9 = \"new-vip\", T1 = \"new-users\"");
    let Outcome { stdout, .. } = logged.replay(&more_ids, &[]);
    assert!(!stdout.contains("name other strategies"), "{stdout}");
}

#[test]
fn files_of_secrets_may_be_missing() {
    let logged = Logged::new();
    let secret = "key_secret = \"0123456789abcdef\"";
    let file = logged.config(secret, "key_secret_file = \"/nowhere/log.key\"");
    let unchanged = ["--against", file.to_str().unwrap(), "--max-change", "0%"];
    let Outcome { status, stderr, .. } = logged.replay(&file, &unchanged);
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn limits_of_a_change_and_gaps_are_reported() {
    let logged = Logged::new();
    let vip = logged.config(
        "name = \"new-users\"\nexclude = [\"old_users\"]",
        "name = \"new-users\"\nexclude = [\"old_users\", \"vip\"]",
    );
    assert_eq!(
        logged.replay(&vip, &["--max-change", "100%"]).status,
        Some(0)
    );
    let Outcome { status, stderr, .. } = logged.replay(&vip, &["--max-change", "0.1%"]);
    assert_eq!(status, Some(3), "{stderr}");
    assert!(
        stderr.contains("of the requests change or lack facts; accepted: 0.1 %"),
        "{stderr}"
    );

    let layered = logged.config(
        "name = \"price\"\n",
        "name = \"price\"\nlayer = \"other\"\n",
    );
    let Outcome { status, stdout, .. } = logged.replay(&layered, &["--max-change", "0%"]);
    assert_eq!(status, Some(3));
    assert!(
        stdout.contains("experiment price has another layer or unit"),
        "{stdout}"
    );
    // Its buckets are unknown, which is no move.
    assert_eq!(logged.report(&layered)["buckets"], json!([]), "{stdout}");

    let audience = "[[audience]]\nname = \"payers\"\nrequired = false\n[[strategy]]\n\
                    name = \"new-users\"\nexclude = [\"old_users\", \"payers\"]";
    let unlogged = "[[strategy]]\nname = \"new-users\"\nexclude = [\"old_users\"]";
    let report = logged.report(&logged.config(unlogged, audience));
    assert_eq!(
        report["gaps"][0]["gap"], "audience payers is not in the rows",
        "{report:#}"
    );
    // A change that cannot be known is not accepted either.
    let unlogged = logged.config(unlogged, audience);
    let Outcome { status, stderr, .. } = logged.replay(&unlogged, &["--max-change", "1%"]);
    assert_eq!(status, Some(3), "{stderr}");

    let default = logged.store.path().join("default.toml");
    fs::write(
        &default,
        "[store]\nurl = \"/nowhere\"\n[[audience]]\nname = \"old_users\"\n",
    )
    .unwrap();
    let against = ["--against", default.to_str().unwrap()];
    let Outcome { status, stderr, .. } = logged.replay(&vip, &against);
    assert!(
        status == Some(2) && stderr.contains("default.toml: has no [[strategy]]"),
        "{stderr}"
    );

    let Outcome { status, stderr, .. } = run(&["replay", "--config", "x", "/nowhere"], &[]);
    assert_eq!(status, Some(2), "{stderr}");
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().display().to_string();
    let config = vip.display().to_string();
    let Outcome { status, stderr, .. } = run(&["replay", "--config", &config, &path], &[]);
    assert_eq!(status, Some(1));
    assert!(
        stderr.contains("has no files of a decision log; accepted:"),
        "{stderr}"
    );
}
