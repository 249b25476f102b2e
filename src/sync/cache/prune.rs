//! Removal of cached files that no record needs any more. Everything here blocks.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::is_unfinished_name;
use super::records::CachedRecords;
use rtad_core::snapshot::Current;
use rtad_store::layout;

/// Older half-written files are abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes all files but those of the newest whole generation, of the newest record, which is
/// perhaps being loaded, and the deltas of the records in between.
pub fn prune(records: &CachedRecords) -> io::Result<()> {
    // Before the records are read: another process writes a record before the files that it names.
    let listed = list(records.folder())?;
    let kept = kept(records);
    if kept.records.is_empty() {
        return Ok(());
    }

    let mut needed = HashSet::new();
    for record in &kept.records {
        needed.insert(layout::record_name(record.sequence));
        needed.extend(record.delta_entries().map(layout::delta_name));
    }
    // Generations in between were not whole, and will not be loaded: their chunks would fill the
    // disk.
    for record in kept.base.iter().chain(kept.records.last()) {
        needed.insert(layout::manifest_name(&record.live_entry()));
        // A generation that is being loaded has its manifest here before its first chunk.
        if let Some(manifest) = records.manifest(record) {
            needed.extend(manifest.chunks().iter().map(layout::chunk_name));
        }
    }

    for ListedFile {
        path,
        name,
        is_unfinished,
    } in listed
    {
        let is_needed = if is_unfinished {
            !is_abandoned(&path)
        } else {
            needed.contains(&name)
        };
        if is_needed {
            continue;
        }
        match std::fs::remove_file(&path) {
            // Removed by another process.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// A file of the cache.
struct ListedFile {
    path: PathBuf,
    name: String,
    /// Whether its write is not finished.
    is_unfinished: bool,
}

/// Whether a file of a folder has a name that the cache gives there.
type IsOurs = fn(&str) -> bool;

/// The files of an audience. Others in its folders are not the cache's.
fn list(folder: &Path) -> io::Result<Vec<ListedFile>> {
    let is_ours: [(&str, IsOurs); 4] = [
        ("records", |name| layout::record_number(name).is_some()),
        ("manifests", layout::is_manifest_name),
        ("chunks", layout::is_chunk_name),
        ("deltas", |name| layout::delta_sequence(name).is_some()),
    ];
    let mut files = Vec::new();
    for (part, is_ours) in is_ours {
        let entries = match std::fs::read_dir(folder.join(part)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let is_unfinished = is_unfinished_name(&name);
            if is_unfinished || is_ours(&name) {
                let path = entry.path();
                files.push(ListedFile {
                    path,
                    name,
                    is_unfinished,
                });
            }
        }
    }
    Ok(files)
}

/// The records that stay.
struct Kept {
    /// The newest whole one.
    base: Option<Current>,
    /// All of them, in order.
    records: Vec<Current>,
}

/// The record of the newest whole generation, and of the later ones those that a start applies. Of
/// records of one publish, the last one with its deltas has all changes of those before.
fn kept(records: &CachedRecords) -> Kept {
    let (base, later) = match records.last() {
        Some(state) => (Some(state.base), state.later),
        None => (None, records.read()),
    };
    let mut kept: Vec<Current> = Vec::new();
    for record in later {
        if records.has_deltas(&record) {
            let published = record.published_sequence();
            kept.retain(|before| before.published_sequence() != published);
        }
        kept.push(record);
    }
    kept.splice(0..0, base.clone());
    Kept {
        base,
        records: kept,
    }
}

/// Whether a file is older than [`ABANDONED`].
fn is_abandoned(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
}
