//! How much memory a build may take, and where the rest of its keys goes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::super::error::{CommandError, UsageError};
use super::super::input_args::InputArgs;
use super::resume::{CHUNKS, STATE};
use crate::keys::{Budget, SpillDir};

/// Beyond any machine.
const MOST: u64 = 16 << 40;

#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    /// Memory that the build may take in all, such as 256MiB or 4GiB: at least 64MiB, and 16MiB for each thread beyond two
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    memory: u64,
    /// Spill keys to files in DIR, which is made if need be, and not to files without a name in the system's temporary directory.
    /// If the build is interrupted, they stay there, and --resume goes on
    #[arg(long, value_name = "DIR")]
    spill_dir: Option<PathBuf>,
    /// Go on with the build that was interrupted in --spill-dir; begin anew if there is none
    #[arg(long, requires = "spill_dir")]
    pub(super) resume: bool,
    /// With --spill-dir: write down this often how far reading has come
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration, requires = "spill_dir")]
    pub(super) checkpoint: Duration,
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

    pub(super) fn spill_dir(&self) -> Result<SpillDir, CommandError> {
        match &self.spill_dir {
            Some(dir) => Ok(SpillDir::named(dir, &[STATE, CHUNKS])?),
            None => Ok(SpillDir::unnamed()),
        }
    }
}

fn parse_size(text: &str) -> Result<u64, &'static str> {
    let size = text.parse::<bytesize::ByteSize>().ok().map(|size| size.as_u64());
    size.filter(|size| *size <= MOST).ok_or("accepted: a size up to 16TiB, such as 256MiB or 4GiB")
}
