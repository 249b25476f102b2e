//! Reports of the steps, as lines of JSON, for `publish`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use rtad_cli::command_error::CommandError;
use rtad_core::device::{IdKind, KeyDigest};
use rtad_core::snapshot::{ChunkEntry, Digest, FilterStats};

use super::super::carried::CarriedReport;
use super::super::input_report::{ColumnReport, add_columns};
use super::super::output_file::write_output;
use super::error::JobError;
use crate::input::{Counts, LOOKALIKES, Lookalike, Reason};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum ReportLine {
    Keys(KeysLine),
    Distinct(DistinctLine),
    Chunk(ChunkLine),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeysLine {
    pub(super) rows: u64,
    pub(super) values: u64,
    /// Keys, duplicates included.
    pub(super) keys: u64,
    /// Rejected values by reason.
    pub(super) rejected: BTreeMap<String, u64>,
    /// Usable ids by kind.
    pub(super) kinds: BTreeMap<String, u64>,
    /// Ids that look like another kind, by both kinds, as in `oaid/md5`.
    pub(super) lookalikes: BTreeMap<String, u64>,
    /// Rejected rows that begin compressed or packed data.
    pub(super) packed: u64,
    pub(super) columns: Vec<ColumnReport>,
    /// Columns of NDJSON that no row has.
    pub(super) absent: BTreeSet<String>,
}

/// Report of `distinct` for one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DistinctLine {
    /// First bucket of the part.
    pub(super) first_bucket: u32,
    pub(super) buckets: u32,
    /// Distinct keys after all changes.
    pub(super) keys: u64,
    /// Distinct keys before removals.
    pub(super) found: u64,
    /// Keys added by deltas, including those in the input.
    pub(super) added: u64,
    /// Keys removed by deltas and tombstones, present in the input or not.
    pub(super) removed: u64,
    /// Carried changes, and those that the input undoes.
    pub(super) carried: CarriedReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkLine {
    pub(super) job: Digest,
    /// Keys of the whole audience, which determine the chunk layout.
    pub(super) keys: u64,
    pub(super) entry: ChunkEntry,
    pub(super) stats: FilterStats,
    /// Whether the chunk was new to the store.
    pub(super) written: bool,
    /// Keys that the sampled live chunks contain; `None` without readable ones.
    pub(super) in_live: Option<u64>,
}

impl KeysLine {
    pub fn of(counts: &Counts, columns: Vec<ColumnReport>, absent: BTreeSet<String>) -> Self {
        let rejected = Reason::ALL.map(|reason| (reason.as_str().to_owned(), counts.of(reason)));
        let kinds = IdKind::ALL.map(|kind| (kind.to_string(), counts.usable[kind as usize]));
        let lookalikes = counts.lookalikes().map(|(pair, count)| (name(pair), count));
        Self {
            rows: counts.rows,
            values: counts.values,
            keys: counts.keys,
            rejected: rejected.into(),
            kinds: kinds.into_iter().filter(|(_, count)| *count > 0).collect(),
            lookalikes: lookalikes.collect(),
            packed: counts.packed,
            columns,
            absent,
        }
    }

    /// Whether rows have this column.
    fn has(&self, name: &String) -> bool {
        !self.absent.contains(name) && self.columns.iter().any(|column| column.name == *name)
    }

    /// The counts, for the limits of inputs.
    pub fn counts(&self) -> Counts {
        let of = |counts: &BTreeMap<_, _>, name: &str| counts.get(name).copied().unwrap_or(0);
        Counts {
            rows: self.rows,
            values: self.values,
            keys: self.keys,
            rejected: Reason::ALL.map(|reason| of(&self.rejected, reason.as_str())),
            usable: IdKind::ALL.map(|kind| of(&self.kinds, kind.as_str())),
            lookalikes: LOOKALIKES.map(|pair| of(&self.lookalikes, &name(pair))),
            packed: self.packed,
            ..Counts::default()
        }
    }

    /// The hash of the ids from which the keys are made.
    pub fn digest(&self) -> Result<KeyDigest, JobError> {
        let of_sha1 = |kind: &String| kind == IdKind::Sha1.as_str();
        match self.kinds.keys().filter(|kind| of_sha1(kind)).count() {
            0 => Ok(KeyDigest::Md5),
            some if some == self.kinds.len() => Ok(KeyDigest::Sha1),
            _ => Err(JobError::Sha1BesideOthers),
        }
    }

    /// Whether the part has malformed values and no usable one.
    pub fn is_unusable(&self) -> bool {
        self.keys == 0 && self.counts().malformed() > 0
    }

    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        self.packed += other.packed;
        let absent = self.absent.iter().filter(|name| !other.has(name));
        let absent = absent.chain(other.absent.iter().filter(|name| !self.has(name)));
        self.absent = absent.cloned().collect();
        add_columns(&mut self.columns, &other.columns);
        for (sums, counts) in [
            (&mut self.rejected, &other.rejected),
            (&mut self.kinds, &other.kinds),
            (&mut self.lookalikes, &other.lookalikes),
        ] {
            for (name, count) in counts {
                *sums.entry(name.clone()).or_default() += count;
            }
        }
    }
}

fn name((kind, other): Lookalike) -> String {
    format!("{kind}/{other}")
}

/// Writes a report to `file`, or to stderr: stdout carries the data of the step.
pub fn report(line: &ReportLine, file: Option<&Path>) -> Result<(), CommandError> {
    let mut text = serde_json::to_vec(line).expect("plain fields");
    text.push(b'\n');
    let Some(file) = file else {
        return io::stderr()
            .lock()
            .write_all(&text)
            .map_err(CommandError::data_output);
    };
    write_output("--report", file, &text)
}

/// Reads the lines of files; `-` is stdin. Empty lines are passed over.
pub fn read(files: &[PathBuf], mut take: impl FnMut(ReportLine)) -> Result<(), JobError> {
    for file in files {
        let input = file.display().to_string();
        let failed = |source| JobError::Lines {
            input: input.clone(),
            source,
        };
        let reader: Box<dyn BufRead> = match input.as_str() {
            "-" => Box::new(io::stdin().lock()),
            _ => Box::new(BufReader::new(File::open(file).map_err(failed)?)),
        };
        for (line, text) in (1..).zip(reader.lines()) {
            let text = text.map_err(failed)?;
            if text.trim().is_empty() {
                continue;
            }
            let read = serde_json::from_str(&text);
            take(read.map_err(|_| JobError::Line {
                input: input.clone(),
                line,
            })?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rtad_core::error_chain::error_chain;

    use super::*;

    #[test]
    fn refused_line_is_not_quoted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids");
        for text in [
            "727479405787894",
            "7AB40E09-1C3A-4E5C-9B1D-8D4C5E6F7A8B",
            "{\"what\":\"7AB40E09\"}",
            "{\"what\":\"keys\",\"rows\":\"7AB40E09\"}",
        ] {
            std::fs::write(&file, format!("\n{text}\n")).unwrap();
            let error = read(std::slice::from_ref(&file), |_| {}).unwrap_err();
            let shown = error_chain(&error).replace(&file.display().to_string(), "ids");
            let expected = "ids, line 2: expected a report of `rtad-loader keys`, `distinct` or \
                            `chunk` of this version";
            assert_eq!(shown, expected);
        }
    }
}
