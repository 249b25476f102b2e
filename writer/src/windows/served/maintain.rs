//! Maintenance of a window: metrics, checkpoints, and the owner in the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;

use rtad_window::SavedCheckpoint;

use rtad_core::clock::now_unix_seconds;

use super::super::owner::{CheckpointMark, Owner, Ownership};
use super::ServedWindow;

/// Time between maintenance runs.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Time after which a window that gives no answer counts as not writable: its disk hangs.
const HANGS: Duration = Duration::from_secs(10);
/// Time from the start to the first upload.
const FIRST_UPLOAD: Duration = Duration::from_secs(5);
/// Time between attempts to upload.
const UPLOAD_RETRY: Duration = Duration::from_secs(5);

impl ServedWindow {
    /// Keeps checkpoints and metrics up to date, until the window's thread has ended.
    pub async fn maintain(self: Arc<Self>) {
        while !self.handle.has_ended() {
            tokio::time::sleep(MAINTENANCE).await;
            self.maintain_once().await;
        }
    }

    pub async fn maintain_once(self: &Arc<Self>) {
        let state = self.handle.state();
        // One at a time: a disk that hangs must not get one for each second afterwards.
        if state.is_checkpoint_due && !self.is_checkpointing.swap(true, Ordering::Relaxed) {
            let window = Arc::clone(self);
            tokio::spawn(async move {
                window.checkpoint().await;
                window.is_checkpointing.store(false, Ordering::Relaxed);
            });
        }
        let asked = tokio::time::timeout(HANGS, self.handle.counts(Vec::new())).await;
        self.update_gauges(asked.is_ok());
    }

    pub async fn checkpoint(&self) {
        let window = self.config.name.as_str();
        let mark = self.checkpoint_mark();
        match self.handle.checkpoint(mark.unix_seconds).await {
            Ok(Some(saved)) => {
                tracing::debug!(window, "checkpoint of the window written");
                // The next one follows at its time.
                let _ = self.add_upload(&saved, mark);
            }
            // A window that is not kept has none.
            Ok(None) => {}
            Err(error) => {
                let error = error.to_string();
                tracing::warn!(window, error, "checkpoint of the window not written");
            }
        }
    }

    /// Keeps a checkpoint for the next upload, if the store has the window; whether it is kept.
    pub fn add_upload(&self, saved: &SavedCheckpoint, mark: CheckpointMark) -> bool {
        let Some(owner) = &self.owner else {
            return true;
        };
        let mark = CheckpointMark {
            changes: saved.changes,
            ..mark
        };
        let added = owner.add(saved, mark);
        if let Err(error) = &added {
            let (window, error) = (self.config.name.as_str(), error.to_string());
            tracing::warn!(window, error, "checkpoint of the window not read");
        }
        added.is_ok()
    }

    /// Keeps the lease, and a checkpoint in the store, until `stop` or another owner.
    pub async fn keep_owned(self: Arc<Self>, stop: watch::Receiver<bool>) {
        if let Some(owner) = &self.owner {
            tokio::join!(
                owner.keep_lease(stop.clone()),
                self.keep_stored(owner, stop)
            );
        }
    }

    /// Keeps a checkpoint in the store that is at most one interval old. Begins with an upload:
    /// local files may be newer than those in the store.
    async fn keep_stored(&self, owner: &Owner, mut stop: watch::Receiver<bool>) {
        // Not beside the first events, nor at each restart of a process that ends soon.
        let first_due = Instant::now() + FIRST_UPLOAD;
        let mut wake_at = first_due;
        loop {
            tokio::select! {
                _ = stop.changed() => {}
                () = owner.wake.notified() => {}
                () = sleep_until(wake_at.into()) => {}
            }
            if *stop.borrow() || self.is_fenced() {
                return;
            }
            self.store_once(owner, first_due).await;
            owner.end_wait().await;
            // A failure waits as long.
            wake_at = Instant::now() + UPLOAD_RETRY;
        }
    }

    /// Makes a checkpoint if one is due, and uploads the last one.
    pub async fn store_once(&self, owner: &Owner, first_due: Instant) {
        let mark = self.checkpoint_mark();
        let stored = owner.stored();
        let due = stored.map_or(first_due, |stored| {
            stored.at + self.config.checkpoint_interval
        });
        let is_due = mark.at >= due;
        let has_changed = stored.is_none_or(|stored| stored.changes != mark.changes);
        if is_due && has_changed && !owner.has_pending() && self.handle.state().may_checkpoint {
            self.checkpoint().await;
        }
        if owner.has_pending() {
            owner.upload().await;
        } else if is_due && !has_changed && owner.confirm().await {
            owner.set_stored(mark);
        }
    }

    pub fn checkpoint_mark(&self) -> CheckpointMark {
        let changes = self.handle.state().changes;
        CheckpointMark {
            at: Instant::now(),
            unix_seconds: now_unix_seconds(),
            changes,
        }
    }

    /// Writes what is queued and a last checkpoint, uploads it, and gives the window to the next
    /// owner.
    pub async fn finish(&self) {
        let is_complete = self.close().await;
        if let Some(owner) = self
            .owner
            .as_ref()
            .filter(|owner| owner.state() != Ownership::Fenced)
        {
            owner.release(is_complete).await;
        }
    }

    /// Gives the window back, after a start that failed before any event.
    pub async fn undo_claim(&self) {
        if let Some(owner) = &self.owner {
            owner.undo_claim().await;
        }
    }

    /// Says that a stop does not wait for the last checkpoint.
    pub fn give_up(&self) {
        let state = self.owner.as_ref().map(|owner| owner.state());
        if state.is_some_and(|it| !matches!(it, Ownership::Released | Ownership::Fenced)) {
            tracing::warn!(
                window = self.config.name.as_str(),
                "lease of the window not given back"
            );
        }
    }

    pub fn update_gauges(&self, is_answering: bool) {
        let stats = self.handle.state();
        let counters = &self.counters;
        counters.entries.set(stats.window.entries as f64);
        counters
            .fill_ratio
            .set(stats.window.entries as f64 / self.config.spec.capacity as f64);
        counters.log_bytes.set(stats.log_bytes as f64);
        let is_writable = is_answering && stats.is_writable && self.is_held();
        counters.writable.set(f64::from(u8::from(is_writable)));
        counters.answers_evicted.absolute(stats.answers_evicted);
        counters.events.full.absolute(stats.window.full);
    }

    /// Writes what is queued, and a last checkpoint; whether it is written and kept for the upload.
    async fn close(&self) -> bool {
        let mark = self.checkpoint_mark();
        let error = match self.handle.close(mark.unix_seconds).await {
            Ok(Some(saved)) => return self.add_upload(&saved, mark),
            // A window that is not kept has none.
            Ok(None) => return true,
            Err(error) => error.to_string(),
        };
        let window = self.config.name.as_str();
        tracing::error!(window, error, "last checkpoint of the window not written");
        false
    }
}
