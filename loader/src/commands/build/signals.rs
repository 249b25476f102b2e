//! SIGINT and SIGTERM while keys are kept in a directory.
//!
//! The directory is valid at any moment, as after `kill -9`, so nothing is awaited: the process
//! prints how to resume, and ends by the signal. Without a directory nothing is left.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::super::context::runtime;
use super::super::error::CommandError;
use super::resume::STATE;
use crate::exit;
use crate::keys::SpillDir;
use crate::progress::Progress;

/// Base of the exit codes for signals.
const BY_SIGNAL: i32 = 128;

#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error("interrupted; progress is kept in {dir}: the same command with --resume continues")]
    Kept { dir: String },
    #[error("interrupted; nothing was kept, as no input is finished")]
    Nothing,
}

/// Ends the process at the first of these signals.
pub(super) fn watch(dir: &Arc<SpillDir>, progress: &Progress) -> Result<(), CommandError> {
    // Not held by this thread: its owner removes the content when done.
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
            // The build has ended.
            None => {}
        }
        std::process::exit(BY_SIGNAL + kind.as_raw_value());
    });
    Ok(())
}
