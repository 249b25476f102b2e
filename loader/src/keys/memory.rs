//! Key memory: one region, divided into reusable segments.
//!
//! It is reserved at the start and released at the end, so its resident size is always known and
//! independent of the allocator. Pages of segments never handed out stay untouched.

use std::io;
use std::slice::ChunksExactMut;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use rtad_core::memory::{Pages, Region};

/// Longest wait for a free segment before the caller tries to spill again.
const MAX_WAIT: Duration = Duration::from_millis(10);

/// A device key as bytes. Zeroed memory from the kernel is valid without touching it.
pub type KeyBytes = [u8; 16];

pub const KEY_BYTES: usize = size_of::<KeyBytes>();

/// Unit and alignment of direct I/O. Most disks would accept an eighth of it.
const PAGE_BYTES: usize = 4096;

/// Bytes per read. Smaller reads are slower.
const BLOCK_BYTES: usize = 256 * PAGE_BYTES;

/// Memory for all keys.
pub struct Slab(Region);

impl Slab {
    /// Reserves the memory. The system may refuse more than it has.
    pub fn of(bytes: usize) -> io::Result<Self> {
        Region::zeroed(bytes, Pages::Large).map(Self)
    }
}

/// Some keys of one partition. The default has no capacity.
#[derive(Default)]
pub struct Segment<'m> {
    keys: &'m mut [KeyBytes],
    len: usize,
}

impl Segment<'_> {
    /// Returns false if the segment is full.
    #[inline]
    pub fn push(&mut self, key: &KeyBytes) -> bool {
        let Some(slot) = self.keys.get_mut(self.len) else {
            return false;
        };
        *slot = *key;
        self.len += 1;
        true
    }

    pub fn keys(&self) -> &[KeyBytes] {
        &self.keys[..self.len]
    }

    /// Fills its last page with copies of its last key. Direct I/O needs whole pages, and
    /// duplicates are removed later.
    pub fn fill_page(&mut self) {
        if let Some(last) = self.keys().last().copied() {
            let end = self
                .len
                .next_multiple_of(PAGE_BYTES / KEY_BYTES)
                .min(self.keys.len());
            self.keys[self.len..end].fill(last);
            self.len = end;
        }
    }

    /// Replaces its keys with as many of `keys` as fit.
    pub fn refill(&mut self, keys: &mut impl Iterator<Item = KeyBytes>) {
        self.len = 0;
        for (slot, key) in self.keys.iter_mut().zip(keys) {
            *slot = key;
            self.len += 1;
        }
    }
}

/// Page-aligned buffer for direct reads.
pub fn block() -> Region {
    Region::zeroed(BLOCK_BYTES, Pages::Small).expect("there is a mebibyte of addresses")
}

/// Free segments.
pub struct Pool<'m> {
    free: Mutex<Free<'m>>,
    returned: Condvar,
}

struct Free<'m> {
    fresh: ChunksExactMut<'m, KeyBytes>,
    used: Vec<Segment<'m>>,
    handed_out: usize,
}

impl<'m> Pool<'m> {
    pub fn new(slab: &'m mut Slab, segment_keys: usize) -> Self {
        let fresh = slab.0.as_chunks_mut().0.chunks_exact_mut(segment_keys);
        let free = Mutex::new(Free {
            fresh,
            used: Vec::new(),
            handed_out: 0,
        });
        Self {
            free,
            returned: Condvar::new(),
        }
    }

    /// Takes a free segment; used ones first.
    pub fn take(&self) -> Option<Segment<'m>> {
        let mut free = self.free.lock();
        if let Some(segment) = free.used.pop() {
            return Some(segment);
        }
        let keys = free.fresh.next()?;
        free.handed_out += 1;
        Some(Segment { keys, len: 0 })
    }

    pub fn give_back(&self, segments: impl IntoIterator<Item = Segment<'m>>) {
        let mut free = self.free.lock();
        for segment in segments {
            free.used.push(Segment { len: 0, ..segment });
        }
        drop(free);

        self.returned.notify_all();
    }

    /// Waits until a segment is returned, at most [`MAX_WAIT`]: another thread may take it first.
    pub fn wait(&self) {
        let mut free = self.free.lock();
        self.returned
            .wait_while_for(&mut free, |free| free.used.is_empty(), MAX_WAIT);
    }

    /// Number of segments ever handed out, which are resident.
    pub fn touched(&self) -> usize {
        self.free.lock().handed_out
    }
}
