//! Files of flags that are written whole: reports, metrics and pictures.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_core::files::AtomicFile;

use super::error::CommonError;

/// Two flags with one file.
#[derive(Debug, thiserror::Error)]
#[error("{one} and {other} name the same file: expected two files, as each would overwrite it")]
pub struct SameFile {
    one: &'static str,
    other: &'static str,
}

impl CommandFailure for SameFile {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Usage
    }
}

/// Refuses two flags with the same regular file, by whatever names.
pub fn check_distinct(
    (one, path): (&'static str, Option<&Path>),
    (other, other_path): (&'static str, Option<&Path>),
) -> Result<(), SameFile> {
    let identity = path.and_then(FileIdentity::of);
    if identity.is_some() && identity == other_path.and_then(FileIdentity::of) {
        return Err(SameFile { one, other });
    }
    Ok(())
}

#[derive(PartialEq)]
enum FileIdentity {
    /// Device and inode.
    Existing(u64, u64),
    /// Folder and name of a file to create.
    New(PathBuf, OsString),
}

impl FileIdentity {
    /// `None` of a pipe or a device, which takes the bytes of both, and without a folder.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(found) = path.metadata() {
            return found
                .is_file()
                .then(|| Self::Existing(found.dev(), found.ino()));
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(Self::New(folder, path.file_name()?.to_owned()))
    }
}

/// Writes the file of a flag at once, as another program may read it at any time.
pub fn write_output(flag: &'static str, path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    write_whole(path, bytes).map_err(|source| CommonError::write_file(flag, path, source))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A pipe or a link, such as /dev/stderr, stays.
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let (aside, mut file) = create_aside(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    aside.publish(path)
}

/// Creates a file of a new name beside `path`. Any existing file may be an input.
fn create_aside(path: &Path) -> io::Result<(AtomicFile, File)> {
    // Readable by others: another program collects it.
    let mut options = File::options();
    options.write(true).create_new(true);
    let mut number = std::process::id();
    loop {
        let aside = path.with_file_name(format!("rtad-{number}.partial"));
        match AtomicFile::create(aside, &options) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                number = number.wrapping_add(1);
            }
            created => return created,
        }
    }
}
