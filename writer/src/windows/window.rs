//! A window in this process, or in Redis or Valkey, for the handlers.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;

use rtad_window::{Key, Observed, Retry};

use super::super::error::ApiError;
use super::counters::Results;
use super::remote::{RemoteInfo, RemoteWindow};
use super::served::{ServedWindow, WindowInfo};

/// A window in this process, or in Redis or Valkey.
#[derive(Clone)]
pub enum AnyWindow {
    Local(Arc<ServedWindow>),
    Remote(Arc<RemoteWindow>),
}

/// Entry of `GET /v1/windows`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Info<'a> {
    Local(WindowInfo<'a>),
    Remote(RemoteInfo<'a>),
}

impl AnyWindow {
    /// Counts events; `None` if entries of their time have expired. A request with a token gets the
    /// answers of its first attempt.
    pub async fn observe(
        &self,
        keys: Vec<Key>,
        at: Option<SystemTime>,
        retry: Option<Retry>,
    ) -> Result<Option<Observed>, ApiError> {
        match self {
            Self::Local(window) => window.observe(keys, at, retry).await,
            Self::Remote(window) => window.observe(&keys, at, retry).await,
        }
    }

    /// Adds to the metrics.
    pub fn count(&self, results: Results) {
        match self {
            Self::Local(window) => window.count(results),
            Self::Remote(window) => window.count(results),
        }
    }

    /// Counts of keys, without a change: 0 for keys that are not in the window.
    pub async fn check(&self, keys: Vec<Key>) -> Result<Vec<u16>, ApiError> {
        match self {
            Self::Local(window) => window.check(keys).await,
            Self::Remote(window) => window.check(&keys).await,
        }
    }

    /// Erases keys; whether each was in the window.
    pub async fn forget(&self, keys: Vec<Key>) -> Result<Vec<bool>, ApiError> {
        match self {
            Self::Local(window) => window.forget(keys).await,
            Self::Remote(window) => window.forget(&keys).await,
        }
    }

    pub fn info(&self) -> Info<'_> {
        match self {
            Self::Local(window) => Info::Local(window.info()),
            Self::Remote(window) => Info::Remote(window.info()),
        }
    }
}
