//! Snapshot builder: chunk files and a manifest from sorted, distinct keys.
//!
//! A chunk depends only on its keys and the filter's spec. The same keys give the same bytes, so
//! generations share unchanged chunks.

use serde::{Deserialize, Serialize};

use super::chunk::{
    BodyLayout, ChunkEntry, ChunkShard, counts_of, encode_prefix, file_prefix_bytes,
};
use super::filter_stats::{FilterCheck, FilterStats, RibbonStats};
use super::json::ManifestError;
use super::manifest::{Description, Figures, FillRatio, GenerationFacts, Manifest, OverflowKeys};
use super::name::{AudienceName, Digest};
use crate::device::{DeviceKey, SHARDS};
use crate::filter::{FilterKind, FilterSpec, RibbonBuilder, ShardCounts, ShardFilter};

/// Target size of a chunk. A few changed shards cost a small fetch; a snapshot of gigabytes has
/// hundreds of files.
pub const CHUNK_BYTES: u64 = 16 << 20;
/// 16 chunks even for a small audience, so that its rebuilds share chunks too.
pub const MAX_SHARDS_PER_CHUNK: u32 = 4096;
/// Largest prefix of a chunk file.
const MAX_PREFIX_BYTES: usize =
    file_prefix_bytes(FilterKind::Ribbon, MAX_SHARDS_PER_CHUNK) as usize;
const MIN_SHARDS_PER_CHUNK: u32 = 16;

/// Shards per chunk for an audience of `keys` keys: a power of two from 16 to 4,096.
pub fn shards_per_chunk(spec: &FilterSpec, keys: u64) -> u32 {
    let millibits = spec.millibits_per_key() + 1000 * spec.value_bits();
    let total_bytes = u128::from(keys) * u128::from(millibits) / 8000;
    let mut shards = MAX_SHARDS_PER_CHUNK;
    while shards > MIN_SHARDS_PER_CHUNK
        && total_bytes * u128::from(shards) / SHARDS as u128 > u128::from(CHUNK_BYTES)
    {
        shards /= 2;
    }
    shards
}

/// Splits sorted keys into runs of `shards_per_chunk` shards, aligned to that number. Omits empty
/// runs.
pub fn chunk_runs(keys: &[DeviceKey], shards_per_chunk: u32) -> impl Iterator<Item = &[DeviceKey]> {
    keys.chunk_by(move |a, b| {
        u32::from(a.shard()) / shards_per_chunk == u32::from(b.shard()) / shards_per_chunk
    })
}

/// A chunk file with its manifest entry.
#[derive(Debug)]
pub struct BuiltChunk {
    /// The manifest's entry.
    pub entry: ChunkEntry,
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Fill of the filters, for the manifest.
    pub stats: FilterStats,
}

impl BuiltChunk {
    /// Builds the chunk of one run of sorted, distinct keys, from the first shard with a key to the
    /// last. Takes about 20 ns per key and the file's size in memory.
    ///
    /// # Panics
    ///
    /// If `keys` is empty, not sorted, or has duplicates. If the filters hold values.
    pub fn build(spec: &FilterSpec, keys: &[DeviceKey]) -> Self {
        assert_eq!(
            spec.value_bits(),
            0,
            "keys without values go into filters without them"
        );
        Self::build_with_values(spec, keys, |_| 0)
    }

    /// The same as [`BuiltChunk::build`] for filters that hold the `value` of each key, 0 to 15.
    pub fn build_with_values(
        spec: &FilterSpec,
        keys: &[DeviceKey],
        value: impl Fn(&DeviceKey) -> u8,
    ) -> Self {
        let shards = || keys.chunk_by(|a, b| a.shard() == b.shard());
        let body_bytes: u64 = shards()
            .map(|shard| spec.filter_bytes(shard.len() as u32))
            .sum();
        let mut chunk = ChunkBuilder::new(spec, body_bytes);
        for shard in shards() {
            chunk.add_members(shard[0].shard(), shard.iter().map(|key| (*key, value(key))));
        }
        chunk.finish().expect("a chunk has keys")
    }
}

/// Builds a chunk shard by shard, without the keys of all shards in memory at once.
#[derive(Debug)]
pub struct ChunkBuilder<'s> {
    spec: &'s FilterSpec,
    first_shard: u32,
    counts: Vec<ShardCounts>,
    /// Filters of all shards: first parts, then, of ribbon, second tiers and lists.
    parts: [Vec<u8>; 3],
    ribbon: RibbonBuilder,
    stats: FilterStats,
}

