//! Report of `publish`.

use serde::Serialize;

use rtad_core::snapshot::Lineage;

use super::super::carried::CarriedReport;
use super::super::gate::Gate;
use super::super::input_report::ColumnReport;
use super::super::overlap::Overlap;
use super::super::skew::Skew;
use super::super::stage_args::PodShare;

/// The JSON object of `publish --json`.
#[derive(Debug, Serialize)]
pub struct PublishReport {
    pub audience: String,
    pub generation: u64,
    /// The share of the pods that it is staged for; `None` for all.
    pub stage: Option<PodShare>,
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
