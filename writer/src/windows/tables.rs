//! Tables of a window in the store: written when the log has become long, and what they replace is
//! removed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::time::Instant;

use rtad_core::error_chain::error_chain;
use rtad_store::StoreError;
use rtad_store::write::WindowFolder;
use rtad_window::{Failure, TableCopy};

use super::served::ServedWindow;

/// Time between looks at the log.
const CHECK: Duration = Duration::from_secs(1);
/// Time after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// A table that was not written.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Window(#[from] Failure),
}

/// Writes a table whenever one is due, until the window ends.
pub async fn keep_tables(window: Arc<ServedWindow>, folder: WindowFolder) {
    let name = window.config.name.as_str();
    let mut retry_at = None;
    while !window.handle.has_ended() {
        tokio::time::sleep(CHECK).await;
        let is_due = window.handle.state().is_table_due;
        if !is_due || retry_at.is_some_and(|at| Instant::now() < at) {
            continue;
        }
        match write_table(&window, &folder).await {
            Ok(()) => retry_at = None,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(window = name, error, "table of the window not written");
                retry_at = Some(Instant::now() + RETRY);
            }
        }
    }
}

/// Writes a table, and removes what it replaces.
pub async fn write_table(window: &ServedWindow, folder: &WindowFolder) -> Result<(), TableError> {
    let mut copy = window.handle.begin_table().await?;
    let number = copy.number();
    let blocks = Box::pin(stream::unfold(&mut copy, next_block));
    let bytes = folder.put_table(number, blocks).await?;
    copy.completed();
    let name = window.config.name.as_str();
    tracing::info!(window = name, number, bytes, "table of the window written");

    if let Err(error) = folder.remove_before(number).await {
        // The next table removes them.
        let error = error_chain(&error);
        tracing::warn!(
            window = name,
            error,
            "older segments and tables not removed"
        );
    }
    Ok(())
}

async fn next_block(copy: &mut TableCopy) -> Option<(io::Result<Vec<u8>>, &mut TableCopy)> {
    let block = copy.next_block().await.transpose()?;
    Some((block.map_err(io::Error::other), copy))
}
