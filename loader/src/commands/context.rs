//! Shared parts of the commands: output, location of an audience, delta reports, runtime.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use indicatif::HumanCount;
use serde::Serialize;
use tokio::runtime::Runtime;

use rtad_core::snapshot::{AudienceName, Current, DeltaEntry, Manifest, Overlay};
use rtad_store::Store;

use super::error::CommandError;
use super::trust_args::TrustArgs;
use crate::progress::Progress;

/// Format of a command's result.
#[derive(Debug, Args)]
pub(super) struct Output {
    /// Write one JSON object on stdout, and nothing else
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Write only data and errors: no report, no progress
    #[arg(long, global = true)]
    pub(super) quiet: bool,
    /// Draw no progress (as when stderr is not a terminal)
    #[arg(long, global = true)]
    pub(super) no_progress: bool,
}

impl Output {
    pub(super) fn progress(&self) -> Progress {
        Progress::new(!self.quiet && !self.no_progress)
    }

    /// Writes data: as JSON, or as text by `text`.
    pub(super) fn data<T: Serialize>(
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

    /// Writes a report, unless `--quiet` is set.
    pub(super) fn report<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        if self.quiet && !self.json { Ok(()) } else { self.data(value, text) }
    }
}

/// Location of an audience.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// Store of the snapshots: a directory, file:///directory, s3://bucket/prefix,
    /// gs://bucket/prefix, az://container/prefix; for reading also https://host/path and
    /// http://host/path
    #[arg(long, value_name = "URL")]
    pub(super) store: String,
    /// The audience's name: 1 to 64 of a-z, 0-9, _ and -
    #[arg(long, value_name = "NAME")]
    pub(super) audience: AudienceName,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

impl Target {
    pub(super) fn open(&self) -> Result<Store, CommandError> {
        Ok(self.trust.applied_to(Store::open(&self.store)?))
    }

    /// The manifest of `generation`, or of the live one, which is checked against `CURRENT`.
    pub(super) async fn manifest(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<Manifest, CommandError> {
        Ok(self.manifest_and_overlay(store, generation).await?.0)
    }

    /// The same with the overlay of `CURRENT` for the live generation; of others, their residual.
    pub(super) async fn manifest_and_overlay(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<(Manifest, Overlay), CommandError> {
        if let Some(generation) = generation {
            let (manifest, bytes) = store.manifest_of(&self.audience, generation).await?;
            // Removals that filters cannot express stay with their generation.
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

/// Deltas and state of the live generation, for reports.
#[derive(Debug, Serialize)]
pub(super) struct DeltaReport {
    pub(super) sequence: u64,
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_unix_seconds: Option<u64>,
    pub(super) deltas: usize,
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) tombstones: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) appended_unix_seconds: Option<u64>,
}

impl DeltaReport {
    pub(super) fn of(current: &Current) -> Self {
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

    pub(super) fn is_empty(&self) -> bool {
        self.deltas == 0
            && self.tombstones == 0
            && self.state == "live"
            && self.expires_unix_seconds.is_none()
    }

    /// The rest of a report's line.
    pub(super) fn in_words(&self) -> String {
        let Self { deltas, added, removed, tombstones, state, .. } = self;
        let ends = self
            .expires_unix_seconds
            .map(|end| format!(", ends at {end} (seconds since 1970 UTC)"));
        format!(
            "{} added and {} removed by {deltas} deltas, {} tombstones, {state}{}",
            HumanCount(*added),
            HumanCount(*removed),
            HumanCount(*tombstones),
            ends.unwrap_or_default()
        )
    }
}

pub(super) fn runtime() -> Result<Runtime, CommandError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Threads that read and hash files: the allocator keeps a chunk's memory for each.
    builder.max_blocking_threads(2 * default_threads());
    builder.enable_all().build().map_err(CommandError::Runtime)
}

pub(super) fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Default number of threads.
pub(super) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
