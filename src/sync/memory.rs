//! Memory for loads of snapshots: those of several audiences reserve it from each other. Other
//! allocations are not seen.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::SyncError;
use rtad_core::headroom::Headroom;

/// Memory for loads: the headroom, less the reservations of loads that run.
#[derive(Debug, Default)]
pub(super) struct Memory {
    headroom: Headroom,
    reserved: Mutex<u64>,
    released: Notify,
}

/// Memory of one load, released on drop.
pub(super) struct Reservation<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    pub(super) fn new(headroom: Headroom) -> Self {
        Self {
            headroom,
            ..Self::default()
        }
    }

    /// Refuses an allocation that exceeds the container's free memory.
    pub(super) fn check(&self, needed_bytes: u64) -> Result<(), SyncError> {
        match self.headroom.available_bytes() {
            Some(available_bytes) if needed_bytes > available_bytes => {
                Err(SyncError::InsufficientMemory {
                    needed_bytes,
                    available_bytes,
                })
            }
            _ => Ok(()),
        }
    }

    /// Reserves memory. Waits while another load has reserved it; refuses more than there is.
    pub(super) async fn reserve(&self, bytes: u64) -> Result<Reservation<'_>, SyncError> {
        loop {
            // The registration precedes the check, so that no release is missed.
            let released = self.released.notified();
            if self.try_reserve(bytes)? {
                return Ok(Reservation {
                    memory: self,
                    bytes,
                });
            }
            released.await;
        }
    }

    /// False if there will be more memory once other loads have ended.
    fn try_reserve(&self, bytes: u64) -> Result<bool, SyncError> {
        let mut reserved = self.reserved.lock();
        let needed_bytes = bytes.saturating_add(*reserved);
        match self.check(needed_bytes) {
            Ok(()) => {
                *reserved = needed_bytes;
                Ok(true)
            }
            Err(_) if *reserved > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut reserved = self.memory.reserved.lock();
        *reserved = reserved.saturating_sub(self.bytes);
        self.memory.released.notify_waiters();
    }
}
