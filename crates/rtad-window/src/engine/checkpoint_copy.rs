//! A checkpoint beside traffic: the window's thread copies one region between two groups, a helper
//! thread compresses and writes it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError, TrySendError};
use std::thread::JoinHandle;
use std::{io, mem};

use crate::answers::Answers;
use crate::checkpoint::{Head, Writer};
use crate::disk::Disk;
use crate::load::remove_before;
use crate::log::LogGroup;
use crate::queue::Queue;
use crate::table::RegionClock;
use crate::window::Window;

/// Copies that wait for the helper.
const WAITING: usize = 2;
/// Bytes of answers that a group gets beside its events.
const ANSWER_BYTES: u64 = 256 << 10;

enum Job {
    Region(RegionClock, Vec<u8>),
    /// All regions are written, and all changes in them are durable.
    Publish,
}

/// Copies of all regions on their way to a file. Dropping them leaves the checkpoint before.
pub struct CheckpointCopy {
    jobs: Option<SyncSender<Job>>,
    /// Buffers of written copies.
    empty: Receiver<Vec<u8>>,
    helper: Option<JoinHandle<()>>,
    result: Receiver<io::Result<PathBuf>>,
    /// A job for which the helper had no room.
    held: Option<Job>,
    next_region: usize,
    is_published: bool,
    /// Numbers of the answers that the new segment does not have yet.
    answers: Range<u64>,
}

/// Progress of a checkpoint after `advance`.
pub enum CopyProgress {
    /// The helper has no room, or writes the rest.
    Waiting,
    /// A region was copied, or answers are to be moved.
    Copied,
    /// All is copied: the log must be synced, and `publish` follows.
    AllCopied,
    /// The file is written to this path, or an attempt failed.
    Ended(io::Result<PathBuf>),
}

impl CheckpointCopy {
    /// Begins a checkpoint with the segment that `head` names, which is empty.
    pub fn begin(
        head: Head,
        (disk, dir): (Arc<dyn Disk>, PathBuf),
        queue: Arc<Queue>,
        answers: Range<u64>,
    ) -> io::Result<Self> {
        let (jobs, taken) = mpsc::sync_channel(WAITING);
        let (written, empty) = mpsc::channel();
        let (ended, result) = mpsc::channel();
        let helper = move || {
            let path = write(&head, &disk, &dir, &taken, |buffer| {
                // The checkpoint may be dropped.
                let _ = written.send(buffer);
                queue.nudge();
            });
            drop(taken);
            let _ = ended.send(path);
            queue.nudge();
        };
        let helper = std::thread::Builder::new()
            .name("window-checkpoint".to_owned())
            .spawn(helper)?;
        Ok(Self {
            jobs: Some(jobs),
            empty,
            helper: Some(helper),
            result,
            held: None,
            next_region: 0,
            is_published: false,
            answers,
        })
    }

    /// Moves answers to the new segment, as part of a group.
    pub fn add_answers(&mut self, answers: &Answers, group: &mut LogGroup) {
        let most = group.answer_bytes + ANSWER_BYTES;
        while group.answer_bytes < most
            && let Some(number) = self.answers.next()
        {
            if let Some((request_key, answer)) = answers.numbered(number) {
                group.add_answer(request_key, answer);
            }
        }
    }

    pub fn advance(&mut self, window: &mut Window) -> CopyProgress {
        match self.result.try_recv() {
            Ok(result) => return CopyProgress::Ended(result),
            Err(TryRecvError::Disconnected) => {
                let failed = io::Error::other("the thread of a checkpoint failed");
                return CopyProgress::Ended(Err(failed));
            }
            Err(TryRecvError::Empty) => {}
        }
        let job = match self.held.take() {
            Some(job) => job,
            None if self.is_published => return CopyProgress::Waiting,
            None if self.next_region == window.regions() && self.answers.is_empty() => {
                return CopyProgress::AllCopied;
            }
            None if self.next_region == window.regions() => return CopyProgress::Copied,
            None => {
                let mut copy = self.empty.try_recv().unwrap_or_default();
                let clock = window.copy_region(self.next_region, &mut copy);
                self.next_region += 1;
                Job::Region(clock, copy)
            }
        };
        self.send(job)
    }

    fn send(&mut self, job: Job) -> CopyProgress {
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Err(TrySendError::Full(job))) => {
                self.held = Some(job);
                CopyProgress::Waiting
            }
            // A helper that has failed ends with a result.
            Some(Err(TrySendError::Disconnected(_))) | None => CopyProgress::Waiting,
            Some(Ok(())) => CopyProgress::Copied,
        }
    }

    /// Gives the file its name, after all changes in it are durable.
    pub fn publish(&mut self) {
        self.is_published = true;
        self.send(Job::Publish);
    }
}

impl Drop for CheckpointCopy {
    fn drop(&mut self) {
        // Ends the helper, whose last files nobody else must read or write meanwhile.
        drop(mem::take(&mut self.jobs));
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
    }
}

/// Work of the helper.
fn write(
    head: &Head,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    jobs: &Receiver<Job>,
    mut written: impl FnMut(Vec<u8>),
) -> io::Result<PathBuf> {
    let mut writer = Writer::create(disk, dir, head)?;
    let mut regions = 0;
    loop {
        match jobs.recv() {
            Ok(Job::Region(clock, copy)) => {
                writer.add(clock, &copy)?;
                regions += 1;
                if regions == head.regions {
                    writer.sync()?;
                }
                written(copy);
            }
            Ok(Job::Publish) => {
                let path = writer.publish()?;
                remove_before(dir, head.segment);
                return Ok(path);
            }
            Err(mpsc::RecvError) => return Err(io::Error::other("the checkpoint was dropped")),
        }
    }
}
