//! The catalog itself: audiences, strategies, platforms, and their counters.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;
use metrics::Counter;

use super::audience::Audience;
use crate::platform::{Access, Failure, Platform};
use crate::strategy::{Decision, Membership, Strategy};
use crate::telemetry::{DecisionCounters, RouteMetrics, Telemetry};
use rtad_core::device::DeviceKey;

/// The pointer that requests load and `sync` stores.
pub type Serving = ArcSwap<Catalog>;

/// Everything a pod serves.
#[derive(Debug)]
pub struct Catalog {
    audiences: Vec<Audience>,
    strategies: Vec<Strategy>,
    /// Counters of `/v1/decide`, one per strategy: created here, so that no request looks one up.
    decisions: Vec<DecisionCounters>,
    platforms: Arc<[ServedPlatform]>,
    api: ApiAccess,
}

/// Access to rtad's own routes.
#[derive(Debug, Clone, Default)]
pub struct ApiAccess {
    /// Open on the decision port even with platforms configured.
    pub is_public: bool,
    /// The tokens that admit a request.
    pub tokens: Access,
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
    failures: [Counter; Failure::ALL.len()],
}

impl ServedPlatform {
    fn new(platform: Arc<Platform>, strategies: &[Strategy], telemetry: &Telemetry) -> Self {
        let mut decisions = vec![None; strategies.len()];
        for index in platform.strategies() {
            decisions[index] = Some(telemetry.decisions(&platform.name, &strategies[index].name));
        }
        let failures =
            telemetry.platform_failures(&platform.name, Failure::ALL.map(Failure::as_str));
        Self { route: telemetry.platform_route(&platform.name), platform, decisions, failures }
    }

    /// Counts a decision of a mapped strategy.
    #[inline]
    pub(super) fn count(&self, strategy: usize, decision: Decision) {
        if let Some(counters) = &self.decisions[strategy] {
            counters.count(decision);
        }
    }

    /// Counts a request that is not answered by its ids.
    pub fn count_failure(&self, failure: Failure) {
        self.failures[failure as usize].increment(1);
    }
}

impl Catalog {
    /// A catalog. Strategies name audiences by index, platforms name strategies by index.
    ///
    /// # Panics
    ///
    /// If an index is out of range; the config's checks exclude that.
    pub fn new(
        audiences: Vec<Audience>,
        strategies: Vec<Strategy>,
        platforms: Vec<Arc<Platform>>,
        telemetry: &Telemetry,
    ) -> Self {
        let named =
            strategies.iter().flat_map(|strategy| strategy.exclude.iter().chain(&strategy.include));
        assert!(
            named.max().is_none_or(|index| *index < audiences.len()),
            "strategies name existing audiences"
        );
        let named = platforms.iter().flat_map(|platform| platform.strategies());
        assert!(
            named.max().is_none_or(|index| index < strategies.len()),
            "platforms name existing strategies"
        );
        let counters = |strategy: &Strategy| telemetry.decisions("api", &strategy.name);
        let decisions = strategies.iter().map(counters).collect();
        let served = |platform| ServedPlatform::new(platform, &strategies, telemetry);
        let platforms = platforms.into_iter().map(served).collect();
        Self { audiences, strategies, decisions, platforms, api: ApiAccess::default() }
    }

    /// The same, with this access to rtad's own routes.
    #[must_use]
    pub fn with_api(self, api: ApiAccess) -> Self {
        Self { api, ..self }
    }

    /// Whether the decision port has rtad's own routes: if they are public or need a token, or
    /// without platforms.
    pub fn has_api(&self) -> bool {
        self.api.is_public || !self.api.tokens.is_open() || self.platforms.is_empty()
    }

    /// Whether rtad's own routes admit a request with these headers.
    #[inline]
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        self.api.tokens.admits(headers)
    }

    /// The audiences, in the config's order.
    pub fn audiences(&self) -> &[Audience] {
        &self.audiences
    }

    /// The strategies, in the config's order.
    pub fn strategies(&self) -> &[Strategy] {
        &self.strategies
    }

    /// An audience by name. Linear: for a handful, faster than hashing.
    #[inline]
    pub fn audience(&self, name: &str) -> Option<&Audience> {
        self.audiences.iter().find(|audience| audience.name.as_str() == name)
    }

    /// A strategy's index, by name.
    #[inline]
    pub fn strategy_index(&self, name: &str) -> Option<usize> {
        self.strategies.iter().position(|strategy| strategy.name == name)
    }

    /// The platforms, in the config's order.
    pub fn platforms(&self) -> &[ServedPlatform] {
        &self.platforms
    }

    /// A platform by name.
    pub fn platform_named(&self, name: &str) -> Option<&ServedPlatform> {
        self.platforms.iter().find(|served| served.platform.name == name)
    }

    /// A platform by the path of its route. Linear: a pod has a handful.
    #[inline]
    pub fn platform_at(&self, path: &str) -> Option<&ServedPlatform> {
        self.platforms.iter().find(|served| served.platform.path == path)
    }

    /// The decision of the strategy at `index` about a device with these keys, counted. The device
    /// is a member if any key is. One lookup per key and audience, no allocation.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide(&self, index: usize, keys: &[DeviceKey]) -> Decision {
        let decision = self.decide_uncounted(index, keys);
        self.decisions[index].count(decision);
        decision
    }

    /// The same, not counted.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[inline]
    pub fn decide_uncounted(&self, index: usize, keys: &[DeviceKey]) -> Decision {
        let strategy = &self.strategies[index];
        if keys.is_empty() {
            strategy.without_device()
        } else {
            strategy.decide(|audience| self.audiences[audience].membership(keys))
        }
    }

    /// The decision about a device that has further, unread ids, not counted. These might be
    /// members, so audiences without any of the keys count as unavailable.
    ///
    /// # Panics
    ///
    /// If there is no strategy at `index`.
    #[cold]
    pub fn decide_incomplete(&self, index: usize, keys: &[DeviceKey]) -> Decision {
        self.strategies[index].decide(|audience| match self.audiences[audience].membership(keys) {
            Membership::Member => Membership::Member,
            Membership::NotMember | Membership::Unavailable => Membership::Unavailable,
        })
    }

    /// The same catalog with some audiences replaced.
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
            api: self.api.clone(),
        }
    }

    /// Whether every required audience has a snapshot.
    pub fn is_complete(&self) -> bool {
        self.audiences.iter().all(|audience| !audience.required || audience.snapshot.is_some())
    }
}
