//! Files to a report, on several threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rtad_log::folder::closed;
use rtad_log::read::{LogReadError, LogReader};

use super::bodies::Snapshots;
use super::compare::Comparer;
use super::comparison::Comparison;
use super::report::Report;
use super::rules::Rules;
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
        let (mut files, mut rows) = (Vec::new(), 0);
        for path in paths {
            let found = if path.is_dir() {
                files_in(path)?
            } else {
                vec![path.clone()]
            };
            if found.is_empty() {
                return Err(ReplayError::NoFiles { path: path.clone() });
            }
            files.extend(found);
        }
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
    /// with what was answered. `snapshots` answer for rows with bodies. `progress` is called with a
    /// number of rows. Takes a thread per CPU; memory does not grow with the rows.
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
        snapshots: Option<&Snapshots>,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, ReplayError> {
        const STEP: u64 = 1 << 14;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let work = || -> Result<Comparison, ReplayError> {
            let rules = |assembly: &Assembly| Rules::new(assembly.plan());
            let mut comparer = Comparer::new(rules(after), before.map(rules), snapshots);
            while let Some(file) = self.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut rows = 0;
                LogReader::open(file)?.each(|row| {
                    comparer.row(row);
                    rows += 1;
                    if rows == STEP {
                        progress(std::mem::take(&mut rows));
                    }
                })?;
                progress(rows);
            }
            Ok(comparer.found)
        };
        let found = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.min(self.files.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let mut all = Comparison::default();
            for thread in threads {
                all.add(
                    thread
                        .join()
                        .expect("a thread of the replay does not panic")?,
                );
            }
            Ok::<_, ReplayError>(all)
        })?;
        Ok(Report::new(self.files.len(), found))
    }
}

/// The files of a folder: those in its folders of days, and those in it.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let failed = |source| ReplayError::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut files = closed(folder).map_err(failed)?;
    files.iter_mut().for_each(|file| *file = folder.join(&file));
    for file in std::fs::read_dir(folder).map_err(failed)? {
        let file = file.map_err(failed)?.path();
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
