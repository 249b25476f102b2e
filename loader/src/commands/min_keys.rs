//! Smallest audience of a kind of filter.

use rtad_core::filter::{FilterKind, FilterSpec};

use crate::exit::{CommandFailure, ExitStatus};

/// Fewer keys than filters of this kind need.
#[derive(Debug, thiserror::Error)]
#[error(
    "--filter classic: for an fpr of {fpr} expected at least {min_keys} keys, found {keys}; \
use --filter block512, which keeps the fpr at any size"
)]
pub(super) struct TooFewKeys {
    fpr: f64,
    keys: u64,
    min_keys: u64,
}

impl CommandFailure for TooFewKeys {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// Rejects a number of keys at which filters of this kind exceed their rate.
pub(super) fn check_min_keys(kind: FilterKind, fpr: f64, keys: u64) -> Result<(), TooFewKeys> {
    let min_keys = FilterSpec::min_keys(kind, fpr);
    match keys > 0 && keys < min_keys {
        true => Err(TooFewKeys { fpr, keys, min_keys }),
        false => Ok(()),
    }
}
