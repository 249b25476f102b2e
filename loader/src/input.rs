//! Input: dumps of device ids, read and parsed into device keys on all cores.
//!
//! ```text
//! readers ── blocks of about 1 MiB, cut at row ends ──▶ parsers ── keys ──▶ one sink per parser
//! ```
//!
//! A row without a usable id is never fatal: [`Counts`] counts it by reason and the caller applies
//! a limit to each input. An unreadable input is an [`InputError`]. Memory depends only on the
//! number of threads.
//!
//! Ids are personal data: the text of a row goes only to the rejects file.

pub mod arrow;
mod batch_reader;
mod batches;
mod block;
mod cells;
mod content;
mod csv;
mod error;
mod kinds;
mod layout;
mod line_ends;
mod lines;
mod listed;
mod member;
mod ndjson;
mod open;
mod parquet;
mod parser;
mod pattern;
mod read;
mod rejects;
mod remote;
mod sink;
mod table_folders;
mod value;

pub use batches::Batches;
pub use csv::column_index;
pub use error::InputError;
pub use kinds::{Kinds, KindsError};
pub use layout::{CellSyntax, Column, Input, Layout};
pub use lines::{each_line, lines};
pub use open::{Source, expand};
pub use read::{expect, read};
pub use rejects::{OutputFileError, PrivateFile, Reason};
pub use sink::{
    ColumnCounts, Counts, InputCounts, KeySink, KindCounts, LookalikeCounts, Lookalikes,
    blank_doubt, may_be_blank_by_chance, may_be_chance,
};
