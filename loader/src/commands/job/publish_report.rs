//! Report of `publish`.

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
    pub audience: String,
    pub generation: u64,
    pub signed: bool,
    pub keys: u64,
    pub rows: u64,
    pub values: u64,
    pub duplicates: u64,
    pub blank: u64,
    pub malformed: u64,
    pub columns: Vec<ColumnReport>,
    pub added: u64,
    pub removed: u64,
    pub expected_fpr: f64,
    pub size_bytes: u64,
    pub chunks: usize,
    pub chunks_written: usize,
    pub expires_unix_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<CarriedReport>,
    /// `None` without a readable live generation.
    pub overlap: Option<Overlap>,
    #[serde(flatten)]
    pub skew: Skew,
    #[serde(flatten)]
    pub lineage: Lineage,
    pub gate: Gate,
}

impl PublishReport {
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write_published(out, &self.audience, Some(self.generation), self.signed)?;
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
        let (blank, malformed) = (HumanCount(self.blank), HumanCount(self.malformed));
        writeln!(out, "  rejected    {blank} blank, {malformed} malformed")?;
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
