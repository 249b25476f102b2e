//! Flags for rejected rows: a file that keeps them, and the limits: malformed values of all inputs,
//! of each one and of each column, and ids that look like something else.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use indicatif::HumanCount;

use rtad_cli::exit::{self, CommandFailure, ExitStatus};
use rtad_core::device::{IdKind, Look};

use super::input_report::{self, ColumnReport};
use super::value_parsers::{parse_output_file, parse_ratio};
use crate::input::{
    Counts, Input, InputCounts, KindCounts, LookalikeCounts, Lookalikes, OutputFileError,
    PrivateFile, Reason, blank_doubt, may_be_blank_by_chance, may_be_chance,
};

/// Warnings of more inputs are counted only.
const MAX_WARNINGS: usize = 3;

#[derive(Debug, Args)]
pub struct RejectArgs {
    /// Write malformed rows to FILE, but no blank values: input, line, reason, text (first KiB)
    /// and, if there is one, the column, separated by tabs; readable by its owner only; also
    /// written in a dry run
    #[arg(long, value_name = "FILE", value_parser = parse_output_file)]
    rejects: Option<PathBuf>,
    #[command(flatten)]
    limit: RejectLimit,
}

impl RejectArgs {
    /// Creates the file, if there is one.
    pub fn create(&self, input: &Input) -> Result<Option<PrivateFile>, OutputFileError> {
        let file = self.rejects.as_deref();
        file.map(|path| PrivateFile::create(path, &input.sources))
            .transpose()
    }

    /// As [`RejectLimit::check`], of a command that has `--rejects`.
    pub fn check(
        &self,
        input: &Input,
        counts: &InputCounts,
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let mut checked = self.limit.check(input, counts, may_be_blank);
        if let Err(InputRejected::Malformed { keeping_them, .. }) = &mut checked {
            *keeping_them = "--rejects FILE";
        }
        checked
    }
}

/// The command that keeps malformed values, of commands without `--rejects`.
const KEEPING_THEM: &str = "`rtad-loader build --dry-run --rejects FILE`";

#[derive(Debug, Clone, Copy, Args)]
pub struct RejectLimit {
    /// Publish nothing if more than this fraction of the values is malformed: of all inputs, of one
    /// or of a column; or if an input has rows but no usable id. Blank values do not count, nor
    /// fewer than 10 malformed ones of a column or of one of several inputs, unless most are. 1
    /// accepts all
    #[arg(long, value_name = "RATIO", default_value_t = 0.01,
        value_parser = parse_ratio)]
    max_reject_ratio: f64,
    /// Accept an input most of whose ids of a kind look like something else, such as md5s declared
    /// as oaid
    #[arg(long)]
    allow_lookalikes: bool,
}

/// An input that has too few usable values.
#[derive(Debug, thiserror::Error)]
pub enum InputRejected {
    #[error(
        "{part}: {} of {} values are malformed: expected at most \
         --max-reject-ratio {max_ratio}{hint}; {keeping_them} keeps them",
        HumanCount(*malformed), HumanCount(*values)
    )]
    Malformed {
        /// An input, a column, or all inputs.
        part: String,
        malformed: u64,
        values: u64,
        max_ratio: f64,
        hint: Hint,
        keeping_them: &'static str,
    },
    #[error(
        "{part}: data other than text begins at {} of its rows, compressed, packed or a \
         hole of zeros: expected text throughout; unpack parts before they are joined, and copy a \
         file with holes again",
        HumanCount(*packed)
    )]
    Packed { part: String, packed: u64 },
    #[error(
        "{part}: no usable id in {} rows: {} values are blank, {} \
         malformed{hint}; --max-reject-ratio 1 accepts such an input",
        HumanCount(*rows), HumanCount(*blank), HumanCount(*malformed)
    )]
    NoUsable {
        part: String,
        rows: u64,
        blank: u64,
        malformed: u64,
        hint: Hint,
    },
    #[error("{part}: {lookalikes}{}", remedy(lookalikes))]
    Lookalikes {
        part: String,
        lookalikes: Lookalikes,
    },
}

fn remedy(lookalikes: &Lookalikes) -> String {
    let kind = lookalikes.kind;
    let others = lookalikes.other_kinds();
    if others.is_empty() {
        return format!(", and would match no device; --allow-lookalikes accepts them as {kind}");
    }

    let declaration =
        format!("declare them as {others}, or a column that has both as {others},{kind}");
    if kind == IdKind::Openid {
        // Platforms issue openids of any form.
        return format!(
            "; --allow-lookalikes accepts them if a platform issued them as openids; else they \
             would match no device: {declaration}"
        );
    }
    format!(", and would match no device; {declaration}; --allow-lookalikes accepts them as {kind}")
}

