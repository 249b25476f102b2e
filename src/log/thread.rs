//! The log's thread: rings to files.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rtad_core::backoff::Backoff;
use rtad_core::error_chain::error_chain;
use rtad_core::files::{read_regular, read_settled};
use rtad_core::random;
use rtad_log::write::{Closed, LogFile, WriteError};
use rtad_log::{LoggedConfig, folder};
use rtrb::{Consumer, RingBuffer};

use super::key::LogKey;
use super::tap::{Allowance, LENGTH, LogFilter, LogTap};
use super::upload::Uploads;
use crate::config::{Config, LEAST_SECRET, LogConfig};
use crate::telemetry::{LogDrop, LogMetrics, LogStep, Telemetry};

/// Sleep of the thread when all rings are empty: a ring holds many times the rows of it.
const PAUSE: Duration = Duration::from_millis(20);
/// Niceness of the thread: still a tenth of a core that is busy.
const NICE: i32 = 10;
/// Memory per worker for rows on their way to the file. Half of it is the largest row.
const RING_BYTES: usize = 4 << 20;
/// Size at which a file is closed.
const MAX_FILE: u64 = 64 << 20;
/// Rows that are taken from one ring before the next.
const ROWS_PER_RING: usize = 1024;
/// Configs that are remembered: those of the rows in the rings and in the open file. Further ones
/// are missing from the file if as many reloads happen within its age.
const MAX_CONFIGS: usize = 64;
/// Most time after a failed write in which rows are dropped.
const MAX_PAUSE_SECONDS: u32 = 30;

/// The decision log of a pod.
#[derive(Debug)]
pub struct DecisionLog {
    filter: Arc<LogFilter>,
    key: Arc<ArcSwap<LogKey>>,
    metrics: LogMetrics,
    allowance: Arc<Allowance>,
    rings: Arc<Mutex<Vec<Consumer<u8>>>>,
    configs: Arc<Mutex<VecDeque<LoggedConfig>>>,
    /// Takes rows from the rings and writes files.
    writer: StoppableThread,
    /// Uploads and deletes files.
    uploader: StoppableThread,
}

