//! Files to a report, on several threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rtad_cli::exit::{CommandFailure, ExitStatus};
use rtad_log::folder::closed;
use rtad_log::read::{LogReadError, LogReader};

use super::compare::Comparer;
use super::comparison::Comparison;
use super::report::Report;
use crate::serve::Assembly;

/// A replay that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A path has no files.
    #[error("{path} has no files of a decision log; accepted: such files, and folders of them",
        path = path.display())]
    NoFiles {
        /// The path.
        path: PathBuf,
    },
    /// A folder cannot be read.
    #[error("{path}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] LogReadError),
}

impl CommandFailure for ReplayError {
    fn exit(&self) -> ExitStatus {
        ExitStatus::Unexpected
    }
}

/// The files of a replay.
#[derive(Debug)]
pub struct Replay {
    files: Vec<PathBuf>,
    rows: u64,
}

impl Replay {
    /// The files at these paths, and in these folders.
    ///
    /// # Errors
    ///
    /// [`ReplayError`], also for a file that is no file of a log.
    pub fn open(paths: &[PathBuf]) -> Result<Self, ReplayError> {
        let mut files = Vec::new();
        for path in paths {
            let found = if path.is_dir() {
                files_in(path).map_err(|source| ReplayError::Folder {
                    path: path.clone(),
                    source,
                })?
            } else {
                vec![path.clone()]
            };
            if found.is_empty() {
                return Err(ReplayError::NoFiles { path: path.clone() });
            }
            files.extend(found);
        }

        let mut rows = 0;
        for file in &files {
            rows += LogReader::open(file)?.rows();
        }
        Ok(Self { files, rows })
    }

    /// Number of rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Decides about all rows under the configuration `after`, and compares with `before`, or else
    /// with what was answered. `progress` is called with a number of rows. Takes a thread per CPU;
    /// memory does not grow with the rows.
    ///
    /// # Errors
    ///
    /// A file that is broken.
    ///
    /// # Panics
    ///
    /// If a thread panics.
    pub fn run(
        &self,
        after: &Assembly,
        before: Option<&Assembly>,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, ReplayError> {
        let next_file = AtomicUsize::new(0);

        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let mut all = Comparison::default();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..count.min(self.files.len()) {
                threads.push(scope.spawn(|| {
                    let comparer = Comparer::new(after, before);
                    self.compare_next(&next_file, comparer, &progress)
                }));
            }
            for thread in threads {
                let found = thread
                    .join()
                    .expect("a thread of the replay does not panic");
                all.merge(found?);
            }
            Ok::<_, ReplayError>(())
        })?;
        Ok(Report::new(self.files.len(), all))
    }

    /// Compares files, each the next that no thread has taken, until none is left.
    fn compare_next(
        &self,
        next_file: &AtomicUsize,
        mut comparer: Comparer,
        progress: &impl Fn(u64),
    ) -> Result<Comparison, ReplayError> {
        while let Some(file) = self.files.get(next_file.fetch_add(1, Ordering::Relaxed)) {
            read_file(file, &mut comparer, progress)?;
        }
        Ok(comparer.found)
    }
}

/// Compares the rows of a file.
fn read_file(
    file: &Path,
    comparer: &mut Comparer,
    progress: &impl Fn(u64),
) -> Result<(), ReplayError> {
    const STEP: u64 = 1 << 14;
    let mut rows = 0;
    let reader = LogReader::open(file)?;
    comparer.begin_file(&reader.configs());

    reader.each(|row| {
        comparer.add_row(row);
        rows += 1;
        if rows == STEP {
            progress(std::mem::take(&mut rows));
        }
    })?;

    progress(rows);
    Ok(())
}

/// The files of a folder: those in its folders of days, and those in it.
fn files_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in closed(folder)? {
        files.push(folder.join(file));
    }
    for file in std::fs::read_dir(folder)? {
        let file = file?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            files.push(file);
        }
    }

    files.sort_unstable();
    Ok(files)
}
