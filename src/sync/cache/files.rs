//! The cache's files: read whole and verified, written beside and renamed, removed when nobody needs them.
//!
//! Everything here blocks.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::signed::read_signed;
use crate::telemetry::Telemetry;
use rtad_core::snapshot::{ChunkError, ChunkReader, Current, MAX_MANIFEST_BYTES, Manifest};
use rtad_store::{ByteSink, SignatureError, Trust};

/// Read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Who has been loading or writing for longer is no longer there.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What to do with failures: count them all, tell one.
#[derive(Debug)]
pub(super) struct Trouble {
    telemetry: Arc<Telemetry>,
    told: AtomicBool,
}

impl Trouble {
    pub(super) const fn new(telemetry: Arc<Telemetry>) -> Self {
        Self { telemetry, told: AtomicBool::new(false) }
    }

    /// A failure to read or write, if it is one.
    pub(super) fn tell(&self, path: &Path, result: &io::Result<()>) {
        let Err(error) = result else { return };
        self.telemetry.cache_error();
        // A full disk fails every chunk.
        if !self.told.swap(true, Ordering::Relaxed) {
            let (path, error) = (path.display().to_string(), error.to_string());
            tracing::warn!(
                path,
                error,
                "the cache fails; all else goes on, and this is not said again"
            );
        }
    }

    /// A file that is not what it should be: it is deleted.
    pub(super) fn distrust(&self, path: &Path, error: &dyn std::error::Error) {
        self.telemetry.cache_error();
        let (shown, error) = (path.display().to_string(), error.to_string());
        tracing::warn!(path = shown, error, "a file of the cache is damaged: it is deleted");
        let _ = std::fs::remove_file(path);
    }

    /// A file that nobody vouches for. It stays: another process, or this one with another configuration, may know its signer.
    pub(super) fn doubt(&self, path: &Path, error: &SignatureError) {
        self.telemetry.cache_error();
        let (shown, error) = (path.display().to_string(), error.to_string());
        tracing::warn!(path = shown, error, "a manifest of the cache is not used");
    }
}

/// A chunk's copy under way. Dropped without [`Copy::keep`] it leaves nothing.
#[derive(Debug)]
pub(in crate::sync) struct Copy {
    folder: PathBuf,
    name: String,
    trouble: Arc<Trouble>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The file is made with its first bytes, on the blocking pool.
    New,
    Open(File, PathBuf),
    Failed(io::Error),
    Kept,
}

impl Copy {
    pub(super) fn new(folder: PathBuf, name: String, trouble: &Arc<Trouble>) -> Self {
        Self { folder, name, trouble: Arc::clone(trouble), state: State::New }
    }

    /// The chunk was verified, so the copy is right: it appears in the cache.
    ///
    /// # Errors
    ///
    /// Why there is no copy. Whoever can do without may ignore it: it has been counted.
    pub(in crate::sync) fn keep(mut self) -> io::Result<()> {
        if let State::Open(_, staged) = &self.state {
            let renamed = std::fs::rename(staged, self.folder.join(&self.name));
            self.trouble.tell(&self.folder, &renamed);
            match renamed {
                Ok(()) => self.state = State::Kept,
                Err(error) => self.give_up(error),
            }
        }
        match std::mem::replace(&mut self.state, State::Kept) {
            State::Failed(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if matches!(self.state, State::New) {
            let (file, staged) = stage(&self.folder)?;
            self.state = State::Open(file, staged);
        }
        match &mut self.state {
            State::Open(file, _) => file.write_all(bytes),
            _ => Ok(()),
        }
    }

    fn give_up(&mut self, error: io::Error) {
        if let State::Open(_, staged) = std::mem::replace(&mut self.state, State::Failed(error)) {
            let _ = std::fs::remove_file(staged);
        }
    }
}

impl ByteSink for Copy {
    fn take(&mut self, bytes: &[u8]) {
        let appended = self.append(bytes);
        self.trouble.tell(&self.folder, &appended);
        if let Err(error) = appended {
            self.give_up(error);
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.give_up(ErrorKind::Interrupted.into());
    }
}

/// A new file that nobody else knows. By a random name: processes of two containers may have the same number.
fn stage(folder: &Path) -> io::Result<(File, PathBuf)> {
    let random = RandomState::new().build_hasher().finish();
    let path = folder.join(format!("{random:016x}.tmp"));
    // Deltas are lists of md5s: for nobody else.
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok((options.open(&path)?, path))
}

/// Writes a small file in one step.
pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (mut file, staged) = stage(folder)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&staged, folder.join(name)));
    if written.is_err() {
        let _ = std::fs::remove_file(staged);
    }
    written
}

