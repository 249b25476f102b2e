//! Allocations: none in lookups, decisions and their metrics, for every kind of id; those of
//! platforms' answers.

#![allow(clippy::unwrap_used, reason = "errors fail the test")]

use std::sync::Arc;
use std::time::SystemTime;

use arrayvec::ArrayVec;
use bytes::Bytes;
use http::HeaderMap;
use rtad::cap::Cap;
use rtad::catalog::{Audience, Catalog, CatalogParts, RequestKeys, Serving};
use rtad::config::{CapConfig, LogConfig, Secret};
use rtad::log::{DecidedRead, DecisionLog, LogTap, LoggedAnswer};
use rtad::platform::{
    Access, Adapter, Admission, CacheTimes, IdReader, Keys, Ocean, Platform, Read, RequestHead,
    Tencent, Verdict,
};
use rtad::strategy::{
    BidValue, ChosenValue, Decision, Outcome, Reason, Rule, Scheduled, Strategy, Tiers, Units,
    ValueEntry, ValueKey,
};
use rtad::telemetry::{Route, Telemetry};
use rtad_core::device::{DeviceKey, IdKind, KeyMaker};
use rtad_core::period::PeriodUnit;
use rtad_core::schedule::Schedule;
use rtad_core::snapshot::Snapshot;
use rtad_log::Raw;
use testkit::platform::{OCEAN_REQUEST, TENCENT_REQUEST};
use testkit::store::{Spec, snapshot};
use tokio::time::Instant;

const MEMBERS: [(IdKind, &str); 3] = [
    (IdKind::Md5, "5f93f983524def3dca464469d2cf9f3e"),
    (IdKind::Idfa, "1E2DFA89-496A-47FD-9941-DF1FC4E6484A"),
    (IdKind::Oaid, "1fE9a970-efbb-29e0-0bdd-f5dbbf751ab5"),
];

/// A snapshot of [`MEMBERS`].
fn members() -> Snapshot {
    let mut keys = MEMBERS.map(|(kind, id)| KeyMaker::default().key(kind, id.as_bytes()).unwrap());
    keys.sort_unstable();
    snapshot("old_users", 1, &keys, &Spec::small())
}

fn weight() -> BidValue {
    BidValue::default().with(ValueKey::Weight, Some(2.0))
}

/// The decision of a strategy about a device with these keys, counted.
fn decide(catalog: &Catalog, strategy: usize, keys: &[DeviceKey], at: Instant) -> Decision {
    let keys = RequestKeys::of(keys.iter().copied().collect(), Units::default());
    let mut facts = catalog.no_facts(&keys);
    catalog.decide_named(&keys, &[strategy], at, &mut facts)[0].decision
}

