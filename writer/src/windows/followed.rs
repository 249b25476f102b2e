//! An audience that follows a window: a client of the task that writes the audience.
//!
//! Each round reads the counts of the keys that were reported, and has those that are members added
//! and the others removed. The whole audience is published as a new generation at the start, after
//! events were undone, at midnight for days, when the deltas exceed half of the generation, and
//! when another process has changed the members: an earlier owner that does not know of this one
//! yet, or a command.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use metrics::Gauge;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use rtad_core::device::DeviceKey;
use rtad_core::error_chain::error_chain;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{Current, DeltaEntry, Digest, GenerationFacts};
use rtad_store::StoreError;
use rtad_window::{Failure, Key, ListedKey};

use super::config::AudienceConfig;
use super::reports::{Due, Reports};
use super::served::ServedWindow;
use super::source::{SourceError, live_window};
use crate::TOOL;
use crate::audience::{DEFAULT_FPR, WriteRequest, Writers, Written};
use crate::error::ApiError;
use crate::op::Op;

/// Keys in deltas beyond which the audience becomes a new generation: so many, or half of its keys
/// if that is more.
const MAX_DELTA_KEYS: u64 = 200_000;
/// Keys that are written at a time: a third of the room of an audience's writes.
const ROUND_KEYS: usize = 1_000_000;
/// Keys whose counts are read at a time.
const COUNT_BATCH: usize = 10_000;

/// Times between the rounds of an audience.
#[derive(Debug, Clone, Copy)]
pub struct FollowTimes {
    /// Pause after a failure.
    retry: Duration,
    /// Time between checks of an idle audience. A lifted tombstone waits as long: each check is a
    /// request to the store.
    check: Duration,
}

impl FollowTimes {
    pub const DEFAULT: Self = Self {
        retry: Duration::from_secs(1),
        check: Duration::from_secs(5),
    };
}

/// A round that failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    /// The log has its cause.
    #[error("{}", .0.code())]
    Write(ApiError),
    #[error(transparent)]
    Publish(#[from] StoreError),
    #[error(transparent)]
    Window(#[from] Failure),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "the records of the audience are gone: check the store's mount, or restart this process"
    )]
    LostStore,
}

/// State between rounds.
#[derive(Default)]
struct Session {
    /// The generation and the deltas after the last write. Tombstones are of other writers.
    generation: u64,
    deltas: Vec<DeltaEntry>,
    /// Members of the generation.
    generation_keys: u64,
    /// The tombstones at the last write, and the devices that they kept out of the deltas.
    tombstones: Option<Digest>,
    entombed: HashSet<Key>,
    /// The failure that was logged last.
    failure: Option<String>,
}

impl Session {
    fn is_at(&self, current: &Current) -> bool {
        (self.generation, &self.deltas) == (current.generation, &current.deltas)
    }

    /// Keys in the deltas, beyond which a new generation costs pods less.
    fn max_delta_keys(&self) -> u64 {
        MAX_DELTA_KEYS.max(self.generation_keys / 2)
    }

    fn delta_keys(&self) -> u64 {
        self.deltas.iter().map(DeltaEntry::keys).sum()
    }
}