/// A small file, if it is one.
pub(super) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// What a reader makes of a chunk's file, which is verified as if it came from the store; deleted if it is not right.
pub(super) fn verified<R: ChunkReader>(
    path: &Path,
    mut reader: R,
    trouble: &Trouble,
) -> Option<R::Verified> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            trouble.tell(path, &Err(error));
            return None;
        }
    };
    let mut piece = vec![0; PIECE_BYTES];
    let refused = loop {
        match file.read(&mut piece) {
            Ok(0) => match reader.finish() {
                Ok(verified) => return Some(verified),
                Err(error) => break error,
            },
            Ok(read) => match reader.feed(&piece[..read]) {
                Ok(()) => {}
                Err(error) => break error,
            },
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                trouble.tell(path, &Err(error));
                return None;
            }
        }
    };
    // Without memory nothing was found out about the file.
    if !matches!(refused, ChunkError::Memory { .. }) {
        trouble.distrust(path, &refused);
    }
    None
}

/// Removes what neither `served` needs nor a later generation that somebody is loading: the highest of those whose manifest
/// is not old. Deltas that `current` does not name go when they are old.
pub(super) fn prune(
    folder: &Path,
    served: &Manifest,
    current: &Current,
    trust: &Trust,
) -> io::Result<()> {
    let (mut chunks, mut manifests, mut staged) = (Vec::new(), Vec::new(), Vec::new());
    let mut signatures = Vec::new();
    let named =
        || current.deltas.iter().chain(&current.tombstones).map(|entry| entry.sha256.to_string());
    let deltas: HashSet<String> = named().collect();
    // All names first: a chunk that is among them has its manifest there already.
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        match name.rsplit_once('.') {
            Some((digest, "chunk")) => chunks.push((digest.to_owned(), path)),
            Some((digest, "delta")) if deltas.contains(digest) => {}
            Some((delta, "minisig"))
                if delta.strip_suffix(".delta").is_some_and(|digest| deltas.contains(digest)) => {}
            Some((delta, "minisig")) if delta.ends_with(".delta") => staged.push(path),
            Some((_, "tmp" | "delta")) => staged.push(path),
            Some((manifest, "minisig")) => {
                let generation =
                    manifest.strip_suffix(".json").and_then(|digits| digits.parse::<u64>().ok());
                signatures.extend(generation.map(|generation| (generation, path.clone())));
            }
            Some((generation, "json")) => {
                manifests.extend(
                    generation.parse::<u64>().ok().map(|generation| (generation, path.clone())),
                );
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
            trust.check_manifest(served.audience(), generation, &file).ok()?;
            Manifest::parse(&file.bytes, served.audience(), generation).ok()
        });
    let kept = [Some(served.generation()), later.as_ref().map(Manifest::generation)];
    // One without its manifest is of a load that has just begun.
    let unneeded_signatures = signatures
        .into_iter()
        .filter(|(generation, path)| {
            !kept.contains(&Some(*generation))
                && (*generation <= served.generation() || is_abandoned(path))
        })
        .map(|(_, path)| path);
    needed.extend(later.iter().flat_map(names_of));
    let unneeded =
        chunks.into_iter().filter(|(digest, _)| !needed.contains(digest)).map(|(_, path)| path);
    let abandoned = staged.into_iter().filter(|path| is_abandoned(path));
    let unneeded = unneeded.chain(unneeded_signatures);
    for path in unneeded.chain(manifests.into_iter().map(|(_, path)| path)).chain(abandoned) {
        match std::fs::remove_file(path) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

fn names_of(manifest: &Manifest) -> impl Iterator<Item = String> {
    manifest.chunks().iter().map(|entry| entry.digest.to_string())
}

fn is_abandoned(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED))
}
