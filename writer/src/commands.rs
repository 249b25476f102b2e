//! Commands to the writer task of an audience, and their replies.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::State;

use super::batch::WriteRequest;
use super::error::ApiError;
use super::telemetry::WaitingGuard;

pub(super) type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

pub(super) enum Command {
    Write(Write),
    /// A change of the whole audience. The reply is the sequence of the `CURRENT` with it.
    Change(AudienceChange, Reply<u64>),
}

pub(super) struct Write {
    pub(super) request: WriteRequest,
    pub(super) reply: Reply<Written>,
    pub(super) waiting: WaitingGuard,
    /// Share of the process-wide limit of waiting keys.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(super) struct Written {
    /// Sequence of the `CURRENT` with the write.
    pub(super) sequence: u64,
    pub(super) generation: u64,
    pub(super) entombed: u64,
    pub(super) new: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AudienceChange {
    /// Publishes a first generation without devices.
    Create(FilterSpec, f64),
    /// Sets live or disabled.
    State(State),
    /// Sets the expiry, in seconds since 1970.
    Expires(Option<u64>),
    Delete,
}
