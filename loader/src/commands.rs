//! The commands, one file each, and what they share: flags, output, errors, and finding a generation in the
//! store.

mod append;
mod build;
mod dedup;
mod diff;
mod gc;
mod input_args;
mod inspect;
mod job;
mod list;
mod plan;
mod query;
mod rollback;
mod serve;
mod synth;
mod trust_args;
mod verify;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use indicatif::HumanCount;
use serde::Serialize;
use tokio::runtime::Runtime;

use rtad::filter::SizingError;
use rtad::snapshot::{AudienceName, Current, DeltaEntry, Manifest, Overlay};
use rtad::store::{Store, StoreError};

use crate::exit::ExitStatus;
use crate::frames::FrameError;
use crate::input::{InputError, RejectError};
use crate::keys::{SpillError, TooLittle};
use crate::progress::Progress;
use crate::sign::SignError;
use build::GateError;
use job::JobError;
use trust_args::{SignArgs, TrustArgs};

/// Turns device-id dumps into rtad snapshots and publishes them.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
}

const EXIT_CODES: &str = "Exit codes: 0 ok · 1 unexpected · 2 usage · 3 bad input over the threshold · \
    4 verification failed · 5 store or network · 6 somebody else published meanwhile";

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildArgs),
    Begin(job::BeginArgs),
    Keys(job::KeysArgs),
    Distinct(job::DistinctArgs),
    Chunk(job::ChunkArgs),
    Publish(job::PublishArgs),
    Append(append::AppendArgs),
    Remove(append::RemoveArgs),
    Dedup(dedup::DedupArgs),
    Plan(plan::PlanArgs),
    List(list::ListArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Query(query::QueryArgs),
    Diff(diff::DiffArgs),
    Rollback(rollback::RollbackArgs),
    Gc(gc::GcArgs),
    Serve(serve::ServeArgs),
    Synth(synth::SynthArgs),
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli) -> Result<(), CommandError> {
    let output = &cli.output;
    match cli.command {
        Command::Build(args) => build::run(args, output),
        Command::Begin(args) => job::begin(&args, output),
        Command::Keys(args) => job::keys(&args, output),
        Command::Distinct(args) => job::distinct(&args, output),
        Command::Chunk(args) => job::chunk(&args, output),
        Command::Publish(args) => job::publish(&args, output),
        Command::Append(args) => append::append(args, output),
        Command::Remove(args) => append::remove(args, output),
        Command::Dedup(args) => dedup::run(&args, output),
        Command::Plan(args) => plan::run(&args, output),
        Command::List(args) => list::run(args, output),
        Command::Inspect(args) => inspect::run(args, output),
        Command::Verify(args) => verify::run(args, output),
        Command::Query(args) => query::run(args, output),
        Command::Diff(args) => diff::run(&args, output),
        Command::Rollback(args) => rollback::run(args, output),
        Command::Gc(args) => gc::run(&args, output),
        Command::Serve(args) => serve::run(args),
        Command::Synth(args) => synth::run(&args),
    }
}

/// How a command's result is written.
#[derive(Debug, Args)]
struct Output {
    /// Write one JSON object on stdout, and nothing else
    #[arg(long, global = true)]
    json: bool,
    /// Write nothing but data and errors: no report of what was done, no progress
    #[arg(long, global = true)]
    quiet: bool,
    /// Draw no progress (there is none either when stderr is not a terminal)
    #[arg(long, global = true)]
    no_progress: bool,
}

impl Output {
    fn progress(&self) -> Progress {
        Progress::new(!self.quiet && !self.no_progress)
    }

    /// Writes what was asked for: as JSON, or as text by `text`.
    fn data<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = if self.json {
            serde_json::to_writer(&mut out, value)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
        } else {
            text(value, &mut out)
        };
        written.and_then(|()| out.flush()).map_err(CommandError::Output)
    }

    /// Writes what was done, which `--quiet` leaves out.
    fn report<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        if self.quiet && !self.json { Ok(()) } else { self.data(value, text) }
    }
}

/// Where a command finds its audience.
#[derive(Debug, Args)]
struct Target {
    /// Where snapshots are published: a directory, file:///directory, s3://bucket/prefix, gs://bucket/prefix,
    /// az://container/prefix; to read only, https://host/path or http://host/path
    #[arg(long, value_name = "URL")]
    store: String,
    /// The audience's name: 1 to 64 of a-z, 0-9, _ and -
    #[arg(long, value_name = "NAME")]
    audience: AudienceName,
    #[command(flatten)]
    trust: TrustArgs,
}

