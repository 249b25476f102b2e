//! Report of `publish`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_core::snapshot::{Lineage, Manifest};

use super::super::carried::CarriedReport;
use super::super::context::{write_chunks_written, write_published};
use super::super::gate::Gate;
use super::super::lineage_args::labels_text;
use super::super::overlap::Overlap;
use super::super::skew::Skew;
use super::publish::StepReports;

/// The JSON object of `publish --json`.
#[derive(Debug, Serialize)]
pub(super) struct PublishReport {
    audience: String,
    /// `None` in a dry run.
    generation: Option<u64>,
    dry_run: bool,
    signed: bool,
    keys: u64,
    rows: u64,
    values: u64,
    duplicates: u64,
    rejected: BTreeMap<String, u64>,
    added: u64,
    removed: u64,
    expected_fpr: f64,
    size_bytes: u64,
    chunks: usize,
    chunks_written: usize,
    expires_unix_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    carried: Option<CarriedReport>,
    /// `None` without a readable live generation.
    overlap: Option<Overlap>,
    #[serde(flatten)]
    skew: Skew,
    #[serde(flatten)]
    lineage: Lineage,
    gate: Gate,
}

impl PublishReport {
    pub(super) fn new(
        manifest: &Manifest,
        reported: &StepReports,
        gate: Gate,
        (carried, overlap): (Option<CarriedReport>, Option<Overlap>),
        (dry_run, signed): (bool, bool),
    ) -> Self {
        let StepReports { read, distinct, chunks, .. } = reported;
        Self {
            audience: manifest.audience().as_str().to_owned(),
            generation: (!dry_run).then_some(manifest.generation()),
            dry_run,
            signed: signed && !dry_run,
            keys: manifest.keys(),
            rows: read.rows,
            values: read.values,
            duplicates: reported.duplicates(),
            rejected: read.rejected.clone(),
            added: distinct.changes.added,
            removed: distinct.found.saturating_sub(distinct.keys),
            expected_fpr: manifest.expected_fpr(),
            size_bytes: manifest.size_bytes(),
            chunks: chunks.len(),
            chunks_written: chunks.values().filter(|line| line.written).count(),
            expires_unix_seconds: manifest.expires_unix_seconds(),
            carried,
            overlap,
            skew: Skew::of(manifest),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            gate,
        }
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write_published(out, &self.audience, self.generation, self.signed)?;
        if !self.lineage.labels.is_empty() {
            writeln!(out, "  labels      {}", labels_text(&self.lineage))?;
        }
        let duplicates = HumanCount(self.duplicates);
        writeln!(out, "  rows        {}", HumanCount(self.rows))?;
        writeln!(out, "  keys        {} ({duplicates} duplicates)", HumanCount(self.keys))?;
        let rejected: Vec<_> =
            self.rejected.iter().map(|(why, count)| format!("{why} {count}")).collect();
        if !rejected.is_empty() {
            writeln!(out, "  rejected    {}", rejected.join(", "))?;
        }
        let (added, removed) = (HumanCount(self.added), HumanCount(self.removed));
        writeln!(out, "  deltas      {added} keys added, {removed} left out")?;
        writeln!(out, "  size        {} in {} chunks", HumanBytes(self.size_bytes), self.chunks)?;
        write_chunks_written(out, self.chunks_written, self.chunks)?;
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
