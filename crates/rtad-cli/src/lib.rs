//! Command-line parts that the programs of rtad share.
//!
//! | module | job |
//! |---|---|
//! | [`exit`] | exit codes, and the error line on stderr |
//! | [`command_error`] | failure of a command: any of its errors, boxed |
//! | [`manual`] | shell completions and man pages |
//! | `shown` | values of flags in messages |
//! | `signer` | a minisign secret key, and how it is read |
//! | `trust_args` | `--public-key` |
//! | `sign_args` | `--sign-key`, and opening a store for writing |
//!
//! Each module uses only those above it in the table.

pub mod command_error;
pub mod exit;
pub mod manual;
mod shown;
mod sign_args;
mod signer;
mod trust_args;

pub use sign_args::SignArgs;
pub use signer::Signer;
pub use trust_args::{PublicKeysError, TrustArgs};
