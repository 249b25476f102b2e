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
    /// The same with a backslash before characters that are part of a cell, as Hive, ClickHouse,
    /// MySQL, Redshift and Spark write them
    CsvEscaped,
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
    /// Several kinds as in --id-kind: oaid=md5,oaid. In csv files without a header row, columns
    /// have numbers, from 1: 3=idfa. For ndjson and parquet, device.idfa selects a nested member; a
    /// dot in a name is written \\.
    #[arg(long = "column", value_name = "NAME[=KIND[,KIND]]")]
    columns: Vec<ColumnArg>,
    /// csv: separator of cells
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
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
    #[error("{flag} {name:?}: expected the {expected} of a column, as in --column {other}")]
    NamesAndNumbers {
        flag: &'static str,
        name: String,
        expected: &'static str,
        other: String,
    },
    #[error("{flag} \"0\": expected the number of a column, counted from 1")]
    NumberZero { flag: &'static str },
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
            Format::Csv | Format::CsvEscaped => {
                let columns = self.columns("csv")?;
                for column in &columns {
                    check_csv_name("--column", &column.name, &columns)?;
                }
                let cells = CellSyntax {
                    has_header: column_index(&columns[0].name).is_none(),
                    delimiter: self.delimiter,
                    has_escapes: matches!(self.format, Format::CsvEscaped),
                };
                Layout::Csv { columns, cells }
            }
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
        if let Layout::Csv { columns, .. } = &input.layout {
            check_csv_name("--value", name, columns)?;
        }

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
            columns.push(Column {
                name: column.name.clone(),
                kinds: column.kinds.as_ref().unwrap_or(&self.id_kind).clone(),
            });
        }
        Ok(columns)
    }
}

/// Refuses a name beside the number of the first column, and a number beside its name: a file has a
/// header row or none.
fn check_csv_name(
    flag: &'static str,
    name: &str,
    columns: &[Column],
) -> Result<(), InputArgsError> {
    if name == "0" {
        return Err(InputArgsError::NumberZero { flag });
    }

    let other = &columns[0].name;
    let is_numbered = column_index(other).is_some();
    if column_index(name).is_some() != is_numbered {
        return Err(InputArgsError::NamesAndNumbers {
            flag,
            name: name.to_owned(),
            expected: if is_numbered { "number" } else { "name" },
            other: other.clone(),
        });
    }
    Ok(())
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
