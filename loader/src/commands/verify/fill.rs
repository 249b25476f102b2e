//! Fill of the filters, computed from the chunks.

use serde::Serialize;

use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterSpec, fill_ratio};
use rtad_core::snapshot::Chunk;

/// Minimum, mean and maximum of a figure over the shards with keys; 0 without any such shard.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
}

impl Spread {
    fn add(&mut self, figure: f64, count: u32) {
        self.min = if count == 1 { figure } else { self.min.min(figure) };
        self.max = self.max.max(figure);
        self.mean += (figure - self.mean) / f64::from(count);
    }
}

/// Fill statistics over the shards of chunks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct FillSurvey {
    pub(crate) shards: u32,
    pub(crate) fill: Spread,
    /// False-positive rate by fill.
    pub(crate) expected_fpr: Spread,
}

impl FillSurvey {
    pub(crate) fn add(&mut self, spec: &FilterSpec, chunk: &Chunk) {
        for (_, range) in chunk.shards() {
            self.add_shard(spec, &chunk.filters()[range]);
        }
    }

    /// Adds a shard's filter, unless it is empty. Returns its fill and its false-positive rate.
    pub(crate) fn add_shard(&mut self, spec: &FilterSpec, filter: &[u8]) -> Option<(f64, f64)> {
        if filter.is_empty() {
            return None;
        }
        let (fill, fpr) = (fill_ratio(filter), spec.expected_fpr(filter));
        self.shards += 1;
        self.fill.add(fill, self.shards);
        self.expected_fpr.add(fpr, self.shards);
        Some((fill, fpr))
    }

    /// False-positive rate of a random key; in shards without keys it is 0.
    pub(crate) fn overall_fpr(&self) -> f64 {
        self.expected_fpr.mean * f64::from(self.shards) / SHARDS as f64
    }
}
