//! An audience that follows a window: its only writer.
//!
//! Changes are written as deltas. The whole audience is published as a new generation at the start,
//! after events were undone, at midnight for days, when the deltas exceed half of the generation,
//! and when another process has changed the audience: an earlier owner that does not know of this
//! one yet, or a command.

use std::sync::Arc;
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use rtad_core::device::DeviceKey;
use rtad_core::error_chain::error_chain;
use rtad_core::snapshot::{Current, Delta, DeltaEntry, GenerationFacts, State};
use rtad_store::StoreError;
use rtad_store::write::{Change, Ledger, StoreWriter};
use rtad_window::{Failure, Key, ListedKey};

use super::config::AudienceConfig;
use super::reports::{Due, Reports};
use super::served::ServedWindow;
use super::source::{SourceError, live_window};
use crate::TOOL;

/// Keys in deltas beyond which the audience becomes a new generation: so many, or half of its keys
/// if that is more.
const MAX_DELTA_KEYS: u64 = 200_000;
/// Keys whose counts are read at a time.
const COUNT_BATCH: usize = 10_000;

/// Times between the writes and reads of an audience.
#[derive(Debug, Clone, Copy)]
pub struct FollowTimes {
    /// Shortest interval between writes.
    every: Duration,
    /// Pause after a failure.
    retry: Duration,
    /// Time between reads of an idle audience. A lifted tombstone waits as long: each read is a
    /// request to the store.
    check: Duration,
}

impl FollowTimes {
    pub const fn new(every: Duration) -> Self {
        Self {
            every,
            retry: Duration::from_secs(1),
            check: Duration::from_secs(5),
        }
    }
}

/// Version of an audience that this task wrote last. Tombstones are of other writers.
#[derive(Default)]
struct WrittenVersion {
    generation: u64,
    deltas: Vec<DeltaEntry>,
}

impl WrittenVersion {
    fn of(current: &Current) -> Self {
        Self {
            generation: current.generation,
            deltas: current.deltas.clone(),
        }
    }

    fn is_of(&self, ledger: &Ledger) -> bool {
        let current = ledger.current();
        (self.generation, &self.deltas) == (current.generation, &current.deltas)
    }
}

/// A write that failed.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Window(#[from] Failure),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "the records of the audience are gone: check the store's mount, or restart this process"
    )]
    LostStore,
}

/// State between writes.
#[derive(Default)]
struct Session {
    /// `None` after an error: it may be stale.
    ledger: Option<Ledger>,
    written: WrittenVersion,
    /// The tombstones that applied to the last delta: it lacks these devices.
    tombstones: Option<Arc<Delta>>,
    /// Members of the generation.
    generation_keys: u64,
    /// The failure that was logged last.
    failure: Option<String>,
}

pub struct Follower {
    pub(super) config: AudienceConfig,
    pub(super) window: Arc<ServedWindow>,
    pub(super) reports: Arc<Reports>,
    pub(super) store: StoreWriter,
    pub(super) times: FollowTimes,
    pub(super) lag_seconds: Gauge,
}

