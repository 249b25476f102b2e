//! Files of the cache: staged, renamed, and read with a limit. Everything here blocks.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::errors::CacheErrors;
use rtad_core::random;
use rtad_core::snapshot::{ChunkError, ChunkReader};

/// Bytes per read of a chunk.
const READ_BYTES: usize = 1 << 20;

/// A new file with a random name: processes of two containers may have the same id.
pub(super) fn stage(folder: &Path) -> io::Result<(File, PathBuf)> {
    let path = folder.join(format!("{:016x}.tmp", random::number()));
    // Deltas are lists of md5s: readable by this user alone.
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

/// Reads a file of at most `limit` bytes.
pub(super) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Reads a chunk's file and verifies it like one from the store. A damaged file is deleted.
pub(super) fn verified<R: ChunkReader>(
    path: &Path,
    mut reader: R,
    errors: &CacheErrors,
) -> Option<R::Verified> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            errors.report(path, &Err(error));
            return None;
        }
    };
    let mut piece = vec![0; READ_BYTES];
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
                errors.report(path, &Err(error));
                return None;
            }
        }
    };
    // A lack of memory says nothing about the file.
    if !matches!(refused, ChunkError::Memory { .. }) {
        errors.delete_damaged(path, &refused);
    }
    None
}
