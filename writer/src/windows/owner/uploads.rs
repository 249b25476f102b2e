//! The owner's checkpoints in the store, and the checks that it is still the owner.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{LocalCheckpoint, WindowCheckpoints, WindowCurrent};
use rtad_window::SavedCheckpoint;

use super::super::counters::UploadCounters;
use super::lease::{Lease, LeaseState};

/// Outcome of an upload, or of asking for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Stored {
    Done,
    /// Try again later.
    Failed,
    /// Another process owns the window.
    Fenced,
}

/// State of a window when a checkpoint was begun: a checkpoint contains at least this.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Begun {
    pub(in super::super) at: Instant,
    pub(in super::super) unix_seconds: u64,
    /// Number of changes of the window.
    pub(in super::super) changes: u64,
}

struct Pending {
    checkpoint: LocalCheckpoint,
    begun: Begun,
}

/// The store's side of a window.
pub(in super::super) struct Uploads {
    window: AudienceName,
    checkpoints: WindowCheckpoints,
    /// Text of the claim, which never changes.
    owner: String,
    /// The owner's last `CURRENT`. Held during an upload.
    current: tokio::sync::Mutex<WindowCurrent>,
    /// The last checkpoint that is not in the store.
    pending: Mutex<Option<Pending>>,
    /// State of the window that the store has, since the start.
    stored: Mutex<Option<Begun>>,
    pub(in super::super) wake: Notify,
    is_fenced: AtomicBool,
    lease: Lease,
    /// The state as last logged.
    lease_state: Mutex<LeaseState>,
    counters: UploadCounters,
}

impl Uploads {
    pub(in super::super) fn new(
        window: AudienceName,
        checkpoints: WindowCheckpoints,
        current: WindowCurrent,
        lease: Lease,
        counters: UploadCounters,
    ) -> Self {
        let lease_state = Mutex::new(lease.state(Instant::now()));
        let created = current.checkpoint.as_ref().map_or(0, |stored| stored.created_unix_seconds);
        counters.uploaded.set(created as f64);
        Self {
            window,
            checkpoints,
            owner: current.owner.clone(),
            current: tokio::sync::Mutex::new(current),
            pending: Mutex::new(None),
            stored: Mutex::new(None),
            wake: Notify::new(),
            is_fenced: AtomicBool::new(false),
            lease,
            lease_state,
            counters,
        }
    }

    /// Whether events may be acknowledged: this process is the only owner.
    pub(in super::super) fn is_held(&self) -> bool {
        !self.is_fenced() && self.lease.state(Instant::now()) == LeaseState::Held
    }

    /// Whether another process owns the window.
    pub(in super::super) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Keeps a checkpoint for the next upload. Its file may be removed meanwhile.
    pub(in super::super) fn add(
        &self,
        saved: &SavedCheckpoint,
        begun: Begun,
    ) -> std::io::Result<()> {
        let checkpoint = LocalCheckpoint {
            file: File::open(&saved.path)?,
            window_id: saved.window_id,
            number: saved.number,
            created_unix_seconds: begun.unix_seconds,
        };
        let mut pending = self.pending();
        // Two may end at the same time: an older one must not replace a newer one.
        if pending.as_ref().is_none_or(|held| held.checkpoint.number <= checkpoint.number) {
            *pending = Some(Pending { checkpoint, begun });
        }
        drop(pending);
        self.wake.notify_one();
        Ok(())
    }

    pub(in super::super) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock()
    }

    /// State of the window that the store has; `None` before the first upload of this process.
    pub(in super::super) fn stored(&self) -> Option<Begun> {
        *self.stored.lock()
    }

    /// The store has all changes up to `begun`.
    pub(in super::super) fn set_stored(&self, begun: Begun) {
        *self.stored.lock() = Some(begun);
        self.counters.uploaded.set(begun.unix_seconds as f64);
    }

    /// Uploads the last checkpoint, if there is one.
    pub(in super::super) async fn upload(&self) -> Stored {
        self.upload_of(&mut *self.current.lock().await).await
    }

    /// Uploads the last checkpoint of a window that is closed, and gives its lease back: a later
    /// owner need not wait.
    pub(in super::super) async fn release(&self) {
        self.lease.release();
        let mut current = self.current.lock().await;
        current.lease_seconds = 0;
        let is_released = if self.has_pending() {
            self.upload_of(&mut current).await == Stored::Done
        } else {
            self.checkpoints.update(&current).await.is_ok()
        };
        if !is_released {
            tracing::warn!(window = self.window.as_str(), "lease of the window not given back");
        }
    }

    async fn upload_of(&self, current: &mut WindowCurrent) -> Stored {
        let Some(pending) = self.pending().take() else { return Stored::Done };
        let mut mine = current.clone();
        if self.lease.has_waited() {
            mine.wait_seconds = 0;
        }
        match self.checkpoints.upload(&mine, &pending.checkpoint).await {
            Ok(uploaded) => {
                *current = uploaded;
                self.set_stored(pending.begun);
                if let Err(error) = self.checkpoints.remove_older(current).await {
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
                    // A put or a lock conflicts for a time; a lost claim is permanent.
                    StoreError::Conflict { is_transient: false, .. } => self.fence(),
                    _ => Stored::Failed,
                }
            }
        }
    }

    /// Asks the store for the owner, also during an upload. A store that does not answer lets this
    /// process go on until its lease ends.
    pub(in super::super) async fn check_owner(&self) -> Stored {
        let asked = Instant::now();
        let owned = self.checkpoints.is_owned_by(&self.owner);
        let stored = match tokio::time::timeout(self.lease.check_timeout(), owned).await {
            Ok(Ok(true)) => {
                self.lease.confirm(asked);
                Stored::Done
            }
            Ok(Ok(false)) => return self.fence(),
            Ok(Err(_)) | Err(_) => Stored::Failed,
        };
        self.log_lease();
        stored
    }

    /// Time between calls of `check_owner`.
    pub(in super::super) fn check_interval(&self) -> Duration {
        self.lease.check_interval()
    }

    /// Tells the store, once the wait is over, that a restart need not wait again. A failure leaves
    /// that to the next call.
    pub(in super::super) async fn end_wait(&self) {
        let mut current = self.current.lock().await;
        if current.wait_seconds > 0 && self.lease.has_waited() {
            let mut mine = current.clone();
            mine.wait_seconds = 0;
            if self.checkpoints.update(&mine).await.is_ok() {
                *current = mine;
            }
        }
    }

    fn log_lease(&self) {
        let now = self.lease.state(Instant::now());
        let mut logged = self.lease_state.lock();
        if *logged == now {
            return;
        }
        *logged = now;
        let window = self.window.as_str();
        match now {
            LeaseState::Held => tracing::info!(window, "window accepts events"),
            LeaseState::Waiting => {}
            LeaseState::Lapsed => tracing::error!(
                window,
                "store has not confirmed the owner for the time of its lease; events are refused"
            ),
        }
    }

    /// Stands for an upload in progress.
    #[cfg(test)]
    pub(in super::super) async fn hold(&self) -> tokio::sync::MutexGuard<'_, WindowCurrent> {
        self.current.lock().await
    }

    fn fence(&self) -> Stored {
        if !self.is_fenced.swap(true, Ordering::AcqRel) {
            let window = self.window.as_str();
            tracing::error!(window, "another owner has claimed the window; its events are refused");
        }
        Stored::Fenced
    }
}
