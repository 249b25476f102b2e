//! Comparison of the decisions before and after.

use std::collections::BTreeMap;

use rtad_log::{DecisionFact, LogRow, LoggedConfig, LoggedFacts};
use smallvec::SmallVec;
use toml::Table;

use super::comparison::{ChangeKey, Comparison, Effect, Outcome};
use super::rules::{Decided, Gaps, RowDecisions, Rules};
use super::unlogged::{Scope, Unlogged, UnloggedDifferences};
use crate::serve::Assembly;
use crate::strategy::{Assignment, Reason, Strategy, ValueKey};

/// The decision of a strategy about a row: the one before, or the one after.
#[derive(Debug, Clone, Copy)]
struct Side<'s> {
    strategy: &'s str,
    outcome: Outcome<'s>,
    /// The condition that made a logged no-bid.
    condition: Option<&'s str>,
    /// `None` if it was logged: the rules that made it are not known.
    decided: Option<&'s Decided>,
}

/// The decisions about a row, one for each strategy.
type Sides<'s> = SmallVec<[Side<'s>; 8]>;

/// The effects of all changes in a row.
#[derive(Debug, Default)]
struct RowEffects {
    answer: bool,
    shadow: bool,
}

impl<'s> Side<'s> {
    /// Of a strategy without a decision.
    const fn absent(strategy: &'s str) -> Self {
        Self {
            strategy,
            outcome: Outcome::ABSENT,
            condition: None,
            decided: None,
        }
    }

    const fn logged(fact: &DecisionFact<'s>) -> Self {
        Self {
            strategy: fact.strategy,
            outcome: Outcome {
                bid: fact.bid,
                shadow: fact.shadow,
                reason: fact.reason,
                numbers: fact.numbers,
            },
            condition: fact.condition,
            decided: None,
        }
    }
}

/// Decides about rows under one or two configurations.
pub struct Comparer {
    after: Rules,
    /// `None`: the logged decisions.
    before: Option<Rules>,
    table_after: Table,
    /// The differences from `before`.
    differences: UnloggedDifferences,
    /// The differences from the configurations that decided, by the id in the rows; without
    /// `before`.
    logged_differences: BTreeMap<String, UnloggedDifferences>,
    decided_after: RowDecisions,
    decided_before: RowDecisions,
    pub found: Comparison,
}

impl Comparer {
    pub fn new(after: &Assembly, before: Option<&Assembly>) -> Self {
        let table_after = after.config.to_table();
        let mut rules_before = None;
        let mut differences = UnloggedDifferences::default();
        if let Some(before) = before {
            rules_before = Some(Rules::new(before.plan()));
            differences = UnloggedDifferences::between(&table_after, &before.config.to_table());
        }

        Self {
            after: Rules::new(after.plan()),
            before: rules_before,
            table_after,
            differences,
            logged_differences: BTreeMap::new(),
            decided_after: RowDecisions::default(),
            decided_before: RowDecisions::default(),
            found: Comparison::default(),
        }
    }

    /// The configurations that decided about the next rows. One that is no TOML is unknown.
    pub fn begin_file(&mut self, configs: &[LoggedConfig]) {
        self.logged_differences.clear();
        if self.before.is_some() {
            return;
        }
        for config in configs {
            if let Ok(table) = config.text.parse() {
                let differences = UnloggedDifferences::between(&self.table_after, &table);
                let id = config.id.clone();
                self.logged_differences.insert(id, differences);
            }
        }
    }

