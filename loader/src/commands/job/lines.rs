//! Reports of the tasks, as lines of JSON, for `publish`.

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

use rtad_core::snapshot::ChunkRecord;

use super::super::carried::CarriedReport;
use super::super::input_report::{ColumnReport, add_columns};
use super::error::JobError;
use crate::input::{Counts, Reason};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum ReportLine {
    Keys(KeysLine),
    Chunks(PartLine),
}

/// Counts of a task that made keys of rows of one input.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysLine {
    /// Name of the file.
    pub input: String,
    pub rows: u64,
    pub columns: Vec<ColumnReport>,
}

/// Report of `chunk` for one part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartLine {
    pub part: u32,
    pub parts: u32,
    /// Keys read, duplicates included.
    pub read: u64,
    /// Distinct keys before removals, with those that deltas added.
    pub found: u64,
    /// Distinct keys after all changes.
    pub keys: u64,
    /// Keys added by deltas, including those in the input.
    pub added: u64,
    /// Keys removed by deltas and tombstones, present in the input or not.
    pub removed: u64,
    /// Carried changes, and those that the input undoes; `None` if they are unreadable.
    pub carried: Option<CarriedReport>,
    /// Keys that the sampled live chunks contain; `None` without readable ones.
    pub in_live: Option<u64>,
    pub chunks: Vec<ChunkLine>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkLine {
    pub record: ChunkRecord,
    /// Whether the chunk was written; otherwise it was there.
    pub written: bool,
    /// Whether a gc's delete of an older file may be on its way.
    pub renewed: bool,
}

impl KeysLine {
    /// The counts, for the limits of inputs.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts {
            rows: self.rows,
            values: self.rows * self.columns.len() as u64,
            ..Counts::default()
        };
        for column in &self.columns {
            counts.keys += column.counts.usable;
            counts.rejected[Reason::Blank as usize] += column.counts.blank;
            counts.rejected[Reason::Malformed as usize] += column.counts.malformed;
        }
        counts
    }

    /// Adds the counts of other rows.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        add_columns(&mut self.columns, &other.columns);
    }
}

/// Reads the lines of all tasks from stdin. Empty lines are passed over.
pub fn read(input: impl BufRead) -> Result<Vec<ReportLine>, JobError> {
    let mut lines = Vec::new();
    for (line, text) in (1..).zip(input.lines()) {
        let text = text.map_err(JobError::Stdin)?;
        if text.trim().is_empty() {
            continue;
        }
        // Without the parser's error: it quotes the line.
        let report =
            serde_json::from_str(&text).map_err(|_: serde_json::Error| JobError::Line { line })?;
        lines.push(report);
    }
    Ok(lines)
}

/// Reads the lines of all tasks from stdin.
pub fn read_stdin() -> Result<Vec<ReportLine>, JobError> {
    read(io::stdin().lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_line_is_not_quoted() {
        for text in [
            "727479405787894",
            "7AB40E09-1C3A-4E5C-9B1D-8D4C5E6F7A8B",
            "{\"what\":\"7AB40E09\"}",
            "{\"what\":\"keys\",\"input\":\"a\",\"rows\":\"7AB40E09\",\"columns\":[]}",
        ] {
            let error = read(format!("\n{text}\n").as_bytes()).unwrap_err();
            let expected = "stdin, line 2: expected a report of the Spark job or of `rtad-loader \
                            chunk` of this version";
            assert_eq!(error.to_string(), expected);
        }
    }
}
