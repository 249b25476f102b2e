//! Comparison of the decisions before and after.

use std::collections::{BTreeMap, BTreeSet};

use rtad_log::{DecisionFact, LogRow, LoggedFacts};

use super::bodies::Snapshots;
use super::comparison::{ChangeKey, Comparison, add_change, entry};
use super::rules::{Gaps, RowDecisions, Rules};
use crate::strategy::{Assignment, ValueKey};

/// The gap of rows that snapshots cannot answer.
const NO_BODY: &str = "a row has no body that can be read, so --lookup says nothing of it";

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
struct Side<'s> {
    bid: bool,
    shadow: bool,
    reason: &'s str,
    numbers: [Option<f64>; ValueKey::ALL.len()],
}

impl Side<'_> {
    /// A strategy without a decision answers nothing, like one in shadow.
    const ABSENT: Self = Self {
        bid: false,
        shadow: true,
        reason: "absent",
        numbers: [None; ValueKey::ALL.len()],
    };
}

/// A row on both sides, and the changes that were found in it.
struct RowPair<'r, 'l, 'b> {
    row: &'r LogRow<'l>,
    logged: &'r LoggedFacts<'l>,
    /// Facts of its body, on which the decisions after depend in place of the logged ones.
    from_body: Option<&'r LoggedFacts<'b>>,
    /// Requests that it stands for.
    weight: f64,
    /// Whether an answer, a value or a bucket changes.
    is_changed: bool,
    /// Whether a decision in shadow changes.
    is_changed_in_shadow: bool,
}

/// A platform's strategy id that names another strategy before than after, or none.
struct MovedId {
    platform: String,
    id: String,
    /// Names of the strategies.
    before: Option<String>,
    after: Option<String>,
}

fn moved_ids(before: &Rules, after: &Rules) -> Vec<MovedId> {
    let (before, after) = (before.ids(), after.ids());
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let moved = keys
        .into_iter()
        .filter(|key| before.get(key) != after.get(key));
    moved
        .map(|key| {
            let name = |ids: &BTreeMap<[&str; 2], &str>| ids.get(&key).map(|it| (*it).to_owned());
            let [platform, id] = key.map(str::to_owned);
            MovedId {
                platform,
                id,
                before: name(&before),
                after: name(&after),
            }
        })
        .collect()
}

/// Decides about rows under one or two configurations.
pub struct Comparer<'s> {
    after: Rules,
    /// Answer for rows with bodies.
    snapshots: Option<&'s Snapshots>,
    /// `None`: the logged decisions.
    before: Option<Rules>,
    /// The rows do not hold ids of strategies that a request does not name: empty without `before`.
    moved: Vec<MovedId>,
    decided_after: RowDecisions,
    decided_before: RowDecisions,
    pub(super) found: Comparison,
}

impl<'s> Comparer<'s> {
    pub fn new(after: Rules, before: Option<Rules>, snapshots: Option<&'s Snapshots>) -> Self {
        let (decided_after, decided_before, found) = Default::default();
        let moved = before
            .as_ref()
            .map_or_else(Vec::new, |before| moved_ids(before, &after));
        Self {
            after,
            before,
            moved,
            snapshots,
            decided_after,
            decided_before,
            found,
        }
    }

    /// Compares the decisions about a row.
    pub fn row(&mut self, row: &LogRow<'_>) {
        let found = &mut self.found;
        found.rows += 1;
        let [first, last] = found.times.unwrap_or([row.end.time; 2]);
        found.times = Some([first.min(row.end.time), last.max(row.end.time)]);
        *entry(&mut found.configs, row.end.config) += 1;
        let Some(facts) = &row.facts else {
            found.undecided += 1;
            return;
        };
        let weight = if row.end.probability > 0.0 {
            1.0 / row.end.probability
        } else {
            1.0
        };
        found.estimated += weight;
        let open = found.gaps.open;
        let from_body = self
            .snapshots
            .and_then(|snapshots| snapshots.facts(row, facts));
        if self.snapshots.is_some() && from_body.is_none() {
            found.gaps.note(NO_BODY.to_owned());
        }
        let (gaps, decided) = (&mut found.gaps, &mut self.decided_after);
        match &from_body {
            Some(facts) => self.after.decide(row, facts, gaps, decided),
            None => self.after.decide(row, facts, gaps, decided),
        }
        if let Some(before) = &mut self.before {
            let mut gaps = Gaps::default();
            before.decide(row, facts, &mut gaps, &mut self.decided_before);
            for (gap, _) in gaps.sentences {
                *found
                    .gaps
                    .sentences
                    .entry(format!("{gap} (--against)"))
                    .or_default() += 1;
            }
            found.gaps.open += gaps.open;
        }
        let is_changed = self.compare_buckets(facts);
        let mut pair = RowPair {
            row,
            logged: facts,
            from_body: from_body.as_ref(),
            weight,
            is_changed,
            is_changed_in_shadow: false,
        };
        for index in 0..self.decided_after.decisions.len() {
            let name = &self
                .after
                .strategy(&self.decided_after.decisions[index])
                .name
                .clone();
            self.compare(&mut pair, name);
        }
        self.compare_missing(&mut pair);
        // Seen above if a strategy's decision changes as well.
        let is_changed = pair.is_changed || self.compare_moved(&pair);
        let found = &mut self.found;
        if is_changed {
            found.changed_rows += 1;
            found.estimated_changed += weight;
        }
        if pair.is_changed_in_shadow {
            found.shadow_changed_rows += 1;
            found.estimated_shadow_changed += weight;
        }
        let has_gap = found.gaps.open > open;
        found.incomplete_rows += u64::from(has_gap);
        if is_changed || has_gap {
            found.estimated_open += weight;
        }
    }

