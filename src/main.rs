//! `rtad`: the command line. The work is in the library.

mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
