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
    let (from, to, manifest_bytes) = runtime()?.block_on(async {
        let current = args.target.current(&store).await?;
        let from = args.target.entry(&current, args.from)?;
        let from = store.manifest(audience, &from).await?;
        let to = args.target.entry(&current, args.to)?;
        let (to, bytes) = store.manifest_and_file(audience, &to).await?;
        Ok::<_, CommandError>((from, to, bytes.len() as u64))
    })?;
    let report = DiffReport::new(&from, &to, manifest_bytes);
    let headline = format!("{audience} from generation {} to {}", args.from, args.to);
    output.facts(&headline, &report)
}

impl Chunks {
    fn of<'a>(entries: impl Iterator<Item = &'a ChunkEntry>) -> Self {
        entries.fold(Self::default(), |sum, entry| Self {
            chunks: sum.chunks + 1,
            size_bytes: sum.size_bytes + entry.size_bytes,
        })
    }
}

impl DiffReport {
    fn new(from: &Manifest, to: &Manifest, manifest_bytes: u64) -> Self {
        let digests = |manifest: &Manifest| {
            manifest
                .chunks()
                .iter()
                .map(|entry| entry.digest)
                .collect::<HashSet<_>>()
        };
        let (old, new) = (digests(from), digests(to));
        let added = Chunks::of(
            to.chunks()
                .iter()
                .filter(|entry| !old.contains(&entry.digest)),
        );
        let removed = Chunks::of(
            from.chunks()
                .iter()
                .filter(|entry| !new.contains(&entry.digest)),
        );
        let unchanged = Chunks::of(
            to.chunks()
                .iter()
                .filter(|entry| old.contains(&entry.digest)),
        );
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
