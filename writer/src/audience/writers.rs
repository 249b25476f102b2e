//! Writer tasks of this process: one per audience, started on its first write.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use rtad_core::snapshot::AudienceName;
use rtad_http::request_error::RequestError;
use rtad_store::write::StoreWriter;

use super::batch::WriteRequest;
use super::commands::{AudienceChange, Command, WaitingPermit, Write, Written};
use super::session::Session;
use super::writer::{WriteLimits, Writer};
use crate::error::ApiError;
use crate::op::Op;
use crate::telemetry::Telemetry;

/// Maximum number of waiting requests per audience.
const QUEUE: usize = 1024;
/// Maximum number of waiting keys in the process: 64 MiB.
const MAX_WAITING_KEYS: usize = 4 << 20;
/// Maximum number of waiting keys per audience: a slow one leaves a quarter to the others.
const MAX_KEYS_OF_AUDIENCE: usize = 3 << 20;

/// Tasks that write the audiences of this process.
pub struct Writers {
    pub(crate) store: StoreWriter,
    limits: WriteLimits,
    telemetry: Arc<Telemetry>,
    /// Room for the keys of all audiences, and of each.
    room: Arc<Semaphore>,
    rooms: Mutex<HashMap<AudienceName, Arc<Semaphore>>>,
    /// `None` once draining.
    queues: Mutex<Option<HashMap<AudienceName, mpsc::Sender<Command>>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Writers {
    /// No task runs yet: the first request of an audience starts its own.
    pub fn new(store: StoreWriter, limits: WriteLimits, telemetry: Arc<Telemetry>) -> Self {
        let room = Arc::new(Semaphore::new(MAX_WAITING_KEYS));
        Self {
            store,
            limits,
            telemetry,
            room,
            rooms: Mutex::default(),
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
        let permit = self.permit_for(audience, request.keys.len())?;
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
        answer.await.unwrap_or(Err(RequestError::Internal.into()))
    }

    /// Changes a whole audience. Returns the number of the record with the change.
    pub async fn change(
        &self,
        audience: &AudienceName,
        change: AudienceChange,
    ) -> Result<u64, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.send(audience, Command::Change(change, reply))?;
        answer.await.unwrap_or(Err(RequestError::Internal.into()))
    }

    fn permit_for(
        &self,
        audience: &AudienceName,
        keys: usize,
    ) -> Result<Option<WaitingPermit>, RequestError> {
        if keys == 0 {
            return Ok(None);
        }
        let keys = u32::try_from(keys).map_err(|_| RequestError::Overloaded)?;
        let acquire = |room: Arc<Semaphore>| {
            room.try_acquire_many_owned(keys)
                .map_err(|_| RequestError::Overloaded)
        };
        let of_audience = acquire(self.room_of(audience))?;
        let of_all = acquire(Arc::clone(&self.room))?;
        Ok(Some(WaitingPermit {
            _of_audience: of_audience,
            _of_all: of_all,
        }))
    }

    /// The room of an audience. Those that are not in use are dropped: names may be of no audience.
    fn room_of(&self, audience: &AudienceName) -> Arc<Semaphore> {
        let mut rooms = self.rooms.lock();
        if let Some(room) = rooms.get(audience) {
            return Arc::clone(room);
        }
        rooms.retain(|_, room| room.available_permits() < MAX_KEYS_OF_AUDIENCE);
        let room = Arc::new(Semaphore::new(MAX_KEYS_OF_AUDIENCE));
        rooms.insert(audience.clone(), Arc::clone(&room));
        room
    }

    fn send(&self, audience: &AudienceName, mut command: Command) -> Result<(), ApiError> {
        let mut queues = self.queues.lock();
        let Some(queues) = &mut *queues else {
            return Err(ApiError::Draining);
        };
        if let Some(queue) = queues.get(audience) {
            command = match queue.try_send(command) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(_)) => return Err(RequestError::Overloaded.into()),
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

#[cfg(test)]
mod tests {
    use rtad_store::Store;

    use super::*;

    #[test]
    fn waiting_writes_of_one_audience_leave_room_for_others() {
        let limits = WriteLimits {
            every: std::time::Duration::ZERO,
            max_batch: 1000,
        };
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        let writers = Writers::new(store, limits, Arc::default());
        let audience = |name: &str| -> AudienceName { name.parse().unwrap() };
        let fill = |name: &str| {
            let mut held = Vec::new();
            while let Ok(permit) = writers.permit_for(&audience(name), 100_000) {
                held.push(permit);
            }
            held
        };

        let slow = fill("slow");
        assert_eq!(slow.len(), 31);
        let other = fill("other");
        assert_eq!(other.len(), 10);
        assert_eq!(fill("third").len(), 0);
        drop(slow);
        drop(other);
        assert_eq!(fill("fourth").len(), 31);
        assert_eq!(writers.rooms.lock().len(), 1, "unused rooms are kept");
    }
}
