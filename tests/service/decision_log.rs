//! The decision log: rows of real requests, and what happens to them when something fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rtad_log::folder::closed;
use rtad_log::read::LogReader;
use rtad_store::write::Change;
use serde_json::{Value, json};
use testkit::client::metric;
use testkit::process::Outcome;
use testkit::sandbox::make_old;
use testkit::store::{Depot, hex};
use testkit::wait_until;

use crate::fixture::{NEW_VIP, NON_MEMBER, OLD_USERS, OLD_VIP, PLATFORMS, RULES, TestStore, key};
use crate::rtad_process::Rtad;

const SECRET: &str = "0123456789abcdef";

/// The configuration of a log in the store's folder, with more lines of `[log]`.
fn log(store: &TestStore, lines: &str) -> String {
    let secret = store.path().join("log.key");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    make_old(&secret);
    let folder = store.path().join("log");
    format!("{RULES}{PLATFORMS}[log]\nto = {folder:?}\nkey_secret_file = \"log.key\"\n{lines}\n")
}

/// All rows of a folder as JSON, in the order of their time.
fn rows(folder: &Path) -> Vec<Value> {
    let mut rows = Vec::new();
    for file in closed(folder).unwrap() {
        let each = |row: &rtad_log::LogRow<'_>| rows.push(serde_json::to_value(row).unwrap());
        LogReader::open(&folder.join(file))
            .unwrap()
            .each(each)
            .unwrap();
    }
    rows.sort_by_key(|row| row["time"].as_i64());
    rows
}

/// Stops the pod and returns its rows and what it logged.
fn stop(rtad: Rtad, store: &TestStore) -> (Vec<Value>, String) {
    rtad.signal("TERM");
    let Outcome { status, stderr, .. } = rtad.wait();
    assert_eq!(status, Some(0), "{stderr}");
    (rows(&store.path().join("log")), stderr)
}

fn decide(client: &mut testkit::client::Client, body: &Value) {
    client.post("/v1/decide", body.to_string()).ok();
}

/// A Tencent request with an OAID.
fn tencent(oaid: &str) -> Vec<u8> {
    use prost::Message as _;
    use rtad::platform::tencent::{Device, RtaRequest};
    let device = Device {
        oaid: Some(oaid.to_owned().into()),
        ..Device::default()
    };
    let id = Some("trace-7".into());
    RtaRequest {
        id,
        device: Some(device),
        ..RtaRequest::default()
    }
    .encode_to_vec()
}

/// A Tencent request with more ids than are looked up.
fn many_ids() -> Vec<u8> {
    use prost::Message as _;
    use rtad::platform::tencent::{Device, RtaRequest, device};
    let qaid = |number: usize| {
        let qaid = Some(format!("{number:032x}").into());
        device::QaidInfo {
            qaid,
            ..device::QaidInfo::default()
        }
    };
    let device = Device {
        qaid_infos: (0..80).map(qaid).collect(),
        ..Device::default()
    };
    let id = Some("many".into());
    RtaRequest {
        id,
        device: Some(device),
        ..RtaRequest::default()
    }
    .encode_to_vec()
}

