//! Flags for reading inputs, shared by all commands that read any.

use std::ffi::OsString;
use std::str::FromStr;

use arrow_schema::Fields;
use clap::{Args, ValueEnum};

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::{Case, KeyMaker};

use crate::input::{
    Batches, CellSyntax, Column, Input, Kinds, KindsError, Layout, Source, column_index, expand,
};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One id per line
    Lines,
    /// Rows of cells; ids in the columns named by --column
    Csv,
    /// One JSON object per line; ids in the members named by --column
    Ndjson,
    /// Row groups of columns; only those named by --column are read
    Parquet,
}

/// `NAME`, `NAME=KIND` or `NAME=KIND,KIND`.
#[derive(Debug, Clone)]
struct ColumnArg {
    name: String,
    kinds: Option<Kinds>,
}

/// A column that a flag cannot name.
#[derive(Debug, thiserror::Error)]
pub enum ColumnError {
    #[error("the name of the column is empty: expected NAME or NAME=KIND[,KIND]")]
    NoName,
    #[error(transparent)]
    Kinds(#[from] KindsError),
}

impl FromStr for ColumnArg {
    type Err = ColumnError;

    fn from_str(text: &str) -> Result<Self, ColumnError> {
        let mut name = text;
        let mut kinds = None;
        if let Some((before, named)) = text.rsplit_once('=') {
            name = before;
            kinds = Some(named.parse()?);
        }
        if name.is_empty() {
            return Err(ColumnError::NoName);
        }
        Ok(Self {
            name: name.to_owned(),
            kinds,
        })
    }
}

#[derive(Debug, Args)]
pub struct InputArgs {
    /// Kind of the ids: md5, idfa, imei, oaid, android_id, mac, caid, gaid, openid; several for ids
    /// that their form tells apart: idfa,imei,oaid
    #[arg(long, value_name = "KIND[,KIND]", default_value = "md5")]
    id_kind: Kinds,
    /// Format of the inputs
    #[arg(long, value_enum, default_value = "lines")]
    format: Format,
    /// csv, ndjson, parquet: a column of ids, and their kind unless it is --id-kind; repeatable.
    /// Several kinds as in --id-kind: oaid=md5,oaid. For ndjson and parquet, device.idfa selects a
    /// nested member; a dot in a name is written \\.
    #[arg(long = "column", value_name = "NAME[=KIND[,KIND]]")]
    columns: Vec<ColumnArg>,
    /// csv: the files have no header row; --column and --value have the number of a column, counted
    /// from 1: --column 3=idfa
    #[arg(long)]
    no_header: bool,
    /// csv: separator of cells
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
    /// csv: character before one that is part of a cell: '\' for Hive, ClickHouse, MySQL, Redshift
    /// and Spark. Without it, such rows are malformed
    #[arg(long, value_name = "CHAR", value_parser = parse_escape)]
    escape: Option<u8>,
    /// Case of the ids before md5, instead of the kind's canonical case: as-is, lower, upper, all
    /// (all adds one key per spelling)
    #[arg(long)]
    case: Option<Case>,
    /// Additional id that means "no id"; repeatable
    #[arg(long = "blank", value_name = "ID")]
    blanks: Vec<String>,
    /// Rows of the program around the loader, in place of inputs.
    #[arg(skip)]
    batches: Option<Batches>,
}

/// Flags that contradict each other.
#[derive(Debug, thiserror::Error)]
pub enum InputArgsError {
    #[error("--format {format} needs --column NAME[=KIND]")]
    NoColumn { format: &'static str },
    #[error("a table of {columns} columns needs --column NAME[=KIND]")]
    NoColumnOfTable { columns: usize },
    #[error("--column requires --format csv, ndjson or parquet")]
    ColumnOfLines,
    #[error("--value requires --format csv, ndjson or parquet")]
    ValueOfLines,
    #[error("--no-header requires --format csv: other formats have no header row")]
    NoHeaderOfFormat,
    #[error(
        "{flag} {name:?}: with --no-header, expected the number of a column, counted from 1, as in \
         {flag} 3"
    )]
    NotANumber { flag: &'static str, name: String },
    #[error(
        "--value does not go with --case all, nor with idfa or gaid beside oaid or openid in one \
         column: an id with several keys would have several values"
    )]
    ValueOfCases,
}

