//! Memory budget: the division of `--memory` among reading, keys and chunks.
//!
//! ```text
//! process   fixed: the program, stacks, allocator
//! reading   per thread: blocks being read and parsed, and their keys
//! the rest  while reading:       segments
//!           after, from disk:    per builder the keys of some shards, and chunks
//!           after, from memory:  the segments, one partition per thread, and chunks
//! ```

const MIB: u64 = 1 << 20;

/// Program, stacks and allocator.
const PROCESS_BYTES: u64 = 24 * MIB;
/// Memory of a thread: 1 MiB blocks queued, being read or parsed, and the keys of one.
const READING_BYTES: u64 = 6 * MIB;
/// Least memory of a thread: less would make many small writes.
const LEAST_PER_THREAD: u64 = 10 * MIB;
/// Least memory of a unit: less would read a partition many times.
const LEAST_UNIT: u64 = 4 * MIB;
/// Memory reserved for one chunk of the usual size.
const MIN_CHUNKS: u64 = 20 * MIB;

/// Threads that build chunks from keys on disk, per thread of the build. Each has a block of 1 MiB
/// of the thread's [`READING_BYTES`].
const BUILDERS_PER_THREAD: u64 = 2;

/// `--memory` below the minimum.
#[derive(Debug, thiserror::Error)]
#[error(
    "--memory {} is too little for {threads} threads: accepted from {} on, or with fewer --threads",
    in_mib(*.memory), in_mib(*.least)
)]
pub struct TooLittle {
    memory: u64,
    threads: usize,
    least: u64,
}

/// Threads that build chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builders {
    pub threads: usize,
    /// Memory of each for keys from disk.
    pub unit_bytes: usize,
}

/// Memory and threads of a build.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    memory: u64,
    threads: u64,
    rest: u64,
}

impl Budget {
    pub fn new(memory: u64, threads: usize) -> Result<Self, TooLittle> {
        let least = least(threads);
        if memory < least {
            return Err(TooLittle {
                memory,
                threads,
                least,
            });
        }
        let threads = threads as u64;
        Ok(Self {
            memory,
            threads,
            rest: memory - PROCESS_BYTES - READING_BYTES * threads,
        })
    }

    /// A budget of `rest` bytes, without the fixed costs.
    #[cfg(test)]
    pub const fn tiny(rest: u64, threads: usize) -> Self {
        Self {
            memory: rest,
            threads: threads as u64,
            rest,
        }
    }

    /// The number of threads this memory allows: 1 to `threads`.
    pub fn threads_for(memory: u64, threads: usize) -> usize {
        (1..=threads)
            .rev()
            .find(|threads| memory >= least(*threads))
            .unwrap_or(1)
    }

    pub const fn memory(&self) -> u64 {
        self.memory
    }

    pub const fn threads(&self) -> usize {
        self.threads as usize
    }

    /// Bytes of all segments.
    pub const fn segments(&self) -> usize {
        (self.rest / 5 * 4) as usize
    }

    /// Bytes of one segment. Each thread keeps 256 open, together at most a quarter of all
    /// segments.
    pub fn segment(&self) -> usize {
        let most = self.segments() as u64 / (4 * 256 * self.threads);
        (1 << most.max(1).ilog2()).clamp(2 << 10, 32 << 10)
    }

    /// Whether `held` bytes of segments leave memory to sort partitions of up to `partition` bytes
    /// and to build chunks of up to `chunk` bytes.
    pub const fn fits(&self, held: u64, partition: u64, chunk: u64) -> bool {
        held + self.threads * partition + 2 * chunk <= self.rest
    }

    /// Builders of chunks from keys on disk, in partitions of up to `partition` bytes, and the
    /// bytes of all chunks.
    pub fn units(&self, largest_chunk: u64, partition: u64) -> (Builders, u64) {
        let beside_least_units = self.rest.saturating_sub(self.threads * LEAST_UNIT);
        let most_chunks = beside_least_units.max(self.rest / 2);
        let wanted_chunks = largest_chunk.max(MIN_CHUNKS).max(self.rest / 5);
        let chunks = wanted_chunks.min(most_chunks);
        let keys = self.rest - chunks;

        // A thread that reads keys waits for the disk, and the others use its core. Threads with
        // less than a partition each would read keys more than once.
        let mut threads = BUILDERS_PER_THREAD * self.threads;
        while threads > self.threads && keys / threads < partition {
            threads -= 1;
        }

        (
            Builders {
                threads: threads as usize,
                unit_bytes: (keys / threads) as usize,
            },
            chunks,
        )
    }

    /// Builders of chunks from keys in memory. Nothing is read.
    pub const fn builders_in_memory(&self) -> Builders {
        Builders {
            threads: self.threads(),
            unit_bytes: 0,
        }
    }

    /// Bytes of all chunks, built from keys in memory.
    pub fn chunks_beside(&self, held: u64, partition: u64) -> u64 {
        self.rest
            .saturating_sub(held + self.threads * partition)
            .max(MIB)
    }
}

const fn least(threads: usize) -> u64 {
    let least = PROCESS_BYTES + (READING_BYTES + LEAST_PER_THREAD) * threads as u64;
    if least < 64 * MIB { 64 * MIB } else { least }
}

fn in_mib(bytes: u64) -> String {
    format!("{}MiB", bytes / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_build_if_a_partition_fits_each() {
        let budget = Budget::tiny(100 * MIB, 2);
        // A fifth is for chunks.
        for (partition, threads) in [(0, 4), (20, 4), (21, 3), (26, 3), (27, 2), (500, 2)] {
            let (builders, chunks) = budget.units(0, partition * MIB);
            assert_eq!(
                (builders.threads, chunks),
                (threads, 20 * MIB),
                "{partition} MiB"
            );
            assert_eq!(builders.unit_bytes as u64, 80 * MIB / threads as u64);
        }
    }
}
