//! Shell completions and man pages: the same two commands in both programs.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell;

/// Commands about the other commands.
#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Print a script with which a shell completes commands and flags
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a man page for each command
    Man {
        /// The directory that they are written into; made if it is not there
        directory: PathBuf,
    },
}

impl Manual {
    /// Writes what is asked for about `program`.
    ///
    /// # Errors
    ///
    /// What cannot be written, or where to.
    pub fn write(&self, mut program: clap::Command) -> io::Result<()> {
        match self {
            Self::Completions { shell } => {
                let (name, mut script) = (program.get_name().to_owned(), Vec::new());
                clap_complete::generate(*shell, &mut program, name, &mut script);
                io::stdout().lock().write_all(&script)
            }
            Self::Man { directory } => {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
                };
                std::fs::create_dir_all(directory).map_err(named)?;
                clap_mangen::generate_to(program, directory).map_err(named)
            }
        }
    }
}