impl<'s> ChunkBuilder<'s> {
    /// A builder without shards. `body_bytes` is the expected size of the filters, or more: unused
    /// memory is not touched.
    pub fn new(spec: &'s FilterSpec, body_bytes: u64) -> Self {
        let first = Vec::with_capacity(
            usize::try_from(body_bytes).expect("a chunk fits memory") + MAX_PREFIX_BYTES,
        );
        Self {
            spec,
            first_shard: 0,
            counts: Vec::new(),
            parts: [first, Vec::new(), Vec::new()],
            ribbon: RibbonBuilder::default(),
            stats: FilterStats::NONE,
        }
    }

    /// Adds a shard with its keys, at least one. Takes about 20 ns per key, for ribbon 50.
    ///
    /// # Panics
    ///
    /// If shards are not added in ascending order, or the keys are not sorted, distinct and of that
    /// shard. If the filters hold values.
    pub fn add_shard(
        &mut self,
        shard: u16,
        keys: impl ExactSizeIterator<Item = DeviceKey> + Clone,
    ) {
        assert_eq!(
            self.spec.value_bits(),
            0,
            "keys without values go into filters without them"
        );
        self.add_members(shard, keys.map(|key| (key, 0)));
    }

    /// Adds a shard with its keys and their values, 0 to 15: see [`ChunkBuilder::add_shard`].
    ///
    /// # Panics
    ///
    /// Like [`ChunkBuilder::add_shard`]. If the filters hold no values.
    pub fn add_shard_with_values(
        &mut self,
        shard: u16,
        members: impl ExactSizeIterator<Item = (DeviceKey, u8)> + Clone,
    ) {
        assert!(
            self.spec.value_bits() > 0,
            "values go into filters that hold them"
        );
        self.add_members(shard, members);
    }

    fn add_members(
        &mut self,
        shard: u16,
        members: impl ExactSizeIterator<Item = (DeviceKey, u8)> + Clone,
    ) {
        let count = u32::try_from(members.len()).expect("a shard holds fewer than 2³² keys");
        assert!(count > 0, "an added shard has keys");
        if self.counts.is_empty() {
            self.first_shard = shard.into();
        }
        let next = self.first_shard + self.counts.len() as u32;
        assert!(u32::from(shard) >= next, "shards are sorted and distinct");
        self.counts.resize(
            (u32::from(shard) - self.first_shard) as usize,
            ShardCounts::default(),
        );

        let mut last: Option<DeviceKey> = None;
        let checked = members.clone().inspect(|(key, _)| {
            assert!(
                last.is_none_or(|last| last < *key),
                "keys are sorted and distinct"
            );
            assert!(key.shard() == shard, "keys belong to the shard");
            last = Some(*key);
        });

        let starts = self.parts.each_ref().map(Vec::len);
        let counts = if self.spec.kind() == FilterKind::Ribbon {
            self.ribbon
                .build(self.spec, shard, checked, self.parts.each_mut())
        } else {
            let [first, ..] = &mut self.parts;
            first.resize(starts[0] + self.spec.filter_bytes(count) as usize, 0);
            let filter = &mut first[starts[0]..];
            checked.for_each(|(key, _)| self.spec.insert(filter, &key));
            ShardCounts {
                keys: count,
                ..ShardCounts::default()
            }
        };

        self.counts.push(counts);
        let [first, second, list] = [0, 1, 2].map(|part| &self.parts[part][starts[part]..]);
        self.stats
            .merge(&if self.spec.kind() == FilterKind::Ribbon {
                let filter = ShardFilter {
                    first,
                    second,
                    list,
                };
                FilterStats::of_ribbon(self.spec, shard, counts, filter, members)
            } else {
                FilterStats::of_bloom(self.spec, shard, first)
            });
    }

    /// The spec of the filters.
    pub const fn spec(&self) -> &'s FilterSpec {
        self.spec
    }

    /// Size of the filters added so far.
    pub fn body_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// The chunk; `None` if it has no keys.
    pub fn finish(self) -> Option<BuiltChunk> {
        if self.counts.is_empty() {
            return None;
        }
        let body_bytes = self.body_bytes();
        let Self {
            spec,
            first_shard,
            counts,
            parts: [mut bytes, second, list],
            stats,
            ..
        } = self;

        let mut prefix = Vec::new();
        encode_prefix(spec, first_shard, &counts, body_bytes, &mut prefix);
        let first_bytes = bytes.len();
        bytes.resize(first_bytes + prefix.len(), 0);
        bytes.copy_within(..first_bytes, prefix.len());
        bytes[..prefix.len()].copy_from_slice(&prefix);
        bytes.extend_from_slice(&second);
        bytes.extend_from_slice(&list);
        Some(BuiltChunk {
            entry: entry_of(&bytes, first_shard, &counts),
            bytes,
            stats,
        })
    }
}

