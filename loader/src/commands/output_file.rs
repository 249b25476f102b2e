//! Files of flags that are written whole: reports.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use rtad_cli::command_error::CommandError;
use rtad_core::files::AtomicFile;

use super::error::CommonError;

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