    /// Compares the decisions about a row.
    pub fn add_row(&mut self, row: &LogRow<'_>) {
        self.found.count_row(&row.end);
        let Some(facts) = &row.facts else {
            self.found.counts.undecided += 1;
            return;
        };
        let weight = if row.end.probability > 0.0 {
            1.0 / row.end.probability
        } else {
            1.0
        };
        self.found.estimated += weight;

        let open_before = self.found.gaps.open;
        self.decide(row, facts);
        let has_gap = self.found.gaps.open > open_before;

        let mut effects = self.compare_strategies(row.end.platform, facts, weight);
        effects.answer |= self.has_other_bucket(facts);

        let found = &mut self.found;
        if effects.answer {
            found.counts.changed_rows += 1;
            found.estimated_changed += weight;
        }
        if effects.shadow {
            found.counts.shadow_changed_rows += 1;
            found.estimated_shadow_changed += weight;
        }
        if has_gap {
            found.counts.incomplete_rows += 1;
        }
        if has_gap || effects.answer {
            found.estimated_open += weight;
        }
    }

    /// Decides under each configuration, and collects what the row lacks.
    fn decide(&mut self, row: &LogRow<'_>, facts: &LoggedFacts<'_>) {
        let gaps = &mut self.found.gaps;
        self.after.decide(row, facts, gaps, &mut self.decided_after);

        if let Some(before) = &mut self.before {
            let mut gaps_before = Gaps::default();
            before.decide(row, facts, &mut gaps_before, &mut self.decided_before);
            gaps.add_against(gaps_before);
        }

        self.note_differences(row, facts);
    }

    /// Notes the differences between the configurations that leave the row's answer open.
    fn note_differences(&mut self, row: &LogRow<'_>, facts: &LoggedFacts<'_>) {
        let gaps = &mut self.found.gaps;
        let mut differences = &self.differences;
        if self.before.is_none() {
            let config = row.end.config;
            let Some(logged) = self.logged_differences.get(config) else {
                return gaps.note(format!("config {config} of the rows is not in the log"));
            };
            differences = logged;
        }

        let platform = row.end.platform;
        if differences.has_renamed_id(platform, facts) {
            gaps.note(format!("ids of platform {platform} name other strategies"));
        }
        if let Some(sentence) = &differences.other_store {
            gaps.name(sentence);
        }
        for gap in &differences.gaps {
            if gap.is_of_platform(platform) {
                gaps.note(gap.sentence.clone());
                continue;
            }
            // One note a row, of a strategy that answers if there is one.
            let mut strategies = Vec::new();
            for decided in &self.decided_after.decisions {
                if is_open(gap, decided, &self.after, &self.decided_after) {
                    strategies.push(self.after.strategy(decided));
                }
            }
            strategies.sort_by_key(|strategy| strategy.is_shadow);
            if let Some(strategy) = strategies.first() {
                gaps.note_for(strategy, gap.sentence.clone());
            }
        }
    }

