//! The folder of the files: `day=2026-11-26/<pod>-<microseconds>-<random>.parquet`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::write::{LogFile, OPEN, open_name};

/// Extension of the files.
const CLOSED: &str = "parquet";

/// Files of killed processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remains {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The path of a file of this pod below the folder, in the UTC day of its beginning. `random` keeps
/// apart files of one name after a clock was set back.
pub fn path_of(pod: &str, began: SystemTime, random: u32) -> PathBuf {
    let since = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or_default();
    let time = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
    let name = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let pod: String = pod.chars().map(name).collect();
    let day = time.strftime("%Y-%m-%d");
    PathBuf::from(format!("day={day}/{pod}-{micros}-{random:08x}.{CLOSED}"))
}

/// The closed files below a folder, as relative paths in the order of their names.
///
/// # Errors
///
/// The folder cannot be read. A folder that does not exist has no files.
pub fn closed(root: &Path) -> io::Result<Vec<PathBuf>> {
    files_of(root, CLOSED)
}

/// The files with this extension in the folders of days below a folder, as relative paths in the
/// order of their names.
///
/// # Errors
///
/// The folder cannot be read. A folder that does not exist has no files.
pub fn files_of(root: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = files(root)?;
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort_unstable();
    Ok(files)
}

/// Removes files that were not written to for a time: their process was killed, and they cannot be
/// read. The file that the caller writes to is kept: after a jump of the clock it looks old.
///
/// # Errors
///
/// The folder cannot be read, or a file cannot be removed.
pub fn remove_remains(
    root: &Path,
    unwritten: Duration,
    written: Option<&LogFile>,
) -> io::Result<Remains> {
    let written = written.map(|file| open_name(file.path()));
    let mut remains = Remains::default();
    for file in files(root)? {
        if file.extension().is_none_or(|extension| extension != OPEN) {
            continue;
        }
        let file = root.join(file);
        if written.as_ref() == Some(&file) {
            continue;
        }
        let found = fs::metadata(&file)?;
        if found.modified()?.elapsed().is_ok_and(|age| age >= unwritten) {
            fs::remove_file(&file)?;
            remains.files += 1;
            remains.bytes += found.len();
        }
    }
    Ok(remains)
}

/// The files in the folders of days.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for day in entries {
        let day = day?;
        if !day.file_name().to_string_lossy().starts_with("day=") || !day.file_type()?.is_dir() {
            continue;
        }
        for file in fs::read_dir(day.path())? {
            files.push(Path::new(&day.file_name()).join(file?.file_name()));
        }
    }
    Ok(files)
}
