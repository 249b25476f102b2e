//! Memory of filters with large pages: little more than their size. A separate binary, because it
//! measures the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use rtad_core::memory::{Pages, Region};
use testkit::process::anonymous_bytes;

#[test]
fn region_remainder_uses_small_pages() {
    // 64 chunks slightly larger than two large pages: a third page each would add half.
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
    assert!(
        taken >= needed && taken < needed + needed / 10,
        "{taken} bytes for {needed}"
    );
    drop(regions);
    assert!(
        anonymous_bytes() < before + needed / 10,
        "returned to the kernel"
    );
}
