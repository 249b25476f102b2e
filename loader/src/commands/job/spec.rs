//! Job: what all tasks of one build share.

use serde::{Deserialize, Serialize};

use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{AudienceName, Current};
use rtad_store::write::Base;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Filters of a build, and the state of the store when it began. Written by `publish` of the driver
/// for the tasks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Version of the rtad-loader that wrote it.
    version: String,
    audience: AudienceName,
    filter: FilterFields,
    keep_carried: bool,
    /// `None` before the first publish.
    current: Option<Current>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterFields {
    kind: FilterKind,
    hashes: u32,
    millibits_per_key: u32,
}

impl Job {
    pub fn new(base: &Base, filter: &FilterSpec, keep_carried: bool) -> Self {
        Self {
            version: VERSION.to_owned(),
            audience: base.audience().clone(),
            filter: FilterFields {
                kind: filter.kind(),
                hashes: filter.hashes(),
                millibits_per_key: filter.millibits_per_key(),
            },
            keep_carried,
            current: base.current().cloned(),
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        // Without the parser's text: it quotes.
        let job: Self = serde_json::from_str(text).map_err(|error| {
            format!(
                "not a job of this version: line {}, column {}",
                error.line(),
                error.column()
            )
        })?;

        if job.version != VERSION {
            let found = job.version.escape_debug();
            return Err(format!(
                "version: expected {VERSION}, found {found}; install the same rtad-loader on all \
                 machines"
            ));
        }
        job.filter.spec()?;
        if let Some(current) = &job.current {
            Current::parse(&current.to_bytes()).map_err(|error| format!("current: {error}"))?;
        }
        Ok(job)
    }

    pub const fn audience(&self) -> &AudienceName {
        &self.audience
    }

    pub fn filter(&self) -> FilterSpec {
        self.filter.spec().expect("checked by `parse`")
    }

    /// Whether carried changes apply, whatever the input contains.
    pub const fn keeps_carried(&self) -> bool {
        self.keep_carried
    }

    /// The state of the store when the build began.
    pub fn base(&self) -> Base {
        Base::new(self.audience.clone(), self.current.clone())
    }
}

impl FilterFields {
    fn spec(self) -> Result<FilterSpec, String> {
        FilterSpec::new(self.kind, self.hashes, self.millibits_per_key)
            .map_err(|error| error.to_string())
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
        let text = serde_json::to_string(&Job::new(&base, &filter, true)).unwrap();
        let job = Job::parse(&text).unwrap();
        assert_eq!((job.filter(), job.keeps_carried()), (filter, true));
        assert_eq!(job.base().folded(), base.folded());

        for (from, to, reason) in [
            (VERSION, "0.0.0", "install the same rtad-loader"),
            ("\"sequence\":7", "\"sequence\":0", "sequence"),
            ("\"hashes\":10", "\"hashes\":99", "filter is 99"),
            ("\"keep_carried\"", "\"keep\"", "not a job of this version"),
        ] {
            assert!(text.contains(from), "{from} in {text}");
            let refused = Job::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let refused = Job::parse("727479405787894").unwrap_err();
        assert!(!refused.contains("7274794"), "{refused}");
    }
}
