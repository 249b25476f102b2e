//! Snapshot builder: chunk files and a manifest from sorted, distinct keys.
//!
//! A chunk depends only on its keys and the filter's spec. The same keys give the same bytes, so
//! generations share unchanged chunks.

use serde::{Deserialize, Serialize};

use super::chunk::{ChunkEntry, HEADER_BYTES, encode_prefix, file_prefix_bytes};
use super::manifest::{BuildReport, Description, FillRatio, Manifest};
use super::name::{AudienceName, Digest};
use crate::device::{DeviceKey, SHARDS};
use crate::filter::{FilterSpec, fill_ratio};

/// Target size of a chunk. A few changed shards cost a small fetch; a snapshot of gigabytes has
/// hundreds of files.
const CHUNK_BYTES: u64 = 16 << 20;
/// 16 chunks even for a small audience, so that its rebuilds share chunks too.
const MAX_SHARDS_PER_CHUNK: u32 = 4096;
/// Largest prefix of a chunk file.
const MAX_PREFIX_BYTES: usize = file_prefix_bytes(MAX_SHARDS_PER_CHUNK) as usize;
const MIN_SHARDS_PER_CHUNK: u32 = 16;

/// Shards per chunk for an audience of `keys` keys: a power of two from 16 to 4,096.
pub fn shards_per_chunk(spec: &FilterSpec, keys: u64) -> u32 {
    let total_bytes = u128::from(keys) * u128::from(spec.millibits_per_key()) / 8000;
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
    pub stats: FillStats,
}

/// Fill statistics of a chunk's filters, as sums that a manifest builder merges. Serializable, so
/// that chunks and manifest can be built on different machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FillStats {
    min: f64,
    max: f64,
    sum: f64,
    shards: u32,
    fpr_sum: f64,
}

impl FillStats {
    const NONE: Self = Self { min: f64::INFINITY, max: 0.0, sum: 0.0, shards: 0, fpr_sum: 0.0 };

    fn of_shard(spec: &FilterSpec, filter: &[u8]) -> Self {
        let fill = fill_ratio(filter);
        Self { min: fill, max: fill, sum: fill, shards: 1, fpr_sum: spec.expected_fpr(filter) }
    }

    fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.shards = self.shards.saturating_add(other.shards);
        self.fpr_sum += other.fpr_sum;
    }
}

impl BuiltChunk {
    /// Builds the chunk of one run of sorted, distinct keys, from the first shard with a key to the
    /// last. Takes about 20 ns per key and the file's size in memory.
    ///
    /// # Panics
    ///
    /// If `keys` is empty, not sorted, or has duplicates.
    pub fn build(spec: &FilterSpec, keys: &[DeviceKey]) -> Self {
        let shards = || keys.chunk_by(|a, b| a.shard() == b.shard());
        let body_bytes: u64 = shards().map(|shard| spec.filter_bytes(shard.len() as u32)).sum();
        let mut chunk = ChunkBuilder::new(spec, body_bytes);
        for shard in shards() {
            chunk.add_shard(shard[0].shard(), shard.iter().copied());
        }
        chunk.finish().expect("a chunk has keys")
    }
}

/// Builds a chunk shard by shard, without the keys of all shards in memory at once.
#[derive(Debug)]
pub struct ChunkBuilder<'s> {
    spec: &'s FilterSpec,
    first_shard: u32,
    shard_keys: Vec<u32>,
    body: Vec<u8>,
    stats: FillStats,
}

impl<'s> ChunkBuilder<'s> {
    /// A builder without shards. `body_bytes` is the expected size of the filters, or more: unused
    /// memory is not touched.
    pub fn new(spec: &'s FilterSpec, body_bytes: u64) -> Self {
        let body = Vec::with_capacity(
            usize::try_from(body_bytes).expect("a chunk fits memory") + MAX_PREFIX_BYTES,
        );
        Self { spec, first_shard: 0, shard_keys: Vec::new(), body, stats: FillStats::NONE }
    }

