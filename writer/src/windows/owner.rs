//! Ownership of a window: one process acknowledges its events, also after the loss of a disk or
//! without the store.
//!
//! ```text
//! files are read, then claimed by the next record
//!       │
//!       ▼
//!    Waiting ──────► Held        any of the three ──► Fenced, for good: another owner's claim
//!       ▲             ▲                           └─► Released, for good: the stop
//!       └─► Lapsed ◄──┘
//! ```
//!
//! `start` reads the files and claims the window. The [`Ownership`] afterwards follows from the
//! `lease`, and only [`Ownership::Held`] acknowledges events: [`Ownership::Waiting`] ends with the
//! lease of the previous owner. Two loops keep it: one asks the store for the owner, the other one
//! uploads checkpoints.

mod lease;
mod start;

use std::fs::File;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{Expected, LocalCheckpoint, WindowCurrent, WindowFolder};
use rtad_window::SavedCheckpoint;

use super::counters::UploadCounters;
use lease::Lease;
pub use lease::Ownership;
pub use start::{Candidate, ClaimError, ReadFiles};

/// Progress of a checkpoint: it contains at least `changes` changes.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointMark {
    pub(super) at: Instant,
    pub(super) unix_seconds: u64,
    pub(super) changes: u64,
}

#[derive(Default)]
struct Checkpoints {
    /// The last checkpoint that is not in the store.
    pending: Option<(LocalCheckpoint, CheckpointMark)>,
    /// Content that the store has; `None` before the first upload of this process.
    stored: Option<CheckpointMark>,
}

/// The owner of a window, from its claim to the end of the process.
pub struct Owner {
    window: AudienceName,
    folder: WindowFolder,
    /// Text of the claim, which never changes.
    claim: String,
    /// Lease of the claim before; 0 if it was given back, or there was none.
    earlier_lease_seconds: u64,
    lease: Mutex<Lease>,
    /// The record that this owner wrote last. Held during an upload.
    current: tokio::sync::Mutex<WindowCurrent>,
    checkpoints: Mutex<Checkpoints>,
    /// A checkpoint waits for its upload.
    pub(super) wake: Notify,
    counters: UploadCounters,
}

impl Owner {
    fn new(
        window: AudienceName,
        folder: WindowFolder,
        current: WindowCurrent,
        earlier_lease_seconds: u64,
        lease: Lease,
        counters: UploadCounters,
    ) -> Self {
        let created = current
            .checkpoint
            .as_ref()
            .map_or(0, |stored| stored.created_unix_seconds);
        counters.uploaded.set(created as f64);
        Self {
            window,
            folder,
            claim: current.owner.clone(),
            earlier_lease_seconds,
            lease: Mutex::new(lease),
            current: tokio::sync::Mutex::new(current),
            checkpoints: Mutex::default(),
            wake: Notify::new(),
            counters,
        }
    }

    pub fn state(&self) -> Ownership {
        self.lease.lock().state(Instant::now())
    }

    /// Asks the store for the owner from time to time, also during an upload, until `stop` or
    /// another owner. Each answer renews the lease.
    pub async fn keep_lease(&self, mut stop: watch::Receiver<bool>) {
        let interval = self.lease.lock().check_interval();
        while !*stop.borrow() && self.state() != Ownership::Fenced {
            tokio::select! {
                _ = stop.changed() => {}
                () = tokio::time::sleep(interval) => {
                    self.confirm().await;
                }
            }
        }
    }

    /// Asks the store whether this process is the owner. Without an answer it goes on until its
    /// lease ends.
    pub async fn confirm(&self) -> bool {
        let asked = Instant::now();
        let limit = self.lease.lock().check_timeout();
        let owned = tokio::time::timeout(limit, self.folder.is_owned_by(&self.claim)).await;
        match owned {
            Ok(Ok(true)) => self.change_lease(|lease| lease.confirm(asked)),
            Ok(Ok(false)) => self.fence(),
            Ok(Err(_)) | Err(_) => self.change_lease(|_| {}),
        }
        matches!(owned, Ok(Ok(true)))
    }

    /// Another process owns the window, for good.
    fn fence(&self) {
        self.change_lease(|lease| lease.end(Ownership::Fenced));
    }

    /// Logs the state that differs from the one logged last.
    fn change_lease(&self, change: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.lock();
        change(&mut lease);
        let Some(state) = lease.take_state_change(Instant::now()) else {
            return;
        };
        drop(lease);
        let window = self.window.as_str();
        match state {
            Ownership::Held => tracing::info!(window, "window accepts events"),
            Ownership::Waiting | Ownership::Released => {}
            Ownership::Lapsed => tracing::error!(
                window,
                "store has not confirmed the owner for the time of its lease; events are refused"
            ),
            Ownership::Fenced => {
                tracing::error!(
                    window,
                    "another owner has claimed the window; its events are refused"
                );
            }
        }
    }

    /// Keeps a checkpoint for the next upload. Its file may be removed meanwhile.
    pub fn add(&self, saved: &SavedCheckpoint, mark: CheckpointMark) -> std::io::Result<()> {
        let checkpoint = LocalCheckpoint {
            file: File::open(&saved.path)?,
            window_id: saved.window_id,
            number: saved.number,
            created_unix_seconds: mark.unix_seconds,
        };
        let mut checkpoints = self.checkpoints.lock();
        // Two may end at the same time: an older one must not replace a newer one.
        let newest = checkpoints
            .pending
            .as_ref()
            .map_or(0, |(held, _)| held.number);
        if newest <= checkpoint.number {
            checkpoints.pending = Some((checkpoint, mark));
        }
        drop(checkpoints);
        self.wake.notify_one();
        Ok(())
    }

