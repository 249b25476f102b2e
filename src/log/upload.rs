//! Files to a bucket, and the end of old files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rtad_core::backoff::Backoff;
use rtad_core::error_chain::error_chain;
use rtad_log::folder::{closed, origin_of};
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
/// After a gap longer than `log.retention`, the log goes on for this time, or for a quarter of the
/// retention, before older files are deleted: the gap may be one of this host's clock.
const MOST_TRIAL: Duration = Duration::from_secs(86_400);

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
        let mut files = closed(spool).map_err(text_of)?;
        files.retain(|file| origin_of(&file.to_string_lossy()).is_some());
        let mut sizes = Vec::with_capacity(files.len());
        let mut oldest = Duration::ZERO;
        for file in &files {
            let found = std::fs::metadata(spool.join(file)).map_err(text_of)?;
            let modified = found.modified().map_err(text_of)?;
            let age = modified.elapsed().unwrap_or_default();
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
            std::fs::remove_file(&path).map_err(text_of)?;
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
        let surplus = Surplus::of(files, SystemTime::now(), self.retention, self.max_size);
        if surplus.held > 0 {
            tracing::warn!(
                files = surplus.held,
                "decision log: old files are not deleted yet: the newest files of the folder and \
                 this host's clock are further apart than log.retention"
            );
        }

        let mut bytes = 0;
        for file in &surplus.files {
            self.folder
                .delete(&file.path)
                .await
                .map_err(|error| error_chain(&error))?;
            self.metrics.deleted();
            bytes += file.bytes;
        }
        if bytes > 0 {
            let files = surplus.files.len();
            tracing::info!(files, bytes, "decision log: old files deleted");
        }
        Ok(())
    }
}

fn text_of(error: std::io::Error) -> String {
    error.to_string()
}

/// Files of a log that are to be deleted. The newest file never is.
struct Surplus {
    /// Those that are too old, and the oldest of those over the size of all.
    files: Vec<FolderFile>,
    /// Number of files that are too old by a clock that may be wrong.
    held: usize,
}

/// A file with a name of the log.
struct NamedFile {
    file: FolderFile,
    began: SystemTime,
}

/// The age of a file that is from `time`; 0 if it is from the future.
fn age_at(now: SystemTime, time: SystemTime) -> Duration {
    now.duration_since(time).unwrap_or_default()
}

impl Surplus {
    fn of(files: Vec<FolderFile>, now: SystemTime, retention: Duration, max_size: u64) -> Self {
        let mut files = named(files);
        let trial = MOST_TRIAL.min(retention / 4);
        // The time of the change is by the clock of the bucket.
        let ages = files
            .iter()
            .map(|it| age_at(now, it.began.min(it.file.modified)));
        let longest = ages.filter(|age| *age < retention).max();
        let is_on_trial = longest.is_none_or(|age| age < trial);

        let mut total: u64 = files.iter().map(|it| it.file.bytes).sum();
        let mut surplus = Self {
            files: Vec::new(),
            held: 0,
        };
        files.pop();
        for NamedFile { file, began } in files {
            let is_old = age_at(now, began) >= retention;
            if total > max_size || is_old && !is_on_trial {
                total -= file.bytes;
                surplus.files.push(file);
            } else if is_old {
                surplus.held += 1;
            }
        }
        surplus
    }
}

