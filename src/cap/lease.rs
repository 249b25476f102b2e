//! Leases of caps: the pods take their parts of a cap from Redis or Valkey, block by block.
//!
//! Requests see a table whose limit grows. A background task keeps each limit ahead of the count by
//! what the pod counts in ten seconds, and leases for the next period before it begins. A pod that
//! cannot reach Redis goes on with what it has leased.
//!
//! The calls that follow a call without an answer only ask: a server that executes calls and fails
//! to answer wastes one block at most.
//!
//! A lease belongs to the period's table, not to the server or the configuration: it stays when a
//! cap gets a share, and another server learns of it.
//!
//! A pod that ends gives back its unused units. Those of a killed pod stay unused, so a file of the
//! cap restores devices, not leases.

mod account;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use futures_util::future::join_all;
use parking_lot::Mutex;
use rtad_redis::{Lease, Member, Quota, RedisError, RedisLeases};
use serde::Serialize;

use super::{Cap, PeriodTable};
use crate::config::LeasesConfig;
use account::Account;
pub use account::Record;

/// Interval of the polls of the counts.
pub const TICK: Duration = Duration::from_millis(250);

/// The leases of a pod.
#[derive(Debug, Default)]
pub struct Leases {
    backend: Mutex<Option<Backend>>,
    /// The backend of the config before the current one without leases: caps that a reload removed
    /// with it still give back.
    former: Mutex<Option<Backend>>,
    /// The accounts by name of the cap. They stay when a cap ends: counters of calls do not fall.
    accounts: Mutex<HashMap<String, Account>>,
    /// Held during calls.
    calling: tokio::sync::Mutex<()>,
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
struct PendingCall {
    cap: Arc<Cap>,
    period_table: Arc<PeriodTable>,
    units: u64,
}

impl PendingCall {
    fn name(&self) -> String {
        let since = self.period_table.period.start.duration_since(UNIX_EPOCH);
        let start = since.map_or(0, |since| since.as_secs());
        format!(
            "{}:{}:{start}",
            self.cap.name(),
            self.cap.config().per.as_str()
        )
    }

    fn member(&self) -> Member {
        self.period_table.record().member()
    }

    fn quota<'a>(&self, name: &'a str) -> Quota<'a> {
        Quota {
            name,
            total: self.cap.config().unique_devices,
            end: self.period_table.period.end,
        }
    }
}

impl Leases {
    /// Uses this server from now on; `None` leases no more.
    pub fn use_backend(&self, config: Option<&LeasesConfig>) {
        let mut backend = self.backend.lock();
        let is_same = match (&*backend, config) {
            (Some(old), Some(new)) => (&old.config.redis, &old.config.ca) == (&new.redis, &new.ca),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same {
            return;
        }

        let former = backend.take();
        *backend = config.and_then(|config| match RedisLeases::connect(&config.redis) {
            Ok(client) => Some(Backend {
                config: config.clone(),
                client: Arc::new(client),
            }),
            // Reading the config checked it: the CA file has changed since.
            Err(error) => {
                tracing::error!(error = error.to_string(), "caps cannot be leased");
                None
            }
        });

        if backend.is_none() {
            *self.former.lock() = former;
        }
    }

    /// State of a cap's leases.
    pub fn state(&self, cap: &str) -> LeaseState {
        self.accounts
            .lock()
            .get(cap)
            .map(|account| account.state)
            .unwrap_or_default()
    }

    /// Leases what these caps need by now. `grant` adds leased devices to a table.
    pub async fn renew(&self, caps: &[Arc<Cap>], grant: impl Fn(&PeriodTable, u64)) {
        let backend = self.backend.lock().clone();
        let Some(Backend { config, client }) = backend else {
            return;
        };

        let _calling = self.calling.lock().await;
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }

        let pending = self.pending(caps, Instant::now());
        let calls = pending.iter().map(async |pending| {
            let name = pending.name();
            client
                .take(pending.quota(&name), pending.member(), pending.units)
                .await
        });
        let answers = join_all(calls).await;

        for (pending, answer) in pending.iter().zip(answers) {
            let granted = self.record(&config, pending, &answer);
            if granted > 0 {
                grant(&pending.period_table, granted);
            }
        }
    }

