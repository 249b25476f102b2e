//! Parquet input: the selected columns of each row group.
//!
//! ```text
//! footer ──▶ per row group and column: pages ──▶ Arrow arrays ──▶ ids (arrow.rs) ──▶ cells
//! ```
//!
//! The `parquet` crate reads metadata, pages and values. This module finds the footer and the
//! columns. A file is read from its end: from disk or from a URL whose server supports ranges, not
//! from a pipe.
//!
//! A damaged file is an error that names the row group and the column, even if the crate panics
//! (`caught.rs`). Memory is not bounded, because dumps are the operator's own files: counts in a
//! file size the crate's allocations. A memory limit on the process guards against malicious files.

mod access;
mod caught;
mod chunk;
mod column;
mod fault;
mod lz4;
mod pages;
mod reader;
mod schema;

pub use fault::ParquetFault;
pub use reader::read_blocks;

#[cfg(test)]
mod tests;
