//! Tests of quotas: the sum never exceeds the limit, whatever is lost, late, or killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use object_store::ObjectStore;
use testkit::faulty_store::{FaultyStore, LostAnswer, interleave};

use super::*;
use crate::read::Store;

const LIMIT: u64 = 1_000;

fn cap() -> AudienceName {
    "daily".parse().unwrap()
}

fn writer(objects: &Arc<FaultyStore>) -> StoreWriter {
    let store = Store::over(Arc::clone(objects) as _, "memory");
    StoreWriter::new(store).unwrap()
}

fn quota(store: StoreWriter, pod: &str) -> Quota {
    Quota::new(store, &cap(), "day-0", pod.to_owned())
}

/// A directory for the first pods.
fn folder_of_caps() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".caps")).unwrap();
    folder
}

/// All records, in order. Checks that each follows from the one before, within the limit.
async fn grants(objects: &FaultyStore) -> Vec<Grant> {
    let folder = cap_path(&cap()).join("day-0").join("records");
    let mut listed: Vec<_> = objects.list(Some(&folder)).try_collect().await.unwrap();
    listed.retain(|object| !object.location.as_ref().contains("probe"));
    listed.sort_by_key(|object| object.location.clone());

    let mut grants: Vec<Grant> = Vec::new();
    for (index, object) in listed.iter().enumerate() {
        let number = format!("/{:020}.json", index + 1);
        assert!(object.location.as_ref().ends_with(&number), "{listed:?}");
        let got = object_store::ObjectStoreExt::get(objects, &object.location);
        let bytes = got.await.unwrap().bytes().await.unwrap();
        let grant: Grant = serde_json::from_slice(&bytes).unwrap();
        let before = grants.last().map_or(0, |before| before.granted);
        assert_eq!(before.checked_add_signed(grant.amount), Some(grant.granted));
        assert!(grant.granted <= LIMIT, "{grant:?}");
        grants.push(grant);
    }
    grants
}

#[tokio::test]
async fn pods_take_and_give_back_up_to_the_limit() {
    let objects = Arc::new(FaultyStore::default());
    let mut one = quota(writer(&objects), "one");
    let mut other = quota(writer(&objects), "other");
    assert_eq!(one.change(LIMIT, |_| 600).await.unwrap(), 600);
    assert!(one.is_first());
    assert_eq!(other.change(LIMIT, |_| 600).await.unwrap(), 400);
    assert_eq!(
        other
            .change(LIMIT, |left| left.cast_signed())
            .await
            .unwrap(),
        0
    );
    assert_eq!(one.change(LIMIT, |_| -50).await.unwrap(), -50);
    assert_eq!(other.change(LIMIT, |_| 80).await.unwrap(), 50);

    // A lower limit takes nothing away; a higher one is granted.
    assert_eq!(one.change(LIMIT / 2, |_| 1).await.unwrap(), 0);
    assert_eq!((one.granted(), other.granted()), (LIMIT, LIMIT));
    let amounts: Vec<_> = grants(&objects).await.iter().map(|it| it.amount).collect();
    assert_eq!(amounts, [600, 400, -50, 50]);
    assert_eq!(one.change(LIMIT + 5, |_| 9).await.unwrap(), 5);
}

#[tokio::test]
async fn loser_of_a_race_decides_by_the_winners_record() {
    let objects = Arc::new(FaultyStore::default());
    let mut pods: Vec<_> = (0..40)
        .map(|pod| quota(writer(&objects), &pod.to_string()))
        .collect();
    let mut tasks: Vec<futures_util::future::BoxFuture<'_, ()>> = Vec::new();
    for pod in &mut pods {
        tasks.push(Box::pin(async {
            let half = |left: u64| (left / 2).cast_signed();
            assert!(pod.change(LIMIT, half).await.unwrap() >= 0);
        }));
    }
    interleave(7, tasks);
    let amounts: Vec<_> = grants(&objects).await.iter().map(|it| it.amount).collect();
    assert_eq!(amounts, [500, 250, 125, 62, 31, 16, 8, 4, 2, 1]);
}

