//! Errors of what a window is read from.

use std::io;
use std::path::PathBuf;

use crate::SpecError;

/// Segments, a table or a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A value of the spec is out of range, or there is no memory for the table.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file or directory could not be created, read, written or locked.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A table could not be read.
    #[error("{object}: {source}")]
    Read {
        /// The table.
        object: String,
        /// The cause.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error("{dir}: the directory is locked: another process has this window open")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory has events of a window that the store does not have.
    #[error(
        "{dir}: events that the store has not, and the store has no segment of the window: expected \
         the store of these events; remove the directory to begin an empty window without them"
    )]
    OtherStore {
        /// The directory.
        dir: PathBuf,
    },
    /// A segment or table of a window of another shape.
    #[error("{object}: a window of another shape: expected {expected}, found {found}")]
    Other {
        /// The segment, table or file.
        object: String,
        /// The window of the config.
        expected: String,
        /// The window of the object.
        found: String,
    },
    /// Content that no crash explains.
    #[error("{object}: damaged: {what}")]
    Damaged {
        /// The segment, table or file.
        object: String,
        /// The fault.
        what: &'static str,
    },
}

impl OpenError {
    /// Damage of a named object.
    pub(crate) fn damaged(object: &str, what: &'static str) -> Self {
        Self::Damaged {
            object: object.to_owned(),
            what,
        }
    }
}