    /// Adds a shard with its keys, at least one. Takes about 20 ns per key.
    ///
    /// # Panics
    ///
    /// If shards are not added in ascending order, or the keys are not sorted, distinct and of that
    /// shard.
    pub fn add_shard(&mut self, shard: u16, keys: impl ExactSizeIterator<Item = DeviceKey>) {
        let count = u32::try_from(keys.len()).expect("a shard holds fewer than 2³² keys");
        assert!(count > 0, "an added shard has keys");
        let shard = u32::from(shard);
        if self.shard_keys.is_empty() {
            self.first_shard = shard;
        }
        let next = self.first_shard + self.shard_keys.len() as u32;
        assert!(shard >= next, "shards are sorted and distinct");
        self.shard_keys.resize((shard - self.first_shard) as usize, 0);
        self.shard_keys.push(count);
        let start = self.body.len();
        self.body.resize(start + self.spec.filter_bytes(count) as usize, 0);
        let filter = &mut self.body[start..];
        let mut last: Option<DeviceKey> = None;
        for key in keys {
            assert!(last.is_none_or(|last| last < key), "keys are sorted and distinct");
            assert!(u32::from(key.shard()) == shard, "keys belong to the shard");
            self.spec.insert(filter, &key);
            last = Some(key);
        }
        self.stats.merge(&FillStats::of_shard(self.spec, filter));
    }

    /// Size of the filters added so far.
    pub const fn body_bytes(&self) -> u64 {
        self.body.len() as u64
    }

    /// The chunk; `None` if it has no keys.
    pub fn finish(self) -> Option<BuiltChunk> {
        let Self { spec, first_shard, shard_keys, body: mut bytes, stats } = self;
        if shard_keys.is_empty() {
            return None;
        }
        let mut prefix = Vec::new();
        encode_prefix(spec, first_shard, &shard_keys, &mut prefix);
        let body_bytes = bytes.len();
        bytes.resize(body_bytes + prefix.len(), 0);
        bytes.copy_within(..body_bytes, prefix.len());
        bytes[..prefix.len()].copy_from_slice(&prefix);
        Some(BuiltChunk { entry: entry_of(&bytes, first_shard, &shard_keys), bytes, stats })
    }
}

fn entry_of(file: &[u8], first_shard: u32, shard_keys: &[u32]) -> ChunkEntry {
    ChunkEntry {
        digest: Digest::of(file),
        first_shard,
        shard_count: shard_keys.len() as u32,
        keys: shard_keys.iter().map(|keys| u64::from(*keys)).sum(),
        size_bytes: file.len() as u64,
    }
}

/// The key count and the filter of each shard of a chunk file, in shard order. The filter of a
/// shard without keys is empty.
///
/// # Panics
///
/// If the file is not a verified chunk.
pub fn shards_of<'a>(
    spec: &'a FilterSpec,
    entry: &ChunkEntry,
    file: &'a [u8],
) -> impl Iterator<Item = (u32, &'a [u8])> {
    let counts =
        file[HEADER_BYTES..].as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count));
    let mut body = &file[file_prefix_bytes(entry.shard_count) as usize..];
    counts.take(entry.shard_count as usize).map(move |count| {
        let (filter, rest) = body.split_at(spec.filter_bytes(count) as usize);
        body = rest;
        (count, filter)
    })
}

