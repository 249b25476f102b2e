//! A cluster of three nodes: spread over the nodes, moving slots, failover and lost nodes.

use std::collections::HashMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use rtad_redis::{Eviction, RedisError, RedisWindow, Seen};
use testkit::port::free_port;
use testkit::wait_until;

use crate::redis_server::server::{Server, redis_program};
use crate::redis_server::{HOUR, all, keys, window};

/// `cluster-node-timeout` in milliseconds: a busy machine may delay a node for seconds.
const PATIENT: &str = "5000";
/// The same for a failover, which takes longer than this.
const IMPATIENT: &str = "1000";

/// Three primaries. A test that fails over adds a replica.
pub struct Cluster {
    nodes: Vec<Server>,
}

fn node(timeout: &str) -> Server {
    let bus = free_port().to_string();
    Server::redis(&[
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        timeout,
        // Slots of the nodes that are well stay available.
        "--cluster-require-full-coverage",
        "no",
    ])
}

impl Cluster {
    pub fn start() -> Self {
        Self::start_with(PATIENT)
    }

    fn start_with(node_timeout: &str) -> Self {
        let nodes: Vec<Server> = (0..3).map(|_| node(node_timeout)).collect();
        let created = Command::new(redis_program("redis-cli"))
            .args(["--cluster", "create"])
            .args(nodes.iter().map(Server::address))
            .arg("--cluster-yes")
            .output()
            .unwrap();
        assert!(created.status.success(), "{created:?}");
        let cluster = Self { nodes };
        cluster.settle();
        cluster
    }

