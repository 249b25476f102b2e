//! An engine without its thread, on a disk that fails.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::super::*;
use super::LIMITS;
use crate::answers::RequestKey;
use crate::disk::tests::FaultyDisk;
use crate::journal::Durability;
use crate::state_dir::StateDir;
use crate::{SavedCheckpoint, Seen, WindowSpec};

/// Copies the files as a crash would leave them.
pub fn copy_dir(dir: &Path) -> TempDir {
    let names = || -> Vec<_> {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort_unstable();
        names
    };
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = names();
        let is_copied = before
            .iter()
            .filter(|name| !name.to_string_lossy().ends_with(".tmp"))
            .all(|name| std::fs::copy(dir.join(name), copy.path().join(name)).is_ok());
        // A checkpoint may end meanwhile.
        if is_copied && names() == before {
            return copy;
        }
    }
}

/// Changes that a listener was told.
#[derive(Debug, Default)]
pub struct Heard {
    pub(super) reached: Vec<(u16, Key)>,
    pub(super) left: Vec<Key>,
    pub(super) lists: u32,
}

/// One of several requests of a group. The first byte of its key for retries says its body too.
pub struct GroupRequest {
    pub keys: Vec<Key>,
    pub retry: Option<u8>,
}

/// An engine without its thread.
pub struct Driven {
    pub(super) engine: Engine,
    pub(super) queue: Arc<Queue>,
    published: Published,
    pub(super) disk: Arc<FaultyDisk>,
    tick: Arc<AtomicU64>,
    seconds: Arc<AtomicU64>,
    /// The error that ended the thread.
    pub(super) failure: Option<io::Error>,
    pub(super) heard: Arc<Mutex<Heard>>,
}

