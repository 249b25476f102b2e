//! Writer task: the only task of this process that writes an audience.
//!
//! Requests wait in a queue. The task coalesces all waiting requests into one delta and one record,
//! at a limited rate. A request is answered once a record contains its change, or with the store's
//! error.
//!
//! Other processes may write the same audience; the store resolves conflicts (`rtad_store`,
//! `write/append.rs`). A conflict makes the task read the newest record, coalesce its requests again over
//! the new state, and retry. Answers therefore reflect the state at the time of the write. A batch
//! without effect is answered only after no newer record was found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use rtad_core::backoff::Backoff;
use rtad_core::random;
use rtad_core::snapshot::{AudienceName, Delta, Snapshot, State};
use rtad_store::StoreError;
use rtad_store::write::Ledger;

use super::batch::{Coalesced, coalesce};
use super::commands::{AudienceChange, Command, Write, Written};
use super::members::Members;
use super::session::Session;
use crate::error::ApiError;
use crate::op::Op;

/// Attempts of a batch while others write the same audience.
const MAX_TRIES: u32 = 12;
/// Longest delay before the second attempt; doubles with each further attempt.
const RETRY_UNIT: Duration = Duration::from_millis(20);
const MAX_RETRY_UNITS: u32 = 25;
/// Batches after a conflict that start with a refresh, because the other writer is likely active.
const CAREFUL_BATCHES: u32 = 64;

/// Rate limits of an audience's writes.
#[derive(Debug, Clone, Copy)]
pub struct WriteLimits {
    /// Time from the start of one append to the start of the next.
    pub every: Duration,
    /// Maximum number of keys in one append.
    pub max_batch: usize,
}

pub struct Writer {
    session: Session,
    limits: WriteLimits,
    queue: mpsc::Receiver<Command>,
    pending: VecDeque<Command>,
    /// Writes that wait for the filters.
    waiting: Vec<Write>,
    members: Members,
    /// Remaining batches that start with a refresh.
    careful: u32,
}

enum Attempt {
    /// All requests were answered.
    Done,
    /// Another writer was faster.
    Again(Vec<Write>),
    Failed(Vec<Write>, ApiError),
}

impl Writer {
    pub fn new(session: Session, limits: WriteLimits, queue: mpsc::Receiver<Command>) -> Self {
        let (pending, waiting, members) = Default::default();
        Self {
            session,
            limits,
            queue,
            pending,
            waiting,
            members,
            careful: 0,
        }
    }

    /// Runs until the queue is closed, or the audience turns out not to exist.
    pub async fn run(mut self) {
        let mut next = Instant::now();
        while self.has_work().await {
            tokio::time::sleep_until(next).await;
            while let Ok(command) = self.queue.try_recv() {
                self.pending.push_back(command);
            }
            self.check_load();
            match self.pending.pop_front() {
                Some(Command::Write(first)) => {
                    next = Instant::now() + self.limits.every;
                    let batch = self.batch(first);
                    self.write(batch).await;
                }
                Some(Command::Change(change, reply)) => {
                    // The client may be gone.
                    let _ = reply.send(self.change(change).await);
                }
                None => {}
            }
            if self.session.ledger.is_none() && self.pending.is_empty() && self.waiting.is_empty() {
                // The next request starts a new task: nonexistent audiences must not keep tasks.
                self.queue.close();
            }
        }
    }

    async fn change(&mut self, change: AudienceChange) -> Result<u64, ApiError> {
        let changed = self.session.apply(change).await;
        if matches!(change, AudienceChange::Delete) {
            // Writes that waited for the filters get the deletion as their answer.
            self.members = Members::default();
            self.wake();
        }
        changed
    }

    /// Waits for work; `false` if none can arrive.
    async fn has_work(&mut self) -> bool {
        while self.pending.is_empty() {
            tokio::select! {
                loaded = self.members.loaded() => self.on_loaded(loaded),
                command = self.queue.recv() => match command {
                    Some(command) => self.pending.push_back(command),
                    None if self.members.is_loading() => {
                        let loaded = self.members.loaded().await;
                        self.on_loaded(loaded);
                        if self.pending.is_empty() {
                            return false;
                        }
                    }
                    None => return false,
                },
            }
        }
        true
    }

    /// Ends a load that has finished, also while the queue is never empty. Writes that were already
    /// answered with `no_answer` leave their permits to others.
    fn check_load(&mut self) {
        self.waiting.retain(|write| !write.reply.is_closed());
        if let Some(loaded) = self.members.loaded().now_or_never() {
            self.on_loaded(loaded);
        }
    }

