//! Files to a bucket, and the end of old files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rtad_core::backoff::Backoff;
use rtad_core::error_chain::error_chain;
use rtad_log::folder::closed;
use rtad_log::read::LogReader;
use rtad_store::folder::{Folder, FolderFile};

use crate::config::LogConfig;
use crate::telemetry::{LogDrop, LogMetrics, LogStep};

/// Poll interval of the directory.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Most time of an upload.
const MOST_UPLOAD: Duration = Duration::from_secs(300);
/// Most time after a failed upload.
const MAX_PAUSE_SECONDS: u32 = 60;
/// Interval of the search for old files.
const RETENTION_INTERVAL: Duration = Duration::from_secs(600);

/// Uploads and deletes files on a thread of its own.
pub struct Uploads {
    folder: Folder,
    /// Directory of files that wait; `None` if the folder is a directory.
    spool: Option<PathBuf>,
    retention: Duration,
    max_size: u64,
    max_spool: u64,
    metrics: LogMetrics,
    is_stopping: Arc<AtomicBool>,
    runtime: tokio::runtime::Runtime,
}

impl Uploads {
    pub fn open(
        config: &LogConfig,
        metrics: LogMetrics,
        is_stopping: Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let is_directory = Folder::directory(&config.to).is_some();
        Ok(Self {
            folder: Folder::open(&config.to).map_err(std::io::Error::other)?,
            spool: (!is_directory).then(|| config.directory()),
            retention: config.retention,
            max_size: config.max_size,
            max_spool: config.max_spool,
            metrics,
            is_stopping,
            runtime,
        })
    }

    /// Runs until the log stops and no file waits, or until an upload fails while it stops.
    pub fn run(self) {
        let mut searched: Option<Instant> = None;
        let mut backoff = Backoff::new(MAX_PAUSE_SECONDS);
        loop {
            let is_stopping = self.is_stopping.load(Ordering::Acquire);
            let is_due = searched.is_none_or(|searched| searched.elapsed() >= RETENTION_INTERVAL);
            if is_due && !is_stopping {
                searched = Some(Instant::now());
                self.delete_old();
            }

            match self.upload() {
                Ok(true) => {
                    backoff.reset();
                    if is_stopping {
                        return;
                    }
                    self.wait(POLL_INTERVAL);
                }
                Ok(false) => backoff.reset(),
                Err(error) => {
                    self.metrics.failed(LogStep::Upload);
                    if is_stopping {
                        tracing::warn!(
                            error,
                            "decision log: an upload failed; its file waits for the next start"
                        );
                        return;
                    }
                    let pause = Duration::from_secs(backoff.fail().into());
                    tracing::warn!(error, "decision log: an upload failed; again in {pause:?}");
                    self.wait(pause);
                }
            }
        }
    }

    /// Waits for a time, or until the log stops.
    fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.is_stopping.load(Ordering::Acquire) {
            let rest = until.saturating_duration_since(Instant::now());
            std::thread::sleep(rest.min(POLL_INTERVAL));
        }
    }

    /// Uploads the oldest file that waits. Returns whether none is left.
    fn upload(&self) -> Result<bool, String> {
        let Some(spool) = &self.spool else {
            return Ok(true);
        };
        let files = self.within_spool(spool)?;
        let mut unreadable = None;
        for file in &files {
            let path = spool.join(file);
            match std::fs::read(&path) {
                // Files after it need not wait.
                Err(error) => unreadable = Some(format!("{}: {error}", file.display())),
                Ok(bytes) => {
                    self.put(bytes, &file.to_string_lossy())?;
                    // Killed before this, the next process puts the same file again.
                    std::fs::remove_file(&path).map_err(|error| error.to_string())?;
                    return Ok(files.len() == 1);
                }
            }
        }

        match unreadable {
            Some(error) => Err(error),
            None => Ok(true),
        }
    }

    /// Uploads a file.
    fn put(&self, bytes: Vec<u8>, name: &str) -> Result<(), String> {
        let put = async { tokio::time::timeout(MOST_UPLOAD, self.folder.put(name, bytes)).await };
        match self.runtime.block_on(put) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error_chain(&error)),
            Err(_) => Err(format!("{name}: not within {MOST_UPLOAD:?}")),
        }
    }

    /// The files that wait, the oldest first. Those over the limit are deleted.
    fn within_spool(&self, spool: &Path) -> Result<Vec<PathBuf>, String> {
        let io = |error: std::io::Error| error.to_string();
        let mut files = closed(spool).map_err(io)?;
        let mut sizes = Vec::with_capacity(files.len());
        let mut oldest = Duration::ZERO;
        for file in &files {
            let found = std::fs::metadata(spool.join(file)).map_err(io)?;
            let age = found.modified().map_err(io)?.elapsed().unwrap_or_default();
            oldest = oldest.max(age);
            sizes.push(found.len());
        }

        let mut total: u64 = sizes.iter().sum();
        let mut over = 0;
        while over < files.len() && total > self.max_spool {
            total -= sizes[over];
            over += 1;
        }
        for file in files.drain(..over) {
            let path = spool.join(&file);
            let rows = match LogReader::open(&path) {
                Ok(file) => file.rows(),
                Err(_) => {
                    self.metrics.failed(LogStep::Upload);
                    0
                }
            };
            std::fs::remove_file(&path).map_err(io)?;
            self.metrics.dropped(LogDrop::Upload, rows);
            tracing::warn!(
                rows,
                "decision log: a file over log.max_spool is deleted, not uploaded"
            );
        }
        self.metrics.waiting(files.len(), oldest);
        Ok(files)
    }

    fn delete_old(&self) {
        if let Err(error) = self.runtime.block_on(self.try_delete_old()) {
            self.metrics.failed(LogStep::Retention);
            tracing::warn!(error, "decision log: old files are not deleted");
        }
    }

    async fn try_delete_old(&self) -> Result<(), String> {
        let files = self
            .folder
            .list()
            .await
            .map_err(|error| error_chain(&error))?;
        let now = SystemTime::now();
        for file in surplus(files, now, self.retention, self.max_size) {
            self.folder
                .delete(&file.path)
                .await
                .map_err(|error| error_chain(&error))?;
            self.metrics.deleted();
        }
        Ok(())
    }
}

