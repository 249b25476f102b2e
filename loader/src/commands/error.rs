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
    #[error("the chunks form no valid manifest; nothing was published; build without --resume")]
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
         nothing was published; store them with --rejects FILE for inspection"
    )]
    TooManyRejects { malformed: u64, values: u64, max_ratio: f64 },
    #[error(
        "no usable id in {rows} rows; nothing was published; \
         --allow-empty publishes an audience without devices"
    )]
    Empty { rows: u64 },
    #[error("audience {audience}: nothing was published")]
    NotPublished { audience: AudienceName },
    #[error("audience {audience}: no generation is older than {live}")]
    NoOlderGeneration { audience: AudienceName, live: u64 },
    #[error(
        "a later generation's manifest cannot be read, so its deltas are unknown; nothing was changed; \
         --lose-deltas rolls back without them"
    )]
    LaterManifest(#[source] StoreError),
    #[error("could not read stdin; the rows read before are published")]
    Follow(#[source] io::Error),
    #[error(
        "generation {generation} of {audience} has expired: pods refuse it; \
         build a new one, or choose another"
    )]
    Expired { audience: AudienceName, generation: u64 },
    #[error("--plot {path}: could not write it")]
    Plot {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("not enough memory for more ids; --bloom uses a fixed amount")]
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
    #[error("the drain timed out: requests without an answer are not acknowledged")]
    Drain,
}

/// A contradictory command line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UsageError {
    #[error("--format {format} needs --column NAME[=KIND]")]
    NoColumn { format: &'static str },
    #[error("--follow reads stdin only: expected no INPUT, or `-`")]
    FollowInputs,
    #[error("--column is for --format csv, ndjson and parquet")]
    ColumnOfLines,
    #[error(transparent)]
    Memory(TooLittle),
    #[error("--memory: the system has less than that")]
    NoMemory { source: io::Error },
    #[error(
        "spill directory {dir}: belongs to an interrupted build: --resume continues it; \
         remove its files to start a new one"
    )]
    Interrupted { dir: String },
    #[error(
        "spill directory {dir}: belongs to another build: {what}; remove its files to start a new one"
    )]
    OtherBuild { dir: String, what: String },
    #[error("--fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "--filter classic keeps an fpr of {fpr} from {min_keys} keys on and there are {keys}; \
         use --filter block512, which keeps it at any size"
    )]
    TooFewKeys { fpr: f64, keys: u64, min_keys: u64 },
    #[error("generation {generation} of {audience} is live already")]
    LiveAlready { audience: AudienceName, generation: u64 },
    #[error(
        "--public-key without --sign-key: readers that trust this key would refuse the publish; \
         omit it, or add --sign-key"
    )]
    Unsigned,
    #[error(transparent)]
    Token(TokenError),
    #[error(
        "--no-token with --listen {listen}, which is not a loopback address: pass --token-file"
    )]
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
