//! Store writer: a writable store, and an optional signer.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};

use super::sign::Sign;
use crate::backend::Backend;
use crate::error::StoreError;
use crate::read::Store;
use rtad_core::snapshot::AudienceName;

/// Time in which a delete arrives that a gc sent before it could see a renewed file.
const DELETE_TIME: Duration = Duration::from_secs(15);

/// A store of snapshots, for writing. Cheap to clone; may be used from any number of tasks.
#[derive(Clone)]
pub struct StoreWriter {
    store: Store,
    signer: Option<Arc<dyn Sign>>,
    /// Whether a first publish creates the directory of the store.
    creates_store: bool,
    /// [`DELETE_TIME`], or none in tests whose gc sends no late deletes.
    delete_time: Duration,
}

impl std::fmt::Debug for StoreWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreWriter")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl StoreWriter {
    /// The write side of a store. Sends no request.
    ///
    /// # Errors
    ///
    /// [`StoreError::ReadOnly`].
    pub fn new(store: Store) -> Result<Self, StoreError> {
        store.backend.check_writable()?;
        Ok(Self {
            store,
            signer: None,
            creates_store: false,
            delete_time: DELETE_TIME,
        })
    }

    /// The write side of the store at a URL, without public keys.
    ///
    /// # Errors
    ///
    /// Those of [`Store::open`], and [`StoreError::ReadOnly`].
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::new(Store::open(url)?)
    }

    /// Sets the signer. A writer without a signer signs no records.
    #[must_use]
    pub fn with_signer(self, signer: Option<Arc<dyn Sign>>) -> Self {
        Self { signer, ..self }
    }

    /// Lets a first publish create the directory of the store. Without this, a missing directory is
    /// an error: it may be behind a mount that is lost.
    #[must_use]
    pub fn creating_store(self) -> Self {
        Self {
            creates_store: true,
            ..self
        }
    }

    pub(super) const fn creates_store(&self) -> bool {
        self.creates_store
    }

    pub(super) fn signer(&self) -> Option<&dyn Sign> {
        self.signer.as_deref()
    }

    /// Whether records are signed.
    pub const fn signs(&self) -> bool {
        self.signer.is_some()
    }

    /// The read side.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    pub(super) const fn backend(&self) -> &Backend {
        &self.store.backend
    }

    /// Refuses a bucket that ignores the condition of a create. Costs three requests, once per
    /// client.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conditions`], or a store error.
    pub async fn check_creates(&self, audience: &AudienceName) -> Result<(), StoreError> {
        self.store.records(audience).check_creates().await
    }

    /// Waits until deletes have arrived that are on their way.
    pub(super) async fn wait_for_deletes(&self) {
        if !self.delete_time.is_zero() {
            tokio::time::sleep(self.delete_time).await;
        }
    }

    #[cfg(test)]
    pub(crate) fn without_delete_time(self) -> Self {
        Self {
            delete_time: Duration::ZERO,
            ..self
        }
    }

    /// Writes a file whose name determines its content: twice is harmless.
    pub(super) async fn put(
        &self,
        path: &Path,
        bytes: impl Into<PutPayload>,
    ) -> Result<(), StoreError> {
        let objects = self.store.objects(path).await?;
        let put = objects.put(path, bytes.into()).await;
        put.map(drop)
            .map_err(|source| StoreError::backend("write", path, source))
    }
}
