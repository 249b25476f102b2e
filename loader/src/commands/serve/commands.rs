//! Commands to the task of an audience, and their replies.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::State;

use super::batch::Asked;
use super::error::ApiError;
use super::telemetry::Waiting;

/// Channel of an answer.
pub(super) type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// A command to the task.
pub(super) enum Command {
    Write(Write),
    /// A change of the whole audience. The reply is the sequence of its `CURRENT`.
    Change(AudienceChange, Reply<u64>),
}

/// A request to write devices.
pub(super) struct Write {
    pub(super) asked: Asked,
    pub(super) reply: Reply<Written>,
    pub(super) waiting: Waiting,
    /// Its share of the process's limit of waiting keys.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// A finished write.
#[derive(Debug)]
pub(super) struct Written {
    /// Sequence of its `CURRENT`.
    pub(super) sequence: u64,
    pub(super) generation: u64,
    pub(super) entombed: u64,
    pub(super) new: Vec<bool>,
}

/// A change of the whole audience.
#[derive(Debug, Clone, Copy)]
pub(super) enum AudienceChange {
    /// A first generation without devices.
    Create(FilterSpec, f64),
    /// Live or disabled.
    State(State),
    /// End of serving, in seconds since 1970.
    Expires(Option<u64>),
    /// Deletion.
    Delete,
}
