//! Commands, one file each.

mod append;
mod audience_report;
mod build;
mod carried;
mod context;
mod dedup;
mod diff;
mod error;
mod exit_codes;
mod expiry_args;
mod gate;
mod gc;
mod input_args;
mod input_report;
mod inspect;
mod job;
mod lineage_args;
mod list;
mod mirror;
mod overlap;
mod plan;
mod promote;
mod query;
#[cfg(test)]
mod reference;
mod reject_args;
mod report_text;
mod rollback;
mod skew;
mod stage_args;
mod synth;
mod value_parsers;
mod verify;

use clap::{CommandFactory as _, Parser, Subcommand};

use context::Output;

use rtad_cli::command_error::CommandError;
use rtad_cli::manual::Manual;

use crate::input::Batches;
pub use context::{Host, Target, runtime};

/// The template of the program's page in the reference: exit codes and examples.
const REFERENCE: &str = include_str!("commands/reference.md");

/// Build rtad snapshots from device-id exports and publish them.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: Output,
}

const EXIT_CODES: &str = "Exit codes: 0 ok · 1 unexpected · 2 usage · 3 bad input over the \
threshold · 4 verification failed · 5 store or network · 6 another process published";

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildArgs),
    Chunk(job::ChunkArgs),
    Publish(Box<job::PublishArgs>),
    Append(append::AppendArgs),
    Remove(append::RemoveArgs),
    Dedup(dedup::DedupArgs),
    Plan(plan::PlanArgs),
    List(list::ListArgs),
    Inspect(inspect::InspectArgs),
    Verify(verify::VerifyArgs),
    Query(query::QueryArgs),
    Diff(diff::DiffArgs),
    Mirror(mirror::MirrorArgs),
    Promote(promote::PromoteArgs),
    Rollback(rollback::RollbackArgs),
    Gc(gc::GcArgs),
    Synth(synth::SynthArgs),
    #[command(flatten)]
    Manual(Manual),
}

impl Cli {
    /// Whether stdout is for one JSON object.
    pub const fn reports_json(&self) -> bool {
        self.output.json && !matches!(self.command, Command::Synth(_))
    }

    /// What a command leaves that a signal stopped before it published.
    pub const fn effect_of_interrupt(&self) -> &'static str {
        match self.command {
            Command::Build(_) | Command::Publish(_) => "nothing was published",
            Command::Append(_)
            | Command::Remove(_)
            | Command::Promote(_)
            | Command::Rollback(_) => "nothing was changed",
            Command::Mirror(_) => "the next mirror goes on from here",
            Command::Gc(_) => "the next gc removes what is left",
            _ => "the output is incomplete",
        }
    }
}

impl Cli {
    /// Makes the command part of another program, whose rows are the input if there are `batches`.
    pub fn set_host(&mut self, host: &Host, batches: Option<Batches>) {
        self.output.set_host(host);
        let Some(batches) = batches else { return };
        match &mut self.command {
            Command::Build(args) => args.set_batches(batches),
            Command::Append(args) => args.set_batches(batches),
            Command::Remove(args) => args.set_batches(batches),
            _ => {}
        }
    }
}

pub fn run(cli: Cli) -> Result<(), CommandError> {
    let output = &cli.output;
    match cli.command {
        Command::Build(args) => build::run(args, output),
        Command::Chunk(args) => job::chunk(&args, output),
        Command::Publish(args) => job::publish(&args, output),
        Command::Append(args) => append::append(args, output),
        Command::Remove(args) => append::remove(args, output),
        Command::Dedup(args) => dedup::run(&args, output),
        Command::Plan(args) => plan::run(&args, output),
        Command::List(args) => list::run(args, output),
        Command::Inspect(args) => inspect::run(args, output),
        Command::Verify(args) => verify::run(args, output),
        Command::Query(args) => query::run(args, output),
        Command::Diff(args) => diff::run(&args, output),
        Command::Mirror(args) => mirror::run(args, output),
        Command::Promote(args) => promote::run(&args, output),
        Command::Rollback(args) => rollback::run(args, output),
        Command::Gc(args) => gc::run(&args, output),
        Command::Synth(args) => synth::run(&args),
        Command::Manual(manual) => manual
            .write(Cli::command(), REFERENCE)
            .map_err(CommandError::output),
    }
}
