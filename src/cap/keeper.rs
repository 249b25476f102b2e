//! The caps of a pod: kept over reloads, and served by a background task.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::file::FileError;
use super::folder::Folder;
use super::lease::{self, LeaseState, Leases};
use super::{Cap, PeriodTable, file};
use crate::config::{CapConfig, LeasesConfig};

/// Time between two reads of the clock.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two writes of the files.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// Most of the time that is spent writing: one part in so many. Matters from 50 million devices on.
const SAVE_SHARE: u32 = 20;

/// All caps of a pod.
#[derive(Debug, Default)]
pub struct Caps {
    folder: Option<Folder>,
    pub(super) served: Mutex<Vec<Arc<Cap>>>,
    /// Caps that ended with a reload, until no request uses them: their files are then written, and
    /// their leases given back.
    retired: Mutex<Vec<Arc<Cap>>>,
    leases: Leases,
    /// Whether files were written for the last time. Held while they are written.
    pub(super) is_closed: Mutex<bool>,
    /// A failure is logged once.
    failed: AtomicBool,
}

impl Caps {
    /// Caps with files in a cache folder; without one, a restart counts anew.
    pub fn in_cache(cache_dir: Option<&Path>) -> Self {
        Self {
            folder: cache_dir.map(Folder::in_cache),
            ..Self::default()
        }
    }

    /// The caps of these configurations. A cap that is served with the same periods keeps its
    /// counts; a new one reads its file. Blocks. Call from one thread.
    pub fn serve(&self, configs: &[CapConfig], leases: Option<&LeasesConfig>) -> Vec<Arc<Cap>> {
        self.leases.use_backend(leases);
        if !self.retired.lock().is_empty() {
            // A cap that returns reads its file.
            self.save();
        }

        let old = self.served.lock().clone();
        let mut caps = Vec::new();
        for config in configs {
            caps.push(match going_on(&old, config) {
                Some(old) => Arc::clone(old),
                None => Arc::new(self.start(config)),
            });
        }

        // Nothing is granted to a cap while it changes.
        let mut served = self.served.lock();
        for (cap, config) in caps.iter_mut().zip(configs) {
            if cap.config() != config {
                *cap = Arc::new(cap.changed(config, SystemTime::now(), Instant::now()));
            }
        }
        served.clone_from(&caps);
        drop(served);

        let mut retired = self.retired.lock();
        for old in &old {
            let mut configs = configs.iter();
            if !configs.any(|config| goes_on(old, config)) {
                retired.push(Arc::clone(old));
            }
        }
        drop(retired);

        if let Some(folder) = &self.folder {
            // A file that is being written must not be removed.
            let _held = self.is_closed.lock();
            folder.clean(|name| caps.iter().any(|cap| cap.name() == name));
        }
        caps
    }

    /// State of the leases of a cap; `None` if it has a share.
    pub fn leases(&self, cap: &Cap) -> Option<LeaseState> {
        cap.config().leased.then(|| self.leases.state(cap.name()))
    }

    /// Adds devices that were leased for a table. A reload during the call may have replaced its
    /// cap, or ended it: the retired cap then gives them back.
    pub(super) fn grant(&self, period_table: &PeriodTable, devices: u64) {
        if !self
            .served
            .lock()
            .iter()
            .any(|cap| cap.add_leased(period_table, devices))
        {
            period_table.add_leased(devices, true);
        }
    }

    /// Writes the files for the last time; if no requests are left, gives back what was leased and
    /// not used.
    pub async fn close(self: Arc<Self>, is_idle: bool) {
        if is_idle {
            let caps = [self.served.lock().clone(), self.retired.lock().clone()].concat();
            self.leases.close(&caps).await;
        }
        let _ = tokio::task::spawn_blocking(move || {
            self.save();
            let mut is_closed = self.is_closed.lock();
            *is_closed = true;
            if let Some(folder) = &self.folder {
                folder.unlock();
            }
        })
        .await;
    }

