//! Commands for many keys: one round trip to each server that owns some, with redirects and
//! retries.
//!
//! The cluster connection of the `redis` crate accepts a pipeline only if all its keys have one
//! slot: a batch of 1,000 keys would be about 970 requests. The router splits a batch by node.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, ServerError, Value};
use tokio::time::{Instant, sleep_until};

use crate::cluster::Cluster;
use crate::command::KeyCommand;
use crate::config::{Address, Target};
use crate::connection::Connector;
use crate::error::RedisError;
use crate::name::slot;
use crate::node::{Limits, Node, RequestFailure};

/// Most requests for a key within a call: after lost connections and redirects.
const MAX_ATTEMPTS: u32 = 6;
/// Wait before a retry while a cluster changes, times the number of the attempt.
const RETRY_WAIT: Duration = Duration::from_millis(15);

/// A key to send, by its index, and the node that a redirect named for it.
struct PendingKey {
    index: usize,
    redirect: Option<Redirect>,
}

#[derive(Clone)]
struct Redirect {
    to: Address,
    /// Only for the next request: the slot is moving.
    asking: bool,
}

/// Keys that go to a node in one request.
struct Group {
    node: Arc<Node>,
    asking: bool,
    indexes: Vec<usize>,
}

/// Meaning of the answers for one key.
enum KeyOutcome {
    Done,
    Redirected(Redirect),
    /// A retry may succeed in a moment.
    Later(RedisError),
    Failed(RedisError),
}

/// See the module's documentation.
pub enum Router {
    Single(Arc<Node>),
    Cluster(Box<Cluster>),
}

impl Router {
    pub fn new(target: &Target, connector: Connector, limits: Limits) -> Self {
        let connector = Arc::new(connector);
        if target.cluster {
            let cluster = Cluster::new(&target.addresses, connector, limits);
            return Self::Cluster(Box::new(cluster));
        }
        Self::Single(Arc::new(Node::new(
            target.addresses[0].clone(),
            connector,
            limits,
        )))
    }

    /// Address for messages.
    pub fn server(&self) -> &str {
        match self {
            Self::Single(node) => node.server(),
            Self::Cluster(cluster) => &cluster.name,
        }
    }

