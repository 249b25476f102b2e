//! Fill and expected rate of the filters, computed from the chunks.

use serde::Serialize;

use rtad_core::device::SHARDS;
use rtad_core::filter::{FilterKind, FilterSpec, fill_ratio};
use rtad_core::snapshot::{Chunk, ChunkShard};

/// Minimum, mean and maximum of a figure over the shards with keys; 0 without any such shard.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) max: f64,
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

/// Figures of one shard's filter.
#[derive(Debug, Clone, Copy)]
pub struct ShardFigures {
    /// Fraction of bits set; `None` for a ribbon filter.
    pub(crate) fill: Option<f64>,
    /// Fraction of keys outside the first tier; `None` for a Bloom filter.
    pub(crate) diverted: Option<f64>,
    pub(crate) expected_fpr: f64,
}

/// Statistics over the shards of chunks.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct FilterSurvey {
    pub(crate) shards: u32,
    /// The fill of Bloom filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fill: Option<Spread>,
    /// The diverted keys of ribbon filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) diverted: Option<Spread>,
    pub(crate) expected_fpr: Spread,
    #[serde(skip)]
    pub(crate) diverted_keys: u64,
    #[serde(skip)]
    pub(crate) listed_keys: u64,
}

impl FilterSurvey {
    pub fn add(&mut self, chunk: &Chunk) {
        for shard in chunk.shards() {
            self.add_shard(chunk.spec(), chunk.shard(shard));
        }
    }

    /// Adds a shard, unless it is empty. Returns its figures.
    pub fn add_shard(&mut self, spec: &FilterSpec, shard: ChunkShard<'_>) -> Option<ShardFigures> {
        if shard.filter.is_empty() {
            return None;
        }
        let is_ribbon = spec.kind() == FilterKind::Ribbon;
        let outside = || f64::from(shard.outside_first_tier()) / f64::from(shard.keys);
        let figures = ShardFigures {
            fill: (!is_ribbon).then(|| fill_ratio(shard.filter.bloom_bits())),
            diverted: is_ribbon.then(outside),
            expected_fpr: spec.expected_fpr(shard.shard, shard.filter),
        };
        self.shards += 1;
        for (spread, figure) in [
            (&mut self.fill, figures.fill),
            (&mut self.diverted, figures.diverted),
        ] {
            if let Some(figure) = figure {
                spread.get_or_insert_default().add(figure, self.shards);
            }
        }
        self.expected_fpr.add(figures.expected_fpr, self.shards);
        self.diverted_keys += u64::from(shard.diverted_keys);
        self.listed_keys += u64::from(shard.listed_keys);
        Some(figures)
    }

    /// False-positive rate of a random key; in shards without keys it is 0.
    pub fn overall_fpr(&self) -> f64 {
        self.expected_fpr.mean * f64::from(self.shards) / SHARDS as f64
    }
}
