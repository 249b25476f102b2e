//! Checkpoints of a window in the store: the claim at the start, and the uploads.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use rtad_core::snapshot::AudienceName;
use rtad_http::error_chain::error_chain;
use rtad_store::StoreError;
use rtad_store::write::{LocalCheckpoint, WindowCheckpoints, WindowCurrent};
use rtad_window::{SavedCheckpoint, StateDir};

use super::counters::UploadCounters;

/// Claims that may be lost to another process that writes `CURRENT` meanwhile.
const ATTEMPTS: u32 = 3;

/// A window that this process may not own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("window {window}: its checkpoints in the store")]
    Store {
        window: AudienceName,
        #[source]
        source: StoreError,
    },
    #[error("{dir}")]
    Files {
        dir: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{dir}: another owner has claimed the window {ago} ago (epoch {epoch}), so these files are \
         older than its events; remove the directory to start from the checkpoint in the store, or \
         remove .windows/{window}/CURRENT in the store to start from these files"
    )]
    Other { dir: PathBuf, window: AudienceName, ago: humantime::Duration, epoch: u64 },
}

/// Makes this process the window's owner. Without local files, downloads the last checkpoint.
///
/// # Errors
///
/// [`ClaimError`]; the running owner is then still the owner.
pub(super) async fn claim(
    checkpoints: &WindowCheckpoints,
    window: &AudienceName,
    dir: &StateDir,
) -> Result<WindowCurrent, ClaimError> {
    let store = |source| ClaimError::Store { window: window.clone(), source };
    let files = |source| ClaimError::Files { dir: dir.path().to_owned(), source };
    let mut attempt = 0;
    loop {
        attempt += 1;
        let may_retry = attempt < ATTEMPTS;
        let found = checkpoints.current().await.map_err(store)?;
        let mut claims = dir.claims().map_err(files)?;
        let mut restored = None;
        if !dir.is_empty().map_err(files)? {
            let is_other = |found: &&WindowCurrent| !claims.contains(&found.owner);
            if let Some(found) = found.as_ref().filter(is_other) {
                return Err(ClaimError::Other {
                    dir: dir.path().to_owned(),
                    window: window.clone(),
                    ago: age(found.claimed_unix_seconds),
                    epoch: found.epoch,
                });
            }
        } else if let Some(stored) = found.as_ref().and_then(|found| found.checkpoint.as_ref()) {
            let file = dir.create_download().map_err(files)?;
            match checkpoints.download(stored, file).await {
                // Its owner runs, and has uploaded another.
                Err(StoreError::NotFound { .. }) if may_retry => continue,
                downloaded => downloaded.map_err(store)?,
            }
            restored = Some(stored);
        }
        // Kept before the claim: its answer may be lost.
        let owner = StateDir::new_claim().map_err(files)?;
        claims.push(owner.clone());
        dir.set_claims(&claims).map_err(files)?;
        let claimed = match checkpoints.claim(found.as_ref(), &owner).await {
            Err(StoreError::Conflict { .. }) if may_retry => continue,
            claimed => claimed.map_err(store)?,
        };
        dir.set_claims(&[owner]).map_err(files)?;
        let (window, epoch) = (window.as_str(), claimed.epoch);
        if let Some(stored) = restored {
            dir.install(stored.number).map_err(files)?;
            let age = age(stored.created_unix_seconds).to_string();
            tracing::warn!(
                window,
                epoch,
                age,
                "window started from its checkpoint in the store; its later events are lost"
            );
        } else {
            tracing::info!(window, epoch, "window claimed in the store");
        }
        return Ok(claimed);
    }
}

fn age(unix_seconds: u64) -> humantime::Duration {
    let since = now_seconds().saturating_sub(unix_seconds);
    humantime::Duration::from(Duration::from_secs(since))
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Outcome of an upload, or of asking for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    Done,
    /// Try again later.
    Failed,
    /// Another process owns the window.
    Fenced,
}

/// The store's side of a window.
pub(super) struct Uploads {
    window: AudienceName,
    checkpoints: WindowCheckpoints,
    /// The owner's last `CURRENT`. Held during an upload.
    current: tokio::sync::Mutex<WindowCurrent>,
    /// The last checkpoint that is not in the store.
    pending: Mutex<Option<LocalCheckpoint>>,
    pub(super) wake: Notify,
    is_fenced: AtomicBool,
    counters: UploadCounters,
}

impl Uploads {
    pub(super) fn new(
        window: AudienceName,
        checkpoints: WindowCheckpoints,
        current: WindowCurrent,
        counters: UploadCounters,
    ) -> Self {
        let created = current.checkpoint.as_ref().map_or(0, |stored| stored.created_unix_seconds);
        counters.uploaded.set(created as f64);
        Self {
            window,
            checkpoints,
            current: tokio::sync::Mutex::new(current),
            pending: Mutex::new(None),
            wake: Notify::new(),
            is_fenced: AtomicBool::new(false),
            counters,
        }
    }

    /// Whether another process owns the window.
    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Keeps a checkpoint for the next upload. Its file may be removed meanwhile.
    pub(super) fn add(&self, saved: &SavedCheckpoint) -> std::io::Result<()> {
        *self.pending() = Some(LocalCheckpoint {
            file: File::open(&saved.path)?,
            window_id: saved.window_id,
            number: saved.number,
            created_unix_seconds: now_seconds(),
        });
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Option<LocalCheckpoint>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uploads the last checkpoint, if there is one.
    pub(super) async fn upload(&self) -> Stored {
        let mut current = self.current.lock().await;
        let Some(pending) = self.pending().take() else { return Stored::Done };
        match self.checkpoints.upload(&current, &pending).await {
            Ok(uploaded) => {
                *current = uploaded;
                self.counters.uploaded.set(pending.created_unix_seconds as f64);
                if let Err(error) = self.checkpoints.remove_older(&current).await {
                    let (window, error) = (self.window.as_str(), error_chain(&error));
                    tracing::warn!(window, error, "older checkpoint not removed from the store");
                }
                Stored::Done
            }
            Err(error) => {
                let window = self.window.as_str();
                self.counters.failures.increment(1);
                self.pending().get_or_insert(pending);
                let text = error_chain(&error);
                tracing::warn!(window, error = text, "checkpoint not uploaded to the store");
                match error {
                    // Of a put or a lock; a lost claim is permanent.
                    StoreError::Conflict { is_transient: false, .. } => self.fence(),
                    _ => Stored::Failed,
                }
            }
        }
    }

    /// Asks the store for the owner. Without an answer, this process goes on.
    pub(super) async fn check_owner(&self) -> Stored {
        let current = self.current.lock().await;
        match self.checkpoints.is_owned_by(&current.owner).await {
            Ok(true) => Stored::Done,
            Ok(false) => self.fence(),
            Err(_) => Stored::Failed,
        }
    }

    /// Nothing changed since the last upload.
    pub(super) fn is_up_to_date(&self) {
        self.counters.uploaded.set(now_seconds() as f64);
    }

    fn fence(&self) -> Stored {
        if !self.is_fenced.swap(true, Ordering::AcqRel) {
            let window = self.window.as_str();
            tracing::error!(window, "another owner has claimed the window; its events are refused");
        }
        Stored::Fenced
    }
}
