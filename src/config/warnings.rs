//! Warnings: consequences of valid settings that surprise.

mod cache_times;
mod unused;

use std::collections::BTreeSet;

use super::Config;
use super::cap::CapConfig;
use super::experiment::{BucketConfig, ExperimentConfig};
use super::platform::{KindRules, PlatformConfig};
use super::rules::StrategyConfig;
use crate::strategy::{Attribute, HOLDOUT, ValueKey};

impl Config {
    /// The warnings, a sentence each. On Kubernetes a cache directory may be empty in a new pod.
    /// `kinds` are those of platforms.
    pub fn warnings(&self, is_on_kubernetes: bool, kinds: &[KindRules]) -> Vec<String> {
        let Self {
            strategies,
            experiments,
            ..
        } = self;
        let kind = |platform: &&PlatformConfig| kinds.iter().find(|it| it.word == platform.kind);
        let platforms = self.platforms.iter();
        let platforms: Vec<Protocol<'_>> = platforms
            .filter_map(|it| {
                Some(Protocol {
                    platform: it,
                    kind: kind(&it)?,
                })
            })
            .collect();
        let of_strategies = strategies
            .iter()
            .flat_map(|strategy| of_strategy(strategy, &platforms));
        let of_experiments = experiments
            .iter()
            .filter_map(|it| of_experiment(it, strategies, &platforms));
        let of_parts = experiments.iter().flat_map(|it| of_parts(it, strategies));
        let caps = self.of_caps(is_on_kubernetes).into_iter();
        let mut warnings: Vec<_> = caps
            .chain(of_strategies)
            .chain(of_experiments)
            .chain(of_parts)
            .collect();
        for protocol in &platforms {
            warnings.extend(cache_times::of_platform(protocol, strategies));
        }
        warnings.extend(unused::of_config(self));
        warnings
    }

    /// Caps that begin at zero again, and those of no strategy.
    fn of_caps(&self, is_on_kubernetes: bool) -> Vec<String> {
        let is_kept = self.store.cache_dir.is_some();
        let warning = |cap: &CapConfig| {
            let mut strategies = self.strategies.iter();
            if !strategies.any(|strategy| strategy.cap.as_ref() == Some(&cap.name)) {
                return Some(format!("no strategy has the cap {}", cap.name));
            }
            let effect = match (cap.leased, is_kept) {
                (true, true) => return None,
                (true, false) => {
                    "counts returning devices again after a restart, as store.cache_dir is not set"
                }
                (false, false) => {
                    "begins at zero with each restart and in each new pod, as store.cache_dir is \
                     not set: set it to a directory that is kept, or use leased = true"
                }
                (false, true) if is_on_kubernetes => {
                    "begins at zero in a new pod unless store.cache_dir is on a volume that is \
                     kept: an emptyDir is not; use leased = true"
                }
                (false, true) => return None,
            };
            Some(format!("the cap {} {effect}", cap.name))
        };
        self.caps.iter().filter_map(warning).collect()
    }
}

/// A platform, and the rules of its kind.
#[derive(Clone, Copy)]
struct Protocol<'c> {
    platform: &'c PlatformConfig,
    kind: &'c KindRules,
}

impl Protocol<'_> {
    /// Whether its requests may have the attribute.
    fn sends(&self, attribute: Attribute) -> bool {
        let mapped = self
            .platform
            .request
            .as_ref()
            .map(|request| &request.attributes);
        (self.kind.sends)(attribute) || mapped.is_some_and(|mapped| mapped.contains_key(&attribute))
    }

    /// Whether its answers have the number of a value.
    fn carries(&self, key: ValueKey) -> bool {
        let response = self.platform.response.as_ref();
        let verdicts = response.and_then(|response| response.verdicts.as_ref());
        (self.kind.carries)(key)
            || verdicts.is_some_and(|verdicts| verdicts.values().any(|(mapped, _)| mapped == key))
    }

    /// Whether its answers have a cache time.
    fn carries_cache(&self) -> bool {
        let response = self.platform.response.as_ref();
        !self.kind.is_mapped || response.is_some_and(|response| response.cache.is_some())
    }

    /// Whether its answers have a part of the tag.
    fn carries_tag(&self, bucket: &BucketConfig) -> bool {
        let response = self.platform.response.as_ref();
        let verdicts = response.and_then(|response| response.verdicts.as_ref());
        !self.kind.is_mapped
            || verdicts.is_some_and(|verdicts| verdicts.tag.is_some() && bucket.tag.is_some())
    }
}