/// The files with names of the log, the oldest first. All others in the folder are left alone.
fn named(files: Vec<FolderFile>) -> Vec<NamedFile> {
    let mut named = Vec::with_capacity(files.len());
    for file in files {
        if let Some(origin) = origin_of(&file.path) {
            let began = origin.began;
            named.push(NamedFile { file, began });
        }
    }
    named.sort_by_key(|it| it.began);
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Telemetry;

    /// The path of a file that a pod began hours ago.
    fn path_of(pod: &str, hours: u64) -> String {
        let began = SystemTime::now() - Duration::from_secs(3600 * hours);
        let path = rtad_log::folder::path_of(pod, began, 1);
        path.to_str().unwrap().to_owned()
    }

    fn file(path: String, hours: u64) -> FolderFile {
        FolderFile {
            path,
            bytes: 10,
            modified: SystemTime::now() - Duration::from_secs(3600 * hours),
        }
    }

    /// Indices of the files of pod `a`, by hours, that are surplus, and the number of held ones.
    fn surplus(files: &[FolderFile], retention: u64, max_size: u64) -> (Vec<usize>, usize) {
        let retention = Duration::from_secs(3600 * retention);
        let surplus = Surplus::of(files.to_vec(), SystemTime::now(), retention, max_size);
        let index = |file: &FolderFile| files.iter().position(|it| it == file).unwrap();
        (surplus.files.iter().map(index).collect(), surplus.held)
    }

    #[test]
    fn old_files_and_those_over_the_size_are_surplus() {
        let mut files = [50, 20, 1].map(|age| file(path_of("a", age), age)).to_vec();
        for path in [
            "reports/a.parquet",
            "day=2026-09-01/part-00000-spark.parquet",
        ] {
            files.push(file(path.to_owned(), 900));
        }
        assert_eq!(surplus(&files, 100, 30), (vec![], 0));
        assert_eq!(surplus(&files, 24, 30), (vec![0], 0));
        assert_eq!(surplus(&files, 100, 15), (vec![0, 1], 0));
        assert_eq!(surplus(&files, 100, 9), (vec![0, 1], 0), "never the newest");
        // Copied or restored: the name counts.
        files[0].modified = SystemTime::now();
        assert_eq!(surplus(&files, 24, 30), (vec![0], 0));
        // The last file of a pod that is no more.
        files[0] = file(path_of("b", 50), 50);
        assert_eq!(surplus(&files, 24, 30), (vec![0], 0));
    }

    /// As to a pod whose clock is ahead, or to the first one after a long break.
    #[test]
    fn nothing_is_deleted_by_a_clock_that_is_ahead_of_the_files() {
        let mut files: Vec<_> = [60, 50, 40]
            .map(|age| file(path_of("a", age), age))
            .to_vec();
        assert_eq!(surplus(&files, 24, 100), (vec![], 2));
        // The pod's own file, in the bucket by the true time, then by a wrong one.
        files.push(file(path_of("b", 10), 45));
        assert_eq!(surplus(&files, 24, 100), (vec![], 3));
        files[3] = file(path_of("b", 1), 1);
        assert_eq!(surplus(&files, 24, 100), (vec![], 3));
        // The log has gone on for a quarter of the retention.
        files.push(file(path_of("b", 7), 7));
        assert_eq!(surplus(&files, 24, 100), (vec![0, 1, 2], 0));
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
        let [first, second, third] = [30, 20, 10].map(|hours| path_of("a", hours));
        let foreign = spool.path().join("day=2026-11-26/a.parquet");
        std::fs::create_dir_all(foreign.parent().unwrap()).unwrap();
        std::fs::write(&foreign, "not a file of the log").unwrap();
        for (name, age, lag, left) in [
            (&first, 30, 30.0, vec![&first]),
            (&second, 20, 30.0, vec![&first, &second]),
            (&third, 60, 60.0, vec![&second, &third]),
        ] {
            written(name, age);
            uploads.upload().unwrap_err();
            let mut expected: Vec<_> = left.iter().map(PathBuf::from).collect();
            expected.push("day=2026-11-26/a.parquet".into());
            expected.sort_unstable();
            assert_eq!(closed(spool.path()).unwrap(), expected);
            assert!(gauge("rtad_log_upload_lag_seconds") >= lag, "{name}");
            let waiting = format!("rtad_log_waiting_files {}\n", left.len());
            assert!(telemetry.render().contains(&waiting), "{name}");
        }
    }

    /// A folder stands for a file that cannot be read.
    #[test]
    fn unreadable_file_holds_up_no_other() {
        let (to, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let uploads = uploads(to.path(), spool.path(), u64::MAX, &Telemetry::default());
        let [unreadable, readable] = [30, 20].map(|hours| path_of("a", hours));
        std::fs::create_dir_all(spool.path().join(&unreadable)).unwrap();
        std::fs::create_dir_all(spool.path().join(&readable).parent().unwrap()).unwrap();
        std::fs::write(spool.path().join(&readable), "rows").unwrap();
        assert!(!uploads.upload().unwrap());
        assert!(to.path().join(&readable).exists());
        assert!(uploads.upload().unwrap_err().contains(&unreadable));
    }
}