#[test]
fn lookups_and_decisions_do_not_allocate() {
    let telemetry = Telemetry::default();
    let ids = IdReader::new(KeyMaker::default(), &telemetry);
    let name = "old_users".parse().unwrap();
    let audience = Audience {
        snapshot: Some(Arc::new(members())),
        ..Audience::unloaded(name, true, None)
    };
    let value = |audience, tiers| ValueEntry {
        audience,
        tiers,
        part: None,
        value: weight(),
    };
    let strategy = Strategy {
        name: "new-users".to_owned(),
        exclude: vec![0],
        rule: Some(Rule::None(vec![Rule::All(vec![Rule::Audience(0)])])),
        schedule: Some(Scheduled::new(Schedule::default())),
        values: vec![value(Some(0), Some(Tiers::Range(8, 15))), value(None, None)],
        ..Strategy::default()
    };
    let with_cap = Strategy {
        name: "capped".to_owned(),
        cap: Some(0),
        ..strategy.clone()
    };
    let config = CapConfig {
        name: "daily".to_owned(),
        limit: 3,
        period: PeriodUnit::Day,
        time_zone: Some("Asia/Shanghai".to_owned()),
    };
    let at = Instant::now();
    let cap = Arc::new(Cap::new(&config, SystemTime::now(), at));
    cap.raise_limit(config.limit);
    let strategies = vec![strategy, with_cap];
    let parts = CatalogParts {
        audiences: vec![audience],
        strategies,
        caps: vec![cap],
        ..CatalogParts::default()
    };
    let serving = Serving::from_pointee(Catalog::new(parts, &telemetry));
    let mut capped = ArrayVec::<_, 4>::new();
    // A thread's first load allocates.
    for strategy in [0, 1] {
        let first = [DeviceKey::from_bytes([9; 16])];
        assert!(decide(&serving.load(), strategy, &first, at).is_bid());
    }
    let mut members = 0;
    let (mut outcome, mut chosen) = (None, None);
    let counted = allocation_counter::measure(|| {
        let catalog = serving.load();
        let snapshot = catalog.audience("old_users").unwrap().available().unwrap();
        let mut keys = Keys::new();
        for (kind, id) in MEMBERS {
            let key = ids.key_of_kind(kind, id.as_bytes()).unwrap();
            members += u32::from(snapshot.contains(&key));
            keys.push(key);
        }
        keys.insert(0, DeviceKey::from_bytes([7; 16]));
        outcome = Some(decide(&catalog, 0, &keys, at).outcome);
        chosen = decide(&catalog, 0, &keys[..1], at).value.index;
        // New devices, counted ones, and those beyond the cap.
        for n in [1_u8, 2, 3, 1] {
            let decision = decide(&catalog, 1, &[DeviceKey::from_bytes([n; 16])], at);
            capped.push(decision.reason);
        }
        telemetry.request(
            telemetry.route(Route::CheckOne),
            200,
            std::time::Duration::from_micros(3),
        );
    });
    assert_eq!(
        (members, outcome, chosen),
        (3, Some(Outcome::NoBid), Some(1))
    );
    let expected = [
        Reason::NotMember,
        Reason::NotMember,
        Reason::NoGrant,
        Reason::NotMember,
    ];
    assert_eq!(capped[..], expected);
    assert_eq!(counted.count_total, 0, "{} bytes", counted.bytes_total);
    // The counter does count allocations.
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(Box::new(7)))).count_total,
        1
    );
}

/// The lists of the decoded request and of the answer, and the answer's bytes: reading into data
/// and writing from it allocate nothing else.
#[test]
fn answers_allocate_lists_and_bytes_only() {
    let value = ChosenValue {
        index: Some(0),
        is_fallback: false,
    };
    let bid = Decision {
        value,
        ..Decision::bid(Reason::NotMember)
    };
    let values = [vec![weight()]];
    let no_bid = Decision::no_bid(Reason::Member);
    let cache = CacheTimes::default();
    let tencent = Tencent::new(vec![("T1001".to_owned(), 0)], cache).with_values(&values);
    let ocean = Ocean::new(vec![(10003, 0)], cache).with_values(&values);
    let adapters = [
        (
            "tencent",
            Box::new(tencent) as Box<dyn Adapter>,
            TENCENT_REQUEST,
            [1, 1],
        ),
        ("ocean", Box::new(ocean), OCEAN_REQUEST, [3, 3]),
    ];
    let headers = HeaderMap::new();
    for (name, adapter, body, expected) in adapters {
        let path = "/rta".to_owned();
        let access = Access::default();
        let platform = Platform {
            name: name.to_owned(),
            path,
            access,
            adapter,
        };
        let body = Ok(Bytes::from(const_hex::decode(body).unwrap()));
        for (decision, expected) in [bid, no_bid].into_iter().zip(expected) {
            let answer = || {
                let (head, mut read) = (
                    RequestHead {
                        headers: &headers,
                        query: None,
                    },
                    Read::default(),
                );
                let answered = platform.respond(
                    Admission::ByHeaders,
                    head,
                    &body,
                    &mut read,
                    |read, verdicts| {
                        for strategy in read.strategies() {
                            verdicts.push(Verdict {
                                strategy,
                                decision,
                                changes_in: None,
                                tag: None,
                            });
                        }
                    },
                );
                assert!(answered.error.is_none() && !answered.bytes.is_empty());
            };
            // Bytes that are shared once are shared again without an allocation.
            answer();
            let counted = allocation_counter::measure(answer);
            assert_eq!(counted.count_total, expected, "{name} {decision:?}");
        }
    }
}