    /// Compares the strategies that decided before, and do not any more.
    fn compare_missing(&mut self, pair: &mut RowPair<'_, '_, '_>) {
        let is_missing = |name: &&str| self.after_of(name).is_none();
        let names: Vec<String> = match &self.before {
            Some(before) => {
                let decided = self.decided_before.decisions.iter();
                let names = decided.map(|decided| before.strategy(decided).name.as_str());
                names.filter(is_missing).map(str::to_owned).collect()
            }
            None => {
                let names = pair.logged.decisions.iter().map(|fact| fact.strategy);
                names.filter(is_missing).map(str::to_owned).collect()
            }
        };
        for name in names {
            self.compare(pair, &name);
        }
    }

    /// Compares the answers of strategy ids that name other strategies. Returns whether one
    /// changes.
    fn compare_moved(&mut self, pair: &RowPair<'_, '_, '_>) -> bool {
        let &RowPair {
            row,
            logged,
            weight,
            ..
        } = pair;
        let Some(before) = &self.before else {
            return false;
        };
        let is_asked = |id: &str| {
            logged
                .asked
                .as_ref()
                .is_none_or(|asked| asked.contains(&id))
        };
        let mut is_changed = false;
        for moved in self
            .moved
            .iter()
            .filter(|it| it.platform == row.end.platform && is_asked(&it.id))
        {
            let one = |rules, decided, strategy: &Option<String>| {
                let side = side(rules, decided, strategy.as_ref()?);
                side.filter(|side| side.bid && !side.shadow)
            };
            let before_side = one(before, &self.decided_before, &moved.before);
            let after_side = one(&self.after, &self.decided_after, &moved.after);
            if before_side.map(|it| it.numbers) == after_side.map(|it| it.numbers) {
                continue;
            }
            let words = |side: Option<Side<'_>>, strategy: &Option<String>| {
                let outcome = if side.is_some() { "bid" } else { "no bid" };
                let strategy = strategy.as_deref().unwrap_or("no strategy");
                format!("{outcome}: {strategy}")
            };
            let key = ChangeKey {
                platform: row.end.platform.to_owned(),
                strategy: format!("id {}", moved.id),
                before: words(before_side, &moved.before),
                after: words(after_side, &moved.after),
            };
            add_change(&mut self.found.changes, key, weight, logged.request_id);
            is_changed = true;
        }
        is_changed
    }

    fn after_of(&self, strategy: &str) -> Option<Side<'static>> {
        side(&self.after, &self.decided_after, strategy)
    }

    /// Compares the decisions of a strategy.
    fn compare(&mut self, pair: &mut RowPair<'_, '_, '_>, strategy: &str) {
        let &mut RowPair {
            row,
            logged,
            from_body,
            weight,
            ..
        } = pair;
        let after = self.after_of(strategy).unwrap_or(Side::ABSENT);
        let before = match &self.before {
            Some(rules) => side(rules, &self.decided_before, strategy),
            None => logged
                .decisions
                .iter()
                .find(|fact| fact.strategy == strategy)
                .map(of_fact),
        };
        let before = before.unwrap_or(Side::ABSENT);
        // A strategy that answers nothing, before and after: its bids are of interest.
        let is_shadow = before.shadow && after.shadow;
        let bids = |side: &Side<'_>| side.bid && (is_shadow || !side.shadow);
        let (was_bid, is_bid) = (bids(&before), bids(&after));
        let line = entry(entry(&mut self.found.lines, row.end.platform), strategy);
        line.decisions += 1;
        line.bids_before += u64::from(was_bid);
        line.bids_after += u64::from(is_bid);
        line.gained += u64::from(!was_bid && is_bid);
        line.lost += u64::from(was_bid && !is_bid);
        let has_other_value = was_bid && is_bid && before.numbers != after.numbers;
        line.values_changed += u64::from(has_other_value);
        if was_bid == is_bid && !has_other_value {
            line.reasons_changed += u64::from(before.reason != after.reason);
            return;
        }
        match is_shadow {
            true => pair.is_changed_in_shadow = true,
            false => pair.is_changed = true,
        }
        let rules = Some(&self.after);
        let key = ChangeKey {
            platform: row.end.platform.to_owned(),
            strategy: strategy.to_owned(),
            before: words(
                &before,
                self.before.as_ref(),
                &self.decided_before,
                logged,
                strategy,
            ),
            after: match from_body {
                Some(facts) => words(&after, rules, &self.decided_after, facts, strategy),
                None => words(&after, rules, &self.decided_after, logged, strategy),
            },
        };
        add_change(&mut self.found.changes, key, weight, logged.request_id);
    }

    /// Compares the device's buckets; returns whether one changes.
    fn compare_buckets(&mut self, facts: &LoggedFacts<'_>) -> bool {
        let mut is_changed = false;
        // A gap says of unknown parts that they are.
        let is_known = |part: &Assignment| *part != Assignment::Unknown;
        let parts = self.after.experiments.iter().zip(&self.decided_after.parts);
        for (experiment, part) in parts.filter(|(_, part)| is_known(part)) {
            let after = experiment.part_name(*part);
            let before = match &self.before {
                Some(rules) => {
                    let parts = rules.experiments.iter().zip(&self.decided_before.parts);
                    let mut parts = parts.filter(|(other, _)| other.name == experiment.name);
                    let part = parts.next().filter(|(_, part)| is_known(part));
                    part.map(|(other, part)| other.part_name(*part))
                }
                None => {
                    let mut facts = facts.experiments.iter();
                    facts
                        .find(|fact| fact.name == experiment.name)
                        .map(|fact| fact.bucket)
                }
            };
            if let Some(before) = before.filter(|before| *before != after) {
                let key = [&experiment.name, before, after].map(str::to_owned);
                *self.found.buckets.entry(key).or_default() += 1;
                is_changed = true;
            }
        }
        is_changed
    }
}

