//! Commands inside another program, such as the Python package: the same flags, checks and errors
//! as on the command line. [`in_arguments`] has the texts of errors in the words of Python.
//!
//! A command writes nothing to stdout and stderr, and installs no handlers of signals.

mod arguments;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use rtad_cli::TrustArgs;
use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{UsageMistake, keep_warnings};
use rtad_core::snapshot::Snapshot;

use crate::commands::{self, Cli, Host, Target};
pub use crate::input::{Batches, Counts, Kinds, Reason, arrow};
pub use crate::progress::Watch;
use crate::progress::{Progress, Stopped};
pub use arguments::in_arguments;

/// Chunks read at a time.
const PARALLEL_READS: usize = 4;
/// Interval between checks whether a load was stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Result of a command.
#[derive(Debug)]
pub struct Done {
    /// Its report, the JSON object of `--json`.
    pub report: String,
    /// Facts that a person should know.
    pub warnings: Vec<String>,
}

/// Runs a command: `arguments` as on the command line, without the program. The rows of `batches`
/// are its input, if there are any.
///
/// # Errors
///
/// Those of the command, with its exit code.
pub fn run(
    arguments: &[String],
    batches: Option<Batches>,
    watch: &Watch,
) -> Result<Done, CommandError> {
    let mut cli: Cli = parsed(arguments)?;
    let host = Host::new(watch);
    cli.set_host(&host, batches);
    let (done, warnings) = keep_warnings(|| commands::run(cli));
    done?;
    Ok(Done {
        report: host.into_report(),
        warnings,
    })
}

/// Loads an audience: by the flags `--store`, `--audience`, `--public-key` and `--generation`, as
/// those of `verify`.
///
/// # Errors
///
/// Those of the flags, and of the store.
pub fn load(arguments: &[String], watch: &Watch) -> Result<Snapshot, CommandError> {
    let flags: LoadFlags = parsed(arguments)?;
    let progress = Progress::watched(watch);
    progress.phase("reading chunks");
    commands::runtime()?.block_on(async {
        tokio::select! {
            loaded = read(&flags, &progress) => loaded,
            () = stopped(watch) => Err(Stopped.into()),
        }
    })
}

#[derive(Debug, Parser)]
struct LoadFlags {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    trust: TrustArgs,
    #[arg(long, value_name = "G")]
    generation: Option<u64>,
}

fn parsed<P: Parser>(arguments: &[String]) -> Result<P, UsageMistake> {
    let program = std::iter::once("rtad-loader");
    let words = program.chain(arguments.iter().map(String::as_str));
    P::try_parse_from(words).map_err(|error| arguments::usage_mistake(&error))
}

async fn read(flags: &LoadFlags, progress: &Progress) -> Result<Snapshot, CommandError> {
    let store = flags.trust.applied_to(flags.target.open()?)?;
    let (manifest, overlay) = flags
        .target
        .manifest_and_overlay(&store, flags.generation)
        .await?;
    let mut chunks = vec![None; manifest.chunks().len()];
    progress.expect(chunks.len() as u64);

    let entries = manifest.chunks();
    store
        .chunks(&manifest, entries, PARALLEL_READS, |entry, chunk| {
            let index = entries.partition_point(|one| one.first_shard < entry.first_shard);
            chunks[index] = Some(Arc::new(chunk));
            progress.add(1);
        })
        .await?;

    let in_order = chunks.into_iter().flatten().collect();
    Ok(Snapshot::assemble(manifest, in_order).with_overlay(overlay))
}

async fn stopped(watch: &Watch) {
    while !watch.is_stopped() {
        tokio::time::sleep(STOP_INTERVAL).await;
    }
}
