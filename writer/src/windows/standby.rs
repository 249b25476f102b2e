//! Standby: follows a window in the store with a table of its own, and takes the window over.
//!
//! A process is a standby of each of its windows until it owns them. It reads the newest table and
//! all segments after it, and then asks for the next one.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use rtad_core::backoff::Backoff;
use rtad_store::StoreError;
use rtad_store::write::{TableReader, WindowFolder};
use rtad_window::{
    Durability, MachineTime, OpenError, Replica, Settings, Shape, StartedWindow, TAKE_OVER_AFTER,
    TakeOver, WindowHandle,
};

use super::log::{Next, WindowLog};
use super::window::Window;
use crate::blocking::in_place;

/// Segments that are read at a time at a start.
const READ_AHEAD: usize = 16;
/// Blocks of a table between the store and the table.
const BLOCKS: usize = 8;
/// Attempts to read a log whose beginning is removed meanwhile.
const MAX_LOADS: u32 = 3;
/// Attempts to create the segment of a take-over.
const MAX_CREATES: u32 = 6;
/// Unit of the time between them.
const CREATE_RETRY: Duration = Duration::from_millis(100);

/// A window that could not be followed or taken over.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("in the store or in state_dir")]
    Open(#[from] OpenError),
    #[error(
        "its log in the store has a gap: expected segment {number}, found later ones; restore it, \
         or remove .windows/{window} to begin an empty window"
    )]
    Gap { window: String, number: u64 },
}

/// A window that this process does not own.
pub struct Standby {
    pub(super) window: Arc<Window>,
    folder: WindowFolder,
    shape: Shape,
    durability: Durability,
    /// The window as far as it was read; `None` before that, and when it must be read again.
    followed: Option<Followed>,
    /// When the last new segment was found.
    progress_at: Instant,
    /// Attempts to read the log in a row that found a gap.
    gaps: u32,
    /// Whether the log says that it has the window.
    is_logged: bool,
}

/// The window as far as it was read.
struct Followed {
    replica: Replica,
    log: WindowLog,
}

impl Standby {
    pub fn new(
        window: Arc<Window>,
        folder: WindowFolder,
        shape: Shape,
        durability: Durability,
    ) -> Self {
        Self {
            window,
            folder,
            shape,
            durability,
            followed: None,
            progress_at: Instant::now(),
            gaps: 0,
            is_logged: false,
        }
    }

    /// Reads all segments that there are. Returns whether it has them.
    pub async fn catch_up(&mut self) -> Result<bool, StandbyError> {
        let caught_up = self.read_on().await;
        if caught_up.is_err() {
            // The store hid the segments of an owner that may be well, and has events for it.
            self.progress_at = Instant::now();
        }
        caught_up
    }

    async fn read_on(&mut self) -> Result<bool, StandbyError> {
        if self.followed.is_none() {
            self.followed = self.load().await?;
            self.progress_at = Instant::now();
        }
        while let Some(followed) = &mut self.followed {
            match followed.log.next().await? {
                Next::Segment(bytes) => {
                    followed.apply(&bytes)?;
                    self.progress_at = Instant::now();
                    self.window.set_followed(followed.log.newest(), false);
                }
                Next::None => {
                    let segment = followed.log.newest();
                    self.window.set_followed(segment, true);
                    if !self.is_logged {
                        let window = self.window.config.name.as_str();
                        tracing::info!(window, segment, "standby has the window");
                        self.is_logged = true;
                    }
                    return Ok(true);
                }
                // Before the next table is in memory.
                Next::Removed => self.followed = None,
            }
        }
        Ok(false)
    }

    /// Whether the owner is gone, or this process need not wait for it. Only after
    /// [`Self::catch_up`] found no further segment.
    pub fn may_take_over(&self) -> Result<bool, StandbyError> {
        let Some(followed) = &self.followed else {
            return Ok(false);
        };
        let is_silent = self.progress_at.elapsed() >= TAKE_OVER_AFTER;
        Ok(is_silent || followed.replica.may_take_over_at_once(&self.durability)?)
    }

    /// Creates the segment that makes this process the owner; `None` if another process was faster.
    pub async fn take_over(&mut self) -> Result<Option<TakeOver>, StandbyError> {
        let Some(followed) = &mut self.followed else {
            return Ok(None);
        };
        let take_over = in_place(|| followed.replica.take_over(&self.durability))?;
        let mut backoff = Backoff::new(u32::MAX);
        for attempt in 1.. {
            match followed.log.create(take_over.bytes.clone()).await {
                Ok(true) => return Ok(Some(take_over)),
                Ok(false) => return Ok(None),
                Err(error) if attempt == MAX_CREATES => return Err(error.into()),
                // It may be there, and its answer lost.
                Err(_) => tokio::time::sleep(CREATE_RETRY * backoff.fail()).await,
            }
        }
        Ok(None)
    }

