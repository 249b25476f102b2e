//! `/metrics`: names, closed label sets, and counters.

use std::collections::BTreeSet;

use crate::fixture::{FixtureServer, NON_MEMBER, OLD_USERS, OLD_VIP, key};
use testkit::client::metric;
use testkit::store::hex;

const FIELDS: &str = "md5 idfa imei oaid android_id mac caid gaid openid idfa_md5 imei_md5 \
    oaid_md5 android_id_md5 \
                      mac_md5 caid_md5 gaid_md5 openid_md5";

/// The values that a label may have; other labels are numbers.
fn accepted(label: &str) -> Option<BTreeSet<&'static str>> {
    let values = match label {
        "route" => "check_one check_many decide unknown tencent bold closed ocean",
        "platform" => "api tencent bold closed ocean",
        "cause" => {
            "bad_body bad_encoding too_large body_lost unauthorized bad_signature bad_timestamp \
             overload too_many_ids internal"
        }
        "strategy" => "new-users vip-only new-vip needs-missing needs-fresh",
        "decision" => "bid no_bid",
        "reason" => {
            "member not_member no_device unavailable capped no_grant rule not_scheduled bucket"
        }
        "condition" | "audience" => "old_users vip missing too_old",
        "kind" => FIELDS,
        "source" => "store cache",
        "change" => "added removed tombstone",
        "result" => "usable blank malformed doubtful ok unchanged not_found",
        "stat" => "min mean max",
        "version" => env!("CARGO_PKG_VERSION"),
        "code" => "200 400 404 405 413",
        "le" => return None,
        _ => panic!("{label} is a new label"),
    };
    Some(values.split_whitespace().collect())
}

