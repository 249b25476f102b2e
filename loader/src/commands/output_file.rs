//! Files of flags that are written whole: reports and metrics.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use rtad_cli::command_error::CommandError;
use rtad_core::files::AtomicFile;

use super::error::CommonError;

/// Writes the file of a flag at once, as another program may read it at any time.
pub(super) fn write_output(
    flag: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<(), CommandError> {
    write_whole(path, bytes).map_err(|source| CommonError::write_file(flag, path, source))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A pipe or a link, such as /dev/stderr, stays.
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    // Readable by others: another program collects it.
    let (aside, mut file) = AtomicFile::create(
        partial.into(),
        File::options().write(true).create(true).truncate(true),
    )?;
    file.write_all(bytes)?;
    file.sync_all()?;
    aside.publish(path)
}
