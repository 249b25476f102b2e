//! Shared parts of the commands: output, location of an audience, threads, runtime.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Runtime;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::snapshot::{AudienceName, Current, GenerationEntry, Manifest, Overlay};
use rtad_store::{Store, StoreError};

use super::error::CommonError;
use super::report_text::write_report;
use super::stage_args::PodShare;
use crate::progress::{Progress, Watch};

/// The name and version of this program in manifests.
pub const TOOL: &str = concat!("rtad-loader ", env!("CARGO_PKG_VERSION"));

/// Format of a command's result.
#[derive(Debug, Args)]
pub struct Output {
    /// Write one JSON object to stdout and nothing else
    #[arg(long, global = true)]
    pub json: bool,
    /// Write only data and errors: no report, no progress, which only a terminal gets anyway
    #[arg(long, global = true)]
    pub quiet: bool,
    /// `None` on the command line.
    #[arg(skip)]
    host: Option<Host>,
}

/// The program around a command: it watches the command, and takes its report.
#[derive(Debug, Clone)]
pub struct Host {
    watch: Watch,
    /// JSON.
    report: Arc<Mutex<String>>,
}

impl Host {
    pub fn new(watch: &Watch) -> Self {
        Self {
            watch: watch.clone(),
            report: Arc::default(),
        }
    }

    /// The report of a command that succeeded.
    pub fn into_report(self) -> String {
        std::mem::take(&mut self.report.lock())
    }
}

impl Output {
    pub fn set_host(&mut self, host: &Host) {
        self.host = Some(host.clone());
    }

    pub fn progress(&self) -> Progress {
        match &self.host {
            Some(host) => Progress::watched(&host.watch),
            None => Progress::new(!self.quiet),
        }
    }

    /// Writes data: as JSON, or as text by `text`.
    pub fn data<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), CommandError> {
        self.write(value, text).map_err(CommandError::output)
    }

    /// Writes the data of another step, as JSON. A reader that has gone is a failure.
    pub fn step_data<T: Serialize>(&self, value: &T) -> Result<(), CommandError> {
        let written = self.write(value, |value, out| {
            serde_json::to_writer(&mut *out, value)?;
            writeln!(out)
        });
        written.map_err(CommandError::data_output)
    }

    fn write<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T, &mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(host) = &self.host {
            *host.report.lock() = serde_json::to_string(value)?;
            return Ok(());
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = if self.json {
            serde_json::to_writer(&mut out, value)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n"))
        } else {
            text(value, &mut out)
        };
        written.and_then(|()| out.flush())
    }

    /// Writes a report, unless `--quiet` is set.
    pub fn report(&self, headline: &str, report: &impl Serialize) -> Result<(), CommandError> {
        let is_quiet = self.quiet && !self.json && self.host.is_none();
        if is_quiet {
            return Ok(());
        }
        self.facts(headline, report)
    }

    /// Writes a report that was asked for, with `--quiet` too.
    pub fn facts(&self, headline: &str, report: &impl Serialize) -> Result<(), CommandError> {
        self.data(report, |report, out| write_report(out, headline, report))
    }
}

/// Location of an audience.
#[derive(Debug, Args)]
pub struct Target {
    /// Store of the snapshots: a directory, file:///directory, s3://bucket/prefix,
    /// gs://bucket/prefix, az://container/prefix, oss://bucket/prefix, cos://bucket/prefix;
    /// read-only: https://host/path or http://host/path
    #[arg(long, value_name = "URL")]
    pub store: String,
    /// Audience name: 1 to 64 characters of a-z, 0-9, _ and -
    #[arg(long, value_name = "NAME")]
    pub audience: AudienceName,
}

/// A generation that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum TargetError {
    Store(#[from] StoreError),
    NotPublished(#[from] CommonError),
}

impl CommandFailure for TargetError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Store(error) => error.exit(),
            Self::NotPublished(error) => error.exit(),
        }
    }
}

impl Target {
    pub fn open(&self) -> Result<Store, CommandError> {
        Ok(Store::open(&self.store)?)
    }

    /// The content of the newest record.
    pub async fn current(&self, store: &Store) -> Result<Current, TargetError> {
        let Some(live) = store.live(&self.audience).await? else {
            let audience = self.audience.clone();
            return Err(CommonError::NotPublished { audience }.into());
        };
        Ok(live.current)
    }

    /// A generation that a record names.
    pub fn entry(
        &self,
        current: &Current,
        generation: u64,
    ) -> Result<GenerationEntry, CommonError> {
        current
            .entry(generation)
            .ok_or_else(|| CommonError::not_kept(&self.audience, current, generation))
    }

    /// The manifest of `generation`, or of the live one; and the state whose deltas belong to it.
    pub async fn manifest_and_current(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<(Manifest, Current), TargetError> {
        let current = self.current(store).await?;
        let Some(generation) = generation else {
            let live = current.live_entry();
            return Ok((store.manifest(&self.audience, &live).await?, current));
        };

        let entry = self.entry(&current, generation)?;
        let (manifest, bytes) = store.manifest_and_file(&self.audience, &entry).await?;
        let without_deltas = Current::new(1, generation, &bytes, None);
        Ok((manifest, without_deltas))
    }

    /// The manifest and its overlay: all deltas of the record for the live generation, none for any
    /// other.
    pub async fn manifest_and_overlay(
        &self,
        store: &Store,
        generation: Option<u64>,
    ) -> Result<(Manifest, Overlay), TargetError> {
        let (manifest, current) = self.manifest_and_current(store, generation).await?;
        let overlay = store
            .overlay(&self.audience, &current, &Overlay::default())
            .await?;
        Ok((manifest, overlay))
    }
}

pub fn runtime() -> Result<Runtime, CommandError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // These threads read and hash files. The allocator caches memory per thread, and chunks are
    // large.
    builder.max_blocking_threads(2 * default_threads());
    builder.enable_all().build().map_err(CommandError::runtime)
}

/// Default number of threads: one per available core.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The headline of a publish; `generation` is `None` for a dry run.
pub fn published(audience: &str, generation: Option<u64>, stage: Option<PodShare>) -> String {
    match (generation, stage) {
        (Some(generation), Some(share)) => {
            format!("staged {audience} generation {generation} for {share} of the pods")
        }
        (Some(generation), None) => format!("published {audience} generation {generation}"),
        (None, _) => format!("dry run of {audience}: nothing was written to the store"),
    }
}
