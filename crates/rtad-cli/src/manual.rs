//! Shell completions and man pages: the hidden commands `completions` and `man` of all programs,
//! with which packages are made.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Commands that document the program.
#[derive(Debug, Subcommand)]
pub enum Manual {
    /// Print a shell script that completes commands and flags
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a man page for each command
    #[command(hide = true)]
    Man {
        /// The directory for the pages; created if missing
        directory: PathBuf,
    },
}

impl Manual {
    /// Prints the script or writes the pages of `program`, with the exit codes and examples of its
    /// reference: a table under the heading `Exit codes`, and code blocks, each below a line
    /// `<!-- PROGRAM COMMAND -->`.
    ///
    /// # Errors
    ///
    /// If stdout, the directory or a page cannot be written.
    pub fn write(&self, mut program: clap::Command, reference: &str) -> io::Result<()> {
        match self {
            Self::Completions { shell } => {
                let name = program.get_name().to_owned();
                let mut script = Vec::new();
                clap_complete::generate(*shell, &mut program, name, &mut script);
                io::stdout().lock().write_all(&script)
            }
            Self::Man { directory } => {
                let write = || {
                    std::fs::create_dir_all(directory)?;
                    let mut program = program.disable_help_subcommand(true);
                    program.build();
                    let commands = program
                        .get_subcommands()
                        .filter(|command| !command.is_hide_set());
                    let pages = commands.cloned().chain([program.clone()]);
                    pages
                        .into_iter()
                        .try_for_each(|command| write_page(directory, command, reference))
                };
                write().map_err(|error: io::Error| {
                    io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
                })
            }
        }
    }
}

fn write_page(directory: &Path, command: clap::Command, reference: &str) -> io::Result<()> {
    let mut end = Roff::new();
    if let Some(examples) = examples_of(reference, command.get_bin_name().unwrap_or_default()) {
        end.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            end.text([roman(line)]);
        }
        end.control("fi", []);
    }

    end.control("SH", ["EXIT STATUS"]);
    for (codes, meaning) in exit_codes(reference) {
        end.control("TP", [])
            .text([bold(codes)])
            .text([roman(meaning)]);
    }

    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(end.to_roff().as_bytes());
    std::fs::write(directory.join(page.get_filename()), text)
}

/// The lines of a command's code block.
fn examples_of<'r>(reference: &'r str, command: &str) -> Option<&'r str> {
    let (_, block) = reference.split_once(&format!("<!-- {command} -->\n```sh\n"))?;
    Some(block.split_once("```")?.0)
}

/// The rows of the table of exit codes, without marks.
fn exit_codes(reference: &str) -> impl Iterator<Item = (String, String)> {
    let (_, section) = reference.split_once("## Exit codes\n").unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('#'));
    // The rows follow the header and the delimiter row.
    lines
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .filter_map(|line| {
            let mut cells = line
                .split('|')
                .skip(1)
                .map(|cell| cell.trim().replace('`', ""));
            Some((cells.next()?, cells.next()?))
        })
}
