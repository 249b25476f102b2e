//! Caps that pods lease from Redis.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::client::metric_sum;
use testkit::redis::Redis;
use testkit::wait_until;

use super::{API, ask, capped_by, decide_oaid, rules, without_cap};
use crate::fixture::{FixtureServer, TestStore};

/// The rules with leases from this URL.
fn leased_rules(limit: u64, redis: &str) -> String {
    let lease = format!("[cap_leases]\nbackend = {redis:?}\n[[audience]]");
    let rules = rules(limit).replace("per = \"day\"", "per = \"day\"\nleased = true");
    rules.replacen("[[audience]]", &lease, 1)
}

fn start(limit: u64, redis: &Redis) -> FixtureServer {
    let server = FixtureServer::start(
        TestStore::with_everything(),
        API,
        &leased_rules(limit, &redis.url()),
    );
    wait_until("the first lease", || {
        cap(&server)["limit"].as_u64() > Some(0)
    });
    server
}

/// The cap in `/v1/status`.
fn cap(server: &FixtureServer) -> Value {
    server.connect_admin().get("/v1/status").ok()["caps"][0].clone()
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

/// Bids for new devices until one is refused; returns their number.
fn use_up(server: &FixtureServer, from: u64) -> u64 {
    let mut client = server.connect();
    (from..)
        .take_while(|n| decide_oaid(&mut client, *n) == "+not_member")
        .count() as u64
}

#[test]
fn pods_bid_for_exactly_the_cap_together() {
    const LIMIT: u64 = 3_000;
    let redis = Redis::start();
    let servers: Vec<_> = (0..4).map(|_| start(LIMIT, &redis)).collect();
    let (bids, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let refused: Vec<AtomicU64> = servers.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (pod, server) in servers.iter().enumerate() {
            let (mut client, bids, refused, ends) = (server.connect(), &bids, &refused[pod], &ends);
            scope.spawn(move || {
                let mut devices = pod as u64 * 1_000_000..;
                while !ends.load(Ordering::Relaxed) {
                    match &*decide_oaid(&mut client, devices.next().unwrap()) {
                        "+not_member" => bids.fetch_add(1, Ordering::Relaxed),
                        "-no_lease" => 0,
                        "-capped" => refused.fetch_add(1, Ordering::Relaxed),
                        other => panic!("{other}"),
                    };
                }
            });
        }
        let leased = || number(&cap(&servers[0])["leases"]["all_devices"]);
        wait_until("all is leased", || leased() == LIMIT);
        // A pod refuses once its own leases are used, which a busy machine may delay.
        let before: Vec<_> = refused
            .iter()
            .map(|pod| pod.load(Ordering::Relaxed))
            .collect();
        let more = |(pod, before): (&AtomicU64, &u64)| pod.load(Ordering::Relaxed) > before + 1_000;
        wait_until("every pod refuses more", || {
            refused.iter().zip(&before).all(more)
        });
        ends.store(true, Ordering::Relaxed);
    });
    let (bids, of_pods) = (bids.into_inner(), |field: &str| -> u64 {
        servers
            .iter()
            .map(|server| number(cap(server).pointer(field).unwrap()))
            .sum()
    });
    assert_eq!(bids, of_pods("/devices"));
    // On a busy machine an answer may be late: its block is wasted at the end of the cap.
    assert!(
        bids == LIMIT || bids < LIMIT && of_pods("/leases/failed") > 0,
        "{bids}"
    );
    wait_until("all pods know", || {
        servers
            .iter()
            .all(|server| number(&cap(server)["leases"]["all_devices"]) == LIMIT)
    });
    let metrics = servers[0].metrics();
    assert_eq!(
        metric_sum(&metrics, "rtad_cap_leased_devices{cap=\"daily\"}"),
        LIMIT
    );
    let answered = "rtad_cap_lease_calls_total{cap=\"daily\",result=\"answered\"}";
    assert!(metric_sum(&metrics, answered) > 0);
}

