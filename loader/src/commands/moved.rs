//! `serve` command: says that the service is a program of its own.

use std::ffi::OsString;

use clap::Args;

use rtad_cli::exit::{CommandFailure, ExitStatus};

/// Moved to the program rtad-writer
#[derive(Debug, Args)]
#[command(disable_help_flag = true, hide = true)]
pub(super) struct ServeArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "serve is a program of its own: run `rtad-writer` with the same flags; the environment \
     variables are RTAD_WRITER_… in place of RTAD_LOADER_…"
)]
pub(super) struct ServeMoved;

impl CommandFailure for ServeMoved {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}
