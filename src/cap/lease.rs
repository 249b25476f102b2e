//! Leases of caps: the pods take their parts of a cap from Redis or Valkey, block by block.
//!
//! Requests see a table whose limit grows. A background task keeps each limit ahead of the count by
//! what the pod counts in ten seconds, and leases for the next period before it begins. Without
//! Redis a pod goes on with what it has leased.
//!
//! After a call without an answer, the next ones only ask: a server that executes calls and fails
//! to answer wastes one block at most.
//!
//! A pod that ends gives back what it has not used. What a killed pod had left is used by nobody,
//! so a file of the cap restores devices, not leases.

mod account;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rtad_core::period::Period;
use rtad_redis::{Lease, Quota, RedisError, RedisLeases};
use serde::Serialize;

use super::{Cap, PeriodTable};
use crate::config::LeasesConfig;
use account::{Account, Call, start};

/// Time between two looks at the counts.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// The leases of a pod.
#[derive(Debug)]
pub(super) struct Leases {
    /// Name of this process in the records.
    member: u64,
    backend: Mutex<Option<Backend>>,
    accounts: Mutex<HashMap<String, Account>>,
    is_closed: AtomicBool,
}

#[derive(Debug, Clone)]
struct Backend {
    config: LeasesConfig,
    client: Arc<RedisLeases>,
}

/// The leases of a cap, for status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeaseState {
    /// Devices that all pods have leased of the current period, as far as this pod knows. Those of
    /// lost answers and killed pods are included.
    pub all_devices: u64,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The cause, if the last call failed; see [`RedisError::cause`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<&'static str>,
}

/// A call for a cap's period.
struct Order {
    cap: Arc<Cap>,
    counted: Arc<PeriodTable>,
    call: Call,
}

impl Order {
    fn name(&self) -> String {
        let (per, start) = (self.cap.config().per, start(self.counted.period));
        format!("{}:{}:{start}", self.cap.strategy(), per.as_str())
    }

    fn quota<'a>(&self, name: &'a str) -> Quota<'a> {
        let (total, end) = (self.cap.config().unique_devices, self.counted.period.end);
        Quota { name, total, end }
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            member: RandomState::new().build_hasher().finish(),
            backend: Mutex::default(),
            accounts: Mutex::default(),
            is_closed: AtomicBool::default(),
        }
    }
}

impl Leases {
    /// Uses this server from now on; `None` leases no more.
    pub(super) fn use_backend(&self, config: Option<&LeasesConfig>) {
        let mut backend = lock(&self.backend);
        let is_same = match (&*backend, config) {
            (Some(old), Some(new)) => old.config.redis == new.redis,
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same {
            return;
        }
        *backend = config.and_then(|config| match RedisLeases::connect(&config.redis) {
            Ok(client) => Some(Backend { config: config.clone(), client: Arc::new(client) }),
            // Reading the config checked it: the CA file has changed since.
            Err(error) => {
                tracing::error!(error = error.to_string(), "caps cannot be leased");
                None
            }
        });
    }

    /// State of a strategy's leases.
    pub(super) fn state(&self, strategy: &str) -> LeaseState {
        lock(&self.accounts).get(strategy).map(|account| account.state).unwrap_or_default()
    }

    /// Leases what these caps need by now. `grant` raises the limit of a cap's period.
    pub(super) async fn renew(&self, caps: &[Arc<Cap>], grant: impl Fn(&Arc<Cap>, Period, u64)) {
        let backend = lock(&self.backend).clone();
        let Some(Backend { config, client }) = backend else { return };
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }
        let orders = self.orders(caps, Instant::now());
        let calls = orders.iter().map(async |order| {
            let name = order.name();
            let Call { recorded, units } = order.call;
            client.take(order.quota(&name), self.member, recorded, units).await
        });
        let answers = join_all(calls).await;
        for (order, answer) in orders.iter().zip(answers) {
            self.note(&config, order, &answer);
            if let Ok(Lease { granted, .. }) = answer
                && granted > 0
            {
                grant(&order.cap, order.counted.period, granted);
            }
        }
    }

    fn orders(&self, caps: &[Arc<Cap>], now: Instant) -> Vec<Order> {
        let mut accounts = lock(&self.accounts);
        let leased = || caps.iter().filter(|cap| cap.config().leased);
        accounts.retain(|strategy, _| leased().any(|cap| cap.strategy() == strategy));
        let mut orders = Vec::new();
        for cap in leased() {
            let account =
                accounts.entry(cap.strategy().to_owned()).or_insert_with(|| Account::new(now));
            let state = cap.tables();
            account.look(&state.current.counted, now);
            let counted =
                [Some(&state.current), state.next.as_ref()].map(|it| it.map(|it| &it.counted));
            let all = account.keep(counted.map(|counted| Some(counted?.period)));
            let total = cap.config().unique_devices;
            account.state.all_devices = all.min(total);
            for counted in counted.into_iter().flatten() {
                if let Some(call) = account.call(counted, total, now) {
                    let (cap, counted) = (Arc::clone(cap), Arc::clone(counted));
                    orders.push(Order { cap, counted, call });
                }
            }
        }
        orders
    }

    /// Keeps an answer.
    fn note(&self, config: &LeasesConfig, order: &Order, answer: &Result<Lease, RedisError>) {
        let (strategy, server) = (order.cap.strategy(), config.server());
        let mut accounts = lock(&self.accounts);
        let Some(account) = accounts.get_mut(strategy) else { return };
        let (period, now) = (order.counted.period, Instant::now());
        match answer {
            Ok(lease) => {
                if lease.was_lost {
                    tracing::warn!(
                        strategy,
                        server,
                        "the server of leases lost data: the cap may be exceeded"
                    );
                }
                if account.answered(period, lease, now) {
                    tracing::info!(strategy, server, "the cap is leased again");
                }
            }
            Err(error) => {
                if account.failed(period, error.cause(), now) {
                    let error = error.to_string();
                    tracing::warn!(
                        strategy,
                        error,
                        "leasing failed: the cap goes on with what it has"
                    );
                }
            }
        }
    }

    /// What these caps have leased and not used. Their tables admit no further device.
    fn unused(&self, caps: &[Arc<Cap>]) -> Vec<Order> {
        let accounts = lock(&self.accounts);
        let mut unused = Vec::new();
        for cap in caps.iter().filter(|cap| cap.config().leased) {
            let state = cap.tables();
            for dated in [Some(&state.current), state.next.as_ref()].into_iter().flatten() {
                let (cap, counted) = (Arc::clone(cap), Arc::clone(&dated.counted));
                let units = counted.table.close();
                let account = accounts.get(cap.strategy());
                let recorded = account.and_then(|account| account.recorded(counted.period));
                if units > 0 {
                    unused.push(Order { cap, counted, call: Call { recorded, units } });
                }
            }
        }
        unused
    }

    /// Leases no more, and gives back what these caps have left.
    pub(super) async fn close(&self, caps: &[Arc<Cap>]) {
        self.is_closed.store(true, Ordering::Relaxed);
        let backend = lock(&self.backend).clone();
        let Some(Backend { client, .. }) = backend else { return };
        let left = self.unused(caps);
        let calls = left.iter().map(async |order| {
            let name = order.name();
            let Call { recorded, units } = order.call;
            client.give_back(order.quota(&name), self.member, recorded.unwrap_or(0), units).await
        });
        for error in join_all(calls).await.into_iter().filter_map(Result::err) {
            let error = error.to_string();
            tracing::warn!(error, "the rest of a lease was not given back: no pod uses it");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
