//! Grants of caps: a pod takes its part of a cap from the store, block by block.
//!
//! A record in the store has the sum of all blocks (`rtad_store::write::Quota`). Requests see a
//! table whose limit grows, and never wait.
//!
//! * A block is what the pod counts in a minute. With it the pod holds a sixteenth of what is left
//!   of the cap at most: near the end no pod holds much. An idle pod holds a ten-thousandth of the
//!   cap.
//! * The first block of a period is taken before it begins, at a random time, so that pods do not
//!   meet.
//! * A pod gives back what it has left when it drains, when a reload removes the cap, and, while
//!   all is granted, what it would not use soon.
//! * A pod that cannot reach the store goes on with what it has.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rtad_core::clock;
use rtad_core::error_chain::error_chain;
use rtad_core::period::{Period, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{Quota, StoreWriter};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::demand::{Demand, Need, TICK};
use super::{Cap, PeriodTable};

/// Time between two reads of the store by a pod that needs nothing: it learns whether all is
/// granted. A pod gives back no more often.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two reads by a pod that waits for others to give back.
const WAIT_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which idle pods have given back what they do not use, and others have taken it: two
/// polls, as the first one may fail.
const RETURN_TIME: Duration = Duration::from_secs(120);
/// Pause after a failure.
pub const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// Most time for one call. The next one goes on.
const CALL_TIME: Duration = Duration::from_secs(10);
/// Most time for removing ended periods. The next period's first pod goes on.
const REMOVAL_TIME: Duration = Duration::from_secs(600);
/// Most time for giving back at the end. With that of the decision log it is less than the 10 s
/// that pods have after the drain time-out.
const CLOSE_TIME: Duration = Duration::from_secs(4);
/// Time that the records of a period stay after its end: longer than clocks differ.
const KEPT_SECONDS: u64 = 24 * 3600;

/// A pod's part of a cap in a period. Tables that replace each other in the period share it.
#[derive(Debug)]
pub struct Grants {
    /// Devices that were granted to all pods together, as of the newest known record.
    by_all: AtomicU64,
    /// Since when all is granted, as far as this pod knows.
    all_granted_since: ArcSwapOption<Instant>,
    /// Whether a device was refused since the last call.
    was_refused: AtomicBool,
    ledger: tokio::sync::Mutex<Ledger>,
}

/// The calls about a pod's part.
#[derive(Debug)]
struct Ledger {
    /// `None` before the first call.
    quota: Option<Quota>,
    /// Devices to give back, which the table no longer has.
    owed: u64,
    last_block: u64,
    granted_at: Option<Instant>,
    next_call: Instant,
    polled_at: Option<Instant>,
}

impl Ledger {
    /// Whether there is nothing to give back, and no record whose outcome is unknown.
    fn is_settled(&self) -> bool {
        let is_unsettled = self.quota.as_ref().is_some_and(Quota::is_unsettled);
        self.owed == 0 && !is_unsettled
    }
}

impl Grants {
    /// No part yet. The first call is due at this time.
    pub fn due_at(due: Instant) -> Self {
        let ledger = Ledger {
            quota: None,
            owed: 0,
            last_block: 0,
            granted_at: None,
            next_call: due,
            polled_at: None,
        };
        Self {
            by_all: AtomicU64::new(0),
            all_granted_since: ArcSwapOption::empty(),
            was_refused: AtomicBool::new(false),
            ledger: tokio::sync::Mutex::new(ledger),
        }
    }

    /// Devices that were granted to all pods together, as far as this pod knows.
    pub fn by_all(&self) -> u64 {
        self.by_all.load(Ordering::Relaxed)
    }

    /// Whether pods may still give back what they do not use.
    pub fn may_be_given_back(&self, now: Instant) -> bool {
        let since = self.all_granted_since.load();
        since
            .as_ref()
            .is_none_or(|since| now < **since + RETURN_TIME)
    }

    /// Follows [`Self::by_all`] of a cap of so many devices.
    fn note_sum(&self, cap: u64, now: Instant) {
        let is_all_granted = self.by_all() >= cap;
        if !is_all_granted {
            self.all_granted_since.store(None);
        } else if self.all_granted_since.load().is_none() {
            self.all_granted_since.store(Some(Arc::new(now)));
        }
    }

    /// Notes that a device was refused.
    pub fn note_refusal(&self) {
        // Mostly set already: reading it alone leaves its line in the caches of all cores.
        if !self.was_refused.load(Ordering::Relaxed) {
            self.was_refused.store(true, Ordering::Relaxed);
        }
    }
}

/// The grants of a cap, for status and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GrantState {
    /// Devices of the current period that were granted to all pods, as far as this pod knows. Those
    /// of killed pods are included.
    pub all_devices: u64,
    /// Records that this pod has created.
    pub created: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The cause, if the last call failed: `timeout`, or see [`StoreError::cause`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<&'static str>,
}

/// Demand and state of a cap. It stays when a cap ends: counters do not fall.
#[derive(Debug, Default)]
struct Account {
    demand: Demand,
    state: GrantState,
}

/// Takes the parts of a pod's caps, and gives them back.
#[derive(Debug, Default)]
pub struct Granter {
    /// `None` grants nothing.
    store: Option<StoreWriter>,
    pod: String,
    /// By name of the cap.
    accounts: Mutex<HashMap<String, Account>>,
    /// Held during calls.
    calling: tokio::sync::Mutex<()>,
    is_closed: AtomicBool,
    /// Periods whose first record this pod has created, until those that ended are removed.
    begun: Mutex<Vec<Begun>>,
    has_begun: Notify,
}

/// A period of a cap that has begun.
#[derive(Debug)]
struct Begun {
    cap: AudienceName,
    folder: String,
}

/// A table of a cap.
struct Held<'a> {
    cap: &'a Cap,
    period_table: Arc<PeriodTable>,
}

