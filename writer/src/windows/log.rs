//! The log of a window in the store, as one process follows it and goes on with it.
//!
//! Segments are removed some time after a table has replaced them. So a missing segment n + 1 shows
//! that n is the newest only if n was known to be the newest a short time ago, and so does a segment
//! n + 1 that was created. After a longer time, such as that of a process which was stopped, the
//! segments are listed. A virtual machine that was suspended knows of it once its wall clock is
//! set.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use rtad_core::error_chain::error_chain;
use rtad_store::StoreError;
use rtad_store::write::{MIN_SEGMENT_AGE, WindowFolder};
use rtad_window::MachineTime;

/// Time of one request for a segment, and more for each MiB: a connection that hangs must not hide
/// the owner, nor its loss. The same bytes are sent again.
const ATTEMPT: Duration = Duration::from_secs(4);

/// The log of a window in the store.
pub struct WindowLog {
    folder: WindowFolder,
    /// Number of the newest segment that this process has; 0 before the first.
    newest: u64,
    /// When no later one was there.
    known_at: MachineTime,
}

/// Answer to the question for the next segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Its bytes.
    Segment(Vec<u8>),
    /// The one before is the newest.
    None,
    /// It was removed, as a later table has replaced it.
    Removed,
}

impl WindowLog {
    /// The log up to a segment, which was the newest at a time.
    pub const fn new(folder: WindowFolder, newest: u64, known_at: MachineTime) -> Self {
        Self {
            folder,
            newest,
            known_at,
        }
    }

    pub const fn folder(&self) -> &WindowFolder {
        &self.folder
    }

    /// Number of the newest segment that this process has.
    pub const fn newest(&self) -> u64 {
        self.newest
    }

    /// Reads the next segment. It becomes the newest by [`Self::advance`].
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn next(&mut self) -> Result<Next, StoreError> {
        let asked_at = MachineTime::now();
        let path = self.folder.segment(self.newest + 1);
        let read = timeout(3 * ATTEMPT, self.folder.read(self.newest + 1));
        let Ok(read) = read.await else {
            return Err(StoreError::no_answer("read", path));
        };
        if let Some(bytes) = read? {
            return Ok(Next::Segment(bytes));
        }
        if self.has_later(self.newest).await? {
            return Ok(Next::Removed);
        }
        self.known_at = asked_at;
        Ok(Next::None)
    }

    /// The next segment was applied.
    pub const fn advance(&mut self) {
        self.newest += 1;
    }

    /// Creates the next segment. False if another process was faster.
    ///
    /// # Errors
    ///
    /// A store error, after which the segment may still appear: a call with the same bytes finds
    /// out.
    pub async fn create(&mut self, bytes: Bytes) -> Result<bool, StoreError> {
        let asked_at = MachineTime::now();
        let number = self.newest + 1;
        let mebibytes = u32::try_from(bytes.len() >> 20).unwrap_or(u32::MAX);
        let time = ATTEMPT + mebibytes * Duration::from_secs(1);
        let created = timeout(time, self.folder.create(number, bytes));
        let Ok(created) = created.await else {
            return Err(StoreError::no_answer("create", self.folder.segment(number)));
        };
        if !created? || self.has_later(number).await? {
            return Ok(false);
        }
        self.newest = number;
        self.known_at = asked_at;
        Ok(true)
    }

    /// Whether the newest segment is still in the store.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn has_newest(&self) -> Result<bool, StoreError> {
        self.folder.has(self.newest).await
    }

    /// Whether there are segments after one that is missing, or was created.
    async fn has_later(&self, number: u64) -> Result<bool, StoreError> {
        // Half of it, as the store's clock may differ.
        if MachineTime::now().since(self.known_at) < MIN_SEGMENT_AGE / 2 {
            return Ok(false);
        }
        Ok(self.folder.segments().await?.last() > Some(&number))
    }
}

/// Failures of one kind of work, of which each is logged once until another one or a success.
#[derive(Default)]
pub struct FailureLog {
    failure: Option<String>,
}

impl FailureLog {
    pub fn fail(&mut self, window: &str, work: &str, error: &StoreError) {
        let text = error_chain(error);
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(window, error = text, "{work}");
            self.failure = Some(text);
        }
    }

    pub fn succeed(&mut self) {
        self.failure = None;
    }
}
