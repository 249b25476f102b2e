//! The last hour of the counters: a column of counts per series, a row per minute.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::telemetry::{DecisionLabels, IdLabels, Telemetry};

/// Rows kept.
pub const ROWS: usize = 60;

/// Counters by their labels.
type Totals<K> = BTreeMap<K, u64>;

/// The columns of one metric, and the counters at the end of the last row.
#[derive(Debug)]
struct Columns<K> {
    counts: BTreeMap<K, VecDeque<u64>>,
    last: Totals<K>,
}

impl<K> Default for Columns<K> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Columns<K> {
    /// Adds a row after `rows` others. A column without a count is dropped.
    fn push(&mut self, rows: usize, totals: Totals<K>) {
        for (labels, total) in &totals {
            if *total > self.last.get(labels).copied().unwrap_or(0) {
                let new = || std::iter::repeat_n(0, rows).collect();
                self.counts.entry(labels.clone()).or_insert_with(new);
            }
        }
        for (labels, column) in &mut self.counts {
            let of = |totals: &Totals<K>| totals.get(labels).copied().unwrap_or(0);
            column.push_back(of(&totals).saturating_sub(of(&self.last)));
            if column.len() > ROWS {
                column.pop_front();
            }
        }
        self.counts
            .retain(|_, column| column.iter().any(|count| *count > 0));
        self.last = totals;
    }
}

/// The rows of the last hour.
#[derive(Debug, Default)]
pub struct Minutes {
    ends: VecDeque<u64>,
    decisions: Columns<DecisionLabels>,
    /// Requests by route, and whether they were answered with 200.
    requests: Columns<(String, bool)>,
    ids: Columns<IdLabels>,
}

/// The last hour, as data.
#[derive(Debug, Serialize)]
pub struct MinuteColumns {
    interval_seconds: u64,
    /// Ends of the rows, oldest first.
    minutes: Vec<u64>,
    requests: Vec<RequestColumns>,
    decisions: Vec<Column<DecisionLabels>>,
    ids: Vec<Column<IdLabels>>,
}

#[derive(Debug, Serialize)]
struct Column<K> {
    #[serde(flatten)]
    labels: K,
    counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct RequestColumns {
    route: String,
    /// Answered with 200.
    ok: Vec<u64>,
    other: Vec<u64>,
}

impl Minutes {
    /// Adds a row that ends at this time.
    pub fn push(&mut self, telemetry: &Telemetry, end: u64) {
        let rows = self.ends.len();
        let mut decisions = telemetry.decision_totals();
        decisions.retain(|labels, _| !labels.is_shadow);
        self.decisions.push(rows, decisions);
        self.requests.push(rows, telemetry.request_totals());
        self.ids.push(rows, telemetry.id_totals());
        self.ends.push_back(end);
        if self.ends.len() > ROWS {
            self.ends.pop_front();
        }
    }

    pub fn columns(&self) -> MinuteColumns {
        let mut requests: BTreeMap<&str, [Vec<u64>; 2]> = BTreeMap::new();
        for ((route, is_ok), column) in &self.requests.counts {
            let none = || [(); 2].map(|()| vec![0; self.ends.len()]);
            let both = requests.entry(route).or_insert_with(none);
            both[usize::from(!is_ok)] = column.iter().copied().collect();
        }
        let requests = requests.into_iter().map(|(route, [ok, other])| {
            let route = route.to_owned();
            RequestColumns { route, ok, other }
        });
        MinuteColumns {
            interval_seconds: super::MINUTE.as_secs(),
            minutes: self.ends.iter().copied().collect(),
            requests: requests.collect(),
            decisions: columns(&self.decisions),
            ids: columns(&self.ids),
        }
    }
}

fn columns<K: Clone>(columns: &Columns<K>) -> Vec<Column<K>> {
    let column = |(labels, counts): (&K, &VecDeque<u64>)| Column {
        labels: labels.clone(),
        counts: counts.iter().copied().collect(),
    };
    columns.counts.iter().map(column).collect()
}