    /// Waits until all nodes know all slots.
    fn settle(&self) {
        for node in &self.nodes {
            wait_until("the cluster", || {
                let info: String = node.command("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains("cluster_slots_assigned:16384")
            });
        }
    }

    pub fn url(&self) -> String {
        format!("redis+cluster://{}", self.nodes[0].address())
    }

    fn window(&self) -> RedisWindow {
        window(&self.url())
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command("CLUSTER MYID")
    }

    fn sizes(&self) -> Vec<u64> {
        self.nodes.iter().map(Server::size).collect()
    }

    /// Number of commands that a node has executed, by its statistics.
    fn calls(&self, node: usize, command: &str) -> u64 {
        let info: String = self.nodes[node].command("INFO commandstats");
        let field = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        field.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    fn set_slot(&self, node: usize, slot: u16, state: &str) {
        self.nodes[node].command::<()>(&format!("CLUSTER SETSLOT {slot} {state}"));
    }

    /// Moves the keys of a slot, as `redis-cli --cluster reshard` does.
    fn migrate_keys(&self, from: usize, to: usize, slot: u16) {
        let mut source = self.nodes[from].connection();
        let keys: Vec<Vec<u8>> = redis::cmd("CLUSTER")
            .arg(&["GETKEYSINSLOT", &slot.to_string(), "100000"])
            .query(&mut source)
            .unwrap();
        if keys.is_empty() {
            return;
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate
            .arg("127.0.0.1")
            .arg(self.nodes[to].port)
            .arg("")
            .arg(0)
            .arg(5000)
            .arg("KEYS");
        let _: Value = migrate.arg(keys).query(&mut source).unwrap();
    }

    fn finish(&self, to: usize, slot: u16) {
        let id = self.id(to);
        for node in [to, 0, 1, 2] {
            self.set_slot(node, slot, &format!("NODE {id}"));
        }
    }

    /// Moves a slot from its owner.
    fn move_slot(&self, from: usize, to: usize, slot: u16) {
        self.set_slot(to, slot, &format!("IMPORTING {}", self.id(from)));
        self.set_slot(from, slot, &format!("MIGRATING {}", self.id(to)));
        self.migrate_keys(from, to, slot);
        self.finish(to, slot);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_spread_evenly_over_the_nodes() {
    let cluster = Cluster::start();
    let window = cluster.window();
    let keys = keys(1, 30_000);
    for batch in keys.chunks(1000) {
        all(&window.observe(batch, HOUR, 1).await.unwrap(), Seen::New);
    }
    let sizes = cluster.sizes();
    assert_eq!(sizes.iter().sum::<u64>(), 30_000);
    // Four standard deviations.
    assert!(
        sizes.iter().all(|size| size.abs_diff(10_000) < 330),
        "{sizes:?}"
    );
    for batch in keys.chunks(10_000) {
        all(
            &window.observe(batch, HOUR, 2).await.unwrap(),
            Seen::Duplicate,
        );
        assert!(
            window
                .check(batch, None)
                .await
                .unwrap()
                .into_iter()
                .all(|seen| seen)
        );
    }
    window.probe().await.unwrap();
    assert_eq!(window.eviction().await.unwrap(), Eviction::Never);
    assert!(
        window
            .forget(&keys, None)
            .await
            .unwrap()
            .into_iter()
            .all(|seen| seen)
    );
    // The keys of the probe may be there.
    assert!(cluster.sizes().iter().sum::<u64>() <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_slots_are_followed() {
    let cluster = Cluster::start();
    let (window, other) = (cluster.window(), cluster.window());
    let keys = keys(1, 5000);
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), Seen::New);
    other.probe().await.unwrap();
    // Slots 0 to 5460 are those of the first node.
    for slot in 0..200 {
        cluster.move_slot(0, 1 + usize::from(slot % 2), slot);
    }
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), Seen::New);
    all(
        &other.observe(&keys, HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
    // Keys of the probe live for a second.
    assert!((5000..=5003).contains(&cluster.sizes().iter().sum::<u64>()));
    // The new map: no node redirects any more.
    let before: Vec<u64> = (0..3).map(|node| cluster.calls(node, "set")).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    all(
        &window.observe(&keys, HOUR, 3).await.unwrap(),
        Seen::Duplicate,
    );
    let moved = errors(&cluster, "MOVED");
    all(
        &window.observe(&keys, HOUR, 4).await.unwrap(),
        Seen::Duplicate,
    );
    assert_eq!(errors(&cluster, "MOVED"), moved);
    let after: u64 = (0..3).map(|node| cluster.calls(node, "set")).sum();
    assert_eq!(after - before.iter().sum::<u64>(), 10_000);
}

/// Number of redirects of all nodes.
fn errors(cluster: &Cluster, code: &str) -> u64 {
    let count = |node: &Server| -> u64 {
        let info: String = node.command("INFO errorstats");
        let prefix = format!("errorstat_{code}:count=");
        info.lines()
            .find_map(|line| line.strip_prefix(&prefix))
            .map_or(0, |count| count.parse().unwrap())
    };
    cluster.nodes.iter().map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_in_migration_are_asked_at_their_target() {
    let cluster = Cluster::start();
    // The documented ACL.
    for node in &cluster.nodes {
        node.command::<()>(
            "ACL SETUSER rtad on >secret ~rtad:* -@all \
             +set +get +exists +del +select +asking +cluster|slots",
        );
    }
    let window = window(&cluster.url().replace("://", "://rtad:secret@"));
    let keys = keys(1, 20_000);
    all(
        &window.observe(&keys[..10_000], HOUR, 1).await.unwrap(),
        Seen::New,
    );
    // Keys of even slots are at the target, of odd ones at the source; new ones go to the target.
    for slot in 0..100 {
        cluster.set_slot(1, slot, &format!("IMPORTING {}", cluster.id(0)));
        cluster.set_slot(0, slot, &format!("MIGRATING {}", cluster.id(1)));
        if slot % 2 == 0 {
            cluster.migrate_keys(0, 1, slot);
        }
    }
    all(
        &window.observe(&keys[..10_000], HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
    all(
        &window.observe(&keys[10_000..], HOUR, 3).await.unwrap(),
        Seen::New,
    );
    all(
        &window.observe(&keys[10_000..], HOUR, 3).await.unwrap(),
        Seen::New,
    );
    all(
        &window.observe(&keys[10_000..], HOUR, 4).await.unwrap(),
        Seen::Duplicate,
    );
    assert!(errors(&cluster, "ASK") > 0);
    assert!(
        window
            .check(&keys, None)
            .await
            .unwrap()
            .into_iter()
            .all(|seen| seen)
    );
    for slot in 0..100 {
        cluster.migrate_keys(0, 1, slot);
        cluster.finish(1, slot);
    }
    all(
        &window.observe(&keys, HOUR, 5).await.unwrap(),
        Seen::Duplicate,
    );
    assert_eq!(cluster.sizes().iter().sum::<u64>(), 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_is_new_once_while_slots_move() {
    let cluster = Cluster::start();
    let owners = [cluster.window(), cluster.window()];
    let keys = keys(1, 20_000);
    let moved = AtomicBool::new(false);
    let observe = async |owner: usize| {
        let mut times_new: HashMap<[u8; 16], u32> = HashMap::new();
        let mut token = (owner as u64) << 32;
        let mut after_the_move = false;
        // One more round after the last slot has moved.
        while !after_the_move {
            after_the_move = moved.load(Ordering::Relaxed);
            for batch in keys.chunks(500) {
                token += 1;
                let seen = loop {
                    match owners[owner].observe(batch, HOUR, token).await {
                        Ok(seen) => break seen,
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                };
                for (key, seen) in batch.iter().zip(seen) {
                    *times_new.entry(*key).or_default() += u32::from(seen == Seen::New);
                }
            }
        }
        times_new
    };
    let moving = async {
        tokio::task::block_in_place(|| {
            for slot in 0..60 {
                cluster.move_slot(0, 2, slot * 50);
            }
        });
        moved.store(true, Ordering::Relaxed);
    };
    // The moves block a thread of their own.
    let (one, other, ()) = std::thread::scope(|scope| {
        let runtime = tokio::runtime::Handle::current();
        let moving = scope.spawn(move || runtime.block_on(moving));
        let runtime = tokio::runtime::Handle::current();
        let both = async { tokio::join!(observe(0), observe(1)) };
        let (one, other) = tokio::task::block_in_place(|| runtime.block_on(both));
        (one, other, moving.join().unwrap())
    });
    let wrong = keys
        .iter()
        .filter(|key| one[*key] + other[*key] != 1)
        .count();
    assert_eq!(wrong, 0, "keys that were not new exactly once");
    assert_eq!(cluster.sizes().iter().sum::<u64>(), 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn failover_to_a_replica_is_followed() {
    let mut cluster = Cluster::start_with(IMPATIENT);
    let window = cluster.window();
    let keys = keys(1, 5000);
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), Seen::New);
    let replica = node(IMPATIENT);
    let bus: Vec<String> = {
        let nodes: String = cluster.nodes[1].command("CLUSTER NODES");
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        let bus = own.split(['@', ' ', ',']).nth(2).unwrap().to_owned();
        vec![
            "127.0.0.1".to_owned(),
            cluster.nodes[1].port.to_string(),
            bus,
        ]
    };
    replica.command::<()>(&format!("CLUSTER MEET {}", bus.join(" ")));
    let id = cluster.id(1);
    wait_until("the new node", || {
        replica.command::<String>("CLUSTER NODES").contains(&id)
    });
    replica.command::<()>(&format!("CLUSTER REPLICATE {id}"));
    wait_until("replication", || {
        replica
            .command::<String>("INFO replication")
            .contains("master_link_status:up")
    });
    let port = replica.port.to_string();
    for node in &cluster.nodes {
        wait_until("the replica", || {
            node.command::<String>("CLUSTER NODES").contains(&port)
        });
    }
    wait_until("the keys", || replica.size() == cluster.nodes[1].size());

    // The old primary dies, and the replica is promoted after a second.
    cluster.nodes[1].kill();
    let begun = Instant::now();
    let seen = loop {
        match window.observe(&keys, HOUR, 1).await {
            Ok(seen) => break seen,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no failover");
    };
    all(&seen, Seen::New);
    all(
        &window.observe(&keys, HOUR, 2).await.unwrap(),
        Seen::Duplicate,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_node_fails_only_its_keys() {
    let mut cluster = Cluster::start();
    let window = cluster.window();
    let keys = keys(1, 1000);
    all(&window.observe(&keys, HOUR, 1).await.unwrap(), Seen::New);
    cluster.nodes[2].kill();
    for _ in 0..2 {
        let begun = Instant::now();
        let error = window.observe(&keys, HOUR, 1).await.unwrap_err();
        assert!(matches!(error, RedisError::Unreachable { .. }), "{error:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?}",
            begun.elapsed()
        );
        assert!(window.probe().await.is_err());
    }
    let mut answered = 0;
    for key in &keys[..60] {
        answered += usize::from(window.check(&[*key], None).await.is_ok());
    }
    assert!(
        (25..=55).contains(&answered),
        "{answered} keys of two nodes of three"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_and_single_server_are_told_apart() {
    let cluster = Cluster::start();
    let single = Server::redis(&[]);
    let windows = [
        window(&format!("redis://{}", cluster.nodes[0].address())),
        window(&format!("redis+cluster://{}", single.address())),
    ];
    for window in windows {
        let error = window.observe(&keys(1, 100), HOUR, 1).await.unwrap_err();
        assert!(matches!(error, RedisError::Config(_)), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_of_the_url_is_enough() {
    let cluster = Cluster::start();
    let down = free_port();
    let window = window(&format!(
        "redis+cluster://127.0.0.1:{down},{}",
        cluster.nodes[2].address()
    ));
    all(
        &window.observe(&keys(1, 1000), HOUR, 1).await.unwrap(),
        Seen::New,
    );
}
