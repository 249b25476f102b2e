//! Counts by input and by column, in the reports of all commands that read ids.

use serde::{Deserialize, Serialize};

use rtad_core::snapshot::{InputRecord, Lineage};

use crate::input::{ColumnCounts, Counts, Input, InputCounts, KindCounts, Layout, Reason, Source};

/// Fields of a report.
#[derive(Debug, Serialize)]
pub struct InputReport {
    inputs: Vec<InputRecord>,
    #[serde(skip_serializing_if = "is_zero")]
    more_inputs: u64,
    usable_by_kind: KindCounts,
    columns: Vec<ColumnReport>,
}

/// Values of a column in all inputs, without rows that are rejected as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnReport {
    pub name: String,
    /// As in `--column`.
    pub kinds: String,
    #[serde(flatten)]
    pub counts: ColumnCounts,
}

impl InputReport {
    pub fn of(input: &Input, counts: &InputCounts) -> Self {
        Self {
            inputs: records(&input.sources, counts),
            more_inputs: more(&input.sources),
            usable_by_kind: counts.total().usable,
            columns: columns(&input.layout, &counts.total()),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The first inputs, as in the manifest.
pub fn records(sources: &[Source], counts: &InputCounts) -> Vec<InputRecord> {
    let mut records = Vec::new();

    let inputs = sources.iter().zip(counts.of_sources());
    for (source, counts) in inputs.take(Lineage::MAX_INPUTS) {
        let stored = source.stored();
        let modified = stored.modified.map(humantime::format_rfc3339_millis);
        records.push(InputRecord {
            name: source.name(),
            size_bytes: stored.size_bytes,
            rows: counts.rows,
            usable: counts.keys,
            blank: counts.of(Reason::Blank),
            malformed: counts.malformed(),
            version: stored
                .version
                .or_else(|| modified.map(|time| time.to_string())),
        });
    }
    records
}

/// Number of inputs without a record.
pub const fn more(sources: &[Source]) -> u64 {
    sources.len().saturating_sub(Lineage::MAX_INPUTS) as u64
}

pub fn columns(layout: &Layout, counts: &Counts) -> Vec<ColumnReport> {
    let counts = counts
        .columns
        .iter()
        .cloned()
        .chain(std::iter::repeat(ColumnCounts::default()));
    let mut reports = Vec::new();
    for (column, mut counts) in layout.columns().iter().zip(counts) {
        if column.kinds.only().is_some() {
            counts.usable_by_kind = KindCounts::default();
        }
        reports.push(ColumnReport {
            name: column.name.clone(),
            kinds: column.kinds.to_string(),
            counts,
        });
    }
    reports
}

/// Adds the columns of another part of the same input.
pub fn add_columns(sums: &mut Vec<ColumnReport>, others: &[ColumnReport]) {
    for other in others {
        let is_same =
            |sum: &&mut ColumnReport| (&sum.name, &sum.kinds) == (&other.name, &other.kinds);
        match sums.iter_mut().find(is_same) {
            Some(sum) => sum.counts.add(&other.counts),
            None => sums.push(other.clone()),
        }
    }
}
