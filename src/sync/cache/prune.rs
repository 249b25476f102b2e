//! Removal of cached files that no generation needs any more. Everything here blocks.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use super::files::read_at_most;
use super::signed::read_signed;
use rtad_core::snapshot::{AudienceName, Current, MAX_MANIFEST_BYTES, Manifest};
use rtad_store::Trust;

/// Older files of a load or a write are abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Removes all files but those of `served` and of a later generation that is being loaded: the
/// highest one, if its manifest is young. Deltas that `current` does not name are removed once they
/// are old.
pub fn prune(folder: &Path, served: &Manifest, current: &Current, trust: &Trust) -> io::Result<()> {
    let (mut chunks, mut manifests, mut removed_when_old) = (Vec::new(), Vec::new(), Vec::new());
    let mut signatures = Vec::new();
    let named = || {
        current
            .delta_entries()
            .map(|entry| entry.sha256.to_string())
    };
    let deltas: HashSet<String> = named().collect();
    // All names first: the manifest of every listed chunk is then on disk already.
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        match name.rsplit_once('.') {
            Some((digest, "chunk")) if is_hex(digest, 64) => chunks.push((digest.to_owned(), path)),
            Some((digest, "delta")) if deltas.contains(digest) => {}
            Some((delta, "minisig"))
                if delta
                    .strip_suffix(".delta")
                    .is_some_and(|digest| deltas.contains(digest)) => {}
            Some((delta, "minisig"))
                if delta
                    .strip_suffix(".delta")
                    .is_some_and(|digest| is_hex(digest, 64)) =>
            {
                removed_when_old.push(path);
            }
            Some((random, "tmp")) if is_hex(random, 16) => removed_when_old.push(path),
            Some((digest, "delta")) if is_hex(digest, 64) => removed_when_old.push(path),
            Some((manifest, "minisig")) => {
                let generation = manifest.strip_suffix(".json").and_then(generation_of);
                signatures.extend(generation.map(|generation| (generation, path.clone())));
            }
            Some((digits, "json")) => {
                if let Some(generation) = generation_of(digits)
                    && is_manifest(&path, served.audience(), generation)
                {
                    manifests.push((generation, path));
                }
            }
            _ => {}
        }
    }
    let mut needed: HashSet<String> = names_of(served).collect();
    manifests.retain(|(generation, _)| *generation != served.generation());
    manifests.sort_unstable();
    let later = manifests
        .pop_if(|(generation, path)| *generation > served.generation() && !is_abandoned(path))
        .and_then(|(generation, path)| {
            let name = format!("{generation}.json");
            let file = read_signed(path.parent()?, &name, MAX_MANIFEST_BYTES, trust).ok()?;
            trust
                .check_manifest(served.audience(), generation, &file)
                .ok()?;
            Manifest::parse(&file.bytes, served.audience(), generation).ok()
        });
    let kept = [
        Some(served.generation()),
        later.as_ref().map(Manifest::generation),
    ];
    // A young signature without its manifest belongs to a load that has just begun.
    let unneeded_signatures = signatures
        .into_iter()
        .filter(|(generation, path)| {
            !kept.contains(&Some(*generation))
                && (*generation <= served.generation() || is_abandoned(path))
        })
        .map(|(_, path)| path);
    needed.extend(later.iter().flat_map(names_of));
    let unneeded = chunks
        .into_iter()
        .filter(|(digest, _)| !needed.contains(digest))
        .map(|(_, path)| path);
    let abandoned = removed_when_old
        .into_iter()
        .filter(|path| is_abandoned(path));
    let unneeded = unneeded.chain(unneeded_signatures);
    for path in unneeded
        .chain(manifests.into_iter().map(|(_, path)| path))
        .chain(abandoned)
    {
        match std::fs::remove_file(path) {
            // Removed by another process.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Whether it is the part of a name that the cache makes of a digest or a random number.
fn is_hex(text: &str, length: usize) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == length && text.bytes().all(is_digit)
}

/// The generation in the name of a manifest.
fn generation_of(digits: &str) -> Option<u64> {
    let generation: u64 = digits.parse().ok()?;
    (generation.to_string() == digits).then_some(generation)
}

/// Whether a file is the manifest that its name says: a date is a number too.
fn is_manifest(path: &Path, audience: &AudienceName, generation: u64) -> bool {
    let bytes = read_at_most(path, MAX_MANIFEST_BYTES);
    bytes.is_ok_and(|bytes| Manifest::parse(&bytes, audience, generation).is_ok())
}

fn names_of(manifest: &Manifest) -> impl Iterator<Item = String> {
    manifest
        .chunks()
        .iter()
        .map(|entry| entry.digest.to_string())
}

/// Whether a file is older than [`ABANDONED`].
fn is_abandoned(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
}
