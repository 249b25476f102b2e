//! Files of the cache: written under another name, renamed, and read with a limit. Everything here
//! blocks.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use super::errors::CacheErrors;
use rtad_core::files::{AtomicFile, open_regular, private};
use rtad_core::random;
use rtad_core::snapshot::{ChunkError, ChunkReader};
use rtad_store::layout;

/// Bytes per read of a chunk.
const READ_BYTES: usize = 1 << 20;

/// A new file with a random name beside `path`, whose folder is created: processes of two
/// containers may have the same id. Only this user can read it, as deltas are lists of md5s.
pub fn create_unfinished(path: &Path) -> io::Result<(AtomicFile, File)> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)?;
    let aside = folder.join(format!("{:016x}.tmp", random::number()));
    AtomicFile::create(aside, private().create_new(true))
}

/// Whether a file has the name of an unfinished one.
pub fn is_unfinished_name(name: &str) -> bool {
    let random = name.strip_suffix(".tmp");
    random.is_some_and(|random| layout::is_hex(random, 16))
}

/// Writes a small file in one step. Files of the cache are verified when they are read, so that
/// none is synced.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (aside, mut file) = create_unfinished(path)?;
    file.write_all(bytes)?;
    aside.publish(path)
}

/// Reads a file of at most `limit` bytes.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(limit + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(ErrorKind::FileTooLarge.into())
    } else {
        Ok(bytes)
    }
}

/// Reads a chunk's file and verifies it like one from the store. A damaged file is deleted.
pub fn verified<R: ChunkReader>(
    path: &Path,
    mut reader: R,
    errors: &CacheErrors,
) -> Option<R::Verified> {
    let mut file = match open_regular(path) {
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