    fn on_loaded(&mut self, loaded: Result<(), StoreError>) {
        match loaded {
            Ok(()) => self.wake(),
            Err(error) => {
                let refusal = self.session.failed("could not read the filters", &error);
                // The generation may have been removed.
                self.careful = self.careful.max(1);
                let waiting = std::mem::take(&mut self.waiting);
                Self::refuse(waiting, &refusal);
            }
        }
    }

    /// Takes the requests that fit into one batch with `first`, without those that were already
    /// answered with `no_answer`.
    fn batch(&mut self, first: Write) -> Vec<Write> {
        let mut keys = first.request.keys.len();
        let mut batch = vec![first];
        while let Some(Command::Write(write)) = self.pending.front() {
            keys += write.request.keys.len();
            if keys > self.limits.max_batch {
                break;
            }
            if let Some(Command::Write(write)) = self.pending.pop_front() {
                batch.push(write);
            }
        }
        batch.retain(|write| !write.reply.is_closed());
        batch
    }

    async fn write(&mut self, mut batch: Vec<Write>) {
        let mut backoff = Backoff::new(MAX_RETRY_UNITS);
        for tries in 0..MAX_TRIES {
            if tries > 0 {
                self.session.telemetry.conflict(&self.session.audience);
                // Full jitter keeps two writers out of step.
                let longest = RETRY_UNIT * backoff.fail();
                tokio::time::sleep(longest.mul_f64(random::fraction())).await;
            }
            batch = match self.attempt(batch).await {
                Attempt::Done => return,
                Attempt::Again(batch) => batch,
                Attempt::Failed(batch, refusal) => return Self::refuse(batch, &refusal),
            };
        }
        tracing::warn!(
            audience = self.session.audience.as_str(),
            "all attempts conflicted with other writers"
        );
        Self::refuse(batch, &ApiError::Contended);
    }

    async fn attempt(&mut self, batch: Vec<Write>) -> Attempt {
        if let Err(refusal) = self.open().await {
            return Attempt::Failed(batch, refusal);
        }
        match self.append(batch).await {
            Ok(()) => Attempt::Done,
            Err((batch, error)) => {
                // Any error may leave the known state stale.
                self.careful = CAREFUL_BATCHES;
                match error {
                    StoreError::Conflict { .. } => Attempt::Again(batch),
                    // Disabled, or deltas merged by another writer and removed: refresh to find
                    // out.
                    StoreError::NotFound { .. } | StoreError::NotLive { .. }
                        if self.is_behind().await =>
                    {
                        Attempt::Again(batch)
                    }
                    error => {
                        Attempt::Failed(batch, self.session.failed("could not append", &error))
                    }
                }
            }
        }
    }

    /// The ledger, of an audience that accepts writes.
    async fn open(&mut self) -> Result<&mut Ledger, ApiError> {
        let is_new = self.session.open().await?;
        if !is_new && (self.careful > 0 || !self.session.is_live()) {
            self.careful = self.careful.saturating_sub(1);
            self.session.refresh().await?;
        }
        let ledger = self.session.ledger.as_mut().expect("it was just opened");
        match ledger.current().state {
            State::Live => Ok(ledger),
            state => Err(ApiError::not_live(state)),
        }
    }

    async fn is_behind(&mut self) -> bool {
        self.session.refresh().await.unwrap_or(false)
    }

    /// One attempt with the ledger's known state. An error returns the requests.
    async fn append(&mut self, mut batch: Vec<Write>) -> Result<(), (Vec<Write>, StoreError)> {
        let mut ledger = self.session.ledger.take().expect("it was opened");
        let appended = self.append_to(&mut ledger, &mut batch).await;
        self.session.ledger = Some(ledger);
        appended.map_err(|error| (batch, error))
    }

