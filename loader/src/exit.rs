//! What the process tells its caller: one number, and one line on stderr.
//!
//! The numbers are part of the interface (scripts branch on them) and stand here only. Errors are written by
//! [`write_error`] only: the causes once each, joined by `: `. No message holds a device id, so none is
//! looked for here.

use std::error::Error;
use std::io::Write;
use std::process::{ExitCode, Termination};

use rtad_http::error_chain::error_chain;

/// The exit codes of `rtad-loader`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// Done.
    Ok = 0,
    /// What nobody foresaw, such as a full disk under the rejects file.
    Unexpected = 1,
    /// The command line asks for something that does not exist.
    Usage = 2,
    /// The input cannot be read, or too much of it is malformed.
    BadInput = 3,
    /// The snapshot is not what it says it is.
    VerificationFailed = 4,
    /// The store does not answer, or what is asked for is not in it.
    Store = 5,
    /// Somebody else published meanwhile.
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
    // With stderr gone there is nobody left to tell.
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
