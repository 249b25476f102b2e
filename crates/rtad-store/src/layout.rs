//! Layout of a store: the paths and names of an audience's files.
//!
//! ```text
//! {store}/{audience}/CURRENT                      the live generation; always written last
//! {store}/{audience}/manifests/{generation}.json  contents of a generation; written once
//! {store}/{audience}/chunks/{digest}.chunk        filters; immutable, named by content
//! {store}/{audience}/deltas/{last}-{digest}.delta exact changes; immutable; `last` is the sequence
//!                                                 of the CURRENT that first named the delta
//! {store}/{audience}/GC                           files that a gc is removing; object stores only
//! {store}/{audience}/CURRENT.probe-{number}       a probe of conditional puts (`write/probe.rs`)
//! {store}/.windows/{window}/                     checkpoints of event windows (`write/window.rs`)
//! {file}.minisig                                  the signature of a manifest or a delta
//! ```
//!
//! No path comes from a file's content: names are made here from digests and numbers.

use object_store::path::Path;

use rtad_core::snapshot::{AudienceName, ChunkEntry, DeltaEntry, Digest, MAX_DELTA_KEYS};

/// Highest number of tombstones of an audience: one delta holds them. No build lowers it, because a
/// later input may contain their devices. Each change of a tombstone rewrites the whole list, and
/// every pod fetches it.
pub const MAX_TOMBSTONES: u64 = if cfg!(test) { 1000 } else { MAX_DELTA_KEYS };

pub fn audience_path(audience: &AudienceName) -> Path {
    Path::from(audience.as_str())
}

pub fn current_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("CURRENT")
}

pub fn gc_mark_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("GC")
}

pub fn manifests_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("manifests")
}

pub fn manifest_path(audience: &AudienceName, generation: u64) -> Path {
    manifests_path(audience).join(format!("{generation}.json"))
}

/// The generation in a file's name.
pub fn generation_of(name: &str, suffix: &str) -> Option<u64> {
    number_of(name.strip_suffix(suffix)?).filter(|generation| *generation > 0)
}

/// A number as names have it: without the signs and leading zeros that `parse` accepts.
pub fn number_of(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

pub fn chunks_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("chunks")
}

pub fn chunk_path(audience: &AudienceName, entry: &ChunkEntry) -> Path {
    chunks_path(audience).join(chunk_name(entry))
}

pub fn chunk_name(entry: &ChunkEntry) -> String {
    format!("{}.chunk", entry.digest)
}

/// A folder that no audience can have: their names start with a letter or digit.
pub const WINDOWS: &str = ".windows";

pub fn window_path(window: &AudienceName) -> Path {
    Path::from(WINDOWS).join(window.as_str())
}

pub fn window_current_path(window: &AudienceName) -> Path {
    window_path(window).join("CURRENT")
}

pub fn window_checkpoints_path(window: &AudienceName) -> Path {
    window_path(window).join("checkpoints")
}

pub fn window_checkpoint_path(window: &AudienceName, name: &str) -> Path {
    window_checkpoints_path(window).join(name)
}

/// The path of a probe of conditional puts, beside the file to be written.
pub fn probe_path(path: &Path, number: u64) -> Path {
    Path::from(format!("{path}{PROBE}{number:016x}"))
}

/// Whether the name is that of a probe.
pub fn is_probe_name(name: &str) -> bool {
    let parts = name.split_once(PROBE);
    parts.is_some_and(|(file, number)| ["CURRENT", "GC"].contains(&file) && is_hex(number, 16))
}

/// Whether a text is of this many lower-case hex digits.
pub fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

const PROBE: &str = ".probe-";

/// Whether a chunk may have this name. A gc removes no other file from the folder.
pub fn is_chunk_name(name: &str) -> bool {
    name.strip_suffix(".chunk")
        .is_some_and(|digest| is_hex(digest, 64))
}

pub fn deltas_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("deltas")
}

pub fn delta_path(audience: &AudienceName, entry: &DeltaEntry) -> Path {
    deltas_path(audience).join(delta_name(entry))
}

pub fn delta_name(entry: &DeltaEntry) -> String {
    format!("{}-{}.delta", entry.last, entry.sha256)
}

/// The sequence in a delta's name; `None` for any other name.
pub fn delta_sequence(name: &str) -> Option<u64> {
    let (last, digest) = name.strip_suffix(".delta")?.split_once('-')?;
    Digest::try_from(digest.to_owned()).ok()?;
    number_of(last)
}

/// The claim in the name of a window's checkpoint, `{id}-{epoch}-{number}`; `None` for any other
/// name.
pub fn checkpoint_epoch(name: &str) -> Option<u64> {
    let (id, numbers) = name.split_once('-')?;
    let (epoch, number) = numbers.split_once('-')?;
    number_of(number)?;
    number_of(epoch).filter(|_| is_hex(id, 16))
}

/// Whether a file of a directory has the name under which object_store stages a write: the final
/// name, '#' and a number.
pub fn is_staged_name(name: &str) -> bool {
    let Some((name, number)) = name.split_once('#') else {
        return false;
    };
    let file = name.strip_suffix(".minisig").unwrap_or(name);
    let is_ours = file == "CURRENT"
        || generation_of(file, ".json").is_some()
        || is_chunk_name(file)
        || delta_sequence(file).is_some()
        || checkpoint_epoch(file).is_some();
    is_ours && number_of(number).is_some()
}

/// The path of a file's signature.
pub fn signature_path(path: &Path) -> Path {
    Path::from(format!("{path}.minisig"))
}
