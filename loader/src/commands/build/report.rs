//! Report of `build`.

use std::io::{self, Write};

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;

use rtad_core::snapshot::{FilterCheck, Lineage};

use super::super::audience_report::FilterReport;
use super::super::carried::CarriedReport;
use super::super::context::{write_chunks_written, write_published};
use super::super::gate::Gate;
use super::super::input_report::{ColumnReport, write_columns, write_inputs};
use super::super::lineage_args::{labels_text, rfc3339};
use super::super::overlap::Overlap;
use super::super::skew::Skew;
use super::publish::BuildOutcome;
use super::stages::Stages;
use crate::input::{Counts, Reason};

/// The JSON object of `build --json`.
#[derive(Debug, Serialize)]
pub struct BuildSummary {
    audience: String,
    /// `None` in a dry run.
    generation: Option<u64>,
    dry_run: bool,
    signed: bool,
    keys: u64,
    rows: u64,
    values: u64,
    usable: u64,
    duplicates: u64,
    blank: u64,
    rejected: RejectedCounts,
    deltas: Changes,
    /// `None` if unreadable.
    carried: Option<CarriedReport>,
    /// `None` without a readable live generation.
    overlap: Option<Overlap>,
    #[serde(flatten)]
    skew: Skew,
    #[serde(flatten)]
    filter: FilterReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<FilterCheck>,
    size_bytes: u64,
    chunks: usize,
    chunks_written: u64,
    expires_unix_seconds: Option<u64>,
    /// Labels, and counts by input.
    #[serde(flatten)]
    lineage: Lineage,
    columns: Vec<ColumnReport>,
    gate: Gate,
    read_seconds: f64,
    total_seconds: f64,
    stages: Stages,
}

/// Changes to the input by deltas and tombstones.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Changes {
    /// Appended keys, including those in the input.
    pub(super) added: u64,
    /// Keys of the input that were removed.
    pub(super) removed: u64,
}

/// Unusable values by reason, without the blank ones.
#[derive(Debug, Serialize)]
struct RejectedCounts {
    total: u64,
    malformed: u64,
    too_long: u64,
    row_length: u64,
    open_quote: u64,
    value: u64,
}

impl BuildSummary {
    pub fn new(
        done: &BuildOutcome,
        (counts, columns): (&Counts, Vec<ColumnReport>),
        (deltas, carried, overlap): (Changes, Option<CarriedReport>, Option<Overlap>),
        gate: Gate,
        (dry_run, signed): (bool, bool),
        stages: Stages,
    ) -> Self {
        let manifest = &done.manifest;
        Self {
            audience: manifest.audience().as_str().to_owned(),
            generation: (!dry_run).then_some(manifest.generation()),
            dry_run,
            signed,
            keys: manifest.keys(),
            rows: counts.rows,
            values: counts.values,
            usable: counts.keys,
            duplicates: manifest.build().duplicates,
            blank: counts.of(Reason::Blank),
            rejected: RejectedCounts {
                total: counts.malformed(),
                malformed: counts.of(Reason::Malformed),
                too_long: counts.of(Reason::TooLong),
                row_length: counts.of(Reason::RowLength),
                open_quote: counts.of(Reason::OpenQuote),
                value: counts.of(Reason::Value),
            },
            deltas,
            carried,
            overlap,
            skew: Skew::of(manifest),
            filter: FilterReport::of(manifest),
            check: manifest.diverted_and_listed_keys().map(|_| done.check),
            size_bytes: manifest.size_bytes(),
            chunks: manifest.chunks().len(),
            chunks_written: done.chunks_written,
            expires_unix_seconds: manifest.expires_unix_seconds(),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            columns,
            gate,
            read_seconds: stages.read_seconds,
            total_seconds: stages.total_seconds(),
            stages,
        }
    }

    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        write_published(out, &self.audience, self.generation, self.signed)?;
        if !self.gate.has_live() {
            writeln!(
                out,
                "  first       no generation of this audience was live in this store"
            )?;
        }
        if !self.lineage.labels.is_empty() {
            writeln!(out, "  labels      {}", labels_text(&self.lineage))?;
        }
        write_inputs(out, "  ", &self.lineage.inputs)?;
        write_columns(out, "  ", &self.columns)?;
        let RejectedCounts {
            malformed,
            too_long,
            row_length,
            open_quote,
            value,
            ..
        } = self.rejected;
        let (malformed, too_long) = (HumanCount(malformed), HumanCount(too_long));
        let (row_length, open_quote) = (HumanCount(row_length), HumanCount(open_quote));
        writeln!(out, "  rows        {}", HumanCount(self.rows))?;
        let (keys, duplicates) = (HumanCount(self.keys), HumanCount(self.duplicates));
        writeln!(out, "  keys        {keys} ({duplicates} duplicates)")?;
        writeln!(out, "  blank       {}", HumanCount(self.blank))?;
        writeln!(
            out,
            "  malformed   {malformed}, too long {too_long}, row length {row_length}, \
             quote open {open_quote}"
        )?;
        if self.filter.value_bits.is_some() {
            writeln!(
                out,
                "  values      0 to 15; {} rows without one",
                HumanCount(value)
            )?;
        }
        writeln!(
            out,
            "  size        {} in {} chunks",
            HumanBytes(self.size_bytes),
            self.chunks
        )?;
        let written = (!self.dry_run).then_some(self.chunks_written as usize);
        write_chunks_written(out, written, self.chunks)?;
        let FilterReport {
            target_fpr,
            expected_fpr,
            ..
        } = self.filter;
        writeln!(
            out,
            "  fpr         {expected_fpr:.3e} expected, {target_fpr:.3e} requested"
        )?;
        if let Some(expires) = self.expires_unix_seconds {
            writeln!(out, "  expires     {}", rfc3339(expires))?;
        }
        if let Some(carried) = &self.carried {
            carried.write_text(out)?;
        }
        if let Some(overlap) = &self.overlap {
            overlap.write_text(out)?;
        }
        self.gate.write_text(out)?;
        let Stages {
            read_seconds,
            sort_seconds,
            chunk_seconds,
            spilled_bytes,
            peak_memory_bytes,
            ..
        } = self.stages;
        writeln!(out, "  time        {:.1} s", self.total_seconds)?;
        let (read, sort, chunk) = (read_seconds, sort_seconds, chunk_seconds);
        writeln!(
            out,
            "              reading {read:.1} s, sorting {sort:.1} s, chunks {chunk:.1} s"
        )?;
        let peak =
            peak_memory_bytes.map_or_else(|| "?".to_owned(), |bytes| HumanBytes(bytes).to_string());
        writeln!(
            out,
            "  memory      {peak} at most, {} spilled to disk",
            HumanBytes(spilled_bytes)
        )
    }
}
