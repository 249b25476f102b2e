//! SIGINT and SIGTERM while keys are kept in a directory.
//!
//! What is there is good at any moment, as after `kill -9`: so there is nothing to wait for. It is said what is left and how to go
//! on, and the process ends as it would have without this. Without such a directory nothing is left behind in any case.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::super::context::runtime;
use super::super::error::CommandError;
use super::resume::STATE;
use crate::exit;
use crate::keys::SpillDir;
use crate::progress::Progress;

/// What a shell adds to a signal's number to make it an exit code.
const BY_SIGNAL: i32 = 128;

#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(
        "interrupted; what was done is kept in {dir}, and the same command with --resume goes on with it"
    )]
    Kept { dir: String },
    #[error("interrupted; nothing was kept, as no input was read to its end yet")]
    Nothing,
}

/// Ends the process at the first of these signals.
pub(super) fn watch(dir: &Arc<SpillDir>, progress: &Progress) -> Result<(), CommandError> {
    // Not held by this thread: who is done with it removes what is in it.
    let (runtime, dir, bar) = (runtime()?, Arc::downgrade(dir), progress.handle());
    let mut signals = {
        let _context = runtime.enter();
        let install = |kind| signal(kind).map_err(CommandError::Runtime);
        (install(SignalKind::interrupt())?, install(SignalKind::terminate())?)
    };
    // Not joined: it ends with the process.
    std::thread::spawn(move || {
        let kind = runtime.block_on(async {
            tokio::select! {
                _ = signals.0.recv() => SignalKind::interrupt(),
                _ = signals.1.recv() => SignalKind::terminate(),
            }
        });
        bar.finish_and_clear();
        let dir = dir.upgrade();
        dir.iter().for_each(|dir| dir.freeze());
        match dir {
            Some(dir) if matches!(dir.read_note(STATE), Ok(Some(_))) => {
                exit::write_error(&Interrupted::Kept { dir: dir.shown() });
            }
            Some(dir) => {
                dir.clear();
                exit::write_error(&Interrupted::Nothing);
            }
            // It is over already.
            None => {}
        }
        std::process::exit(BY_SIGNAL + kind.as_raw_value());
    });
    Ok(())
}
