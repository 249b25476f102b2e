use rtad_store::write::Change;
use testkit::store::{Depot, Spec};
use testkit::wait_until;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::super::super::telemetry::Telemetry;
use super::super::counters::lag_of;
use super::super::take_over::tests::Owned;
use super::*;
use crate::audience::WriteLimits;

const LIMITS: WriteLimits = WriteLimits {
    every: Duration::from_millis(5),
    max_batch: 1000,
};

/// An owner of the window that feeds audience `a`, and its running follower.
struct Following {
    owner: Owned,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Following {
    fn start(runtime: &Runtime, depot: &Depot, keys: &[[u8; 16]]) -> Self {
        let owner = runtime.block_on(Owned::new());
        runtime.block_on(owner.observe(keys));
        owner.reports.renew();
        let follower = Follower {
            config: owner.audience.clone(),
            window: Arc::clone(&owner.window),
            reports: Arc::clone(&owner.reports),
            writers: Arc::new(Writers::new(depot.writer(), LIMITS, Arc::default())),
            times: FollowTimes {
                retry: Duration::from_millis(20),
                check: Duration::from_millis(50),
            },
            lag_seconds: lag_of(&Telemetry::default(), &owner.audience.name),
        };
        let stop = watch::Sender::new(false);
        let task = runtime.spawn(follower.run(stop.subscribe()));
        Self { owner, stop, task }
    }

    /// Waits until an attempt fails that begins from now on.
    fn wait_for_attempt(&self) {
        let before = self.owner.reports.retries();
        // The first may have begun before.
        wait_until("an attempt", || self.owner.reports.retries() >= before + 2);
    }

    fn stop(self, runtime: &Runtime) {
        self.stop.send_replace(true);
        runtime.block_on(self.task).unwrap();
    }
}

fn has(depot: &Depot, key: u8) -> bool {
    let current = depot.current("a");
    current.is_some()
        && depot
            .read("a")
            .is_ok_and(|snapshot| snapshot.contains(&device(key)))
}

fn device(key: u8) -> DeviceKey {
    DeviceKey::from_bytes([key; 16])
}

#[test]
fn list_of_a_window_becomes_that_of_an_audience_in_its_place() {
    let mut listed = Vec::with_capacity(1000);
    listed.extend((0..100_u8).map(|key| ListedKey([key; 16])));
    let (place, capacity) = (listed.as_ptr().addr(), listed.capacity());
    let keys = device_keys(listed);
    assert_eq!((keys.as_ptr().addr(), keys.capacity()), (place, capacity));
    assert_eq!(keys[99], device(99));
}

#[test]
fn audience_is_not_published_to_a_store_that_lost_it() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let depot = Depot::new();
    let following = Following::start(&runtime, &depot, &[[1; 16]]);
    wait_until("the audience", || has(&depot, 1));
    let store = std::path::Path::new(depot.url());
    let mounted = store.with_extension("mounted");
    std::fs::rename(store, &mounted).unwrap();
    std::fs::create_dir(store).unwrap();

    runtime.block_on(following.owner.observe(&[[2; 16]]));
    following.owner.reports.renew();
    following.wait_for_attempt();
    assert_eq!(std::fs::read_dir(store).unwrap().count(), 0);
    std::fs::remove_dir(store).unwrap();
    following.wait_for_attempt();
    assert!(!store.exists());

    std::fs::rename(&mounted, store).unwrap();
    wait_until("the audience of the mounted store", || has(&depot, 2));
    following.stop(&runtime);
}

#[test]
fn later_owner_repairs_what_the_earlier_one_wrote() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let depot = Depot::new();
    let earlier = Following::start(&runtime, &depot, &[[1; 16]]);
    wait_until("the first owner's audience", || has(&depot, 1));
    let later = Following::start(&runtime, &depot, &[[2; 16]]);
    wait_until("the later owner's audience", || {
        has(&depot, 2) && !has(&depot, 1)
    });
    runtime.block_on(earlier.owner.observe(&[[3; 16]]));
    wait_until("a write of the earlier owner", || has(&depot, 3));
    earlier.stop(&runtime);
    runtime.block_on(later.owner.observe(&[[4; 16]]));
    wait_until("the repaired audience", || {
        has(&depot, 2) && has(&depot, 4) && !has(&depot, 1) && !has(&depot, 3)
    });
    wait_until("nothing waits", || {
        later.owner.reports.lag() == Duration::ZERO
    });
    // No further event is needed.
    let mut change = Change::default();
    change.add(device(5));
    change.remove(device(2));
    depot.append("a", change);
    wait_until("the audience of an idle owner", || {
        has(&depot, 2) && !has(&depot, 5)
    });
    later.stop(&runtime);
}

/// A list that was built, and one of another window, whose writer follows it by the same name.
#[test]
fn generation_of_another_source_is_not_replaced() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    for from_window in [None, Some("other")] {
        let depot = Depot::new();
        let following = Following::start(&runtime, &depot, &[[1; 16]]);
        wait_until("the audience", || has(&depot, 1));
        let spec = Spec {
            from_window,
            ..Spec::small()
        };
        let generation = depot.publish("a", &[device(2)], &spec);

        runtime.block_on(following.owner.observe(&[[3; 16]]));
        following.owner.reports.renew();
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(depot.current("a").unwrap().generation, generation);
        assert!(has(&depot, 2) && !has(&depot, 3));

        // Deleted, it is the window's again.
        depot.delete("a");
        wait_until("the audience of the window", || has(&depot, 3));
        following.stop(&runtime);
    }
}

/// As a window grows under another name.
#[test]
fn audience_moves_to_another_window_at_a_start() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let depot = Depot::new();
    let spec = Spec {
        from_window: Some("other"),
        ..Spec::small()
    };
    depot.publish("a", &[device(2)], &spec);
    let following = Following::start(&runtime, &depot, &[[1; 16]]);
    wait_until("the audience of the window", || has(&depot, 1));
    following.stop(&runtime);
}

/// Its event came while it had the tombstone, in a delta that lacks it.
#[test]
fn tombstone_lifted_by_another_process_makes_a_member_of_the_window() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let depot = Depot::new();
    let following = Following::start(&runtime, &depot, &[[1; 16]]);
    wait_until("the audience", || has(&depot, 1));
    let change = |change: fn(&mut Change, DeviceKey), keys: &[u8]| {
        let mut changes = Change::default();
        keys.iter()
            .for_each(|key| change(&mut changes, device(*key)));
        depot.append("a", changes);
    };
    change(Change::entomb, &[2, 3]);
    runtime.block_on(following.owner.observe(&[[2; 16], [4; 16]]));
    wait_until("an event beside", || has(&depot, 4));
    assert!(!has(&depot, 2));
    change(Change::lift, &[2, 3]);
    wait_until("the device without a tombstone", || has(&depot, 2));
    assert!(!has(&depot, 3));
    following.stop(&runtime);
}

#[test]
fn audience_deleted_by_another_process_is_published_again() {
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let depot = Depot::new();
    let following = Following::start(&runtime, &depot, &[[1; 16]]);
    wait_until("the audience", || has(&depot, 1));
    depot.delete("a");
    runtime.block_on(following.owner.observe(&[[2; 16]]));
    wait_until("a new generation", || has(&depot, 1) && has(&depot, 2));
    following.stop(&runtime);
}