    pub fn has_pending(&self) -> bool {
        self.checkpoints.lock().pending.is_some()
    }

    /// Content of the window that the store has; `None` before the first upload of this process.
    pub fn stored(&self) -> Option<CheckpointMark> {
        self.checkpoints.lock().stored
    }

    /// The store has all changes up to `mark`.
    pub fn set_stored(&self, mark: CheckpointMark) {
        self.checkpoints.lock().stored = Some(mark);
        self.counters.uploaded.set(mark.unix_seconds as f64);
    }

    /// Uploads the last checkpoint, if there is one.
    pub async fn upload(&self) {
        let mut current = self.current.lock().await;
        let next = self.next(&current);
        self.upload_as(&mut current, next).await;
    }

    /// Tells the store, once the wait is over, that a restart need not wait again. A failure leaves
    /// that to the next call.
    pub async fn end_wait(&self) {
        let mut current = self.current.lock().await;
        let next = self.next(&current);
        if *current != next && self.folder.replace(&next, Expected::Own).await.is_ok() {
            *current = next;
        }
    }

    /// Uploads the last checkpoint of a window that is closed. If it is complete, gives the lease
    /// back: a later owner need not wait. An owner on an empty directory would lose what the
    /// checkpoint lacks, so it must be told to take the window.
    pub async fn release(&self, is_complete: bool) {
        self.change_lease(|lease| lease.end(Ownership::Released));
        let mut current = self.current.lock().await;
        let next = self.next(&current);
        if !is_complete {
            self.upload_as(&mut current, next).await;
            tracing::error!(
                window = self.window.as_str(),
                "lease of the window not given back: the store lacks its last events"
            );
            return;
        }
        let next = WindowCurrent {
            lease_seconds: 0,
            ..next
        };
        // The lease is given back with the checkpoint, not before it.
        let is_released = if self.has_pending() {
            self.upload_as(&mut current, next).await
        } else {
            self.folder.replace(&next, Expected::Own).await.is_ok()
        };
        if !is_released {
            tracing::warn!(
                window = self.window.as_str(),
                "lease of the window not given back"
            );
        }
    }

    /// Gives back a window whose start failed after its claim, if it had no owner before: there was
    /// no event since. The claim stays the last one: a directory of an earlier owner is refused.
    pub async fn undo_claim(&self) {
        if self.earlier_lease_seconds > 0 {
            return;
        }
        let mut current = self.current.lock().await;
        let next = WindowCurrent {
            lease_seconds: 0,
            ..self.next(&current)
        };
        match self.folder.replace(&next, Expected::Own).await {
            Ok(()) => *current = next,
            Err(error) => {
                let (window, error) = (self.window.as_str(), error_chain(&error));
                tracing::warn!(window, error, "lease of the window not given back");
            }
        }
    }

    /// The content of the next record.
    fn next(&self, current: &WindowCurrent) -> WindowCurrent {
        let has_waited = self.lease.lock().has_waited(Instant::now());
        let wait_seconds = if has_waited { 0 } else { current.wait_seconds };
        WindowCurrent {
            wait_seconds,
            ..current.clone()
        }
    }

    /// Uploads the last checkpoint, and creates the record `next` with it.
    async fn upload_as(&self, current: &mut WindowCurrent, next: WindowCurrent) -> bool {
        if !self.has_pending() {
            return true;
        }
        // Not gigabytes for nothing, nor into the folder of a mount that is lost.
        if !self.confirm().await {
            self.counters.failures.increment(1);
            return false;
        }
        let Some((checkpoint, mark)) = self.checkpoints.lock().pending.take() else {
            return true;
        };
        match self.put(&checkpoint, next).await {
            Ok(uploaded) => {
                *current = uploaded;
                self.set_stored(mark);
                if let Err(error) = self.folder.remove_older(current).await {
                    let (window, error) = (self.window.as_str(), error_chain(&error));
                    tracing::warn!(window, error, "older checkpoint not removed from the store");
                }
                true
            }
            Err(error) => {
                self.counters.failures.increment(1);
                // A newer one may have come.
                self.checkpoints
                    .lock()
                    .pending
                    .get_or_insert((checkpoint, mark));
                let (window, text) = (self.window.as_str(), error_chain(&error));
                tracing::warn!(window, error = text, "checkpoint not uploaded to the store");
                // A put or a lock conflicts for a time; a lost claim is permanent.
                if matches!(
                    error,
                    StoreError::Conflict {
                        is_transient: false,
                        ..
                    }
                ) {
                    self.fence();
                }
                false
            }
        }
    }

    async fn put(
        &self,
        checkpoint: &LocalCheckpoint,
        mut next: WindowCurrent,
    ) -> Result<WindowCurrent, StoreError> {
        next.checkpoint = Some(self.folder.upload(next.epoch, checkpoint).await?);
        self.folder.replace(&next, Expected::Own).await?;
        Ok(next)
    }

    /// Stands for an upload in progress.
    #[cfg(test)]
    pub async fn hold(&self) -> tokio::sync::MutexGuard<'_, WindowCurrent> {
        self.current.lock().await
    }
}
