//! Command list and dispatch: one module per command.

mod append;
mod build;
mod context;
mod dedup;
mod diff;
mod error;
mod gc;
mod input_args;
mod inspect;
mod job;
mod list;
mod plan;
mod query;
#[cfg(test)]
mod reference;
mod rollback;
mod serve;
mod synth;
mod trust_args;
mod verify;

use clap::{CommandFactory as _, Parser, Subcommand};

use rtad_http::manual::Manual;

use context::Output;
pub(crate) use error::CommandError;

/// Build rtad snapshots from device-id exports and publish them.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
}

const EXIT_CODES: &str = "Exit codes: 0 ok · 1 unexpected · 2 usage · 3 bad input over the \
    threshold · 4 verification failed · 5 store or network · 6 another process published at the \
    same time";

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
    #[command(flatten)]
    Manual(Manual),
}

/// Runs the selected command.
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
        Command::Manual(manual) => manual.write(Cli::command()).map_err(CommandError::Output),
    }
}

/// Output format of a command.
#[derive(Debug, Args)]
struct Output {
    /// Write one JSON object to stdout and nothing else
    #[arg(long, global = true)]
    json: bool,
    /// Write data and errors only: no report, no progress
    #[arg(long, global = true)]
    quiet: bool,
    /// Draw no progress; without a terminal on stderr there is none anyway
    #[arg(long, global = true)]
    no_progress: bool,
}

impl Output {
    fn progress(&self) -> Progress {
        Progress::new(!self.quiet && !self.no_progress)
    }

    /// Writes the requested data: as JSON, or as text by `text`.
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

    /// Writes a report of completed work; `--quiet` suppresses it.
    fn report<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        if self.quiet && !self.json { Ok(()) } else { self.data(value, text) }
    }
}

/// The store and audience of a command.
#[derive(Debug, Args)]
struct Target {
    /// Store of the snapshots: a directory, file:///directory, s3://bucket/prefix,
    /// gs://bucket/prefix,
    /// az://container/prefix; read-only: https://host/path or http://host/path
    #[arg(long, value_name = "URL")]
    store: String,
    /// Audience name: 1 to 64 characters of a-z, 0-9, _ and -
    #[arg(long, value_name = "NAME")]
    audience: AudienceName,
    #[command(flatten)]
    trust: TrustArgs,
}

impl Target {
    fn open(&self) -> Result<Store, CommandError> {
        Ok(self.trust.applied_to(Store::open(&self.store)?))
    }

    /// The manifest of `generation`, or of the live generation, checked against `CURRENT`.
    async fn manifest(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<Manifest, CommandError> {
        Ok(self.manifest_and_overlay(store, generation).await?.0)
    }

    /// The manifest and its overlay: all deltas in `CURRENT` for the live generation; the residual
    /// delta alone for any other generation.
    async fn manifest_and_overlay(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<(Manifest, Overlay), CommandError> {
        if let Some(generation) = generation {
            let (manifest, bytes) = store.manifest_of(&self.audience, generation).await?;
            let residual = manifest.folded().and_then(|folded| folded.residual.clone());
            let sequence = residual.as_ref().map_or(1, |residual| residual.last);
            let mut current = Current::new(sequence, generation, &bytes, None);
            current.deltas = residual.into_iter().collect();
            let overlay = store.overlay(&self.audience, &current, &Overlay::default()).await?;
            return Ok((manifest, overlay));
        }
        let live = store.live(&self.audience).await?;
        let live =
            live.ok_or_else(|| CommandError::NotPublished { audience: self.audience.clone() })?;
        let manifest = store.manifest(&self.audience, &live.current).await?;
        let overlay = store.overlay(&self.audience, &live.current, &Overlay::default()).await?;
        Ok((manifest, overlay))
    }
}

/// Deltas and state of the live generation.
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

    fn text(&self) -> String {
        let Self { deltas, added, removed, tombstones, state, .. } = self;
        let ends = self
            .expires_unix_seconds
            .map(|end| format!(", expires at {end} (seconds since 1970 UTC)"));
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
    // These threads read and hash files. The allocator caches memory per thread, and chunks are
    // large.
    builder.max_blocking_threads(2 * default_threads());
    builder.enable_all().build().map_err(CommandError::Runtime)
}

fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Default number of threads: one per available core.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
