//! SIGTERM and SIGINT: a message, the JSON object of a failure, and the end by that signal.
//!
//! A thread waits for them, as a command may be inside a read of stdin. Once a publish has begun,
//! the first signal is late: the command ends by itself and reports what it published. A second one
//! ends it at once.

use std::io;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};
use parking_lot::Mutex;

use rtad_cli::exit::{CommandFailure, ExitStatus, write_error, write_failure_json};

/// Longest wait for readers of stderr and stdout, which may have stopped.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// Whether a publish has begun, which is then not interrupted.
static IS_PUBLISHING: Mutex<bool> = Mutex::new(false);

/// A command that a signal stopped.
#[derive(Debug, thiserror::Error)]
#[error("stopped by {signal}; {effect}")]
struct Interrupted {
    signal: Signal,
    effect: &'static str,
}

impl CommandFailure for Interrupted {
    fn exit(&self) -> ExitStatus {
        match self.signal {
            Signal::SIGINT => ExitStatus::Interrupted,
            _ => ExitStatus::Terminated,
        }
    }
}

/// Reports the signals that end this process from now on, and what they leave.
///
/// Call it before other threads start: they inherit that the signals are for this one.
///
/// # Errors
///
/// That of starting a thread.
pub fn watch(is_json: bool, effect: &'static str) -> io::Result<()> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        if !is_ignored(signal) {
            signals.add(signal);
        }
    }
    signals.thread_block()?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || end_by_signal(signals, is_json, effect))?;
    Ok(())
}

/// From here on a signal waits for the end of the command.
pub fn begin_publish() {
    *IS_PUBLISHING.lock() = true;
}

fn end_by_signal(signals: SigSet, is_json: bool, effect: &'static str) -> Result<(), Errno> {
    let signal = signals.wait()?;
    // Held to the end of the process, so that no publish begins after the report.
    let is_publishing = IS_PUBLISHING.lock();
    if *is_publishing {
        drop(is_publishing);
        end_by(signals.wait()?);
    }

    thread::spawn(move || {
        thread::sleep(REPORT_TIME);
        end_by(signal);
    });
    let interrupted = Interrupted { signal, effect };
    write_error(&interrupted);
    if is_json {
        write_failure_json(&interrupted);
    }
    end_by(signal)
}

/// Ends the process as the signal would have: a shell stops its loop, systemd sees a clean stop.
fn end_by(signal: Signal) -> ! {
    let unblocked = SigSet::from(signal).thread_unblock();
    if unblocked.is_ok() {
        let _ = raise(signal);
    }
    // The first process of a container is spared by the kernel.
    std::process::exit(128 + signal as i32)
}

/// Whether the parent process made this one ignore the signal, as shells do to SIGINT of commands
/// in the background.
fn is_ignored(signal: Signal) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as u32 - 1) & 1 == 1)
}
