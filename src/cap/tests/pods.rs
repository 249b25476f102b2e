//! Tests of many pods over one store: the cap is used up and never exceeded.

use std::sync::LazyLock;

use rtad_store::Store;
use rtad_store::write::StoreWriter;
use testkit::faulty_store::FaultyStore;

use super::*;

const TICK: Duration = Duration::from_millis(250);
const LIMIT: u64 = 5_000;

/// A zone in which it is about noon: no test runs over midnight, unless it says so.
static ZONE: LazyLock<String> = LazyLock::new(|| {
    let hour = (rtad_core::clock::now_unix_seconds() / 3600 % 24) as i64;
    // Names of this family have the opposite sign.
    format!("Etc/GMT{:+}", hour - 12)
});

fn daily(limit: u64) -> CapConfig {
    CapConfig {
        time_zone: Some(ZONE.clone()),
        ..config(limit, PeriodUnit::Day)
    }
}

/// A store, and the time of all pods.
struct Fleet {
    objects: Arc<FaultyStore>,
    wall: SystemTime,
    now: Instant,
    devices: u64,
    bids: u64,
}

/// A pod with one cap.
struct Pod {
    caps: Caps,
    cap: Arc<Cap>,
    refusals: u64,
}

impl Fleet {
    fn new() -> Self {
        Self {
            objects: Arc::default(),
            wall: SystemTime::now(),
            now: Instant::now(),
            devices: 0,
            bids: 0,
        }
    }

    fn start(&mut self, config: &CapConfig) -> Pod {
        let store = Store::over(Arc::clone(&self.objects) as _, "memory");
        let store = StoreWriter::new(store).unwrap();
        let caps = Caps::granted_by(Some(store), "pod".to_owned());
        let cap = serve(&caps, config);
        // Large tables take their time.
        self.now = self.now.max(Instant::now());
        Pod {
            caps,
            cap,
            refusals: 0,
        }
    }

    /// Lets time pass.
    async fn pass(&mut self, pods: &mut [Pod], time: Duration) {
        self.wall += time;
        self.now += time;
        for pod in pods {
            pod.caps.follow(self.wall, self.now);
            pod.caps.renew(self.now).await;
        }
    }

    /// New devices ask a pod.
    fn ask(&mut self, pod: &mut Pod, devices: u64) {
        for _ in 0..devices {
            self.devices += 1;
            let tables = pod.cap.tables();
            if tables.seek(&device(self.devices), self.now).admit() {
                self.bids += 1;
            } else {
                tables.refuse(self.now);
                pod.refusals += 1;
            }
        }
    }

    /// Number of records of all periods.
    async fn records(&self) -> usize {
        use futures_util::TryStreamExt as _;
        use object_store::ObjectStore as _;
        let listed: Vec<_> = self.objects.list(None).try_collect().await.unwrap();
        let names = listed.iter().map(|object| object.location.as_ref());
        names.filter(|name| name.ends_with(".json")).count()
    }
}

impl Pod {
    fn rest(&self) -> u64 {
        let usage = self.cap.usage();
        usage.limit.saturating_sub(usage.devices)
    }
}

/// The cap, after a reload with it alone.
fn serve(caps: &Caps, config: &CapConfig) -> Arc<Cap> {
    let served = caps.serve(std::slice::from_ref(config));
    Arc::clone(&served[0])
}

/// Rolling restarts, an outage and uneven traffic.
#[tokio::test]
async fn pods_bid_for_exactly_the_cap() {
    let mut fleet = Fleet::new();
    let config = daily(LIMIT);
    let mut pods: Vec<_> = (0..4).map(|_| fleet.start(&config)).collect();
    for tick in 0..2_400_usize {
        fleet.pass(&mut pods, TICK).await;
        for (index, pod) in pods.iter_mut().enumerate() {
            // The last pod gets one device a second, the first one eight.
            let devices = [2, 1, 1, u64::from(tick % 4 == 0)][index];
            fleet.ask(pod, devices);
        }
        if tick % 200 == 100 {
            let old = std::mem::replace(&mut pods[tick / 200 % 4], fleet.start(&config));
            old.caps.close(true).await;
        }
        let is_outage = (300..340).contains(&tick);
        fleet
            .objects
            .limit_reads(is_outage.then_some((".caps/", 0)));
        assert!(fleet.bids <= LIMIT);
    }
    assert_eq!(fleet.bids, LIMIT);
    assert_eq!(pods[0].cap.tables().refusal(fleet.now), Decision::CAPPED);
}

/// The blocks of killed pods are lost, and no more.
#[tokio::test]
async fn killed_pods_lose_their_blocks() {
    let mut fleet = Fleet::new();
    let config = daily(LIMIT);
    let mut pods: Vec<_> = (0..4).map(|_| fleet.start(&config)).collect();
    let mut lost = 0;
    for tick in 0..2_400_usize {
        fleet.pass(&mut pods, TICK).await;
        for pod in &mut pods {
            fleet.ask(pod, 1);
        }
        if tick % 200 == 100 {
            lost += pods[1].rest();
            pods[1] = fleet.start(&config);
        }
    }
    assert!(lost > 0);
    assert_eq!(fleet.bids, LIMIT - lost);
}

