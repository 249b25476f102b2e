//! What is counted of chunks and of the cache.

use super::Telemetry;

/// Where a chunk was read from.
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

/// `# HELP` of these metrics.
pub(super) fn describe() {
    metrics::describe_counter!(
        "rtad_chunks_read_total",
        "Chunks read and verified, by where they came from"
    );
    metrics::describe_counter!(
        "rtad_cache_errors_total",
        "Files of the cache that could not be used"
    );
    metrics::describe_counter!(
        "rtad_cache_starts_total",
        "Snapshots taken from the cache alone, as the store could not answer, by audience"
    );
}

/// Makes what has no labels, so that the first error is seen as a rise from 0.
pub(super) fn begin() {
    let _ = metrics::counter!("rtad_cache_errors_total");
}

impl Telemetry {
    /// Counts a chunk that was read and verified.
    pub fn chunk_read(&self, source: ChunkSource) {
        self.counter("rtad_chunks_read_total", &[("source", source.as_str())]).increment(1);
    }

    /// Counts a file of the cache that could not be read, written or believed.
    pub fn cache_error(&self) {
        self.counter("rtad_cache_errors_total", &[]).increment(1);
    }

    /// Counts a snapshot that came from the cache alone.
    pub fn cache_start(&self, audience: &str) {
        self.counter("rtad_cache_starts_total", &[("audience", audience)]).increment(1);
    }
}
