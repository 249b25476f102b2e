//! Errors of a failed verification.

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_store::StoreError;

use super::probe::MeasuredFpr;

/// A generation that failed verification.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("verification failed")]
    File(#[source] StoreError),
    #[error(
        "verification failed: {field}: expected {stated} by the manifest, found {found} in the \
         chunks; rebuild with `rtad-loader build`"
    )]
    Statistics {
        field: &'static str,
        found: f64,
        stated: f64,
    },
    #[error(
        "verification failed: {missing} of {checked} ids are not members; \
check that the build had these inputs and the same flags; --missing FILE lists them"
    )]
    FalseNegatives { missing: u64, checked: u64 },
    #[error(
        "verification failed: measured fpr {} ({} to {}, 95 %) \
         is more than 10 % above the expected {expected}",
        measured.measured_fpr, measured.low, measured.high
    )]
    Fpr {
        measured: MeasuredFpr,
        expected: f64,
    },
}

impl CommandFailure for VerifyError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::VerificationFailed
    }
}
