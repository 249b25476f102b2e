//! Catalog: every audience's snapshot, every strategy and every platform that the pod serves, and
//! their counters.
//!
//! A [`Catalog`] never changes: `sync` replaces it as a whole, in one [`arc_swap::ArcSwap`]. A
//! request loads it once, so it sees one consistent state.
//!
//! | file | job |
//! |---|---|
//! | `decide` | decisions about a device in steps, from ids to verdicts |
//! | `strategies` | counters, experiments and caps of the strategies |

mod decide;
mod strategies;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use http::HeaderMap;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{AudienceName, Snapshot};
use tokio::time::Instant;

pub use decide::{IdResult, RequestKeys};
pub use strategies::{ServedCaps, ServedExperiments};

use crate::cap::Cap;
use crate::platform::{Access, Failure, IdCounts, Platform, Verdicts};
use crate::strategy::{Decision, Experiment, Facts, Membership, Reason, Rules, Strategy, Tier};
use crate::telemetry::{PlainCounter, RouteMetrics, Telemetry};
use strategies::{NamedLeaf, ServedStrategy, StrategyCounters};

/// Shared pointer to the catalog: requests load it, `sync` replaces it.
pub type Serving = ArcSwap<Catalog>;

/// Everything a pod serves.
#[derive(Debug)]
pub struct Catalog {
    audiences: Vec<Audience>,
    rules: Arc<Rules>,
    strategies: Arc<[ServedStrategy]>,
    /// Whether a strategy reads the values of an audience's members, by index of the audience.
    reads_tiers: Arc<[bool]>,
    /// Whether a strategy reads attributes.
    reads_attributes: bool,
    caps: ServedCaps,
    /// Whether a strategy has a cap.
    has_caps: bool,
    /// Whether a strategy has a cap, a schedule, or answers that differ between requests of a
    /// device: then verdicts are admitted, and hold for a time.
    has_caps_or_times: bool,
    /// Whether any strategy answers nothing.
    has_shadow: bool,
    /// Whether a strategy has values.
    has_values: bool,
    platforms: Arc<[ServedPlatform]>,
    experiments: Arc<ServedExperiments>,
    config_id: Arc<str>,
    api: ApiAccess,
}

/// The parts of a catalog.
#[derive(Debug, Default)]
pub struct CatalogParts {
    /// Audiences, loaded or not.
    pub audiences: Vec<Audience>,
    /// Strategies, which name audiences and experiments by index.
    pub strategies: Vec<Strategy>,
    /// Experiments.
    pub experiments: Vec<Experiment>,
    /// Caps, which strategies name by index.
    pub caps: Vec<Arc<Cap>>,
    /// Platforms, which name strategies by index.
    pub platforms: Vec<Arc<Platform>>,
    /// The id of the configuration, for logs.
    pub config_id: String,
    /// Access to the `/v1` routes.
    pub api: ApiAccess,
}

/// Access control of the `/v1` routes on the decision port.
#[derive(Debug, Clone, Default)]
pub struct ApiAccess {
    /// The routes are served even if platforms are configured.
    pub is_public: bool,
    /// The tokens that admit a request.
    pub tokens: Access,
}

impl ApiAccess {
    /// Whether the routes are served beside these platforms.
    fn is_served(&self, platforms: &[ServedPlatform]) -> bool {
        self.is_public || !self.tokens.is_open() || platforms.is_empty()
    }
}

/// One audience of the catalog.
#[derive(Debug, Clone)]
pub struct Audience {
    /// Its name.
    pub name: AudienceName,
    /// Whether the pod is not ready without it.
    pub required: bool,
    /// Maximum age; an older snapshot counts as unavailable.
    pub max_age: Option<Duration>,
    /// Its last verified snapshot.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether the snapshot is older than `max_age`, or has expired. Kept by `sync`, so that no
    /// request reads the clock.
    pub is_stale: bool,
}

impl Audience {
    /// An audience that has not been loaded yet.
    pub const fn unloaded(name: AudienceName, required: bool, max_age: Option<Duration>) -> Self {
        Self {
            name,
            required,
            max_age,
            snapshot: None,
            is_stale: false,
        }
    }

    /// The snapshot, unless there is none or it is stale.
    #[inline]
    pub fn available(&self) -> Option<&Snapshot> {
        if self.is_stale {
            None
        } else {
            self.snapshot.as_deref()
        }
    }