impl Follower {
    /// Writes until `stop`; then once more, so that pods see every acknowledged event.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut session = Session::default();
        let mut next = Instant::now();
        let mut check_at = next + self.times.check;
        loop {
            let is_stopping = *stop.borrow();
            if !is_stopping {
                tokio::select! {
                    () = self.reports.wake.notified() => {}
                    _ = stop.changed() => continue,
                    () = tokio::time::sleep(self.times.retry) => {}
                }
                self.update_lag();
                sleep_until(next).await;
            }
            next = Instant::now() + self.times.every;
            if self.window.is_fenced() {
                // The other owner writes the audience.
                return;
            }
            let due = self.reports.take();
            if due.is_none() && Instant::now() < check_at {
                self.update_lag();
            } else {
                let written = async {
                    match &due {
                        Some(Due::All) => self.publish(&mut session).await.map(|()| true),
                        Some(Due::Changes(keys)) => self.append(&mut session, keys).await,
                        None => self.is_unchanged(&mut session).await,
                    }
                };
                let written = self.with_lag(written).await;
                if !self.finish(&mut session, due, written) {
                    next = Instant::now() + self.times.retry;
                }
                check_at = Instant::now() + self.times.check;
                self.update_lag();
            }
            if is_stopping {
                return;
            }
        }
    }

    /// Ends an attempt; returns whether it succeeded. `Ok(false)` is an audience that another
    /// process has changed.
    fn finish(
        &self,
        session: &mut Session,
        due: Option<Due>,
        written: Result<bool, WriteError>,
    ) -> bool {
        let audience = self.config.name.as_str();
        let again = match written {
            Ok(true) => {
                self.reports.done();
                session.failure = None;
                return true;
            }
            Ok(false) => {
                tracing::warn!(
                    audience,
                    "audience changed by another process; published again"
                );
                Some(Due::All)
            }
            Err(error) => {
                // Once per cause: a disabled audience may stay so for days.
                let failure = error_chain(&error);
                if session.failure.as_ref() != Some(&failure) {
                    tracing::warn!(audience, error = failure, "audience not written");
                    session.failure = Some(failure);
                }
                match error {
                    WriteError::LostStore => Some(Due::All),
                    // Deleted by another process, or too many deltas.
                    WriteError::Store(
                        StoreError::NotFound { .. }
                        | StoreError::TooManyDeltas { .. }
                        | StoreError::NotLive {
                            state: State::Deleted,
                            ..
                        },
                    ) => Some(Due::All),
                    _ => due,
                }
            }
        };
        session.ledger = None;
        if let Some(due) = again {
            self.reports.retry(due);
        }
        false
    }

    /// Keeps the gauge of the lag up to date while a write takes its time.
    async fn with_lag<T>(&self, write: impl Future<Output = T>) -> T {
        let mut write = std::pin::pin!(write);
        loop {
            tokio::select! {
                written = &mut write => return written,
                () = tokio::time::sleep(self.times.retry) => self.update_lag(),
            }
        }
    }

    fn update_lag(&self) {
        self.lag_seconds.set(self.reports.lag().as_secs_f64());
    }

    /// Reads the audience; whether its content is what this task wrote last.
    async fn is_unchanged(&self, session: &mut Session) -> Result<bool, WriteError> {
        let Session {
            ledger,
            written,
            tombstones,
            ..
        } = session;
        let ledger = match ledger {
            Some(ledger) => {
                ledger.refresh().await?;
                ledger
            }
            None => ledger.insert(self.store.ledger(&self.config.name).await?),
        };
        self.report_lifted(ledger, tombstones).await?;
        Ok(written.is_of(ledger) && ledger.current().state != State::Deleted)
    }

    /// Reports the devices whose tombstone was lifted by any process: their events since are not in
    /// the audience.
    async fn report_lifted(
        &self,
        ledger: &mut Ledger,
        tombstones: &mut Option<Arc<Delta>>,
    ) -> Result<(), WriteError> {
        let entry = ledger.current().tombstones.clone();
        if tombstones.as_ref().map(|held| held.entry()) == entry.as_ref() {
            return Ok(());
        }
        let current = match &entry {
            Some(entry) => Some(ledger.delta(entry).await?),
            None => None,
        };
        // Both are sorted.
        let mut entombed = current
            .iter()
            .flat_map(|current| current.removed().iter())
            .peekable();
        let is_lifted = |key: &&DeviceKey| {
            while entombed.next_if(|one| one < key).is_some() {}
            entombed.peek() != Some(key)
        };
        let held = tombstones.iter().flat_map(|held| held.removed().iter());
        self.reports
            .add(held.filter(is_lifted).map(DeviceKey::as_bytes));
        *tombstones = current;
        Ok(())
    }

    /// Writes the changes of keys as a delta. `false`: another process has changed the audience,
    /// so that further deltas would not make it right.
    async fn append(&self, session: &mut Session, keys: &[Key]) -> Result<bool, WriteError> {
        let Session {
            ledger,
            written,
            tombstones,
            ..
        } = session;
        let ledger = match ledger {
            Some(ledger) => ledger,
            None => ledger.insert(self.store.ledger(&self.config.name).await?),
        };
        if !written.is_of(ledger) {
            return Ok(false);
        }
        self.report_lifted(ledger, tombstones).await?;
        // A delta of so many keys would be replaced by a generation at once.
        if keys.len() as u64 > MAX_DELTA_KEYS.max(session.generation_keys / 2) {
            self.publish(session).await?;
            return Ok(true);
        }
        let appended = match ledger.append(self.change(keys).await?).await {
            Err(StoreError::Conflict { .. }) => {
                // A writer of tombstones: once more over its state.
                ledger.refresh().await?;
                if !written.is_of(ledger) {
                    return Ok(false);
                }
                self.report_lifted(ledger, tombstones).await?;
                ledger.append(self.change(keys).await?).await?
            }
            appended => appended?,
        };
        *written = WrittenVersion::of(ledger.current());
        if appended.delta_keys > MAX_DELTA_KEYS.max(session.generation_keys / 2) {
            self.reports.renew();
        }
        Ok(true)
    }

    async fn change(&self, keys: &[Key]) -> Result<Change, WriteError> {
        let mut change = Change::default();
        for keys in keys.chunks(COUNT_BATCH) {
            for (key, count) in keys
                .iter()
                .zip(self.window.handle.counts(keys.to_vec()).await?)
            {
                let key = DeviceKey::from_bytes(*key);
                if count >= self.config.min_count {
                    change.add(key)
                } else {
                    change.remove(key)
                }
            }
        }
        Ok(change)
    }

    /// Checks that the live generation may be replaced. One of another window is replaced once
    /// after the start, as its [[audience]] has moved; later, another writer follows that window.
    async fn check_source(
        &self,
        session: &Session,
        current: Option<&Current>,
    ) -> Result<(), WriteError> {
        let written = session.written.generation;
        if current.is_some_and(|current| current.generation == written) {
            return Ok(());
        }

        let config = &self.config;
        let Some(found) = live_window(self.store.store(), config, current).await? else {
            return Ok(());
        };
        if found == config.from_window {
            return Ok(());
        }
        if written > 0 {
            return Err(WriteError::Source(SourceError::OtherWindow {
                audience: config.name.clone(),
                generation: current.map_or(0, |current| current.generation),
                window: config.from_window.clone(),
                found,
            }));
        }
        let (audience, window) = (config.name.as_str(), config.from_window.as_str());
        tracing::warn!(
            audience,
            window,
            found = found.as_str(),
            "the audience followed another window, and follows this one now"
        );
        Ok(())
    }

    /// Publishes all members as a new generation.
    async fn publish(&self, session: &mut Session) -> Result<(), WriteError> {
        let base = self.store.base(&self.config.name).await?;
        if base.current().is_none() && session.written.generation > 0 {
            // Deleted audiences have records: this is another store, or a mount is lost.
            return Err(WriteError::LostStore);
        }
        self.check_source(session, base.current()).await?;

        let facts = GenerationFacts {
            from_window: Some(self.config.from_window.clone()),
            folded: base.folded(),
            ..GenerationFacts::built_now_by(TOOL)
        };

        // Listed after the base was read: changes from here on are reported.
        let listed = self.window.handle.list(self.config.min_count).await?;
        let publication = self.store.publish(base).await?;
        let keys = device_keys(listed);
        let published = publication
            .commit_keys(keys, self.config.filter, self.config.fpr, facts)
            .await?;

        // The generation contains the devices with a tombstone too, so none are held. Deltas that
        // another process appended meanwhile are not among the written.
        *session = Session {
            written: WrittenVersion {
                generation: published.current.generation,
                deltas: Vec::new(),
            },
            generation_keys: published.manifest.keys(),
            failure: session.failure.take(),
            ..Session::default()
        };
        Ok(())
    }
}

/// The keys of an audience, in the place of the list: the start counts memory for one of them.
fn device_keys(listed: Vec<ListedKey>) -> Vec<DeviceKey> {
    let keys = listed.into_iter();
    keys.map(|ListedKey(key)| DeviceKey::from_bytes(key))
        .collect()
}

#[cfg(test)]
mod tests;
