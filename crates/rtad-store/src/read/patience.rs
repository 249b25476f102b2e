//! How long a read may take that gets nowhere, which is no bound on one that gets on, however slowly.

use std::time::{Duration, Instant};

use object_store::path::Path;

use super::super::StoreError;

/// Without progress for so long, a read is given up.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// What counts as progress in that time: a byte a second does not.
const STALL_BYTES: u64 = 16 << 10;

/// How long is waited for what does not come.
pub(super) struct Patience {
    stall_timeout: Duration,
    left: Duration,
    progress: u64,
}

/// Nothing came, or as good as nothing.
pub(super) struct Stalled(Duration);

impl Stalled {
    pub(super) fn error(self, path: &Path) -> StoreError {
        StoreError::Stalled { path: path.to_string(), bytes: STALL_BYTES, timeout: self.0 }
    }
}

impl Patience {
    pub(super) const fn new(stall_timeout: Duration) -> Self {
        Self { stall_timeout, left: stall_timeout, progress: 0 }
    }

    pub(super) fn progress(&mut self, bytes: usize) {
        self.progress += bytes as u64;
    }

    /// Waits, as long as there is progress. Only the waiting counts, not what is done in between.
    pub(super) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Stalled> {
        let mut next = std::pin::pin!(next);
        loop {
            let begun = Instant::now();
            if let Ok(done) = tokio::time::timeout(self.left, &mut next).await {
                self.left = self.left.saturating_sub(begun.elapsed());
                return Ok(done);
            }
            let progress = std::mem::take(&mut self.progress);
            self.left = self.stall_timeout;
            if progress < STALL_BYTES {
                return Err(Stalled(self.stall_timeout));
            }
        }
    }
}
