//! Stall detection: a bound on the time without progress, but not on a whole read.

use std::time::{Duration, Instant};

use object_store::path::Path;

use crate::error::StoreError;

/// A read without progress for this long fails.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Least number of bytes within that time.
const STALL_BYTES: u64 = 16 << 10;

/// Time that a read may still wait before it needs progress.
pub struct StallTimer {
    timeout: Duration,
    left: Duration,
    progress: u64,
}

impl StallTimer {
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            left: timeout,
            progress: 0,
        }
    }

    pub const fn progress(&mut self, bytes: usize) {
        self.progress += bytes as u64;
    }

    /// Waits for `next` while there is progress. Only waiting counts, not work between two waits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stalled`].
    pub async fn wait<T>(
        &mut self,
        path: &Path,
        next: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        let mut next = std::pin::pin!(next);
        loop {
            let begun = Instant::now();
            if let Ok(done) = tokio::time::timeout(self.left, &mut next).await {
                self.left = self.left.saturating_sub(begun.elapsed());
                return Ok(done);
            }
            self.left = self.timeout;
            if std::mem::take(&mut self.progress) < STALL_BYTES {
                let path = path.to_string();
                return Err(StoreError::Stalled {
                    path,
                    bytes: STALL_BYTES,
                    timeout: self.timeout,
                });
            }
        }
    }
}
