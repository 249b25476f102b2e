//! Signed publications: the flags of programs that write to a store, and minisign secret keys.
//!
//! | module | job |
//! |---|---|
//! | `shown` | values of flags in messages |
//! | `signer` | a minisign secret key, and how it is read |
//! | `trust_args` | `--public-key` |
//! | `sign_args` | `--sign-key`, and opening a store for writing |
//!
//! Each module uses only those above it in the table.

mod shown;
mod sign_args;
mod signer;
mod trust_args;

pub use sign_args::SignArgs;
pub use signer::Signer;
pub use trust_args::{PublicKeysError, TrustArgs};