/// Sends valid and invalid requests to all routes; returns their number.
fn send_all_requests(server: &FixtureServer) -> usize {
    let mut client = server.connect();
    let id = OLD_USERS[0].1;
    let targets = [
        format!("/v1/check/old_users/{id}"),
        format!("/v1/check/old_users/{NON_MEMBER}?kind=oaid"),
        format!("/v1/check/old_users/{OLD_VIP}?kind=oaid"),
        "/v1/check/old_users/null".to_owned(),
        format!("/v1/check/old_users/{NON_MEMBER}"),
        format!("/v1/check/{id}/{id}"),
        format!("/v1/check/old_users/{id}?kind={id}"),
        format!("/{id}"),
    ];
    let bodies = [
        (
            "/v1/check/old_users",
            format!(r#"{{"ids":["{id}","","x"]}}"#),
        ),
        ("/v1/check/old_users", format!(r#"{{"{id}":1}}"#)),
        (
            "/v1/check/old_users",
            format!(r#"{{"ids":[{}1]}}"#, "1,".repeat(1 << 20)),
        ),
        (
            "/v1/decide",
            format!(r#"{{"device":{{"imei_md5":"{id}","mac":"02:00:00:00:00:00"}}}}"#),
        ),
        (
            "/v1/decide",
            format!(
                r#"{{"strategies":["new-users","vip-only"],"device":{{"oaid":"{NON_MEMBER}"}}}}"#
            ),
        ),
        ("/v1/decide", r#"{"strategies":["vip-only"]}"#.to_owned()),
        ("/v1/decide", format!(r#"{{"strategies":["{id}"]}}"#)),
    ];
    for target in &targets {
        client.get(target);
    }
    client.request("PUT", &targets[0], "", "");
    for (route, body) in &bodies {
        // A request rejected before its body was read closes the connection.
        server.connect().post(route, body);
    }
    targets.len() + 1 + bodies.len()
}

#[test]
fn metrics_have_documented_names_and_closed_label_sets() {
    let server = super::platforms::server("api = { public = true }");
    send_all_requests(&server);
    let metrics = server.metrics();
    for (name, kind) in [
        ("rtad_requests_total", "counter"),
        ("rtad_request_duration_seconds", "histogram"),
        ("rtad_decisions_total", "counter"),
        ("rtad_ids_total", "counter"),
        ("rtad_platform_failures_total", "counter"),
        ("rtad_in_flight", "gauge"),
        ("rtad_shed_total", "counter"),
        ("rtad_connections", "gauge"),
        ("rtad_snapshot_generation", "gauge"),
        ("rtad_snapshot_keys", "gauge"),
        ("rtad_snapshot_size_bytes", "gauge"),
        ("rtad_snapshot_created_timestamp_seconds", "gauge"),
        ("rtad_snapshot_expires_timestamp_seconds", "gauge"),
        ("rtad_snapshot_max_age_seconds", "gauge"),
        ("rtad_snapshot_target_fpr", "gauge"),
        ("rtad_snapshot_expected_fpr", "gauge"),
        ("rtad_snapshot_overlap_ratio", "gauge"),
        ("rtad_snapshot_mixed", "gauge"),
        ("rtad_snapshot_staged", "gauge"),
        ("rtad_tiers_missing", "gauge"),
        ("rtad_snapshot_fill_ratio", "gauge"),
        ("rtad_sync_total", "counter"),
        ("rtad_sync_duration_seconds", "histogram"),
        ("rtad_sync_caught_up_timestamp_seconds", "gauge"),
        ("rtad_chunks_read_total", "counter"),
        ("rtad_cache_errors_total", "counter"),
        ("rtad_ready", "gauge"),
        ("rtad_max_connections", "gauge"),
        ("rtad_config_hash", "gauge"),
        ("rtad_config_loaded_timestamp_seconds", "gauge"),
        ("rtad_config_last_reload_successful", "gauge"),
        ("rtad_build_info", "gauge"),
    ] {
        assert!(
            metrics.contains(&format!("# TYPE {name} {kind}\n")),
            "{name}"
        );
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name}");
    }
    for line in metrics
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (series, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(name.starts_with("rtad_"), "{name}");
        for label in labels
            .trim_end_matches('}')
            .split(',')
            .filter(|label| !label.is_empty())
        {
            let (label, value) = label.split_once('=').unwrap();
            let value = value.trim_matches('"');
            match accepted(label) {
                Some(values) => assert!(values.contains(value), "{line}"),
                None => assert!(value == "+Inf" || value.parse::<f64>().is_ok(), "{line}"),
            }
        }
    }
    for impossible in [
        r#"decision="bid",reason="member""#,
        r#"decision="no_bid",reason="not_member""#,
        r#"reason="capped""#,
        r#"platform="api",kind="idfa""#,
    ] {
        assert!(!metrics.contains(impossible), "{impossible}");
    }
    let all = metrics.to_lowercase();
    for (kind, id) in OLD_USERS {
        assert!(
            !all.contains(&id.to_lowercase()) && !all.contains(&hex(&key(kind, id))),
            "{kind}"
        );
    }
}

#[test]
fn counters_match_the_requests() {
    let server = FixtureServer::with_everything("");
    let sent = send_all_requests(&server);
    let metrics = server.metrics();
    let mut requests = 0.0;
    for (route, code, expected) in [
        ("check_one", 200, 3.0),
        ("check_one", 400, 2.0),
        ("check_one", 404, 2.0),
        ("unknown", 404, 1.0),
        ("check_one", 405, 1.0),
        ("check_many", 200, 1.0),
        ("check_many", 400, 1.0),
        ("check_many", 413, 1.0),
        ("decide", 200, 3.0),
        ("decide", 404, 1.0),
    ] {
        let found = metric(
            &metrics,
            &format!(r#"rtad_requests_total{{route="{route}",code="{code}"}}"#),
        );
        assert_eq!(found, expected, "{route} {code}\n{metrics}");
        requests += found;
    }
    assert_eq!(requests, sent as f64);
    for (route, expected) in [
        ("check_one", 8.0),
        ("check_many", 3.0),
        ("decide", 4.0),
        ("unknown", 1.0),
    ] {
        let series = format!(r#"rtad_request_duration_seconds_count{{route="{route}"}}"#);
        assert_eq!(metric(&metrics, &series), expected, "{route}");
    }
    for (kind, result, expected) in [
        ("md5", "usable", 2.0),
        ("md5", "blank", 3.0),
        ("md5", "malformed", 1.0),
        ("oaid", "usable", 3.0),
        ("imei_md5", "usable", 1.0),
        ("mac", "blank", 1.0),
    ] {
        let series = format!(r#"rtad_ids_total{{platform="api",kind="{kind}",result="{result}"}}"#);
        assert_eq!(metric(&metrics, &series), expected, "{series}");
    }
    for (labels, expected) in [
        (
            r#"strategy="new-users",decision="no_bid",reason="member",condition="old_users""#,
            1.0,
        ),
        (
            r#"strategy="new-users",decision="bid",reason="not_member""#,
            1.0,
        ),
        (
            r#"strategy="vip-only",decision="no_bid",reason="rule",condition="vip""#,
            2.0,
        ),
        (
            r#"strategy="vip-only",decision="bid",reason="no_device""#,
            1.0,
        ),
        (
            r#"strategy="needs-missing",decision="bid",reason="unavailable""#,
            1.0,
        ),
    ] {
        let series = format!(r#"rtad_decisions_total{{platform="api",{labels}}}"#);
        assert_eq!(metric(&metrics, &series), expected, "{series}");
    }
    assert_eq!(
        metric(&metrics, r#"rtad_snapshot_keys{audience="old_users"}"#),
        10.0
    );
    assert_eq!(
        metric(&metrics, r#"rtad_snapshot_generation{audience="vip"}"#),
        1.0
    );
    assert_eq!(
        metric(&metrics, r#"rtad_sync_total{audience="vip",result="ok"}"#),
        1.0
    );
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_sync_total{audience="missing",result="not_found"}"#
        ),
        1.0
    );
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_snapshot_max_age_seconds{audience="too_old"}"#
        ),
        172_800.0
    );
    assert!(metric(&metrics, r#"rtad_snapshot_max_age_seconds{audience="vip"}"#).is_nan());
    assert_eq!(metric(&metrics, "rtad_ready"), 1.0);
    // Fewer than configured, if the machine permits fewer open files.
    let max_connections = metric(&metrics, "rtad_max_connections");
    assert!(
        (1.0..=20_000.0).contains(&max_connections),
        "{max_connections}"
    );
    let caught_up = r#"rtad_sync_caught_up_timestamp_seconds{audience="vip"}"#;
    let before = metric(&metrics, caught_up);
    assert!(before > 1.7e9, "{before}");
    assert!(!metrics.contains(r#"rtad_sync_caught_up_timestamp_seconds{audience="missing"}"#));
    server.poll();
    let metrics = server.metrics();
    assert_eq!(
        metric(
            &metrics,
            r#"rtad_sync_total{audience="vip",result="unchanged"}"#
        ),
        1.0
    );
    assert!(metric(&metrics, caught_up) > before);
}
