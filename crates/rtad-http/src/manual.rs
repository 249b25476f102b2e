//! Shell completions and man pages: the commands `completions` and `man` of both programs.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell;

/// Commands that document the program.
#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Print a shell script that completes commands and flags
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a man page for each command
    Man {
        /// The directory for the pages; created if missing
        directory: PathBuf,
    },
}

impl Manual {
    /// Prints the script or writes the pages of `program`.
    ///
    /// # Errors
    ///
    /// If stdout, the directory or a page cannot be written.
    pub fn write(&self, mut program: clap::Command) -> io::Result<()> {
        match self {
            Self::Completions { shell } => {
                let (name, mut script) = (program.get_name().to_owned(), Vec::new());
                clap_complete::generate(*shell, &mut program, name, &mut script);
                io::stdout().lock().write_all(&script)
            }
            Self::Man { directory } => {
                let with_path = |error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
                };
                std::fs::create_dir_all(directory).map_err(with_path)?;
                clap_mangen::generate_to(program, directory).map_err(with_path)
            }
        }
    }
}
