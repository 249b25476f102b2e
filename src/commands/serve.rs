//! `rtad serve`: serves decisions from a snapshot store.

use std::path::PathBuf;

use clap::Args;
use rtad::offline::{OfflineError, read_config};
use rtad::serve::{Reread, read_settled};
use rtad_cli::command_error::CommandError;
use rtad_core::error_chain::error_chain;
use rtad_core::files::open_regular;
use rtad_http::signals::Signals;

use super::ports::Ports;
use super::process;

#[derive(Args)]
pub struct Serve {
    /// The config file
    #[arg(long, value_name = "FILE", env = "RTAD_CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    ports: Ports,
    /// Store of the snapshots: a directory, or s3://, gs://, az://, oss://, cos://, https:// URL
    /// [env: RTAD_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

pub async fn serve(arguments: Serve) -> Result<(), CommandError> {
    let Serve {
        config: file,
        ports,
        store,
    } = arguments;
    let mut flags = ports.flags();
    flags.extend(store.map(|store| ("store.url", store)));
    let path = file.clone();
    let read = move || {
        // A pipe has its text once, and blocks a reload.
        let name = file.display();
        open_regular(&file).map_err(|error| OfflineError::Usage(format!("{name}: {error}")))?;

        read_config(&file, &flags)
    };
    let mut assembly = read()?;
    let reread: Reread = Box::new(move || read().map_err(|error| error_chain(&error)));
    // A valid beginning of a file may lack a condition or a cap.
    if assembly.may_be_unfinished(&path) {
        assembly = read_settled(&reread).map_err(OfflineError::Usage)?;
    }

    // The handler precedes the start: a SIGHUP without a handler would end the process during the
    // first load.
    let mut signals = Signals::listen().map_err(CommandError::runtime)?;
    if let Some(running) = process::start(&mut signals, assembly, reread).await? {
        process::serve_until_stopped(&mut signals, running).await;
    }
    Ok(())
}
