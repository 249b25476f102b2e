//! Distributed build: the commands that an engine such as Spark runs, and the data between them.
//!
//! ```text
//! begin ──▶ job, and the keys that deltas changed
//!   ids ──▶ keys ──▶ frames ══ shuffled by bucket ══▶ distinct ──▶ frames, and a key count
//!                    frames ══ shuffled by chunk ═══▶ chunk ─────▶ the store, and a line for
//!                                                                  publish ──▶ manifest, CURRENT
//! ```
//!
//! Any engine may run the steps, and may retry them:
//!
//! - `keys` and `distinct` depend on their input only.
//! - `chunk` writes under the digest of its content.
//! - `publish` alone, run once by one process, changes the live generation. It rejects reports
//!   that do not add up.
//!
//! Each step reports one line per input. Of a retried step only one line may be used.

mod begin;
mod chunk;
mod distinct;
mod keys;
mod lines;
mod publish;

use std::io;

use serde::{Deserialize, Serialize};

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, Current, Digest, ManifestError};
use rtad_store::write::Base;

use super::error::UsageError;
use crate::frames::BUCKETS;

pub(super) use begin::{BeginArgs, run as begin};
pub(super) use chunk::{ChunkArgs, run as chunk};
pub(super) use distinct::{DistinctArgs, run as distinct};
pub(super) use keys::{KeysArgs, run as keys};
pub(super) use publish::{PublishArgs, run as publish};

const FORMAT: &str = "rtad-job";
const VERSION: u32 = 1;
/// Largest accepted job; a `CURRENT` in it has at most 4 KiB.
const MAX_JOB_BYTES: u64 = 64 << 10;

/// Parameters shared by all steps of one build, and the state of the store when it began.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Job {
    format: String,
    version: u32,
    audience: AudienceName,
    filter: FilterFields,
    target_fpr: f64,
    /// `None` without a live generation.
    current: Option<Current>,
    /// Keys that `begin` wrote to `--changes`; all parts together must have read them.
    changes: ChangedKeys,
}

/// Number of keys that deltas and tombstones changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangedKeys {
    added: u64,
    removed: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFields {
    kind: FilterKind,
    hashes: u32,
    millibits_per_key: u32,
}

impl Job {
    fn new(base: &Base, filter: &FilterSpec, target_fpr: f64, changes: ChangedKeys) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            audience: base.audience().clone(),
            filter: FilterFields {
                kind: filter.kind(),
                hashes: filter.hashes(),
                millibits_per_key: filter.millibits_per_key(),
            },
            target_fpr,
            current: base.current().cloned(),
            changes,
        }
    }

    /// Parses a command-line value: the job itself, or the path of a file with it.
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return Self::from_json(text);
        }
        let read = std::fs::metadata(text).and_then(|meta| match meta.len() {
            0..=MAX_JOB_BYTES => std::fs::read_to_string(text),
            _ => Err(io::Error::other("the file is too large for a job")),
        });
        Self::from_json(
            &read.map_err(|error| format!("accepted: a job or a file with one: {error}"))?,
        )
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let job: Self =
            serde_json::from_str(text).map_err(|error| format!("not a job: {error}"))?;
        if job.format != FORMAT {
            return Err(format!("not a job: format: expected {FORMAT:?}, found {:?}", job.format));
        }
        if job.version != VERSION {
            let found = job.version;
            return Err(format!(
                "version: expected {VERSION}, found {found}; use the same rtad-loader for all steps"
            ));
        }
        FilterSpec::new(job.filter.kind, job.filter.hashes, job.filter.millibits_per_key)
            .map_err(|error| error.to_string())?;
        if let Some(current) = &job.current {
            Current::parse(&current.to_bytes()).map_err(|error| format!("current: {error}"))?;
        }
        Ok(job)
    }

    fn filter(&self) -> FilterSpec {
        let FilterFields { kind, hashes, millibits_per_key } = self.filter;
        FilterSpec::new(kind, hashes, millibits_per_key).expect("checked by `from_json`")
    }

    /// Identity of the job. Chunks of one job cannot be used in another.
    fn id(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("plain fields"))
    }

    fn base(&self) -> Base {
        Base::new(self.audience.clone(), self.current.clone())
    }

    /// Rejects a number of keys at which filters of this kind exceed their rate.
    fn check_size(&self, keys: u64) -> Result<(), UsageError> {
        let fpr = self.target_fpr;
        let min_keys = FilterSpec::min_keys(self.filter.kind, fpr);
        match keys > 0 && keys < min_keys {
            true => Err(UsageError::TooFewKeys { fpr, keys, min_keys }),
            false => Ok(()),
        }
    }
}

