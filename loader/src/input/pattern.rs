//! Patterns of paths, such as `dumps/*.gz`: the paths that match them.

use std::io;
use std::path::{Component, Path, PathBuf};

use glob::Pattern;

use super::error::InputError;

/// Characters that make a path a pattern.
pub const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Paths that match a pattern, sorted. A name that is not UTF-8 matches by its text with
/// replacement characters; `glob::glob` leaves out such files.
pub fn matches(pattern: &str) -> Result<Vec<PathBuf>, InputError> {
    let (root, rest) = match pattern.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", pattern),
    };
    let parts: Result<Vec<_>, _> = rest.split('/').map(Pattern::new).collect();
    let parts = parts.map_err(|source| InputError::Pattern {
        input: pattern.to_owned(),
        source,
    })?;
    let mut found = Vec::new();
    add_matches(Path::new(root), &parts, &mut found)?;
    found.sort_unstable();
    // Two `**` find a path in several ways.
    found.dedup();
    Ok(found)
}

fn add_matches(
    folder: &Path,
    parts: &[Pattern],
    found: &mut Vec<PathBuf>,
) -> Result<(), InputError> {
    let failed = |path: &Path, source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(()),
        _ => Err(InputError::Open {
            input: path.display().to_string(),
            source,
        }),
    };
    let [part, rest @ ..] = parts else {
        found.push(folder.to_owned());
        return Ok(());
    };
    let is_recursive = part.as_str() == "**";
    if !part.as_str().contains(WILDCARDS) {
        let path = folder.join(part.as_str());
        return match path.symlink_metadata() {
            Ok(_) => add_matches(&path, rest, found),
            Err(error) => failed(&path, error),
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
        Err(error) => return failed(listed, error),
    };
    for entry in entries {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) => return failed(listed, error),
        };
        let path = folder.join(&name);
        if is_recursive && path.is_dir() {
            add_matches(&path, parts, found)?;
        } else if !is_recursive && part.matches(&name.to_string_lossy()) {
            add_matches(&path, rest, found)?;
        }
    }
    Ok(())
}

/// Whether a match is a hidden file, or within a hidden directory, that the pattern does not name
/// with its dot, as in a shell. Editors and macOS leave such files.
pub fn is_hidden(found: &Path, pattern: &str) -> bool {
    let dotted = || pattern.split('/').filter(|part| part.starts_with('.'));
    let is_named =
        |name: &str| dotted().any(|part| Pattern::new(part).is_ok_and(|part| part.matches(name)));
    let names = found.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    names
        .filter(|name| name.starts_with('.'))
        .any(|name| !is_named(&name))
}
