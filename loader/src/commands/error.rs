//! Errors of commands, and their exit codes.

use std::io;
use std::net::SocketAddr;

use rtad_core::filter::SizingError;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;

use super::build::GateError;
use super::job::JobError;
use super::serve::tokens::TokenError;
use super::verify::error::VerifyError;
use crate::exit::ExitStatus;
use crate::frames::FrameError;
use crate::input::{InputError, RejectError};
use crate::keys::{SpillError, TooLittle};
use crate::sign::SignError;

/// A failed command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Rejects(#[from] RejectError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Spill(#[from] SpillError),
    #[error("progress is kept in {dir}: the same command with --resume continues")]
    Kept { dir: String, source: Box<Self> },
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(
        "the chunks make no manifest that could be read; nothing was published; a build without --resume begins anew"
    )]
    Refused(#[source] rtad_core::snapshot::ManifestError),
    #[error(transparent)]
    Frames(#[from] FrameError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("--changes {path}: could not write it")]
    Changes {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("--report {path}: could not write it")]
    Report {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(
        "{malformed} of {values} values are malformed, more than --max-reject-ratio {max_ratio} allows; \
         nothing was published; keep them with --rejects FILE to look into them"
    )]
    TooManyRejects { malformed: u64, values: u64, max_ratio: f64 },
    #[error(
        "no usable id in {rows} rows; nothing was published; \
         --allow-empty publishes an audience without devices"
    )]
    Empty { rows: u64 },
    #[error("nothing is published for audience {audience}")]
    NotPublished { audience: AudienceName },
    #[error("audience {audience} has no generation older than {live} to go back to")]
    NoOlderGeneration { audience: AudienceName, live: u64 },
    #[error(
        "a later generation's manifest cannot be read, and so not which deltas it has taken up; nothing was changed; \
         --lose-deltas goes back without those"
    )]
    LaterManifest(#[source] StoreError),
    #[error("could not read stdin; what was read before is published")]
    Follow(#[source] io::Error),
    #[error(
        "generation {generation} of {audience} has expired: no pod would load it; \
         build a new one, or go back to one that has not"
    )]
    Expired { audience: AudienceName, generation: u64 },
    #[error("--plot {path}: could not write it")]
    Plot {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("no memory to remember more ids; --bloom remembers in as much as it is given")]
    Memory(#[source] std::collections::TryReserveError),
    #[error("could not write to stdout")]
    Output(#[source] io::Error),
    #[error("could not start")]
    Runtime(#[source] io::Error),
    #[error("could not listen on {flag} {address}")]
    Listen {
        flag: &'static str,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(
        "stopped before everything that was asked was answered; what has no answer is not acknowledged"
    )]
    Drain,
}

/// A contradictory command line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UsageError {
    #[error("--format {format} needs --column NAME[=KIND]")]
    NoColumn { format: &'static str },
    #[error("--follow reads stdin alone: name no INPUT, or `-`")]
    FollowInputs,
    #[error("--column is for --format csv, ndjson and parquet")]
    ColumnOfLines,
    #[error(transparent)]
    Memory(TooLittle),
    #[error("--memory: the system has less than that")]
    NoMemory { source: io::Error },
    #[error(
        "spill directory {dir}: holds what is left of an interrupted build; --resume goes on with it; \
         to begin anew, remove its files"
    )]
    Interrupted { dir: String },
    #[error("spill directory {dir}: is of another build: {what}; to begin anew, remove its files")]
    OtherBuild { dir: String, what: String },
    #[error("--fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "--filter classic keeps an fpr of {fpr} from {min_keys} keys on and there are {keys}; \
         take --filter block512, which keeps it at any size"
    )]
    TooFewKeys { fpr: f64, keys: u64, min_keys: u64 },
    #[error("generation {generation} of {audience} is live already")]
    LiveAlready { audience: AudienceName, generation: u64 },
    #[error(
        "--public-key without --sign-key: this would publish what those who trust that key alone refuse; \
         leave one out or give both"
    )]
    Unsigned,
    #[error(transparent)]
    Token(TokenError),
    #[error("--no-token with --listen {listen}, which is no loopback address; give a --token-file")]
    NoToken { listen: SocketAddr },
}

impl CommandError {
    /// Whether the same build may succeed later, or with more space.
    pub(super) fn may_go_on(&self) -> bool {
        match self {
            Self::Spill(SpillError::InUse { .. } | SpillError::Changed { .. }) => false,
            Self::Spill(_) | Self::Rejects(_) => true,
            Self::Input(InputError::Fetch { .. } | InputError::Read { .. }) => true,
            Self::Store(error) => error.is_transient(),
            _ => false,
        }
    }

    /// The exit code.
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            Self::Input(
                InputError::StdinTwice | InputError::Url { .. } | InputError::Pattern { .. },
            )
            | Self::Rejects(RejectError::IsInput { .. })
            | Self::Usage(_)
            | Self::Sign(_)
            | Self::Store(
                StoreError::Url { .. } | StoreError::ReadOnly { .. } | StoreError::NoListing { .. },
            ) => ExitStatus::Usage,
            Self::Kept { source, .. } => source.status(),
            Self::Spill(SpillError::InUse { .. }) => ExitStatus::Usage,
            Self::Verify(_)
            | Self::Expired { .. }
            | Self::Gate(GateError::Blind { source: StoreError::Signature { .. }, .. })
            | Self::Store(StoreError::Signature { .. }) => ExitStatus::VerificationFailed,
            Self::Store(StoreError::Conflict { .. }) => ExitStatus::Conflict,
            Self::Rejects(_)
            | Self::Spill(_)
            | Self::Output(_)
            | Self::Changes { .. }
            | Self::Report { .. }
            | Self::Memory(_)
            | Self::Refused(_)
            | Self::Plot { .. }
            | Self::Runtime(_)
            | Self::Listen { .. }
            | Self::Drain
            | Self::Store(StoreError::Sign { .. }) => ExitStatus::Unexpected,
            Self::Input(InputError::Fetch { .. })
            | Self::Job(JobError::NotThere { .. })
            | Self::Gate(GateError::Blind { .. })
            | Self::LaterManifest(_)
            | Self::Store(_)
            | Self::NotPublished { .. }
            | Self::NoOlderGeneration { .. } => ExitStatus::Store,
            // The input, or the result of it.
            Self::Input(_)
            | Self::Frames(_)
            | Self::Job(_)
            | Self::Follow(_)
            | Self::TooManyRejects { .. }
            | Self::Empty { .. }
            | Self::Gate(_) => ExitStatus::BadInput,
        }
    }
}
