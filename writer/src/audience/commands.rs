//! Commands to the writer task of an audience, and their replies.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use rtad_core::device::DeviceKey;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{Current, State};

use super::batch::WriteRequest;
use crate::error::ApiError;
use crate::telemetry::WaitingGuard;

pub type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

pub enum Command {
    Write(Write),
    /// A change of the whole audience. The reply is the number of the record with it.
    Change(AudienceChange, Reply<u64>),
}

pub struct Write {
    pub(crate) request: WriteRequest,
    pub(crate) reply: Reply<Written>,
    pub(crate) waiting: WaitingGuard,
    pub(crate) permit: Option<WaitingPermit>,
}

/// Share of the limits of waiting keys.
pub struct WaitingPermit {
    pub(crate) _of_audience: OwnedSemaphorePermit,
    pub(crate) _of_all: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub struct Written {
    /// The record before the write, and the one with it.
    pub(crate) before: Arc<Current>,
    pub(crate) after: Arc<Current>,
    /// Keys not added because of a tombstone.
    pub(crate) entombed: Vec<DeviceKey>,
    /// Keys added without a value to an audience that has values.
    pub(crate) without_value: u64,
    pub(crate) new: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
pub enum AudienceChange {
    /// Publishes a first generation without devices.
    Create(FilterSpec, f64),
    /// Sets live or disabled.
    State(State),
    /// Sets the expiry, in seconds since 1970.
    Expires(Option<u64>),
    Delete,
}
