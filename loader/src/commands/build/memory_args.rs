//! How much memory a build may take, and where the rest of its keys goes.

use clap::Args;

use super::super::input_args::InputArgs;
use super::super::{CommandError, UsageError};
use crate::keys::{Budget, SpillDir};

#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    /// Memory that the build may take in all, such as 256MiB or 4GiB: at least 64MiB, and 16MiB for each thread beyond two
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    memory: u64,
}

impl MemoryArgs {
    /// How it is divided among the threads: as many as were asked for, else as many as there are cores and memory.
    pub(super) fn budget(&self, input: &InputArgs) -> Result<Budget, CommandError> {
        let threads = match input.asked_threads() {
            Some(threads) => threads,
            None => Budget::threads_for(self.memory, input.threads()),
        };
        Ok(Budget::new(self.memory, threads).map_err(UsageError::Memory)?)
    }

    pub(super) fn spill_dir(&self) -> SpillDir {
        SpillDir::unnamed()
    }
}

fn parse_size(text: &str) -> Result<u64, &'static str> {
    let size = text.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64());
    size.ok_or("accepted: a size, such as 256MiB or 4GiB")
}
