//! Writer tasks of this process: one per audience, started on its first write.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use rtad_core::snapshot::AudienceName;
use rtad_store::write::StoreWriter;

use super::batch::WriteRequest;
use super::commands::{AudienceChange, Command, Write, Written};
use super::session::Session;
use super::writer::{WriteLimits, Writer};
use crate::error::ApiError;
use crate::op::Op;
use crate::telemetry::Telemetry;

/// Maximum number of waiting requests per audience.
const QUEUE: usize = 1024;
/// Maximum number of waiting keys in the process: 64 MiB.
const MAX_WAITING_KEYS: usize = 4 << 20;

pub struct Writers {
    pub(crate) store: StoreWriter,
    limits: WriteLimits,
    telemetry: Arc<Telemetry>,
    permits: Arc<Semaphore>,
    /// `None` once draining.
    queues: Mutex<Option<HashMap<AudienceName, mpsc::Sender<Command>>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Writers {
    pub fn new(store: StoreWriter, limits: WriteLimits, telemetry: Arc<Telemetry>) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_WAITING_KEYS));
        Self {
            store,
            limits,
            telemetry,
            permits,
            queues: Mutex::new(Some(HashMap::new())),
            tasks: Mutex::default(),
        }
    }

    /// Writes devices; returns once they are durable. Counts the result.
    pub async fn write(
        &self,
        audience: &AudienceName,
        request: WriteRequest,
    ) -> Result<Written, ApiError> {
        let unanswered = ApiError::NoAnswer.code();
        let mut counted = CountOnDrop {
            telemetry: &self.telemetry,
            audience,
            op: request.op,
            result: unanswered,
        };
        let written = self.have_written(audience, request).await;
        counted.result = written.as_ref().map_or_else(ApiError::code, |_| "ok");
        written
    }

    async fn have_written(
        &self,
        audience: &AudienceName,
        request: WriteRequest,
    ) -> Result<Written, ApiError> {
        let (reply, answer) = oneshot::channel();
        let permit = self.permit_for(request.keys.len())?;
        let waiting = self.telemetry.waiting();
        self.send(
            audience,
            Command::Write(Write {
                request,
                reply,
                waiting,
                permit,
            }),
        )?;
        // Dropped without an answer: the task panicked.
        answer.await.unwrap_or(Err(ApiError::Internal))
    }

    /// Changes a whole audience. Returns the sequence of the `CURRENT` with the change.
    pub async fn change(
        &self,
        audience: &AudienceName,
        change: AudienceChange,
    ) -> Result<u64, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.send(audience, Command::Change(change, reply))?;
        answer.await.unwrap_or(Err(ApiError::Internal))
    }

    fn permit_for(&self, keys: usize) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        let keys = u32::try_from(keys).map_err(|_| ApiError::Overloaded)?;
        if keys == 0 {
            return Ok(None);
        }
        Arc::clone(&self.permits)
            .try_acquire_many_owned(keys)
            .map(Some)
            .map_err(|_| ApiError::Overloaded)
    }

    fn send(&self, audience: &AudienceName, mut command: Command) -> Result<(), ApiError> {
        let mut queues = self.queues.lock();
        let Some(queues) = &mut *queues else {
            return Err(ApiError::Draining);
        };
        if let Some(queue) = queues.get(audience) {
            command = match queue.try_send(command) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => return Err(ApiError::Overloaded),
                // The task found no such audience, or panicked.
                Err(TrySendError::Closed(command)) => command,
            };
        }
        queues.retain(|_, queue| !queue.is_closed());
        let (sender, receiver) = mpsc::channel(QUEUE);
        // A new channel has room for one command.
        let _ = sender.try_send(command);
        let telemetry = Arc::clone(&self.telemetry);
        let session = Session::new(self.store.clone(), audience.clone(), telemetry);
        let writer = Writer::new(session, self.limits, receiver);
        queues.insert(audience.clone(), sender);
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(writer.run());
        Ok(())
    }

    /// Accepts no more requests, and waits until all accepted ones are written.
    pub async fn finish(&self) {
        *self.queues.lock() = None;
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Counts a write on drop, also after the time limit of its request.
struct CountOnDrop<'a> {
    telemetry: &'a Telemetry,
    audience: &'a AudienceName,
    op: Op,
    result: &'static str,
}

impl Drop for CountOnDrop<'_> {
    fn drop(&mut self) {
        self.telemetry.write(self.audience, self.op, self.result);
    }
}
