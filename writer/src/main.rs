//! `rtad-writer`: the command line. The work is in the library.

use rtad_cli::exit::ExitStatus;

fn main() -> ExitStatus {
    rtad_writer::main()
}
