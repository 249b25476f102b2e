//! The caps of a pod: kept over reloads, and served by a background task.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rtad_core::clock;
use rtad_store::write::StoreWriter;
use tokio::time::Instant;

use super::demand::TICK;
use super::grants::{FAILURE_PAUSE, GrantState, Granter};
use super::{Cap, PeriodTable};
use crate::config::CapConfig;

/// Time between two reads of the clock.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// All caps of a pod.
#[derive(Debug, Default)]
pub struct Caps {
    served: Mutex<Vec<Arc<Cap>>>,
    /// Caps that ended with a reload, until no request uses them: what they have left is then given
    /// back.
    retired: Mutex<Vec<Arc<Cap>>>,
    granter: Granter,
}

impl Caps {
    /// The caps of a pod with this name, granted by a store; without one, nothing is granted.
    pub fn granted_by(store: Option<StoreWriter>, pod: String) -> Self {
        Self {
            granter: Granter::new(store, pod),
            ..Self::default()
        }
    }

    /// The caps of these configurations. A cap that is served with the same periods keeps its
    /// counts. Allocates their tables. Call from one thread.
    pub fn serve(&self, configs: &[CapConfig]) -> Vec<Arc<Cap>> {
        let wall = clock::now();
        let now = Instant::now();
        let old = self.served.lock().clone();
        let mut caps = Vec::new();
        for config in configs {
            caps.push(match going_on(&old, config) {
                Some(old) => Arc::clone(old),
                None => Arc::new(Cap::new(config, wall, now)),
            });
        }

        // Nothing is granted to a cap while it changes.
        let mut served = self.served.lock();
        for (cap, config) in caps.iter_mut().zip(configs) {
            if cap.config() != config {
                *cap = Arc::new(cap.changed(config, wall, now));
            }
        }
        served.clone_from(&caps);
        drop(served);

        let mut retired = self.retired.lock();
        for old in &old {
            let mut configs = configs.iter();
            if !configs.any(|config| goes_on(old, config)) {
                retired.push(Arc::clone(old));
            }
        }
        caps
    }

    /// State of the grants of a cap.
    pub fn grants(&self, cap: &Cap) -> GrantState {
        self.granter.state(cap)
    }

    /// Adds granted devices to a table. A reload during the call may have replaced its cap, or ended
    /// it: the retired cap then gives them back.
    pub(super) fn grant(&self, period_table: &PeriodTable, devices: u64) {
        let served = self.served.lock();
        if !served.iter().any(|cap| cap.grant(period_table, devices)) {
            period_table.table.raise_limit(devices);
        }
    }

    /// Takes no more. If no requests are left, gives back what was granted and not used.
    pub async fn close(&self, is_idle: bool) {
        let mut caps = Vec::new();
        if is_idle {
            caps.extend(self.served.lock().iter().cloned());
            caps.extend(self.retired.lock().iter().cloned());
        }
        self.granter.close(&caps).await;
    }

    /// Follows the clock, and takes and gives back parts of the caps, without end.
    pub async fn run(&self) {
        let grants = async {
            let mut next_end = Instant::now();
            loop {
                self.renew(Instant::now()).await;
                if Instant::now() >= next_end && !self.end_retired().await {
                    next_end = Instant::now() + FAILURE_PAUSE;
                }
                tokio::time::sleep(TICK).await;
            }
        };
        let clock = async {
            loop {
                tokio::time::sleep(FOLLOW_INTERVAL).await;
                self.follow(clock::now(), Instant::now());
            }
        };
        tokio::join!(grants, clock, self.granter.remove_ended());
    }

    /// Takes what the caps need at `now`.
    pub(super) async fn renew(&self, now: Instant) {
        let served = self.served.lock().clone();
        let grant = |period_table: &PeriodTable, devices| self.grant(period_table, devices);
        self.granter.renew(&served, now, grant).await;
    }

    /// Follows the clock.
    pub(super) fn follow(&self, wall: SystemTime, now: Instant) {
        let served = self.served.lock().clone();
        for cap in served {
            cap.follow(wall, now);
        }
    }

    /// Ends the retired caps that no catalog serves any more. Returns false if one of them could
    /// not give back what it has left: it stays for the next call.
    pub(super) async fn end_retired(&self) -> bool {
        let mut retired = self.retired.lock().clone();
        // One reference is here, and one in the list.
        retired.retain(|cap| Arc::strong_count(cap) == 2);
        if retired.is_empty() {
            return true;
        }

        let settled = self.granter.settle(&retired).await;
        let has_ended = |cap: &Arc<Cap>| settled.iter().any(|ended| Arc::ptr_eq(ended, cap));
        self.retired.lock().retain(|cap| !has_ended(cap));
        settled.len() == retired.len()
    }
}

/// The cap that a configuration goes on with.
fn going_on<'c>(caps: &'c [Arc<Cap>], config: &CapConfig) -> Option<&'c Arc<Cap>> {
    caps.iter().find(|cap| goes_on(cap, config))
}

fn goes_on(cap: &Cap, config: &CapConfig) -> bool {
    cap.name() == config.name && cap.has_periods_of(config)
}
