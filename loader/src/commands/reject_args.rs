//! Flags for rejected rows: a file that keeps them, and the limit of malformed values.

use std::path::PathBuf;

use clap::Args;

use rtad_cli::exit::{CommandFailure, ExitStatus};

use super::value_parsers::parse_ratio;
use crate::input::{Input, RejectError, Rejects};

#[derive(Debug, Args)]
pub(super) struct RejectArgs {
    /// Write rows without a usable id to FILE: input, line, reason, text (first KiB) and, if there
    /// is one, the column, separated by tabs; readable by its owner only; also written in a dry run
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    #[command(flatten)]
    pub(super) limit: RejectLimit,
}

impl RejectArgs {
    /// Creates the file, if there is one; `append` keeps the rows of an interrupted build.
    pub(super) fn create(
        &self,
        input: &Input,
        append: bool,
    ) -> Result<Option<Rejects>, RejectError> {
        let file = self.rejects.as_deref();
        file.map(|path| Rejects::create(path, &input.sources, append)).transpose()
    }
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct RejectLimit {
    /// Publish nothing if more than this fraction of the values is malformed; blank values do not
    /// count
    #[arg(long, value_name = "RATIO", default_value_t = 0.01,
        value_parser = parse_ratio)]
    max_reject_ratio: f64,
}

/// More malformed values than the limit allows.
#[derive(Debug, thiserror::Error)]
#[error(
    "{malformed} of {values} values are malformed: expected at most --max-reject-ratio \
     {max_ratio}; nothing was published; keep them with --rejects FILE to examine them"
)]
pub(super) struct TooManyRejects {
    malformed: u64,
    values: u64,
    max_ratio: f64,
}

impl CommandFailure for TooManyRejects {
    fn exit(&self) -> ExitStatus {
        ExitStatus::BadInput
    }
}

impl RejectLimit {
    /// Rejects input with too many malformed values.
    pub(super) fn check(self, malformed: u64, values: u64) -> Result<(), TooManyRejects> {
        let max_ratio = self.max_reject_ratio;
        if malformed as f64 > max_ratio * values as f64 {
            return Err(TooManyRejects { malformed, values, max_ratio });
        }
        Ok(())
    }
}
