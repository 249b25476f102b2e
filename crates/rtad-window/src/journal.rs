//! Log of a window while it is written: groups, syncs, and the next segment after a failure.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::load::{Loaded, LogBytes, OpenError, Shape};
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
    /// Groups that are written and perhaps not durable, to write them again after a failure.
    unsynced: VecDeque<LogGroup>,
    unsynced_bytes: u64,
    /// Time of the first of them.
    unsynced_since: Instant,
    syncing: Option<Syncing>,
    /// Woken at the end of a sync.
    queue: Arc<Queue>,
}

/// A sync in another thread.
struct Syncing {
    /// Number of the first group that it does not include.
    until: u64,
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
            // A process that was killed may have left groups that only the page cache has. Retries
            // are answered from them without a write, and the next segment continues them.
            dir.disk
                .sync(&File::open(segment_path(&dir.dir, loaded.last_segment))?)?;
        }
        Ok(Self {
            segment: Segment::create(&dir.disk, &dir.dir, id, number, group, [].iter())?,
            dir,
            id,
            durability,
            bytes: loaded.log,
            unsynced: VecDeque::new(),
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

    fn first_unsynced(&self) -> u64 {
        self.segment.next_group - self.unsynced.len() as u64
    }

    /// The next group, empty.
    pub fn group(&self) -> LogGroup {
        match self.durability {
            Durability::Fsync | Durability::None => LogGroup::new(),
            Durability::Interval(_) => LogGroup::after_sync(self.first_unsynced()),
        }
    }

    /// Writes a group as durably as its events are to be when they are acknowledged. After an error
    /// nothing of it is left; `restart` must follow.
    pub fn commit(&mut self, mut group: LogGroup) -> io::Result<()> {
        self.segment.append(&mut group)?;
        let (bytes, answers) = (group.payload_bytes(), group.answer_bytes);
        if let Durability::Interval(_) = self.durability {
            if self.unsynced.is_empty() {
                self.unsynced_since = Instant::now();
            }
            self.unsynced_bytes += bytes;
            self.unsynced.push_back(group);
        } else if let Err(error) = self.segment.sync() {
            self.segment.remove_last();
            return Err(error);
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
        if self.unsynced.is_empty() || self.syncing.is_some() {
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
    /// The sync failed; `restart` must follow.
    pub fn keep_synced(&mut self) -> io::Result<()> {
        self.end_sync(self.unsynced_bytes > MAX_UNSYNCED)?;
        if self.sync_due().is_some_and(|due| due.is_zero()) {
            let (send, result) = mpsc::channel();
            let (file, queue) = (self.segment.file()?, Arc::clone(&self.queue));
            let sync = move || {
                // The journal may have restarted.
                let _ = send.send(file.sync());
                queue.nudge();
            };
            std::thread::Builder::new()
                .name("window-sync".to_owned())
                .spawn(sync)?;
            self.syncing = Some(Syncing {
                until: self.segment.next_group,
                result,
            });
        }
        Ok(())
    }

    /// Takes the result of the sync in the other thread, if it has ended or `waits`.
    fn end_sync(&mut self, waits: bool) -> io::Result<()> {
        let Some(Syncing { until, result }) = &self.syncing else {
            return Ok(());
        };
        let ended = match waits {
            true => result.recv().map_err(|_| mpsc::TryRecvError::Disconnected),
            false => result.try_recv(),
        };
        match ended {
            Err(mpsc::TryRecvError::Empty) => Ok(()),
            Err(mpsc::TryRecvError::Disconnected) => {
                Err(io::Error::other("the thread of a sync has ended"))
            }
            Ok(synced) => {
                let until = *until;
                synced?;
                self.set_synced(until);
                Ok(())
            }
        }
    }

    /// Groups before this number are durable.
    fn set_synced(&mut self, until: u64) {
        let synced = (until - self.first_unsynced()) as usize;
        self.unsynced_bytes -= self
            .unsynced
            .drain(..synced)
            .map(|g| g.payload_bytes())
            .sum::<u64>();
        self.unsynced_since = Instant::now();
        self.syncing = None;
    }

    /// Makes every group durable.
    ///
    /// # Errors
    ///
    /// The sync failed; `restart` must follow.
    pub fn sync(&mut self) -> io::Result<()> {
        // The file system reports a failure once: the sync below would not find it.
        self.end_sync(true)?;
        if !self.unsynced.is_empty() {
            self.segment.sync()?;
            self.set_synced(self.segment.next_group);
        }
        Ok(())
    }

    /// Goes on after a failure: in a new segment, with the groups that were acknowledged and are
    /// perhaps not durable.
    pub fn restart(&mut self) -> io::Result<()> {
        self.dir.check_space()?;
        self.syncing = None;
        self.begin_segment()?;
        self.unsynced.clear();
        self.unsynced_bytes = 0;
        Ok(())
    }

    /// Begins the next segment, with the groups that are perhaps not durable.
    ///
    /// # Errors
    ///
    /// The segment cannot be created; `restart` must follow.
    pub fn begin_segment(&mut self) -> io::Result<()> {
        let (number, first) = (self.segment.number + 1, self.first_unsynced());
        let StateDir { dir, disk, .. } = &self.dir;
        self.segment = Segment::create(disk, dir, self.id, number, first, self.unsynced.iter())?;
        Ok(())
    }

    /// Reads the directory again, after `restart`.
    pub fn load(&mut self, shape: &Shape, tick: u64) -> Result<Loaded, OpenError> {
        let loaded = self.dir.load(shape, tick)?;
        self.bytes = loaded.log;
        Ok(loaded)
    }
}
