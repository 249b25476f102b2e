//! What is being served at this moment: every audience's snapshot, every strategy over them, every platform that asks.
//!
//! A [`Catalog`] never changes. It is replaced as a whole, by one store to one [`ArcSwap`]; a request loads it once and so sees
//! one generation of everything, the rules included. Only `sync` writes it.

mod live;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::Counter;

pub use live::{Capacity, Live, RequestKeys};

use crate::platform::{Failure, Platform};
use crate::strategy::{Decision, Membership, Strategy};
use crate::telemetry::{DecisionCounters, RouteMetrics, Telemetry};
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Snapshot};

/// The pointer that requests load and `sync` stores.
pub type Serving = ArcSwap<Catalog>;

/// Everything a pod serves.
#[derive(Debug)]
pub struct Catalog {
    audiences: Vec<Audience>,
    strategies: Vec<Strategy>,
    /// Decisions asked for by `/v1/decide`, one per strategy: made with the catalog, so that no request looks a counter up.
    decisions: Vec<DecisionCounters>,
    platforms: Arc<[ServedPlatform]>,
}

/// A platform and its counters.
#[derive(Debug)]
pub struct ServedPlatform {
    /// The platform.
    pub platform: Arc<Platform>,
    /// Of its requests.
    pub route: RouteMetrics,
    /// One per strategy of the catalog; none for those that it cannot ask about.
    decisions: Vec<Option<DecisionCounters>>,
    failures: [Counter; Failure::ALL.len()],
}

impl ServedPlatform {
    fn new(platform: Arc<Platform>, strategies: &[Strategy], telemetry: &Telemetry) -> Self {
        let mut decisions = vec![None; strategies.len()];
        for place in platform.strategies() {
            decisions[place] = Some(telemetry.decisions(&platform.name, &strategies[place].name));
        }
        let failures =
            telemetry.platform_failures(&platform.name, Failure::ALL.map(Failure::as_str));
        Self { route: telemetry.platform_route(&platform.name), platform, decisions, failures }
    }

    /// Counts a request that is not answered by its ids.
    pub fn count_failure(&self, failure: Failure) {
        self.failures[failure as usize].increment(1);
    }
}

/// One audience of the catalog.
#[derive(Debug, Clone)]
pub struct Audience {
    /// Its name.
    pub name: AudienceName,
    /// Whether the pod is not ready without it.
    pub required: bool,
    /// Older than this counts as unavailable.
    pub max_age: Option<Duration>,
    /// Its snapshot, once one was verified.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether the snapshot is older than `max_age`, or has expired: kept by `sync`, so that no request needs a clock.
    pub is_stale: bool,
}

impl Audience {
    /// An audience that has not been loaded yet.
    pub const fn unloaded(name: AudienceName, required: bool, max_age: Option<Duration>) -> Self {
        Self { name, required, max_age, snapshot: None, is_stale: false }
    }

    /// The snapshot, if there is one that is not too old to answer from.
    #[inline]
    pub fn available(&self) -> Option<&Snapshot> {
        if self.is_stale { None } else { self.snapshot.as_deref() }
    }

    /// Whether any of a device's keys is in it.
    #[inline]
    pub fn membership(&self, keys: &[DeviceKey]) -> Membership {
        match self.available() {
            Some(snapshot) if snapshot.contains_any(keys) => Membership::Member,
            Some(_) => Membership::NotMember,
            None => Membership::Unavailable,
        }
    }

    /// Whether the snapshot has expired at `now`, in seconds since 1970.
    pub fn is_expired(&self, now_unix_seconds: u64) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.manifest().is_expired(now_unix_seconds))
    }

    /// The snapshot's age at `now`, in seconds since 1970; 0 if it is of the future.
    pub fn age_seconds(&self, now_unix_seconds: u64) -> Option<u64> {
        let snapshot = self.snapshot.as_ref()?;
        Some(now_unix_seconds.saturating_sub(snapshot.manifest().created_unix_seconds()))
    }
}

