//! Start of a window's owner: it reads everything first, and claims the window last. A claim fences
//! the previous owner, so an error of the files leaves the window to that one.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rtad_core::clock::now_unix_seconds;
use rtad_core::random;
use rtad_core::snapshot::AudienceName;
use rtad_store::StoreError;
use rtad_store::write::{Expected, WindowCurrent, WindowFolder};
use rtad_window::{Loaded, OpenError, Shape, StateDir};

use super::super::clock::tick_at;
use super::super::config::Length;
use super::super::counters::UploadCounters;
use super::Owner;
use super::lease::{Lease, boot_id, wait_seconds};

/// Claims that may be lost to another process that creates a record meanwhile.
const ATTEMPTS: u32 = 3;

/// A window that this process may not own.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
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
         or remove .windows/{window}/records in the store to start from these files"
    )]
    ClaimedByAnother {
        dir: PathBuf,
        window: AudienceName,
        ago: humantime::Duration,
        epoch: u64,
    },
    #[error(
        "{dir} is empty, and another owner may run: it has claimed window {window} {ago} ago \
         (epoch {epoch}) and has not given it back; if it is gone for good, start with --take-over \
         {window}, from the checkpoint in the store"
    )]
    NotReleased {
        dir: PathBuf,
        window: AudienceName,
        ago: humantime::Duration,
        epoch: u64,
    },
    #[error(
        "{dir}: these files end with number {found}, and the checkpoint in the store has number \
         {expected}: an older copy was restored; remove the directory and start with --take-over \
         {window} to start from the checkpoint in the store, or remove .windows/{window}/records \
         in the store to start from these files"
    )]
    Restored {
        dir: PathBuf,
        window: AudienceName,
        expected: u64,
        found: u64,
    },
    #[error(
        "{dir} has files of window {window}, and the store has none: expected the store that they \
         belong to; check its mount and URL, or remove CLAIMS of that directory to begin in this \
         store"
    )]
    OtherStore { dir: PathBuf, window: AudienceName },
    #[error(
        "window {window}: its {origin} is of another length, capacity or kind of slots: expected \
         {expected}, found {found}; give the changed window another name, or remove {dir} and \
         .windows/{window}/ in the store to begin empty"
    )]
    Shape {
        window: AudienceName,
        origin: &'static str,
        dir: PathBuf,
        expected: String,
        found: String,
    },
    #[error("window {window}: its {origin}")]
    Open {
        window: AudienceName,
        origin: &'static str,
        #[source]
        source: OpenError,
    },
}

const LOCAL: &str = "directory";
const STORED: &str = "checkpoint in the store";

/// A window that is to be owned by this process. Its directory is locked.
pub struct Candidate {
    pub(in super::super) folder: WindowFolder,
    pub(in super::super) window: AudienceName,
    pub(in super::super) length: Length,
    pub(in super::super) shape: Shape,
    /// Length of its lease.
    pub(in super::super) lease: Duration,
    /// Whether an empty directory may take the window from an owner that has not given it back.
    pub(in super::super) take_over: bool,
    pub(in super::super) dir: StateDir,
}

/// Content of a candidate, and the claim before its own.
pub struct ReadFiles {
    loaded: Loaded,
    found: Option<WindowCurrent>,
    claims: Vec<String>,
    /// Whether it is the checkpoint of `found`, downloaded.
    is_downloaded: bool,
}

