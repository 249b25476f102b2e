//! Whether the disk has room for the keys that are going to be spilled, as far as that can be known before.
//!
//! It can be of files of lines that are not compressed: their beginnings say how many keys a byte gives. Of anything else a full disk
//! is told when it is full.

use std::fs::File;
use std::io::Read;

use rtad_core::device::DeviceKey;

use crate::input::{Input, Layout, Source, lines};
use crate::keys::{Budget, KEY_BYTES, SpillDir, SpillError};

/// Of each file this much is looked at.
const SAMPLE_BYTES: u64 = 64 << 10;

/// Compares what `input` needs with what there is; `there` bytes of keys are on the disk already.
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

/// About how many keys a source gives; 0 if that cannot be told.
fn keys_in(input: &Input, source: &Source) -> f64 {
    let (Layout::Lines { kind }, Source::File(path)) = (&input.layout, source) else { return 0.0 };
    let is_file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    // A pipe that is so much as opened and closed again has lost what was in it.
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
        // What is compressed has no lines that are ids.
        let _ = input.keys.keys(*kind, case, line, &mut keys);
    }
    keys.len() as f64 / sample.len() as f64 * facts.len() as f64
}