#[test]
fn pod_without_redis_goes_on_with_what_it_has_leased() {
    let mut redis = Redis::start();
    let server = start(100_000, &redis);
    redis.kill();
    let leased = number(&cap(&server)["limit"]);
    assert_eq!(use_up(&server, 0), leased);
    // The cap is not reached: no platform may keep the answer until the end of the day.
    assert_eq!(decide_oaid(&mut server.connect(), leased), "-no_lease");
    for path in ["/rta/tencent", "/rta/uncached"] {
        assert_eq!(ask(&mut server.connect(), path, leased), (Some(1), None));
    }
    let no_lease = capped_by("tencent").replace("\"capped\"}", "\"no_lease\"}");
    assert_eq!(metric_sum(&server.metrics(), &no_lease), 1);
    wait_until("the failure is reported", || {
        cap(&server)["leases"]["failing"] == "unreachable"
    });
    let failed = "rtad_cap_lease_calls_total{cap=\"daily\",result=\"failed\"}";
    assert!(metric_sum(&server.metrics(), failed) > 0);
    // It stays so, for a minute in the long tests.
    let down = std::env::var("REDIS_DOWN_SECONDS").map_or(0, |down| down.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(down);
    loop {
        assert_eq!(
            decide_oaid(&mut server.connect(), 0),
            "+not_member",
            "counted before"
        );
        assert_eq!(
            ask(&mut server.connect(), "/rta/tencent", leased),
            (Some(1), None)
        );
        if Instant::now() >= end {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }

    // The server has lost its data, and learns from the pod what was leased.
    redis.start_again();
    wait_until("it is told", || {
        cap(&server)["leases"].get("failing").is_none()
    });
    let other = start(100_000, &redis);
    let expected = leased + number(&cap(&other)["limit"]);
    wait_until("both count", || {
        number(&cap(&other)["leases"]["all_devices"]) >= expected
    });
}

#[test]
fn drained_pod_gives_back_what_it_did_not_use() {
    let redis = Redis::start();
    let first = start(100_000, &redis);
    let mut client = first.connect();
    for n in 0..5 {
        wait_until("a lease", || decide_oaid(&mut client, n) == "+not_member");
    }
    drop(client);
    let (drained, _store) = first.drain();
    drained.join().unwrap();
    let second = start(100_000, &redis);
    let known = || number(&cap(&second)["leases"]["all_devices"]);
    wait_until("the second knows", || known() > 0);
    assert_eq!(known(), 5 + number(&cap(&second)["limit"]));
}

#[test]
fn removed_cap_gives_back_what_it_did_not_use() {
    check_removed_cap(|rules, _| rules);
}

#[test]
fn cap_that_is_removed_with_its_server_gives_back() {
    check_removed_cap(|rules, redis| {
        rules.replace(&format!("[cap_leases]\nbackend = {redis:?}\n"), "")
    });
}

fn check_removed_cap(then: impl FnOnce(String, &str) -> String) {
    let redis = Redis::start();
    let first = start(100_000, &redis);
    let mut client = first.connect();
    for n in 0..5 {
        wait_until("a lease", || decide_oaid(&mut client, n) == "+not_member");
    }
    let leased = leased_rules(100_000, &redis.url());
    first.write_config(API, &then(without_cap(&leased), &redis.url()));
    first
        .connect_admin()
        .request("POST", "/v1/reload", "", "")
        .ok();
    let second = start(100_000, &redis);
    let (mut client, mut devices) = (second.connect(), 1_000..);
    // A pod learns what others have given back with its next lease.
    wait_until("the second knows", || {
        decide_oaid(&mut client, devices.next().unwrap());
        let cap = cap(&second);
        number(&cap["leases"]["all_devices"]) == 5 + number(&cap["limit"])
    });
}

/// Pods are replaced one by one under load, and the server is away for a while before each.
#[test]
fn rollout_of_three_pods_bids_for_exactly_the_cap() {
    const LIMIT: u64 = 1_000;
    let mut redis = Redis::start_durable();
    let rules = leased_rules(LIMIT, &redis.url());
    let mut servers: Vec<_> = (0..3).map(|_| start(LIMIT, &redis)).collect();
    let (mut devices, mut bids) = (0.., 0);
    // One new device per pod: whether each answers so.
    let mut all_answer = |servers: &[FixtureServer], expected: &str| {
        let decide =
            |server: &FixtureServer| decide_oaid(&mut server.connect(), devices.next().unwrap());
        let decided: Vec<_> = servers.iter().map(decide).collect();
        bids += decided.iter().filter(|it| *it == "+not_member").count() as u64;
        (decided.iter().all(|it| it == expected), bids)
    };
    for _ in 0..3 {
        let (_, before) = all_answer(&servers, "");
        wait_until("an eighth of the cap", || {
            all_answer(&servers, "").1 >= before + LIMIT / 8
        });
        redis.kill();
        (0..50).for_each(|_| assert!(!all_answer(&servers, "-member").0));
        redis.start_again();
        let (drained, _store) = servers.remove(0).drain();
        drained.join().unwrap();
        servers.push(FixtureServer::start(
            TestStore::with_everything(),
            API,
            &rules,
        ));
    }
    wait_until("the cap is reached", || {
        all_answer(&servers, "-capped") == (true, LIMIT)
    });
    (0..50).for_each(|_| assert_eq!(all_answer(&servers, "-capped"), (true, LIMIT)));
}

/// While a cap has a share, what was leased before stays leased: a server that lost its data learns
/// of it afterwards.
#[test]
fn lease_outlives_a_share_and_the_data_of_the_server() {
    let mut redis = Redis::start();
    let server = start(100_000, &redis);
    let leased = number(&cap(&server)["limit"]);
    redis.kill();
    let reload = |rules: &str| {
        server.write_config(API, rules);
        server
            .connect_admin()
            .request("POST", "/v1/reload", "", "")
            .ok();
    };
    reload(&rules(100_000));
    let gauge = "rtad_cap_leased_devices{cap=\"daily\"} NaN";
    wait_until("the gauge ends", || server.metrics().contains(gauge));
    redis.start_again();
    reload(&leased_rules(100_000, &redis.url()));
    assert_eq!(number(&cap(&server)["limit"]), leased);
    wait_until("the server is told", || {
        number(&cap(&server)["leases"]["all_devices"]) == leased
    });
}

/// A reload from a share to leases leases what was counted too; one back ends them.
#[test]
fn reload_changes_between_share_and_leases() {
    let redis = Redis::start();
    let server = FixtureServer::start(TestStore::with_everything(), API, &rules(300));
    let mut client = server.connect();
    (0..200).for_each(|n| assert_eq!(decide_oaid(&mut client, n), "+not_member"));
    let reload = |rules: &str| {
        server.write_config(API, rules);
        server
            .connect_admin()
            .request("POST", "/v1/reload", "", "")
            .ok();
    };
    reload(&leased_rules(300, &redis.url()));
    let mut bids = 200;
    wait_until("the rest is leased and used", || {
        bids += use_up(&server, 1_000 + bids);
        bids == 300
    });
    assert_eq!(use_up(&server, 10_000), 0);
    assert_eq!(decide_oaid(&mut client, 5), "+not_member", "counted before");
    reload(&rules(310));
    assert_eq!(use_up(&server, 20_000), 10);
    assert!(cap(&server).get("leases").is_none());
}
