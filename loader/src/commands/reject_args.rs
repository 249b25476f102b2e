//! Flags for rejected rows: a file that keeps them, and the limits per input: malformed values,
//! and ids that look like another kind.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use indicatif::HumanCount;

use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::device::IdKind;

use super::input_report::ColumnReport;
use super::value_parsers::{parse_output_file, parse_ratio};
use crate::input::{
    ColumnCounts, Counts, Input, InputCounts, OutputFileError, PrivateFile, Reason, Source,
};

#[derive(Debug, Args)]
pub struct RejectArgs {
    /// Write malformed rows to FILE, but no blank values: input, line, reason, text (first KiB)
    /// and, if there is one, the column, separated by tabs; readable by its owner only; also
    /// written in a dry run
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    rejects: Option<PathBuf>,
    #[command(flatten)]
    pub(super) limit: RejectLimit,
}

impl RejectArgs {
    /// Creates the file, if there is one.
    pub fn create(&self, input: &Input) -> Result<Option<PrivateFile>, OutputFileError> {
        let file = self.rejects.as_deref();
        file.map(|path| PrivateFile::create(path, &input.sources))
            .transpose()
    }
}

#[derive(Debug, Clone, Copy, Args)]
pub struct RejectLimit {
    /// Publish nothing if more than this fraction of an input's values is malformed, or if it has
    /// rows but no usable id; 1 accepts both. Blank values do not count
    #[arg(long, value_name = "RATIO", default_value_t = 0.01,
        value_parser = parse_ratio)]
    max_reject_ratio: f64,
    /// Accept an input most of whose ids of a kind look like another kind, such as md5s declared as
    /// oaid
    #[arg(long)]
    allow_lookalikes: bool,
}

/// An input that has too few usable values.
#[derive(Debug, thiserror::Error)]
pub enum InputRejected {
    #[error(
        "input {input}: {} of {} values are malformed: expected at most \
         --max-reject-ratio {max_ratio}{hint}; --rejects FILE keeps them",
        HumanCount(*malformed), HumanCount(*values)
    )]
    Malformed {
        input: String,
        malformed: u64,
        values: u64,
        max_ratio: f64,
        hint: Hint,
    },
    #[error(
        "input {input}: data other than text begins at {} of its rows, compressed, packed or a \
         hole of zeros: expected text throughout; unpack parts before they are joined, and copy a \
         file with holes again",
        HumanCount(*packed)
    )]
    Packed { input: String, packed: u64 },
    #[error(
        "input {input}: no usable id in {} rows: {} values are blank, {} \
         malformed{hint}; --max-reject-ratio 1 accepts such an input",
        HumanCount(*rows), HumanCount(*blank), HumanCount(*malformed)
    )]
    NoUsable {
        input: String,
        rows: u64,
        blank: u64,
        malformed: u64,
        hint: Hint,
    },
    #[error(
        "input {input}: {} of {} ids of kind {kind} look like ids of kind {other}, and \
         would match no device; declare them as {other}, or a column that has both as \
         {other},{kind}; --allow-lookalikes accepts them as {kind}",
        HumanCount(*count), HumanCount(*usable)
    )]
    Lookalikes {
        input: String,
        count: u64,
        usable: u64,
        kind: IdKind,
        other: IdKind,
    },
}

/// The cause of most malformed values.
#[derive(Debug)]
pub enum Hint {
    /// They look like ids of this kind.
    Kind(IdKind),
    /// Their rows have no value.
    NoValue,
    Unknown,
}

impl Hint {
    fn of(counts: &Counts) -> Self {
        if counts.of(Reason::Value) * 2 > counts.malformed() {
            return Self::NoValue;
        }
        counts.shape().map_or(Self::Unknown, Self::Kind)
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => {
                let or = if *kind == IdKind::Gaid {
                    " or oaid"
                } else {
                    ""
                };
                write!(
                    f,
                    "; most look like ids of kind {kind}{or} (--id-kind, --column NAME=KIND)"
                )
            }
            Self::NoValue => f.write_str(
                "; most are ids of rows without a whole number from 0 to 15 in the column of \
                 --value",
            ),
            Self::Unknown => Ok(()),
        }
    }
}

