//! Rejects file: the malformed rows, for the owner of the dump. Blank values are counted only.
//!
//! One row per line: input, line number, reason, text and column, separated by tabs. Tabs, line
//! ends and backslashes in the text are escaped by a backslash; a long text is truncated. The file
//! may hold device ids, so only its owner can read it. Rows are in order only within a block of
//! about 1 MiB.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use strum::VariantArray as _;

use rtad_core::device::Unusable;

use super::open::Source;

/// Longer texts are truncated.
const MAX_TEXT_BYTES: usize = 1024;

/// Why a value was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It means "no id".
    Blank,
    /// It is not an id of its kind.
    Malformed,
    /// Its row is longer than 64 KiB.
    TooLong,
    /// Its row has more or fewer cells than the first.
    RowLength,
    /// Its line leaves a quote open.
    OpenQuote,
    /// Its row has no value from 0 to 15.
    Value,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 6] = *Self::VARIANTS.as_array().expect("every variant");

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl From<Unusable> for Reason {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Blank => Self::Blank,
            Unusable::Malformed => Self::Malformed,
        }
    }
}

/// A file of a flag cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputFileError {
    #[error("{path}: is one of the inputs and would be overwritten")]
    IsInput { path: String },
    #[error("{path}: its folder does not exist")]
    NoFolder { path: String },
    #[error("{path}: is a link to a file that does not exist: expected a file, or a link to one")]
    LinkToNothing { path: String },
    #[error("{path}: could not write it")]
    Write { path: String, source: io::Error },
}

/// A file of ids, such as the rejects file, shared by all parsers.
#[derive(Debug)]
pub struct PrivateFile {
    path: PathBuf,
    /// The first failure is kept until [`finish`](Self::finish).
    file: Mutex<Result<File, io::Error>>,
}

impl PrivateFile {
    /// Creates the file, readable by its owner only.
    pub fn create(path: &Path, sources: &[Source]) -> Result<Self, OutputFileError> {
        check_output(path, sources)?;
        let file = open_private(path).map_err(|source| OutputFileError::Write {
            path: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(Ok(file)),
        })
    }

    /// Writes the rows of a block and clears `rows`.
    pub fn write(&self, rows: &mut Vec<u8>) {
        if rows.is_empty() {
            return;
        }
        let mut file = self.file.lock();
        if let Ok(open) = file.as_mut()
            && let Err(error) = open.write_all(rows)
        {
            *file = Err(error);
        }
        rows.clear();
    }

    /// Returns the first write failure, if any.
    pub fn finish(self) -> Result<(), OutputFileError> {
        match self.file.into_inner() {
            Ok(_) => Ok(()),
            Err(source) => Err(OutputFileError::Write {
                path: self.path.display().to_string(),
                source,
            }),
        }
    }
}

/// Refuses to write to one of the inputs, by whatever name, to a folder that does not exist, and
/// through a link that says nothing of what it creates.
fn check_output(path: &Path, sources: &[Source]) -> Result<(), OutputFileError> {
    let name = path.display().to_string();
    if let Some(output) = identity(path) {
        for source in sources {
            if identity_of(source) == Some(output) {
                return Err(OutputFileError::IsInput { path: name });
            }
        }
        return Ok(());
    }

    if path.is_symlink() {
        return Err(OutputFileError::LinkToNothing { path: name });
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(OutputFileError::NoFolder { path: name })
        }
        _ => Ok(()),
    }
}

/// The file of a source.
fn identity_of(source: &Source) -> Option<(u64, u64)> {
    let stdin = Path::new("/dev/stdin");
    match source {
        // A terminal may be read and written.
        Source::Stdin if stdin.is_file() => identity(stdin),
        Source::File(input) => identity(input),
        Source::Stdin | Source::Remote(_) | Source::Listed(_) | Source::Batches(_) => None,
    }
}

/// The file that a path leads to.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// Opens a file that only its owner can read, also if it existed with another mode.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        // An existing file keeps its mode otherwise. The mode of a pipe or /dev/stdout stays.
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// The origin of a line of the file.
#[derive(Debug, Clone, Copy)]
pub struct RowName<'a> {
    pub input: &'a str,
    pub line: u64,
    pub column: Option<&'a str>,
}

/// Appends one line of the file to `rows`.
pub fn append_row(rows: &mut Vec<u8>, row: RowName<'_>, reason: Reason, text: &[u8]) {
    let RowName {
        input,
        line,
        column,
    } = row;
    append_escaped(rows, input.as_bytes());
    rows.extend_from_slice(format!("\t{line}\t{}\t", reason.as_str()).as_bytes());
    append_escaped(rows, &text[..text.len().min(MAX_TEXT_BYTES)]);
    if let Some(column) = column {
        rows.push(b'\t');
        append_escaped(rows, column.as_bytes());
    }
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
