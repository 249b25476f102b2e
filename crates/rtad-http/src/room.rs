//! Memory for request bodies that did not arrive with their heads.
//!
//! A body takes its whole length at once, before the rest of it is awaited: what a client has
//! declared it may send. One semaphore therefore bounds the number of such requests and their
//! memory. Complete bodies, as nearly all are, take nothing.
//!
//! One client may take all of the room: a limit per address would count clients behind a balancer
//! as one. A client that declares much and sends nothing takes it for the time of a body.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes per permit of the semaphore, which counts no more than 2^32 at a time.
const UNIT: usize = 1 << 10;

/// The part of the room that requests of one kind may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Whole,
    /// Half of it: for large bodies, which must leave room for small ones.
    Half,
}

/// Room for the incomplete bodies of a port.
#[derive(Debug)]
pub struct BodyRoom {
    permits: Semaphore,
    total: usize,
}

/// Room of one body; returned when dropped.
pub type BodyPermit<'a> = SemaphorePermit<'a>;

impl BodyRoom {
    /// Room for `bytes`.
    pub fn new(bytes: usize) -> Self {
        let total = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            permits: Semaphore::new(total),
            total,
        }
    }

    /// Takes room for a body of at most `bytes`; `None` if there is not enough.
    pub fn take(&self, bytes: usize, share: Share) -> Option<BodyPermit<'_>> {
        let units = bytes.div_ceil(UNIT);
        // Two bodies at a time may both find the half free: one more then fits into it.
        if share == Share::Half && self.taken() + units > self.total / 2 {
            return None;
        }

        self.permits
            .try_acquire_many(u32::try_from(units).ok()?)
            .ok()
    }

    /// Bytes in use.
    pub fn taken_bytes(&self) -> usize {
        self.taken() * UNIT
    }

    fn taken(&self) -> usize {
        self.total - self.permits.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_the_room_and_large_ones_have_half_of_it() {
        let room = BodyRoom::new(8 << 10);
        let large = room.take(4 << 10, Share::Half);
        assert!(large.is_some());
        assert!(room.take(1, Share::Half).is_none());

        let small = [(); 4].map(|()| room.take(1, Share::Whole));
        assert!(small.iter().all(Option::is_some));
        assert_eq!(room.taken_bytes(), 8 << 10, "each takes a whole unit");
        assert!(room.take(1, Share::Whole).is_none());

        drop(large);
        assert!(room.take(1, Share::Half).is_none(), "half is taken");
        assert!(room.take(4 << 10, Share::Whole).is_some());
        drop(small);
        assert_eq!(room.taken_bytes(), 0);
        assert!(room.take(usize::MAX, Share::Whole).is_none());
    }
}
