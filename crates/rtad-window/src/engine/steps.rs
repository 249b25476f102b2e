//! Steps at the end of a cycle: expiry, lists of keys, copies of the table.

use std::io;
use std::sync::Arc;

use super::{Engine, report};
use crate::ListedKey;
use crate::image::TableHead;
use crate::queue::Reply;
use crate::settings::Changed;
use crate::table_copy::{CopyProgress, RunningCopy, TableCopy};

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

impl Engine {
    /// One step of each kind; whether there is more to do at once.
    pub(super) fn run_steps(&mut self) -> io::Result<bool> {
        self.sweep_region();
        self.list_region();
        let has_copied = self.advance_table()?;
        Ok(has_copied || self.sweep.remaining > 0 || !self.lists.is_empty())
    }

    /// The tick has moved: entries expire.
    pub(super) fn begin_sweep(&mut self) {
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
        let mut expired = Vec::new();
        let mut add = |key, count| {
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

    /// Copies the next piece of a table; whether there is more to do at once.
    fn advance_table(&mut self) -> io::Result<bool> {
        let Some(copy) = &mut self.table_copy else {
            return match self.table_request.take() {
                Some(reply) => self.begin_table(reply).map(|()| true),
                None => Ok(false),
            };
        };
        let log = self.journal.log_end();
        match copy.advance(&mut self.window, &self.answers, log) {
            CopyProgress::Waiting => return Ok(false),
            CopyProgress::Copied => return Ok(true),
            CopyProgress::Completed(before) => self.journal.forget_before(before),
            CopyProgress::Dropped => {}
        }
        self.table_copy = None;
        self.publish();
        Ok(true)
    }

    fn begin_table(&mut self, reply: Reply<TableCopy>) -> io::Result<()> {
        // The changes before it are in the table; those from here on are in the next segments.
        let number = self.journal.begin_segment()?;
        let head = TableHead {
            number,
            owner: self.journal.owner(),
            first_group: self.journal.next_group(),
            tick: self.window.tick(),
            regions: self.window.regions() as u64,
            window: self.journal.window().clone(),
        };
        let answers = self.answers.range();
        let before = self.journal.log();
        let queue = Arc::clone(&self.queue);
        let nudge = Arc::new(move || queue.nudge());
        let (running, table) = RunningCopy::begin(head, answers, before, nudge);
        self.table_copy = Some(running);
        self.publish();
        // A caller that is gone drops the copy.
        drop(reply.send(Ok(table)));
        Ok(())
    }
}
