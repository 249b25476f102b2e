//! Job file: parameters that all steps of one distributed build share.

use std::io;

use serde::{Deserialize, Serialize};

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry, Digest, Folded};
use rtad_store::write::Base;

use super::super::carried::CarriedReport;

const FORMAT: &str = "rtad-job";
const VERSION: u32 = 2;
/// Largest accepted job; a `CURRENT` in it has at most 4 KiB.
const MAX_JOB_BYTES: u64 = 64 << 10;

/// Parameters shared by all steps of one build, and the state of the store when it began.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    format: String,
    version: u32,
    pub(super) audience: AudienceName,
    filter: FilterFields,
    pub(super) target_fpr: f64,
    /// `None` without a live generation.
    current: Option<Current>,
    /// Keys that `begin` wrote to `--changes`; all parts together must have read them.
    pub(super) changes: ChangedKeys,
    pub(super) carried: CarriedJob,
}

/// The carried changes of the live generation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CarriedJob {
    /// Their numbers; `None` if they were unreadable.
    pub(super) report: Option<CarriedReport>,
    /// The deltas of those that are kept.
    pub(super) folded: Vec<DeltaEntry>,
}

/// Number of keys that deltas and tombstones changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedKeys {
    pub(super) added: u64,
    pub(super) removed: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFields {
    kind: FilterKind,
    hashes: u32,
    millibits_per_key: u32,
}

impl Job {
    pub fn new(
        base: &Base,
        filter: &FilterSpec,
        target_fpr: f64,
        (changes, carried): (ChangedKeys, CarriedJob),
    ) -> Self {
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
            carried,
        }
    }

    /// Parses a command-line value: the job itself, or the path of a file with it.
    pub fn parse(text: &str) -> Result<Self, String> {
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
        // Without the parser's text: it quotes the file, which may be one of ids.
        let job: Self = serde_json::from_str(text).map_err(|error| {
            format!(
                "not a job of this version: line {}, column {}",
                error.line(),
                error.column()
            )
        })?;
        if job.format != FORMAT {
            return Err(format!(
                "not a job: format: expected {FORMAT:?}, found {:?}",
                job.format
            ));
        }
        if job.version != VERSION {
            let found = job.version;
            return Err(format!(
                "version: expected {VERSION}, found {found}; use the same rtad-loader for all steps"
            ));
        }
        FilterSpec::new(
            job.filter.kind,
            job.filter.hashes,
            job.filter.millibits_per_key,
        )
        .map_err(|error| error.to_string())?;
        if let Some(current) = &job.current {
            Current::parse(&current.to_bytes()).map_err(|error| format!("current: {error}"))?;
        }
        Ok(job)
    }

    pub fn filter(&self) -> FilterSpec {
        let FilterFields {
            kind,
            hashes,
            millibits_per_key,
        } = self.filter;
        FilterSpec::new(kind, hashes, millibits_per_key).expect("checked by `from_json`")
    }

    /// Identity of the job. Chunks of one job cannot be used in another.
    pub fn id(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("plain fields"))
    }

    pub fn base(&self) -> Base {
        Base::new(self.audience.clone(), self.current.clone())
    }

    /// The manifest's entry for the deltas that were read.
    pub fn folded(&self) -> Option<Folded> {
        let folded = self.base().folded()?;
        Some(Folded {
            deltas: self.carried.folded.clone(),
            ..folded
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_round_trips_through_json() {
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        let current = Current::new(7, 3, b"a manifest", None);
        let base = Base::new("a".parse().unwrap(), Some(current));
        let changes = ChangedKeys {
            added: 3,
            removed: 2,
        };
        let job = Job::new(&base, &filter, 0.0001, (changes, CarriedJob::default()));
        let text = serde_json::to_string(&job).unwrap();
        let again = Job::parse(&text).unwrap();
        assert_eq!((again.id(), again.filter()), (job.id(), filter));
        assert_eq!(
            (again.base().folded(), again.changes),
            (base.folded(), changes)
        );

        let none = (changes, CarriedJob::default());
        let other = Job::new(
            &Base::new("a".parse().unwrap(), None),
            &filter,
            0.0001,
            none,
        );
        assert_ne!(other.id(), job.id());
        for (from, to, reason) in [
            (
                "\"version\":2,\"audience\"",
                "\"version\":3,\"audience\"",
                "use the same rtad-loader",
            ),
            ("rtad-job", "rtad-snapshot", "expected \"rtad-job\""),
            ("\"sequence\":7", "\"sequence\":0", "sequence"),
            ("\"hashes\":10", "\"hashes\":99", "filter is 99"),
            ("\"target_fpr\"", "\"fpr\"", "not a job of this version"),
            ("\"removed\"", "\"gone\"", "not a job of this version"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let refused = Job::parse(&text.replace(from, to)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(
            Job::parse("/no/such/file")
                .unwrap_err()
                .starts_with("accepted: a job or a file")
        );
    }

    #[test]
    fn refused_job_quotes_nothing_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.json");
        for text in [
            "727479405787894\n",
            "\"727479405787894\"",
            "{\"727479405787894\": 1}",
            "{\"audience\": \"727479405787894\\n\"}",
            "{\"format\": \"rtad-job\", \"version\": 727479405787894}",
        ] {
            std::fs::write(&file, text).unwrap();
            let refused = Job::parse(file.to_str().unwrap()).unwrap_err();
            assert!(
                refused.starts_with("not a job of this version: line 1, column "),
                "{refused}"
            );
            assert!(!refused.contains("7274794"), "{refused}");
        }
    }
}
