//! Distributed build: the commands that an engine runs, and their exchange formats.
//!
//! ```text
//! begin ──▶ job, and the keys that deltas changed
//! ids ──▶ keys ──▶ frames ══ grouped by bucket ══▶ distinct ──▶ frames, and their number of keys
//! frames ══ grouped by chunk ═══▶ chunk ─────▶ the store, and a line for
//! publish ──▶ manifest, CURRENT
//! ```
//!
//! The engine decides the schedule and the retries. `keys` and `distinct` depend on their input
//! only, `chunk` writes under its content's digest, and only `publish`, run once, makes anything
//! live. One line per input counts, whatever the number of tries. `publish` refuses inconsistent
//! lines.

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
/// A `CURRENT` has at most 4 KiB.
const MAX_JOB_BYTES: u64 = 64 << 10;

/// Agreement of all steps of one build: its parameters, and its base.
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
    /// Content of `--changes`; each part must receive its share.
    changes: ChangedKeys,
}

/// Number of keys changed by deltas and tombstones.
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

    /// Command-line value: the job itself, or a file with it.
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') {
            return Self::from_json(text);
        }
        let read = std::fs::metadata(text).and_then(|meta| match meta.len() {
            0..=MAX_JOB_BYTES => std::fs::read_to_string(text),
            _ => Err(io::Error::other("is too large for a job")),
        });
        Self::from_json(
            &read.map_err(|error| format!("neither a job nor a file with one: {error}"))?,
        )
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let job: Self =
            serde_json::from_str(text).map_err(|error| format!("not a job: {error}"))?;
        if job.format != FORMAT {
            return Err(format!("not a job: format is {:?}, expected {FORMAT:?}", job.format));
        }
        if job.version != VERSION {
            let found = job.version;
            return Err(format!(
                "version is {found}, this rtad-loader knows {VERSION}: use one for all steps"
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
        FilterSpec::new(kind, hashes, millibits_per_key).expect("checked by parse")
    }

    /// Identity of a job: its results are of no use to another.
    fn id(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("plain fields"))
    }

    fn base(&self) -> Base {
        Base::new(self.audience.clone(), self.current.clone())
    }

    /// Whether filters of this kind keep their rate with this number of keys.
    fn check_size(&self, keys: u64) -> Result<(), UsageError> {
        let fpr = self.target_fpr;
        let min_keys = FilterSpec::min_keys(self.filter.kind, fpr);
        match keys > 0 && keys < min_keys {
            true => Err(UsageError::TooFewKeys { fpr, keys, min_keys }),
            false => Ok(()),
        }
    }
}

/// Inconsistent steps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum JobError {
    #[error("stdin: could not read it")]
    Stdin(#[source] io::Error),
    #[error("stdin: has {bytes} bytes, and a key has 16: was its writer interrupted?")]
    PartOfAKey { bytes: u64 },
    #[error(
        "stdin: has keys of chunk {one} and of chunk {other}, cut every {shards_per_chunk} shards: \
         expected keys of one chunk"
    )]
    TwoChunks { one: u32, other: u32, shards_per_chunk: u32 },
    #[error(
        "stdin: has frames of changed keys, or buckets out of order: \
         expected the output of `rtad-loader distinct`"
    )]
    NotDistinct,
    #[error("stdin: has {found} distinct keys, more than --keys {keys}")]
    TooManyKeys { found: u64, keys: u64 },
    #[error("{input}: could not read it")]
    Lines { input: String, source: io::Error },
    #[error("{input}, line {line}: expected a report of `rtad-loader keys`, `distinct` or `chunk`")]
    Line { input: String, line: u64, source: serde_json::Error },
    #[error("chunk {chunk} belongs to another job; nothing was published")]
    OtherJob { chunk: u32 },
    #[error(
        "chunk {chunk} was cut for {found} keys, another for {expected}: \
         pass the same --keys to all steps; nothing was published"
    )]
    CutOtherwise { chunk: u32, found: u64, expected: u64 },
    #[error(
        "shards {first} to {last} are not a chunk of {shards_per_chunk} shards; nothing was published"
    )]
    Uncut { first: u32, last: u32, shards_per_chunk: u32 },
    #[error(
        "chunk {chunk} has two different lines: its keys changed between tries; nothing was published"
    )]
    Differs { chunk: u32 },
    #[error(
        "no line of `rtad-loader distinct` has buckets {first} to {last}: \
         wait until that part has ended; nothing was published"
    )]
    PartMissing { first: u32, last: u32 },
    #[error(
        "bucket {bucket} is in two lines of `rtad-loader distinct`: \
         pass each part's line once; nothing was published"
    )]
    PartTwice { bucket: u32 },
    #[error(
        "a line of `rtad-loader distinct` has {buckets} buckets from {first} on, of {BUCKETS} in all; \
         nothing was published"
    )]
    NoPart { first: u32, buckets: u32 },
    #[error(
        "`rtad-loader distinct` read {found} keys that deltas {what}, `begin` wrote {expected}: \
         pass the frames of --changes to every part; nothing was published"
    )]
    ChangesNotGiven { what: &'static str, found: u64, expected: u64 },
    #[error("the chunks form no valid manifest; nothing was published")]
    Refused(#[source] ManifestError),
    #[error("the chunks have {found} keys of {expected}: {}; nothing was published",
        if found < expected { "a chunk is missing" } else { "a key is in two chunks" })]
    NotWhole { found: u64, expected: u64 },
    #[error(
        "{missing} of {chunks} chunks are missing in the store, such as {first}: repeat their steps, and run gc \
         with a --min-age above the duration of a job; nothing was published"
    )]
    NotThere { missing: usize, chunks: usize, first: Digest },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_what_it_was_when_it_is_read_again() {
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
            ("\"version\":1,\"audience\"", "\"version\":2,\"audience\"", "use one for all steps"),
            ("rtad-job", "rtad-snapshot", "expected \"rtad-job\""),
            ("\"sequence\":7", "\"sequence\":0", "sequence"),
            ("\"hashes\":10", "\"hashes\":99", "filter is 99"),
            ("\"target_fpr\"", "\"fpr\"", "unknown field"),
            ("\"removed\"", "\"gone\"", "unknown field"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let refused = Job::parse(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(Job::parse("/no/such/file").unwrap_err().starts_with("neither a job nor a file"));
    }
}
