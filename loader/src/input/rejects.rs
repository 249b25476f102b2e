//! The rejects file: the rows that gave no key, for the owner of the dump to look into.
//!
//! One row per line: input, line number, reason, text, separated by tabs; a tab, line end or backslash in the
//! text is escaped by a backslash, other bytes are as they came, and a long text is cut. It holds what may be
//! device ids, so only its owner can read it. The rows of one input are in order within a block of about 1
//! MiB only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::Source;

/// Of a row that is longer, only this much is kept.
const MAX_TEXT_BYTES: usize = 1024;

/// Why a value gave no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It says "no id".
    Blank,
    /// It cannot be an id of its kind.
    Malformed,
    /// Its row is longer than 64 KiB.
    TooLong,
    /// Its row ends before its column.
    MissingColumn,
}

impl Reason {
    pub(crate) const ALL: [Self; 4] =
        [Self::Blank, Self::Malformed, Self::TooLong, Self::MissingColumn];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::MissingColumn => "missing_column",
        }
    }
}

/// A rejects file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RejectError {
    #[error("rejects file {path}: is one of the inputs, and would be overwritten")]
    IsInput { path: String },
    #[error("rejects file {path}: could not write it")]
    Write { path: String, source: io::Error },
}

/// A rejects file being written, by all parsers.
#[derive(Debug)]
pub(crate) struct Rejects {
    path: PathBuf,
    /// The first failure is kept for the end: parsers have nobody to tell.
    file: Mutex<Result<File, io::Error>>,
}

impl Rejects {
    /// Makes the file, or empties it, readable by its owner only. If `goes_on`, what is in it stays.
    pub(crate) fn create(
        path: &Path,
        sources: &[Source],
        goes_on: bool,
    ) -> Result<Self, RejectError> {
        let shown = || path.display().to_string();
        let place = path.canonicalize().ok();
        let same = |source: &Source| match source {
            Source::Stdin | Source::Remote(_) => false,
            Source::File(input) => place.is_some() && input.canonicalize().ok() == place,
        };
        if sources.iter().any(same) {
            return Err(RejectError::IsInput { path: shown() });
        }
        let file = open_private(path, goes_on)
            .map_err(|source| RejectError::Write { path: shown(), source })?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(Ok(file)) })
    }

    /// Writes the rows of a block, and empties `rows`.
    pub(super) fn write(&self, rows: &mut Vec<u8>) {
        if rows.is_empty() {
            return;
        }
        let mut file = self.file.lock().expect("nothing panics under this lock");
        if let Ok(open) = file.as_mut()
            && let Err(error) = open.write_all(rows)
        {
            *file = Err(error);
        }
        rows.clear();
    }

    /// Says whether everything was written.
    pub(crate) fn finish(self) -> Result<(), RejectError> {
        let file = self.file.into_inner().expect("nothing panics under this lock");
        let failed = |source| RejectError::Write { path: self.path.display().to_string(), source };
        file.map(drop).map_err(failed)
    }
}

fn open_private(path: &Path, goes_on: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(goes_on).truncate(!goes_on);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    if file.metadata()?.is_file() {
        // A file that was there already keeps its mode otherwise. A pipe or /dev/stdout is not ours to
        // change.
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Appends one row of the file to `rows`.
pub(super) fn append_row(rows: &mut Vec<u8>, input: &str, line: u64, reason: Reason, text: &[u8]) {
    append_escaped(rows, input.as_bytes());
    rows.extend_from_slice(format!("\t{line}\t{}\t", reason.as_str()).as_bytes());
    append_escaped(rows, &text[..text.len().min(MAX_TEXT_BYTES)]);
    rows.push(b'\n');
}

fn append_escaped(rows: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\t' => rows.extend_from_slice(b"\\t"),
            b'\n' => rows.extend_from_slice(b"\\n"),
            b'\r' => rows.extend_from_slice(b"\\r"),
            b'\\' => rows.extend_from_slice(b"\\\\"),
            byte => rows.push(*byte),
        }
    }
}
