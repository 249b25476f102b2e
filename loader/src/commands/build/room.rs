//! Free disk space for spilled keys, as far as it is known in advance.
//!
//! Uncompressed files of lines have an estimate: their beginnings give the keys per byte. For other
//! inputs a full disk is an error when it occurs.

use std::fs::File;
use std::io::Read;

use rtad_core::device::DeviceKey;

use crate::input::{Input, Layout, Source, lines};
use crate::keys::{Budget, KEY_BYTES, SpillDir, SpillError};

/// Bytes examined per file.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Compares the need of `input` with the free space; `there` bytes of keys are on the disk already.
pub(super) fn check(
    input: &Input,
    dir: &SpillDir,
    budget: &Budget,
    there: u64,
) -> Result<(), SpillError> {
    let needed = input.sources.iter().map(|source| keys_in(input, source)).sum::<f64>() as u64
        * KEY_BYTES as u64;
    let found = dir.free_bytes().unwrap_or(u64::MAX).saturating_add(there);
    if needed > budget.segments() as u64 && needed > found {
        return Err(SpillError::NoRoom { dir: dir.shown(), needed, found });
    }
    Ok(())
}

/// Estimated keys of a source; 0 if unknown.
fn keys_in(input: &Input, source: &Source) -> f64 {
    let (Layout::Lines { kind }, Source::File(path)) = (&input.layout, source) else { return 0.0 };
    let is_file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    // Opening and closing a pipe loses its content.
    let Some((facts, file)) = is_file.and_then(|facts| Some((facts, File::open(path).ok()?)))
    else {
        return 0.0;
    };
    let mut sample = Vec::new();
    if file.take(SAMPLE_BYTES).read_to_end(&mut sample).is_err() || sample.is_empty() {
        return 0.0;
    }
    let case = input.case.unwrap_or(kind.canonical_case());
    let mut keys: Vec<DeviceKey> = Vec::new();
    for line in lines(&sample) {
        // Compressed files have no lines with ids.
        let _ = input.keys.keys(*kind, case, line, &mut keys);
    }
    keys.len() as f64 / sample.len() as f64 * facts.len() as f64
}
