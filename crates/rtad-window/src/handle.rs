//! Requests to a window's engine.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use crate::answers::Retry;
use crate::engine::{Engine, Published};
use crate::error::OpenError;
use crate::journal::Journal;
use crate::outbox::{Outbox, Shipping};
use crate::queue::{Failure, Observed, Queue, Reply, Request};
use crate::replica::Replica;
use crate::settings::{Settings, WindowState};
use crate::table_copy::TableCopy;
use crate::take_over::{Durability, TakeOver};
use crate::uptime::{MachineClock, MachineTime};
use crate::{Key, ListedKey};

/// A window whose engine runs. Clones share it; the last one ends it, without its last segments.
#[derive(Clone)]
pub struct WindowHandle(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    published: Published,
    shipping: Arc<Shipping>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.abandon();
    }
}

/// A window that this process owns from now on.
pub struct StartedWindow {
    /// Requests to it.
    pub handle: WindowHandle,
    /// Its work: the caller runs it, apart from other tasks.
    pub engine: Engine,
    /// Its segments: the caller creates them.
    pub outbox: Outbox,
}

impl WindowHandle {
    /// Starts the window that the take-over has made this process' own: its segment is created.
    ///
    /// # Errors
    ///
    /// The take-over is of another replica, or the directory cannot be written.
    pub fn start(
        replica: Replica,
        take_over: TakeOver,
        durability: Durability,
        settings: Settings,
    ) -> Result<StartedWindow, OpenError> {
        let queue = Arc::new(Queue::new());
        let published = Published::default();
        let begun = begin(
            replica,
            take_over,
            durability,
            &queue,
            Arc::new(MachineTime::now),
        )?;
        let Begun {
            replica,
            journal,
            shipping,
        } = begun;
        let outbox = Outbox::new(Arc::clone(&shipping));
        let engine = Engine::new(
            replica.window,
            replica.answers,
            journal,
            settings,
            Arc::clone(&queue),
            Arc::clone(&published),
        );
        let inner = Inner {
            queue,
            published,
            shipping,
        };
        Ok(StartedWindow {
            handle: Self(Arc::new(inner)),
            engine,
            outbox,
        })
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
        answer.await.unwrap_or(Err(Failure::NotDurable))
    }

    /// Begins a copy of the table beside traffic. One at a time: a second one is refused.
    ///
    /// # Errors
    ///
    /// The request was refused.
    pub async fn begin_table(&self) -> Result<TableCopy, Failure> {
        self.ask(|reply| Request::Table { reply }).await
    }

    /// Gives the window back: writes what waits, and the last segment, which says so. Requests are
    /// refused from now on. Returns when the shipper has created the last segment, or the window has
    /// ended; whether it was given back. The caller may give up, and drop the window.
    pub async fn close(&self) -> bool {
        self.0.queue.close();
        self.0.shipping.ended().await;
        self.0.shipping.is_released()
    }

    /// Whether the window's engine has ended: at the end of `close`, by a log that cannot be
    /// written, another owner, or a panic.
    pub fn has_ended(&self) -> bool {
        self.0.shipping.has_ended()
    }

    /// Whether the window was given back: the last segment is created. Otherwise a standby waits
    /// before it takes over.
    pub fn is_released(&self) -> bool {
        self.0.shipping.is_released()
    }

    /// State of the window. It includes every request that was answered.
    pub fn state(&self) -> WindowState {
        let published = *self
            .0
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let progress = self.0.shipping.progress();
        WindowState {
            created: progress.created,
            unshipped_age: progress.unshipped_age,
            created_age: progress.created_age,
            is_writable: progress.is_fresh && self.0.queue.is_open(),
            ..published
        }
    }
}

/// A window before its engine.
pub struct Begun {
    pub replica: Replica,
    pub journal: Journal,
    pub shipping: Arc<Shipping>,
}

/// Applies the segments of a take-over, and begins the journal after them.
pub fn begin(
    mut replica: Replica,
    take_over: TakeOver,
    durability: Durability,
    queue: &Arc<Queue>,
    clock: MachineClock,
) -> Result<Begun, OpenError> {
    replica.apply(&take_over.bytes)?;
    for segment in &take_over.rest {
        replica.apply(segment)?;
    }
    let shipping = Shipping::new(
        &replica.identity.spec,
        Arc::clone(queue),
        clock,
        take_over.number,
        take_over.made_at,
    );
    let shipping = Arc::new(shipping);
    let path = durability.dir().map(|dir| dir.path().to_owned());
    let journal = Journal::begin(&replica, take_over.rest, durability, Arc::clone(&shipping));
    let journal = journal.map_err(|source| OpenError::Io {
        path: path.unwrap_or_default(),
        source,
    })?;
    Ok(Begun {
        replica,
        journal,
        shipping,
    })
}

#[cfg(test)]
mod tests;