impl Catalog {
    /// A catalog of these audiences, of strategies that name them by their places, and of platforms that name the strategies so.
    ///
    /// # Panics
    ///
    /// If a place is named that is not there: the config's checks let no such name through.
    pub fn new(
        audiences: Vec<Audience>,
        strategies: Vec<Strategy>,
        platforms: Vec<Arc<Platform>>,
        telemetry: &Telemetry,
    ) -> Self {
        let named =
            strategies.iter().flat_map(|strategy| strategy.exclude.iter().chain(&strategy.include));
        assert!(
            named.max().is_none_or(|place| *place < audiences.len()),
            "strategies name existing audiences"
        );
        let named = platforms.iter().flat_map(|platform| platform.strategies());
        assert!(
            named.max().is_none_or(|place| place < strategies.len()),
            "platforms name existing strategies"
        );
        let counters = |strategy: &Strategy| telemetry.decisions("api", &strategy.name);
        let decisions = strategies.iter().map(counters).collect();
        let served = |platform| ServedPlatform::new(platform, &strategies, telemetry);
        let platforms = platforms.into_iter().map(served).collect();
        Self { audiences, strategies, decisions, platforms }
    }

    /// The audiences, in the config's order.
    pub fn audiences(&self) -> &[Audience] {
        &self.audiences
    }

    /// The strategies, in the config's order.
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// An audience by name. A pod has a handful: looking at each is faster than hashing.
    #[inline]
    pub fn audience(&self, name: &str) -> Option<&Audience> {
        self.audiences.iter().find(|audience| audience.name.as_str() == name)
    }

    /// A strategy's place by name.
    #[inline]
    pub fn strategy_index(&self, name: &str) -> Option<usize> {
        self.strategies.iter().position(|strategy| strategy.name == name)
    }

    /// The platforms, in the config's order.
    pub fn platforms(&self) -> &[ServedPlatform] {
        &self.platforms
    }

    /// The platform of that name.
    pub fn platform_named(&self, name: &str) -> Option<&ServedPlatform> {
        self.platforms.iter().find(|served| served.platform.name == name)
    }

    /// The platform that asks at a path. A pod has a handful.
    #[inline]
    pub fn platform_at(&self, path: &str) -> Option<&ServedPlatform> {
        self.platforms.iter().find(|served| served.platform.path == path)
    }

    /// What the strategy at `place` decides about a device with these keys, counted: any key a member makes the device a
    /// member. One look-up per key and audience, no allocation.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `place`.
    #[inline]
    pub fn decide(&self, place: usize, keys: &[DeviceKey]) -> Decision {
        let decision = self.decide_uncounted(place, keys);
        self.decisions[place].count(decision);
        decision
    }

    /// The same, not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `place`.
    #[inline]
    pub fn decide_uncounted(&self, place: usize, keys: &[DeviceKey]) -> Decision {
        let strategy = &self.strategies[place];
        if keys.is_empty() {
            strategy.without_device()
        } else {
            strategy.decide(|place| self.audiences[place].membership(keys))
        }
    }

    /// The answer of the strategy at `place` under overload, counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `place`.
    pub fn shed(&self, place: usize) -> Decision {
        let decision = self.strategies[place].when_unavailable();
        self.decisions[place].count(decision);
        decision
    }

    /// The same catalog with some audiences replaced: how a new snapshot, or one grown stale, comes to be served.
    pub fn with_audiences(&self, replace: impl Fn(&Audience) -> Option<Audience>) -> Self {
        let audiences = self
            .audiences
            .iter()
            .map(|audience| replace(audience).unwrap_or_else(|| audience.clone()))
            .collect();
        Self {
            audiences,
            strategies: self.strategies.clone(),
            decisions: self.decisions.clone(),
            platforms: Arc::clone(&self.platforms),
        }
    }

    /// Whether every required audience has a snapshot.
    pub fn is_complete(&self) -> bool {
        self.audiences.iter().all(|audience| !audience.required || audience.snapshot.is_some())
    }
}
