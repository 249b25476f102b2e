//! Layout of a store: the paths and names of an audience's files.
//!
//! ```text
//! {store}/{audience}/records/{number}.json        the state; created once, numbered from 1
//! {store}/{audience}/LATEST                       the number of a recent record: a hint
//! {store}/{audience}/manifests/{generation}-{sha256}.json   contents of a generation
//! {store}/{audience}/chunks/{sha256}.chunk        filters
//! {store}/{audience}/deltas/{last}-{sha256}.delta exact changes; `last` is the number of the
//!                                                 record that first named the delta
//! {store}/.windows/{window}/log, tables, LATEST   event windows (`write/window.rs`)
//! {store}/.caps/{cap}/{period}/records, LATEST    grants of caps (`write/quota.rs`)
//! {folder of records or log}/probe-{random}       a test of the store (`backend/create.rs`)
//! ```
//!
//! `LATEST` is overwritten, a record never. Names with a digest determine their content: such a
//! file is written again with the same bytes, to renew or to repair it.
//!
//! No path comes from a file's content: names are made here from digests and numbers.

use object_store::path::Path;

use rtad_core::snapshot::{
    AudienceName, ChunkEntry, DeltaEntry, Digest, GenerationEntry, MAX_DELTA_KEYS,
};

/// Highest number of tombstones of an audience: one delta holds them. No build lowers it, because a
/// later input may contain their devices. Each change of a tombstone rewrites the whole list, and
/// every pod fetches it.
pub const MAX_TOMBSTONES: u64 = if cfg!(test) { 1000 } else { MAX_DELTA_KEYS };

/// The folder of an audience.
pub fn audience_path(audience: &AudienceName) -> Path {
    Path::from(audience.as_str())
}

/// Digits in the name of a record: names sort by number.
const RECORD_DIGITS: usize = 20;

/// The folder of an audience's records.
pub fn records_path(folder: &Path) -> Path {
    folder.clone().join("records")
}

/// The path of a record.
pub fn record_path(folder: &Path, number: u64) -> Path {
    records_path(folder).join(record_name(number))
}

/// The name of a record: names sort by number.
pub fn record_name(number: u64) -> String {
    format!("{number:0RECORD_DIGITS$}.json")
}

/// The number in the name of a record; `None` for any other name.
pub fn record_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let number: u64 = digits.parse().ok()?;
    (number > 0 && record_name(number) == name).then_some(number)
}

/// The path of the hint.
pub fn hint_path(folder: &Path) -> Path {
    folder.clone().join("LATEST")
}

/// The folder of an audience's manifests.
pub fn manifests_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("manifests")
}

/// The path of a manifest.
pub fn manifest_path(audience: &AudienceName, entry: &GenerationEntry) -> Path {
    manifests_path(audience).join(manifest_name(entry))
}

/// The name of a manifest.
pub fn manifest_name(entry: &GenerationEntry) -> String {
    format!("{}-{}.json", entry.generation, entry.manifest_sha256)
}

/// Whether a manifest may have this name. A gc removes no other file from the folder.
pub fn is_manifest_name(name: &str) -> bool {
    let Some((generation, digest)) = name
        .strip_suffix(".json")
        .and_then(|name| name.split_once('-'))
    else {
        return false;
    };
    number_of(generation).is_some() && is_hex(digest, 64)
}

/// A number as names have it: without the signs and leading zeros that `parse` accepts.
pub fn number_of(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// The folder of an audience's chunks.
pub fn chunks_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("chunks")
}

/// The path of a chunk.
pub fn chunk_path(audience: &AudienceName, entry: &ChunkEntry) -> Path {
    chunks_path(audience).join(chunk_name(entry))
}

/// The name of a chunk.
pub fn chunk_name(entry: &ChunkEntry) -> String {
    format!("{}.chunk", entry.digest)
}

/// A folder that no audience can have: their names start with a letter or digit.
pub const WINDOWS: &str = ".windows";

/// The folder of a window.
pub fn window_path(window: &AudienceName) -> Path {
    Path::from(WINDOWS).join(window.as_str())
}

/// The folder of a window's segments.
pub fn log_path(window: &AudienceName) -> Path {
    window_path(window).join("log")
}

/// The path of a segment.
pub fn segment_path(window: &AudienceName, number: u64) -> Path {
    log_path(window).join(segment_name(number))
}

/// The folder of a window's tables.
pub fn tables_path(window: &AudienceName) -> Path {
    window_path(window).join("tables")
}

