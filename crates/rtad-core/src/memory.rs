//! Memory for filters: anonymous mappings, with large pages if the kernel grants them.
//!
//! A lookup in gigabytes of filters misses the TLB as well as the cache. 2 MiB pages shorten the
//! page walk by two thirds (`docs/explanation/performance.md`). Mappings bypass the allocator,
//! which would keep the gigabytes of a dropped snapshot.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut, MmapOptions};

/// Size and alignment of a large page on x86-64 and, with 4 KiB base pages, on 64-bit Arm.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The page size to request. The kernel may not grant large pages; only speed depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// 2 MiB, if transparent huge pages are set to `madvise` or `always`.
    Large,
    /// 4 KiB for measurements, even if the kernel would grant larger ones.
    Small,
}

/// Owned memory of a fixed size, zero at first, returned to the kernel on drop.
#[derive(Debug)]
pub struct Region {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Region {
    /// Maps `len` zero bytes. Reserves address space only: pages are allocated on first write.
    ///
    /// # Errors
    ///
    /// The kernel's, if memory or address space is exhausted.
    pub fn zeroed(len: usize, pages: Pages) -> io::Result<Self> {
        // A mapping is aligned to 4 KiB, large pages to 2 MiB. The slack before the first large
        // page is never touched and costs no memory.
        let slack = if len >= LARGE_PAGE_BYTES {
            LARGE_PAGE_BYTES
        } else {
            0
        };

        let map = MmapOptions::new().len(len + slack).map_anon()?;
        let address = map.as_ptr().addr();
        let start = if slack == 0 {
            0
        } else {
            address.next_multiple_of(LARGE_PAGE_BYTES) - address
        };

        if cfg!(target_os = "linux") && len > 0 {
            let large = match pages {
                Pages::Large => len - len % LARGE_PAGE_BYTES,
                Pages::Small => 0,
            };
            // Whole large pages only: one for the remainder would waste up to 2 MiB per chunk. A
            // kernel without large pages rejects the advice and gives ordinary pages.
            if large > 0 {
                let _ = map.advise_range(Advice::HugePage, start, large);
            }
            let _ = map.advise_range(Advice::NoHugePage, start + large, map.len() - start - large);
        }

        Ok(Self { map, start, len })
    }

    /// Allocates all pages now, so that no later write waits for one. Costs the zeroing of the
    /// region. Before Linux 5.14 it does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's, if memory is exhausted.
    pub fn populate(&self) -> io::Result<()> {
        match self
            .map
            .advise_range(Advice::PopulateWrite, self.start, self.len)
        {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(()),
        }
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

    #[cfg(target_os = "linux")]
    #[test]
    fn populated_regions_are_in_memory() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmRSS:"))
                .unwrap();
            line.trim()
                .trim_end_matches(" kB")
                .parse::<usize>()
                .unwrap()
                << 10
        };
        const LEN: usize = 256 << 20;
        let region = Region::zeroed(LEN, Pages::Large).unwrap();
        let before = resident();
        region.populate().unwrap();
        // Other tests give memory back meanwhile.
        assert!(resident() > before + LEN / 2, "{before} {}", resident());
    }

    #[test]
    fn regions_are_zeroed_writable_and_sized() {
        for len in [
            0,
            1,
            4096,
            LARGE_PAGE_BYTES - 1,
            LARGE_PAGE_BYTES,
            3 * LARGE_PAGE_BYTES + 17,
        ] {
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
