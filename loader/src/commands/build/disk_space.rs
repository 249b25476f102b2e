//! Disk-space check before a build that will spill its keys.
//!
//! Estimates the number of keys in uncompressed files of lines from the start of each file. Other
//! inputs are not estimated; for those a full disk is reported when it happens.

use std::fs::File;
use std::io::Read;

use rtad_core::device::{DeviceKey, Reading};

use crate::input::{Input, Layout, Source, lines};
use crate::keys::{Budget, KEY_BYTES, SpillDir, SpillError};

/// Sample size per file.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Compares the estimate for `input` with the free space.
pub fn check(input: &Input, dir: &SpillDir, budget: &Budget) -> Result<(), SpillError> {
    let needed = input
        .sources
        .iter()
        .map(|source| keys_in(input, source))
        .sum::<f64>() as u64
        * KEY_BYTES as u64;
    let found = dir.free_bytes().unwrap_or(u64::MAX);
    if needed > budget.segments() as u64 && needed > found {
        return Err(SpillError::NoRoom {
            dir: dir.shown(),
            needed,
            found,
        });
    }
    Ok(())
}

/// Estimated number of keys in a source; 0 if unknown.
fn keys_in(input: &Input, source: &Source) -> f64 {
    let (Layout::Lines { kinds }, Source::File(path)) = (&input.layout, source) else {
        return 0.0;
    };
    let Ok(facts) = std::fs::metadata(path) else {
        return 0.0;
    };
    // Only regular files: opening a pipe and closing it would lose its data.
    if !facts.is_file() {
        return 0.0;
    }
    let Ok(file) = File::open(path) else {
        return 0.0;
    };

    let mut sample = Vec::new();
    if file.take(SAMPLE_BYTES).read_to_end(&mut sample).is_err() || sample.is_empty() {
        return 0.0;
    }

    let mut keys: Vec<DeviceKey> = Vec::new();
    for line in lines(&sample) {
        let Reading { kind, case } = kinds.reading(line);
        let case = input.case.unwrap_or(case);
        // Compressed data has no lines that are ids.
        let _ = input.keys.keys(kind, case, line, &mut keys);
    }
    keys.len() as f64 / sample.len() as f64 * facts.len() as f64
}
