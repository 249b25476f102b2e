//! Catalog: the audiences, strategies and platforms that a pod serves, and their counters.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderMap;

use super::audience::Audience;
use super::caps::ServedCaps;
use super::experiments::ServedExperiments;
use super::served_strategy::ServedStrategy;
use crate::cap::Cap;
use crate::platform::{Access, Failure, IdCounts, Platform, Verdicts};
use crate::strategy::{
    Attributes, Decision, Experiment, Membership, Reason, Strategy, Tier, ValueEntry,
};
use crate::telemetry::{DecisionCounters, PlainCounter, RouteMetrics, Telemetry};
use rtad_core::device::DeviceKey;

/// Shared pointer to the catalog: requests load it, `sync` replaces it.
pub type Serving = ArcSwap<Catalog>;

/// Everything a pod serves.
#[derive(Debug)]
pub struct Catalog {
    audiences: Vec<Audience>,
    strategies: Arc<[ServedStrategy]>,
    caps: ServedCaps,
    /// Whether any strategy answers nothing.
    has_shadow: bool,
    /// Whether a strategy has values.
    pub(super) has_values: bool,
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
    /// Caps of the strategies, by index; the rest have none.
    pub caps: Vec<Option<Arc<Cap>>>,
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

/// A platform and its counters.
#[derive(Debug)]
pub struct ServedPlatform {
    /// The platform.
    pub platform: Arc<Platform>,
    /// Metrics of its requests.
    pub route: RouteMetrics,
    /// One per strategy of the catalog; `None` for those that the platform does not map.
    decisions: Vec<Option<DecisionCounters>>,
    failures: [PlainCounter; Failure::ALL.len()],
    /// Counters of its ids.
    pub(super) ids: IdCounts,
}

impl ServedPlatform {
    fn new(
        platform: Arc<Platform>,
        strategies: &[Strategy],
        caps: &[Option<Arc<Cap>>],
        telemetry: &Telemetry,
    ) -> Self {
        let mut decisions = vec![None; strategies.len()];
        for index in platform.strategies() {
            let (strategy, has_cap) = (&strategies[index], caps[index].is_some());
            decisions[index] = Some(telemetry.decisions(
                &platform.name,
                &strategy.name,
                strategy.is_shadow,
                |outcome, reason| strategy.can_decide(outcome, reason, has_cap),
            ));
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

    /// Counts a decision of a mapped strategy.
    #[inline]
    pub(super) fn count(&self, strategy: usize, decision: Decision) {
        if let Some(counters) = &self.decisions[strategy] {
            counters.count(decision);
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
            mut caps,
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
        caps.resize(strategies.len(), None);

        let served = |platform| ServedPlatform::new(platform, &strategies, &caps, telemetry);
        let platforms: Arc<[ServedPlatform]> = platforms.into_iter().map(served).collect();
        let has_api = api.is_served(&platforms);
        let served = |(index, strategy): (usize, Strategy)| {
            let has_cap = caps[index].is_some();
            ServedStrategy::new(strategy, &audiences, has_api, has_cap, telemetry)
        };
        let strategies = strategies.into_iter().enumerate().map(served).collect();

        Self {
            has_shadow,
            has_values,
            strategies,
            audiences,
            caps: ServedCaps::new(caps),
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

    /// The audiences, in the config's order.
    pub fn audiences(&self) -> &[Audience] {
        &self.audiences
    }

    /// The strategies, in the config's order.
    pub fn strategies(&self) -> impl ExactSizeIterator<Item = &Strategy> + Clone {
        self.strategies.iter().map(|served| &served.strategy)
    }

    /// The strategy at `index`.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[inline]
    pub fn strategy(&self, index: usize) -> &Strategy {
        &self.strategies[index].strategy
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
        let entries = || self.strategies().flat_map(|strategy| &strategy.values);
        self.audiences
            .iter()
            .enumerate()
            .map(move |(index, audience)| {
                let asks =
                    |entry: &ValueEntry| entry.audience == Some(index) && entry.asks_for_value();
                audience.has_no_values() && entries().any(asks)
            })
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

    /// Decides about a device with these keys by the strategy at `index`, and counts the decision,
    /// and the device under a cap. `at` is the time of the request. The device is a member if any
    /// key is. One lookup per key and audience, no allocation.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(
        &self,
        index: usize,
        keys: &[DeviceKey],
        attributes: &dyn Attributes,
        at: Instant,
    ) -> Decision {
        let decide = || self.decide_uncounted(index, keys, attributes);
        let decision = self.caps.admit(index, keys, at, decide);
        let served = &self.strategies[index];
        served.count(decision);
        served.count_value(decision);
        decision
    }

    /// The strategy at `index`, with its counters.
    #[inline]
    pub(super) fn served(&self, index: usize) -> &ServedStrategy {
        &self.strategies[index]
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
    /// request may differ. Outside its schedule, only that matters.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn changes_in(&self, index: usize, decision: Decision, at: Instant) -> Option<Duration> {
        let ServedStrategy {
            strategy,
            is_per_request,
            ..
        } = &self.strategies[index];
        let schedule = || strategy.schedule.as_ref()?.changes_in(at);
        match decision.reason {
            Reason::NotScheduled => schedule(),
            _ if *is_per_request => Some(Duration::ZERO),
            _ => self
                .caps
                .ends_in(index, at)
                .into_iter()
                .chain(schedule())
                .min(),
        }
    }

    /// Removes the verdicts that no answer contains: those of strategies in shadow.
    #[inline]
    pub fn remove_shadow(&self, verdicts: &mut Verdicts) {
        if self.has_shadow {
            verdicts.retain(|verdict| !self.strategy(verdict.strategy).is_shadow);
        }
    }

    /// [`Self::decide`] without its cap and without counting.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide_uncounted(
        &self,
        index: usize,
        keys: &[DeviceKey],
        attributes: &dyn Attributes,
    ) -> Decision {
        let strategy = self.strategy(index);
        if keys.is_empty() {
            strategy.without_device()
        } else {
            let audience = |index: usize| &self.audiences[index];
            let membership = |index| audience(index).membership(keys);
            strategy.decide(attributes, membership, |index| audience(index).tier(keys))
        }
    }

    /// The membership of a device in the audience at an index. If the keys are not all of the
    /// device's, another id may be a member, so an audience with none of them is unavailable.
    ///
    /// # Panics
    ///
    /// If there is no audience at `index`.
    pub fn membership(&self, index: usize, keys: &[DeviceKey], are_all: bool) -> Membership {
        match self.audiences[index].membership(keys) {
            Membership::NotMember if !are_all => Membership::Unavailable,
            membership => membership,
        }
    }

    /// Decides about a device with further ids that were not read, without counting. An unread id
    /// may be a member, or have a greater value: an audience with none of the keys is treated as
    /// unavailable, and values are unknown.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[cold]
    pub fn decide_incomplete(
        &self,
        index: usize,
        keys: &[DeviceKey],
        attributes: &dyn Attributes,
    ) -> Decision {
        let membership = |audience| self.membership(audience, keys, false);
        self.strategy(index)
            .decide(attributes, membership, |_| Tier::Unknown)
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
            strategies: Arc::clone(&self.strategies),
            caps: self.caps.renewed(),
            has_shadow: self.has_shadow,
            has_values: self.has_values,
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