    /// As a process that was stopped for long.
    #[cfg(test)]
    fn set_known_at(&mut self, known_at: MachineTime) {
        let followed = self.followed.as_mut().unwrap();
        followed.log = WindowLog::new(self.folder.clone(), followed.log.newest(), known_at);
    }

    #[cfg(test)]
    fn newest(&self) -> u64 {
        self.followed.as_ref().unwrap().log.newest()
    }

    /// Starts the window that was taken over.
    pub fn start(self, take_over: TakeOver, settings: Settings) -> Result<Started, OpenError> {
        let Followed { replica, log } = self.followed.expect("a take-over has read the window");
        let start = || WindowHandle::start(replica, take_over, self.durability, settings);
        let window = in_place(start)?;
        Ok(Started { window, log })
    }

    /// Reads the newest table and the segments after it; `None` if some are removed meanwhile.
    async fn load(&mut self) -> Result<Option<Followed>, StandbyError> {
        let known_at = MachineTime::now();
        let table = self.folder.newest_table().await?;
        let segments = self.folder.segments().await?;
        let first = table.unwrap_or(1);
        let last = segments.last().copied().unwrap_or(0);
        if last + 1 < first {
            return self.gap(last + 1).map(|()| None);
        }

        let mut replica = match table {
            None => in_place(|| Replica::empty(self.shape.clone()))?,
            Some(number) => match self.read_table(number).await? {
                Some(replica) => replica,
                None => return self.gap(number).map(|()| None),
            },
        };

        let mut read = stream::iter(first..=last)
            .map(|number| self.folder.read(number))
            .buffered(READ_AHEAD);
        let mut newest = first - 1;
        while let Some(segment) = read.next().await {
            match segment? {
                Some(bytes) => in_place(|| replica.apply(&bytes))?,
                None => {
                    drop(read);
                    return self.gap(newest + 1).map(|()| None);
                }
            };
            newest += 1;
            self.window.set_followed(newest, false);
        }
        drop(read);

        self.gaps = 0;
        let log = WindowLog::new(self.folder.clone(), newest, known_at);
        Ok(Some(Followed { replica, log }))
    }

    /// A segment or a table is gone. The first times, a later table may have replaced it.
    fn gap(&mut self, number: u64) -> Result<(), StandbyError> {
        self.gaps += 1;
        if self.gaps < MAX_LOADS {
            return Ok(());
        }
        Err(StandbyError::Gap {
            window: self.window.config.name.as_str().to_owned(),
            number,
        })
    }

    /// Reads a table; `None` if it was removed.
    async fn read_table(&self, number: u64) -> Result<Option<Replica>, StandbyError> {
        let Some(mut table) = self.folder.table(number).await? else {
            return Ok(None);
        };
        let (sender, blocks) = mpsc::channel(BLOCKS);
        let shape = self.shape.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let block = Bytes::new();
            Replica::from_table(shape, Blocks { blocks, block })
        });

        let sent = send_blocks(&mut table, sender).await;
        let read = reading.await.expect("reading of a table does not panic");
        match sent {
            Ok(()) => Ok(Some(read?)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Followed {
    fn apply(&mut self, bytes: &[u8]) -> Result<(), OpenError> {
        in_place(|| self.replica.apply(bytes))?;
        self.log.advance();
        Ok(())
    }
}

/// A window that this process owns from now on.
pub struct Started {
    pub window: StartedWindow,
    pub log: WindowLog,
}

/// Sends the blocks of a table until its end, or until nobody receives them.
async fn send_blocks(
    table: &mut TableReader,
    sender: mpsc::Sender<Bytes>,
) -> Result<(), StoreError> {
    while let Some(block) = table.next_block().await? {
        if sender.send(block).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Blocks of a table that arrive, read on a thread.
struct Blocks {
    blocks: mpsc::Receiver<Bytes>,
    block: Bytes,
}

impl Read for Blocks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.block.is_empty() {
            match self.blocks.blocking_recv() {
                Some(block) => self.block = block,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.block.len());
        self.block.copy_to_slice(&mut into[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests;