impl Held<'_> {
    /// The tables of these caps.
    fn of(caps: &[Arc<Cap>]) -> Vec<Held<'_>> {
        let mut held = Vec::new();
        for cap in caps {
            for period_table in cap.tables().period_tables() {
                held.push(Held { cap, period_table });
            }
        }
        held
    }

    fn total(&self) -> u64 {
        self.cap.config().limit
    }

    /// Name of the period's folder.
    fn folder(&self) -> String {
        folder_name(self.cap.config().period, self.period_table.period)
    }
}

impl Granter {
    /// The parts of this pod come from a store.
    pub fn new(store: Option<StoreWriter>, pod: String) -> Self {
        Self {
            store,
            pod,
            ..Self::default()
        }
    }

    /// State of a cap's grants.
    pub fn state(&self, cap: &Cap) -> GrantState {
        let accounts = self.accounts.lock();
        let account = accounts.get(cap.name());
        let counted = account.map_or_else(GrantState::default, |account| account.state);
        let all_devices = cap
            .tables()
            .last_at(Instant::now())
            .period_table
            .grants
            .by_all();
        GrantState {
            all_devices,
            ..counted
        }
    }

    /// Takes what these caps need at `now`. `grant` adds devices to a table.
    pub async fn renew(&self, caps: &[Arc<Cap>], now: Instant, grant: impl Fn(&PeriodTable, u64)) {
        let _calling = self.calling.lock().await;
        if self.is_closed.load(Ordering::Relaxed) {
            return;
        }

        for cap in caps {
            self.follow_demand(cap, now);
        }
        let held = Held::of(caps);
        let calls = held.iter().map(|held| self.renew_one(held, now, &grant));
        join_all(calls).await;
    }

    fn follow_demand(&self, cap: &Cap, now: Instant) {
        let state = cap.tables();
        let current = state.current();
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(cap.name().to_owned()).or_default();
        account
            .demand
            .measure(current.period.number, &current.table, now);
    }

    fn rate(&self, cap: &str) -> f64 {
        let accounts = self.accounts.lock();
        accounts
            .get(cap)
            .map_or(0.0, |account| account.demand.rate())
    }