/// The cause of most malformed values.
#[derive(Debug)]
pub enum Hint {
    Look(Look),
    /// They are in a column of these kinds.
    Declared(String),
    /// Their rows have no value.
    NoValue,
    /// They are whole rows.
    Rows(&'static str),
    Unknown,
}

impl Hint {
    fn of(counts: &Counts, columns: &[ColumnReport]) -> Self {
        let is_most = |count: u64| count * 2 > counts.malformed();
        if is_most(counts.of(Reason::Value)) {
            return Self::NoValue;
        }
        if is_most(counts.of(Reason::RowLength)) {
            return Self::Rows("with more or fewer cells than the first");
        }
        if is_most(counts.of(Reason::OpenQuote)) {
            return Self::Rows("within a cell in quotes");
        }

        // A whole line of JSON has the look of a text with ids.
        let mut in_columns = 0;
        for column in columns {
            in_columns += column.counts.malformed;
        }
        let whole_rows = counts.of(Reason::Malformed).saturating_sub(in_columns);
        if !columns.is_empty() && is_most(whole_rows) {
            return Self::Rows("that are no JSON object; expected one on each line");
        }
        counts.look().map_or(Self::Unknown, Self::Look)
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look(Look::Id(kind)) => {
                let or = match kind {
                    IdKind::Gaid => " or oaid",
                    IdKind::Md5 => ", or like UUIDs without dashes",
                    _ => "",
                };
                write!(
                    f,
                    "; most look like ids of kind {kind}{or} (--id-kind, --column NAME=KIND)"
                )
            }
            Self::Declared(kinds) => write!(f, "; its ids are declared as {kinds}"),
            Self::Look(look) => write!(f, "; most look like {look}"),
            Self::Rows(which) => write!(f, "; most are rows {which}"),
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

    /// Rejects input with too many malformed values, without a usable one in any of its sources, or
    /// of ids that look like something else; a source of blank values only may be accepted.
    pub fn check(
        self,
        input: &Input,
        counts: &InputCounts,
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let is_whole = input.sources.len() == 1;
        // Malformed values first: they are the better hint where the kind is wrong.
        for (source, counts) in input.sources.iter().zip(counts.of_sources()) {
            let columns = input_report::columns(&input.layout, counts);
            self.check_input(&source.name(), is_whole, counts, &columns, may_be_blank)?;
        }
        if !is_whole {
            let total = counts.total();
            let columns = input_report::columns(&input.layout, &total);
            self.check_all(&total, &columns, may_be_blank)?;
        }

        if !self.allow_lookalikes {
            for (source, counts) in input.sources.iter().zip(counts.of_sources()) {
                check_lookalikes(&format!("input {}", source.name()), input, counts)?;
            }
            if !is_whole {
                check_lookalikes("all inputs", input, &counts.total())?;
            }
        }

        let mut warnings = Vec::new();
        for (source, counts) in input.sources.iter().zip(counts.of_sources()) {
            let name = format!("input {}", source.name());
            if !self.allow_lookalikes {
                self.warn_of_lookalikes(&name, counts, &mut warnings);
            }
            warn_of_blanks(&name, input, counts, &mut warnings);
        }
        for warning in warnings.iter().take(MAX_WARNINGS) {
            exit::write_warning(warning);
        }
        if warnings.len() > MAX_WARNINGS {
            let more = HumanCount((warnings.len() - MAX_WARNINGS) as u64);
            exit::write_warning(&format!("{more} more such warnings of inputs"));
        }
        Ok(())
    }

    /// Rejects an input with too many malformed values, or without a usable one.
    pub fn check_input(
        self,
        name: &str,
        is_whole: bool,
        counts: &Counts,
        columns: &[ColumnReport],
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let name = format!("input {name}");
        self.check_values(&Part { name, is_whole }, counts, columns, may_be_blank)
    }

    /// Rejects several inputs with too many malformed values, or without a usable one.
    pub fn check_all(
        self,
        total: &Counts,
        columns: &[ColumnReport],
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let name = "all inputs".to_owned();
        let is_whole = true;
        self.check_values(&Part { name, is_whole }, total, columns, may_be_blank)
    }

    fn check_values(
        self,
        part: &Part,
        counts: &Counts,
        columns: &[ColumnReport],
        may_be_blank: bool,
    ) -> Result<(), InputRejected> {
        let malformed = counts.malformed();
        if counts.packed > 0 && self.max_reject_ratio < 1.0 {
            return Err(InputRejected::Packed {
                part: part.name.clone(),
                packed: counts.packed,
            });
        }

        let may_be_blank = may_be_blank || !part.is_whole && may_be_blank_by_chance(counts.rows);
        let is_accepted = self.max_reject_ratio >= 1.0 || may_be_blank && malformed == 0;
        if counts.values > 0 && counts.keys == 0 && !is_accepted {
            return Err(InputRejected::NoUsable {
                part: part.name.clone(),
                rows: counts.rows,
                blank: counts.of(Reason::Blank),
                malformed,
                hint: Hint::of(counts, columns),
            });
        }
        self.check_ratios(part, counts, columns)
    }

    /// Checks the values of a part, and those of its columns if there are several.
    fn check_ratios(
        self,
        part: &Part,
        counts: &Counts,
        columns: &[ColumnReport],
    ) -> Result<(), InputRejected> {
        let values = counts.values - counts.of(Reason::Blank);
        self.check_ratio(part, counts.malformed(), values, Hint::of(counts, columns))?;

        if columns.len() < 2 {
            return Ok(());
        }
        for column in columns {
            let part = Part {
                name: format!("column {} of {}", column.name, part.name),
                is_whole: false,
            };
            let malformed = column.counts.malformed;
            let values = column.counts.usable + malformed;
            let hint = Hint::Declared(column.kinds.clone());
            self.check_ratio(&part, malformed, values, hint)?;
        }
        Ok(())
    }

    fn check_ratio(
        self,
        part: &Part,
        malformed: u64,
        values: u64,
        hint: Hint,
    ) -> Result<(), InputRejected> {
        let max_ratio = self.max_reject_ratio;
        let is_chance = !part.is_whole && may_be_chance(malformed, values);
        if is_chance || malformed as f64 <= max_ratio * values as f64 {
            return Ok(());
        }

        Err(InputRejected::Malformed {
            part: part.name.clone(),
            malformed,
            values,
            max_ratio,
            hint,
            keeping_them: KEEPING_THEM,
        })
    }

    fn warn_of_lookalikes(self, name: &str, counts: &Counts, warnings: &mut Vec<String>) {
        for lookalikes in counts.lookalikes.by_kind(&counts.usable) {
            let is_over =
                lookalikes.count as f64 > self.max_reject_ratio * lookalikes.usable as f64;
            if is_over && !may_be_chance(lookalikes.count, counts.usable.total()) {
                let others = lookalikes.other_kinds();
                let remedy = match &others[..] {
                    "" => String::new(),
                    others => format!(": declare them as {others},{}", lookalikes.kind),
                };
                warnings.push(format!(
                    "{name}: {lookalikes}; if they are, they match no device{remedy}"
                ));
            }
        }
    }
}

/// Rejects a part of the input, or one of its columns, if most ids of a kind look like something
/// else.
fn check_lookalikes(name: &str, input: &Input, counts: &Counts) -> Result<(), InputRejected> {
    reject_most(name, &counts.lookalikes, &counts.usable)?;
    for (column, counts) in input.layout.columns().iter().zip(&counts.columns) {
        let part = format!("column {} of {name}", column.name);
        reject_most(&part, &counts.lookalikes, &counts.usable_by_kind)?;
    }
    Ok(())
}

fn reject_most(
    part: &str,
    lookalikes: &LookalikeCounts,
    usable: &KindCounts,
) -> Result<(), InputRejected> {
    let all_usable = usable.total();
    for lookalikes in lookalikes.by_kind(usable) {
        if lookalikes.are_most(all_usable) {
            return Err(InputRejected::Lookalikes {
                part: part.to_owned(),
                lookalikes,
            });
        }
    }
    Ok(())
}

fn warn_of_blanks(name: &str, input: &Input, counts: &Counts, warnings: &mut Vec<String>) {
    let columns = input.layout.columns();
    if columns.is_empty()
        && let Some(doubt) = blank_doubt(counts.macros, counts.usable.total() + counts.malformed())
    {
        warnings.push(format!("{name}: {doubt}"));
    }
    for (column, counts) in columns.iter().zip(&counts.columns) {
        if let Some(doubt) = blank_doubt(counts.macros, counts.usable + counts.malformed) {
            warnings.push(format!("column {} of {name}: {doubt}", column.name));
        }
    }
}

/// The part of the input that a limit is for.
struct Part {
    name: String,
    /// Whether it is all of the input.
    is_whole: bool,
}
