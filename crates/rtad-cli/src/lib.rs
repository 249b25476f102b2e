//! Command-line parts that the programs of rtad share.
//!
//! | module | job |
//! |---|---|
//! | [`exit`] | exit codes, and the error line on stderr |
//! | [`command_error`] | failure of a command: any of its errors, boxed |
//! | [`manual`] | shell completions and man pages |
//!
//! Each module uses only those above it in the table.

pub mod command_error;
pub mod exit;
pub mod manual;
