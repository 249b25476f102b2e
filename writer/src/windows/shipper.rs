//! Shipper: creates the segments of an owner in the store, one after the other.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use rtad_core::backoff::Backoff;
use rtad_store::StoreError;
use rtad_store::write::WindowFolder;
use rtad_window::{Outbox, Outgoing};

use super::log::{FailureLog, WindowLog};

/// Unit of the time between attempts to create a segment.
const RETRY: Duration = Duration::from_millis(100);
/// Longest time between attempts, in units.
const MAX_RETRY_UNITS: u32 = 16;
/// Time between writes of the hint.
const HINT_INTERVAL: Duration = Duration::from_secs(5);

pub struct Shipper {
    pub(super) window: String,
    pub(super) outbox: Outbox,
    pub(super) log: WindowLog,
}

impl Shipper {
    /// Creates segments until the window ends, or another process owns it.
    pub async fn run(mut self) {
        let mut hinted_at = None;
        let mut hints = JoinSet::new();
        while let Some(outgoing) = self.outbox.next().await {
            match self.create(&outgoing).await {
                Ok(true) => self.outbox.created(outgoing.number),
                Ok(false) => {
                    let reason = format!(
                        "another process has created segment {}: it owns the window",
                        outgoing.number
                    );
                    self.outbox.lost(reason);
                    return;
                }
                Err(error) => {
                    self.outbox.lost(error.to_string());
                    return;
                }
            }

            if hinted_at.is_none_or(|at: Instant| at.elapsed() >= HINT_INTERVAL) {
                // A log that was removed under its owner can be continued, but not read.
                if let Ok(false) = self.log.has_newest().await {
                    let reason = format!("segment {} was removed", outgoing.number);
                    self.outbox.lost(reason);
                    return;
                }
                hinted_at = Some(Instant::now());
                // Beside the next segment, for which events wait.
                while hints.try_join_next().is_some() {}
                hints.spawn(hint(self.log.folder().clone(), outgoing.number));
            }
        }
    }

    /// Creates a segment, however long that takes. False if another process was faster.
    ///
    /// # Errors
    ///
    /// An error that no further attempt ends.
    async fn create(&mut self, outgoing: &Outgoing) -> Result<bool, StoreError> {
        let mut backoff = Backoff::new(MAX_RETRY_UNITS);
        let mut failures = FailureLog::default();
        loop {
            match self.log.create(outgoing.bytes.clone()).await {
                Ok(is_created) => return Ok(is_created),
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => {
                    failures.fail(&self.window, "segment of the window not created", &error)
                }
            }
            tokio::time::sleep(RETRY * backoff.fail()).await;
        }
    }
}

/// Whether no later attempt can succeed.
pub const fn is_permanent(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Conditions { .. } | StoreError::LostRecord { .. } | StoreError::ReadOnly { .. }
    )
}

/// Points to a recent segment. Without it, a start only misses that later segments are lost.
async fn hint(folder: WindowFolder, number: u64) {
    let _ = folder.point_to(number).await;
}
