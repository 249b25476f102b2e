//! Removal of cached files that no record needs any more. Everything here blocks.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::is_unfinished_name;
use super::records::CachedRecords;
use rtad_core::snapshot::{Current, GenerationEntry, StagePlace};
use rtad_store::layout;

/// Older half-written files are abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes all files but those of at most two generations, and the deltas of the records in
/// between. The generations are the newest whole one and that of the newest record, which is
/// perhaps being loaded. If they are one, a stage's other generation stays: pods that share the
/// cache may serve it.
pub fn prune(records: &CachedRecords) -> io::Result<()> {
    // Before the records are read: another process writes a record before the files that it names.
    let listed = list(records.folder())?;
    let kept = kept(records);
    if kept.records.is_empty() {
        return Ok(());
    }

    let mut needed = HashSet::new();
    needed.extend(kept.names());
    for place in [StagePlace::FIRST, StagePlace::LAST] {
        needed.extend(others_names(records, place));
    }
    for entry in kept.generations(records) {
        needed.insert(layout::manifest_name(&entry));
        // A generation that is being loaded has its manifest here before its first chunk.
        if let Some(manifest) = records.manifest(&entry) {
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

impl Kept {
    /// The names of the records and of their deltas.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for record in &self.records {
            names.push(layout::record_name(record.sequence));
            names.extend(record.delta_entries().map(layout::delta_name));
        }
        names
    }

    /// The generations that stay, at most two: disks have room for two. Those in between were not
    /// whole, and will not be loaded.
    fn generations(&self, records: &CachedRecords) -> HashSet<GenerationEntry> {
        let mut entries = HashSet::new();
        for record in self.base.iter().chain(self.records.last()) {
            entries.insert(record.live_entry());
        }
        let newest = self.records.last();
        let newest = newest.and_then(|record| records.unplaced(record.sequence));
        if let Some(newest) = newest
            && entries.len() == 1
        {
            entries.insert(newest.live_entry());
            entries.extend(newest.staged.map(|staged| staged.entry));
        }
        entries
    }
}

/// The names of the records that a pod at this place has, if it shares the cache, and of their
/// deltas; none if no generation that it may serve is whole.
fn others_names(records: &CachedRecords, place: StagePlace) -> Vec<String> {
    let kept = kept(&records.seen_from(place));
    match kept.base {
        Some(_) => kept.names(),
        None => Vec::new(),
    }
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
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    let Ok(modified) = metadata.modified() else {
        return false;
    };
    modified.elapsed().is_ok_and(|age| age > ABANDONED)
}