/// A request of the sample is copied into its worker's ring without an allocation.
#[test]
fn logged_requests_do_not_allocate() {
    let telemetry = Telemetry::default();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap().to_owned();
    let secret = Secret::new("0123456789abcdef");
    let log = LogConfig {
        to,
        secret,
        sample: 1.0,
        max_rate: 10_000_000,
        ..LogConfig::default()
    };
    let log = DecisionLog::start(log, "pod".to_owned(), &telemetry).unwrap();
    let tap = log.tap();
    let name = "old_users".parse().unwrap();
    let audience = Audience {
        snapshot: Some(Arc::new(members())),
        ..Audience::unloaded(name, true, None)
    };
    let strategy = Strategy {
        name: "new-users".to_owned(),
        exclude: vec![0],
        ..Strategy::default()
    };
    let adapter = Tencent::new(vec![("T1001".to_owned(), 0)], CacheTimes::default());
    let platform = Platform {
        name: "tencent".to_owned(),
        path: "/rta".to_owned(),
        access: Access::default(),
        adapter: Box::new(adapter),
    };
    let platforms = vec![Arc::new(platform)];
    let parts = CatalogParts {
        audiences: vec![audience],
        strategies: vec![strategy],
        platforms,
        ..CatalogParts::default()
    };
    let catalog = Catalog::new(parts, &telemetry);
    let reader = IdReader::new(KeyMaker::default(), &telemetry);
    let (headers, body) = (
        HeaderMap::new(),
        Bytes::from(const_hex::decode(TENCENT_REQUEST).unwrap()),
    );
    let (served, body) = (&catalog.platforms()[0], Ok(body));
    let answer = |tap: Option<&LogTap>| {
        let (head, mut read) = (
            RequestHead {
                headers: &headers,
                query: None,
            },
            Read::default(),
        );
        let mut entry = tap.map(LogTap::begin);
        let admission = Admission::ByHeaders;
        served
            .platform
            .respond(admission, head, &body, &mut read, |read, verdicts| {
                let at = Instant::now();
                let mut keys = catalog.no_keys();
                catalog.add_keys(served, &reader, read, &mut keys);
                let mut facts = catalog.no_facts(&keys);
                catalog.add_facts(&keys, read, &mut facts);
                catalog.decide(read.strategies(), &facts, verdicts);
                catalog.admit(&keys, at, verdicts);
                catalog.count(served, &facts, verdicts);
                if let Some(entry) = &mut entry {
                    let decided = DecidedRead {
                        read,
                        keys: &keys,
                        facts: &facts,
                        verdicts,
                        at,
                    };
                    entry.decided(&catalog, &decided);
                }
            });
        if let Some(entry) = entry {
            let raw = Some(Raw {
                query: None,
                body: b"",
            });
            let answer = LoggedAnswer {
                platform: "tencent",
                failure: None,
                raw,
                started: Instant::now(),
            };
            entry.finish(&catalog, &answer);
        }
    };
    let count = |tap| {
        // The first call of a thread allocates.
        answer(tap);
        allocation_counter::measure(|| answer(tap)).count_total
    };
    assert_eq!(count(Some(&tap)), count(None));
    log.stop(std::time::Duration::from_secs(60));
    let rows = telemetry.render();
    assert!(
        rows.contains("rtad_log_rows_total 2"),
        "both are in the file: {rows}"
    );
}