impl CommandFailure for InputArgsError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

impl InputArgs {
    pub fn set_batches(&mut self, batches: Batches) {
        self.batches = Some(batches);
    }

    /// Resolves the flags and `inputs`.
    pub fn resolve(&self, inputs: &[OsString]) -> Result<Input, CommandError> {
        if self.no_header && (self.batches.is_some() || !matches!(self.format, Format::Csv)) {
            return Err(InputArgsError::NoHeaderOfFormat.into());
        }
        if let Some(batches) = &self.batches {
            return Ok(self.input_of(
                vec![Source::Batches(batches.clone())],
                Layout::Batches {
                    columns: self.columns_of_batches(batches.fields())?,
                },
            ));
        }

        let layout = match self.format {
            Format::Lines if !self.columns.is_empty() => {
                return Err(InputArgsError::ColumnOfLines.into());
            }
            Format::Lines => Layout::Lines {
                kinds: self.id_kind.clone(),
            },
            Format::Csv => Layout::Csv {
                columns: self.columns("csv")?,
                cells: CellSyntax {
                    has_header: !self.no_header,
                    delimiter: self.delimiter,
                    escape: self.escape,
                },
            },
            Format::Ndjson => Layout::Ndjson {
                columns: self.columns("ndjson")?,
            },
            Format::Parquet => Layout::Parquet {
                columns: self.columns("parquet")?,
            },
        };
        Ok(self.input_of(expand(inputs)?, layout))
    }

    fn input_of(&self, sources: Vec<Source>, layout: Layout) -> Input {
        let keys = KeyMaker::with_extra_blanks(&self.blanks);
        Input {
            sources,
            layout,
            value: None,
            case: self.case,
            keys,
        }
    }

    /// The same with a column of values.
    pub fn resolve_with_value(
        &self,
        inputs: &[OsString],
        value: Option<&str>,
    ) -> Result<Input, CommandError> {
        let input = self.resolve(inputs)?;
        let Some(name) = value else { return Ok(input) };
        if matches!(input.layout, Layout::Lines { .. }) {
            return Err(InputArgsError::ValueOfLines.into());
        }

        let mut columns = input.layout.columns().iter();
        let has_two_keys = columns.any(|column| column.kinds.may_have_two_keys());
        if self.case == Some(Case::All) || has_two_keys {
            return Err(InputArgsError::ValueOfCases.into());
        }
        self.check_name("--value", name)?;
        let value = Column {
            name: name.to_owned(),
            kinds: self.id_kind.clone(),
        };
        Ok(Input {
            value: Some(value),
            ..input
        })
    }

    /// The columns of `--column`, or else the only one.
    fn columns_of_batches(&self, fields: &Fields) -> Result<Vec<Column>, InputArgsError> {
        match (&self.columns[..], &fields[..]) {
            ([], [field]) => Ok(vec![Column {
                name: field.name().clone(),
                kinds: self.id_kind.clone(),
            }]),
            ([], _) => Err(InputArgsError::NoColumnOfTable {
                columns: fields.len(),
            }),
            _ => self.columns("batches"),
        }
    }

    fn columns(&self, format: &'static str) -> Result<Vec<Column>, InputArgsError> {
        if self.columns.is_empty() {
            return Err(InputArgsError::NoColumn { format });
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            self.check_name("--column", &column.name)?;
            columns.push(Column {
                name: column.name.clone(),
                kinds: column.kinds.as_ref().unwrap_or(&self.id_kind).clone(),
            });
        }
        Ok(columns)
    }

    /// Refuses a name where there are none.
    fn check_name(&self, flag: &'static str, name: &str) -> Result<(), InputArgsError> {
        if self.no_header && column_index(name).is_none() {
            let name = name.to_owned();
            return Err(InputArgsError::NotANumber { flag, name });
        }
        Ok(())
    }
}

fn parse_escape(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        [byte] if byte.is_ascii_punctuation() && *byte != b'"' => Ok(*byte),
        _ => Err("accepted: one ASCII punctuation character other than a quote, as in '\\'"),
    }
}

fn parse_delimiter(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => {
            Err("accepted: one ASCII character other than a quote or a line end, or \\t")
        }
        [byte] => Ok(*byte),
        _ => Err("accepted: one ASCII character, or \\t"),
    }
}
