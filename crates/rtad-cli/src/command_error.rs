//! Failure of a command: any of its errors, boxed.

use std::io;
use std::ops::Deref;

use crate::exit::{CommandFailure, ExitStatus, write_failure};

/// A failed command.
#[derive(Debug)]
pub struct CommandError(Box<dyn CommandFailure>);

impl<E: CommandFailure> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl CommandError {
    /// The error of writing a report to stdout. A reader that has gone is no failure.
    pub fn output(error: io::Error) -> Self {
        ProcessError::Output(error).into()
    }

    /// The error of writing the data of another step to stdout. They are incomplete, also if their
    /// reader has gone.
    pub fn data_output(error: io::Error) -> Self {
        ProcessError::DataOutput(error).into()
    }

    /// The error of starting the runtime, or of what it needs.
    pub fn runtime(error: io::Error) -> Self {
        ProcessError::Runtime(error).into()
    }

    /// Ends a program: writes the error to stderr, unless only the reader of stdout has gone, and
    /// returns the exit code.
    pub fn report(&self) -> ExitStatus {
        let status = self.exit();
        if status != ExitStatus::Ok {
            write_failure(&**self);
        }
        status
    }
}

impl Deref for CommandError {
    type Target = dyn CommandFailure;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A failure that does not depend on the command.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    #[error("could not write to stdout")]
    Output(#[source] io::Error),
    #[error("could not write to stdout")]
    DataOutput(#[source] io::Error),
    #[error("could not start")]
    Runtime(#[source] io::Error),
}

impl CommandFailure for ProcessError {
    fn exit(&self) -> ExitStatus {
        match self {
            // The reader closed the pipe, as in `rtad-loader synth … | head`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitStatus::Ok,
            Self::Output(_) | Self::DataOutput(_) | Self::Runtime(_) => ExitStatus::Unexpected,
        }
    }
}
