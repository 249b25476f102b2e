//! Metrics of chunk reads and of the cache.

use super::registry::Telemetry;

/// Source of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkSource {
    /// The store.
    Store,
    /// The cache.
    Cache,
}

impl ChunkSource {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cache => "cache",
        }
    }
}

impl Telemetry {
    /// Counts a verified chunk.
    pub fn chunk_read(&self, source: ChunkSource) {
        self.counter("rtad_chunks_read_total", &[("source", source.as_str())])
            .increment(1);
    }

    /// Counts a cache file that could not be read, written or verified.
    pub fn cache_error(&self) {
        self.counter("rtad_cache_errors_total", &[]).increment(1);
    }

    /// Counts a snapshot loaded from the cache alone.
    pub fn cache_start(&self, audience: &str) {
        self.counter("rtad_cache_starts_total", &[("audience", audience)])
            .increment(1);
    }
}
