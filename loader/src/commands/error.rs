//! Errors that several commands have.

use indicatif::HumanCount;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::device::KeyDigest;
use rtad_core::filter::SizingError;
use rtad_core::snapshot::{AudienceName, Manifest};

/// An error that several commands have.
#[derive(Debug, thiserror::Error)]
pub enum CommonError {
    #[error("--filter, --fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "no usable id in {} rows; nothing was published; \
         --allow-empty publishes an audience without devices",
        HumanCount(*rows)
    )]
    Empty { rows: u64 },
    #[error("audience {audience}: no generation is published")]
    NotPublished { audience: AudienceName },
    #[error(
        "audience {audience}: generation {generation} has expired, so no pod would load it; \
build a new one, or roll back to one that has not expired"
    )]
    Expired {
        audience: AudienceName,
        generation: u64,
    },
}

impl CommonError {
    /// The error of an audience without a live generation.
    pub fn not_published(audience: &AudienceName) -> CommandError {
        Self::NotPublished {
            audience: audience.clone(),
        }
        .into()
    }
}

impl CommandFailure for CommonError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Fpr(_) => ExitStatus::Usage,
            Self::Empty { .. } => ExitStatus::BadInput,
            Self::NotPublished { .. } => ExitStatus::Store,
            Self::Expired { .. } => ExitStatus::VerificationFailed,
        }
    }
}

/// Ids of another hash than those of the audience.
#[derive(Debug, thiserror::Error)]
#[error(
    "audience {audience}: generation {generation} has keys of {live}, and the ids are of {given}: \
     they never match; accepted: another audience, or ids of the same hash (--id-kind sha1 for \
     SHA-1)"
)]
pub struct OtherDigest {
    audience: AudienceName,
    generation: u64,
    live: &'static str,
    given: &'static str,
}

impl OtherDigest {
    /// Refuses keys of `digest` over a generation of another one.
    pub fn check(live: &Manifest, digest: KeyDigest) -> Result<(), Self> {
        if live.key_digest() == digest {
            return Ok(());
        }
        Err(Self {
            audience: live.audience().clone(),
            generation: live.generation(),
            live: live.key_digest().as_str(),
            given: digest.as_str(),
        })
    }
}

impl CommandFailure for OtherDigest {
    fn exit(&self) -> ExitStatus {
        ExitStatus::BadInput
    }
}
