//! Settings without an effect: entries that nothing uses, and conditions that never hold.

use std::collections::BTreeSet;

use rtad_core::experiment::SLOTS;
use rtad_core::snapshot::AudienceName;

use super::super::condition::Condition;
use super::super::experiment::ExperimentConfig;
use super::super::{Config, StrategyConfig};
use crate::strategy::NO_BUCKET;

/// The warnings about all of them.
pub fn of_config(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    // With access to rtad's own API, any strategy and any audience may be asked for.
    if !config.platforms.is_empty() && config.server.api.is_default() {
        add_unmapped(config, &mut warnings);
        // Rows have all audiences, for replays under other rules.
        if config.log.is_none() {
            add_unread(config, &mut warnings);
        }
    }

    for strategy in &config.strategies {
        if let Some(when) = &strategy.when {
            let mut dead = Vec::new();
            add_dead_branches(when, "when", &strategy.exclude, &mut dead);
            for branch in dead {
                let name = &strategy.name;
                warnings.push(format!(
                    "{branch} of {name} holds only for members of its exclude, who get no bid: it \
                     never applies"
                ));
            }
        }
    }
    for experiment in &config.experiments {
        add_empty_slots(experiment, &config.strategies, &mut warnings);
    }
    warnings
}

/// Strategies that no request can ask for.
fn add_unmapped(config: &Config, warnings: &mut Vec<String>) {
    for strategy in &config.strategies {
        if !config.platforms.iter().any(|it| it.maps(strategy)) {
            let name = &strategy.name;
            warnings.push(format!(
                "no platform maps {name} in its strategies: nothing asks for it, as rtad's own API \
                 is closed"
            ));
        }
    }
}

/// Audiences that no answer depends on.
fn add_unread(config: &Config, warnings: &mut Vec<String>) {
    let mut read = BTreeSet::new();
    for strategy in &config.strategies {
        read.extend(&strategy.exclude);
        for condition in strategy.when.iter().flat_map(Condition::flat) {
            read.extend(&condition.audience);
        }
        for value in &strategy.values {
            read.extend(&value.audience);
        }
    }

    for audience in &config.audiences {
        let name = &audience.name;
        if !read.contains(name) {
            warnings.push(format!(
                "no strategy reads the audience {name}: pods load it for nothing"
            ));
        }
    }
}

/// Adds the branches of `any` at a place that hold only for members of excluded audiences. A branch
/// inside `none` is another matter: there it refuses, which `exclude` does too.
fn add_dead_branches(
    condition: &Condition,
    place: &str,
    excluded: &[AudienceName],
    dead: &mut Vec<String>,
) {
    let groups = [("any", &condition.any), ("all", &condition.all)];
    for (word, group) in groups {
        for (index, branch) in group.iter().flatten().enumerate() {
            let place = format!("{place}.{word}[{index}]");
            if branch.holds_only_in(excluded) {
                dead.push(place);
            } else {
                add_dead_branches(branch, &place, excluded, dead);
            }
        }
    }
}

/// Slots of no bucket beside several buckets, unless a condition asks for the devices in them. One
/// bucket alone is compared with the rest.
fn add_empty_slots(
    experiment: &ExperimentConfig,
    strategies: &[StrategyConfig],
    warnings: &mut Vec<String>,
) {
    if experiment.buckets.len() == 1 {
        return;
    }
    let name = &experiment.name;
    let none = format!("{name}:{NO_BUCKET}");
    for condition in strategies.iter().filter_map(|it| it.when.as_ref()) {
        if condition.flat().iter().any(|it| it.bucket.contains(&none)) {
            return;
        }
    }

    let ranges: Vec<_> = experiment
        .buckets
        .iter()
        .flat_map(|bucket| &bucket.slots.0)
        .collect();
    let empty = (0..SLOTS)
        .filter(|slot| !ranges.iter().any(|range| range.contains(slot)))
        .count();
    if empty > 0 {
        warnings.push(format!(
            "the buckets of {name} leave {empty} of {SLOTS} slots empty: their devices have no \
             bucket"
        ));
    }
}
