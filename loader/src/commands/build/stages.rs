//! Where a build's time and memory went.

use std::time::Instant;

use serde::Serialize;

use crate::keys::Budget;

/// In the order that they come.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Stages {
    /// Rows to keys, what is written to disk on the way included.
    pub(super) read_seconds: f64,
    /// Keys that are in memory: sorted. Those on disk are sorted as their chunks are built; here the last of them are written.
    pub(super) sort_seconds: f64,
    /// Chunks: built, and put into the store; then the manifest.
    pub(super) chunk_seconds: f64,
    pub(super) threads: usize,
    pub(super) memory_bytes: u64,
    /// The process's most, as far as the system says.
    pub(super) peak_memory_bytes: Option<u64>,
    /// Whether this went on with an interrupted build; times and memory are of this part alone.
    #[serde(rename = "resumed")]
    pub(super) is_resumed: bool,
    /// Keys on disk; 0 if all fitted memory.
    pub(super) spilled_bytes: u64,
    #[serde(skip)]
    last: Instant,
}

impl Stages {
    pub(super) fn begin(budget: &Budget) -> Self {
        Self {
            read_seconds: 0.0,
            sort_seconds: 0.0,
            chunk_seconds: 0.0,
            threads: budget.threads(),
            memory_bytes: budget.memory(),
            peak_memory_bytes: None,
            is_resumed: false,
            spilled_bytes: 0,
            last: Instant::now(),
        }
    }

    /// Everything was read.
    pub(super) fn read(&mut self, is_resumed: bool) {
        self.is_resumed = is_resumed;
        self.read_seconds = self.lap();
    }

    /// Keys are ready to be built; so many bytes of them are on disk.
    pub(super) fn sorted(&mut self, spilled_bytes: u64) {
        self.sort_seconds = self.lap();
        self.spilled_bytes = spilled_bytes;
    }

    /// Everything is done.
    pub(super) fn end(mut self) -> Self {
        self.chunk_seconds = self.lap();
        self.peak_memory_bytes = peak_memory_bytes();
        self
    }

    pub(super) fn total_seconds(&self) -> f64 {
        self.read_seconds + self.sort_seconds + self.chunk_seconds
    }

    fn lap(&mut self) -> f64 {
        let begun = std::mem::replace(&mut self.last, Instant::now());
        begun.elapsed().as_secs_f64()
    }
}

/// The most that was ever resident.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
