//! Warnings: consequences of valid settings that surprise.

mod cache_times;
mod unused;

use std::collections::BTreeSet;

use super::Config;
use super::experiment::{BucketConfig, ExperimentConfig};
use super::platform::{KindRules, PlatformConfig, VerdictsConfig};
use super::rules::StrategyConfig;
use crate::strategy::{Attribute, HOLDOUT, ValueKey};

impl Config {
    /// The warnings, a sentence each. `kinds` are those of platforms.
    pub fn warnings(&self, kinds: &[KindRules]) -> Vec<String> {
        let Self {
            strategies,
            experiments,
            ..
        } = self;
        let mut platforms = Vec::new();
        for platform in &self.platforms {
            if let Some(kind) = kinds.iter().find(|it| it.word == platform.kind) {
                platforms.push(Protocol { platform, kind });
            }
        }

        let mut warnings = self.of_caps();
        for strategy in strategies {
            warnings.extend(of_strategy(strategy, &platforms));
        }
        for experiment in experiments {
            warnings.extend(of_experiment(experiment, strategies, &platforms));
        }
        for experiment in experiments {
            warnings.extend(of_parts(experiment, strategies));
        }
        for protocol in &platforms {
            warnings.extend(cache_times::of_platform(protocol, strategies));
        }
        warnings.extend(unused::of_config(self));
        warnings
    }

    /// Caps of no strategy.
    fn of_caps(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for cap in &self.caps {
            let mut strategies = self.strategies.iter();
            if !strategies.any(|strategy| strategy.cap.as_ref() == Some(&cap.name)) {
                warnings.push(format!("no strategy has the cap {}", cap.name));
            }
        }
        warnings
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
        if (self.kind.sends)(attribute) {
            return true;
        }
        match &self.platform.request {
            Some(request) => request.attributes.contains_key(&attribute),
            None => false,
        }
    }

    /// Whether its answers have the number of a value.
    fn carries(&self, key: ValueKey) -> bool {
        if (self.kind.carries)(key) {
            return true;
        }
        match self.verdicts() {
            Some(verdicts) => verdicts.values().any(|(mapped, _)| mapped == key),
            None => false,
        }
    }

    /// Whether its answers have a cache time.
    fn carries_cache(&self) -> bool {
        let response = self.platform.response.as_ref();
        !self.kind.is_mapped || response.is_some_and(|response| response.cache.is_some())
    }

    /// Whether its answers have a part of the tag.
    fn carries_tag(&self, bucket: &BucketConfig) -> bool {
        if !self.kind.is_mapped {
            return true;
        }
        match self.verdicts() {
            Some(verdicts) => verdicts.tag.is_some() && bucket.tag.is_some(),
            None => false,
        }
    }

    /// The mapping of verdicts in its answers.
    fn verdicts(&self) -> Option<&VerdictsConfig> {
        self.platform.response.as_ref()?.verdicts.as_ref()
    }
}

/// Attributes that a platform never sends, and numbers that no platform takes.
fn of_strategy(strategy: &StrategyConfig, platforms: &[Protocol<'_>]) -> Vec<String> {
    let name = &strategy.name;
    let platforms: Vec<_> = platforms
        .iter()
        .filter(|it| it.platform.maps(strategy))
        .collect();
    let mut warnings = Vec::new();

    let mut conditions = Vec::new();
    if let Some(when) = &strategy.when {
        conditions = when.flat();
    }
    let mut read_attributes: BTreeSet<&Attribute> = BTreeSet::new();
    for condition in &conditions {
        read_attributes.extend(condition.attributes.keys());
    }
    for attribute in read_attributes {
        // A condition on the absence of an attribute covers requests without it.
        if conditions.iter().any(|it| it.absent == Some(*attribute)) {
            continue;
        }
        for lacking in platforms.iter().filter(|it| !it.sends(*attribute)) {
            warnings.push(format!(
                "the condition of {name} reads {}, which the platform {} never \
                 sends: decisions are unavailable where the rest of the condition leaves it open",
                attribute.as_str(),
                lacking.platform.name
            ));
        }
    }

    for key in ValueKey::ALL {
        let is_set = strategy
            .values
            .iter()
            .any(|value| value.numbers().get(key).is_some());
        let is_taken = platforms.is_empty() || platforms.iter().any(|it| it.carries(key));
        if is_set && !is_taken {
            warnings.push(format!(
                "no platform of {name} takes its {}: only /v1/decide shows it",
                key.as_str()
            ));
        }
    }
    warnings
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
    let platforms: Vec<_> = platforms
        .iter()
        .filter(|it| it.platform.reads(experiment, strategies))
        .collect();
    if platforms.is_empty() {
        return None;
    }

    let lost = experiment.buckets.iter().find(|bucket| {
        let has_tag = bucket.tag.is_some() || bucket.tag_number.is_some();
        has_tag && !platforms.iter().any(|it| it.carries_tag(bucket))
    })?;
    Some(format!(
        "no platform of {} takes the tag of {}: map tag",
        experiment.name, lost.name
    ))
}
