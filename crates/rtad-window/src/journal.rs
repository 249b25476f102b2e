//! Log of a window while it is written: groups, syncs, segments. After a failure it must not be
//! used: the next start reads what was written.

use std::fs::File;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::load::{Loaded, LogBytes};
use crate::log::{LogGroup, Segment, segment_path};
use crate::queue::Queue;
use crate::state_dir::StateDir;

/// Bytes of groups that are not durable: so many begin a sync before its time.
const MANY_UNSYNCED: u64 = 64 << 20;
/// Maximum bytes of groups that are not durable. Writes wait for the sync beyond it.
const MAX_UNSYNCED: u64 = 256 << 20;

/// When an event is safe from the end of the process or machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Never: a restart begins empty.
    None,
    /// Safe from the end of the process before the event is acknowledged, and from that of the
    /// machine after at most this time.
    Interval(Duration),
    /// Safe before the event is acknowledged.
    Fsync,
}

pub struct Journal {
    pub(crate) dir: StateDir,
    /// Random number of the window's files.
    pub(crate) id: u64,
    durability: Durability,
    segment: Segment,
    pub(crate) bytes: LogBytes,
    /// Number of the first group that is perhaps not durable.
    first_unsynced: u64,
    /// Bytes of the groups from it on.
    unsynced_bytes: u64,
    /// When it was written.
    unsynced_since: Instant,
    syncing: Option<Syncing>,
    /// Woken at the end of a sync.
    queue: Arc<Queue>,
}

/// A sync in another thread.
struct Syncing {
    /// Number of the first group that it does not include.
    until: u64,
    /// Bytes of the groups before it.
    bytes: u64,
    result: mpsc::Receiver<io::Result<()>>,
}

impl Journal {
    /// Makes the last segment durable, and begins one after it.
    pub fn begin(
        dir: StateDir,
        loaded: &Loaded,
        durability: Durability,
        queue: Arc<Queue>,
    ) -> io::Result<Self> {
        let (id, number, group) = (loaded.head.id, loaded.last_segment + 1, loaded.next_group);
        if loaded.last_segment >= loaded.head.segment {
            // A process that ended may have left groups that only the page cache has. Retries are
            // answered from them without a write, and the next segment continues them. If a sync
            // had failed, the disk may lack them still: their file is read as it is cached.
            dir.disk
                .sync(&File::open(segment_path(&dir.dir, loaded.last_segment))?)?;
        }
        Ok(Self {
            segment: Segment::create(&dir.disk, &dir.dir, id, number, group)?,
            dir,
            id,
            durability,
            bytes: loaded.log,
            first_unsynced: group,
            unsynced_bytes: 0,
            unsynced_since: Instant::now(),
            syncing: None,
            queue,
        })
    }

    /// Number of the segment, and of its next group.
    pub const fn end(&self) -> (u64, u64) {
        (self.segment.number, self.segment.next_group)
    }

    const fn has_unsynced(&self) -> bool {
        self.first_unsynced < self.segment.next_group
    }

    /// The next group, empty.
    pub fn group(&self) -> LogGroup {
        match self.durability {
            Durability::Fsync | Durability::None => LogGroup::new(),
            Durability::Interval(_) => LogGroup::after_sync(self.first_unsynced),
        }
    }

    /// Writes a group as durably as its events are to be when they are acknowledged. After an error
    /// nothing of it is left, if the disk allows that.
    pub fn commit(&mut self, mut group: LogGroup) -> io::Result<()> {
        if !self.has_unsynced() {
            self.unsynced_since = Instant::now();
        }
        self.segment.append(&mut group)?;

        let (bytes, answers) = (group.payload_bytes(), group.answer_bytes);
        if let Durability::Interval(_) = self.durability {
            self.unsynced_bytes += bytes;
        } else if let Err(error) = self.segment.sync() {
            self.segment.remove_last();
            return Err(error);
        } else {
            self.first_unsynced = self.segment.next_group;
        }
        self.bytes.changes += bytes - answers;
        self.bytes.answers += answers;
        Ok(())
    }

    /// Time until `keep_synced` has work.
    pub fn sync_due(&self) -> Option<Duration> {
        let Durability::Interval(interval) = self.durability else {
            return None;
        };
        if !self.has_unsynced() || self.syncing.is_some() {
            return None;
        }
        if self.unsynced_bytes > MANY_UNSYNCED {
            return Some(Duration::ZERO);
        }
        // The wait takes one half of the interval, the sync the other.
        Some((interval / 2).saturating_sub(self.unsynced_since.elapsed()))
    }

    /// Ends a sync in the other thread, and begins one if it is due.
    ///
    /// # Errors
    ///
    /// The sync failed.
    pub fn keep_synced(&mut self) -> io::Result<()> {
        self.end_sync(self.unsynced_bytes > MAX_UNSYNCED)?;
        if self.sync_due().is_some_and(|due| due.is_zero()) {
            let (send, result) = mpsc::channel();
            let (file, queue) = (self.segment.file()?, Arc::clone(&self.queue));
            let sync = move || {
                // The journal may have ended.
                let _ = send.send(file.sync());
                queue.nudge();
            };
            std::thread::Builder::new()
                .name("window-sync".to_owned())
                .spawn(sync)?;
            self.syncing = Some(Syncing {
                until: self.segment.next_group,
                bytes: self.unsynced_bytes,
                result,
            });
        }
        Ok(())
    }

    /// Takes the result of the sync in the other thread, if it has ended or `waits`.
    fn end_sync(&mut self, waits: bool) -> io::Result<()> {
        let Some(Syncing {
            until,
            bytes,
            result,
        }) = &self.syncing
        else {
            return Ok(());
        };
        let ended = if waits {
            result.recv().map_err(|_| mpsc::TryRecvError::Disconnected)
        } else {
            result.try_recv()
        };
        match ended {
            Err(mpsc::TryRecvError::Empty) => Ok(()),
            Err(mpsc::TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread of a sync has ended"))
            }
            Ok(synced) => {
                synced?;
                self.first_unsynced = *until;
                self.unsynced_bytes -= *bytes;
                self.unsynced_since = Instant::now();
                self.syncing = None;
                Ok(())
            }
        }
    }

    /// Makes every group durable.
    ///
    /// # Errors
    ///
    /// The sync failed.
    pub fn sync(&mut self) -> io::Result<()> {
        // The file system reports a failure once: the sync below would not find it.
        self.end_sync(true)?;
        if self.has_unsynced() {
            self.segment.sync()?;
            self.first_unsynced = self.segment.next_group;
            self.unsynced_bytes = 0;
        }
        Ok(())
    }

    /// Makes every group durable, and begins the next segment.
    ///
    /// # Errors
    ///
    /// The sync failed, or the segment could not be created.
    pub fn begin_segment(&mut self) -> io::Result<()> {
        self.sync()?;
        let Segment {
            number, next_group, ..
        } = self.segment;
        let StateDir { dir, disk, .. } = &self.dir;
        self.segment = Segment::create(disk, dir, self.id, number + 1, next_group)?;
        Ok(())
    }
}
