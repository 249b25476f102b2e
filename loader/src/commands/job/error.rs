//! Errors of a distributed build: inconsistent input or reports of its steps.

use std::io;

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::{AudienceName, Digest, ManifestError};

use crate::frames::BUCKETS;

/// Inconsistent input or reports of the steps.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error(
        "{audience}: live generation {generation} is signed: expected --public-key, to verify the \
         deltas that the job takes over"
    )]
    NoPublicKey {
        audience: AudienceName,
        generation: u64,
    },
    #[error("stdin: could not read it")]
    Stdin(#[source] io::Error),
    #[error(
        "stdin: expected 16-byte keys, found {bytes} bytes; check whether the writer was \
        stopped"
    )]
    TruncatedKey { bytes: u64 },
    #[error(
        "stdin: expected keys of one chunk, found keys of chunks {one} and {other}, at \
{shards_per_chunk} shards per chunk"
    )]
    TwoChunks {
        one: u32,
        other: u32,
        shards_per_chunk: u32,
    },
    #[error(
        "stdin: expected the sorted frames of `rtad-loader distinct`, found frames of --changes or \
buckets out of order"
    )]
    NotDistinct,
    #[error("stdin: expected at most --keys {keys} distinct keys, found {found}")]
    TooManyKeys { found: u64, keys: u64 },
    #[error(
        "`rtad-loader keys` read ids of kind sha1 and of others: an audience has the md5 of ids, \
         or their SHA-1; nothing was published"
    )]
    Sha1BesideOthers,
    #[error("{input}: could not read it")]
    Lines { input: String, source: io::Error },
    /// Without the parser's error: it quotes the line, which may be an id.
    #[error(
        "{input}, line {line}: expected a report of `rtad-loader keys`, `distinct` or `chunk` of \
         this version"
    )]
    Line { input: String, line: u64 },
    #[error(
        "chunk {chunk} belongs to another job; build it again for this job; nothing was published"
    )]
    OtherJob { chunk: u32 },
    #[error(
        "chunk {chunk}: expected --keys {expected} as for other chunks, found {found}; \
use the same --keys in all steps; nothing was published"
    )]
    KeysDiffer {
        chunk: u32,
        found: u64,
        expected: u64,
    },
    #[error(
        "shards {first} to {last}: expected a chunk of {shards_per_chunk} shards; nothing was \
         published"
    )]
    Misaligned {
        first: u32,
        last: u32,
        shards_per_chunk: u32,
    },
    #[error(
        "chunk {chunk} was reported twice with different content; check that its keys are the same \
         in every attempt; nothing was published"
    )]
    ChunkDiffers { chunk: u32 },
    #[error(
        "buckets {first} to {last}: no report of `rtad-loader distinct` covers them; check that \
         the part has finished; nothing was published"
    )]
    PartMissing { first: u32, last: u32 },
    #[error(
        "bucket {bucket} is in two reports of `rtad-loader distinct`; give the report of each part \
         once; nothing was published"
    )]
    PartTwice { bucket: u32 },
    #[error(
        "a report of `rtad-loader distinct` has {buckets} buckets from {first}: expected a range \
         within {BUCKETS} buckets; nothing was published"
    )]
    InvalidPart { first: u32, buckets: u32 },
    #[error(
        "`rtad-loader distinct` read {found} keys that {what}: expected {expected}, as \
         written by `begin`; give every part the frames of --changes; nothing was published"
    )]
    ChangesNotRead {
        what: &'static str,
        found: u64,
        expected: u64,
    },
    #[error(
        "distinct keys: expected at most {reported} keys as reported by `rtad-loader keys` and \
         `begin`, found {found}; give the report of every `keys` step; nothing was published"
    )]
    KeysUnreported { found: u64, reported: u64 },
    #[error(
        "--max-carried-loss: `rtad-loader begin` could not read the changes that the previous \
         build merged; nothing was published"
    )]
    CarriedUnread,
    #[error(
        "--min-overlap: a `rtad-loader chunk` could not read the live filters; nothing was \
         published; --min-overlap 0 skips the check"
    )]
    OverlapUnknown,
    #[error("the chunks give an invalid manifest; nothing was published")]
    InvalidManifest(#[source] ManifestError),
    #[error("the chunks have {found} keys: expected {expected}; {}; nothing was published",
if found < expected { "a chunk is missing" } else { "a key is in two chunks" })]
    KeyCountMismatch { found: u64, expected: u64 },
    #[error(
        "{missing} of {chunks} chunks are missing from the store, {first} among them; run their \
         steps again, and run gc with a --min-age longer than a job; nothing was published"
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
            Self::NoPublicKey { .. } => ExitStatus::VerificationFailed,
            Self::MissingChunks { .. } => ExitStatus::Store,
            _ => ExitStatus::BadInput,
        }
    }
}
