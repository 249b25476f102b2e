//! Flags for the threads and the memory limit of a build.

use std::num::NonZeroUsize;

use clap::Args;

use super::super::context::default_threads;
use super::super::value_parsers::parse_size;
use crate::keys::{Budget, TooLittle};

#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// Threads for parsing and building [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Memory limit of the build, such as 256MiB or 4GiB: at least 64MiB, plus 16MiB for each
    /// thread beyond two
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    memory: u64,
}

impl MemoryArgs {
    /// Divides the memory among the threads: as many as given, else as cores and memory allow.
    pub fn budget(&self) -> Result<Budget, TooLittle> {
        let threads = match self.threads {
            Some(threads) => threads.get(),
            None => Budget::threads_for(self.memory, default_threads()),
        };
        Budget::new(self.memory, threads)
    }
}
