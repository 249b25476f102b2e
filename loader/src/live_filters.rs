//! Live filters: chunks of a generation in memory, for lookups of keys.
//!
//! A large generation has gigabytes of filters, so only some of its chunks are read. Keys are
//! digests: those of some chunks are a fair sample of all.

use std::collections::BTreeMap;

use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{Chunk, ChunkEntry, Manifest};
use rtad_store::{Store, StoreError};

use crate::keys::ShardFilters;

/// Some chunks of a generation.
#[derive(Debug)]
pub struct LiveFilters {
    manifest: Manifest,
    /// By their first shard.
    chunks: BTreeMap<u32, Chunk>,
}

impl LiveFilters {
    /// Reads chunks of a manifest, `parallel` at a time.
    ///
    /// # Errors
    ///
    /// A store error, or a refused chunk.
    pub async fn read(
        store: &Store,
        manifest: Manifest,
        entries: &[ChunkEntry],
        parallel: usize,
    ) -> Result<Self, StoreError> {
        let mut chunks = BTreeMap::new();
        store
            .chunks(&manifest, entries, parallel, |entry, chunk| {
                chunks.insert(entry.first_shard, chunk);
            })
            .await?;
        Ok(Self { manifest, chunks })
    }

    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether the filters contain the key; `None` if its chunk was not read.
    pub fn contains(&self, key: &DeviceKey) -> Option<bool> {
        let Some(entry) = chunk_of(&self.manifest, key) else {
            return Some(false);
        };
        let chunk = self.chunks.get(&entry.first_shard)?;
        Some(
            self.manifest
                .filter()
                .contains(chunk.filter(key.shard()), key),
        )
    }

    /// The key's value in the filters; `None` if it has none, or its chunk was not read.
    pub fn value(&self, key: &DeviceKey) -> Option<u8> {
        let chunk = self
            .chunks
            .get(&chunk_of(&self.manifest, key)?.first_shard)?;
        self.manifest.filter().value(chunk.filter(key.shard()), key)
    }
}

impl ShardFilters for LiveFilters {
    /// 0 if the chunk of the shard was not read.
    fn count(&self, keys: &mut dyn Iterator<Item = DeviceKey>) -> u64 {
        let mut keys = keys.peekable();
        let Some(first) = keys.peek() else { return 0 };
        let Some(entry) = chunk_of(&self.manifest, first) else {
            return 0;
        };
        let Some(chunk) = self.chunks.get(&entry.first_shard) else {
            return 0;
        };
        let spec = self.manifest.filter();
        let filter = chunk.filter(first.shard());
        keys.filter(|key| spec.contains(filter, key)).count() as u64
    }
}

/// The chunk of the key's shard; `None` if the shard has no keys.
fn chunk_of<'m>(manifest: &'m Manifest, key: &DeviceKey) -> Option<&'m ChunkEntry> {
    let entries = manifest.chunks();
    let shard = u32::from(key.shard());
    let index = entries.partition_point(|entry| entry.first_shard + entry.shard_count <= shard);
    match entries.get(index) {
        Some(entry) if entry.first_shard <= shard => Some(entry),
        _ => None,
    }
}

/// The chunks that hold the shards of these keys, those of the most keys first; at most so many
/// bytes of them, but at least one.
pub fn chunks_of(manifest: &Manifest, keys: &[DeviceKey], max_bytes: u64) -> Vec<ChunkEntry> {
    let mut counts = BTreeMap::<u32, (u64, &ChunkEntry)>::new();
    for key in keys {
        if let Some(entry) = chunk_of(manifest, key) {
            counts.entry(entry.first_shard).or_insert((0, entry)).0 += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));

    let mut bytes = 0;
    let mut chunks = Vec::new();
    for (_, entry) in counts {
        bytes += entry.size_bytes;
        if !chunks.is_empty() && bytes > max_bytes {
            break;
        }
        chunks.push(entry.clone());
    }
    chunks
}

/// Chunks at even distances; at most so many bytes of them, but at least one of any.
pub fn sample(manifest: &Manifest, max_bytes: u64) -> Vec<ChunkEntry> {
    let entries = manifest.chunks();
    let largest = entries
        .iter()
        .map(|entry| entry.size_bytes)
        .max()
        .unwrap_or(1)
        .max(1);
    let count = entries.len().min((max_bytes / largest).max(1) as usize);
    (0..count)
        .map(|index| entries[index * entries.len() / count].clone())
        .collect()
}
