//! What a person at a terminal sees while it works: one line on stderr, gone when the work is done.
//!
//! Nothing is drawn when stderr is not a terminal, or with `--quiet` or `--no-progress`. Shows counts only,
//! never a row.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// A spinner with a phase and a counter; nothing at all when progress is off. Shared by all threads.
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
        // The library's own rate has four decimals.
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

    /// Starts the count again, under another name.
    pub(crate) fn phase(&self, name: &'static str) {
        self.bar.reset();
        self.bar.unset_length();
        self.bar.set_message(name);
    }

    /// Says how much there will be of this phase.
    pub(crate) fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// The line, for a thread that is to take it away.
    pub(crate) fn handle(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Takes the line away, so that a report or an error stands alone.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Counts what was done. Called per block or chunk, never per row.
    pub(crate) fn add(&self, count: u64) {
        self.bar.inc(count);
    }
}

/// However the work ended.
impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
