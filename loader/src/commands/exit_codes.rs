//! Exit codes of errors that know no commands: those of inputs and keys.

use rtad_cli::exit::{CommandFailure, ExitStatus};

use crate::input::{InputError, OutputFileError};
use crate::keys::{SpillError, TooLittle};
use crate::progress::Stopped;

impl CommandFailure for InputError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::StdinTwice | Self::Url { .. } | Self::Pattern { .. } => ExitStatus::Usage,
            Self::Fetch { .. } | Self::List { .. } => ExitStatus::Store,
            Self::Stopped(_) => ExitStatus::Unexpected,
            _ => ExitStatus::BadInput,
        }
    }
}

impl CommandFailure for Stopped {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}

impl CommandFailure for OutputFileError {
    fn exit(&self) -> ExitStatus {
        match self {
            Self::IsInput { .. } | Self::NoFolder { .. } | Self::LinkToNothing { .. } => {
                ExitStatus::Usage
            }
            Self::Write { .. } => ExitStatus::Unexpected,
        }
    }
}

impl CommandFailure for SpillError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}

impl CommandFailure for TooLittle {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}
