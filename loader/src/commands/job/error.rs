//! Errors of a build on Spark: inconsistent input or reports of its tasks.

use std::io;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::{Digest, ManifestError};

/// Inconsistent input or reports of the tasks. Messages count keys from 1 and quote none.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("stdin: could not read it")]
    Stdin(#[source] io::Error),
    #[error("stdin: key {key} is cut: expected 16 bytes; check whether the writer was stopped")]
    TruncatedKey { key: u64 },
    #[error("stdin: key {key} is smaller than the one before: expected sorted keys")]
    NotSorted { key: u64 },
    #[error("stdin: key {key} is outside of --part: expected keys of its shards only")]
    OutsidePart { key: u64 },
    #[error(
        "stdin, line {line}: expected a report of the Spark job or of `rtad-loader chunk` of this \
         version"
    )]
    Line { line: u64 },
    #[error("part {part} of {parts}: its chunks are not reported; nothing was published")]
    PartMissing { part: u32, parts: u32 },
    #[error("part {part} of {parts} is reported twice; nothing was published")]
    PartTwice { part: u32, parts: u32 },
    #[error(
        "a report is of part {part} of {parts}: expected {expected} parts; nothing was published"
    )]
    OtherParts {
        part: u32,
        parts: u32,
        expected: u32,
    },
    #[error(
        "the tasks that built chunks read {read} keys: expected {made}, as many as were made of \
         the input; nothing was published"
    )]
    KeysDiffer { read: u64, made: u64 },
    #[error(
        "the tasks that built chunks read {found} keys that {what}: expected {expected}; nothing \
         was published"
    )]
    ChangesDiffer {
        what: &'static str,
        found: u64,
        expected: u64,
    },
    #[error("the chunks have {found} keys: expected {expected}; nothing was published")]
    KeyCountMismatch { found: u64, expected: u64 },
    #[error("the chunks give an invalid manifest; nothing was published")]
    InvalidManifest(#[source] ManifestError),
    #[error(
        "{missing} of {chunks} chunks are missing from the store, {first} among them; run the job \
         again, and run gc with a --min-age longer than a job; nothing was published"
    )]
    MissingChunks {
        missing: usize,
        chunks: usize,
        first: Digest,
    },
}

impl CommandFailure for JobError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::MissingChunks { .. } => ExitStatus::Store,
            _ => ExitStatus::BadInput,
        }
    }
}
