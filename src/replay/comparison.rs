//! Result of a comparison: counts and examples, which add up over threads.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rules::Gaps;

/// Most examples of a change.
const MAX_EXAMPLES: usize = 3;

/// Numbers of one strategy on one platform.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct StrategyCounts {
    /// Decisions before or after.
    pub(super) decisions: u64,
    /// Bids before.
    pub(super) bids_before: u64,
    /// Bids after.
    pub(super) bids_after: u64,
    /// Bids that were none before.
    pub(super) gained: u64,
    /// Bids that are none after.
    pub(super) lost: u64,
    /// Bids before and after with another value.
    pub(super) values_changed: u64,
    /// No-bids before and after for another reason, and bids too.
    pub(super) reasons_changed: u64,
}

/// One kind of change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChangeKey {
    pub(super) platform: String,
    pub(super) strategy: String,
    pub(super) before: String,
    pub(super) after: String,
}

/// Changes of one kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    pub(super) count: u64,
    /// Requests that the rows stand for, as they are a sample.
    pub(super) estimated: f64,
    /// Ids of requests.
    pub(super) examples: Vec<String>,
}

/// The result of comparing rows.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) rows: u64,
    /// Rows without decisions: unauthorized callers.
    pub(super) undecided: u64,
    pub(super) changed_rows: u64,
    /// Rows in which a decision in shadow changes.
    pub(super) shadow_changed_rows: u64,
    /// Rows that lack a fact which leaves an answer or a bucket open.
    pub(super) incomplete_rows: u64,
    pub(super) estimated: f64,
    pub(super) estimated_changed: f64,
    pub(super) estimated_shadow_changed: f64,
    /// Requests of rows that change, or lack a fact.
    pub(super) estimated_open: f64,
    pub(super) times: Option<[i64; 2]>,
    /// Rows by the id of the configuration that decided.
    pub(super) configs: BTreeMap<String, u64>,
    pub(super) lines: BTreeMap<String, BTreeMap<String, StrategyCounts>>,
    pub(super) changes: BTreeMap<ChangeKey, Changes>,
    /// Rows by experiment, bucket before and bucket after.
    pub(super) buckets: BTreeMap<[String; 3], u64>,
    pub(super) gaps: Gaps,
}

impl Comparison {
    /// Adds the result of other rows.
    pub(super) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.undecided += other.undecided;
        self.changed_rows += other.changed_rows;
        self.shadow_changed_rows += other.shadow_changed_rows;
        self.estimated += other.estimated;
        self.estimated_changed += other.estimated_changed;
        self.estimated_shadow_changed += other.estimated_shadow_changed;
        self.incomplete_rows += other.incomplete_rows;
        self.estimated_open += other.estimated_open;
        let times = self.times.into_iter().chain(other.times);
        self.times = times.reduce(|[a, b], [c, d]| [a.min(c), b.max(d)]);
        let add = |to: &mut BTreeMap<String, u64>, from| {
            for (key, count) in from {
                *to.entry(key).or_default() += count;
            }
        };
        add(&mut self.configs, other.configs);
        add(&mut self.gaps.sentences, other.gaps.sentences);
        for (key, count) in other.buckets {
            *self.buckets.entry(key).or_default() += count;
        }
        for (platform, lines) in other.lines {
            let to = self.lines.entry(platform).or_default();
            for (strategy, line) in lines {
                let to = to.entry(strategy).or_default();
                to.decisions += line.decisions;
                to.bids_before += line.bids_before;
                to.bids_after += line.bids_after;
                to.gained += line.gained;
                to.lost += line.lost;
                to.values_changed += line.values_changed;
                to.reasons_changed += line.reasons_changed;
            }
        }
        for (key, changes) in other.changes {
            let to = self.changes.entry(key).or_default();
            to.count += changes.count;
            to.estimated += changes.estimated;
            to.examples.extend(changes.examples);
            to.examples.truncate(MAX_EXAMPLES);
        }
    }
}

/// Counts a change of a row that stands for `weight` requests.
pub fn add_change(
    to: &mut BTreeMap<ChangeKey, Changes>,
    key: ChangeKey,
    weight: f64,
    request_id: Option<&str>,
) {
    let changes = to.entry(key).or_default();
    changes.count += 1;
    changes.estimated += weight;
    if let Some(id) = request_id.filter(|_| changes.examples.len() < MAX_EXAMPLES) {
        changes.examples.push(id.to_owned());
    }
}

/// An entry, whose key is copied only if it is new.
pub fn entry<'m, V: Default>(map: &'m mut BTreeMap<String, V>, key: &str) -> &'m mut V {
    if !map.contains_key(key) {
        map.insert(key.to_owned(), V::default());
    }
    map.get_mut(key).expect("the entry is there")
}
