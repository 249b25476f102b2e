//! Progress line on stderr for a terminal, removed when the work is done.
//!
//! Hidden when stderr is not a terminal, and by `--quiet` and `--no-progress`. Shows counts only,
//! never a row.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// A spinner with a phase and a counter; a no-op when progress is off. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Draws if `wanted` and stderr is a terminal.
    pub(crate) fn new(wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let total = |state: &ProgressState, out: &mut dyn Write| {
            let _ = state.len().map_or(Ok(()), |total| write!(out, " of {}", HumanCount(total)));
        };
        // The library's own rate prints four decimals.
        let rate = |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
        };
        let style =
            ProgressStyle::with_template("{spinner} {msg}: {human_pos}{total} ({rate}, {elapsed})")
                .expect("the template is a constant that parses")
                .with_key("rate", rate)
                .with_key("total", total);
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Restarts the counter under another name.
    pub(crate) fn phase(&self, name: &'static str) {
        self.bar.reset();
        self.bar.unset_length();
        self.bar.set_message(name);
    }

    /// Sets the total of this phase.
    pub(crate) fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// The line, for a thread that removes it.
    pub(crate) fn handle(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Removes the line before a report or an error.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Adds to the counter. Called per block or chunk, never per row.
    pub(crate) fn add(&self, count: u64) {
        self.bar.inc(count);
    }
}

/// Removes the line at any end of the work.
impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
