//! Requests to a window's thread.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;

use rtad_core::files::sync_dir;
use tokio::sync::oneshot;

use crate::answers::Retry;
use crate::checkpoint::{Writer, checkpoint_path};
use crate::engine::{Engine, Published};
use crate::journal::Journal;
use crate::load::{Loaded, OpenError, Shape};
use crate::queue::{Failure, Observed, Queue, Reply, Request, SavedCheckpoint};
use crate::settings::{Settings, WindowState};
use crate::state_dir::StateDir;
use crate::{Key, ListedKey, SpecError};

/// A window with its thread. Clones share it; the last one ends it.
#[derive(Clone)]
pub struct WindowHandle(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    published: Published,
    /// Whether the window has files.
    is_kept: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Inner {
    fn has_ended(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread after the requests that wait.
    fn end(&self) {
        self.queue.close();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // Its panic is logged.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

impl WindowHandle {
    /// Starts a window with the content of its directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be written.
    pub fn start(dir: StateDir, loaded: Loaded, settings: Settings) -> Result<Self, OpenError> {
        let path = dir.path().to_owned();
        let io = |source| OpenError::Io { path, source };
        start(dir, loaded, settings).map_err(io)
    }

    /// Starts an empty window that is not kept.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range.
    ///
    /// # Panics
    ///
    /// The system allows no further thread.
    pub fn in_memory(shape: Shape, mut settings: Settings) -> Result<Self, SpecError> {
        let tick = (settings.clock)().tick;
        let loaded = Loaded::empty(shape, tick)?;
        Ok(spawn(loaded, None, 0, settings, Arc::new(Queue::new())).expect("a further thread"))
    }

    /// Counts events in their order; one outcome each, when they are as safe as configured. Events
    /// of an earlier tick are counted at the current one, unless entries of that tick have expired.
    ///
    /// A request with a request key is answered again as the first time, within the time of
    /// [`AnswerLimits`](crate::AnswerLimits).
    ///
    /// # Errors
    ///
    /// The request was refused, and nothing of it was counted.
    pub async fn observe(
        &self,
        keys: Vec<Key>,
        at: Option<u64>,
        retry: Option<Retry>,
    ) -> Result<Observed, Failure> {
        self.ask(|reply| Request::Observe {
            keys,
            at,
            retry,
            reply,
        })
        .await
    }

    /// Counts of keys, without a change: 0 for keys that are not in the window.
    ///
    /// # Errors
    ///
    /// The request was refused.
    pub async fn counts(&self, keys: Vec<Key>) -> Result<Vec<u16>, Failure> {
        self.ask(|reply| Request::Counts { keys, reply }).await
    }

    /// Erases keys; whether each had an entry. A table of fingerprints may erase the entry of
    /// another key, with the probability of a false positive.
    ///
    /// # Errors
    ///
    /// The request was refused, and nothing was erased.
    pub async fn forget(&self, keys: Vec<Key>) -> Result<Vec<bool>, Failure> {
        self.ask(|reply| Request::Forget { keys, reply }).await
    }

    /// Every live key of a window of whole keys with at least this count. Keys that change
    /// meanwhile are listed as before or after the change, and the listener hears of it.
    ///
    /// # Errors
    ///
    /// The request was refused.
    pub async fn list(&self, min_count: u16) -> Result<Vec<ListedKey>, Failure> {
        self.ask(|reply| Request::List { min_count, reply }).await
    }

    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        self.0.queue.push(request(reply))?;
        answer.await.unwrap_or(Err(Failure::NotWritable))
    }

    /// Writes a checkpoint beside traffic, and removes the log before it. `None` for a window that
    /// is not kept.
    ///
    /// # Errors
    ///
    /// The checkpoint could not be written, and the one before stays; the log has failed; or the
    /// window is closed.
    pub async fn checkpoint(&self, unix_seconds: u64) -> io::Result<Option<SavedCheckpoint>> {
        let (reply, answer) = oneshot::channel();
        let request = Request::Checkpoint {
            unix_seconds,
            reply,
        };
        match self.0.queue.push(request) {
            Ok(()) => answer.await.unwrap_or_else(|_| self.no_checkpoint()),
            Err(_) => self.no_checkpoint(),
        }
    }

    /// Writes what waits, and a checkpoint: the next start reads no log. Requests are refused from
    /// now on. `None` for a window that is not kept.
    ///
    /// # Errors
    ///
    /// The checkpoint could not be written, and the one before and the log stay; the log has
    /// failed; or the window was closed before.
    pub async fn close(&self, unix_seconds: u64) -> io::Result<Option<SavedCheckpoint>> {
        let (reply, answer) = oneshot::channel();
        let request = Request::Checkpoint {
            unix_seconds,
            reply,
        };
        let saved = match self.0.queue.push_last(request) {
            Ok(()) => answer.await.unwrap_or_else(|_| self.no_checkpoint()),
            Err(_) => self.no_checkpoint(),
        };
        // The thread has nothing left to do, or cannot write.
        let inner = Arc::clone(&self.0);
        let _ = tokio::task::spawn_blocking(move || inner.end()).await;
        saved
    }

    /// The result of a thread that has ended.
    fn no_checkpoint(&self) -> io::Result<Option<SavedCheckpoint>> {
        if self.0.is_kept {
            return Err(io::Error::other(
                "the window is closed, or its log has failed",
            ));
        }
        Ok(None)
    }

    /// Whether the window's thread has ended: after `close`, or by a panic.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended()
    }

    /// State of the window. It includes every request that was answered.
    pub fn state(&self) -> WindowState {
        let published = *self
            .0
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        WindowState {
            is_writable: self.0.queue.is_writable(),
            ..published
        }
    }
}

fn start(dir: StateDir, loaded: Loaded, settings: Settings) -> io::Result<WindowHandle> {
    let path = dir.path().to_owned();
    if loaded.is_new {
        // It fixes the secret of the hash.
        let mut first = Writer::create(&dir.disk, &path, &loaded.head)?;
        first.sync()?;
        first.publish()?;
        path.parent().map_or(Ok(()), sync_dir)?;
    }
    let checkpoint = checkpoint_path(&path, loaded.head.segment).metadata();
    let modified = checkpoint
        .and_then(|checkpoint| checkpoint.modified())
        .unwrap_or(UNIX_EPOCH);
    let modified = modified
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let queue = Arc::new(Queue::new());
    let journal = Journal::begin(dir, &loaded, settings.durability, Arc::clone(&queue))?;
    spawn(loaded, Some(journal), modified, settings, queue)
}

fn spawn(
    loaded: Loaded,
    journal: Option<Journal>,
    checkpoint_unix_seconds: u64,
    settings: Settings,
    queue: Arc<Queue>,
) -> io::Result<WindowHandle> {
    let published = Published::default();
    let is_kept = journal.is_some();
    let shared = (Arc::clone(&queue), Arc::clone(&published));
    let engine = Engine::new(loaded, journal, checkpoint_unix_seconds, settings, shared);
    let thread = std::thread::Builder::new()
        .name("window".to_owned())
        .spawn(move || engine.run())?;
    let thread = Mutex::new(Some(thread));
    Ok(WindowHandle(Arc::new(Inner {
        queue,
        published,
        is_kept,
        thread,
    })))
}

#[cfg(test)]
mod tests;
