//! Steps at the end of a cycle: expiry, lists of keys, checkpoints, syncs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::checkpoint_copy::{CheckpointCopy, CopyProgress};
use super::{Engine, report};
use crate::ListedKey;
use crate::checkpoint::Head;
use crate::load::LogBytes;
use crate::queue::{CheckpointReply, Reply, SavedCheckpoint};
use crate::settings::Changed;

/// Clearing of expired entries, region by region.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    pub(super) next: usize,
    /// Regions that have not been swept at the current tick.
    pub(super) remaining: usize,
}

/// A list of keys that is being made.
pub struct Listing {
    min_count: u16,
    next_region: usize,
    keys: Vec<ListedKey>,
    reply: Reply<Vec<ListedKey>>,
}

impl Listing {
    pub fn new(min_count: u16, entries: u64, reply: Reply<Vec<ListedKey>>) -> Self {
        let keys = Vec::with_capacity(entries as usize);
        Self {
            min_count,
            next_region: 0,
            keys,
            reply,
        }
    }
}

/// A checkpoint that is being written.
pub struct RunningCheckpoint {
    pub(super) copy: CheckpointCopy,
    reply: CheckpointReply,
    /// Its path is not known yet.
    saved: SavedCheckpoint,
    /// The log before it.
    log: LogBytes,
    unix_seconds: u64,
}

impl Engine {
    /// One step of each kind; whether there is more to do at once.
    pub fn run_steps(&mut self) -> io::Result<bool> {
        self.sweep_region();
        self.list_region();
        if let Some(journal) = &mut self.journal {
            journal.keep_synced()?;
        }
        let has_copied = self.advance_checkpoint()?;
        Ok(has_copied || self.sweep.remaining > 0 || !self.lists.is_empty())
    }

    /// The tick has moved: entries expire.
    pub fn begin_sweep(&mut self) {
        if self.settings.listener.is_none() {
            return;
        }
        if self.window.spec().lifetime == 1 {
            // All that was in the window.
            report(&mut self.settings.listener, Changed::All);
        }
        // All regions, from the next one of a sweep that is under way.
        self.sweep.remaining = self.window.regions();
    }

    fn sweep_region(&mut self) {
        let Sweep {
            next: region,
            remaining,
        } = self.sweep;
        if remaining == 0 {
            return;
        }
        let least = self
            .buffers
            .reached
            .iter()
            .map(|(threshold, _)| *threshold)
            .min()
            .unwrap_or(1);
        let (mut expired, mut has_expired) = (Vec::new(), false);
        let mut add = |key, count| {
            has_expired = true;
            if count >= least {
                expired.push(key);
            }
        };
        self.window.expire_region(region, &mut add);
        let next = (region + 1) % self.window.regions();
        let ends_round = remaining == 1 || next == 0;
        let are_all_reported = if ends_round {
            self.window.take_evicted(&mut add)
        } else {
            true
        };
        // The next checkpoint is without them, although there was no event.
        self.changes += u64::from(has_expired);
        self.sweep = Sweep {
            next,
            remaining: remaining - 1,
        };
        if !are_all_reported {
            report(&mut self.settings.listener, Changed::All);
        } else if !expired.is_empty() && self.window.spec().lifetime > 1 {
            report(&mut self.settings.listener, Changed::Left(&expired));
        }
    }

    fn list_region(&mut self) {
        let Some(list) = self.lists.front_mut() else {
            return;
        };
        let Listing {
            min_count,
            next_region,
            keys,
            ..
        } = list;
        self.window.list_region(*next_region, |key, count| {
            if count >= *min_count {
                keys.push(ListedKey(key));
            }
        });
        *next_region += 1;
        if *next_region == self.window.regions()
            && let Some(list) = self.lists.pop_front()
        {
            // A caller that is gone needs no answer.
            drop(list.reply.send(Ok(list.keys)));
        }
    }

    fn advance_checkpoint(&mut self) -> io::Result<bool> {
        let Some(checkpoint) = &mut self.running_checkpoint else {
            return match self.queued_checkpoints.pop_front() {
                Some((unix_seconds, reply)) => self.begin_checkpoint(unix_seconds, reply),
                None => Ok(false),
            };
        };
        Ok(match checkpoint.copy.advance(&mut self.window) {
            CopyProgress::Waiting => false,
            CopyProgress::Copied => true,
            CopyProgress::AllCopied => {
                if let Some(journal) = &mut self.journal {
                    journal.sync()?;
                }
                checkpoint.copy.publish();
                false
            }
            CopyProgress::Ended(path) => {
                self.finish_checkpoint(path);
                true
            }
        })
    }

    /// Begins a checkpoint; whether there is more to do at once.
    fn begin_checkpoint(&mut self, unix_seconds: u64, reply: CheckpointReply) -> io::Result<bool> {
        let Some(journal) = &mut self.journal else {
            drop(reply.send(Ok(None)));
            return Ok(true);
        };
        // The changes before it are in the table; those from here on are in the new segment.
        let log = journal.bytes;
        journal.begin_segment()?;
        let (segment, next_group) = journal.end();
        let head = Head {
            spec: *self.window.spec(),
            secret: *self.window.secret(),
            id: journal.id,
            segment,
            next_group,
            clock: self.shape.clock.clone(),
            tick: self.window.tick(),
            regions: self.window.regions() as u64,
        };
        let disk = (Arc::clone(&journal.dir.disk), journal.dir.path().to_owned());
        let queue = Arc::clone(&self.queue);
        let saved = SavedCheckpoint {
            path: PathBuf::new(),
            window_id: head.id,
            number: segment,
            changes: self.changes,
        };
        match CheckpointCopy::begin(head, disk, queue, self.answers.range()) {
            Ok(copy) => {
                self.running_checkpoint = Some(RunningCheckpoint {
                    copy,
                    reply,
                    saved,
                    log,
                    unix_seconds,
                });
            }
            Err(error) => {
                self.checkpoint_failed_at = Some(Instant::now());
                // A caller that is gone needs no answer.
                drop(reply.send(Err(error)));
            }
        }
        self.publish();
        Ok(true)
    }

    fn finish_checkpoint(&mut self, path: io::Result<PathBuf>) {
        let Some(ended) = self.running_checkpoint.take() else {
            return;
        };
        let RunningCheckpoint {
            reply,
            saved,
            log,
            unix_seconds,
            ..
        } = ended;
        self.checkpoint_failed_at = path.is_err().then(Instant::now);
        if let (Ok(_), Some(journal)) = (&path, &mut self.journal) {
            journal.bytes.changes -= log.changes;
            journal.bytes.answers -= log.answers;
            self.checkpoint_unix_seconds = unix_seconds;
        }
        self.publish();
        // A caller that is gone needs no answer.
        drop(reply.send(path.map(|path| Some(SavedCheckpoint { path, ..saved }))));
    }
}