impl Driven {
    pub fn open(dir: &Path, spec: WindowSpec, durability: Durability, tick: u64) -> Self {
        let disk = Arc::new(FaultyDisk::default());
        let shape = Shape {
            spec,
            clock: "ticks".to_owned(),
            answers: LIMITS,
        };
        let dir = StateDir::lock_on(dir, Arc::clone(&disk) as _).unwrap();
        let loaded = dir.load(&shape, tick).unwrap();
        let tick = Arc::new(AtomicU64::new(tick));
        let seconds = Arc::new(AtomicU64::new(1000));
        let heard = Arc::new(Mutex::new(Heard::default()));
        let clock = {
            let (tick, seconds) = (Arc::clone(&tick), Arc::clone(&seconds));
            move || Now {
                tick: tick.load(Ordering::Relaxed),
                seconds: seconds.load(Ordering::Relaxed),
            }
        };
        let listener = spec.whole_keys.then(|| {
            let heard = Arc::clone(&heard);
            let report = move |changed: Changed<'_>| {
                let mut heard = heard.lock().unwrap();
                match changed {
                    Changed::Reached(count, keys) => {
                        heard.reached.extend(keys.iter().map(|key| (count, *key)));
                    }
                    Changed::Left(keys) => heard.left.extend(keys),
                    Changed::All => heard.lists += 1,
                }
            };
            ChangeListener {
                thresholds: vec![1, 2],
                report: Box::new(report),
            }
        });
        let settings = Settings {
            durability,
            clock: Box::new(clock),
            listener,
        };
        let queue = Arc::new(Queue::new());
        let published = Published::default();
        let first = loaded.is_new.then(|| {
            let head = &loaded.head;
            crate::checkpoint::Writer::create(&dir.disk, dir.path(), head).unwrap()
        });
        if let Some(mut first) = first {
            first.sync().unwrap();
            first.publish().unwrap();
        }
        let journal = Journal::begin(dir, &loaded, durability, Arc::clone(&queue)).unwrap();
        let shared = (Arc::clone(&queue), Arc::clone(&published));
        let engine = Engine::new(loaded, Some(journal), 0, settings, shared);
        Self {
            engine,
            queue,
            published,
            disk,
            tick,
            seconds,
            failure: None,
            heard,
        }
    }

    /// Runs a cycle. One that fails is the last.
    pub fn run_cycle(&mut self, wait: Duration) {
        if let Err(error) = self.engine.run_cycle(wait) {
            self.queue.refuse();
            self.failure = Some(error);
        }
    }

    pub fn ask<T>(&mut self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Failure> {
        let (reply, mut answer) = oneshot::channel();
        self.queue.push(request(reply))?;
        self.run_cycle(Duration::ZERO);
        answer.try_recv().unwrap_or(Err(Failure::NotWritable))
    }

    pub fn observe(&mut self, keys: Vec<Key>) -> Result<Vec<Seen>, Failure> {
        self.ask(|reply| Request::Observe {
            keys,
            at: None,
            retry: None,
            reply,
        })
        .map(|seen| seen.seen)
    }

    pub fn retry(
        &mut self,
        keys: Vec<Key>,
        request_key: u8,
        request: u8,
    ) -> Result<Observed, Failure> {
        let retry = Some((RequestKey([request_key; 16]), [request; 16]));
        self.ask(|reply| Request::Observe {
            keys,
            at: None,
            retry,
            reply,
        })
    }

    /// Answers of requests that one group has.
    pub fn observe_group(&mut self, requests: Vec<GroupRequest>) -> Vec<Result<Observed, Failure>> {
        let mut answers = Vec::new();
        for GroupRequest { keys, retry } in requests {
            let (reply, answer) = oneshot::channel();
            let request = Request::Observe {
                keys,
                at: None,
                retry: retry.map(|retry| (RequestKey([retry; 16]), [retry; 16])),
                reply,
            };
            self.queue.push(request).unwrap();
            answers.push(answer);
        }
        self.run_cycle(Duration::ZERO);

        let mut received = Vec::new();
        for mut answer in answers {
            received.push(answer.try_recv().unwrap_or(Err(Failure::NotWritable)));
        }
        received
    }

    pub fn forget(&mut self, keys: Vec<Key>) -> Result<Vec<bool>, Failure> {
        self.ask(|reply| Request::Forget { keys, reply })
    }

    pub fn counts(&mut self, keys: Vec<Key>) -> Vec<u16> {
        self.ask(|reply| Request::Counts { keys, reply }).unwrap()
    }

    pub fn begin_checkpoint(&mut self) -> oneshot::Receiver<io::Result<Option<SavedCheckpoint>>> {
        let (reply, saved) = oneshot::channel();
        self.queue
            .push(Request::Checkpoint {
                unix_seconds: 77,
                reply,
            })
            .unwrap();
        self.run_cycle(Duration::ZERO);
        saved
    }

    pub fn checkpoint(&mut self) -> SavedCheckpoint {
        let saved = self.begin_checkpoint();
        self.finish(saved).unwrap().unwrap()
    }

    /// Runs cycles until a checkpoint has ended.
    pub fn finish(
        &mut self,
        mut saved: oneshot::Receiver<io::Result<Option<SavedCheckpoint>>>,
    ) -> io::Result<Option<SavedCheckpoint>> {
        loop {
            match saved.try_recv() {
                Ok(saved) => return saved,
                Err(oneshot::error::TryRecvError::Closed) => return Ok(None),
                Err(oneshot::error::TryRecvError::Empty) => {
                    let wait = self.engine.idle_time();
                    self.run_cycle(wait);
                }
            }
        }
    }

    pub fn state(&self) -> WindowState {
        *self.published.lock().unwrap()
    }

    pub fn set_tick(&self, tick: u64) {
        self.tick.store(tick, Ordering::Relaxed);
    }

    pub fn set_time(&mut self, seconds: u64) {
        self.seconds.store(seconds, Ordering::Relaxed);
        self.run_cycle(Duration::ZERO);
    }

    /// The same window from the files that a crash leaves now.
    pub fn crash(self, spec: WindowSpec, durability: Durability) -> (Self, TempDir) {
        let copy = copy_dir(self.engine.journal.as_ref().unwrap().dir.path());
        let tick = self.tick.load(Ordering::Relaxed);
        drop(self);
        (Self::open(copy.path(), spec, durability, tick), copy)
    }
}
