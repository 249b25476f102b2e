//! The folder of the files: `day=2026-11-26/<pod>-<microseconds>-<random>.parquet`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use crate::write::{LogFile, OPEN, open_name};

/// Extension of the files.
const CLOSED: &str = "parquet";

/// Three times the longest `log.max_age`: a file of another pod is older only if its process was
/// killed.
const OTHERS_UNWRITTEN: Duration = Duration::from_secs(3 * 3600);

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
    let since = began
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or_default();
    let time = Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
    let day = time.strftime("%Y-%m-%d");
    PathBuf::from(format!(
        "day={day}/{}-{micros}-{random:08x}.{CLOSED}",
        in_names(pod)
    ))
}

/// The name of a pod in names of files.
fn in_names(pod: &str) -> String {
    pod.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-")
}

/// The closed files below a folder, as relative paths in the order of their names.
///
/// # Errors
///
/// The folder cannot be read. A folder that does not exist has no files.
pub fn closed(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = files(root)?;
    files.retain(|file| file.extension().is_some_and(|found| found == CLOSED));
    files.sort_unstable();
    Ok(files)
}

/// Removes files of killed processes, which cannot be read: those of this pod that were not written
/// to for a time, and those of others after three hours, as their `max_age` may be longer. The file
/// that the caller writes to is kept: after a jump of the clock it looks old.
///
/// # Errors
///
/// The folder cannot be read, or a file cannot be removed.
pub fn remove_remains(
    root: &Path,
    pod: &str,
    unwritten: Duration,
    written: Option<&LogFile>,
) -> io::Result<Remains> {
    let written = written.map(|file| open_name(file.path()));
    let own_start = format!(".{}-", in_names(pod));
    let mut remains = Remains::default();
    for file in files(root)? {
        if file.extension().is_none_or(|extension| extension != OPEN) {
            continue;
        }
        let file = root.join(file);
        if written.as_ref() == Some(&file) {
            continue;
        }

        // The time and the number of a file of this pod. The name of another may begin alike.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(&own_start);
        let is_own = rest.is_some_and(|rest| rest.split('-').count() == 2);
        let limit = if is_own { unwritten } else { OTHERS_UNWRITTEN };
        match remove_if_older(&file, limit) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                remains.files += 1;
                remains.bytes += bytes;
            }
            // Closed or removed by another pod.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(remains)
}

/// Removes a file that was not written to for this time. Returns its bytes.
fn remove_if_older(file: &Path, limit: Duration) -> io::Result<Option<u64>> {
    let found = fs::metadata(file)?;
    if found.modified()?.elapsed().is_ok_and(|age| age >= limit) {
        fs::remove_file(file)?;
        return Ok(Some(found.len()));
    }
    Ok(None)
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
        if !day.file_name().to_string_lossy().starts_with("day=") || !day.path().is_dir() {
            continue;
        }
        for file in fs::read_dir(day.path())? {
            files.push(Path::new(&day.file_name()).join(file?.file_name()));
        }
    }
    Ok(files)
}
