//! Start of a window: its files are read first, and claimed afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rtad_store::write::{StoreWriter, WindowFolder};
use rtad_window::{Durability, Settings, Shape, StateDir, WindowHandle};

use super::super::super::telemetry::Telemetry;
use super::super::WindowError;
use super::super::clock::Clock;
use super::super::config::WindowConfig;
use super::super::counters::{Counters, UploadCounters};
use super::super::owner::{Candidate, ReadFiles};
use super::super::reports::Reports;
use super::{ServedWindow, listener};

/// A window that is read, but not claimed yet.
pub struct ReadWindow {
    config: WindowConfig,
    shape: Shape,
    /// `None` if the window is not kept.
    files: Option<(Candidate, ReadFiles)>,
}

impl ReadWindow {
    /// Reads the window's files: local ones, or those in the store. Blocks meanwhile.
    pub async fn read(
        config: WindowConfig,
        state_dir: &Path,
        lease: Duration,
        store: &StoreWriter,
    ) -> Result<Self, WindowError> {
        let clock = config.length.clock();
        let shape = Shape {
            spec: config.spec,
            clock,
            answers: config.answers,
        };
        let mut files = None;
        if config.durability != Durability::None {
            let window = config.name.clone();
            let dir = StateDir::lock(&state_dir.join(window.as_str()));
            let dir = dir.map_err(WindowError::Files)?;
            let folder = WindowFolder::new(store.clone(), window.clone());
            let length = config.length.clone();
            let take_over = config.take_over;
            let shape = shape.clone();
            let candidate = Candidate {
                folder,
                window,
                length,
                shape,
                lease,
                take_over,
                dir,
            };
            let content = candidate.read().await.map_err(WindowError::Claim)?;
            files = Some((candidate, content));
        }
        Ok(Self {
            config,
            shape,
            files,
        })
    }

    /// Claims the window.
    pub async fn claim(
        self,
        reports: Vec<Arc<Reports>>,
        telemetry: &Telemetry,
    ) -> Result<ServedWindow, WindowError> {
        let Self {
            config,
            shape,
            files,
        } = self;
        let clock = Arc::new(Clock::start(&config.name, &config.length));
        let read = Arc::clone(&clock);
        let settings = Settings {
            durability: config.durability,
            clock: Box::new(move || read.now()),
            listener: listener(&reports),
        };

        let mut owner = None;
        let handle = match files {
            None => {
                let started = WindowHandle::in_memory(shape, settings);
                started.map_err(|error| WindowError::Files(error.into()))?
            }
            Some((candidate, content)) => {
                let counters = UploadCounters::new(telemetry, &config);
                let claimed = candidate.claim(content, counters).await;
                let (claimed, dir, loaded) = claimed.map_err(WindowError::Claim)?;
                match WindowHandle::start(dir, loaded, settings) {
                    Ok(handle) => {
                        owner = Some(claimed);
                        handle
                    }
                    Err(error) => {
                        claimed.undo_claim().await;
                        return Err(WindowError::Files(error));
                    }
                }
            }
        };

        let counters = Counters::new(telemetry, &config);
        let window = ServedWindow {
            config,
            handle,
            owner,
            clock,
            counters,
            is_checkpointing: AtomicBool::new(false),
        };
        window.update_gauges(true);
        Ok(window)
    }
}
