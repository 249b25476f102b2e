//! SIGINT and SIGTERM during a build with a spill directory.
//!
//! The checkpointed state is valid at any moment, even after `kill -9`, so a signal ends the
//! process at once. A message names the directory and how to resume. Builds without a spill
//! directory leave no files and need no handler.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use rtad_cli::command_error::CommandError;
use rtad_cli::exit;

use super::super::context::runtime;
use super::resume::STATE;
use crate::keys::SpillDir;
use crate::progress::Progress;

/// Offset of a signal number in a shell's exit code.
const BY_SIGNAL: i32 = 128;

#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error(
        "interrupted; completed work is kept in {dir}; the same command with --resume continues it"
    )]
    Kept { dir: String },
    #[error("interrupted; nothing was kept, because no input was read completely")]
    Nothing,
}

/// Ends the process at the first of these signals.
pub fn watch(dir: &Arc<SpillDir>, progress: &Progress) -> Result<(), CommandError> {
    // A weak reference: the last owner of the directory removes its files.
    let (runtime, dir, bar) = (runtime()?, Arc::downgrade(dir), progress.handle());
    let mut signals = {
        let _context = runtime.enter();
        let install = |kind| signal(kind).map_err(CommandError::runtime);
        (
            install(SignalKind::interrupt())?,
            install(SignalKind::terminate())?,
        )
    };
    // Not joined: the thread ends with the process.
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
            // The build has already ended.
            None => {}
        }
        std::process::exit(BY_SIGNAL + kind.as_raw_value());
    });
    Ok(())
}
