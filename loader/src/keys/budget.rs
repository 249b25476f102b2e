//! How `--memory` is divided.
//!
//! ```text
//! process   what any run takes: the program, stacks, allocator
//! reading   per thread: blocks being read and parsed, and their keys
//! the rest  while reading: segments; after it, from disk: per thread the keys of some shards, and chunks
//!                                     from memory: the segments, one partition per thread, and chunks
//! ```

const MIB: u64 = 1 << 20;

/// What the process takes besides what is counted here.
const PROCESS_BYTES: u64 = 24 * MIB;
/// Blocks of 1 MiB that wait, are read or are parsed, and the keys of one.
const READING_BYTES: u64 = 6 * MIB;
/// With less a thread would write to many files a little at a time.
const LEAST_PER_THREAD: u64 = 10 * MIB;
/// Keys of some shards: with less a partition is read many times over.
const LEAST_UNIT: u64 = 4 * MIB;
/// Room for one chunk of the usual size, whatever it takes.
const CHUNK_ROOM: u64 = 20 * MIB;

/// A `--memory` that is too little.
#[derive(Debug, thiserror::Error)]
#[error("--memory {} is too little for {threads} threads: accepted from {} on, or with fewer --threads", in_mib(*.memory), in_mib(*.least))]
pub(crate) struct TooLittle {
    memory: u64,
    threads: usize,
    least: u64,
}

/// What may be used for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    memory: u64,
    threads: u64,
    rest: u64,
}

impl Budget {
    pub(crate) fn new(memory: u64, threads: usize) -> Result<Self, TooLittle> {
        let least = least(threads);
        if memory < least {
            return Err(TooLittle { memory, threads, least });
        }
        let threads = threads as u64;
        Ok(Self { memory, threads, rest: memory - PROCESS_BYTES - READING_BYTES * threads })
    }

    /// Only so much beside what a process takes.
    #[cfg(test)]
    pub(crate) const fn tiny(rest: u64, threads: usize) -> Self {
        Self { memory: rest, threads: threads as u64, rest }
    }

    /// As many threads, up to `threads`, as this memory is enough for; at least one.
    pub(crate) fn threads_for(memory: u64, threads: usize) -> usize {
        (1..=threads).rev().find(|threads| memory >= least(*threads)).unwrap_or(1)
    }

    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) const fn threads(&self) -> usize {
        self.threads as usize
    }

    /// Bytes of all segments.
    pub(crate) const fn segments(&self) -> usize {
        (self.rest / 5 * 4) as usize
    }

    /// Bytes of one segment: each thread has one open for each of 256 partitions, a quarter of all at most.
    pub(crate) fn segment(&self) -> usize {
        let most = self.segments() as u64 / (4 * 256 * self.threads);
        (1 << most.max(1).ilog2()).clamp(2 << 10, 32 << 10)
    }

    /// Whether `held` bytes in segments can be sorted by partitions of up to `partition` bytes and built into chunks of up to
    /// `chunk` bytes beside them.
    pub(crate) const fn fits(&self, held: u64, partition: u64, chunk: u64) -> bool {
        held + self.threads * partition + 2 * chunk <= self.rest
    }

    /// Of keys that are on disk: bytes per thread for those of some shards, and bytes for all chunks together.
    pub(crate) fn units(&self, largest_chunk: u64) -> (usize, u64) {
        let chunks = largest_chunk.max(CHUNK_ROOM).max(self.rest / 5);
        let chunks =
            chunks.min((self.rest / 2).max(self.rest.saturating_sub(self.threads * LEAST_UNIT)));
        (((self.rest - chunks) / self.threads) as usize, chunks)
    }

    /// The same for keys that are in memory: what is left for chunks.
    pub(crate) fn chunks_beside(&self, held: u64, partition: u64) -> u64 {
        self.rest.saturating_sub(held + self.threads * partition).max(MIB)
    }
}

const fn least(threads: usize) -> u64 {
    let least = PROCESS_BYTES + (READING_BYTES + LEAST_PER_THREAD) * threads as u64;
    if least < 64 * MIB { 64 * MIB } else { least }
}

fn in_mib(bytes: u64) -> String {
    format!("{}MiB", bytes / MIB)
}
