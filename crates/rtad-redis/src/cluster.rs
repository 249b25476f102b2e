//! Nodes of a cluster and its slot map, which is read again when an answer contradicts it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::select_ok;
use parking_lot::Mutex;
use redis::{Pipeline, Value};
use tokio::time::{Instant, timeout_at};

use crate::config::Address;
use crate::connection::Connector;
use crate::error::RedisError;
use crate::node::{Limits, Node};
use crate::slots::SlotMap;

/// Shortest interval between reads of the slot map.
const REFRESH_INTERVAL: Duration = Duration::from_millis(50);
/// Number of nodes that are asked for the slot map at once.
const REFRESH_NODES: usize = 4;

/// Nodes of a cluster, and the owners of its slots.
pub struct Cluster {
    /// The nodes of the URL, for messages.
    pub(crate) name: String,
    seeds: Vec<Address>,
    connector: Arc<Connector>,
    limits: Limits,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    slots: Mutex<Option<(Instant, Arc<SlotMap>)>>,
    /// Whether an answer or a failure contradicted the slot map.
    stale: AtomicBool,
    /// Held while the slot map is read.
    refreshing: tokio::sync::Mutex<()>,
}

impl Cluster {
    pub fn new(seeds: &[Address], connector: Arc<Connector>, limits: Limits) -> Self {
        let names: Vec<String> = seeds.iter().map(Address::to_string).collect();
        Self {
            name: names.join(","),
            seeds: seeds.to_vec(),
            connector,
            limits,
            nodes: Mutex::default(),
            slots: Mutex::default(),
            stale: AtomicBool::new(false),
            refreshing: tokio::sync::Mutex::default(),
        }
    }

    pub fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(address.clone()).or_insert_with(|| {
            Arc::new(Node::new(
                address.clone(),
                Arc::clone(&self.connector),
                self.limits,
            ))
        });
        Arc::clone(node)
    }

    /// Notes that an answer or a failure contradicted the slot map.
    pub fn mark_stale(&self) {
        self.stale.store(true, Ordering::Relaxed);
    }

    fn known_slots(&self) -> Option<(Instant, Arc<SlotMap>)> {
        self.slots.lock().clone()
    }

    pub fn without_owner(&self) -> RedisError {
        self.mark_stale();
        RedisError::unreachable(&self.name, "the cluster has slots without an owner")
    }

    /// The slot map; reads it if there is none or it may be wrong.
    pub async fn slots(&self, deadline: Instant) -> Result<Arc<SlotMap>, RedisError> {
        let current = |known: Option<(Instant, Arc<SlotMap>)>| {
            let (read, slots) = known?;
            let usable = !self.stale.load(Ordering::Relaxed) || read.elapsed() < REFRESH_INTERVAL;
            usable.then_some(slots)
        };
        if let Some(slots) = current(self.known_slots()) {
            return Ok(slots);
        }
        let refreshing = timeout_at(deadline, self.refreshing.lock());
        let _refreshing = refreshing
            .await
            .map_err(|_| RedisError::timeout(&self.name, "waiting for the slot map"))?;
        let known = self.known_slots();
        if let Some(slots) = current(known.clone()) {
            return Ok(slots);
        }
        let known = known.map(|(_, slots)| slots);
        match self.read_slots(known.as_deref(), deadline).await {
            Ok(slots) => {
                let slots = Arc::new(slots);
                // A node without slots is of no use; a seed may be a name of many nodes.
                self.nodes.lock().retain(|address, _| {
                    slots.primaries().contains(address) || self.seeds.contains(address)
                });
                self.stale.store(false, Ordering::Relaxed);
                let mut current = self.slots.lock();
                *current = Some((Instant::now(), Arc::clone(&slots)));
                Ok(slots)
            }
            // The old map still serves the nodes that are well.
            Err(error) => known.ok_or(error),
        }
    }

    /// Reads the slot map from the first node that answers.
    async fn read_slots(
        &self,
        known: Option<&SlotMap>,
        deadline: Instant,
    ) -> Result<SlotMap, RedisError> {
        let mut addresses: Vec<&Address> = self.seeds.iter().collect();
        for primary in known.map(SlotMap::primaries).unwrap_or_default() {
            if !addresses.contains(&primary) {
                addresses.push(primary);
            }
        }
        let mut failed = None;
        for addresses in addresses.chunks(REFRESH_NODES) {
            let requests = addresses.iter().map(|address| {
                Box::pin(async {
                    let node = self.node(address);
                    read_slots_of(&node, deadline).await
                })
            });
            match select_ok(requests).await {
                Ok((slots, _)) => return Ok(slots),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| RedisError::unreachable(&self.name, "no node")))
    }
}

async fn read_slots_of(node: &Node, deadline: Instant) -> Result<SlotMap, RedisError> {
    let mut pipeline = Pipeline::new();
    pipeline.cmd("CLUSTER").arg("SLOTS");
    let answers = node
        .send(pipeline, deadline)
        .await
        .map_err(|failure| failure.error)?;
    match answers.first() {
        Some(Value::ServerError(error)) => {
            let disabled = error
                .details()
                .is_some_and(|text| text.contains("support disabled"));
            Err(if disabled {
                RedisError::Config(format!(
                    "server {} has no cluster: expected a URL without cluster",
                    node.server()
                ))
            } else {
                RedisError::answered(node.server(), error)
            })
        }
        Some(answer) => SlotMap::read(answer, node.address())
            .ok_or_else(|| RedisError::other(node.server(), "unexpected answer to CLUSTER SLOTS")),
        None => Err(RedisError::other(
            node.server(),
            "no answer to CLUSTER SLOTS",
        )),
    }
}
