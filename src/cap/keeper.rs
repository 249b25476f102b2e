//! The caps of a pod: kept over reloads, and served by a background task.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::{Cap, file};
use crate::config::CapConfig;
use crate::strategy::Strategy;

/// Time between two reads of the clock.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two writes of the files.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Most of the time that is spent writing: one part in so many. Matters from 50 million devices on.
const SAVE_SHARE: u32 = 20;
/// Folder in the cache. No audience has its name, as those begin with a letter or a digit.
const FOLDER: &str = "_caps";

/// All caps of a pod.
#[derive(Debug, Default)]
pub struct Caps {
    folder: Option<PathBuf>,
    served: Mutex<Vec<Arc<Cap>>>,
    /// Held while files are written.
    saving: Mutex<()>,
    /// A failure is logged once.
    failed: AtomicBool,
}

impl Caps {
    /// Caps with files in a cache folder; without one, a restart counts anew.
    pub fn in_cache(cache_dir: Option<&Path>) -> Self {
        Self { folder: cache_dir.map(|folder| folder.join(FOLDER)), ..Self::default() }
    }

    /// The caps of these strategies, by index. A cap that is served with the same periods keeps its
    /// counts; a new one reads its file. `caps` may be empty. Blocks.
    pub fn serve(
        &self,
        strategies: &[Strategy],
        caps: &[Option<CapConfig>],
    ) -> Vec<Option<Arc<Cap>>> {
        let served = self.served().clone();
        let cap = |(index, strategy): (usize, &Strategy)| {
            let config = caps.get(index)?.as_ref()?;
            let old = served.iter().find(|cap| cap.strategy() == strategy.name);
            match old {
                Some(same) if same.config() == config => Some(Arc::clone(same)),
                _ => {
                    let now = (SystemTime::now(), Instant::now());
                    let changed = old.and_then(|old| old.changed(config, now.0, now.1));
                    let cap = changed.unwrap_or_else(|| self.start(&strategy.name, config));
                    Some(Arc::new(cap))
                }
            }
        };
        let caps: Vec<_> = strategies.iter().enumerate().map(cap).collect();
        *self.served() = caps.iter().flatten().cloned().collect();
        caps
    }

    fn start(&self, strategy: &str, config: &CapConfig) -> Cap {
        let (wall, now) = (SystemTime::now(), Instant::now());
        let restored = self.folder.as_ref().map(|folder| Cap::restore(folder, strategy, config));
        match restored {
            Some(Ok(Some(cap))) => {
                let devices = cap.usage().devices;
                tracing::info!(strategy, devices, "cap restored from its file");
                cap
            }
            Some(Err(error)) => {
                let path = self.folder.as_deref().map(|folder| file::path(folder, strategy));
                let path = path.unwrap_or_default();
                tracing::warn!(
                    strategy, path = %path.display(), %error,
                    "the cap's file was not read: it counts anew"
                );
                Cap::new(strategy, config, wall, now)
            }
            Some(Ok(None)) | None => Cap::new(strategy, config, wall, now),
        }
    }

    /// Follows the clock and writes the files, without end.
    pub async fn run(self: Arc<Self>) {
        let (mut saved, mut pause) = (Instant::now(), SAVE_INTERVAL);
        let mut saving: Option<tokio::task::JoinHandle<Duration>> = None;
        loop {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            let served = self.served().clone();
            for cap in served {
                cap.follow(SystemTime::now(), Instant::now());
            }
            if let Some(ended) = saving.take_if(|saving| saving.is_finished()) {
                let took = ended.await.unwrap_or_default();
                (saved, pause) = (Instant::now(), SAVE_INTERVAL.max(took * SAVE_SHARE));
            }
            if saving.is_none() && saved.elapsed() >= pause {
                let caps = Arc::clone(&self);
                saving = Some(tokio::task::spawn_blocking(move || {
                    let begun = Instant::now();
                    caps.save();
                    begun.elapsed()
                }));
            }
        }
    }

    /// Writes the files of all caps that have changed. A failure is logged. Blocks.
    pub fn save(&self) {
        let Some(folder) = &self.folder else { return };
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let served = self.served().clone();
        let saved: std::io::Result<()> = served.iter().try_for_each(|cap| cap.save(folder));
        let had_failed = self.failed.swap(saved.is_err(), Ordering::Relaxed);
        if let Err(error) = saved.as_ref().map_err(ToString::to_string)
            && !had_failed
        {
            let folder = folder.display();
            tracing::warn!(%folder, error, "caps were not saved: a restart counts devices anew");
        }
    }

    fn served(&self) -> MutexGuard<'_, Vec<Arc<Cap>>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
