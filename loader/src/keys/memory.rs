//! The memory that keys are gathered in: one piece, handed out in segments that are used again.
//!
//! It is taken whole at the start and given back whole at the end, so that how much of it is resident is known at any time and
//! nothing depends on how the allocator deals with many threads. Pages that no segment was ever handed out from are not touched.

use std::io;
use std::ops::{Deref, DerefMut};
use std::slice::ChunksExactMut;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rtad_core::memory::{Pages, Region};

/// For so long a thread waits for memory before it looks again itself.
const PATIENCE: Duration = Duration::from_millis(10);

/// A device key as bytes: memory of these comes zeroed from the kernel, untouched.
pub(crate) type Key = [u8; 16];

pub(crate) const KEY_BYTES: usize = size_of::<Key>();

/// Disks take no less at a time, and only from memory that begins at a multiple of it; most would take an eighth of it.
pub(super) const PAGE_BYTES: usize = 4096;

/// Room for keys.
pub(crate) struct Slab(Region);

impl Slab {
    /// Reserves it; the system may refuse more than it could ever give.
    pub(crate) fn of(bytes: usize) -> io::Result<Self> {
        Region::zeroed(bytes, Pages::Large).map(Self)
    }
}

/// Some keys of one partition. The default has no room.
#[derive(Default)]
pub(super) struct Segment<'m> {
    keys: &'m mut [Key],
    len: usize,
}

impl Segment<'_> {
    /// Whether there was room.
    #[inline]
    pub(super) fn push(&mut self, key: &Key) -> bool {
        let place = self.keys.get_mut(self.len);
        let has_room = place.is_some();
        if let Some(place) = place {
            *place = *key;
            self.len += 1;
        }
        has_room
    }

    pub(super) fn keys(&self) -> &[Key] {
        &self.keys[..self.len]
    }

    /// Fills its last page with copies of its last key: written past the page cache, only whole pages are taken, and keys are
    /// a set.
    pub(super) fn fill_page(&mut self) {
        if let Some(last) = self.keys().last().copied() {
            let end = self.len.next_multiple_of(PAGE_BYTES / KEY_BYTES).min(self.keys.len());
            self.keys[self.len..end].fill(last);
            self.len = end;
        }
    }

    /// Replaces its keys by as many of `keys` as it has room for.
    pub(super) fn refill(&mut self, keys: &mut impl Iterator<Item = Key>) {
        self.len = 0;
        for (place, key) in self.keys.iter_mut().zip(keys) {
            *place = key;
            self.len += 1;
        }
    }
}

/// Memory that files are read into, past the page cache too.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Block {
    /// So many whole pages.
    pub(super) fn of(pages: usize) -> Self {
        let len = pages * PAGE_BYTES;
        let bytes = vec![0; len + PAGE_BYTES];
        let begin = bytes.as_ptr().addr().next_multiple_of(PAGE_BYTES) - bytes.as_ptr().addr();
        Self { bytes, begin, len }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..self.begin + self.len]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.len]
    }
}

/// Segments that nobody uses.
pub(super) struct Pool<'m> {
    free: Mutex<Free<'m>>,
    returned: Condvar,
}

struct Free<'m> {
    fresh: ChunksExactMut<'m, Key>,
    used: Vec<Segment<'m>>,
    handed_out: usize,
}

impl<'m> Pool<'m> {
    pub(super) fn new(slab: &'m mut Slab, segment_keys: usize) -> Self {
        let fresh = slab.0.as_chunks_mut().0.chunks_exact_mut(segment_keys);
        let free = Mutex::new(Free { fresh, used: Vec::new(), handed_out: 0 });
        Self { free, returned: Condvar::new() }
    }

    /// One that is free; those that were used before come first.
    pub(super) fn take(&self) -> Option<Segment<'m>> {
        let mut free = self.lock();
        if let Some(segment) = free.used.pop() {
            return Some(segment);
        }
        let keys = free.fresh.next()?;
        free.handed_out += 1;
        Some(Segment { keys, len: 0 })
    }

    pub(super) fn give_back(&self, segments: impl IntoIterator<Item = Segment<'m>>) {
        let emptied = |segment: Segment<'m>| Segment { len: 0, ..segment };
        self.lock().used.extend(segments.into_iter().map(emptied));
        self.returned.notify_all();
    }

    /// Waits until another thread has given some back, but not for ever: others may have been faster to take them.
    pub(super) fn wait(&self) {
        let free = self.lock();
        let waited = self.returned.wait_timeout_while(free, PATIENCE, |free| free.used.is_empty());
        drop(waited.expect("nothing panics under this lock"));
    }

    /// How many were ever handed out: what is resident.
    pub(super) fn touched(&self) -> usize {
        self.lock().handed_out
    }

    fn lock(&self) -> MutexGuard<'_, Free<'m>> {
        self.free.lock().expect("nothing panics under this lock")
    }
}
