//! Exit codes and the error line on stderr.
//!
//! Scripts branch on the codes; they are defined here only. Each error of a command says which is
//! its own. [`write_error`] prints an error and its causes, joined by `: `. Error messages hold no
//! device ids, so there is no redaction here.

use std::cell::RefCell;
use std::error::Error;
use std::io::Write;
use std::process::{ExitCode, Termination};

use rtad_core::error_chain::error_chain;
use rtad_store::StoreError;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ExitStatus {
    /// Done.
    Ok = 0,
    /// An unforeseen error, such as a full disk under the rejects file.
    Unexpected = 1,
    /// The command line is invalid.
    Usage = 2,
    /// The input is unreadable, or what was found in it is over an accepted limit.
    BadInput = 3,
    /// The snapshot failed verification.
    VerificationFailed = 4,
    /// The store failed, or does not hold the requested object.
    Store = 5,
    /// Another process published at the same time, or the store did not say whether this one has.
    Conflict = 6,
    /// SIGINT stopped it.
    Interrupted = 130,
    /// SIGTERM stopped it.
    Terminated = 143,
}

impl ExitStatus {
    /// The name in JSON.
    fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Termination for ExitStatus {
    fn report(self) -> ExitCode {
        ExitCode::from(self as u8)
    }
}

/// An error that ends a command.
pub trait CommandFailure: Error + Send + Sync + 'static {
    /// The exit code.
    fn exit(&self) -> ExitStatus;

    /// The lines of a message that has several, one for each mistake in a configuration.
    fn mistakes(&self) -> &[String] {
        &[]
    }
}

impl CommandFailure for StoreError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::Url { .. } | Self::ReadOnly { .. } | Self::NoListing { .. } => ExitStatus::Usage,
            Self::Signature { .. } | Self::Unsigned { .. } => ExitStatus::VerificationFailed,
            Self::Conflict { .. } | Self::Unanswered { .. } => ExitStatus::Conflict,
            Self::Sign { .. } => ExitStatus::Unexpected,
            _ => ExitStatus::Store,
        }
    }
}

/// A mistake on the command line.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct UsageMistake {
    message: String,
}

impl UsageMistake {
    /// A mistake that the command itself found.
    pub const fn new(message: String) -> Self {
        Self { message }
    }

    /// clap's mistake, without its usage and advice.
    pub fn of(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let lines = text
            .lines()
            .take_while(|line| !line.is_empty())
            .map(str::trim);
        let message = lines.collect::<Vec<_>>().join(" ");
        Self {
            message: message.trim_start_matches("error: ").to_owned(),
        }
    }
}

impl CommandFailure for UsageMistake {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// Writes `error: …` to stderr: a line for each mistake, or for the error and its causes.
pub fn write_failure(error: &dyn CommandFailure) {
    match error.mistakes() {
        [] => write_error(error),
        mistakes => {
            let mut stderr = std::io::stderr().lock();
            for mistake in mistakes {
                // A failure cannot be reported anywhere.
                let _ = writeln!(stderr, "error: {mistake}");
            }
        }
    }
}

/// Writes a failure to stdout, as one JSON object in place of the command's own: the exit code and
/// its name, the message, and its causes from the outermost.
pub fn write_failure_json(error: &dyn CommandFailure) {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    let status = error.exit();
    let failure = serde_json::json!({
        "exit_code": status as u8,
        "error": status.as_str(),
        "message": error.to_string(),
        "causes": causes,
    });
    // A failure cannot be reported anywhere.
    let _ = writeln!(std::io::stdout().lock(), "{failure}");
}

/// Writes `error: …` to stderr: the error and its causes in one line.
pub fn write_error(error: &dyn Error) {
    let message = error_chain(error).replace(['\n', '\r'], " ");
    // A failure cannot be reported anywhere.
    let _ = writeln!(std::io::stderr().lock(), "error: {message}");
}

thread_local! {
    /// Warnings of this thread, for a program without a command line.
    static KEPT_WARNINGS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Writes `warning: …` to stderr: a fact that a person should know of a successful run.
pub fn write_warning(message: &str) {
    let message = message.replace(['\n', '\r'], " ");
    KEPT_WARNINGS.with_borrow_mut(|kept| match kept {
        Some(warnings) => warnings.push(message),
        None => {
            let _ = writeln!(std::io::stderr().lock(), "warning: {message}");
        }
    });
}

/// Runs `work`; returns the warnings of this thread, instead of writing them to stderr.
pub fn keep_warnings<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    KEPT_WARNINGS.set(Some(Vec::new()));
    let done = work();
    (done, KEPT_WARNINGS.take().unwrap_or_default())
}