/// A pod whose traffic has gone keeps nothing from the others.
#[tokio::test]
async fn idle_pods_give_back_when_all_is_granted() {
    let mut fleet = Fleet::new();
    let config = daily(LIMIT);
    let mut pods: Vec<_> = (0..4).map(|_| fleet.start(&config)).collect();
    for tick in 0..2_400 {
        fleet.pass(&mut pods, TICK).await;
        for pod in pods.iter_mut().take(if tick < 40 { 4 } else { 1 }) {
            fleet.ask(pod, 3);
        }
    }
    assert_eq!(fleet.bids, LIMIT);
    let records = fleet.records().await;
    // Nothing goes to and fro afterwards.
    for _ in 0..2_400 {
        fleet.pass(&mut pods, TICK).await;
    }
    assert_eq!(fleet.records().await, records);
}

#[tokio::test]
async fn steady_pods_create_a_record_a_minute() {
    const PODS: usize = 10;
    let mut fleet = Fleet::new();
    let config = daily(1_000_000);
    let mut pods: Vec<_> = (0..PODS).map(|_| fleet.start(&config)).collect();
    let mut records = 0;
    for tick in 0..60 * 4 * 12 {
        fleet.pass(&mut pods, TICK).await;
        for pod in &mut pods {
            fleet.ask(pod, 1);
        }
        // A smallest block, and one that its use has shown to be too small.
        if tick == 60 * 4 * 2 {
            records = fleet.records().await;
            assert!(pods.iter().all(|pod| pod.refusals == 0));
        }
    }
    let created = fleet.records().await - records;
    assert!((9 * PODS..=10 * PODS).contains(&created), "{created}");
    // 4 per second: at most 80 seconds' worth.
    let most = pods.iter().map(Pod::rest).max().unwrap();
    assert!(most <= 4 * 81, "{most}");
    assert!(pods.iter().all(|pod| pod.refusals == 0));
}

#[tokio::test]
async fn first_blocks_of_the_next_period_are_taken_before_it_begins() {
    let mut fleet = Fleet::new();
    let config = daily(1_000_000);
    let mut pods: Vec<_> = (0..40).map(|_| fleet.start(&config)).collect();
    fleet.pass(&mut pods, TICK).await;
    let end = pods[0].cap.usage().period.end;
    let left = end.duration_since(fleet.wall).unwrap();
    fleet.pass(&mut pods, left - LEAD).await;
    let before = fleet.records().await;
    fleet.pass(&mut pods, LEAD / 10).await;
    assert!(fleet.records().await - before < 20, "they do not meet");

    for _ in 0..4 * 25 {
        fleet.pass(&mut pods, TICK).await;
    }
    let has_next = |pod: &Pod| {
        let tables: Vec<_> = pod.cap.tables().period_tables().collect();
        tables.len() == 2 && tables[1].table.limit() > 0
    };
    assert!(pods.iter().all(has_next));
    fleet.pass(&mut pods, LEAD).await;
    for pod in &mut pods {
        fleet.ask(pod, 50);
    }
    assert_eq!(fleet.bids, 40 * 50);
}

/// At midnight, over a used-up day.
#[tokio::test]
async fn each_day_bids_for_the_cap() {
    let mut fleet = Fleet::new();
    let config = daily(LIMIT);
    let mut pods: Vec<_> = (0..4).map(|_| fleet.start(&config)).collect();
    fleet.pass(&mut pods, TICK).await;
    for day in 1..=3 {
        for _ in 0..1_600 {
            fleet.pass(&mut pods, TICK).await;
            for pod in &mut pods {
                fleet.ask(pod, 4);
            }
        }
        assert_eq!(fleet.bids, day * LIMIT);
        let end = pods[0].cap.usage().period.end;
        let left = end.duration_since(fleet.wall).unwrap();
        fleet.pass(&mut pods, left - LEAD).await;
        for _ in 0..4 * 30 {
            fleet.pass(&mut pods, TICK).await;
        }
    }
}

/// An idle pod gives back what a platform would not ask for any more.
#[tokio::test]
async fn refusal_is_kept_for_a_minute_while_others_may_give_back() {
    let mut fleet = Fleet::new();
    let config = daily(100_000);
    let mut pods: Vec<_> = (0..2).map(|_| fleet.start(&config)).collect();
    fleet.pass(&mut pods, TICK).await;
    let mut busy = pods.remove(0);
    let held = pods[0].rest();
    let mut is_short = 0;
    let mut is_long = 0;
    for _ in 0..4 * 400 {
        fleet.pass(std::slice::from_mut(&mut busy), TICK).await;
        fleet.pass(&mut pods, Duration::ZERO).await;
        fleet.ask(&mut busy, 1_000);
        let tables = busy.cap.tables();
        if tables.refusal(fleet.now) != Decision::CAPPED {
            is_long = 0;
        } else if tables.capped_ends_in(fleet.now) > RETURN_POLL {
            is_long += 1;
        } else {
            is_short += 1;
        }
    }
    assert!(held > 0 && fleet.bids == 100_000, "{held}, {}", fleet.bids);
    assert!(
        is_short >= 4 * 60 && is_long > 4 * 60,
        "{is_short}, {is_long}"
    );
    assert!(busy.cap.tables().ends_in(fleet.now) > RETURN_POLL);
}

