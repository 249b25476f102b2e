//! What others see of sync: whether the pod is ready, and how the last looks went.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::snapshot::AudienceName;
use crate::telemetry::Telemetry;

/// Whether the pod should get traffic. Rises once, when every required audience has been loaded and the decision port is open; falls
/// once, on draining.
#[derive(Debug, Default)]
pub struct Readiness {
    complete: AtomicBool,
    open: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// Ready: complete, open and not draining. A refresh that fails does not change it.
    pub fn is_ready(&self) -> bool {
        self.complete.load(Ordering::Acquire) && self.is_open() && !self.is_draining()
    }

    /// Whether the decision port is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether the process is on its way out.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Every required audience has been loaded.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// The decision port is open: who connects from now on is answered.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// The process is on its way out.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

/// How the last look at an audience went, for people.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LastSync {
    /// When, in seconds since 1970.
    pub at_unix_seconds: u64,
    /// `ok`, `unchanged`, or the cause of the failure.
    pub result: &'static str,
    /// The failure in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The last look at each audience; written by sync, read by the admin port.
#[derive(Debug, Default)]
pub struct SyncBoard(Mutex<BTreeMap<AudienceName, LastSync>>);

impl SyncBoard {
    /// How the last look at the audience went; `None` before the first.
    pub fn last(&self, audience: &AudienceName) -> Option<LastSync> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(audience).cloned()
    }

    pub(super) fn set(&self, audience: &AudienceName, last: LastSync) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(audience.clone(), last);
    }
}

/// What others see of sync.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// All metrics.
    pub telemetry: Arc<Telemetry>,
    /// Whether the pod should get traffic.
    pub readiness: Arc<Readiness>,
    /// How the last looks went.
    pub board: Arc<SyncBoard>,
}

/// Seconds since 1970.
pub fn now_unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
