//! Progress line on stderr, removed when the work ends.
//!
//! Drawn on a terminal only, and not with `--quiet`. Shows counts, never rows.
//! Inside another program nothing is drawn: that program reads a [`Watch`].

use std::fmt::Write;
use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// A spinner with a phase and a counter, or nothing when progress is off. Shared by all threads.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    bytes: Arc<Bytes>,
    watch: Option<Watch>,
}

/// Progress of a command as another program sees it, and that program's way to stop the command.
#[derive(Debug, Clone)]
pub struct Watch {
    bar: ProgressBar,
    is_stopped: Arc<AtomicBool>,
}

/// A command that the program around it stopped.
#[derive(Debug, thiserror::Error)]
#[error("stopped; nothing was published")]
pub struct Stopped;

impl Default for Watch {
    fn default() -> Self {
        Self {
            bar: ProgressBar::hidden(),
            is_stopped: Arc::default(),
        }
    }
}

impl Watch {
    /// The work of the moment, such as `reading rows`; empty before the first.
    pub fn phase(&self) -> String {
        self.bar.message()
    }

    /// Rows, keys or chunks done in this phase.
    pub fn done(&self) -> u64 {
        self.bar.position()
    }

    /// Total of this phase, if it is known.
    pub fn total(&self) -> Option<u64> {
        self.bar.length()
    }

    /// Stops the command before it publishes anything.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Bytes read of inputs whose sizes are known.
#[derive(Debug, Default)]
pub struct Bytes {
    done: AtomicU64,
    /// 0 if unknown.
    total: AtomicU64,
}

impl Bytes {
    /// Adds bytes that were read.
    pub fn add(&self, count: u64) {
        self.done.fetch_add(count, Ordering::Relaxed);
    }

    /// Percentage read, and the time left after `elapsed`; `None` if the total is unknown, or too
    /// little was read for an estimate.
    fn estimate(&self, elapsed: Duration) -> Option<(u64, Duration)> {
        let done = self.done.load(Ordering::Relaxed);
        let total = self.total.load(Ordering::Relaxed);
        if total == 0 {
            return None;
        }

        let share = (done as f64 / total as f64).min(1.0);
        let percent = (share * 100.0) as u64;
        if percent == 0 {
            return None;
        }
        let seconds_left = elapsed.as_secs_f64() * (1.0 - share) / share;
        let left = Duration::try_from_secs_f64(seconds_left).unwrap_or_default();
        Some((percent, left))
    }
}

/// A reader that counts its bytes.
#[derive(Debug)]
pub struct CountedReader<R> {
    pub(crate) inner: R,
    pub(crate) bytes: Arc<Bytes>,
}

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.add(count as u64);
        Ok(count)
    }
}

/// Writes a rate: the library's own format has four decimals.
fn write_rate(state: &ProgressState, out: &mut dyn Write) {
    let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
}

/// Writes the share of the bytes and of the rows that is done.
fn write_total(read: &Bytes, state: &ProgressState, out: &mut dyn Write) {
    if let Some((percent, left)) = read.estimate(state.elapsed()) {
        let _ = write!(out, ", {percent}%, {} left", HumanDuration(left));
    }
    let Some(total) = state.len() else { return };
    let _ = write!(out, " of {}", HumanCount(total));
    let percent = (state.pos() * 100).checked_div(total).unwrap_or(0);
    if percent > 0 {
        let _ = write!(out, ", {percent}%, {} left", HumanDuration(state.eta()));
    }
}

impl Progress {
    /// Draws if `is_enabled` and stderr is a terminal.
    pub fn new(is_enabled: bool) -> Self {
        let bytes = Arc::new(Bytes::default());
        if !is_enabled || !std::io::stderr().is_terminal() {
            return Self {
                bar: ProgressBar::hidden(),
                bytes,
                watch: None,
            };
        }

        let read = Arc::clone(&bytes);
        let style =
            ProgressStyle::with_template("{spinner} {msg}: {human_pos}{total} ({rate}, {elapsed})")
                .expect("the template is a constant that parses")
                .with_key("rate", write_rate)
                .with_key(
                    "total",
                    move |state: &ProgressState, out: &mut dyn Write| {
                        write_total(&read, state, out);
                    },
                );
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self {
            bar,
            bytes,
            watch: None,
        }
    }

    /// Progress that another program reads.
    pub fn watched(watch: &Watch) -> Self {
        Self {
            bar: watch.bar.clone(),
            bytes: Arc::default(),
            watch: Some(watch.clone()),
        }
    }

    /// Whether the program around the command stopped it.
    pub fn is_stopped(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_stopped)
    }

    /// Ends a command that was stopped.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.is_stopped() {
            Err(Stopped)
        } else {
            Ok(())
        }
    }

    /// Restarts the counter under a new phase name.
    pub fn phase(&self, name: &'static str) {
        self.bar.reset();
        self.bar.unset_length();
        self.bytes.done.store(0, Ordering::Relaxed);
        self.bytes.total.store(0, Ordering::Relaxed);
        self.bar.set_message(name);
    }

    /// Sets the total size of this phase's inputs, in bytes.
    pub fn expect_bytes(&self, total: u64) {
        self.bytes.total.store(total, Ordering::Relaxed);
    }

    /// The counter of bytes that were read.
    pub const fn bytes(&self) -> &Arc<Bytes> {
        &self.bytes
    }

    /// Sets the total of this phase.
    pub fn expect(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Removes the line before a report or an error is printed.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Adds to the counter. Called per block or chunk, never per row.
    pub fn add(&self, count: u64) {
        self.bar.inc(count);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_the_bytes_that_were_read() {
        let bytes = Bytes::default();
        let after = Duration::from_secs(30);
        assert_eq!(bytes.estimate(after), None, "stdin has no size");
        bytes.total.store(4000, Ordering::Relaxed);
        assert_eq!(bytes.estimate(after), None, "nothing to go by");
        let mut reader = CountedReader {
            inner: &[0; 1000][..],
            bytes: Arc::new(bytes),
        };
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(
            reader.bytes.estimate(after),
            Some((25, Duration::from_secs(90)))
        );
        reader.bytes.add(9000);
        assert_eq!(
            reader.bytes.estimate(after),
            Some((100, Duration::ZERO)),
            "a file has grown"
        );
    }
}