    /// Membership of a device, by any of its keys.
    #[inline]
    pub fn membership(&self, keys: &[DeviceKey]) -> Membership {
        match self.available() {
            Some(snapshot) if snapshot.contains_any(keys) => Membership::Member,
            Some(_) => Membership::NotMember,
            None => Membership::Unavailable,
        }
    }

    /// The value of a member: the greatest of its keys.
    pub fn tier(&self, keys: &[DeviceKey]) -> Tier {
        let Some(snapshot) = self.available() else {
            return Tier::Unknown;
        };
        snapshot.value(keys).map_or(Tier::None, Tier::Value)
    }

    /// Whether a snapshot is served that was built without values, and no delta has any.
    pub fn has_no_values(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| {
            snapshot.manifest().filter().value_bits() == 0
                && !snapshot
                    .overlay()
                    .deltas()
                    .any(|delta| delta.entry().has_values)
        })
    }

    /// Whether the snapshot has expired at `now`, in seconds since 1970.
    pub fn is_expired(&self, now_unix_seconds: u64) -> bool {
        self.snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.manifest().is_expired(now_unix_seconds))
    }

    /// The snapshot's age at `now`, in seconds since 1970; 0 if it is from the future.
    pub fn age_seconds(&self, now_unix_seconds: u64) -> Option<u64> {
        let snapshot = self.snapshot.as_ref()?;
        Some(now_unix_seconds.saturating_sub(snapshot.manifest().created_unix_seconds()))
    }
}

/// A platform and its counters.
#[derive(Debug)]
pub struct ServedPlatform {
    /// The platform.
    pub platform: Arc<Platform>,
    /// Metrics of its requests.
    pub route: RouteMetrics,
    /// One per strategy of the catalog; `None` for those that the platform does not map.
    decisions: Vec<Option<StrategyCounters>>,
    failures: [PlainCounter; Failure::ALL.len()],
    /// Counters of its ids.
    ids: IdCounts,
}

impl ServedPlatform {
    fn new(
        platform: Arc<Platform>,
        strategies: &[Strategy],
        leaves: &[Vec<NamedLeaf>],
        telemetry: &Telemetry,
    ) -> Self {
        let mut decisions = Vec::new();
        decisions.resize_with(strategies.len(), || None);
        for index in platform.strategies() {
            let strategy = &strategies[index];
            let leaves = &leaves[index];
            let counters = StrategyCounters::new(&platform.name, strategy, leaves, true, telemetry);
            decisions[index] = Some(counters);
        }

        let failures =
            telemetry.platform_failures(&platform.name, Failure::ALL.map(Failure::as_str));

        Self {
            route: telemetry.platform_route(&platform.name),
            ids: IdCounts::new(telemetry, &platform.name),
            platform,
            decisions,
            failures,
        }
    }

    /// Counts a decision of a mapped strategy, which the leaf of this index makes.
    #[inline]
    fn count(&self, strategy: usize, decision: Decision, leaf: Option<usize>) {
        if let Some(counters) = &self.decisions[strategy] {
            counters.count(decision, leaf);
        }
    }

    /// Counts a request whose answer is not based on its ids.
    pub fn count_failure(&self, failure: Failure) {
        self.failures[failure as usize].increment();
    }
}