    fn start(&self, config: &CapConfig) -> Cap {
        let cap = config.name.as_str();
        let wall = SystemTime::now();
        let now = Instant::now();
        let Some(folder) = &self.folder else {
            return Cap::new(config, wall, now);
        };

        let restored = folder.lock().and_then(|path| Cap::restore(path, config));
        match restored {
            Ok(Some(restored)) => {
                let devices = restored.usage().devices;
                tracing::info!(cap, devices, "cap restored from its file");
                restored
            }
            Ok(None) => Cap::new(config, wall, now),
            Err(error) => {
                let path = file::path(folder.path(), cap);
                tracing::warn!(
                    cap, path = %path.display(), %error,
                    "the cap's file was not read: it counts anew"
                );
                Cap::new(config, wall, now)
            }
        }
    }

    /// Follows the clock, leases, and writes the files, without end.
    pub async fn run(self: Arc<Self>) {
        let lease = async {
            loop {
                let served = self.served.lock().clone();
                self.leases
                    .renew(&served, |period_table, devices| {
                        self.grant(period_table, devices)
                    })
                    .await;
                self.end_retired().await;
                tokio::time::sleep(lease::TICK).await;
            }
        };
        tokio::join!(lease, Arc::clone(&self).follow());
    }

    /// Ends the retired caps that no catalog serves any more.
    async fn end_retired(self: &Arc<Self>) {
        let mut retired = self.retired.lock().clone();
        // One reference is here, and one in the list.
        retired.retain(|cap| Arc::strong_count(cap) == 2);
        if retired.is_empty() {
            return;
        }
        self.leases.give_back(&retired).await;
        let caps = Arc::clone(self);
        let _ = tokio::task::spawn_blocking(move || caps.save()).await;
        self.retired
            .lock()
            .retain(|cap| !retired.iter().any(|ended| Arc::ptr_eq(ended, cap)));
    }

    async fn follow(self: Arc<Self>) {
        let mut saved_at = Instant::now();
        let mut pause = SAVE_INTERVAL;
        let mut saving: Option<tokio::task::JoinHandle<Duration>> = None;
        loop {
            tokio::time::sleep(FOLLOW_INTERVAL).await;
            let served = self.served.lock().clone();
            for cap in served {
                cap.follow(SystemTime::now(), Instant::now());
            }

            if let Some(ended) = saving.take_if(|saving| saving.is_finished()) {
                let took = ended.await.unwrap_or_default();
                saved_at = Instant::now();
                pause = SAVE_INTERVAL.max(took * SAVE_SHARE);
            }

            if saving.is_none() && saved_at.elapsed() >= pause {
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
        let is_closed = self.is_closed.lock();
        if *is_closed {
            return;
        }
        let mut caps = self.served.lock().clone();
        for old in self.retired.lock().iter().rev() {
            // The file of a name is that of its last cap.
            if caps.iter().all(|cap| cap.name() != old.name()) {
                caps.push(Arc::clone(old));
            }
        }

        let saved = save_all(&caps, folder);
        if matches!(saved, Err(FileError::InUse)) {
            // The log has it since the start.
            return;
        }

        let had_failed = self.failed.swap(saved.is_err(), Ordering::Relaxed);
        if let Err(error) = saved.as_ref().map_err(ToString::to_string)
            && !had_failed
        {
            let folder = folder.path().display();
            tracing::warn!(%folder, error, "caps were not saved: a restart counts devices anew");
        }
    }
}

fn save_all(caps: &[Arc<Cap>], folder: &Folder) -> Result<(), FileError> {
    let path = folder.lock()?;
    // A file that cannot be written keeps no other one from it.
    let saved: Vec<_> = caps.iter().map(|cap| cap.save(path)).collect();
    Ok(saved.into_iter().collect::<Result<(), _>>()?)
}

/// The cap that a configuration goes on with.
fn going_on<'c>(caps: &'c [Arc<Cap>], config: &CapConfig) -> Option<&'c Arc<Cap>> {
    caps.iter().find(|cap| goes_on(cap, config))
}

fn goes_on(cap: &Cap, config: &CapConfig) -> bool {
    cap.name() == config.name && cap.has_periods_of(config)
}
