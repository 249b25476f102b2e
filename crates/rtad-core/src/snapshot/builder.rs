//! From sorted, distinct keys to the files of a snapshot.
//!
//! A chunk depends on nothing but its keys and the filter's spec: the same keys give the same
//! bytes, whatever the order they were read in, the number of threads or the time of day. That is
//! what lets unchanged chunks be shared.

use serde::{Deserialize, Serialize};

use super::chunk::{ChunkEntry, HEADER_BYTES, encode_prefix, file_prefix_bytes};
use super::manifest::{BuildReport, Description, FillRatio, Manifest};
use super::name::{AudienceName, Digest};
use crate::device::{DeviceKey, SHARDS};
use crate::filter::{FilterSpec, fill_ratio};

/// Chunks are about this large: small enough that a few changed shards do not cost a large fetch,
/// large enough that a snapshot of gigabytes is hundreds of files and not ten thousands.
const CHUNK_BYTES: u64 = 16 << 20;
/// Even a small audience is cut into 16, so that a rebuild of it can share chunks too.
const MAX_SHARDS_PER_CHUNK: u32 = 4096;
/// What stands before a chunk's filters at most, if it has that many shards.
const PREFIX_ROOM: usize = file_prefix_bytes(MAX_SHARDS_PER_CHUNK) as usize;
const MIN_SHARDS_PER_CHUNK: u32 = 16;

/// How many neighbouring shards share a chunk when `keys` keys are dealt out evenly: a power of two
/// from 16 to 4,096.
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

/// Cuts sorted keys into runs of `shards_per_chunk` shards that start at a multiple of it. Runs
/// without keys are left out.
pub fn chunk_runs(keys: &[DeviceKey], shards_per_chunk: u32) -> impl Iterator<Item = &[DeviceKey]> {
    keys.chunk_by(move |a, b| {
        u32::from(a.shard()) / shards_per_chunk == u32::from(b.shard()) / shards_per_chunk
    })
}

/// A chunk's file and what the manifest says of it.
#[derive(Debug)]
pub struct BuiltChunk {
    /// The manifest's entry.
    pub entry: ChunkEntry,
    /// The file's bytes.
    pub bytes: Vec<u8>,
    /// Fill of its filters, for the manifest.
    pub stats: FillStats,
}

/// How full a chunk's filters are, in sums: what a manifest states is put together of the chunks'
/// sums. Can be written down and read again, for a manifest that is made elsewhere than its chunks.
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

    /// Of one shard.
    fn of(spec: &FilterSpec, filter: &[u8]) -> Self {
        let fill = fill_ratio(filter);
        Self { min: fill, max: fill, sum: fill, shards: 1, fpr_sum: spec.expected_fpr(filter) }
    }

    fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.shards += other.shards;
        self.fpr_sum += other.fpr_sum;
    }
}

impl BuiltChunk {
    /// Builds the chunk of one run of keys, sorted and distinct. It reaches from the first shard
    /// that has a key to the last. Takes about 20 ns a key and the file's size in memory.
    ///
    /// # Panics
    ///
    /// If `keys` is empty, not sorted, or holds a key twice: the caller's mistake, which would cost
    /// exactness silently.
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

/// A chunk that is built shard by shard, so that the keys of all its shards need not be in memory
/// at once.
#[derive(Debug)]
pub struct ChunkBuilder<'s> {
    spec: &'s FilterSpec,
    first_shard: u32,
    shard_keys: Vec<u32>,
    body: Vec<u8>,
    stats: FillStats,
}

impl<'s> ChunkBuilder<'s> {
    /// A chunk without shards. `body_bytes` is what its filters are expected to take, or more:
    /// memory that is not filled is not touched.
    pub fn new(spec: &'s FilterSpec, body_bytes: u64) -> Self {
        let body = Vec::with_capacity(
            usize::try_from(body_bytes).expect("a chunk fits memory") + PREFIX_ROOM,
        );
        Self { spec, first_shard: 0, shard_keys: Vec::new(), body, stats: FillStats::NONE }
    }

    /// Adds a shard with all its keys, of which there is at least one. Takes about 20 ns a key.
    ///
    /// # Panics
    ///
    /// If shards do not come in their order, each once; or keys are not of that shard, sorted and
    /// distinct.
    pub fn add_shard(&mut self, shard: u16, keys: impl ExactSizeIterator<Item = DeviceKey>) {
        let count = u32::try_from(keys.len()).expect("a shard holds fewer than 2³² keys");
        assert!(count > 0, "a shard that is added has keys");
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
            assert!(u32::from(key.shard()) == shard, "keys are of their shard");
            self.spec.insert(filter, &key);
            last = Some(key);
        }
        self.stats.merge(&FillStats::of(self.spec, filter));
    }

    /// What its filters take so far.
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
        // The shards at either end are known only now.
        let body_bytes = bytes.len();
        bytes.resize(body_bytes + prefix.len(), 0);
        bytes.copy_within(..body_bytes, prefix.len());
        bytes[..prefix.len()].copy_from_slice(&prefix);
        let entry = ChunkEntry {
            digest: Digest::of(&bytes),
            first_shard,
            shard_count: shard_keys.len() as u32,
            keys: shard_keys.iter().map(|keys| u64::from(*keys)).sum(),
            size_bytes: bytes.len() as u64,
        };
        Some(BuiltChunk { entry, bytes, stats })
    }
}

/// The shards of a chunk's file in their order, each with its count of keys and its filter, which
/// is empty if there are none.
///
/// # Panics
///
/// If the file is not that of a verified chunk.
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
    /// A chunk with more keys set in its filters: they keep the sizes that their own keys gave
    /// them, and become fuller. A shard that had no keys gets a filter sized for the new ones; the
    /// chunk is extended to reach them. `file` is that of a verified chunk, `None` if there was
    /// none. Returns also how many keys were set besides those that the filters are sized for.
    ///
    /// # Panics
    ///
    /// If `keys` are not sorted and distinct, or there is neither a file nor a key.
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
            for (place, shard) in held[start..].iter_mut().zip(shards_of(spec, entry, file)) {
                *place = shard;
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
            stats.merge(&FillStats::of(spec, filter));
        }
        let entry = ChunkEntry {
            digest: Digest::of(&bytes),
            first_shard: first,
            shard_count: shard_keys.len() as u32,
            keys: shard_keys.iter().map(|count| u64::from(*count)).sum(),
            size_bytes: bytes.len() as u64,
        };
        (Self { entry, bytes, stats }, inserted)
    }
}

/// What a manifest needs to know of a chunk; it may be kept, and the chunk be let go.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkRecord {
    /// The manifest's entry.
    pub entry: ChunkEntry,
    /// What the manifest says of its filters, together with those of the other chunks.
    pub stats: FillStats,
}

impl BuiltChunk {
    /// What a manifest needs to know of it.
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
    /// For filters of this spec, sized for this rate.
    pub const fn new(filter: FilterSpec, target_fpr: f64) -> Self {
        Self { filter, target_fpr, chunks: Vec::new() }
    }

    /// Adds a chunk; its bytes are not kept.
    pub fn add(&mut self, chunk: &BuiltChunk) {
        self.add_record(chunk.record());
    }

    /// Adds a chunk that was built before.
    pub fn add_record(&mut self, chunk: ChunkRecord) {
        self.chunks.push(chunk);
    }

    /// The manifest of `generation`. The statistics are summed in shard order, so that they too are
    /// the same each time.
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