impl Catalog {
    /// A catalog of these parts, and its counters.
    ///
    /// # Panics
    ///
    /// If an index is out of range. Config validation rejects such a config first.
    pub fn new(parts: CatalogParts, telemetry: &Telemetry) -> Self {
        let CatalogParts {
            audiences,
            strategies,
            experiments,
            caps,
            platforms,
            config_id,
            api,
        } = parts;

        let indexes = strategies.iter().flat_map(Strategy::audiences);
        assert!(
            indexes.max().is_none_or(|index| index < audiences.len()),
            "a strategy refers to a missing audience"
        );
        let indexes = platforms.iter().flat_map(|platform| platform.strategies());
        assert!(
            indexes.max().is_none_or(|index| index < strategies.len()),
            "a platform refers to a missing strategy"
        );

        let has_shadow = strategies.iter().any(|strategy| strategy.is_shadow);
        let has_values = strategies
            .iter()
            .any(|strategy| !strategy.values.is_empty());
        let experiments = ServedExperiments::new(experiments, &strategies, telemetry);

        let mut leaves = Vec::new();
        for strategy in &strategies {
            leaves.push(NamedLeaf::all(strategy, &audiences, experiments.list()));
        }
        let platforms: Arc<[ServedPlatform]> = platforms
            .into_iter()
            .map(|platform| ServedPlatform::new(platform, &strategies, &leaves, telemetry))
            .collect();
        let has_api = api.is_served(&platforms);

        let mut served = Vec::new();
        let mut reads_tiers = vec![false; audiences.len()];
        let mut reads_attributes = false;
        for (strategy, leaves) in strategies.iter().zip(leaves) {
            served.push(ServedStrategy::new(
                strategy,
                &audiences,
                experiments.list(),
                leaves,
                has_api,
                telemetry,
            ));
            for entry in &strategy.values {
                if let Some(audience) = entry.audience {
                    reads_tiers[audience] |= entry.tiers.is_some();
                }
            }
            if let Some(rule) = &strategy.rule {
                reads_attributes |= !rule.attributes().is_empty();
            }
        }

        let has_caps = strategies.iter().any(|strategy| strategy.cap.is_some());
        let has_caps_or_times = has_caps
            || strategies
                .iter()
                .any(|strategy| strategy.schedule.is_some() || strategy.is_per_request());

        Self {
            has_shadow,
            has_values,
            has_caps,
            has_caps_or_times,
            caps: ServedCaps::new(caps, &strategies),
            rules: Arc::new(Rules::new(strategies)),
            strategies: served.into(),
            reads_tiers: reads_tiers.into(),
            reads_attributes,
            audiences,
            platforms,
            experiments: Arc::new(experiments),
            config_id: config_id.into(),
            api,
        }
    }

    /// The id of the configuration.
    pub fn config_id(&self) -> &str {
        &self.config_id
    }

    /// Returns true if the decision port serves the `/v1` routes: they are public, need a token, or
    /// no platform is configured.
    pub fn has_api(&self) -> bool {
        self.api.is_served(&self.platforms)
    }

