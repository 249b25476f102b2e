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

/// The parts of a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOrigin {
    /// The pod, as names of files have it.
    pub pod: String,
    /// When the file was begun, by the clock of the pod.
    pub began: SystemTime,
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

/// The pod and the beginning of a file, by its path below the folder; `None` for every file that
/// [`path_of`] did not name.
pub fn origin_of(path: &str) -> Option<FileOrigin> {
    let (_, name) = path.split_once('/')?;
    let mut parts = name
        .strip_suffix(CLOSED)?
        .strip_suffix('.')?
        .rsplitn(3, '-');
    let random = u32::from_str_radix(parts.next()?, 16).ok()?;
    let micros = Duration::from_micros(parts.next()?.parse().ok()?);
    let pod = parts.next()?.to_owned();
    let began = SystemTime::UNIX_EPOCH.checked_add(micros)?;

    let is_ours = path_of(&pod, began, random) == Path::new(path);
    is_ours.then_some(FileOrigin { pod, began })
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
/// to for a time, and those of others after three hours, as their `max_age` may be longer. The time
/// is that up to the newest file of the folder: the clock of this host may be wrong. The file that
/// the caller writes to is kept.
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
    let pod = in_names(pod);
    let files = files(root)?;
    let newest = files.iter().filter_map(|file| modified(&root.join(file)));
    let Some(newest) = newest.max() else {
        return Ok(Remains::default());
    };

    let mut remains = Remains::default();
    for file in files {
        let Some(origin) = origin_of_open(&file) else {
            continue;
        };
        let file = root.join(file);
        if written.as_ref() == Some(&file) {
            continue;
        }

        let limit = if origin.pod == pod {
            unwritten
        } else {
            OTHERS_UNWRITTEN
        };
        match remove_if_older(&file, newest, limit) {
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

/// [`origin_of`] of a file that is written, by its hidden name.
fn origin_of_open(path: &Path) -> Option<FileOrigin> {
    let hidden_name = path.file_name()?.to_str()?;
    let name = hidden_name.strip_prefix('.')?.strip_suffix(OPEN)?;
    origin_of(path.with_file_name(name.strip_suffix('.')?).to_str()?)
}

/// The time of the last change of a file; `None` if it is gone.
fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

/// Removes a file that was not written to for this time before `newest`. Returns its bytes.
fn remove_if_older(file: &Path, newest: SystemTime, limit: Duration) -> io::Result<Option<u64>> {
    let found = fs::metadata(file)?;
    let age = newest.duration_since(found.modified()?);
    if age.is_ok_and(|age| age >= limit) {
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
