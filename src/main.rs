//! `rtad`: the command line. The work is in the library.

mod commands;

use rtad_cli::exit::ExitStatus;

fn main() -> ExitStatus {
    match commands::run() {
        Ok(()) => ExitStatus::Ok,
        Err(error) => error.report(),
    }
}
