//! A machine: a disk, clocks, a connection to the store, and at most one process.
//!
//! Each process has a runtime of its own. So all of its tasks stop while the others run and its
//! clocks go on, and all of them end when it is killed.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use rtad_core::clock::simulated::{self as clock, Clocks};
use rtad_core::files;
use rtad_core::random::simulated as numbers;
use rtad_core::snapshot::AudienceName;
use rtad_store::Store;
use rtad_store::write::StoreWriter;
use rtad_window::{Key, Observed, RequestKey};
use rtad_writer::{Config, Telemetry, Windows, WriteLimits, Writers};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::WINDOW;
use super::link::Link;
use super::model::Ownership;
use crate::process::EPOCH;
use crate::random::Random;

/// Folder of the windows on a disk.
const STATE: &str = "state";
/// Steps after which all tasks of a process wait.
const READY_STEPS: u32 = 50;

/// Answer to a request for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Told(Observed),
    /// Of another process than the owner: nothing was counted.
    NotOwner,
    /// Its events are counted, or not.
    Unknown,
}

/// The answer to a request, once it is there.
pub type AnswerSlot = Arc<Mutex<Option<Answer>>>;

pub struct Machine {
    pub name: String,
    pub link: Link,
    /// Survives the process.
    disk: TempDir,
    /// Another one after the loss of a disk.
    pub disk_number: u64,
    /// How far its clocks are ahead.
    ahead: Duration,
    pub process: Option<Process>,
    pub stopped_until: Duration,
    /// The next start of a process.
    pub starts_at: Duration,
}

pub struct Process {
    /// Another one at each start of any machine.
    pub number: u64,
    windows: Arc<Windows>,
    running: JoinHandle<()>,
    runtime: Runtime,
    /// `None` while it runs.
    numbers: Option<Box<dyn FnMut() -> u64>>,
}

fn new_disk() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

impl Machine {
    pub fn new(name: String, disk_number: u64, link: Link, ahead: Duration) -> Self {
        Self {
            name,
            link,
            disk: new_disk(),
            disk_number,
            ahead,
            process: None,
            stopped_until: Duration::ZERO,
            starts_at: Duration::ZERO,
        }
    }

    pub fn lose_disk(&mut self, number: u64) {
        self.disk = new_disk();
        self.disk_number = number;
    }

    fn clocks(&self, now: Duration) -> Clocks {
        let uptime = now + self.ahead;
        Clocks {
            wall: SystemTime::UNIX_EPOCH + EPOCH + uptime,
            uptime,
        }
    }

    /// Starts a process with the windows of a config.
    pub fn start(&mut self, config: &str, number: u64, random: Random, now: Duration) {
        self.link.set_process(Ownership {
            process: number,
            disk: self.disk_number,
        });
        clock::set(Some(self.clocks(now)));
        self.process = Some(Process::start(
            config, number, random, &self.disk, &self.link,
        ));
        clock::set(None);
    }

    /// Lets the process work. `None` if there is none.
    pub fn work<T>(
        &mut self,
        now: Duration,
        work: impl FnOnce(&Windows, &Runtime) -> T,
    ) -> Option<T> {
        let clocks = self.clocks(now);
        let process = self.process.as_mut()?;
        clock::set(Some(clocks));
        numbers::set(process.numbers.take());
        let done = work(&process.windows, &process.runtime);
        process.numbers = numbers::set(None);
        clock::set(None);
        Some(done)
    }

    /// Lets the process run for a time; whether it has ended.
    pub fn run(&mut self, now: Duration, time: Duration) -> bool {
        self.work(now, |windows, runtime| {
            runtime.block_on(async { tokio::time::sleep(time).await });
            if windows.failed().now_or_never().is_some() {
                windows.stop();
            }
        });
        let process = self.process.as_ref();
        process.is_some_and(|process| process.running.is_finished())
    }

    /// Lets its tasks go on until all of them wait.
    pub fn settle(&mut self, now: Duration) {
        let steps = async {
            for _ in 0..READY_STEPS {
                tokio::task::yield_now().await;
            }
        };
        self.work(now, |_, runtime| runtime.block_on(steps));
    }

    /// Ends the process at once.
    pub fn kill(&mut self, now: Duration) {
        clock::set(Some(self.clocks(now)));
        self.process = None;
        clock::set(None);
    }

    /// Loses what the process had not synced: the machine has ended, too.
    pub fn lose_unsynced(&self) {
        let state = self.disk.path().join(STATE).join(WINDOW);
        // A process that has never run has no folder.
        let _ = files::simulated::lose_unsynced(&state);
    }

    /// Age of the oldest events that the store lacks, if the process owns the window.
    pub fn behind_of_owner(&mut self, window: &AudienceName, now: Duration) -> Option<Duration> {
        let info = self.work(now, |windows, _| {
            let window = windows.get(window).expect("a window of the config");
            serde_json::to_value(window.info()).expect("a JSON object")
        })?;
        if info["role"] != "owner" {
            return None;
        }
        let behind = info["behind_seconds"].as_f64().expect("seconds");
        Some(Duration::from_secs_f64(behind))
    }

    /// Sends events; their answer appears in the slot.
    pub fn observe(
        &mut self,
        window: &AudienceName,
        keys: Vec<Key>,
        request_key: Option<[u8; 16]>,
        slot: AnswerSlot,
        now: Duration,
    ) {
        self.work(now, |windows, runtime| {
            let window = Arc::clone(windows.get(window).expect("a window of the config"));
            runtime.spawn(async move {
                // The digest of its body is always the same one.
                let retry = request_key.map(|key| (RequestKey(key), key));
                let answer = match window.observe(keys, None, retry).await {
                    Ok(observed) => Answer::Told(observed.expect("events of now")),
                    Err(error) if error.code() == "not_owner" => Answer::NotOwner,
                    Err(_) => Answer::Unknown,
                };
                *slot.lock().expect("no panic") = Some(answer);
            });
        });
    }

    /// Counts of keys, if its process owns the window.
    pub fn counts(
        &mut self,
        window: &AudienceName,
        keys: Vec<Key>,
        now: Duration,
    ) -> Option<Vec<u16>> {
        self.work(now, |windows, runtime| {
            let window = windows.get(window).expect("a window of the config");
            runtime.block_on(window.check(keys)).ok()
        })?
    }
}

impl Process {
    fn start(config: &str, number: u64, mut random: Random, disk: &TempDir, link: &Link) -> Self {
        let state_dir = disk.path().join(STATE);
        let text = format!("state_dir = {state_dir:?}\n{config}");
        let file = disk.path().join("writer.toml");
        std::fs::write(&file, text).expect("a file");
        let config = Config::read(&file).expect("a valid config");
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");

        let store = Store::over(Arc::new(link.clone()), "simulated");
        let store = StoreWriter::new(store).expect("a store that can be written");
        let telemetry = Arc::new(Telemetry::default());
        let opened = runtime.block_on(Windows::open(&config, &store, &telemetry));
        let (windows, standbys) = opened.expect("a folder that no other process has");
        let windows = Arc::new(windows);
        let limits = WriteLimits {
            every: Duration::from_millis(200),
            max_batch: 1000,
        };
        let writers = Arc::new(Writers::new(store, limits, Arc::clone(&telemetry)));
        let running = Arc::clone(&windows).run(standbys, writers, telemetry);
        let running = runtime.spawn(running);
        Self {
            number,
            windows,
            running,
            runtime,
            numbers: Some(Box::new(move || random.number())),
        }
    }
}