fn entry_of(file: &[u8], first_shard: u32, counts: &[ShardCounts]) -> ChunkEntry {
    ChunkEntry {
        digest: Digest::of(file),
        first_shard,
        shard_count: counts.len() as u32,
        keys: counts.iter().map(|counts| u64::from(counts.keys)).sum(),
        size_bytes: file.len() as u64,
    }
}

/// The shards of a chunk file, in order.
///
/// # Panics
///
/// If the file is not a verified chunk.
pub fn shards_of<'a>(
    spec: &FilterSpec,
    entry: &ChunkEntry,
    file: &'a [u8],
) -> impl Iterator<Item = ChunkShard<'a>> {
    let kind = spec.kind();
    let counts = || counts_of(kind, entry.shard_count, file);
    let (layout, _) = BodyLayout::new(spec, entry.first_shard, counts());
    let body = &file[file_prefix_bytes(kind, entry.shard_count) as usize..];
    let shards = (entry.first_shard as u16..=u16::MAX)
        .zip(counts())
        .enumerate();
    shards.map(move |(index, (shard, counts))| {
        ChunkShard::new(shard, counts, layout.filter(index, body))
    })
}

/// The data of a chunk that a manifest needs, without the file's bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkRecord {
    /// The manifest's entry.
    pub entry: ChunkEntry,
    /// Fill of the filters.
    pub stats: FilterStats,
}

impl BuiltChunk {
    /// The data that a manifest needs.
    pub fn record(&self) -> ChunkRecord {
        ChunkRecord {
            entry: self.entry.clone(),
            stats: self.stats,
        }
    }
}

/// Collects chunks, in any order, into a manifest.
#[derive(Debug)]
pub struct ManifestBuilder {
    filter: FilterSpec,
    target_fpr: f64,
    chunks: Vec<ChunkRecord>,
}

impl ManifestBuilder {
    /// A builder without chunks, for filters of this spec sized for this false-positive rate.
    pub const fn new(filter: FilterSpec, target_fpr: f64) -> Self {
        Self {
            filter,
            target_fpr,
            chunks: Vec::new(),
        }
    }

    /// Adds a chunk; its bytes are not kept.
    pub fn add(&mut self, chunk: &BuiltChunk) {
        self.add_record(chunk.record());
    }

    /// Adds a chunk that was built earlier.
    pub fn add_record(&mut self, chunk: ChunkRecord) {
        self.chunks.push(chunk);
    }

    /// The check of static filters; zeros for others.
    pub fn check(&self) -> FilterCheck {
        let mut sum = RibbonStats::default();
        for ribbon in self.chunks.iter().filter_map(|chunk| chunk.stats.ribbon) {
            sum.merge(&ribbon);
        }
        sum.check
    }

    /// The manifest, whose generation is numbered by its publication. Statistics are summed in
    /// shard order: the result does not depend on the order of additions.
    ///
    /// # Errors
    ///
    /// [`ManifestError`] if readers would refuse it.
    pub fn finish(
        mut self,
        audience: AudienceName,
        facts: GenerationFacts,
    ) -> Result<Manifest, ManifestError> {
        self.chunks.sort_by_key(|chunk| chunk.entry.first_shard);
        let mut stats = FilterStats::NONE;
        for chunk in &self.chunks {
            stats.merge(&chunk.stats);
        }
        let fill_ratio = match stats.shards {
            0 => FillRatio {
                min: 0.0,
                mean: 0.0,
                max: 0.0,
            },
            shards => FillRatio {
                min: stats.min,
                mean: stats.sum / f64::from(shards),
                max: stats.max,
            },
        };

        let figures = match self.filter.kind() {
            FilterKind::Ribbon => {
                let RibbonStats {
                    diverted_keys,
                    listed_keys,
                    ..
                } = stats.ribbon.unwrap_or_default();
                Figures::Ribbon(OverflowKeys {
                    diverted_keys,
                    listed_keys,
                })
            }
            _ => Figures::Bloom(fill_ratio),
        };

        let description = Description {
            audience,
            filter: self.filter,
            target_fpr: self.target_fpr,
            expected_fpr: stats.fpr_sum / SHARDS as f64,
            figures,
            facts,
        };

        Manifest::from_parts(
            description,
            self.chunks.into_iter().map(|chunk| chunk.entry).collect(),
        )
    }
}
