//! Fill and expected rate of the filters, computed from the chunks.

use serde::Serialize;

use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec, fill_ratio};
use rtad_core::snapshot::{Chunk, ChunkShard};

/// Minimum, mean and maximum of a figure over the shards with keys; 0 without any such shard.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
}

impl Spread {
    fn add(&mut self, figure: f64, count: u32) {
        self.min = if count == 1 {
            figure
        } else {
            self.min.min(figure)
        };
        self.max = self.max.max(figure);
        self.mean += (figure - self.mean) / f64::from(count);
    }
}

/// Statistics over the shards of chunks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FilterSurvey {
    pub shards: u32,
    /// The fill of Bloom filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Spread>,
    /// The diverted keys of ribbon filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diverted: Option<Spread>,
    pub expected_fpr: Spread,
    #[serde(skip)]
    pub diverted_keys: u64,
    #[serde(skip)]
    pub listed_keys: u64,
}

impl FilterSurvey {
    pub fn add(&mut self, chunk: &Chunk) {
        for shard in chunk.shards() {
            self.add_shard(chunk.spec(), chunk.shard(shard));
        }
    }

    /// Adds a shard, unless it is empty.
    pub fn add_shard(&mut self, spec: &FilterSpec, shard: ChunkShard<'_>) {
        if shard.filter.is_empty() {
            return;
        }
        self.shards += 1;

        if spec.kind() == FilterKind::Ribbon {
            let diverted = f64::from(shard.outside_first_tier()) / f64::from(shard.keys);
            let spread = self.diverted.get_or_insert_default();
            spread.add(diverted, self.shards);
        } else {
            let fill = fill_ratio(shard.filter.bloom_bits());
            self.fill.get_or_insert_default().add(fill, self.shards);
        }

        let expected_fpr = spec.expected_fpr(shard.shard, shard.filter);
        self.expected_fpr.add(expected_fpr, self.shards);
        self.diverted_keys += u64::from(shard.diverted_keys);
        self.listed_keys += u64::from(shard.listed_keys);
    }

    /// False-positive rate of a random key; in shards without keys it is 0.
    pub fn overall_fpr(&self) -> f64 {
        self.expected_fpr.mean * f64::from(self.shards) / SHARDS as f64
    }
}
