//! `diff` command: compares two generations by their manifests.

use std::collections::HashSet;

use clap::Args;
use serde::Serialize;

use rtad_cli::command_error::CommandError;
use rtad_core::snapshot::{AudienceName, ChunkEntry, Manifest};

use super::context::{Output, Target, runtime};

/// Compare two generations: the chunks that differ, and the bytes a pod fetches to go from the
/// first to the second.
///
/// Reads two manifests and no chunks: a megabyte at most, at any size of the generations. Devices
/// cannot be compared, because snapshots do not hold them.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DiffArgs {
    #[command(flatten)]
    target: Target,
    /// First generation
    #[arg(value_name = "G1")]
    from: u64,
    /// Second generation
    #[arg(value_name = "G2")]
    to: u64,
}

#[derive(Debug, Serialize)]
struct DiffReport {
    audience: AudienceName,
    from: Side,
    to: Side,
    /// Keys of the second minus those of the first.
    keys_difference: i128,
    added: Chunks,
    removed: Chunks,
    unchanged: Chunks,
    /// Added chunks and the manifest.
    fetch_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Side {
    generation: u64,
    keys: u64,
    size_bytes: u64,
    chunks: usize,
}

#[derive(Debug, Default, Serialize)]
struct Chunks {
    chunks: usize,
    size_bytes: u64,
}

pub fn run(args: &DiffArgs, output: &Output) -> Result<(), CommandError> {
    let store = args.target.open()?;
    let audience = &args.target.audience;
    let report = runtime()?.block_on(async {
        let current = args.target.current(&store).await?;
        let old_entry = args.target.entry(&current, args.from)?;
        let old = store.manifest(audience, &old_entry).await?;

        let new_entry = args.target.entry(&current, args.to)?;
        let (new, file) = store.manifest_and_file(audience, &new_entry).await?;
        Ok::<_, CommandError>(DiffReport::new(&old, &new, file.len() as u64))
    })?;
    let headline = format!("{audience} from generation {} to {}", args.from, args.to);
    output.facts(&headline, &report)
}

impl Chunks {
    fn add(&mut self, entry: &ChunkEntry) {
        self.chunks += 1;
        self.size_bytes += entry.size_bytes;
    }
}

impl DiffReport {
    fn new(from: &Manifest, to: &Manifest, manifest_bytes: u64) -> Self {
        let old: HashSet<_> = from.chunks().iter().map(|entry| entry.digest).collect();
        let new: HashSet<_> = to.chunks().iter().map(|entry| entry.digest).collect();

        let mut added = Chunks::default();
        let mut removed = Chunks::default();
        let mut unchanged = Chunks::default();
        for entry in to.chunks() {
            if old.contains(&entry.digest) {
                unchanged.add(entry);
            } else {
                added.add(entry);
            }
        }
        for entry in from.chunks() {
            if !new.contains(&entry.digest) {
                removed.add(entry);
            }
        }

        Self {
            audience: to.audience().clone(),
            from: Side::of(from),
            to: Side::of(to),
            keys_difference: i128::from(to.keys()) - i128::from(from.keys()),
            fetch_bytes: added.size_bytes + manifest_bytes,
            added,
            removed,
            unchanged,
        }
    }
}

impl Side {
    fn of(manifest: &Manifest) -> Self {
        Self {
            generation: manifest.generation(),
            keys: manifest.keys(),
            size_bytes: manifest.size_bytes(),
            chunks: manifest.chunks().len(),
        }
    }
}