    fn pending(&self, caps: &[Arc<Cap>], now: Instant) -> Vec<PendingCall> {
        let mut accounts = self.accounts.lock();
        let mut pending = Vec::new();
        for cap in caps.iter().filter(|cap| cap.config().leased) {
            let account = accounts
                .entry(cap.name().to_owned())
                .or_insert_with(|| Account::new(now));

            let state = cap.tables();
            account.measure_rate(&state.current.period_table, now);
            let total = cap.config().unique_devices;
            account.state.all_devices = state.current.period_table.leased_by_all().min(total);

            for dated in [Some(&state.current), state.next.as_ref()]
                .into_iter()
                .flatten()
            {
                if let Some(units) = account.units(&dated.period_table, total, now) {
                    pending.push(PendingCall {
                        cap: Arc::clone(cap),
                        period_table: Arc::clone(&dated.period_table),
                        units,
                    });
                }
            }
        }
        pending
    }

    /// Keeps an answer. Returns the units that the pod may use in addition.
    fn record(
        &self,
        config: &LeasesConfig,
        pending: &PendingCall,
        answer: &Result<Lease, RedisError>,
    ) -> u64 {
        let cap = pending.cap.name();
        let server = config.server();
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.get_mut(cap) else {
            return 0;
        };

        let now = Instant::now();
        match answer {
            Ok(lease) => {
                if lease.was_lost {
                    tracing::warn!(
                        cap,
                        server,
                        "the server of leases lost data: the cap may be exceeded"
                    );
                }
                if account.answered(&pending.period_table, lease, now) {
                    tracing::info!(cap, server, "the cap is leased again");
                }
                lease.granted
            }
            Err(error) => {
                if account.failed(&pending.period_table, error, now) {
                    let error = error.to_string();
                    tracing::warn!(
                        cap,
                        error,
                        "leasing failed: the cap goes on with what it has"
                    );
                }
                0
            }
        }
    }

    /// Closes the tables of these caps, which admit no further device, and returns what they have
    /// leased and not used.
    fn close_and_take_unused(&self, caps: &[Arc<Cap>]) -> Vec<PendingCall> {
        let mut unused = Vec::new();
        for cap in caps.iter().filter(|cap| cap.config().leased) {
            let state = cap.tables();
            for dated in [Some(&state.current), state.next.as_ref()]
                .into_iter()
                .flatten()
            {
                let cap = Arc::clone(cap);
                let period_table = Arc::clone(&dated.period_table);
                let units = period_table.table.close();
                let record = period_table.record();
                // A restored table has units of the process before, which are not ours to return.
                let is_leased = (1..=record.member().recorded).contains(&units);
                let units = if is_leased { units } else { 0 };
                let is_owed = units > 0 || record.is_unanswered();
                drop(record);

                if is_owed {
                    unused.push(PendingCall {
                        cap,
                        period_table,
                        units,
                    });
                }
            }
        }
        unused
    }

    /// Leases no more, and gives back what these caps have left.
    pub async fn close(&self, caps: &[Arc<Cap>]) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.give_back(caps).await;
    }

    /// Gives back what these caps have left. Waits for calls in progress.
    pub async fn give_back(&self, caps: &[Arc<Cap>]) {
        let _calling = self.calling.lock().await;
        let backend = self
            .backend
            .lock()
            .clone()
            .or_else(|| self.former.lock().clone());
        let Some(Backend { client, .. }) = backend else {
            return;
        };

        let left = self.close_and_take_unused(caps);
        let calls = left.iter().map(async |pending| {
            let name = pending.name();
            client
                .give_back(pending.quota(&name), pending.member(), pending.units)
                .await
        });

        for error in join_all(calls).await.into_iter().filter_map(Result::err) {
            let error = error.to_string();
            tracing::warn!(
                error,
                "the rest of a lease was not given back: no pod uses it"
            );
        }
    }
}
