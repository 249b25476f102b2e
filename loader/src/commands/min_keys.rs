//! Smallest audience of a kind of filter.

use rtad_core::filter::{FilterKind, FilterSpec};

use super::error::UsageError;

/// Rejects a number of keys at which filters of this kind exceed their rate.
pub(super) fn check_min_keys(kind: FilterKind, fpr: f64, keys: u64) -> Result<(), UsageError> {
    let min_keys = FilterSpec::min_keys(kind, fpr);
    match keys > 0 && keys < min_keys {
        true => Err(UsageError::TooFewKeys { fpr, keys, min_keys }),
        false => Ok(()),
    }
}
