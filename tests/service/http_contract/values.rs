//! Values of bids: a count for each row.

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::shards_per_chunk;
use testkit::client::metric;
use testkit::store::{Depot, Spec, value};
use testkit::wait_until;

use crate::fixture::{FixtureServer, TestStore, key};

const RULES: &str = r#"
[server.api]
public = true
[[audience]]
name = "old_users"
[[audience]]
name = "vip"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[strategy.value]]
audience = "vip"
weight = 2.0
[[strategy.value]]
weight = 1.0
[[strategy]]
name = "plain"
exclude = ["old_users"]
[[platform]]
kind = "ocean"
name = "ocean"
path = "/rta/ocean"
strategies = { 1 = "new-users" }
"#;

fn series(row: usize, audience: &str, tier: &str) -> String {
    let labels = format!(
        "row=\"{row}\",audience=\"{audience}\",tier=\"{tier}\",experiment=\"\",bucket=\"\""
    );
    format!("rtad_bid_values_total{{strategy=\"new-users\",{labels}}}")
}

#[test]
fn bids_are_counted_by_the_row_of_their_value() {
    let store = TestStore::empty();
    store.publish("old_users", &[key("oaid", "member")]);
    store.publish("vip", &[key("oaid", "vip")]);
    let server = FixtureServer::start(store, "", RULES);
    let mut client = server.connect();
    for oaid in ["vip", "vip", "other", "member"] {
        let body = format!(r#"{{"device":{{"oaid":"{oaid}"}}}}"#);
        client.post("/v1/decide", body).ok();
    }
    let metrics = server.metrics();
    for (row, audience, bids) in [(0, "vip", 2.0), (1, "", 1.0)] {
        let series = series(row, audience, "");
        assert_eq!(metric(&metrics, &series), bids, "{series}");
    }
    let series = metrics
        .lines()
        .filter(|line| line.starts_with("rtad_bid_values_total{"));
    assert_eq!(series.count(), 2, "a series per row, none without rows");
}

/// A list with a value per device, in place of one without.
#[test]
fn tier_of_a_device_chooses_its_value() {
    let tiers = r#"
[server.api]
public = true
[[audience]]
name = "old_users"
[[audience]]
name = "scores"
[[strategy]]
name = "new-users"
exclude = ["old_users"]
[[strategy.value]]
audience = "scores"
tier = "8.."
weight = 2.0
[[strategy.value]]
audience = "scores"
tier = "none"
weight = 0.5
[[strategy.value]]
weight = 1.0
"#;
    let store = TestStore::empty();
    store.publish("old_users", &[key("oaid", "member")]);
    let mut ids: Vec<_> = (0..40).map(|n| format!("device-{n}")).collect();
    let mut keys: Vec<_> = ids.iter().map(|id| key("oaid", id)).collect();
    keys.sort_unstable();
    store.publish("scores", &keys);
    let server = FixtureServer::start(store, "", tiers);
    let mut client = server.connect();
    let mut weight = |id: &str| {
        let body = format!(r#"{{"device":{{"oaid":"{id}"}}}}"#);
        let answer = client.post("/v1/decide", body).ok();
        answer["decisions"][0]["value"]["weight"].as_f64().unwrap()
    };
    let status = || server.connect_admin().get("/v1/status").ok()["audiences"][1].clone();
    assert!(ids.iter().all(|id| weight(id) == 0.5));
    assert_eq!(status()["tiers_missing"], true);
    assert_eq!(
        metric(&server.metrics(), "rtad_tiers_missing{audience=\"scores\"}"),
        1.0
    );

    let filter = FilterSpec::with_values_for_fpr(FilterKind::Ribbon, 1e-4).unwrap();
    let shards_per_chunk = shards_per_chunk(&filter, 40);
    let spec = Spec {
        filter,
        target_fpr: 1e-4,
        shards_per_chunk,
        ..Spec::small()
    };
    Depot::at(server.store.path().into()).publish("scores", &keys, &spec);
    server.connect_admin().post("/v1/reload", "").ok();
    wait_until("the values are served", || {
        status()["snapshot"]["value_bits"] == 4
    });
    for id in &ids {
        let expected = if value(&key("oaid", id)) >= 8 {
            2.0
        } else {
            1.0
        };
        assert_eq!(weight(id), expected, "{id}");
    }
    assert_eq!(status()["tiers_missing"], false);
    let metrics = server.metrics();
    assert_eq!(
        metric(&metrics, "rtad_tiers_missing{audience=\"scores\"}"),
        0.0
    );
    ids.retain(|id| value(&key("oaid", id)) >= 8);
    assert_eq!(
        metric(&metrics, &series(0, "scores", "8..=15")),
        ids.len() as f64
    );
    assert_eq!(metric(&metrics, &series(1, "scores", "none")), 40.0);

    // The greatest value of a device's ids.
    let body = |ids: &[&str]| format!(r#"{{"device":{{"oaid":{:?}}}}}"#, ids);
    let low = (0..40)
        .map(|n| format!("device-{n}"))
        .find(|id| !ids.contains(id))
        .unwrap();
    let answer = server
        .connect()
        .post("/v1/decide", body(&[&low, &ids[0]]))
        .ok();
    assert_eq!(answer["decisions"][0]["value"]["weight"], 2.0);
}
