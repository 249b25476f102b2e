//! Report of `dedup`.

use std::io;

use indicatif::HumanCount;
use serde::Serialize;

use rtad_cli::command_error::CommandError;

use super::super::context::Output;
use super::super::input_report::InputReport;
use super::super::report_text::write_report;
use crate::input::{Counts, Reason};

/// JSON object of `dedup`.
#[derive(Debug, Serialize)]
pub struct DedupReport {
    rows: u64,
    /// Distinct ids.
    first_seen: u64,
    duplicates: u64,
    blank: u64,
    malformed: u64,
    #[serde(flatten)]
    inputs: InputReport,
}

impl DedupReport {
    pub fn new(counts: &Counts, inputs: InputReport, first_seen: u64) -> Self {
        let unusable: u64 = counts.rejected.iter().sum();
        // Several spellings in one row are one id; several columns may hold several ids.
        let usable = (counts.values - unusable).min(counts.keys);
        Self {
            rows: counts.rows,
            first_seen,
            duplicates: usable.saturating_sub(first_seen),
            blank: counts.of(Reason::Blank),
            malformed: counts.malformed(),
            inputs,
        }
    }

    /// Writes the report: JSON to stdout, text to stderr, beside the ids.
    pub fn write(&self, output: &Output) -> Result<(), CommandError> {
        let headline = format!("{} distinct ids", HumanCount(self.first_seen));
        if output.json {
            return output.facts(&headline, self);
        }
        if output.quiet {
            return Ok(());
        }
        let mut errors = io::stderr().lock();
        write_report(&mut errors, &headline, self).map_err(CommandError::output)
    }
}
