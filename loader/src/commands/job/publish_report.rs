//! Report of `publish`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_core::snapshot::Lineage;

use super::super::carried::CarriedReport;
use super::super::context::{write_chunks_written, write_published};
use super::super::gate::Gate;
use super::super::input_report::{ColumnReport, write_columns};
use super::super::lineage_args::labels_text;
use super::super::overlap::Overlap;
use super::super::skew::Skew;

/// The JSON object of `publish --json`.
#[derive(Debug, Serialize)]
pub struct PublishReport {
    pub(super) audience: String,
    /// `None` in a dry run.
    pub(super) generation: Option<u64>,
    pub(super) dry_run: bool,
    pub(super) signed: bool,
    pub(super) keys: u64,
    pub(super) rows: u64,
    pub(super) values: u64,
    pub(super) duplicates: u64,
    pub(super) rejected: BTreeMap<String, u64>,
    pub(super) columns: Vec<ColumnReport>,
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) expected_fpr: f64,
    pub(super) size_bytes: u64,
    pub(super) chunks: usize,
    pub(super) chunks_written: usize,
    pub(super) expires_unix_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) carried: Option<CarriedReport>,
    /// `None` without a readable live generation.
    pub(super) overlap: Option<Overlap>,
    #[serde(flatten)]
    pub(super) skew: Skew,
    #[serde(flatten)]
    pub(super) lineage: Lineage,
    pub(super) gate: Gate,
}

impl PublishReport {
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write_published(out, &self.audience, self.generation, self.signed)?;
        if !self.lineage.labels.is_empty() {
            writeln!(out, "  labels      {}", labels_text(&self.lineage))?;
        }
        let duplicates = HumanCount(self.duplicates);
        writeln!(out, "  rows        {}", HumanCount(self.rows))?;
        writeln!(
            out,
            "  keys        {} ({duplicates} duplicates)",
            HumanCount(self.keys)
        )?;
        let rejected: Vec<_> = self
            .rejected
            .iter()
            .map(|(why, n)| format!("{why} {}", HumanCount(*n)))
            .collect();
        if !rejected.is_empty() {
            writeln!(out, "  rejected    {}", rejected.join(", "))?;
        }
        write_columns(out, "  ", &self.columns)?;
        let (added, removed) = (HumanCount(self.added), HumanCount(self.removed));
        writeln!(out, "  deltas      {added} keys added, {removed} left out")?;
        writeln!(
            out,
            "  size        {} in {} chunks",
            HumanBytes(self.size_bytes),
            self.chunks
        )?;
        write_chunks_written(out, Some(self.chunks_written), self.chunks)?;
        writeln!(out, "  fpr         {:.3e} expected", self.expected_fpr)?;
        if let Some(carried) = &self.carried {
            carried.write_text(out)?;
        }
        if let Some(overlap) = &self.overlap {
            overlap.write_text(out)?;
        }
        self.gate.write_text(out)
    }
}