/// Attributes that a platform never sends, and numbers that no platform takes.
fn of_strategy(strategy: &StrategyConfig, platforms: &[Protocol<'_>]) -> Vec<String> {
    let name = &strategy.name;
    let platforms: Vec<_> = platforms
        .iter()
        .filter(|it| it.platform.maps(strategy))
        .collect();
    let conditions = strategy
        .when
        .as_ref()
        .map_or_else(Vec::new, |when| when.flat());
    let read: BTreeSet<_> = conditions
        .iter()
        .flat_map(|it| it.attributes.keys())
        .collect();
    // A condition on the absence of an attribute covers requests without it.
    let read = read
        .into_iter()
        .filter(|read| conditions.iter().all(|it| it.absent != Some(**read)));
    let unread = read.flat_map(|attribute| {
        let lacking = platforms
            .iter()
            .filter(|platform| !platform.sends(*attribute));
        lacking.map(|platform| {
            let (attribute, platform) = (attribute.as_str(), &platform.platform.name);
            format!(
                "the condition of {name} reads {attribute}, which the platform {platform} never \
                 sends: decisions are unavailable where the rest of the condition leaves it open"
            )
        })
    });
    let numbers: Vec<_> = strategy
        .values
        .iter()
        .map(|value| value.numbers())
        .collect();
    let is_lost = |key: &ValueKey| {
        numbers.iter().any(|numbers| numbers.get(*key).is_some())
            && !platforms.is_empty()
            && !platforms.iter().any(|platform| platform.carries(*key))
    };
    let lost = ValueKey::ALL.into_iter().filter(is_lost).map(|key| {
        format!(
            "no platform of {name} takes its {}: only /v1/decide shows it",
            key.as_str()
        )
    });
    unread.chain(lost).collect()
}

/// An experiment that changes nothing, and strategies that bid for devices of a holdout.
fn of_parts(experiment: &ExperimentConfig, strategies: &[StrategyConfig]) -> Vec<String> {
    let name = &experiment.name;
    if !strategies.iter().any(|it| it.reads_experiment(name)) {
        return vec![format!(
            "no strategy reads the experiment {name}: its buckets change no decision and no value"
        )];
    }
    if experiment
        .buckets
        .iter()
        .all(|bucket| bucket.name != HOLDOUT)
    {
        return Vec::new();
    }

    let part = format!("{name}:{HOLDOUT}");
    let mut bidding = Vec::new();
    for strategy in strategies {
        let when = strategy.when.as_ref();
        if !when.is_some_and(|when| when.refuses_part(&part)) {
            bidding.push(strategy.name.as_str());
        }
    }
    if bidding.is_empty() {
        return Vec::new();
    }
    let names = bidding.join(", ");
    vec![format!(
        "the condition of {names} does not refuse {part}: its devices may get ads"
    )]
}

/// Tags that no platform takes.
fn of_experiment(
    experiment: &ExperimentConfig,
    strategies: &[StrategyConfig],
    platforms: &[Protocol<'_>],
) -> Option<String> {
    let reads = |it: &&Protocol<'_>| it.platform.reads(experiment, strategies);
    let platforms: Vec<_> = platforms.iter().filter(reads).collect();
    let is_lost = |bucket: &&BucketConfig| {
        (bucket.tag.is_some() || bucket.tag_number.is_some())
            && !platforms
                .iter()
                .any(|platform| platform.carries_tag(bucket))
    };
    let lost = experiment
        .buckets
        .iter()
        .find(is_lost)
        .filter(|_| !platforms.is_empty())?;
    let (name, bucket) = (&experiment.name, &lost.name);
    Some(format!(
        "no platform of {name} takes the tag of {bucket}: map tag"
    ))
}