/// A thread with a flag that ends it.
#[derive(Debug)]
struct StoppableThread {
    is_stopping: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl StoppableThread {
    fn start(
        name: &str,
        is_stopping: Arc<AtomicBool>,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)?;
        Ok(Self {
            is_stopping,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread, and waits for it until a time. Returns whether it has ended.
    fn stop(&self, until: Instant) -> bool {
        self.is_stopping.store(true, Ordering::Release);
        let Some(thread) = self.thread.lock().take() else {
            return true;
        };
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
        thread.is_finished() && thread.join().is_ok()
    }
}

/// Tells the thread to end, without waiting for it.
impl Drop for StoppableThread {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
    }
}

impl DecisionLog {
    /// Starts the log of a pod of this name.
    ///
    /// # Errors
    ///
    /// The directory of the files cannot be made, its store cannot be opened, or the kernel gives
    /// no thread.
    pub fn start(config: LogConfig, pod: String, telemetry: &Telemetry) -> std::io::Result<Self> {
        let root = config.directory();
        std::fs::create_dir_all(&root)?;
        let key = Arc::new(ArcSwap::from_pointee(LogKey::new(config.secret.expose())));
        let metrics = telemetry.log_metrics();
        let rings = Arc::default();
        let configs = Arc::<Mutex<VecDeque<LoggedConfig>>>::default();

        let is_writer_stopping = Arc::<AtomicBool>::default();
        let thread = Thread {
            files: Files {
                root,
                pod,
                config: config.clone(),
                metrics: metrics.clone(),
                configs: Arc::clone(&configs),
                open: None,
                dropping_until: None,
                backoff: Backoff::new(MAX_PAUSE_SECONDS),
            },
            key: Arc::clone(&key),
            rings: Arc::clone(&rings),
            is_stopping: Arc::clone(&is_writer_stopping),
        };
        let is_uploader_stopping = Arc::<AtomicBool>::default();
        let uploads = Uploads::open(&config, metrics.clone(), Arc::clone(&is_uploader_stopping))?;
        let writer = StoppableThread::start("log", is_writer_stopping, move || thread.run())?;
        let uploader =
            StoppableThread::start("log-files", is_uploader_stopping, move || uploads.run())?;

        tracing::info!(
            to = config.to,
            sample = config.sample,
            secret = key.load().id(),
            "decision log begins"
        );
        Ok(Self {
            filter: Arc::new(LogFilter::new(&config)),
            key,
            metrics,
            allowance: Arc::new(Allowance::new(config.max_rate)),
            rings,
            configs,
            writer,
            uploader,
        })
    }

    /// Adds a config before it decides, for the files of its rows.
    pub fn add_config(&self, config: &Config) {
        let mut configs = self.configs.lock();
        configs.retain(|known| known.id != config.id);
        if configs.len() == MAX_CONFIGS {
            configs.pop_front();
        }
        configs.push_back(LoggedConfig {
            id: config.id.clone(),
            text: config.to_toml(),
        });
    }

    /// The secret that names devices at present.
    pub fn key(&self) -> Arc<LogKey> {
        self.key.load_full()
    }

    /// The log of a worker.
    pub fn tap(&self) -> LogTap {
        let (producer, consumer) = RingBuffer::new(RING_BYTES);
        self.rings.lock().push(consumer);
        LogTap::new(
            Arc::clone(&self.filter),
            Arc::clone(&self.key),
            self.metrics.clone(),
            Arc::clone(&self.allowance),
            producer,
        )
    }

    /// Ends the log after the workers: writes what is left, closes the file, and waits until it is
    /// uploaded, or for `most`. Blocks.
    pub fn stop(&self, most: Duration) {
        let until = Instant::now() + most;
        // The last file is closed before the last poll for uploads.
        if !self.writer.stop(until) {
            tracing::warn!("decision log: the open file is lost, as it was not written in time");
        }
        if !self.uploader.stop(until) {
            tracing::warn!("decision log: files wait in the spool for the next start");
        }
    }
}

struct Thread {
    files: Files,
    key: Arc<ArcSwap<LogKey>>,
    rings: Arc<Mutex<Vec<Consumer<u8>>>>,
    is_stopping: Arc<AtomicBool>,
}

impl Thread {
    fn run(mut self) {
        // Workers come first: a row group takes a tenth of a second of a core. A lower priority
        // needs no right.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut record = Vec::new();
        let mut checked = Instant::now();
        loop {
            // Read before the rings: what workers wrote before the stop is written.
            let is_stopping = self.is_stopping.load(Ordering::Acquire);
            let mut has_taken = false;
            let key = self.key.load();
            for ring in &mut *self.rings.lock() {
                for _ in 0..ROWS_PER_RING {
                    if !take(ring, &mut record) {
                        break;
                    }
                    has_taken = true;
                    self.files.push(&record, &key);
                }
            }
            self.files.rotate();

            if checked.elapsed() >= self.files.config.max_age {
                checked = Instant::now();
                self.read_secret();
                self.files.remove_remains();
            }

            if has_taken {
                continue;
            }
            if is_stopping {
                self.files.close();
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Follows a change of the secret.
    fn read_secret(&self) {
        let Some(path) = &self.files.config.secret_path else {
            return;
        };
        let served = self.key.load();
        if read_regular(path)
            .is_ok_and(|found| LogKey::new(found.trim_ascii_end()).id() == served.id())
        {
            return;
        }

        // Only a change is read twice: rows wait in the rings between the readings.
        match read_settled(path) {
            Ok(secret) if secret.trim_ascii_end().len() >= LEAST_SECRET => {
                let key = LogKey::new(secret.trim_ascii_end());
                if key.id() != served.id() {
                    tracing::info!(secret = key.id(), "decision log has a new secret");
                    self.key.store(Arc::new(key));
                }
            }
            Ok(_) => tracing::warn!(
                path = %path.display(),
                "decision log: the new secret has less than {LEAST_SECRET} bytes; the old one stays"
            ),
            Err(error) => tracing::warn!(
                path = %path.display(),
                %error,
                "decision log: the secret cannot be read; the old one stays"
            ),
        }
    }
}

/// Takes the next record of a ring; returns false if there is none.
fn take(ring: &mut Consumer<u8>, record: &mut Vec<u8>) -> bool {
    let Ok(length) = ring.read_chunk(LENGTH) else {
        return false;
    };
    let (first, second) = length.as_slices();
    let mut size = [0; LENGTH];
    size[..first.len()].copy_from_slice(first);
    size[first.len()..].copy_from_slice(second);
    length.commit_all();
    let size = u32::from_le_bytes(size) as usize;

    // A record is published as a whole.
    let bytes = ring.read_chunk(size).expect("a record follows its length");
    let (first, second) = bytes.as_slices();
    record.clear();
    record.extend_from_slice(first);
    record.extend_from_slice(second);
    bytes.commit_all();
    true
}

/// The files that the thread writes.
struct Files {
    root: PathBuf,
    pod: String,
    config: LogConfig,
    metrics: LogMetrics,
    configs: Arc<Mutex<VecDeque<LoggedConfig>>>,
    open: Option<LogFile>,
    /// After a failed write, rows are dropped until a time.
    dropping_until: Option<Instant>,
    backoff: Backoff,
}

impl Files {
    /// Writes the row of a record.
    fn push(&mut self, record: &[u8], key: &LogKey) {
        if let Some(until) = self.dropping_until
            && Instant::now() < until
        {
            self.metrics.dropped(LogDrop::Disk, 1);
            return;
        }

        if self.open.is_none() {
            match self.create() {
                Ok(file) => self.open = Some(file),
                Err(error) => return self.fail(&error, 1),
            }
        }
        // Borrowed: a move of the file costs as much as the rest of a row.
        let Some(file) = &mut self.open else { return };
        if let Err(error) = file.push(record, |device| key.name(device)) {
            let rows = file.rows();
            self.open = None;
            self.fail(&error, rows);
        }
    }

    fn create(&self) -> Result<LogFile, WriteError> {
        let random = random::number() as u32;
        let path = self
            .root
            .join(folder::path_of(&self.pod, SystemTime::now(), random));

        if let Some(day) = path.parent() {
            // Only the day: a folder that was lost, as a mount, would go on elsewhere.
            match std::fs::create_dir(day) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created.map_err(|source| WriteError::Io {
                    path: day.to_owned(),
                    source,
                })?,
            }
        }

        LogFile::create(path, &self.pod)
    }

    /// Closes the file at its limits.
    fn rotate(&mut self) {
        let Some(file) = &self.open else {
            self.metrics.open_file(Duration::ZERO);
            return;
        };
        let age = file.opened().elapsed();
        self.metrics.open_file(age);
        if age >= self.config.max_age || file.bytes() >= MAX_FILE {
            self.close();
        }
    }

    fn close(&mut self) {
        let Some(file) = self.open.take() else { return };
        let rows = file.rows();
        let configs = self.configs.lock().make_contiguous().to_vec();
        match file.close(&configs) {
            Ok(Closed { rows, bytes, .. }) => {
                self.metrics.closed(rows, bytes);
                self.dropping_until = None;
                self.backoff.reset();
            }
            Err(error) => self.fail(&error, rows),
        }
    }

    /// Counts the rows of a file that could not be written, and waits before the next one.
    fn fail(&mut self, error: &WriteError, rows: u64) {
        self.metrics.dropped(LogDrop::Disk, rows);
        self.metrics.failed(LogStep::Write);
        let pause = Duration::from_secs(self.backoff.fail().into());
        self.dropping_until = Some(Instant::now() + pause);
        let error = error_chain(error);
        tracing::warn!(
            rows,
            error,
            "decision log: a file is lost; rows are dropped for {pause:?}"
        );
    }

    /// Removes files of killed processes. A file that is written grows within its age.
    fn remove_remains(&self) {
        let unwritten = 3 * self.config.max_age;

        match folder::remove_remains(&self.root, &self.pod, unwritten, self.open.as_ref()) {
            Ok(remains) if remains.files > 0 => {
                let folder::Remains { files, bytes } = remains;
                let most = self.config.max_age;
                tracing::warn!(
                    files,
                    bytes,
                    "decision log: files of killed processes removed; the rows of up to {most:?} \
                     each are lost"
                );
            }
            Ok(_) => {}
            Err(error) => {
                self.metrics.failed(LogStep::Retention);
                tracing::warn!(%error, "decision log: remains of killed processes");
            }
        }
    }
}