    async fn renew_one(&self, held: &Held<'_>, now: Instant, grant: &impl Fn(&PeriodTable, u64)) {
        let Some(store) = &self.store else { return };
        let Held { cap, period_table } = held;
        let grants = &period_table.grants;
        let mut ledger = grants.ledger.lock().await;
        if now < ledger.next_call {
            return;
        }

        let table = &period_table.table;
        let need = Need {
            cap: held.total(),
            rest: table.limit().saturating_sub(table.count()),
            rate: self.rate(cap.name()),
            is_first: ledger.granted_at.is_none(),
            was_refused: grants.was_refused.load(Ordering::Relaxed),
            last_block: ledger.last_block,
            since_block: ledger.granted_at.map_or(Duration::ZERO, |at| now - at),
        };
        let is_due = ledger.polled_at.is_none_or(|at| now - at >= POLL_INTERVAL);
        let left = need.cap.saturating_sub(grants.by_all());
        if !(need.is_any(left) || is_due) && ledger.is_settled() {
            return;
        }

        grants.was_refused.store(false, Ordering::Relaxed);
        let owed = ledger.owed.cast_signed();
        let amount = self.call(held, &mut ledger, store, |left| {
            if owed > 0 {
                -owed
            } else {
                need.block(left).cast_signed()
            }
        });
        let amount = amount.await;
        grants.note_sum(held.total(), now);
        let Some(amount) = amount else {
            ledger.next_call = now + FAILURE_PAUSE;
            return;
        };

        ledger.polled_at = Some(now);
        if amount > 0 {
            ledger.last_block = amount.unsigned_abs();
            ledger.granted_at = Some(now);
            grant(period_table, amount.unsigned_abs());
            if ledger.quota.as_ref().is_some_and(Quota::is_first) {
                let begun = Begun {
                    cap: cap_name(cap),
                    folder: held.folder(),
                };
                self.begun.lock().push(begun);
                self.has_begun.notify_one();
            }
            return;
        }

        let is_all_granted = grants.by_all() >= held.total();
        if amount == 0 && is_all_granted {
            // The next call gives it back. Requests do not use it any more.
            ledger.owed += table.lower_limit(need.surplus());
            if ledger.owed == 0 {
                ledger.next_call = now + WAIT_INTERVAL;
            }
        }
    }

    /// Removes the records of periods that ended long before one that has begun, without end: these
    /// are thousands of requests, for which no call waits.
    pub async fn remove_ended(&self) {
        loop {
            self.has_begun.notified().await;
            let all_begun = std::mem::take(&mut *self.begun.lock());
            for begun in all_begun {
                if let Some(store) = &self.store {
                    remove_ended(store, &begun).await;
                }
            }
        }
    }

    /// Changes the quota of a table. Returns the amount, after subtracting what was given back from
    /// what is owed; `None` after a failure.
    async fn call(
        &self,
        held: &Held<'_>,
        ledger: &mut Ledger,
        store: &StoreWriter,
        decide: impl Fn(u64) -> i64,
    ) -> Option<i64> {
        let Held { cap, period_table } = held;
        let quota = ledger.quota.get_or_insert_with(|| {
            Quota::new(
                store.clone(),
                &cap_name(cap),
                &held.folder(),
                self.pod.clone(),
            )
        });
        let change = tokio::time::timeout(CALL_TIME, quota.change(held.total(), decide)).await;
        period_table
            .grants
            .by_all
            .store(quota.granted(), Ordering::Relaxed);

        let mut accounts = self.accounts.lock();
        let account = accounts.entry(cap.name().to_owned()).or_default();
        match change {
            Ok(Ok(amount)) => {
                account.answered(cap.name(), amount);
                if amount < 0 {
                    ledger.owed = ledger.owed.saturating_sub(amount.unsigned_abs());
                }
                Some(amount)
            }
            Ok(Err(error)) => {
                account.failed(cap.name(), error.cause(), || error_chain(&error));
                None
            }
            Err(_) => {
                account.failed(cap.name(), "timeout", || {
                    format!("no answer in {CALL_TIME:?}")
                });
                None
            }
        }
    }