impl Target {
    fn open(&self) -> Result<Store, CommandError> {
        Ok(self.trust.applied_to(Store::open(&self.store)?))
    }

    /// The manifest of `generation`, or of the live one; that one is checked against `CURRENT`.
    async fn manifest(&self, store: &Store, generation: Option<u64>) -> Result<Manifest, CommandError> {
        Ok(self.manifest_and_overlay(store, generation).await?.0)
    }

    /// The same, with what `CURRENT` lays over the live one; over any other, nothing.
    async fn manifest_and_overlay(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<(Manifest, Overlay), CommandError> {
        if let Some(generation) = generation {
            let (manifest, bytes) = store.manifest_of(&self.audience, generation).await?;
            // What filters could not take up goes with it.
            let residual = manifest.folded().and_then(|folded| folded.residual.clone());
            let sequence = residual.as_ref().map_or(1, |residual| residual.last);
            let mut current = Current::new(sequence, generation, &bytes, None);
            current.deltas = residual.into_iter().collect();
            let overlay = store.overlay(&self.audience, &current, &Overlay::default()).await?;
            return Ok((manifest, overlay));
        }
        let live = store.live(&self.audience).await?;
        let live = live.ok_or_else(|| CommandError::NotPublished { audience: self.audience.clone() })?;
        let manifest = store.manifest(&self.audience, &live.current).await?;
        let overlay = store.overlay(&self.audience, &live.current, &Overlay::default()).await?;
        Ok((manifest, overlay))
    }
}

/// What is said over the live generation, for reports.
#[derive(Debug, Serialize)]
struct DeltaReport {
    sequence: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    deltas: usize,
    added: u64,
    removed: u64,
    tombstones: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    appended_unix_seconds: Option<u64>,
}

impl DeltaReport {
    fn of(current: &Current) -> Self {
        let sum = |count: fn(&DeltaEntry) -> u64| current.deltas.iter().map(count).sum();
        Self {
            sequence: current.sequence,
            state: current.state.as_str(),
            expires_unix_seconds: current.expires_unix_seconds,
            deltas: current.deltas.len(),
            added: sum(|entry| entry.added),
            removed: sum(|entry| entry.removed),
            tombstones: current.tombstones.as_ref().map_or(0, |entry| entry.removed),
            appended_unix_seconds: current.appended_unix_seconds,
        }
    }

    fn is_empty(&self) -> bool {
        self.deltas == 0
            && self.tombstones == 0
            && self.state == "live"
            && self.expires_unix_seconds.is_none()
    }

    /// For people: the rest of a line.
    fn in_words(&self) -> String {
        let Self { deltas, added, removed, tombstones, state, .. } = self;
        let ends = self.expires_unix_seconds.map(|end| format!(", ends at {end} (seconds since 1970 UTC)"));
        format!(
            "{} added and {} removed by {deltas} deltas, {} tombstones, {state}{}",
            HumanCount(*added),
            HumanCount(*removed),
            HumanCount(*tombstones),
            ends.unwrap_or_default()
        )
    }
}

fn runtime() -> Result<Runtime, CommandError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Those that read files and hash them. The allocator keeps for each what it once had, and chunks are large.
    builder.max_blocking_threads(2 * default_threads());
    builder.enable_all().build().map_err(CommandError::Runtime)
}

fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How many threads to use when nothing is said.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A command that did not do what was asked.
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
    #[error("what was done is kept in {dir}, and the same command with --resume goes on with it")]
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
    Refused(#[source] rtad::snapshot::ManifestError),
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
    Verify(#[from] verify::VerifyError),
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
    #[error("stopped before everything that was asked was answered; what has no answer is not acknowledged")]
    Drain,
}

/// A command line that contradicts itself.
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
    Token(serve::TokenError),
    #[error("--no-token with --listen {listen}, which is no loopback address; give a --token-file")]
    NoToken { listen: SocketAddr },
}

impl CommandError {
    /// Whether the same build may come further later, or with more room.
    fn may_go_on(&self) -> bool {
        match self {
            Self::Spill(SpillError::InUse { .. } | SpillError::Changed { .. }) => false,
            Self::Spill(_) | Self::Rejects(_) => true,
            Self::Input(InputError::Fetch { .. } | InputError::Read { .. }) => true,
            Self::Store(error) => error.passes(),
            _ => false,
        }
    }

    /// The exit code of it.
    pub(crate) fn status(&self) -> ExitStatus {
        match self {
            Self::Input(InputError::StdinTwice | InputError::Url { .. } | InputError::Pattern { .. })
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
            // The input, also by what it comes to.
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
