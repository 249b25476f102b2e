//! TOML configuration of rtad's programs: types first, then meaning; every mistake has its line.
//!
//! A program describes its configuration as structs with `serde::Deserialize`. [`Document::read`]
//! reads them with the `toml` crate, which stops at the first wrong value. That value is noted and
//! left out, and the rest is read again, so one run reports every wrong value and every unknown or
//! missing key. The program checks relations between keys once all these are right.
//!
//! # Files
//!
//! Each file uses only those above it in the table.
//!
//! | file | job |
//! |---|---|
//! | `mistake` | mistakes and their locations |
//! | `tree` | a parsed file: its values, their keys and lines |
//! | `wording` | accepted values in the words of a message |
//! | `document` | a file with flags and environment over it, and its mistakes |
//! | `text` | texts with their locations, and lists that may be single values |
//! | `values` | values that several tables use: parsing and printing |
//! | `secret` | secrets, in the configuration or in a file |

mod document;
mod mistake;
mod secret;
mod text;
mod tree;
pub mod values;
mod wording;

pub use document::Document;
pub use mistake::{ConfigError, Location, Mistake, Mistakes};
pub use secret::{Secret, SecretConfig};
pub use text::{Named, NamedList, OneOrMany};

#[cfg(test)]
mod tests;
