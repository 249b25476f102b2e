//! Time and memory of each build stage.

use std::time::Instant;

use serde::Serialize;

use crate::keys::Budget;

/// Stages in order of execution.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Stages {
    /// Reading rows into keys, including writes to disk.
    pub read_seconds: f64,
    /// Sorting keys in memory, or writing the last keys to disk. Keys on disk are sorted while
    /// their chunks are built.
    pub sort_seconds: f64,
    /// Building and storing chunks, then the manifest.
    pub chunk_seconds: f64,
    pub threads: usize,
    pub memory_bytes: u64,
    /// Peak memory of the process; `None` if the system does not report it.
    pub peak_memory_bytes: Option<u64>,
    /// Keys on disk; 0 if all fit into memory.
    pub spilled_bytes: u64,
    #[serde(skip)]
    last: Instant,
}

impl Stages {
    pub fn begin(budget: &Budget) -> Self {
        Self {
            read_seconds: 0.0,
            sort_seconds: 0.0,
            chunk_seconds: 0.0,
            threads: budget.threads(),
            memory_bytes: budget.memory(),
            peak_memory_bytes: None,
            spilled_bytes: 0,
            last: Instant::now(),
        }
    }

    pub fn read(&mut self) {
        self.read_seconds = self.lap();
    }

    /// Ends the sorting stage; `spilled_bytes` of keys are on disk.
    pub fn sorted(&mut self, spilled_bytes: u64) {
        self.sort_seconds = self.lap();
        self.spilled_bytes = spilled_bytes;
    }

    pub fn end(mut self) -> Self {
        self.chunk_seconds = self.lap();
        self.peak_memory_bytes = peak_memory_bytes();
        self
    }

    pub fn total_seconds(&self) -> f64 {
        self.read_seconds + self.sort_seconds + self.chunk_seconds
    }

    fn lap(&mut self) -> f64 {
        let begun = std::mem::replace(&mut self.last, Instant::now());
        begun.elapsed().as_secs_f64()
    }
}

fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