    /// Returns true if these headers give access to the `/v1` routes.
    #[inline]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        self.api.tokens.admits(headers)
    }

    /// The tokens of the `/v1` routes.
    pub fn api_tokens(&self) -> &Access {
        &self.api.tokens
    }

    /// The audiences, in the config's order.
    pub fn audiences(&self) -> &[Audience] {
        &self.audiences
    }

    /// The rules of the strategies.
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The strategies, in the config's order.
    pub fn strategies(&self) -> impl ExactSizeIterator<Item = &Strategy> + Clone {
        self.rules.strategies().iter()
    }

    /// The strategy at `index`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub fn strategy(&self, index: usize) -> &Strategy {
        &self.rules.strategies()[index]
    }

    /// Finds an audience by name. A linear search: with few audiences, faster than hashing.
    #[inline]
    pub fn audience(&self, name: &str) -> Option<&Audience> {
        self.audiences
            .iter()
            .find(|audience| audience.name.as_str() == name)
    }

    /// Whether strategies ask for values of the members of an audience that is served without any,
    /// for each audience.
    pub fn are_tiers_missing(&self) -> impl Iterator<Item = bool> {
        self.audiences.iter().enumerate().map(|(index, audience)| {
            // The second question is about every strategy, so the first one stands before it.
            audience.has_no_values() && self.asks_for_value(index)
        })
    }

    /// Whether a strategy asks for the values of the audience's members.
    fn asks_for_value(&self, audience: usize) -> bool {
        self.strategies()
            .flat_map(|strategy| &strategy.values)
            .any(|entry| entry.audience == Some(audience) && entry.asks_for_value())
    }

    /// Finds the index of a strategy by name.
    #[inline]
    pub fn strategy_index(&self, name: &str) -> Option<usize> {
        self.strategies().position(|strategy| strategy.name == name)
    }

    /// The platforms, in the config's order.
    pub fn platforms(&self) -> &[ServedPlatform] {
        &self.platforms
    }

    /// Finds a platform by name.
    pub fn platform_named(&self, name: &str) -> Option<&ServedPlatform> {
        self.platforms
            .iter()
            .find(|served| served.platform.name == name)
    }

    /// Finds a platform by the path of its route. A linear search: a pod has few platforms.
    #[inline]
    pub fn platform_at(&self, path: &str) -> Option<&ServedPlatform> {
        self.platforms
            .iter()
            .find(|served| served.platform.path == path)
    }

    /// Whether a strategy reads the values of members of the audience at an index.
    #[inline]
    fn has_tiers(&self, audience: usize) -> bool {
        self.reads_tiers[audience]
    }

    /// Counters and properties of the strategy at `index`.
    #[inline]
    fn served(&self, index: usize) -> &ServedStrategy {
        &self.strategies[index]
    }

    /// Index, among the leaves of the strategy at `index`, of the one that makes a no-bid. `None`
    /// of a bid, and of a no-bid that no leaf makes.
    #[inline]
    fn refusing_leaf(&self, index: usize, decision: Decision, facts: &Facts<'_>) -> Option<usize> {
        if decision.is_bid() {
            return None;
        }
        let leaf = self.strategy(index).deciding(decision, facts)?;
        let mut leaves = self.served(index).leaves.iter();
        leaves.position(|named| named.leaf == leaf)
    }

    /// The name of the condition that makes a no-bid of the strategy at `index`.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    pub fn refusing_condition(
        &self,
        index: usize,
        decision: Decision,
        facts: &Facts<'_>,
    ) -> Option<&str> {
        let leaf = self.refusing_leaf(index, decision, facts)?;
        Some(&self.served(index).leaves[leaf].name)
    }

    /// The strategies' caps.
    #[inline]
    pub fn caps(&self) -> &ServedCaps {
        &self.caps
    }

    /// The experiments.
    #[inline]
    pub fn experiments(&self) -> &ServedExperiments {
        &self.experiments
    }

    /// Time from `at` until the strategy may decide otherwise than by this decision about the same
    /// device: its cap counts anew, or its schedule changes. `None` without both, zero if another
    /// request may differ. Outside its schedule, only that matters. The schedule is that of `time`
    /// if one is given, in place of now.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    fn changes_in(
        &self,
        index: usize,
        decision: Decision,
        at: Instant,
        time: Option<SystemTime>,
    ) -> Option<Duration> {
        let is_of_schedule = decision.reason == Reason::NotScheduled;
        if self.strategies[index].is_per_request && !is_of_schedule {
            return Some(Duration::ZERO);
        }

        let schedule_change = match (&self.strategy(index).schedule, time) {
            (Some(schedule), None) => schedule.changes_in(!is_of_schedule, at),
            (Some(schedule), Some(time)) => {
                let change = schedule.next_change(time);
                change.and_then(|change| change.duration_since(time).ok())
            }
            (None, _) => None,
        };
        if is_of_schedule {
            return schedule_change;
        }

        let cap_change = self.caps.changes_in(index, decision, at);
        cap_change.into_iter().chain(schedule_change).min()
    }

    /// Removes the verdicts that no answer contains: those of strategies in shadow.
    #[inline]
    pub fn remove_shadow(&self, verdicts: &mut Verdicts) {
        if self.has_shadow {
            verdicts.retain(|verdict| !self.strategy(verdict.strategy).is_shadow);
        }
    }

    /// A copy of the catalog with some audiences replaced, and the current tables of the caps.
    pub fn with_audiences(&self, replace: impl Fn(&Audience) -> Option<Audience>) -> Self {
        let audiences = self
            .audiences
            .iter()
            .map(|audience| replace(audience).unwrap_or_else(|| audience.clone()))
            .collect();

        Self {
            audiences,
            rules: Arc::clone(&self.rules),
            strategies: Arc::clone(&self.strategies),
            reads_tiers: Arc::clone(&self.reads_tiers),
            reads_attributes: self.reads_attributes,
            caps: self.caps.renewed(),
            has_shadow: self.has_shadow,
            has_values: self.has_values,
            has_caps: self.has_caps,
            has_caps_or_times: self.has_caps_or_times,
            platforms: Arc::clone(&self.platforms),
            experiments: Arc::clone(&self.experiments),
            config_id: Arc::clone(&self.config_id),
            api: self.api.clone(),
        }
    }

    /// Whether every required audience has a snapshot.
    pub fn is_complete(&self) -> bool {
        self.audiences
            .iter()
            .all(|audience| !audience.required || audience.snapshot.is_some())
    }
}
