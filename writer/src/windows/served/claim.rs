//! Start of a window: its files are read first, and claimed afterwards.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rtad_store::write::{StoreWriter, WindowCheckpoints};
use rtad_window::{Durability, Durable, StateDir, WindowSpec};

use super::super::super::telemetry::Telemetry;
use super::super::WindowError;
use super::super::clock::{Clock, tick_at};
use super::super::config::{WindowConfig, table_spec};
use super::super::counters::{Counters, UploadCounters};
use super::super::reports::Reports;
use super::super::stored::{Candidate, Claimed, Content, Uploads};
use super::ServedWindow;

/// A window that is read, but not claimed yet.
pub(in super::super) struct ReadWindow {
    config: WindowConfig,
    spec: WindowSpec,
    /// `None` if the window is not kept.
    files: Option<(Candidate, Content)>,
}

impl ReadWindow {
    /// Reads the window's files: local ones, or those in the store. Blocks meanwhile.
    pub(in super::super) async fn read(
        config: WindowConfig,
        state_dir: &Path,
        lease: Duration,
        store: &StoreWriter,
    ) -> Result<Self, WindowError> {
        let spec = table_spec(&config.spec);
        let mut files = None;
        if config.durability != Durability::None {
            let window = config.name.clone();
            let dir = StateDir::lock(&state_dir.join(window.as_str()));
            let dir = dir.map_err(WindowError::Files)?;
            let checkpoints = WindowCheckpoints::new(store.clone(), window.clone());
            let length = config.length.clone();
            let candidate = Candidate { checkpoints, window, length, spec, lease, dir };
            let content = candidate.read().await.map_err(WindowError::Claim)?;
            files = Some((candidate, content));
        }
        Ok(Self { config, spec, files })
    }

    /// Claims the window.
    pub(in super::super) async fn claim(
        self,
        reports: Vec<Arc<Reports>>,
        telemetry: &Telemetry,
    ) -> Result<ServedWindow, WindowError> {
        let Self { config, spec, files } = self;
        let mut uploads = None;
        let durable = match files {
            None => Durable::in_memory(spec, tick_at(&config.length, 0, SystemTime::now()))
                .map_err(|error| WindowError::Files(error.into()))?,
            Some((candidate, content)) => {
                let (name, checkpoints) = (config.name.clone(), candidate.checkpoints.clone());
                let claimed = candidate.claim(content, config.durability).await;
                let claimed = claimed.map_err(WindowError::Claim)?;
                let counters = UploadCounters::new(telemetry, &config);
                let Claimed { current, lease, durable } = claimed;
                uploads = Some(Uploads::new(name, checkpoints, current, lease, counters));
                durable
            }
        };
        // Reading took its time.
        let now = SystemTime::now();
        let offset = durable.wall_offset_millis();
        let tick = durable.window().set_tick(tick_at(&config.length, offset, now));
        let clock = Clock::start(&config.length, tick, offset, now);
        let memory_bytes = durable.stats().window.memory_bytes;
        let counters = Counters::new(telemetry, &config, memory_bytes);
        let (probes, false_positives, failures, changes) = Default::default();
        let (has_undone, is_late) = Default::default();
        let window = ServedWindow {
            config,
            durable,
            uploads,
            clock,
            counters,
            reports,
            probes,
            false_positives,
            failures,
            changes,
            has_undone,
            is_late,
        };
        if !window.reports.is_empty() {
            // Removes the entries of the day before, if the process was stopped over midnight.
            let _ = window.expire(|_, _| {});
        }
        window.update_gauges();
        Ok(window)
    }
}
