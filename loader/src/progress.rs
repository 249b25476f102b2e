//! Progress line on stderr, removed when the work ends.
//!
//! Drawn on a terminal only, and not with `--quiet` or `--no-progress`. Shows counts, never rows.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// A spinner with a phase and a counter, or nothing when progress is off. Shared by all threads.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Draws if `is_enabled` and stderr is a terminal.
    pub(crate) fn new(is_enabled: bool) -> Self {
        if !is_enabled || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let total = |state: &ProgressState, out: &mut dyn Write| {
            let Some(total) = state.len() else { return };
            let _ = write!(out, " of {}", HumanCount(total));
            if let Some(percent) = (state.pos() * 100).checked_div(total) {
                let _ = write!(out, ", {percent}%, {} left", HumanDuration(state.eta()));
            }
        };
        // The library's own rate format has four decimals.
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

    /// Restarts the counter under a new phase name.
    pub(crate) fn phase(&self, name: &'static str) {
        self.bar.reset();
        self.bar.unset_length();
        self.bar.set_message(name);
    }

    /// Sets the total of this phase.
    pub(crate) fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// The line, for another thread to remove.
    pub(crate) fn handle(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Removes the line before a report or an error is printed.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Adds to the counter. Called per block or chunk, never per row.
    pub(crate) fn add(&self, count: u64) {
        self.bar.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
