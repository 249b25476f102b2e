//! Errors of the cache: all are counted, the first input or output error is logged.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::telemetry::Telemetry;
use rtad_store::SignatureError;

/// Reports the errors of one cache.
#[derive(Debug)]
pub(super) struct CacheErrors {
    telemetry: Arc<Telemetry>,
    is_reported: AtomicBool,
}

impl CacheErrors {
    pub(super) const fn new(telemetry: Arc<Telemetry>) -> Self {
        Self {
            telemetry,
            is_reported: AtomicBool::new(false),
        }
    }

    /// Reports a failed read or write.
    pub(super) fn report(&self, path: &Path, result: &io::Result<()>) {
        let Err(error) = result else { return };
        self.telemetry.cache_error();
        // A full disk fails every chunk.
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let path = path.display().to_string();
            let error = error.to_string();
            tracing::warn!(
                path,
                error,
                "cache failed; further cache errors are only counted"
            );
        }
    }

    /// Reports a damaged file, and deletes it.
    pub(super) fn delete_damaged(&self, path: &Path, error: &dyn std::error::Error) {
        self.telemetry.cache_error();
        let shown = path.display().to_string();
        let error = error.to_string();
        tracing::warn!(path = shown, error, "damaged cache file deleted");
        let _ = std::fs::remove_file(path);
    }

    /// Reports a file with a missing or unknown signature. The file stays: a process with other
    /// public keys may accept it.
    pub(super) fn report_untrusted(&self, path: &Path, error: &SignatureError) {
        self.telemetry.cache_error();
        let shown = path.display().to_string();
        let error = error.to_string();
        tracing::warn!(
            path = shown,
            error,
            "cache file ignored: its signature is not accepted"
        );
    }
}
