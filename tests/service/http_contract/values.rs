//! Values of bids: a count for each row.

use crate::fixture::{FixtureServer, TestStore, key};
use testkit::client::metric;

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
        let series = format!(
            "rtad_bid_values_total{{strategy=\"new-users\",row=\"{row}\",audience=\"{audience}\"}}"
        );
        assert_eq!(metric(&metrics, &series), bids, "{series}");
    }
    let series = metrics.lines().filter(|line| line.starts_with("rtad_bid_values_total{"));
    assert_eq!(series.count(), 2, "a series per row, none without rows");
}