impl CommandFailure for InputRejected {
    fn exit(&self) -> ExitStatus {
        ExitStatus::BadInput
    }
}

impl RejectLimit {
    /// A limit of malformed values alone.
    pub const fn of_ratio(max_reject_ratio: f64) -> Self {
        Self {
            max_reject_ratio,
            allow_lookalikes: true,
        }
    }

    /// Rejects input with too many malformed values in any of its sources, without any usable one,
    /// or of another kind; a source of blank values only may be accepted.
    pub fn check(
        self,
        sources: &[Source],
        counts: &InputCounts,
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let inputs = || sources.iter().zip(counts.of_sources());
        // Malformed values first: they are the better hint where the kind is wrong.
        for (source, counts) in inputs() {
            self.check_values(&source.name(), counts, may_be_blank)?;
        }
        inputs().try_for_each(|(source, counts)| self.check_kinds(&source.name(), counts))
    }

    /// Rejects one input of this name.
    pub fn check_one(
        self,
        name: &str,
        counts: &Counts,
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        self.check_values(name, counts, may_be_blank)?;
        self.check_kinds(name, counts)
    }

    fn check_values(
        self,
        name: &str,
        counts: &Counts,
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let max_ratio = self.max_reject_ratio;
        let (malformed, values, input) = (counts.malformed(), counts.values, name.to_owned());
        let hint = Hint::of(counts);
        if counts.packed > 0 && max_ratio < 1.0 {
            return Err(InputRejected::Packed {
                input,
                packed: counts.packed,
            });
        }
        let is_accepted = max_ratio >= 1.0 || may_be_blank && malformed == 0;
        if values > 0 && counts.keys == 0 && !is_accepted {
            let (rows, blank) = (counts.rows, counts.of(Reason::Blank));
            return Err(InputRejected::NoUsable {
                input,
                rows,
                blank,
                malformed,
                hint,
            });
        }
        if malformed as f64 > max_ratio * values as f64 {
            return Err(InputRejected::Malformed {
                input,
                malformed,
                values,
                max_ratio,
                hint,
            });
        }
        Ok(())
    }

    /// Warns of columns most of whose values are malformed: beside a full column they may be within
    /// the limit of an input.
    pub fn warn_of_columns(self, columns: &[ColumnReport]) {
        let is_checked = columns.len() > 1 && self.max_reject_ratio < 1.0;
        for ColumnReport {
            name,
            kinds,
            counts,
        } in columns.iter().filter(|_| is_checked)
        {
            let ColumnCounts {
                usable, malformed, ..
            } = *counts;
            if malformed > usable {
                exit::write_warning(&format!(
                    "column {name}: {} of {} values that are not blank are malformed: expected ids \
                     of kind {kinds}",
                    HumanCount(malformed),
                    HumanCount(usable + malformed)
                ));
            }
        }
    }

    fn check_kinds(self, name: &str, counts: &Counts) -> Result<(), InputRejected> {
        let input = name.to_owned();
        for ((kind, other), count) in counts.lookalikes().filter(|_| !self.allow_lookalikes) {
            let usable = counts.usable[kind as usize];
            if count * 2 > usable {
                return Err(InputRejected::Lookalikes {
                    input,
                    count,
                    usable,
                    kind,
                    other,
                });
            }
            if count as f64 > self.max_reject_ratio * usable as f64 {
                exit::write_warning(&format!(
                    "input {input}: {} of {} ids of kind {kind} look like ids of kind \
                     {other}; if they are, they match no device: declare them as {other},{kind}",
                    HumanCount(count),
                    HumanCount(usable)
                ));
            }
        }
        Ok(())
    }
}