impl Candidate {
    /// Reads the local files; without local files, the last checkpoint in the store; without one,
    /// an empty window. Claims nothing.
    pub async fn read(&self) -> Result<ReadFiles, ClaimError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let found = self.folder.current().await.map_err(self.store())?;
            let claims = self.dir.claims().map_err(self.files())?;
            let last_number = self.dir.last_number().map_err(self.files())?;
            let refusal = |found| self.refusal(found, &claims, last_number);
            if let Some(refusal) = found.as_ref().and_then(refusal) {
                return Err(refusal);
            }
            // A claim in an empty store would fence nobody: its owner may be elsewhere.
            let has_owned = !claims.is_empty() && last_number.is_some();
            if found.is_none() && has_owned && self.folder.is_empty().await.map_err(self.store())? {
                return Err(ClaimError::OtherStore {
                    dir: self.dir.path().to_owned(),
                    window: self.window.clone(),
                });
            }
            let tick = tick_at(&self.length, SystemTime::now());
            let stored = found.as_ref().and_then(|found| found.checkpoint.as_ref());
            let Some(stored) = stored.filter(|_| last_number.is_none()) else {
                let loaded = self.dir.load(&self.shape, tick);
                let loaded = loaded.map_err(|error| self.unreadable(LOCAL, error))?;
                return Ok(ReadFiles {
                    loaded,
                    found,
                    claims,
                    is_downloaded: false,
                });
            };
            let file = self.dir.create_download().map_err(self.files())?;
            match self.folder.download(stored, file).await {
                // Its owner runs, and has uploaded another.
                Err(StoreError::NotFound { .. }) if attempt < ATTEMPTS => continue,
                downloaded => downloaded.map_err(self.store())?,
            }
            let loaded = self.dir.load_download(stored.number, &self.shape, tick);
            let loaded = loaded.map_err(|error| self.unreadable(STORED, error))?;
            return Ok(ReadFiles {
                loaded,
                found,
                claims,
                is_downloaded: true,
            });
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
                Some(ClaimError::NotReleased {
                    dir,
                    window,
                    ago,
                    epoch,
                })
            }
            Some(_) if !is_own => Some(ClaimError::ClaimedByAnother {
                dir,
                window,
                ago,
                epoch,
            }),
            Some(found) if found < expected => Some(ClaimError::Restored {
                dir,
                window,
                expected,
                found,
            }),
            _ => None,
        }
    }

    /// Makes this process the window's owner.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]. Unless the store's answer was lost, the previous owner is still the owner,
    /// or a window that had been given back is so again.
    pub async fn claim(
        self,
        mut content: ReadFiles,
        counters: UploadCounters,
    ) -> Result<(Owner, StateDir, Loaded), ClaimError> {
        let mut attempt = 0;
        let (claimed, began) = loop {
            attempt += 1;
            let last_epoch = match &content.found {
                Some(found) => found.epoch,
                None => self.folder.last_epoch().await.map_err(self.store())?,
            };
            let claimed = self
                .next_claim(&mut content, last_epoch)
                .map_err(self.files())?;
            let began = Instant::now();
            let expected = Expected::Found(content.found.as_ref());
            match self.folder.replace(&claimed, expected).await {
                Ok(()) => break (claimed, began),
                Err(StoreError::Conflict { .. }) if attempt < ATTEMPTS => {
                    // The drop leaves memory for one table, not two.
                    drop(content);
                    content = self.read().await?;
                }
                Err(error) => return Err(self.store()(error)),
            }
        };
        log_claim(&self.window, &claimed, &content);
        let installed = self.install(&claimed, content.is_downloaded);
        let lease = Lease::claimed(self.lease, began, claimed.wait_seconds);
        let earlier = content.found.map_or(0, |found| found.lease_seconds);
        let Self {
            window,
            folder,
            dir,
            ..
        } = self;
        let owner = Owner::new(window, folder, claimed, earlier, lease, counters);
        if let Err(source) = installed {
            owner.undo_claim().await;
            return Err(ClaimError::Files {
                dir: dir.path().to_owned(),
                source,
            });
        }
        Ok((owner, dir, content.loaded))
    }

    /// Makes the directory that of the claim.
    fn install(&self, claimed: &WindowCurrent, is_downloaded: bool) -> std::io::Result<()> {
        self.dir.set_claims(std::slice::from_ref(&claimed.owner))?;
        match claimed.checkpoint.as_ref().filter(|_| is_downloaded) {
            Some(stored) => self.dir.install(stored.number),
            None => Ok(()),
        }
    }

    /// The claim after the found one. Its text is in the directory before the store has it: the
    /// store's answer may be lost.
    fn next_claim(
        &self,
        content: &mut ReadFiles,
        last_epoch: u64,
    ) -> std::io::Result<WindowCurrent> {
        let found = content.found.as_ref();
        let boot = boot_id();
        let wait_seconds = wait_seconds(found, &content.claims, &boot);
        let owner = format!("{:016x}", random::number());
        content.claims.push(owner.clone());
        self.dir.set_claims(&content.claims)?;
        Ok(WindowCurrent {
            format: WindowCurrent::FORMAT,
            epoch: last_epoch + 1,
            owner,
            boot,
            claimed_unix_seconds: now_unix_seconds(),
            lease_seconds: Lease::seconds(self.lease),
            wait_seconds,
            checkpoint: found.and_then(|found| found.checkpoint.clone()),
        })
    }

    fn store(&self) -> impl Fn(StoreError) -> ClaimError + '_ {
        |source| ClaimError::Store {
            window: self.window.clone(),
            source,
        }
    }

    fn files(&self) -> impl Fn(std::io::Error) -> ClaimError + '_ {
        |source| ClaimError::Files {
            dir: self.dir.path().to_owned(),
            source,
        }
    }

    fn unreadable(&self, origin: &'static str, error: OpenError) -> ClaimError {
        let window = self.window.clone();
        match error {
            OpenError::Other {
                expected, found, ..
            } => {
                let dir = self.dir.path().to_owned();
                ClaimError::Shape {
                    window,
                    origin,
                    dir,
                    expected,
                    found,
                }
            }
            source => ClaimError::Open {
                window,
                origin,
                source,
            },
        }
    }
}

fn log_claim(window: &AudienceName, claimed: &WindowCurrent, content: &ReadFiles) {
    let (window, epoch) = (window.as_str(), claimed.epoch);
    if let Some(stored) = claimed
        .checkpoint
        .as_ref()
        .filter(|_| content.is_downloaded)
    {
        let age = age(stored.created_unix_seconds).to_string();
        // A released window has all its events in the checkpoint.
        if content
            .found
            .as_ref()
            .is_some_and(|found| found.lease_seconds == 0)
        {
            tracing::info!(
                window,
                epoch,
                age,
                "window started from its checkpoint in the store"
            );
        } else {
            tracing::warn!(
                window,
                epoch,
                age,
                "window started from its checkpoint in the store; its later events are lost"
            );
        }
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
}

fn age(unix_seconds: u64) -> humantime::Duration {
    let since = now_unix_seconds().saturating_sub(unix_seconds);
    humantime::Duration::from(Duration::from_secs(since))
}