#[test]
fn row_holds_the_facts_of_an_answer() {
    let store = TestStore::with_everything();
    let rules = log(&store, "sample = 1.0");
    let file = store.config_file("api = { public = true }", &rules);
    let rtad = Rtad::serve(&file, &[]);
    let mut client = rtad.connect();
    let token = "X-Rta-Token: hush-hush\r\n";
    client.request("POST", "/rta/tencent", token, tencent(OLD_VIP));
    client.request("POST", "/rta/tencent", token, tencent(NON_MEMBER));
    client.request("POST", "/rta/tencent", "", tencent(OLD_VIP));
    client.request("POST", "/rta/tencent", token, b"\xff");
    let strategies = ["vip-only", "needs-fresh"];
    decide(
        &mut client,
        &json!({ "request_id": "r1", "strategies": strategies,
        "device": { "oaid": NEW_VIP }, "attributes": { "os": "ios" } }),
    );
    decide(&mut client, &json!({ "device": {} }));
    let mut admin = rtad.connect_admin();
    let explained = admin.post("/v1/explain/tencent", tencent(OLD_VIP)).ok();
    let id = json!({ "id": OLD_VIP, "kind": "oaid" }).to_string();
    let id_explained = admin.post("/v1/explain", id).ok();
    let (rows, stderr) = stop(rtad, &store);
    assert_eq!(rows.len(), 6, "{rows:#?} {stderr}");

    let generation = |row: &Value| row["facts"]["audiences"][0]["generation"].clone();
    let member = |row: &Value| {
        let audiences = row["facts"]["audiences"].as_array().unwrap().iter();
        audiences
            .map(|audience| audience["member"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let [old_vip, new, unauthorized, broken, api, bare] = &rows[..] else {
        panic!()
    };
    assert_eq!(
        member(old_vip),
        ["Yes", "Yes", "Unavailable", "Unavailable"]
    );
    assert_eq!(member(new), ["No", "No", "Unavailable", "Unavailable"]);
    assert_eq!(generation(new), 1);
    let facts = &old_vip["facts"];
    assert_eq!(
        (&facts["request_id"], &facts["ids"]),
        (&json!("trace-7"), &json!("All"))
    );
    assert_eq!(
        (&facts["asked"], &facts["attributes"][4]),
        (&Value::Null, &json!("normal"))
    );
    assert_eq!(
        (&old_vip["platform"], &old_vip["failure"]),
        (&json!("tencent"), &Value::Null)
    );
    assert_eq!(
        (&old_vip["probability"], &old_vip["raw"]),
        (&json!(1.0), &Value::Null)
    );
    let decisions = |row: &Value| -> Vec<(String, bool, String)> {
        let decisions = row["facts"]["decisions"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let decision = |it: &Value| {
            (
                text(&it["strategy"]),
                it["bid"].as_bool().unwrap(),
                text(&it["reason"]),
            )
        };
        decisions.map(decision).collect()
    };
    let decided = |strategy: &str, bid, reason: &str| (strategy.to_owned(), bid, reason.to_owned());
    let needs_missing = decided("needs-missing", true, "unavailable");
    let expected = [decided("new-users", false, "member"), needs_missing.clone()];
    assert_eq!(decisions(old_vip), expected);
    assert_eq!(
        decisions(new),
        [
            decided("new-users", true, "not_member"),
            needs_missing.clone()
        ]
    );

    // The name of a device is the HMAC of its key, which a team can compute from its own lists.
    let device = &facts["device"];
    let hmac: Vec<u8> = serde_json::from_value(device["hmac"].clone()).unwrap();
    assert_eq!(hmac, hmac_of(&key("oaid", OLD_VIP)));
    assert_eq!(device["secret"], "d1636338");
    let name = const_hex::encode(hmac);
    assert_eq!(explained["log_device"], name);
    assert_eq!(id_explained["readings"][0]["log_device"], name);
    assert!(!stderr.contains(&name), "{stderr}");

    assert_eq!(unauthorized["failure"], "unauthorized");
    assert_eq!(unauthorized["facts"], Value::Null);
    assert_eq!(
        (&broken["failure"], &broken["facts"]["ids"]),
        (&json!("bad_body"), &json!("Unread"))
    );
    let unread = [decided("new-users", false, "unavailable"), needs_missing];
    assert_eq!(decisions(broken), unread);

    let asked = json!(strategies);
    assert_eq!(
        (&api["platform"], &api["facts"]["asked"]),
        (&json!("api"), &asked)
    );
    assert_eq!(api["facts"]["request_id"], "r1");
    let by_age = decided("needs-fresh", false, "unavailable");
    assert_eq!(decisions(api), [decided("vip-only", true, "rule"), by_age]);
    assert_eq!(
        (&bare["facts"]["ids"], &bare["facts"]["device"]),
        (&json!("None"), &Value::Null)
    );
    assert_eq!(decisions(bare).len(), 5);

    let text = fs::read_to_string(&file).unwrap();
    let sum = const_hex::encode(<sha2::Sha256 as sha2::Digest>::digest(text));
    assert_eq!(bare["config"], sum[..16]);
}

/// Deltas may have values over filters without any, as after a rollback.
#[test]
fn row_has_a_value_that_only_a_delta_has() {
    let store = TestStore::with_everything();
    let mut change = Change::default();
    change.add_with_value(key("oaid", NEW_VIP), 3);
    Depot::over(&store.path().display().to_string()).append("vip", change);
    let file = store.config_file("api = { public = true }", &log(&store, "sample = 1.0"));
    let rtad = Rtad::serve(&file, &[]);
    decide(
        &mut rtad.connect(),
        &json!({ "device": { "oaid": NEW_VIP } }),
    );
    let (rows, _) = stop(rtad, &store);
    let mut audiences = rows[0]["facts"]["audiences"].as_array().unwrap().iter();
    assert_eq!(
        audiences
            .find(|audience| audience["name"] == "vip")
            .unwrap()["value"],
        3
    );
}

#[test]
fn request_that_names_a_thousand_strategies_has_a_row() {
    use prost::Message as _;
    use rtad::platform::ocean::Req;
    let store = TestStore::with_everything();
    let file = store.config_file("", &log(&store, "sample = 1.0"));
    let rtad = Rtad::serve(&file, &[]);
    let rta_ids = (0..1000)
        .map(|number| 100_000_000_000_000 + number)
        .collect();
    let request = Req {
        rta_ids,
        ..Req::default()
    }
    .encode_to_vec();
    rtad.connect().request("POST", "/rta/ocean", "", request);
    let (rows, _) = stop(rtad, &store);
    assert_eq!(rows[0]["facts"]["asked"].as_array().unwrap().len(), 1000);
}

#[test]
fn batch_has_a_row_for_each_device() {
    let store = TestStore::with_everything();
    let batch = "[[platform]]\nkind = \"custom\"\nname = \"batch\"\npath = \"/batch\"\n\
                 strategies = { \"1\" = \"new-users\" }\nbody = \"json\"\n\
                 request = { ids = { oaid = \"oaids\" } }\n\
                 response = { accepted_ids = \"oaids\" }\n";
    let rules = log(&store, &format!("sample = 1.0\nraw = \"sampled\"\n{batch}"));
    let rtad = Rtad::serve(&store.config_file("api = { public = true }", &rules), &[]);
    let body = json!({ "oaids": [OLD_VIP, NON_MEMBER] }).to_string();
    let answer = rtad.connect().post("/batch", &body).ok();
    assert_eq!(answer, json!({ "oaids": [NON_MEMBER] }));
    let explained = rtad.connect_admin().post("/v1/explain/batch", &body).ok();
    assert_eq!(explained.get("log_device"), None);
    let mut explained_ids = explained["ids"].as_array().unwrap().iter();
    let (rows, stderr) = stop(rtad, &store);
    assert_eq!(rows.len(), 2, "{rows:#?} {stderr}");
    for (row, (id, reason)) in rows
        .iter()
        .zip([(OLD_VIP, "member"), (NON_MEMBER, "not_member")])
    {
        assert_eq!(
            (&row["platform"], &row["raw"]),
            (&json!("batch"), &Value::Null)
        );
        let hmac: Vec<u8> = serde_json::from_value(row["facts"]["device"]["hmac"].clone()).unwrap();
        assert_eq!(hmac, hmac_of(&key("oaid", id)));
        let explained = explained_ids.next().unwrap();
        assert_eq!(explained["log_device"], const_hex::encode(hmac));
        let decisions = row["facts"]["decisions"].as_array().unwrap();
        assert_eq!(
            (decisions.len(), &decisions[0]["reason"]),
            (1, &json!(reason))
        );
    }
}

#[test]
fn devices_beyond_the_limits_of_a_batch_have_rows_too() {
    let store = TestStore::with_everything();
    let rules = log(
        &store,
        "sample = 1.0\n[[strategy]]\nname = \"open\"\nexclude = [\"old_users\"]\n\
         unavailable = \"bid\"\n[[platform]]\nkind = \"custom\"\nname = \"batch\"\n\
         path = \"/batch\"\nstrategies = { \"1\" = \"open\" }\nbody = \"json\"\n\
         request = { ids = { oaid = \"oaids\" } }\nresponse = { accepted_ids = \"oaids\" }\n",
    );
    let rtad = Rtad::serve(&store.config_file("api = { public = true }", &rules), &[]);
    let oaids: Vec<_> = (0..1030)
        .map(|number| format!("{number:08x}-0000-4000-8000-000000000000"))
        .collect();
    let answer = rtad
        .connect()
        .post("/batch", json!({ "oaids": oaids }).to_string())
        .ok();
    assert_eq!(answer["oaids"].as_array().unwrap(), &oaids[..1024]);
    let (rows, stderr) = stop(rtad, &store);
    let count = |ids: &str| rows.iter().filter(|row| row["facts"]["ids"] == ids).count();
    assert_eq!(
        (rows.len(), count("All"), count("Unread")),
        (1024, 64, 960),
        "{stderr}"
    );
}

fn hmac_of(key: &rtad_core::device::DeviceKey) -> Vec<u8> {
    use hmac::{KeyInit as _, Mac as _};
    let mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.chain_update(key.as_bytes()).finalize().into_bytes()[..16].to_vec()
}

#[test]
fn no_id_is_in_a_file_in_any_form() {
    let store = TestStore::with_everything();
    let rules = log(&store, "sample = 1.0");
    let file = store.config_file("api = { public = true }", &rules);
    let rtad = Rtad::serve(&file, &[]);
    let mut client = rtad.connect();
    for (kind, id) in OLD_USERS {
        decide(&mut client, &json!({ "device": { kind: id } }));
    }
    client.request(
        "POST",
        "/rta/tencent",
        "X-Rta-Token: hush-hush\r\n",
        tencent(OLD_VIP),
    );
    let (rows, _) = stop(rtad, &store);
    assert_eq!(rows.len(), OLD_USERS.len() + 1);
    let devices = OLD_USERS.into_iter().chain([("oaid", OLD_VIP)]);
    // Pages are compressed: the rows are searched as well as the files.
    let mut haystacks = vec![serde_json::to_vec(&rows).unwrap()];
    for name in closed(&store.path().join("log")).unwrap() {
        haystacks.push(fs::read(store.path().join("log").join(name)).unwrap());
    }
    for (kind, id) in devices {
        let key = key(kind, id);
        let forms = [
            id.as_bytes().to_vec(),
            key.as_bytes().to_vec(),
            hex(&key).into_bytes(),
        ];
        let json_bytes = serde_json::to_string(&key.as_bytes()).unwrap().into_bytes();
        for form in forms.into_iter().chain([json_bytes]) {
            let lower = form.to_ascii_lowercase();
            for haystack in &haystacks {
                let found = haystack
                    .windows(form.len())
                    .any(|part| part == form || part.to_ascii_lowercase() == lower);
                assert!(!found, "{kind}");
            }
        }
    }
}

#[test]
fn sample_is_by_device_and_some_requests_are_always_logged() {
    let store = TestStore::with_everything();
    let lines = "sample = 0.0\nalways = [\"bad_body\", \"no_device\", \"too_many_ids\"]\n\
                 request_ids = [\"r7\"]\nraw = \"sampled\"";
    let file = store.config_file("api = { public = true }", &log(&store, lines));
    let rtad = Rtad::serve(&file, &[]);
    let mut client = rtad.connect();
    let token = "X-Rta-Token: hush-hush\r\n";
    let device = json!({ "oaid": NON_MEMBER });
    decide(&mut client, &json!({ "device": device }));
    decide(
        &mut client,
        &json!({ "request_id": "r7", "device": device }),
    );
    client.request("POST", "/rta/tencent", "", tencent(OLD_VIP));
    client.request("POST", "/rta/tencent?a=1", token, b"\xff");
    decide(&mut client, &json!({ "request_id": "bare", "device": {} }));
    client.request("POST", "/rta/tencent", token, many_ids());
    let (rows, _) = stop(rtad, &store);
    let named: Vec<_> = rows
        .iter()
        .map(|row| {
            row["facts"]["request_id"]
                .as_str()
                .or(row["failure"].as_str())
                .unwrap()
        })
        .collect();
    assert_eq!(named, ["r7", "bad_body", "bare", "many"]);
    assert_eq!(rows[3]["facts"]["ids"], "TooMany");
    assert!(
        rows.iter()
            .all(|row| row["probability"] == 1.0 && row["sampled"] == false)
    );
    assert_eq!(rows[1]["raw"], json!({ "query": "a=1", "body": [255] }));
}

#[test]
fn row_of_the_sample_says_so_whatever_else_logs_it() {
    let store = TestStore::with_everything();
    // Whether each device is in the sample, and the probability of its row.
    let logged = |always: &str| -> BTreeMap<String, (bool, f64)> {
        let lines = format!("sample = 0.5\nalways = [{always}]");
        let file = store.config_file("api = { public = true }", &log(&store, &lines));
        let rtad = Rtad::serve(&file, &[]);
        let mut client = rtad.connect();
        for number in 0..100 {
            let device = json!({ "oaid": format!("device-{number}") });
            decide(
                &mut client,
                &json!({ "request_id": format!("{number}"), "device": device }),
            );
        }
        let (rows, stderr) = stop(rtad, &store);
        fs::remove_dir_all(store.path().join("log")).unwrap();
        let row = |row: &Value| {
            let id = row["facts"]["request_id"].as_str().unwrap().to_owned();
            (
                id,
                (
                    row["sampled"].as_bool().unwrap(),
                    row["probability"].as_f64().unwrap(),
                ),
            )
        };
        assert!(!rows.is_empty(), "{stderr}");
        rows.iter().map(row).collect()
    };
    let (few, all) = (logged(""), logged("\"not_member\""));
    assert!((20..80).contains(&few.len()) && few.values().all(|row| *row == (true, 0.5)));
    assert_eq!(all.len(), 100);
    for (id, (is_sampled, probability)) in all {
        assert_eq!(
            (is_sampled, probability),
            (few.contains_key(&id), 1.0),
            "{id}"
        );
    }
}

#[test]
fn rows_over_the_rate_are_dropped_and_counted() {
    let store = TestStore::with_everything();
    let file = store.config_file(
        "api = { public = true }",
        &log(&store, "sample = 1.0\nmax_rate = 1\nmax_age = \"1s\""),
    );
    let rtad = Rtad::serve(&file, &[]);
    let (mut client, mut admin) = (rtad.connect(), rtad.connect_admin());
    for _ in 0..50 {
        decide(&mut client, &json!({ "device": { "oaid": NON_MEMBER } }));
    }
    let mut metrics = String::new();
    wait_until("the file is closed", || {
        metrics = admin.get("/metrics").text();
        metric(&metrics, "rtad_log_rows_total") > 0.0
    });
    let dropped = metric(&metrics, "rtad_log_dropped_rows_total{reason=\"rate\"}");
    assert!(dropped >= 1.0, "{metrics}");
    let (rows, _) = stop(rtad, &store);
    assert_eq!(rows.len() as f64 + dropped, 50.0);
}

#[test]
fn folder_that_fails_costs_rows_and_log_lines_alone() {
    let store = TestStore::with_everything();
    let file = store.config_file(
        "api = { public = true }",
        &log(&store, "sample = 1.0\nmax_age = \"1s\""),
    );
    let rtad = Rtad::serve(&file, &[]);
    let (mut client, mut admin) = (rtad.connect(), rtad.connect_admin());
    let folder = store.path().join("log");
    let dropped = "rtad_log_dropped_rows_total{reason=\"disk\"}";
    let body = json!({ "device": { "oaid": NON_MEMBER } });
    let mut await_drop = || {
        let before = metric(&admin.get("/metrics").text(), dropped);
        wait_until("a row is dropped", || {
            decide(&mut client, &body);
            metric(&admin.get("/metrics").text(), dropped) > before
        });
    };
    // As a mount that is lost: the rows must not go to the disk below it.
    fs::remove_dir(&folder).unwrap();
    await_drop();
    assert!(!folder.exists());
    // A file in the place of the folder: no user can create files in it.
    fs::write(&folder, "").unwrap();
    await_drop();
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    wait_until("a file is closed", || {
        decide(&mut client, &body);
        metric(&admin.get("/metrics").text(), "rtad_log_rows_total") > 0.0
    });
    let (rows, stderr) = stop(rtad, &store);
    assert!(!rows.is_empty());
    assert!(
        stderr.contains("a file is lost; rows are dropped for 1s"),
        "{stderr}"
    );
}

#[test]
fn new_secret_is_used_from_the_next_file() {
    let store = TestStore::with_everything();
    let file = store.config_file(
        "api = { public = true }",
        &log(&store, "sample = 1.0\nmax_age = \"1s\""),
    );
    let rtad = Rtad::serve(&file, &[]);
    let mut client = rtad.connect();
    let body = json!({ "device": { "oaid": NON_MEMBER } });
    decide(&mut client, &body);
    // A short secret could be guessed.
    fs::write(store.path().join("log.key"), "short").unwrap();
    rtad.log(
        "decision log: the new secret has less than 16 bytes; the old one stays",
        1,
    );
    fs::write(store.path().join("log.key"), "another secret of the log").unwrap();
    rtad.log("decision log has a new secret", 1);
    decide(&mut client, &body);
    let (rows, stderr) = stop(rtad, &store);
    let secrets: Vec<_> = rows
        .iter()
        .map(|row| &row["facts"]["device"]["secret"])
        .collect();
    assert_eq!(secrets.len(), 2, "{stderr}");
    assert_eq!(secrets[0], "d1636338");
    assert_ne!(secrets[1], secrets[0]);
    assert!(!stderr.contains("another secret"));
}