    /// Takes no more, and gives back what these caps have left.
    pub async fn close(&self, caps: &[Arc<Cap>]) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.give_back(caps).await;
    }

    /// Closes the tables of these caps, which admit no further device, and gives back what they have
    /// left. Waits for calls in progress.
    async fn give_back(&self, caps: &[Arc<Cap>]) {
        let held = Held::of(caps);
        let all = async {
            let _calling = self.calling.lock().await;
            join_all(held.iter().map(|held| self.give_back_all(held))).await;
        };
        if tokio::time::timeout(CLOSE_TIME, all).await.is_err() {
            tracing::warn!("the rest of a cap was not given back in time: no pod uses it");
        }
    }

    async fn give_back_all(&self, held: &Held<'_>) {
        while !self.give_back_once(held).await {
            tokio::time::sleep(TICK).await;
        }
    }

    /// [`Self::close`] for caps that have ended, with one call per table. Returns the caps that are
    /// settled: nothing is left to give back, or it is too late.
    pub async fn settle(&self, caps: &[Arc<Cap>]) -> Vec<Arc<Cap>> {
        let _calling = self.calling.lock().await;
        let are_settled = join_all(caps.iter().map(|cap| self.settle_one(cap))).await;

        let mut settled = Vec::new();
        for (cap, is_settled) in caps.iter().zip(are_settled) {
            if is_settled {
                settled.push(Arc::clone(cap));
            }
        }
        settled
    }

    async fn settle_one(&self, cap: &Arc<Cap>) -> bool {
        let mut is_settled = true;
        for held in Held::of(std::slice::from_ref(cap)) {
            let is_over = held.period_table.period.end < clock::now();
            is_settled &= self.give_back_once(&held).await || is_over;
        }
        is_settled
    }

    /// Closes a table, and gives back what it has left. Returns whether nothing is left.
    async fn give_back_once(&self, held: &Held<'_>) -> bool {
        let Some(store) = &self.store else {
            return true;
        };
        let mut ledger = held.period_table.grants.ledger.lock().await;
        ledger.owed += held.period_table.table.close();
        if ledger.is_settled() {
            return true;
        }

        let owed = ledger.owed.cast_signed();
        let amount = self.call(held, &mut ledger, store, |_| -owed).await;
        // A block that was on its way.
        let block = amount.unwrap_or(0).max(0);
        ledger.owed += block.unsigned_abs();
        ledger.is_settled()
    }
}

impl Account {
    fn answered(&mut self, cap: &str, amount: i64) {
        if amount != 0 {
            self.state.created += 1;
        }
        if self.state.failing.take().is_some() {
            tracing::info!(cap, "the cap is granted again");
        }
    }

    fn failed(&mut self, cap: &str, cause: &'static str, error: impl Fn() -> String) {
        self.state.failed += 1;
        if self.state.failing.replace(cause).is_none() {
            let error = error();
            tracing::warn!(cap, error, "no grant: the cap goes on with what it has");
        }
    }
}

/// Removes the records of periods that ended long before one that has begun. Without the permission
/// they stay, until a rule of the bucket removes them.
async fn remove_ended(store: &StoreWriter, begun: &Begun) {
    let Begun { cap, folder } = begun;
    let removal = Quota::remove_ended(store, cap, folder, clock::now(), has_ended);
    let removed: Result<usize, String> = match tokio::time::timeout(REMOVAL_TIME, removal).await {
        Ok(removed) => removed.map_err(|error: StoreError| error_chain(&error)),
        Err(_) => Err(format!("no end in {REMOVAL_TIME:?}")),
    };
    if let Err(error) = removed {
        let cap = cap.as_str();
        tracing::debug!(cap, error, "records of ended periods were not removed");
    }
}

/// The configuration checked the name.
fn cap_name(cap: &Cap) -> AudienceName {
    let name = cap.name().parse();
    name.expect("names of caps are those of audiences")
}

/// Name of a period's folder: its unit, and its start in Unix time. Its end is not a part, as
/// versions may differ about the next change of a zone's clock.
fn folder_name(unit: PeriodUnit, period: Period) -> String {
    format!("{}-{}", unit.as_str(), unix_seconds(period.start))
}

/// Whether the period of a folder ended long ago.
fn has_ended(folder: &str, now: SystemTime) -> bool {
    let Some((unit, start)) = folder.split_once('-') else {
        return false;
    };
    // Changes of a zone's clock make longer ones of them.
    let longest = match unit {
        "hour" => 2 * 3600,
        "day" => 26 * 3600,
        _ => return false,
    };
    let start: Option<u64> = start.parse().ok();
    start.is_some_and(|start| start + longest + KEPT_SECONDS < unix_seconds(now))
}

fn unix_seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