/// The path of a table.
pub fn table_path(window: &AudienceName, number: u64) -> Path {
    tables_path(window).join(segment_name(number))
}

/// The name of a segment or a table: names sort by number.
fn segment_name(number: u64) -> String {
    format!("{number:0RECORD_DIGITS$}")
}

/// The number in the name of a segment or a table; `None` for any other name.
pub fn segment_number(name: &str) -> Option<u64> {
    let number: u64 = name.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// The path of a probe, in the folder of segments.
pub fn log_probe_path(window: &AudienceName, number: u64) -> Path {
    log_path(window).join(probe_name(number))
}

/// A folder of caps, which no audience can have.
pub const CAPS: &str = ".caps";

/// The folder of a cap.
pub fn cap_path(cap: &AudienceName) -> Path {
    Path::from(CAPS).join(cap.as_str())
}

/// The path of a probe, in the folder of records.
pub fn probe_path(folder: &Path, number: u64) -> Path {
    records_path(folder).join(probe_name(number))
}

fn probe_name(number: u64) -> String {
    format!("{PROBE}{number:016x}")
}

/// Whether the name is that of a probe.
pub fn is_probe_name(name: &str) -> bool {
    name.strip_prefix(PROBE)
        .is_some_and(|number| is_hex(number, 16))
}

/// Whether a text is of this many lower-case hex digits.
pub fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

const PROBE: &str = "probe-";

/// Whether a chunk may have this name. A gc removes no other file from the folder.
pub fn is_chunk_name(name: &str) -> bool {
    name.strip_suffix(".chunk")
        .is_some_and(|digest| is_hex(digest, 64))
}

/// The folder of an audience's deltas.
pub fn deltas_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("deltas")
}

/// The path of a delta.
pub fn delta_path(audience: &AudienceName, entry: &DeltaEntry) -> Path {
    deltas_path(audience).join(delta_name(entry))
}

/// The name of a delta.
pub fn delta_name(entry: &DeltaEntry) -> String {
    format!("{}-{}.delta", entry.last, entry.sha256)
}

/// The sequence in a delta's name; `None` for any other name.
pub fn delta_sequence(name: &str) -> Option<u64> {
    let (last, digest) = name.strip_suffix(".delta")?.split_once('-')?;
    Digest::try_from(digest.to_owned()).ok()?;
    number_of(last)
}

/// Whether a file of a directory has the name under which object_store stages a write: the final
/// name, '#' and a number.
pub fn is_unfinished_name(name: &str) -> bool {
    let Some((file, number)) = name.split_once('#') else {
        return false;
    };
    let is_ours = file == "LATEST"
        || record_number(file).is_some()
        || is_probe_name(file)
        || is_manifest_name(file)
        || is_chunk_name(file)
        || delta_sequence(file).is_some()
        || segment_number(file).is_some();
    is_ours && number_of(number).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unfinished_writes_are_swept() {
        let digest = "0123456789abcdef".repeat(4);
        let ours = [
            "LATEST#1",
            "00000000000000000012.json#0",
            "probe-0123456789abcdef#2",
            "00000000000000000003#4",
            &format!("{digest}.chunk#5"),
            &format!("6-{digest}.delta#7"),
            &format!("6-{digest}.json#8"),
        ];
        for name in ours {
            assert!(is_unfinished_name(name), "{name}");
        }
        let others = [
            "LATEST",
            "#LATEST#",
            "notes#old",
            "#1",
            "notes.txt#3",
            "mine#12",
            "LATEST#+1",
            "012.json#1",
            "3#4",
            "+0000000000000000003#4",
        ];
        for name in others {
            assert!(!is_unfinished_name(name), "{name}");
        }
    }

    #[test]
    fn names_of_records_sort_by_number() {
        let folder = Path::from("old_users");
        let names: Vec<_> = [1, 9, 10, u64::MAX]
            .into_iter()
            .map(|number| record_path(&folder, number))
            .collect();
        assert!(names.is_sorted());
        assert_eq!(
            names[2].as_ref(),
            "old_users/records/00000000000000000010.json"
        );
        for path in &names {
            assert!(record_number(path.filename().unwrap()).is_some());
        }
        for other in [
            "10.json",
            "00000000000000000000.json",
            "+0000000000000000010.json",
            "x",
        ] {
            assert_eq!(record_number(other), None, "{other}");
        }
    }
}
