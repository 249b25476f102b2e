//! Report of `build`.

use serde::Serialize;

use rtad_core::snapshot::{FilterCheck, Lineage};

use super::super::audience_report::FilterReport;
use super::super::carried::CarriedReport;
use super::super::context::published;
use super::super::gate::Gate;
use super::super::input_report::ColumnReport;
use super::super::overlap::Overlap;
use super::super::skew::Skew;
use super::super::stage_args::PodShare;
use super::publish::BuildOutcome;
use super::stages::Stages;
use crate::input::{Counts, KindCounts, Reason};

/// The JSON object of `build --json`.
#[derive(Debug, Serialize)]
pub struct BuildSummary {
    audience: String,
    /// `None` in a dry run.
    generation: Option<u64>,
    dry_run: bool,
    /// The share of the pods that it is staged for; `None` for all.
    stage: Option<PodShare>,
    signed: bool,
    keys: u64,
    rows: u64,
    values: u64,
    usable: u64,
    usable_by_kind: KindCounts,
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
    pub added: u64,
    /// Keys of the input that were removed.
    pub removed: u64,
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

/// A finished build.
pub struct Finished<'a> {
    pub outcome: &'a BuildOutcome,
    pub counts: &'a Counts,
    pub columns: Vec<ColumnReport>,
    pub deltas: Changes,
    /// `None` if unreadable.
    pub carried: Option<CarriedReport>,
    /// `None` without a readable live generation.
    pub overlap: Option<Overlap>,
    pub gate: Gate,
    pub dry_run: bool,
    pub stage: Option<PodShare>,
    pub signed: bool,
    pub stages: Stages,
}

impl BuildSummary {
    pub fn of(build: Finished<'_>) -> Self {
        let Finished {
            outcome,
            counts,
            columns,
            deltas,
            carried,
            overlap,
            gate,
            dry_run,
            stage,
            signed,
            stages,
        } = build;

        let manifest = &outcome.manifest;
        Self {
            audience: manifest.audience().as_str().to_owned(),
            generation: (!dry_run).then_some(manifest.generation()),
            dry_run,
            stage,
            signed,
            keys: manifest.keys(),
            rows: counts.rows,
            values: counts.values,
            usable: counts.keys,
            usable_by_kind: counts.usable,
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
            check: manifest.diverted_and_listed_keys().map(|_| outcome.check),
            size_bytes: manifest.size_bytes(),
            chunks: manifest.chunks().len(),
            chunks_written: outcome.chunks_written,
            expires_unix_seconds: manifest.expires_unix_seconds(),
            lineage: manifest.lineage().cloned().unwrap_or_default(),
            columns,
            gate,
            read_seconds: stages.read_seconds,
            total_seconds: stages.total_seconds(),
            stages,
        }
    }

    pub fn headline(&self) -> String {
        let mut headline = published(&self.audience, self.generation, self.stage);
        if !self.gate.has_live() {
            headline += "; no generation of this audience was live in this store";
        }
        headline
    }
}