    /// Compares the decisions of all strategies.
    fn compare_strategies(
        &mut self,
        platform: &str,
        facts: &LoggedFacts<'_>,
        weight: f64,
    ) -> RowEffects {
        let sides_after = sides(&self.after, &self.decided_after);
        let sides_before = match &self.before {
            Some(rules) => sides(rules, &self.decided_before),
            None => facts.decisions.iter().map(Side::logged).collect(),
        };

        let mut pairs: SmallVec<[[Side<'_>; 2]; 8]> = SmallVec::new();
        for after in sides_after {
            let found = sides_before.iter().find(|it| it.strategy == after.strategy);
            let before = found.copied().unwrap_or(Side::absent(after.strategy));
            pairs.push([before, after]);
        }
        for before in sides_before {
            let is_paired = pairs.iter().any(|[it, _]| it.strategy == before.strategy);
            if !is_paired {
                pairs.push([before, Side::absent(before.strategy)]);
            }
        }

        let mut effects = RowEffects::default();
        for [before, after] in pairs {
            let counts = self.found.counts_of(platform, after.strategy);
            match counts.add(&before.outcome, &after.outcome) {
                Effect::None => continue,
                Effect::Shadow => effects.shadow = true,
                Effect::Answer => effects.answer = true,
            }

            let rules_before = self.before.as_ref();
            let key = ChangeKey {
                platform: platform.to_owned(),
                strategy: after.strategy.to_owned(),
                before: words(&before, rules_before, &self.decided_before, facts),
                after: words(&after, Some(&self.after), &self.decided_after, facts),
            };
            self.found.add_change(key, weight, facts.request_id);
        }
        effects
    }

    /// Counts moves of the device to other buckets. Returns whether there is one.
    fn has_other_bucket(&mut self, facts: &LoggedFacts<'_>) -> bool {
        let mut has_moved = false;
        let parts = &self.decided_after.parts;
        for (experiment, part) in self.after.experiments.iter().zip(parts) {
            // Unknown buckets are gaps.
            if *part == Assignment::Unknown {
                continue;
            }

            let after = experiment.part_name(*part);
            let before = match &self.before {
                Some(rules) => rules.bucket(&self.decided_before, &experiment.name),
                None => logged_bucket(facts, &experiment.name),
            };

            if let Some(before) = before
                && before != after
            {
                let key = [&experiment.name, before, after].map(str::to_owned);
                *self.found.buckets.entry(key).or_default() += 1;
                has_moved = true;
            }
        }
        has_moved
    }
}

/// Whether a difference leaves the answer of a decision open.
fn is_open(gap: &Unlogged, decided: &Decided, rules: &Rules, row: &RowDecisions) -> bool {
    let strategy: &Strategy = rules.strategy(decided);

    match gap.scope {
        Scope::All | Scope::Platform | Scope::Api => true,
        Scope::Cap => {
            let reason = decided.decision.reason;
            let is_capped = matches!(reason, Reason::Capped | Reason::NoGrant);
            rules.cap_of(strategy) == Some(gap.name(0)) && (is_capped || decided.decision.is_bid())
        }
        Scope::Audience => {
            let has_device = decided.decision.reason != Reason::NoDevice;
            has_device && rules.reads_audience(strategy, gap.name(0))
        }
        Scope::Bucket => {
            let mut experiments = strategy.experiments.iter();
            experiments.any(|index| {
                let experiment = &rules.experiments[*index];
                let part = experiment.part_name(row.parts[*index]);
                experiment.name == gap.name(0) && part == gap.name(1)
            })
        }
        Scope::Experiments => strategy.experiments.len() > 1,
    }
}

fn sides<'s>(rules: &'s Rules, decided: &'s RowDecisions) -> Sides<'s> {
    let mut sides = Sides::new();
    for one in &decided.decisions {
        let strategy = rules.strategy(one);
        sides.push(Side {
            strategy: &strategy.name,
            outcome: Outcome {
                bid: one.decision.is_bid(),
                shadow: strategy.is_shadow,
                reason: one.decision.reason.as_str(),
                numbers: one.numbers,
            },
            condition: None,
            decided: Some(one),
        });
    }
    sides
}

fn logged_bucket<'f>(facts: &LoggedFacts<'f>, experiment: &str) -> Option<&'f str> {
    let mut logged = facts.experiments.iter();
    let fact = logged.find(|fact| fact.name == experiment)?;
    Some(fact.bucket)
}

/// A side in words: the outcome, the reason, the condition that decides, and the value.
fn words(
    side: &Side<'_>,
    rules: Option<&Rules>,
    decided: &RowDecisions,
    facts: &LoggedFacts<'_>,
) -> String {
    let outcome = &side.outcome;
    if outcome.reason == Outcome::ABSENT.reason {
        return outcome.reason.to_owned();
    }

    let mut text = if outcome.bid { "bid" } else { "no bid" }.to_owned();
    if outcome.shadow {
        text += " in shadow";
    }
    text += ": ";
    text += outcome.reason;

    let mut condition = side.condition.map(str::to_owned);
    if let (Some(rules), Some(one)) = (rules, side.decided) {
        condition = rules.deciding_condition(one, facts, &decided.parts);
    }
    if let Some(condition) = condition {
        text += " ";
        text += &condition;
    }

    for (key, number) in ValueKey::ALL.into_iter().zip(outcome.numbers) {
        if let Some(number) = number {
            text += &format!(", {} {number}", key.as_str());
        }
    }
    text
}
