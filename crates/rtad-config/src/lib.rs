//! TOML configuration of rtad's programs: types are checked, and every mistake has its line.
//!
//! A program describes its configuration as structs with `serde::Deserialize`. [`Document::read`]
//! reads them. A wrong value stops a deserializer, so the document notes the mistake, puts the
//! value of the program's example in its place and reads again, until nothing is wrong. So each
//! run reports every mistake, and the checks between keys run even then.
//!
//! # Files
//!
//! Each file uses only those above it in the table.
//!
//! | file | job |
//! |---|---|
//! | `mistake` | mistakes and their locations |
//! | `node` | a tree of TOML values, each with its line |
//! | `deserializer` | serde over the tree |
//! | `document` | a file with flags and environment over it, and its mistakes |
//! | `values` | values that several tables use: parsing and printing |
//! | `secret` | secrets, in the configuration or in a file |

mod deserializer;
mod document;
mod mistake;
mod node;
mod secret;
pub mod values;

pub use deserializer::{Named, OneOrMany};
pub use document::Document;
pub use mistake::{ConfigError, Location, Mistake, Mistakes};
pub use secret::{Secret, SecretConfig};

#[cfg(test)]
mod tests;