    /// Sends the command for each name; returns the answers for each name, without errors.
    ///
    /// Repeats keys whose connection was lost or that were redirected, until the deadline; after a
    /// lost connection only commands that tolerate it. Fails as a whole if one key fails.
    pub async fn run(
        &self,
        command: &KeyCommand,
        names: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<Vec<Vec<Value>>, RedisError> {
        let mut answers = vec![Vec::new(); names.len()];
        let mut pending: Vec<PendingKey> = (0..names.len())
            .map(|index| PendingKey {
                index,
                redirect: None,
            })
            .collect();
        for attempt in 1.. {
            let groups = self.groups(&pending, names, deadline).await?;
            let requests = groups.iter().map(|group| {
                let mut pipeline = Pipeline::with_capacity(group.indexes.len());
                for index in &group.indexes {
                    command.append(&mut pipeline, &names[*index], group.asking);
                }
                group.node.send(pipeline, deadline)
            });
            let results = join_all(requests).await;
            pending.clear();
            let mut cause = None;
            let mut must_wait = false;
            for (group, result) in groups.into_iter().zip(results) {
                let retry = |index: &usize| PendingKey {
                    index: *index,
                    redirect: None,
                };
                let found = match result {
                    Ok(found) => found,
                    Err(failure) => {
                        // The first lost connection may just have been old.
                        must_wait |= !failure.lost || attempt > 1;
                        if failure.lost && !command.may_repeat() {
                            return Err(failure.error);
                        }
                        cause = Some(self.retried(failure)?);
                        pending.extend(group.indexes.iter().map(retry));
                        continue;
                    }
                };
                let width = command.answers() * if group.asking { 2 } else { 1 };
                let mut found = found.into_iter();
                for index in &group.indexes {
                    let of_key = found.by_ref().take(width);
                    // The answers to ASKING.
                    let of_key: Vec<Value> = if group.asking {
                        of_key.skip(1).step_by(2).collect()
                    } else {
                        of_key.collect()
                    };
                    let is_partly_executed = of_key
                        .iter()
                        .any(|answer| !matches!(answer, Value::ServerError(_)));
                    match self.outcome(&group.node, &of_key) {
                        KeyOutcome::Done => answers[*index] = of_key,
                        KeyOutcome::Redirected(_) | KeyOutcome::Later(_)
                            if is_partly_executed && !command.may_repeat() =>
                        {
                            let what = "commands were executed in part, as their slot moved";
                            return Err(RedisError::other(group.node.server(), what));
                        }
                        KeyOutcome::Redirected(redirect) => {
                            pending.push(PendingKey {
                                index: *index,
                                redirect: Some(redirect),
                            });
                        }
                        KeyOutcome::Later(error) => {
                            cause = Some(error);
                            must_wait = true;
                            pending.push(retry(index));
                        }
                        KeyOutcome::Failed(error) => return Err(error),
                    }
                }
            }
            if pending.is_empty() {
                break;
            }
            let resume = Instant::now()
                + if must_wait {
                    RETRY_WAIT * attempt
                } else {
                    Duration::ZERO
                };
            if attempt == MAX_ATTEMPTS || resume >= deadline {
                return Err(cause.unwrap_or_else(|| {
                    RedisError::unreachable(self.server(), "too many redirects")
                }));
            }
            if must_wait {
                sleep_until(resume).await;
            }
        }
        Ok(answers)
    }

    /// The error of a failed request if a retry makes sense, or else `Err`.
    fn retried(&self, failure: RequestFailure) -> Result<RedisError, RedisError> {
        let moved = match self {
            Self::Single(_) => false,
            Self::Cluster(cluster) => {
                cluster.mark_stale();
                // Another node may have taken over.
                matches!(failure.error, RedisError::Unreachable { .. })
            }
        };
        if failure.lost || moved {
            Ok(failure.error)
        } else {
            Err(failure.error)
        }
    }

    fn outcome(&self, node: &Node, answers: &[Value]) -> KeyOutcome {
        let error = answers.iter().find_map(|answer| match answer {
            Value::ServerError(error) => Some(error),
            _ => None,
        });
        let Some(error) = error else {
            return KeyOutcome::Done;
        };
        let typed = RedisError::answered(node.server(), error);
        let Self::Cluster(cluster) = self else {
            return KeyOutcome::Failed(typed);
        };
        match error.code() {
            code @ ("MOVED" | "ASK") => match redirect_address(error, node) {
                Some(to) => {
                    let asking = code == "ASK";
                    if !asking {
                        cluster.mark_stale();
                    }
                    KeyOutcome::Redirected(Redirect { to, asking })
                }
                None => KeyOutcome::Failed(RedisError::other(node.server(), code)),
            },
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => {
                cluster.mark_stale();
                KeyOutcome::Later(typed)
            }
            _ => KeyOutcome::Failed(typed),
        }
    }

    /// Splits keys by the node that owns them.
    async fn groups(
        &self,
        pending: &[PendingKey],
        names: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<Vec<Group>, RedisError> {
        let cluster = match self {
            Self::Single(node) => {
                let indexes = pending.iter().map(|pending| pending.index).collect();
                return Ok(vec![Group {
                    node: Arc::clone(node),
                    asking: false,
                    indexes,
                }]);
            }
            Self::Cluster(cluster) => cluster,
        };
        let slots = cluster.slots(deadline).await?;
        let mut groups: HashMap<(&Address, bool), Vec<usize>> = HashMap::new();
        for PendingKey { index, redirect } in pending {
            let place = match redirect {
                Some(redirect) => (&redirect.to, redirect.asking),
                None => {
                    let owner = slots.owner(slot(&names[*index]));
                    (owner.ok_or_else(|| cluster.without_owner())?, false)
                }
            };
            groups.entry(place).or_default().push(*index);
        }
        Ok(groups
            .into_iter()
            .map(|((address, asking), indexes)| Group {
                node: cluster.node(address),
                asking,
                indexes,
            })
            .collect())
    }

    /// All primaries; an error if a slot of the cluster has none.
    pub async fn primaries(&self, deadline: Instant) -> Result<Vec<Arc<Node>>, RedisError> {
        match self {
            Self::Single(node) => Ok(vec![Arc::clone(node)]),
            Self::Cluster(cluster) => {
                let slots = cluster.slots(deadline).await?;
                if slots.unowned() > 0 {
                    return Err(cluster.without_owner());
                }
                Ok(slots
                    .primaries()
                    .iter()
                    .map(|address| cluster.node(address))
                    .collect())
            }
        }
    }

    /// One name for each primary, of those that `name` makes of numbers.
    pub async fn name_for_each(
        &self,
        name: impl Fn(u16) -> Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, RedisError> {
        let Self::Cluster(cluster) = self else {
            return Ok(vec![name(0)]);
        };
        let primaries = self.primaries(deadline).await?.len();
        let slots = cluster.slots(deadline).await?;
        let mut covered = HashSet::new();
        let mut found = Vec::new();
        for number in 0..u16::MAX {
            let name = name(number);
            if slots
                .owner(slot(&name))
                .is_some_and(|owner| covered.insert(owner))
            {
                found.push(name);
            }
            if found.len() == primaries {
                break;
            }
        }
        Ok(found)
    }
}

/// The node that a `MOVED` or `ASK` names. A redirect without a host means that of the answering
/// node.
fn redirect_address(error: &ServerError, answering: &Node) -> Option<Address> {
    let (_, address) = error.details()?.split_once(' ')?;
    let (host, port) = address.trim().rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let host = if host.is_empty() {
        &answering.address().host
    } else {
        host
    };
    Some(Address {
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}