/// A store that fails is no reason to say that the cap is used up.
#[tokio::test]
async fn pod_without_a_store_goes_on_with_what_it_has() {
    let mut fleet = Fleet::new();
    let config = daily(1_000_000);
    let mut pods = vec![fleet.start(&config)];
    fleet.pass(&mut pods, TICK).await;
    fleet.objects.limit_reads(Some((".caps/", 0)));
    fleet.pass(&mut pods, TICK).await;
    let rest = pods[0].rest();
    fleet.ask(&mut pods[0], rest);
    assert_eq!(fleet.bids, rest);
    fleet.ask(&mut pods[0], 1);
    assert_eq!(pods[0].cap.tables().refusal(fleet.now), Decision::NO_GRANT);
    for _ in 0..40 {
        fleet.pass(&mut pods, TICK).await;
    }
    let state = pods[0].caps.grants(&pods[0].cap);
    assert_eq!((state.failing, state.created), (Some("store"), 1));
    assert!((4..=6).contains(&state.failed), "{state:?}");

    fleet.objects.limit_reads(None);
    for _ in 0..10 {
        fleet.pass(&mut pods, TICK).await;
    }
    assert_eq!(pods[0].caps.grants(&pods[0].cap).failing, None);
    assert!(pods[0].rest() > 0);
}

#[tokio::test]
async fn reload_keeps_counts_and_grants() {
    let mut fleet = Fleet::new();
    let mut pods = vec![fleet.start(&daily(100_000))];
    fleet.pass(&mut pods, TICK).await;
    let granted = pods[0].cap.usage().limit;
    fleet.ask(&mut pods[0], granted / 2);
    for limit in [90_000, 1_000_000] {
        let cap = serve(&pods[0].caps, &daily(limit));
        let Usage { devices, limit, .. } = cap.usage();
        assert_eq!((devices, limit), (granted / 2, granted));
        pods[0].cap = cap;
    }
    // Granted parts stay granted.
    let lowered = serve(&pods[0].caps, &daily(1));
    assert_eq!(lowered.usage().limit, granted);
    assert_eq!(lowered.tables().refusal(fleet.now), Decision::CAPPED);
}

/// The answer to a call comes after the reload.
#[tokio::test]
async fn grant_during_a_reload_is_not_lost() {
    let mut fleet = Fleet::new();
    let pod = fleet.start(&daily(100));
    let first = pod.cap.tables().period_tables().next().unwrap();
    let second = serve(&pod.caps, &daily(1_000_000));
    pod.caps.grant(&first, 20);
    assert_eq!(second.usage().limit, 20);

    // The retired cap has them to give back.
    let tables = second.tables().period_tables().next().unwrap();
    let hourly = CapConfig {
        period: PeriodUnit::Hour,
        ..daily(100)
    };
    let third = serve(&pod.caps, &hourly);
    pod.caps.grant(&tables, 5);
    assert_eq!((second.usage().limit, third.usage().limit), (25, 0));
}

#[tokio::test]
async fn removed_cap_gives_back_when_no_request_uses_it() {
    let mut fleet = Fleet::new();
    let config = daily(1_000_000);
    let mut pods = vec![fleet.start(&config), fleet.start(&config)];
    fleet.pass(&mut pods, TICK).await;
    let Pod { caps, cap, .. } = pods.remove(0);
    caps.serve(&[]);
    caps.end_retired().await;
    assert!(cap.usage().limit > 0, "a catalog has it");
    drop(cap);

    // It stays over an outage.
    fleet.objects.limit_reads(Some((".caps/", 0)));
    assert!(!caps.end_retired().await);
    fleet.objects.limit_reads(None);
    assert!(caps.end_retired().await);

    fleet.pass(&mut pods, Duration::from_secs(60)).await;
    let granted = pods[0].caps.grants(&pods[0].cap).all_devices;
    fleet.pass(&mut pods, TICK).await;
    assert!(granted <= 200, "{granted}");
    let granted = pods[0].caps.grants(&pods[0].cap).all_devices;
    assert_eq!(granted, pods[0].rest());
}

/// Requests use the old table until the catalog has the new one.
#[test]
fn old_table_of_a_raised_cap_counts_no_further_device() {
    let mut fleet = Fleet::new();
    let pod = fleet.start(&daily(100));
    pod.cap.raise_limit(100);
    let admits = |cap: &Cap, n| cap.tables().seek(&device(n), fleet.now).admit();
    (0..50).for_each(|n| assert!(admits(&pod.cap, n)));
    let new = serve(&pod.caps, &daily(1_000));
    assert!((50..100).all(|n| !admits(&pod.cap, n)) && (0..50).all(|n| admits(&pod.cap, n)));
    assert_eq!((1_000..5_000).filter(|n| admits(&new, *n)).count(), 50);
}
