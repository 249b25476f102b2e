//! Going on after a failed write or sync of the log, and the end of the thread.

use std::error::Error;
use std::io;

use super::steps::Sweep;
use super::{Engine, RETRY, report};
use crate::WindowSpec;
use crate::settings::Changed;
use crate::window::Window;

impl Engine {
    /// Refuses requests until the log can be written again. `rereads`: the table holds changes
    /// that were refused, so the files are read again.
    pub fn recover(&mut self, error: &io::Error, rereads: bool) {
        self.queue.set_writable(false);
        self.failures += 1;
        self.running_checkpoint = None;
        self.queued_checkpoints.clear();
        self.lists.clear();
        self.publish();
        let dir = self
            .journal
            .as_ref()
            .map(|journal| journal.dir.path().display().to_string());
        let mut cause = error.to_string();
        tracing::error!(
            dir,
            error = cause,
            "log of a window not written; events are refused"
        );
        let mut has_restarted = false;
        while let Err(error) = self.restart(&mut has_restarted, rereads) {
            self.failures += 1;
            self.publish();
            // One line per cause, not per attempt.
            let again = error.to_string();
            if again != cause {
                tracing::error!(dir, error = again, "events of a window are refused still");
                cause = again;
            }
            if self.queue.wait_closed(RETRY) {
                return;
            }
        }
        self.publish();
        self.queue.set_writable(true);
        tracing::info!(dir, "log of a window is written again");
    }

    fn restart(
        &mut self,
        has_restarted: &mut bool,
        rereads: bool,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        if !*has_restarted {
            journal.restart()?;
            *has_restarted = true;
        }
        if !rereads {
            return Ok(());
        }
        let (tick, secret) = (self.window.tick(), *self.window.secret());
        // Leaves memory for one table, not two.
        let least = WindowSpec {
            capacity: 1,
            ..self.shape.spec
        };
        self.window = Window::with_secret(least, tick, secret)?;
        // Its regions are fewer.
        self.sweep = Sweep {
            next: 0,
            remaining: 0,
        };
        let mut loaded = journal.load(&self.shape, tick)?;
        if loaded.next_group != journal.end().1 {
            return Err("the log lacks groups that were written".into());
        }
        loaded.answers.evicted = self.answers.evicted;
        self.window = loaded.window;
        self.answers = loaded.answers;
        // As at a start: the files may hold entries that have expired.
        self.begin_sweep();
        // Keys that had expired are not in the files, and were perhaps not reported.
        report(&mut self.settings.listener, Changed::All);
        Ok(())
    }

    /// Ends a window that is closed; whether nothing is left to do.
    pub fn end(&mut self) -> bool {
        if self.running_checkpoint.is_some() || !self.queued_checkpoints.is_empty() {
            return false;
        }
        if let Some(journal) = &mut self.journal
            && let Err(error) = journal.sync()
        {
            // Tries once more.
            self.recover(&error, false);
        }
        true
    }
}
