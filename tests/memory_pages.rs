//! Filters take the memory that they need and little more, also where large pages are granted. In a
//! process of its own, as the figure is the process's.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use rtad_core::memory::{Pages, Region};
use testkit::process::anonymous_bytes;

#[test]
fn a_region_does_not_take_a_whole_large_page_for_its_rest() {
    // 64 chunks a little over two large pages each: a third one for the rest would be half as much
    // again.
    const LEN: usize = (4 << 20) + 4096;
    let before = anonymous_bytes();
    let regions: Vec<Region> = (0..64)
        .map(|_| {
            let mut region = Region::zeroed(LEN, Pages::Large).unwrap();
            region.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            region
        })
        .collect();
    let taken = anonymous_bytes() - before;
    let needed = (regions.len() * LEN) as u64;
    assert!(taken >= needed && taken < needed + needed / 10, "{taken} bytes for {needed}");
    drop(regions);
    assert!(anonymous_bytes() < before + needed / 10, "given back to the kernel");
}
