//! Parquet input: the selected columns of each row group.
//!
//! ```text
//! footer ── checked ──▶ per row group and column: pages ── counts checked ──▶ values ──▶ cells
//! ```
//!
//! The `parquet` crate reads metadata, pages and values. This module finds the footer and the
//! columns, numbers rows from 1 and converts values to text; a null is blank. A file is read from
//! its end: from disk or from a URL whose server supports ranges, not from a pipe.
//!
//! A damaged file is an error that names the row group and the column, even if the crate panics
//! (`caught.rs`). Counts in pages that size the crate's allocations are checked first
//! (`checked.rs`). Some memory is not bounded, because dumps are the operator's own files. A memory
//! limit on the process guards against malicious files:
//!
//! - A page has up to 2 GiB, compressed or not. Gzip, Brotli and LZ4 frames larger than their
//!   page's header says are decompressed fully before the error.
//! - The nesting of the schema bounds the stack. A group that claims 2^31 members reserves 16 GiB
//!   of address space before the error.
//! - Texts in DELTA_BYTE_ARRAY repeat any number of bytes of the previous text. 1,024 values are in
//!   memory at once, as with any encoding.

mod access;
mod caught;
mod checked;
mod chunk;
mod column;
mod fault;
mod lz4;
mod reader;
mod schema;

pub use fault::ParquetFault;
pub use reader::read_blocks;

#[cfg(test)]
mod tests;