pub struct Follower {
    pub(super) config: AudienceConfig,
    pub(super) window: Arc<ServedWindow>,
    pub(super) reports: Arc<Reports>,
    pub(super) writers: Arc<Writers>,
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
                    biased;
                    () = self.reports.wake.notified() => {}
                    _ = stop.changed() => continue,
                    () = tokio::time::sleep(self.times.retry) => {}
                }
                self.update_lag();
                sleep_until(next).await;
            }
            if self.window.handle.has_ended() {
                // Another owner writes the audience.
                return;
            }

            let due = self.reports.take();
            if due.is_some() || Instant::now() >= check_at {
                let written = self.with_lag(self.round(&mut session, due.as_ref())).await;
                if !self.finish(&mut session, due, written) {
                    next = Instant::now() + self.times.retry;
                }
                check_at = Instant::now() + self.times.check;
            }
            self.update_lag();
            if is_stopping {
                return;
            }
        }
    }

    /// Writes what is due. `false`: another process has changed the members, so that further deltas
    /// would not make them right.
    async fn round(&self, session: &mut Session, due: Option<&Due>) -> Result<bool, RoundError> {
        let keys = match due {
            // A delta of so many keys would be replaced by a generation at once.
            Some(Due::Changes(keys)) if keys.len() as u64 <= session.max_delta_keys() => keys,
            Some(_) => {
                self.publish(session).await?;
                return Ok(true);
            }
            None => return self.check(session).await,
        };

        for keys in keys.chunks(ROUND_KEYS) {
            let requests = self.requests(keys).await?;
            if !self.write(session, requests).await? {
                return Ok(false);
            }
        }
        if session.delta_keys() > session.max_delta_keys() {
            self.reports.renew();
        }
        Ok(true)
    }

    /// Whether the members are those that this task wrote last: a request without keys is answered
    /// with the newest record.
    async fn check(&self, session: &mut Session) -> Result<bool, RoundError> {
        match self.write(session, vec![self.request(Op::Remove)]).await {
            // The changes since then wait.
            Err(RoundError::Write(ApiError::Disabled)) => Ok(true),
            checked => checked,
        }
    }

    /// Ends a round; returns whether it succeeded. `Ok(false)` is an audience that another process
    /// has changed.
    fn finish(
        &self,
        session: &mut Session,
        due: Option<Due>,
        written: Result<bool, RoundError>,
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
                    // Deleted or built by another process, or too many deltas.
                    RoundError::Write(
                        ApiError::UnknownAudience
                        | ApiError::Deleted
                        | ApiError::Owned
                        | ApiError::DeltasFull,
                    ) => Some(Due::All),
                    _ => due,
                }
            }
        };
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
                biased;
                written = &mut write => return written,
                () = tokio::time::sleep(self.times.retry) => self.update_lag(),
            }
        }
    }

    fn update_lag(&self) {
        self.lag_seconds.set(self.reports.lag().as_secs_f64());
    }

    fn request(&self, op: Op) -> WriteRequest {
        WriteRequest {
            op,
            keys: Vec::new(),
            values: Vec::new(),
            window: Some(self.config.from_window.clone()),
        }
    }

    /// The requests that make keys members or not, by their counts.
    async fn requests(&self, keys: &[Key]) -> Result<Vec<WriteRequest>, RoundError> {
        let mut added = self.request(Op::Add);
        let mut removed = self.request(Op::Remove);
        for keys in keys.chunks(COUNT_BATCH) {
            let counts = self.window.handle.counts(keys.to_vec()).await?;
            for (key, count) in keys.iter().zip(counts) {
                let request = if count >= self.config.min_count {
                    &mut added
                } else {
                    &mut removed
                };
                request.keys.push(DeviceKey::from_bytes(*key));
            }
        }

        let mut requests = vec![added, removed];
        requests.retain(|request| !request.keys.is_empty());
        Ok(requests)
    }

    /// Has requests written; whether only this task has changed the members since its last write.
    async fn write(
        &self,
        session: &mut Session,
        requests: Vec<WriteRequest>,
    ) -> Result<bool, RoundError> {
        let writes = requests
            .into_iter()
            .map(|request| self.writers.write(&self.config.name, request));
        let mut written = Vec::new();
        let mut failure = None;
        for answer in join_all(writes).await {
            match answer {
                Ok(answer) => written.push(answer),
                Err(error) => failure = Some(error),
            }
        }

        written.sort_by_key(|written| written.after.sequence);
        let mut is_alone = true;
        for written in written {
            is_alone &= self.note(session, written);
        }
        failure.map_or(Ok(is_alone), |error| Err(RoundError::Write(error)))
    }

    /// Notes a write; whether it followed the last one, or was part of it.
    fn note(&self, session: &mut Session, written: Written) -> bool {
        let Written {
            before,
            after,
            entombed,
            ..
        } = written;
        if !session.is_at(&before) && !session.is_at(&after) {
            return false;
        }
        session.generation = after.generation;
        session.deltas.clone_from(&after.deltas);

        let tombstones = after.tombstones.as_ref().map(|entry| entry.sha256);
        if session.tombstones != tombstones {
            // Some may have been lifted: events since are not in the audience.
            session.tombstones = tombstones;
            let held = std::mem::take(&mut session.entombed);
            self.reports.add(held.iter());
        }
        session
            .entombed
            .extend(entombed.iter().map(DeviceKey::as_bytes));
        true
    }

    /// Checks that the live generation may be replaced. One of another window is replaced once
    /// after the start, as its [[audience]] has moved; later, another writer follows that window.
    async fn check_source(
        &self,
        session: &Session,
        current: Option<&Current>,
    ) -> Result<(), RoundError> {
        let written = session.generation;
        if current.is_some_and(|current| current.generation == written) {
            return Ok(());
        }

        let config = &self.config;
        let Some(found) = live_window(self.writers.store.store(), config, current).await? else {
            return Ok(());
        };
        if found == config.from_window {
            return Ok(());
        }
        if written > 0 {
            return Err(RoundError::Source(SourceError::OtherWindow {
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
    async fn publish(&self, session: &mut Session) -> Result<(), RoundError> {
        let store = &self.writers.store;
        let base = store.base(&self.config.name).await?;
        if base.current().is_none() && session.generation > 0 {
            // Deleted audiences have records: this is another store, or a mount is lost.
            return Err(RoundError::LostStore);
        }
        self.check_source(session, base.current()).await?;

        let facts = GenerationFacts {
            from_window: Some(self.config.from_window.clone()),
            folded: base.folded(),
            ..GenerationFacts::built_now_by(TOOL)
        };

        // Listed after the base was read: changes from here on are reported.
        let listed = self.window.handle.list(self.config.min_count).await?;
        let publication = store.publish(base).await?;
        let keys = device_keys(listed);
        let filter = FilterSpec::for_fpr(FilterKind::Block512, DEFAULT_FPR).expect("a valid rate");
        let published = publication
            .commit_keys(keys, filter, DEFAULT_FPR, facts)
            .await?;

        // The generation contains the devices with a tombstone too, so none are held. Deltas that
        // another process appended meanwhile are not among the written.
        *session = Session {
            generation: published.current.generation,
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