fn side(rules: &Rules, decided: &RowDecisions, strategy: &str) -> Option<Side<'static>> {
    let mut found = decided.decisions.iter();
    let found = found.find(|decided| rules.strategy(decided).name == strategy)?;
    Some(Side {
        bid: found.decision.is_bid(),
        shadow: rules.strategy(found).is_shadow,
        reason: found.decision.reason.as_str(),
        numbers: found.numbers,
    })
}

fn of_fact<'f>(fact: &DecisionFact<'f>) -> Side<'f> {
    let DecisionFact {
        bid,
        shadow,
        reason,
        numbers,
        ..
    } = *fact;
    Side {
        bid,
        shadow,
        reason,
        numbers,
    }
}

/// A side in words: the outcome, the reason, the leaf that decides, and the value. `facts` are
/// those on which it decided.
fn words(
    side: &Side<'_>,
    rules: Option<&Rules>,
    decided: &RowDecisions,
    facts: &LoggedFacts<'_>,
    strategy: &str,
) -> String {
    if side.reason == Side::ABSENT.reason {
        return side.reason.to_owned();
    }
    let outcome = if side.bid { "bid" } else { "no bid" };
    let shadow = if side.shadow { " in shadow" } else { "" };
    let leaf = rules.and_then(|rules| {
        let mut found = decided.decisions.iter();
        let found = found.find(|decided| rules.strategy(decided).name == strategy)?;
        Some(rules.leaf(found, facts, &decided.parts)).filter(|leaf| !leaf.is_empty())
    });
    let leaf = leaf.map(|leaf| format!(" {leaf}")).unwrap_or_default();
    let numbers = ValueKey::ALL.into_iter().zip(side.numbers);
    let numbers = numbers.filter_map(|(key, number)| Some((key, number?)));
    let numbers: String = numbers
        .map(|(key, number)| format!(", {} {number}", key.as_str()))
        .collect();
    format!("{outcome}{shadow}: {}{leaf}{numbers}", side.reason)
}