impl BuiltChunk {
    /// A chunk with `keys` inserted into the filters of `chunk`, an entry and its verified file.
    /// Existing filters keep their size and become fuller. A shard that had no keys gets a filter
    /// sized for the new keys; the chunk is extended to cover it. Also returns the number of keys
    /// inserted beyond those that the filters are sized for.
    ///
    /// # Panics
    ///
    /// If `keys` are not sorted and distinct, or both `chunk` and `keys` are empty.
    pub fn grown(
        spec: &FilterSpec,
        chunk: Option<(&ChunkEntry, &[u8])>,
        keys: &[DeviceKey],
    ) -> (Self, u64) {
        assert!(keys.is_sorted_by(|a, b| a < b), "keys are sorted and distinct");
        let old = chunk.map(|(entry, _)| entry.first_shard..entry.first_shard + entry.shard_count);
        let old = old.unwrap_or(0..0);
        let bounds =
            [keys.first(), keys.last()].into_iter().flatten().map(|key| u32::from(key.shard()));
        let bounds =
            bounds.chain((!old.is_empty()).then(|| [old.start, old.end - 1]).into_iter().flatten());
        let (first, last) =
            bounds.fold((u32::MAX, 0), |(low, high), shard| (low.min(shard), high.max(shard)));
        assert!(first <= last, "a chunk has keys");
        let mut held: Vec<(u32, &[u8])> = vec![(0, &[]); (last - first) as usize + 1];
        if let Some((entry, file)) = chunk {
            let start = (old.start - first) as usize;
            for (held, shard) in held[start..].iter_mut().zip(shards_of(spec, entry, file)) {
                *held = shard;
            }
        }
        let mut new: Vec<&[DeviceKey]> = vec![&[]; held.len()];
        for shard in keys.chunk_by(|a, b| a.shard() == b.shard()) {
            new[(u32::from(shard[0].shard()) - first) as usize] = shard;
        }
        let count = |((held, _), new): (&(u32, &[u8]), &&[DeviceKey])| match held {
            0 => u32::try_from(new.len()).expect("a delta has fewer than 2³² keys"),
            held => *held,
        };
        let shard_keys: Vec<u32> = held.iter().zip(&new).map(count).collect();
        let mut bytes = Vec::new();
        encode_prefix(spec, first, &shard_keys, &mut bytes);
        let (mut stats, mut inserted) = (FillStats::NONE, 0);
        for ((count, (_, held)), new) in
            shard_keys.iter().zip(held).zip(new).filter(|((count, _), _)| **count > 0)
        {
            let start = bytes.len();
            bytes.extend_from_slice(held);
            bytes.resize(start + spec.filter_bytes(*count) as usize, 0);
            let filter = &mut bytes[start..];
            for key in new {
                inserted += u64::from(!held.is_empty() && !spec.contains(filter, key));
                spec.insert(filter, key);
            }
            stats.merge(&FillStats::of_shard(spec, filter));
        }
        (Self { entry: entry_of(&bytes, first, &shard_keys), bytes, stats }, inserted)
    }
}

/// The data of a chunk that a manifest needs, without the file's bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkRecord {
    /// The manifest's entry.
    pub entry: ChunkEntry,
    /// Fill of the filters.
    pub stats: FillStats,
}

impl BuiltChunk {
    /// The data that a manifest needs.
    pub fn record(&self) -> ChunkRecord {
        ChunkRecord { entry: self.entry.clone(), stats: self.stats }
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
        Self { filter, target_fpr, chunks: Vec::new() }
    }

    /// Adds a chunk; its bytes are not kept.
    pub fn add(&mut self, chunk: &BuiltChunk) {
        self.add_record(chunk.record());
    }

    /// Adds a chunk that was built earlier.
    pub fn add_record(&mut self, chunk: ChunkRecord) {
        self.chunks.push(chunk);
    }

    /// The manifest of `generation`. Statistics are summed in shard order: the result does not
    /// depend on the order of additions.
    pub fn finish(
        mut self,
        audience: AudienceName,
        generation: u64,
        created_unix_seconds: u64,
        build: BuildReport,
    ) -> Manifest {
        self.chunks.sort_by_key(|chunk| chunk.entry.first_shard);
        let mut stats = FillStats::NONE;
        for chunk in &self.chunks {
            stats.merge(&chunk.stats);
        }
        let fill_ratio = match stats.shards {
            0 => FillRatio { min: 0.0, mean: 0.0, max: 0.0 },
            shards => {
                FillRatio { min: stats.min, mean: stats.sum / f64::from(shards), max: stats.max }
            }
        };
        let description = Description {
            audience,
            generation,
            created_unix_seconds,
            filter: self.filter,
            target_fpr: self.target_fpr,
            expected_fpr: stats.fpr_sum / SHARDS as f64,
            fill_ratio,
            build,
        };
        Manifest::from_parts(
            description,
            self.chunks.into_iter().map(|chunk| chunk.entry).collect(),
        )
    }
}