#[tokio::test]
async fn record_of_a_lost_answer_is_found_again() {
    for lost in [LostAnswer::Retried, LostAnswer::Broken] {
        let objects = Arc::new(FaultyStore::default());
        let mut pod = quota(writer(&objects), "pod");
        objects.lose_next_answer(Some(lost));
        assert_eq!(pod.change(LIMIT, |_| 100).await.unwrap(), 100);
        assert_eq!(pod.change(LIMIT, |_| 100).await.unwrap(), 100);
        assert_eq!(grants(&objects).await.len(), 2);
    }
}

/// The put arrives after its error, before or after another pod's record of the same number.
#[tokio::test]
async fn late_put_is_granted_once() {
    for is_first in [true, false] {
        let objects = Arc::new(FaultyStore::default());
        let mut pod = quota(writer(&objects), "pod");
        let mut other = quota(writer(&objects), "other");
        objects.delay_next_put("records/0");
        pod.change(LIMIT, |_| 100).await.unwrap_err();
        assert!(pod.is_unsettled());
        if is_first {
            assert!(objects.land_late_put().await);
        }
        assert_eq!(
            other.change(LIMIT, |_| 950).await.unwrap(),
            if is_first { 900 } else { 950 }
        );
        if !is_first {
            assert!(!objects.land_late_put().await);
        }
        let expected = if is_first { 100 } else { 50 };
        assert_eq!(pod.change(LIMIT, |_| 100).await.unwrap(), expected);
        assert_eq!(pod.change(LIMIT, |_| 100).await.unwrap(), 0);
        assert_eq!(grants(&objects).await.len(), 2);
    }
}

/// A call whose time is over may have created its record.
#[tokio::test]
async fn dropped_call_is_gone_on_with() {
    for steps in 0..20 {
        let objects = Arc::new(FaultyStore::default());
        let mut pod = quota(writer(&objects), "pod");
        let call = pod.change(LIMIT, |_| 100);
        let mut call = Box::pin(call);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut amount = 0;
        for _ in 0..steps {
            if let std::task::Poll::Ready(granted) = call.as_mut().poll(&mut context) {
                amount = granted.unwrap();
                break;
            }
        }
        drop(call);
        if amount == 0 {
            amount = pod.change(LIMIT, |_| 100).await.unwrap();
        }
        assert_eq!(amount, 100, "{steps}");
        assert_eq!(pod.granted(), 100);
        assert_eq!(grants(&objects).await.len(), 1);
    }
}

#[tokio::test]
async fn record_that_is_not_understood_grants_nothing() {
    let objects = Arc::new(FaultyStore::default());
    let path = Records::new(writer(&objects).store(), cap_path(&cap()).join("day-0")).path(1);
    for content in [
        "",
        "{}",
        "<html>",
        r#"{"format":2,"granted":0,"amount":0,"pod":"","writer":1}"#,
    ] {
        let put = object_store::ObjectStoreExt::put(&*objects, &path, content.into());
        put.await.unwrap();
        let mut pod = quota(writer(&objects), "pod");
        let error = pod.change(LIMIT, |_| 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Quota { .. }), "{error}");
    }
}

/// Pods in random order, with lost answers, late puts and crashes.
#[test]
fn sum_of_all_parts_never_exceeds_the_limit() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.unwrap();
    for seed in 0..300 {
        let entered = runtime.enter();
        let objects = Arc::new(FaultyStore::default());
        // The parts of all pods, used or not, also of those that were killed.
        let held = AtomicI64::new(0);
        let mut tasks: Vec<futures_util::future::BoxFuture<'_, ()>> = Vec::new();
        for pod in 0..6_u64 {
            let (objects, held) = (&objects, &held);
            tasks.push(Box::pin(async move {
                let mut random = Random(seed * 6 + pod);
                for _ in 0..3 {
                    live(objects, held, &mut random).await;
                }
            }));
        }
        interleave(seed, tasks);
        drop(entered);

        let grants = runtime.block_on(grants(&objects));
        let granted = grants.last().unwrap().granted.cast_signed();
        let held = held.load(Ordering::Relaxed);
        assert!(held <= granted, "seed {seed}: {held} of {granted}");
    }
}