    async fn append_to(
        &mut self,
        ledger: &mut Ledger,
        batch: &mut Vec<Write>,
    ) -> Result<(), StoreError> {
        self.refuse_foreign(ledger, batch).await?;
        let has_values = self.has_values(ledger, batch).await?;
        let needs_members = |write: &Write| write.request.op == Op::AddIfAbsent;
        let mut members = None;
        if batch.iter().any(needs_members) {
            if self.members.are_of(ledger.current()) {
                members = Some(self.members.over(ledger).await?);
            } else {
                self.members.load(
                    self.session.store.store(),
                    &self.session.audience,
                    ledger.current(),
                );
                // Only writes that need the filters wait for them.
                self.waiting
                    .extend(batch.extract_if(.., |write| needs_members(write)));
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        let tombstones = match ledger.current().tombstones.clone() {
            Some(entry) => Some(ledger.delta(&entry).await?),
            None => None,
        };
        let coalesced = coalesce_blocking(batch, members, tombstones).await;
        let before = Arc::new(ledger.current().clone());
        let begun = Instant::now();
        let is_empty = coalesced.change.is_empty();
        ledger.append(coalesced.change).await?;
        let after = Arc::new(ledger.current().clone());
        if !is_empty {
            self.session
                .telemetry
                .appended(&self.session.audience, begun.elapsed());
        }
        let rest = batch.split_off(coalesced.outcomes.len());
        let without_value = coalesced
            .outcomes
            .iter()
            .map(|outcome| outcome.without_value)
            .sum();
        if has_values && without_value > 0 {
            self.session
                .warn_without_value(ledger.current(), without_value);
        }
        for (write, outcome) in batch.drain(..).zip(coalesced.outcomes) {
            let written = Written {
                before: Arc::clone(&before),
                after: Arc::clone(&after),
                entombed: outcome.entombed,
                without_value: if has_values { outcome.without_value } else { 0 },
                new: outcome.new,
            };
            Self::answer(write, Ok(written));
        }
        rest.into_iter()
            .rev()
            .for_each(|write| self.pending.push_front(Command::Write(write)));
        Ok(())
    }

    /// Refuses changes of members by others than the window that the audience follows: its writer
    /// would undo them. An audience that was built follows none.
    async fn refuse_foreign(
        &mut self,
        ledger: &mut Ledger,
        batch: &mut Vec<Write>,
    ) -> Result<(), StoreError> {
        let changes_members = |write: &Write| !write.request.op.is_about_tombstones();
        if !batch.iter().any(changes_members) {
            return Ok(());
        }

        let is_foreign = |write: &Write, source: Option<&AudienceName>| {
            changes_members(write) && write.request.window.as_ref() != source
        };
        // An unreadable manifest stops no removal.
        let Ok(mut facts) = self.session.facts(ledger.current()).await else {
            return Ok(());
        };
        if !batch
            .iter()
            .any(|write| is_foreign(write, facts.from_window.as_ref()))
        {
            return Ok(());
        }

        // It may have been built anew since.
        if ledger.refresh().await? {
            facts = self.session.facts(ledger.current()).await?;
        }
        let refused = batch
            .extract_if(.., |write| is_foreign(write, facts.from_window.as_ref()))
            .collect();
        Self::refuse(refused, &ApiError::Owned);
        Ok(())
    }

    /// Whether the generation has values that additions of the batch replace. Refuses requests with
    /// values if it has none.
    async fn has_values(
        &mut self,
        ledger: &mut Ledger,
        batch: &mut Vec<Write>,
    ) -> Result<bool, StoreError> {
        if !batch.iter().any(|write| write.request.op.adds()) {
            return Ok(false);
        }
        let mut has_values = self.session.facts(ledger.current()).await?.has_values;
        let is_valued = |write: &mut Write| !write.request.values.is_empty();
        if has_values || !batch.iter_mut().any(is_valued) {
            return Ok(has_values);
        }
        // A build may have published values since.
        if ledger.refresh().await? {
            has_values = self.session.facts(ledger.current()).await?.has_values;
        }
        if !has_values {
            Self::refuse(
                batch.extract_if(.., is_valued).collect(),
                &ApiError::NoValues,
            );
        }
        Ok(has_values)
    }

    fn answer(write: Write, answer: Result<Written, ApiError>) {
        drop((write.waiting, write.permit));
        // The client may be gone.
        let _ = write.reply.send(answer);
    }

    fn refuse(batch: Vec<Write>, refusal: &ApiError) {
        batch
            .into_iter()
            .for_each(|write| Self::answer(write, Err(refusal.clone())));
    }

    /// Moves writes that waited for the filters back to the queue.
    fn wake(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting
            .into_iter()
            .rev()
            .for_each(|write| self.pending.push_front(Command::Write(write)));
    }
}

/// Coalesces on the blocking pool: a batch may hold a million keys with a random memory access
/// each.
async fn coalesce_blocking(
    batch: &mut Vec<Write>,
    members: Option<Arc<Snapshot>>,
    tombstones: Option<Arc<Delta>>,
) -> Coalesced {
    let writes = std::mem::take(batch);
    let coalesced = tokio::task::spawn_blocking(move || {
        let requests = writes.iter().map(|write| &write.request);
        let coalesced = coalesce(requests, members.as_deref(), tombstones.as_deref());
        (writes, coalesced)
    });
    match coalesced.await {
        Ok((writes, coalesced)) => {
            *batch = writes;
            coalesced
        }
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

#[cfg(test)]
mod tests;
