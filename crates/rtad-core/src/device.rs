//! Device ids and the 16-byte key that each becomes.
//!
//! A platform names a device by many ids (IDFA, IMEI, OAID, …), raw or hashed, in several
//! spellings. Each id becomes one [`DeviceKey`]: the md5 of its canonical form. The loader and the
//! service must agree on that form to the byte, so both use this module.
//!
//! Ids are personal data even when hashed: nothing in this module prints one, and `Debug` of a key
//! hides it.
//!
//! This module does *not* know about files, filters or requests.

mod blank;
mod field;
mod form;
mod key;
mod key_batch;
mod key_maker;
mod kind;
mod md5_lanes;

pub use blank::{BlankIds, is_macro};
pub use field::IdField;
pub use form::{Look, Reading, digest_key, lookalike};
pub use key::{DeviceKey, SHARDS};
pub use key_batch::KeyBatch;
pub use key_maker::{KeyMaker, Unusable, trim};
pub use kind::{Case, IdKind, ParseCaseError, ParseKindError};

#[cfg(test)]
mod tests;