/// A pod until it is killed, at any time.
async fn live(objects: &Arc<FaultyStore>, held: &AtomicI64, random: &mut Random) {
    let mut pod = quota(writer(objects), "pod");
    let mut part = 0;
    let mut owed = 0;
    for _ in 0..random.below(15) {
        match random.below(8) {
            0 => objects.lose_next_answer(Some(LostAnswer::Broken)),
            1 => objects.lose_next_answer(Some(LostAnswer::Retried)),
            2 => objects.delay_next_put("records/0"),
            3 => {
                objects.try_land_late_put().await;
            }
            _ => {}
        }

        if random.below(3) == 0 {
            // Not used from now on, whatever the answer is.
            let returned = random.below(400).min(part);
            held.fetch_sub(returned.cast_signed(), Ordering::Relaxed);
            part -= returned;
            owed += returned;
        }
        let wanted = if owed > 0 {
            -owed.cast_signed()
        } else {
            random.below(400).cast_signed()
        };
        let changed = pod.change(LIMIT, |_| wanted).await.unwrap_or(0);
        if changed > 0 {
            held.fetch_add(changed, Ordering::Relaxed);
            part += changed.unsigned_abs();
        } else {
            owed -= changed.unsigned_abs();
        }
        assert!(pod.granted() <= LIMIT);
    }
}

