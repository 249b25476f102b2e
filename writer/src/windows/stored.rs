//! Checkpoints of a window in the store: the claim at the start, and the uploads.
//!
//! A claim fences the previous owner. So a start reads everything first, and claims last: an error
//! of the files leaves the window to its owner.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{ClaimTerms, LocalCheckpoint, WindowCheckpoints, WindowCurrent};
use rtad_window::{Loaded, OpenError, SavedCheckpoint, Shape, StateDir};

use super::clock::{now_seconds, tick_at};
use super::config::Length;
use super::counters::UploadCounters;
use super::lease::{Lease, LeaseState, boot_id, wait_seconds};

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
         older than its events; stop that owner, and remove the directory to start from the \
         checkpoint in the store (with --take-over {window} if that owner did not stop cleanly), \
         or remove .windows/{window}/CURRENT in the store to start from these files"
    )]
    Other { dir: PathBuf, window: AudienceName, ago: humantime::Duration, epoch: u64 },
    #[error(
        "{dir} is empty, and another owner may run: it has claimed window {window} {ago} ago \
         (epoch {epoch}) and has not given it back; if it is gone for good, start with --take-over \
         {window}, from the checkpoint in the store"
    )]
    Held { dir: PathBuf, window: AudienceName, ago: humantime::Duration, epoch: u64 },
    #[error(
        "{dir}: these files end with number {found}, and the checkpoint in the store has number \
         {expected}: an older copy was restored; remove the directory and start with --take-over \
         {window} to start from the checkpoint in the store, or remove .windows/{window}/CURRENT \
         in the store to start from these files"
    )]
    Restored { dir: PathBuf, window: AudienceName, expected: u64, found: u64 },
    #[error(
        "window {window}: its {place} is of another length, capacity or kind of slots: expected \
         {expected}, found {found}; give the changed window another name, or remove {dir} and \
         .windows/{window}/ in the store to begin empty"
    )]
    Shape {
        window: AudienceName,
        place: &'static str,
        dir: PathBuf,
        expected: String,
        found: String,
    },
    #[error("window {window}: its {place}")]
    Open {
        window: AudienceName,
        place: &'static str,
        #[source]
        source: OpenError,
    },
}

const LOCAL: &str = "directory";
const STORED: &str = "checkpoint in the store";

/// A window that is to be owned by this process. Its directory is locked.
pub(super) struct Candidate {
    pub(super) checkpoints: WindowCheckpoints,
    pub(super) window: AudienceName,
    pub(super) length: Length,
    pub(super) shape: Shape,
    /// Length of its lease.
    pub(super) lease: Duration,
    /// Whether an empty directory may take the window from an owner that has not given it back.
    pub(super) take_over: bool,
    pub(super) dir: StateDir,
}

/// A window that this process owns.
pub(super) struct Claimed {
    pub(super) current: WindowCurrent,
    pub(super) lease: Lease,
    pub(super) dir: StateDir,
    pub(super) loaded: Loaded,
}

/// Content of a candidate, and the claim before its own.
pub(super) struct Content {
    loaded: Loaded,
    found: Option<WindowCurrent>,
    claims: Vec<String>,
    /// Whether it is the checkpoint of `found`, downloaded.
    is_downloaded: bool,
}

