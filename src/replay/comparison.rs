//! Result of a comparison: counts and examples, which add up over threads.

use std::collections::BTreeMap;

use rtad_log::RowEnd;
use serde::Serialize;

use super::rules::Gaps;
use crate::strategy::ValueKey;

/// Most examples of a change.
const MAX_EXAMPLES: usize = 3;

/// A decision, as far as it is compared.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'o> {
    pub bid: bool,
    pub shadow: bool,
    pub reason: &'o str,
    /// Numbers of the bid's value.
    pub numbers: [Option<f64>; ValueKey::ALL.len()],
}

impl Outcome<'_> {
    /// A strategy without a decision answers nothing, like one in shadow.
    pub const ABSENT: Self = Self {
        bid: false,
        shadow: true,
        reason: "absent",
        numbers: [None; ValueKey::ALL.len()],
    };
}

/// Effect of a change on the answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    None,
    /// A decision in shadow, which answers nothing, is another one.
    Shadow,
    /// An answer, a value or a bucket is another one.
    Answer,
}

/// Numbers of one strategy on one platform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StrategyCounts {
    /// Decisions before or after.
    pub decisions: u64,
    /// Bids before.
    pub bids_before: u64,
    /// Bids after.
    pub bids_after: u64,
    /// Bids that were none before.
    pub gained: u64,
    /// Bids that are none after.
    pub lost: u64,
    /// Bids before and after with another value.
    pub values_changed: u64,
    /// No-bids before and after for another reason, and bids too.
    pub reasons_changed: u64,
}

impl StrategyCounts {
    /// Counts the decisions about a row.
    pub fn add(&mut self, before: &Outcome<'_>, after: &Outcome<'_>) -> Effect {
        // The bids of a strategy in shadow count if it is there before and after.
        let is_shadow = before.shadow && after.shadow;
        let was_bid = before.bid && (is_shadow || !before.shadow);
        let is_bid = after.bid && (is_shadow || !after.shadow);
        let has_other_value = was_bid && is_bid && before.numbers != after.numbers;

        self.decisions += 1;
        self.bids_before += u64::from(was_bid);
        self.bids_after += u64::from(is_bid);
        self.gained += u64::from(!was_bid && is_bid);
        self.lost += u64::from(was_bid && !is_bid);
        self.values_changed += u64::from(has_other_value);

        if was_bid == is_bid && !has_other_value {
            self.reasons_changed += u64::from(before.reason != after.reason);
            return Effect::None;
        }
        if is_shadow {
            Effect::Shadow
        } else {
            Effect::Answer
        }
    }

    fn merge(&mut self, other: &Self) {
        self.decisions += other.decisions;
        self.bids_before += other.bids_before;
        self.bids_after += other.bids_after;
        self.gained += other.gained;
        self.lost += other.lost;
        self.values_changed += other.values_changed;
        self.reasons_changed += other.reasons_changed;
    }
}

/// One kind of change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangeKey {
    pub platform: String,
    pub strategy: String,
    /// The decisions in words.
    pub before: String,
    pub after: String,
}

/// Changes of one kind.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Changes {
    pub rows: u64,
    /// Requests that the rows stand for, as they are a sample.
    pub estimated_requests: f64,
    /// Ids of requests.
    pub examples: Vec<String>,
}

/// Numbers of rows.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct RowCounts {
    pub rows: u64,
    /// Rows without decisions: unauthorized callers.
    pub undecided: u64,
    /// Rows whose answer, value or bucket changes.
    pub changed_rows: u64,
    /// Rows in which a decision in shadow changes, which answers nothing.
    pub shadow_changed_rows: u64,
    /// Rows that lack a fact which leaves an answer or a bucket open.
    pub incomplete_rows: u64,
}

impl RowCounts {
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.undecided += other.undecided;
        self.changed_rows += other.changed_rows;
        self.shadow_changed_rows += other.shadow_changed_rows;
        self.incomplete_rows += other.incomplete_rows;
    }
}

/// The result of comparing rows.
#[derive(Debug, Default)]
pub struct Comparison {
    pub counts: RowCounts,
    pub estimated: f64,
    pub estimated_changed: f64,
    pub estimated_shadow_changed: f64,
    /// Requests of rows that change, or lack a fact.
    pub estimated_open: f64,
    /// Times of the first and the last row, in microseconds since 1970.
    pub times: Option<[i64; 2]>,
    /// Rows by the id of the configuration that decided.
    pub configs: BTreeMap<String, u64>,
    /// Numbers of strategies, by platform.
    pub strategies: BTreeMap<String, BTreeMap<String, StrategyCounts>>,
    pub changes: BTreeMap<ChangeKey, Changes>,
    /// Rows by experiment, bucket before and bucket after.
    pub buckets: BTreeMap<[String; 3], u64>,
    pub gaps: Gaps,
}

impl Comparison {
    /// Counts a row, whatever it decides.
    pub fn count_row(&mut self, row: &RowEnd<'_>) {
        self.counts.rows += 1;
        self.add_times([row.time; 2]);
        *entry(&mut self.configs, row.config) += 1;
    }

    fn add_times(&mut self, [first, last]: [i64; 2]) {
        self.times = Some(match self.times {
            Some([start, end]) => [start.min(first), end.max(last)],
            None => [first, last],
        });
    }

    /// The numbers of a strategy.
    pub fn counts_of(&mut self, platform: &str, strategy: &str) -> &mut StrategyCounts {
        entry(entry(&mut self.strategies, platform), strategy)
    }

    /// Counts a change of a row that stands for `weight` requests.
    pub fn add_change(&mut self, key: ChangeKey, weight: f64, request_id: Option<&str>) {
        let changes = self.changes.entry(key).or_default();
        changes.rows += 1;
        changes.estimated_requests += weight;
        if let Some(id) = request_id
            && changes.examples.len() < MAX_EXAMPLES
        {
            changes.examples.push(id.to_owned());
        }
    }

    /// Adds the result of other rows.
    pub fn merge(&mut self, other: Self) {
        self.counts.add(&other.counts);
        self.estimated += other.estimated;
        self.estimated_changed += other.estimated_changed;
        self.estimated_shadow_changed += other.estimated_shadow_changed;
        self.estimated_open += other.estimated_open;
        if let Some(times) = other.times {
            self.add_times(times);
        }

        for (config, rows) in other.configs {
            *self.configs.entry(config).or_default() += rows;
        }
        for (platform, strategies) in &other.strategies {
            for (strategy, counts) in strategies {
                self.counts_of(platform, strategy).merge(counts);
            }
        }
        for (key, changes) in other.changes {
            let to = self.changes.entry(key).or_default();
            to.rows += changes.rows;
            to.estimated_requests += changes.estimated_requests;
            to.examples.extend(changes.examples);
            to.examples.truncate(MAX_EXAMPLES);
        }
        for (key, rows) in other.buckets {
            *self.buckets.entry(key).or_default() += rows;
        }
        self.gaps.merge(other.gaps);
    }
}

/// An entry, whose key is copied only if it is new.
fn entry<'m, V: Default>(map: &'m mut BTreeMap<String, V>, key: &str) -> &'m mut V {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), V::default());
    }
    map.get_mut(key).expect("the entry is there")
}