/// The files of a log that are too old, or over the size of all, the oldest first. Other files in
/// the folder are left alone.
fn surplus(
    mut files: Vec<FolderFile>,
    now: SystemTime,
    retention: Duration,
    max_size: u64,
) -> Vec<FolderFile> {
    files.retain(|file| file.path.starts_with("day=") && file.path.ends_with(".parquet"));
    files.sort_unstable_by_key(|file| file.modified);

    let mut total: u64 = files.iter().map(|file| file.bytes).sum();
    let mut surplus = Vec::new();
    for file in files {
        let age = now.duration_since(file.modified).unwrap_or_default();
        if age >= retention || total > max_size {
            total -= file.bytes;
            surplus.push(file);
        }
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    #[test]
    fn old_files_and_those_over_the_size_are_surplus() {
        let now = SystemTime::now();
        let hours = |hours: u64| now - Duration::from_secs(3600 * hours);
        let file = |path: &str, age| FolderFile {
            path: path.to_owned(),
            bytes: 10,
            modified: hours(age),
        };
        let files = || {
            vec![
                file("day=2026-11-26/a.parquet", 1),
                file("day=2026-11-24/a.parquet", 50),
                file("day=2026-11-25/a.parquet", 20),
                file("reports/a.parquet", 900),
                file("day=2026-11-24/a.txt", 900),
            ]
        };
        let found = |retention: u64, size| {
            let surplus = surplus(files(), now, Duration::from_secs(3600 * retention), size);
            surplus
                .into_iter()
                .map(|file| file.path)
                .collect::<Vec<_>>()
        };
        let rows = ["24", "25", "26"].map(|day| format!("day=2026-11-{day}/a.parquet"));
        assert_eq!(found(100, 30), Vec::<String>::new());
        assert_eq!(found(24, 30), rows[..1]);
        assert_eq!(found(100, 15), rows[..2]);
        assert_eq!(found(100, 9), rows);
    }

    fn uploads(to: &Path, spool: &Path, max_spool: u64, telemetry: &Telemetry) -> Uploads {
        Uploads {
            folder: Folder::open(to.to_str().unwrap()).unwrap(),
            spool: Some(spool.into()),
            retention: RETENTION_INTERVAL,
            max_size: 0,
            max_spool,
            metrics: telemetry.log_metrics(),
            is_stopping: Arc::default(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    #[test]
    fn files_of_an_outage_keep_their_limit_and_gauges() {
        let (to, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let no_directory = to.path().join("file");
        std::fs::write(&no_directory, "").unwrap();
        let telemetry = Telemetry::default();
        let uploads = uploads(&no_directory, spool.path(), 10, &telemetry);
        let written = |name: &str, age: u64| {
            let path = spool.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "bytes").unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        };
        let gauge = |name: &str| {
            let text = telemetry.render();
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.unwrap().trim().parse::<f64>().unwrap()
        };
        for (name, age, lag, left) in [
            ("a", 30, 30.0, "a"),
            ("b", 20, 30.0, "ab"),
            ("c", 60, 60.0, "bc"),
        ] {
            written(&format!("day=2026-11-26/{name}.parquet"), age);
            uploads.upload().unwrap_err();
            let expected = left
                .chars()
                .map(|name| format!("day=2026-11-26/{name}.parquet"));
            let expected: Vec<_> = expected.map(PathBuf::from).collect();
            assert_eq!(closed(spool.path()).unwrap(), expected);
            assert!(gauge("rtad_log_upload_lag_seconds") >= lag, "{name}");
            let waiting = format!("rtad_log_waiting_files {}\n", expected.len());
            assert!(telemetry.render().contains(&waiting), "{name}");
        }
    }

    /// A folder stands for a file that cannot be read.
    #[test]
    fn unreadable_file_holds_up_no_other() {
        let (to, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let uploads = uploads(to.path(), spool.path(), u64::MAX, &Telemetry::default());
        let day = spool.path().join("day=2026-11-26");
        std::fs::create_dir_all(day.join("a.parquet")).unwrap();
        std::fs::write(day.join("b.parquet"), "rows").unwrap();
        assert!(!uploads.upload().unwrap());
        assert!(to.path().join("day=2026-11-26/b.parquet").exists());
        assert!(uploads.upload().unwrap_err().contains("a.parquet"));
    }
}