impl Candidate {
    /// Reads the local files; without local files, the last checkpoint in the store; without one,
    /// an empty window. Claims nothing.
    pub(super) async fn read(&self) -> Result<Content, ClaimError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let found = self.checkpoints.current().await.map_err(self.store())?;
            let claims = self.dir.claims().map_err(self.files())?;
            let last_number = self.dir.last_number().map_err(self.files())?;
            let refusal = |found| self.refusal(found, &claims, last_number);
            if let Some(refusal) = found.as_ref().and_then(refusal) {
                return Err(refusal);
            }
            let tick = |offset| tick_at(&self.length, offset, SystemTime::now());
            let stored = found.as_ref().and_then(|found| found.checkpoint.as_ref());
            let Some(stored) = stored.filter(|_| last_number.is_none()) else {
                let loaded = self.dir.load(&self.shape, tick);
                let loaded = loaded.map_err(|error| self.unreadable(LOCAL, error))?;
                return Ok(Content { loaded, found, claims, is_downloaded: false });
            };
            let file = self.dir.create_download().map_err(self.files())?;
            match self.checkpoints.download(stored, file).await {
                // Its owner runs, and has uploaded another.
                Err(StoreError::NotFound { .. }) if attempt < ATTEMPTS => continue,
                downloaded => downloaded.map_err(self.store())?,
            }
            let loaded = self.dir.load_download(stored.number, &self.shape, tick);
            let loaded = loaded.map_err(|error| self.unreadable(STORED, error))?;
            return Ok(Content { loaded, found, claims, is_downloaded: true });
        }
    }

    /// Reason not to claim: the files are not the window's newest, or it may have an owner.
    fn refusal(
        &self,
        found: &WindowCurrent,
        claims: &[String],
        last_number: Option<u64>,
    ) -> Option<ClaimError> {
        let (dir, window) = (self.dir.path().to_owned(), self.window.clone());
        let (ago, epoch) = (age(found.claimed_unix_seconds), found.epoch);
        let is_own = claims.contains(&found.owner);
        // A checkpoint is in the directory before it is in the store.
        let expected = found.checkpoint.as_ref().map_or(0, |stored| stored.number);
        match last_number {
            None if !is_own && found.lease_seconds > 0 && !self.take_over => {
                Some(ClaimError::Held { dir, window, ago, epoch })
            }
            Some(_) if !is_own => Some(ClaimError::Other { dir, window, ago, epoch }),
            Some(found) if found < expected => {
                Some(ClaimError::Restored { dir, window, expected, found })
            }
            _ => None,
        }
    }

    /// Makes this process the window's owner.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]. Unless the store's answer was lost, the previous owner is still the owner.
    pub(super) async fn claim(self, mut content: Content) -> Result<Claimed, ClaimError> {
        let mut attempt = 0;
        let (claimed, lease) = loop {
            attempt += 1;
            let lease_seconds = Lease::seconds(self.lease);
            let boot = boot_id();
            let wait_seconds = wait_seconds(content.found.as_ref(), &content.claims, &boot);
            // Kept before the claim: its answer may be lost.
            let owner = StateDir::new_claim().map_err(self.files())?;
            content.claims.push(owner.clone());
            self.dir.set_claims(&content.claims).map_err(self.files())?;
            let terms = ClaimTerms { owner: &owner, boot: &boot, lease_seconds, wait_seconds };
            let began = Instant::now();
            match self.checkpoints.claim(content.found.as_ref(), terms).await {
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {
                    // The drop leaves memory for one table, not two.
                    drop(content);
                    content = self.read().await?;
                }
                claimed => {
                    let claimed = claimed.map_err(self.store())?;
                    break (claimed, Lease::claimed(self.lease, began, wait_seconds));
                }
            }
        };
        self.dir.set_claims(std::slice::from_ref(&claimed.owner)).map_err(self.files())?;
        let (window, epoch) = (self.window.as_str(), claimed.epoch);
        if let Some(stored) = claimed.checkpoint.as_ref().filter(|_| content.is_downloaded) {
            self.dir.install(stored.number).map_err(self.files())?;
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
        if claimed.wait_seconds > 0 {
            let wait = Duration::from_secs(claimed.wait_seconds);
            tracing::warn!(
                window,
                epoch,
                wait = humantime::format_duration(wait).to_string(),
                "previous owner did not stop cleanly; events are refused until its lease is over"
            );
        }
        Ok(Claimed { current: claimed, lease, dir: self.dir, loaded: content.loaded })
    }

    fn store(&self) -> impl Fn(StoreError) -> ClaimError + '_ {
        |source| ClaimError::Store { window: self.window.clone(), source }
    }

    fn files(&self) -> impl Fn(std::io::Error) -> ClaimError + '_ {
        |source| ClaimError::Files { dir: self.dir.path().to_owned(), source }
    }

    fn unreadable(&self, place: &'static str, error: OpenError) -> ClaimError {
        let window = self.window.clone();
        match error {
            OpenError::Other { expected, found, .. } => {
                let dir = self.dir.path().to_owned();
                ClaimError::Shape { window, place, dir, expected, found }
            }
            source => ClaimError::Open { window, place, source },
        }
    }
}

fn age(unix_seconds: u64) -> humantime::Duration {
    let since = now_seconds().saturating_sub(unix_seconds);
    humantime::Duration::from(Duration::from_secs(since))
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

/// State of a window when a checkpoint was begun: a checkpoint contains at least this.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) at: Instant,
    pub(super) unix_seconds: u64,
    /// Number of changes of the window.
    pub(super) changes: u64,
}

struct Pending {
    checkpoint: LocalCheckpoint,
    begun: Begun,
}

/// The store's side of a window.
pub(super) struct Uploads {
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
    pub(super) wake: Notify,
    is_fenced: AtomicBool,
    lease: Lease,
    /// The state as last logged.
    lease_state: Mutex<LeaseState>,
    counters: UploadCounters,
}

impl Uploads {
    pub(super) fn new(
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
    pub(super) fn is_held(&self) -> bool {
        !self.is_fenced() && self.lease.state(Instant::now()) == LeaseState::Held
    }

    /// Whether another process owns the window.
    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }

    /// Keeps a checkpoint for the next upload. Its file may be removed meanwhile.
    pub(super) fn add(&self, saved: &SavedCheckpoint, begun: Begun) -> std::io::Result<()> {
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

    pub(super) fn has_pending(&self) -> bool {
        self.pending().is_some()
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock()
    }

    /// State of the window that the store has; `None` before the first upload of this process.
    pub(super) fn stored(&self) -> Option<Begun> {
        *self.stored.lock()
    }

    /// The store has all changes up to `begun`.
    pub(super) fn set_stored(&self, begun: Begun) {
        *self.stored.lock() = Some(begun);
        self.counters.uploaded.set(begun.unix_seconds as f64);
    }

    /// Uploads the last checkpoint, if there is one.
    pub(super) async fn upload(&self) -> Stored {
        self.upload_of(&mut *self.current.lock().await).await
    }

    /// Uploads the last checkpoint of a window that is closed, and gives its lease back: a later
    /// owner need not wait.
    pub(super) async fn release(&self) {
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
    pub(super) async fn check_owner(&self) -> Stored {
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
    pub(super) fn check_interval(&self) -> Duration {
        self.lease.check_interval()
    }

    /// Tells the store, once the wait is over, that a restart need not wait again. A failure leaves
    /// that to the next call.
    pub(super) async fn end_wait(&self) {
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
    pub(super) async fn hold(&self) -> tokio::sync::MutexGuard<'_, WindowCurrent> {
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
