//! Errors of the commands, and the exit code of each.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use rtad_core::filter::SizingError;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;

use super::gate::GateError;
use super::job::error::JobError;
use super::serve::tokens::TokenError;
use super::serve::windows::WindowError;
use super::serve::windows::config::ConfigError;
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
    #[error("completed work is kept in {dir}; the same command with --resume continues it")]
    Resumable { dir: String, source: Box<Self> },
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error(
        "the chunks give an invalid manifest; nothing was published; a build without --resume \
         starts over"
    )]
    InvalidManifest(#[source] rtad_core::snapshot::ManifestError),
    #[error(transparent)]
    Frames(#[from] FrameError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("{flag} {path}: could not write it")]
    WriteFile {
        flag: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(
        "{malformed} of {values} values are malformed: expected at most --max-reject-ratio \
         {max_ratio}; nothing was published; keep them with --rejects FILE to examine them"
    )]
    TooManyRejects { malformed: u64, values: u64, max_ratio: f64 },
    #[error(
        "no usable id in {rows} rows; nothing was published; \
         --allow-empty publishes an audience without devices"
    )]
    Empty { rows: u64 },
    #[error(
        "no usable id in {rows} rows: {malformed} are malformed; --id-kind or --column=KIND may be \
         wrong"
    )]
    NoUsable { rows: u64, malformed: u64 },
    #[error("audience {audience}: no generation is published")]
    NotPublished { audience: AudienceName },
    #[error("audience {audience}: no generation is older than the live one, {live}")]
    NoOlderGeneration { audience: AudienceName, live: u64 },
    #[error(
        "the manifest of a later generation is unreadable, so its merged deltas are unknown; \
nothing was changed; --lose-deltas rolls back without them"
    )]
    LaterManifest(#[source] StoreError),
    #[error(
        "the deltas merged into the live generation are unreadable, so its carried changes are \
unknown; nothing was published; without --keep-carried and --max-carried-loss the input decides"
    )]
    CarriedUnreadable(#[source] StoreError),
    #[error("could not read stdin; all earlier rows are published")]
    Follow(#[source] io::Error),
    #[error(
        "audience {audience}: generation {generation} has expired, so no pod would load it; \
build a new one, or roll back to one that has not expired"
    )]
    Expired { audience: AudienceName, generation: u64 },
    #[error("out of memory for more ids; --bloom uses a fixed amount of memory")]
    Memory(#[source] std::collections::TryReserveError),
    #[error("could not write to stdout")]
    Output(#[source] io::Error),
    #[error("could not start")]
    Runtime(#[source] io::Error),
    #[error("could not open a window")]
    Window(#[source] Box<WindowError>),
    #[error("could not listen on {flag} {address}")]
    Listen {
        flag: &'static str,
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("stopped before every request was answered; unanswered writes are not acknowledged")]
    Drain,
}

/// An invalid command line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UsageError {
    #[error("--format {format} needs --column NAME[=KIND]")]
    NoColumn { format: &'static str },
    #[error("--follow reads stdin only: expected no INPUT, or `-`")]
    FollowInputs,
    #[error("--column requires --format csv, ndjson or parquet")]
    ColumnOfLines,
    #[error(
        "--plot-of {figure}: filters of kind {kind} have none; accepted are keys, fpr, and fill \
         of block512 and classic or diverted of ribbon"
    )]
    NoFigure { figure: String, kind: &'static str },
    #[error(
        "audience {audience} has ribbon filters, to which no key can be added: run a full build, \
         which includes the deltas, or stay with deltas until then; block512 and classic can be \
         compacted"
    )]
    CompactRibbon { audience: AudienceName },
    #[error("--bad-rows skip requires --format csv: other formats have no rows of several lines")]
    BadRowsOfOthers,
    #[error(transparent)]
    Memory(TooLittle),
    #[error("--memory: more than the system has")]
    NoMemory { source: io::Error },
    #[error(
        "spill directory {dir}: holds the files of an interrupted build; continue it with \
         --resume, or remove the files to start over"
    )]
    Interrupted { dir: String },
    #[error(
        "spill directory {dir}: belongs to another build: {what}; remove its files to start \
        over"
    )]
    OtherBuild { dir: String, what: String },
    #[error("--fpr")]
    Fpr(#[source] SizingError),
    #[error(
        "--filter classic: for an fpr of {fpr} expected at least {min_keys} keys, found {keys}; \
use --filter block512, which keeps the fpr at any size"
    )]
    TooFewKeys { fpr: f64, keys: u64, min_keys: u64 },
    #[error("audience {audience}: generation {generation} is already live")]
    LiveAlready { audience: AudienceName, generation: u64 },
    #[error(
        "--public-key without --sign-key: pods that require that key would reject the unsigned \
publication; omit --public-key or give both"
    )]
    Unsigned,
    #[error(transparent)]
    Token(TokenError),
    #[error(transparent)]
    Config(ConfigError),
    #[error("--no-token: --listen {listen} is not a loopback address; use --token-file instead")]
    NoToken { listen: SocketAddr },
}

impl CommandError {
    /// The error of writing the file of a flag.
    pub(super) fn write_file(flag: &'static str, path: &Path, source: io::Error) -> Self {
        Self::WriteFile { flag, path: path.display().to_string(), source }
    }

    /// Whether the same build may succeed later, or with more disk space.
    pub(super) fn is_resumable(&self) -> bool {
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
            Self::Resumable { source, .. } => source.status(),
            Self::Spill(SpillError::InUse { .. }) => ExitStatus::Usage,
            Self::Verify(_)
            | Self::Expired { .. }
            | Self::Gate(GateError::LiveUnreadable {
                source: StoreError::Signature { .. }, ..
            })
            | Self::Store(StoreError::Signature { .. }) => ExitStatus::VerificationFailed,
            Self::Store(StoreError::Conflict { .. }) => ExitStatus::Conflict,
            Self::Rejects(_)
            | Self::Spill(_)
            | Self::Output(_)
            | Self::WriteFile { .. }
            | Self::Memory(_)
            | Self::InvalidManifest(_)
            | Self::Runtime(_)
            | Self::Listen { .. }
            | Self::Window(_)
            | Self::Drain
            | Self::Store(StoreError::Sign { .. }) => ExitStatus::Unexpected,
            Self::Input(InputError::Fetch { .. })
            | Self::Job(JobError::MissingChunks { .. })
            | Self::Gate(GateError::LiveUnreadable { .. })
            | Self::LaterManifest(_)
            | Self::CarriedUnreadable(_)
            | Self::Store(_)
            | Self::NotPublished { .. }
            | Self::NoOlderGeneration { .. } => ExitStatus::Store,
            Self::Input(_)
            | Self::Frames(_)
            | Self::Job(_)
            | Self::Follow(_)
            | Self::TooManyRejects { .. }
            | Self::Empty { .. }
            | Self::NoUsable { .. }
            | Self::Gate(_) => ExitStatus::BadInput,
        }
    }
}
