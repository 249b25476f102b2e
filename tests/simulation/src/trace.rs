//! Trace of a run: every event, for a person to follow. Its digest shows that two runs are equal.

use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;

/// Lines of a run.
#[derive(Debug, Default)]
pub struct Trace {
    state: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    keeps: bool,
    text: String,
    digest: u64,
    count: u64,
}

impl Trace {
    /// A trace that keeps its lines, or only their digest.
    pub fn new(keeps: bool) -> Self {
        let trace = Self::default();
        trace.state.lock().keeps = keeps;
        trace
    }

    /// Adds a line: an actor, and what it did or learned.
    pub fn add(&self, at: Duration, actor: &str, what: &str) {
        let mut lines = self.state.lock();
        lines.count += 1;
        // FNV-1a over the bytes of the line.
        let mut digest = lines.digest ^ at.as_millis() as u64;
        for byte in actor.bytes().chain(what.bytes()) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        lines.digest = digest;
        if lines.keeps {
            let seconds = at.as_secs();
            let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
            let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
            let milliseconds = at.subsec_millis();
            let _ = writeln!(
                lines.text,
                "{days}d {hours:02}:{minutes:02}:{rest:02}.{milliseconds:03} {actor:10} {what}"
            );
        }
    }

    pub fn digest(&self) -> u64 {
        self.state.lock().digest
    }

    /// The lines, if they are kept.
    pub fn text(&self) -> String {
        self.state.lock().text.clone()
    }
}
