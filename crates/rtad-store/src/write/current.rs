//! Updates of `CURRENT`, the last step of every change: publish, rollback, append, deletion.
//!
//! An update has the lock of a directory from its beginning, so that nobody else replaces the
//! `CURRENT` that it read. The put into an object store is conditional on that `CURRENT` instead.
//! Deltas are written under the same lock, which removes half-written ones.

use object_store::PutMode;

use super::lock::lock_current;
use super::put::put_if;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{current_path, delta_path};
use crate::read::Live;
use rtad_core::files::FileLock;
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry};

/// Reason of a conflict.
pub const WRITTEN_MEANWHILE: &str = "another process wrote meanwhile";

/// A begun update. Dropping it changes nothing for readers.
#[derive(Debug)]
pub struct CurrentUpdate<'w> {
    pub(super) writer: &'w StoreWriter,
    pub(super) audience: &'w AudienceName,
    /// The `CURRENT` to replace.
    pub(super) live: Option<Live>,
    _lock: Option<FileLock>,
}

impl<'w> CurrentUpdate<'w> {
    /// Begins an update of the `CURRENT` that is live now.
    pub async fn begin(
        writer: &'w StoreWriter,
        audience: &'w AudienceName,
    ) -> Result<Self, StoreError> {
        let lock = lock_current(writer.backend(), audience).await?;
        let live = writer.store().live(audience).await?;
        Ok(Self {
            writer,
            audience,
            live,
            _lock: lock,
        })
    }

    /// Begins an update of a `CURRENT` that was read earlier. Sends no request to an object store.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another one is live; in an object store [`Self::write`] says so.
    pub async fn begin_over(
        writer: &'w StoreWriter,
        audience: &'w AudienceName,
        live: Live,
    ) -> Result<Self, StoreError> {
        if writer.backend().is_directory() {
            // Read under the lock, because a rename is unconditional.
            let update = Self::begin(writer, audience).await?;
            let found = update.live.as_ref().map(|live| live.current.sequence);
            if found == Some(live.current.sequence) {
                return Ok(update);
            }
            return Err(StoreError::conflict(audience, WRITTEN_MEANWHILE, false));
        }
        Ok(Self {
            writer,
            audience,
            live: Some(live),
            _lock: None,
        })
    }

    /// Writes a delta's file, durably. Readers find it once a `CURRENT` names it.
    pub async fn put_delta(&self, entry: &DeltaEntry, bytes: Vec<u8>) -> Result<(), StoreError> {
        let path = delta_path(self.audience, entry);
        self.writer
            .put_signed(self.audience, &path, bytes, PutMode::Overwrite)
            .await
    }

    /// Replaces `CURRENT`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster.
    pub async fn write(self, next: &Current) -> Result<Live, StoreError> {
        let backend = self.writer.backend();
        let mode = match self.live {
            // The lock excludes other writers.
            _ if backend.is_directory() => PutMode::Overwrite,
            None => PutMode::Create,
            Some(live) => PutMode::Update(live.version),
        };
        let path = current_path(self.audience);
        let bytes = next.to_bytes();

        // Validate before writing: an unreadable `CURRENT` would block every later write.
        Current::parse(&bytes).map_err(|source| StoreError::Manifest {
            path: path.to_string(),
            source,
        })?;
        let version = put_if(backend, self.audience, &path, bytes, mode).await?;
        Ok(Live::written(next.clone(), version))
    }
}
