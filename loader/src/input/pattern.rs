//! Patterns of paths, such as `dumps/*.gz`: the paths that match them.
//!
//! Names that begin with `_` or `.` are left out, as Hive and Spark do: `_SUCCESS`, `_temporary`
//! and `.part.crc` are no rows, and the files of `_temporary` are those of a job that has not
//! ended.

use std::io;
use std::path::{Path, PathBuf};

use glob::Pattern;

use super::error::InputError;

/// Characters that make a path a pattern.
pub const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Paths that match a pattern, sorted. A name that is not UTF-8 matches by its text with
/// replacement characters; `glob::glob` leaves out such files.
pub fn matches(pattern: &str) -> Result<Vec<PathBuf>, InputError> {
    let mut root = "";
    let mut rest = pattern;
    if let Some(below_root) = pattern.strip_prefix('/') {
        root = "/";
        rest = below_root;
    }
    let mut parts = Vec::new();
    for part in rest.split('/') {
        parts.push(Pattern::new(part).map_err(|source| InputError::Pattern {
            input: pattern.to_owned(),
            source,
        })?);
    }

    let mut found = Vec::new();
    add_matches(Path::new(root), &parts, &mut found)?;
    found.sort_unstable();
    // Two `**` find a path in several ways.
    found.dedup();
    Ok(found)
}

/// The files below a folder, sorted by name, as `**` finds them in it.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let all = Pattern::new("**").expect("it is a pattern");
    let mut found = Vec::new();
    add_matches(folder, &[all], &mut found)?;
    found.retain(|path| !path.is_dir());
    found.sort_unstable_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    Ok(found)
}

fn add_matches(
    folder: &Path,
    parts: &[Pattern],
    found: &mut Vec<PathBuf>,
) -> Result<(), InputError> {
    let [part, rest @ ..] = parts else {
        found.push(folder.to_owned());
        return Ok(());
    };
    let is_recursive = part.as_str() == "**";
    if !part.as_str().contains(WILDCARDS) {
        let path = folder.join(part.as_str());
        return match path.symlink_metadata() {
            Ok(_) => add_matches(&path, rest, found),
            Err(error) => unreadable(&path, error),
        };
    }

    if is_recursive {
        add_matches(folder, rest, found)?;
    }
    let listed = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = match listed.read_dir() {
        Ok(entries) => entries,
        Err(error) => return unreadable(listed, error),
    };

    for entry in entries {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) => return unreadable(listed, error),
        };
        let shown = name.to_string_lossy();
        if is_left_out(&shown, part) {
            continue;
        }

        let path = folder.join(&name);
        if is_recursive && path.is_dir() {
            add_matches(&path, parts, found)?;
        } else if is_recursive && rest.is_empty() {
            found.push(path);
        } else if !is_recursive && part.matches(&shown) {
            add_matches(&path, rest, found)?;
        }
    }
    Ok(())
}

/// An error, unless a path does not exist: then nothing matches.
fn unreadable(path: &Path, source: io::Error) -> Result<(), InputError> {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(()),
        _ => Err(InputError::Open {
            input: path.display().to_string(),
            source,
        }),
    }
}

/// Whether a name is one of another program's own. A folder such as `_day=24` is a partition, with
/// rows.
pub fn is_of_program(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('_') && !name.contains('=')
}

/// Whether a name is left out, unless the pattern's part begins with the same character.
fn is_left_out(name: &str, part: &Pattern) -> bool {
    is_of_program(name) && part.as_str().bytes().next() != name.bytes().next()
}