/// Inconsistent input or reports of the steps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobError {
    #[error("stdin: could not read it")]
    Stdin(#[source] io::Error),
    #[error(
        "stdin: expected 16-byte keys, found {bytes} bytes; check whether the writer was \
        stopped"
    )]
    PartOfAKey { bytes: u64 },
    #[error(
        "stdin: expected keys of one chunk, found keys of chunks {one} and {other}, at \
{shards_per_chunk} shards per chunk"
    )]
    TwoChunks { one: u32, other: u32, shards_per_chunk: u32 },
    #[error(
        "stdin: expected the sorted frames of `rtad-loader distinct`, found frames of --changes or \
buckets out of order"
    )]
    NotDistinct,
    #[error("stdin: expected at most --keys {keys} distinct keys, found {found}")]
    TooManyKeys { found: u64, keys: u64 },
    #[error("{input}: could not read it")]
    Lines { input: String, source: io::Error },
    #[error("{input}, line {line}: expected a report of `rtad-loader keys`, `distinct` or `chunk`")]
    Line { input: String, line: u64, source: serde_json::Error },
    #[error(
        "chunk {chunk} belongs to another job; build it again for this job; nothing was published"
    )]
    OtherJob { chunk: u32 },
    #[error(
        "chunk {chunk}: expected --keys {expected} as for other chunks, found {found}; \
use the same --keys in all steps; nothing was published"
    )]
    CutOtherwise { chunk: u32, found: u64, expected: u64 },
    #[error(
        "shards {first} to {last}: expected a chunk of {shards_per_chunk} shards; nothing was \
         published"
    )]
    Uncut { first: u32, last: u32, shards_per_chunk: u32 },
    #[error(
        "chunk {chunk} was reported twice with different content; check that its keys are the same \
         in every attempt; nothing was published"
    )]
    Differs { chunk: u32 },
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
    NoPart { first: u32, buckets: u32 },
    #[error(
        "`rtad-loader distinct` read {found} keys that deltas {what}: expected {expected}, as \
         written by `begin`; give every part the frames of --changes; nothing was published"
    )]
    ChangesNotGiven { what: &'static str, found: u64, expected: u64 },
    #[error("the chunks give an invalid manifest; nothing was published")]
    Refused(#[source] ManifestError),
    #[error("the chunks have {found} keys: expected {expected}; {}; nothing was published",
if found < expected { "a chunk is missing" } else { "a key is in two chunks" })]
    NotWhole { found: u64, expected: u64 },
    #[error(
        "{missing} of {chunks} chunks are missing from the store, {first} among them; run their \
         steps again, and run gc with a --min-age longer than a job; nothing was published"
    )]
    NotThere { missing: usize, chunks: usize, first: Digest },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_round_trips_through_json() {
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        let current = Current::new(7, 3, b"a manifest", None);
        let base = Base::new("a".parse().unwrap(), Some(current));
        let changes = ChangedKeys { added: 3, removed: 2 };
        let job = Job::new(&base, &filter, 0.0001, changes);
        let text = serde_json::to_string(&job).unwrap();
        let again = Job::parse(&text).unwrap();
        assert_eq!((again.id(), again.filter()), (job.id(), filter));
        assert_eq!((again.base().folded(), again.changes), (base.folded(), changes));

        let other = Job::new(&Base::new("a".parse().unwrap(), None), &filter, 0.0001, changes);
        assert_ne!(other.id(), job.id());
        for (from, to, reason) in [
            (
                "\"version\":1,\"audience\"",
                "\"version\":2,\"audience\"",
                "use the same rtad-loader",
            ),
            ("rtad-job", "rtad-snapshot", "expected \"rtad-job\""),
            ("\"sequence\":7", "\"sequence\":0", "sequence"),
            ("\"hashes\":10", "\"hashes\":99", "99 hashes"),
            ("\"target_fpr\"", "\"fpr\"", "unknown field"),
            ("\"removed\"", "\"gone\"", "unknown field"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let refused = Job::parse(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(Job::parse("/no/such/file").unwrap_err().starts_with("accepted: a job or a file"));
    }
}