/// A generator of random numbers with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Eight pods at once take all, and give a part back.
async fn share_quota(url: &str) {
    let mut pods = tokio::task::JoinSet::new();
    for pod in 0..8 {
        let store = StoreWriter::open(url).unwrap();
        let mut quota = quota(store, &pod.to_string());
        pods.spawn(async move {
            let mut part = quota.change(LIMIT, |_| 90).await.unwrap();
            part += quota.change(LIMIT, |_| -20).await.unwrap();
            while part < 125 {
                part += quota.change(LIMIT, |_| 125 - part).await.unwrap();
            }
            part
        });
    }
    assert_eq!(pods.join_all().await, [125; 8]);

    let store = StoreWriter::open(url).unwrap();
    let mut late = quota(store.clone(), "late");
    assert_eq!(late.change(LIMIT, |_| 1).await.unwrap(), 0);
    assert_eq!(late.granted(), LIMIT);
    let cap = cap();
    let removal = Quota::remove_ended(&store, &cap, "day-0", SystemTime::now(), |_, _| true);
    assert_eq!(removal.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pods_share_a_quota_in_every_store() {
    let folder = folder_of_caps();
    share_quota(folder.path().to_str().unwrap()).await;
    if let Some(url) = testkit::store::bucket_url("quota") {
        share_quota(&url).await;
    }
}

#[tokio::test]
async fn ended_periods_are_removed() {
    let folder = folder_of_caps();
    let directory = StoreWriter::open(folder.path().to_str().unwrap()).unwrap();
    let memory = writer(&Arc::new(FaultyStore::default()));
    for store in [directory, memory] {
        for period in ["day-1", "day-2", "day-3"] {
            let mut quota = Quota::new(store.clone(), &cap(), period, "pod".to_owned());
            quota.change(LIMIT, |_| 1).await.unwrap();
        }
        for expected in [2, 0] {
            let has_ended = |name: &str, _| name != "day-3";
            let cap = cap();
            let removal = Quota::remove_ended(&store, &cap, "day-3", SystemTime::now(), has_ended);
            assert_eq!(removal.await.unwrap(), expected);
        }
        let left = store.backend().list(&cap_path(&cap())).await.unwrap();
        assert!(
            left.iter()
                .all(|object| object.location.as_ref().contains("day-3"))
        );
        assert_eq!(left.len(), 2, "a record and the hint");
    }
}

/// A pod whose clock is days ahead begins a period before its time.
#[tokio::test]
async fn periods_are_removed_by_the_earlier_one_of_two_clocks() {
    const DAYS: Duration = Duration::from_secs(2 * 24 * 3600);
    let objects = Arc::new(FaultyStore::default());
    let store = writer(&objects);
    quota(store.clone(), "pod")
        .change(LIMIT, |_| 1)
        .await
        .unwrap();

    let now = SystemTime::now();
    let latest = now + Duration::from_secs(3600);
    for (pod_ahead, store_ahead) in [(DAYS, Duration::ZERO), (Duration::ZERO, DAYS)] {
        objects.set_clock_ahead(store_ahead);
        let has_ended = |_: &str, time| {
            assert!(time <= latest, "{pod_ahead:?}, {store_ahead:?}");
            true
        };
        let cap = cap();
        let removal = Quota::remove_ended(&store, &cap, "day-0", now + pod_ahead, has_ended);
        assert_eq!(removal.await.unwrap(), 1);
        quota(store.clone(), "pod")
            .change(LIMIT, |_| 1)
            .await
            .unwrap();
    }
}

/// A proxy answers with a page, while the record that gives back is on its way.
#[tokio::test]
async fn wrong_answer_does_not_give_back_twice() {
    let objects = Arc::new(FaultyStore::default());
    let mut pod = quota(writer(&objects), "pod");
    pod.change(LIMIT, |_| 100).await.unwrap();
    objects.delay_next_put("records/0");
    pod.change(LIMIT, |_| -40).await.unwrap_err();

    let store = writer(&objects);
    let path = Records::new(store.store(), cap_path(&cap()).join("day-0")).path(2);
    let page = object_store::ObjectStoreExt::put(&*objects, &path, "<html>".into());
    page.await.unwrap();
    pod.change(LIMIT, |_| -40).await.unwrap_err();
    assert!(pod.is_unsettled());

    object_store::ObjectStoreExt::delete(&*objects, &path)
        .await
        .unwrap();
    assert!(objects.land_late_put().await);
    assert_eq!(pod.change(LIMIT, |_| -40).await.unwrap(), -40);
    let amounts: Vec<_> = grants(&objects).await.iter().map(|it| it.amount).collect();
    assert_eq!(amounts, [100, -40]);
}

/// The directory under a lost mount: each machine would count on its own.
#[tokio::test]
async fn empty_directory_is_refused() {
    let folder = folder_of_caps();
    let caps = folder.path().join(".caps");
    let store = StoreWriter::open(folder.path().to_str().unwrap()).unwrap();
    let mut pod = quota(store.clone(), "pod");
    assert_eq!(pod.change(LIMIT, |_| 1).await.unwrap(), 1);
    std::fs::remove_dir_all(&caps).unwrap();

    // Also by a pod that starts.
    let started = StoreWriter::open(folder.path().to_str().unwrap()).unwrap();
    let mut pods = vec![pod, quota(store.clone(), "other"), quota(started, "third")];
    pods.push(Quota::new(store, &cap(), "day-1", "pod".to_owned()));
    for pod in &mut pods {
        let error = pod.change(LIMIT, |_| 1).await.unwrap_err();
        assert!(matches!(error, StoreError::EmptyCaps { .. }), "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    // An audience or a window is enough.
    std::fs::create_dir(folder.path().join("visitors")).unwrap();
    assert_eq!(pods[2].change(LIMIT, |_| 1).await.unwrap(), 1);
}

/// The store is an older copy of itself: pods that start would be granted devices again.
#[tokio::test]
async fn records_that_have_gone_back_are_refused() {
    let objects = Arc::new(FaultyStore::default());
    let mut pod = quota(writer(&objects), "pod");
    let mut idle = quota(writer(&objects), "idle");
    for _ in 0..3 {
        pod.change(LIMIT, |_| 100).await.unwrap();
    }
    idle.poll().await.unwrap();
    let store = writer(&objects);
    let records = Records::new(store.store(), cap_path(&cap()).join("day-0"));
    let third = records.path(3);
    object_store::ObjectStoreExt::delete(&*objects, &third)
        .await
        .unwrap();
    for _ in 0..2 {
        let error = pod.change(LIMIT, |_| 100).await.unwrap_err().to_string();
        assert!(
            error.contains("expected the record of 300 devices"),
            "{error}"
        );
    }

    // A pod that has started since goes on from an older record.
    records.point_to(2).await.unwrap();
    quota(writer(&objects), "third")
        .change(LIMIT, |_| 10)
        .await
        .unwrap();
    let error = idle.change(LIMIT, |_| 100).await.unwrap_err().to_string();
    assert!(error.contains("found one of 210"), "{error}");
    assert_eq!(grants(&objects).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn forty_pods_are_granted_within_ten_seconds_of_slow_puts() {
    let objects = Arc::new(FaultyStore::default());
    objects.set_latency(Duration::from_millis(80));
    let begun = tokio::time::Instant::now();
    let mut pods = tokio::task::JoinSet::new();
    for pod in 0..40 {
        let mut quota = quota(writer(&objects), &pod.to_string());
        pods.spawn(async move {
            assert_eq!(quota.change(LIMIT, |_| 10).await.unwrap(), 10);
        });
    }
    pods.join_all().await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}
