//! Exit codes, and the error line on stderr.
//!
//! The codes are part of the interface: scripts branch on them. [`write_error`] writes the only
//! error line: all causes, joined by `: `. No message contains a device id.

use std::error::Error;
use std::io::Write;
use std::process::{ExitCode, Termination};

use rtad_http::error_chain::error_chain;

/// Exit codes of `rtad-loader`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done.
    Ok = 0,
    /// An unexpected failure, such as a full disk under the rejects file.
    Unexpected = 1,
    /// An invalid command line.
    Usage = 2,
    /// An unreadable input, or too many malformed rows.
    BadInput = 3,
    /// A snapshot that contradicts its own statements.
    VerificationFailed = 4,
    /// An unavailable store, or a missing object.
    Store = 5,
    /// Another publish meanwhile.
    Conflict = 6,
}

impl Termination for ExitStatus {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// Writes `error: …` to stderr: the error and its causes in one line.
pub(crate) fn write_error(error: &dyn Error) {
    let message = error_chain(error).replace(['\n', '\r'], " ");
    // A closed stderr leaves no channel for errors.
    let _ = writeln!(std::io::stderr().lock(), "error: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_frozen() {
        use ExitStatus::*;
        let numbers =
            [Ok, Unexpected, Usage, BadInput, VerificationFailed, Store, Conflict].map(|s| s as u8);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
    }
}
