//! Memory for filters: whole pages from the kernel, large ones where it grants them, returned to it
//! when dropped.
//!
//! A look-up in gigabytes misses the TLB as surely as the cache; with 2 MiB pages the page walk is
//! a third of what it is with 4 KiB (`docs/explanation/performance.md`). The allocator is left out
//! of it on purpose: it would keep a dropped snapshot's gigabytes for later.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut, MmapOptions};

/// Size and alignment of a large page on x86-64 and, with 4 KiB base pages, on 64-bit Arm.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Which pages to ask for. The kernel may not grant large ones; nothing but speed depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB, where transparent huge pages are `madvise` or `always`.
    Large,
    /// 4 KiB, even where the kernel would have given larger ones. For measurements.
    Small,
}

/// Zeroed memory of its own, fixed in size.
#[derive(Debug)]
pub struct Region {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Region {
    /// `len` zero bytes. Reserves address space only: pages come when they are first written.
    ///
    /// # Errors
    ///
    /// The kernel's, when it has no memory or no address space left.
    pub fn zeroed(len: usize, pages: Pages) -> io::Result<Self> {
        // A mapping starts at any 4 KiB; only a run that starts at a multiple of 2 MiB can be large
        // pages from its first byte. The slack before it is never touched and so costs nothing.
        let slack = if len >= LARGE_PAGE_BYTES { LARGE_PAGE_BYTES } else { 0 };
        let map = MmapOptions::new().len(len + slack).map_anon()?;
        let address = map.as_ptr().addr();
        let start =
            if slack == 0 { 0 } else { address.next_multiple_of(LARGE_PAGE_BYTES) - address };
        if cfg!(target_os = "linux") && len > 0 {
            let large = match pages {
                Pages::Large => len - len % LARGE_PAGE_BYTES,
                Pages::Small => 0,
            };
            // Whole large pages only: one for the rest would cost up to 2 MiB of a chunk of 8 for
            // nothing. A kernel built without large pages refuses the advice; ordinary pages are
            // then what there is.
            if large > 0 {
                let _ = map.advise_range(Advice::HugePage, start, large);
            }
            // From a page's start, as the kernel has it; the rest of a mapping without slack is all
            // of it.
            let _ = map.advise_range(Advice::NoHugePage, start + large, map.len() - start - large);
        }
        Ok(Self { map, start, len })
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zero_writable_and_of_the_stated_length() {
        for len in [0, 1, 4096, LARGE_PAGE_BYTES - 1, LARGE_PAGE_BYTES, 3 * LARGE_PAGE_BYTES + 17] {
            for pages in [Pages::Large, Pages::Small] {
                let mut region = Region::zeroed(len, pages).unwrap();
                assert_eq!(region.len(), len);
                assert!(region.iter().all(|byte| *byte == 0));
                if let Some(last) = region.last_mut() {
                    *last = 7;
                    assert_eq!(region[len - 1], 7);
                }
                if len >= LARGE_PAGE_BYTES {
                    assert_eq!(
                        region.as_ptr().addr() % LARGE_PAGE_BYTES,
                        0,
                        "aligned for large pages"
                    );
                }
            }
        }
    }
}
