//! The write side of a store: a store that can be written to, and the signer if there is one.

use std::sync::Arc;

use object_store::PutMode;
use object_store::path::Path;

use super::put::{put, put_if};
use super::sign::{Sign, signature_of};
use crate::backend::Backend;
use crate::error::StoreError;
use crate::layout::signature_path;
use crate::read::{Store, read_small};
use crate::trust::{MAX_SIGNATURE_BYTES, SignatureError};
use rtad_core::snapshot::AudienceName;

/// A store of snapshots, for writing. Cheap to clone; may be used from any number of tasks.
#[derive(Clone)]
pub struct StoreWriter {
    store: Store,
    signer: Option<Arc<dyn Sign>>,
}

impl std::fmt::Debug for StoreWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreWriter").field("store", &self.store).finish_non_exhaustive()
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
        Ok(Self { store, signer: None })
    }

    /// The same by the store's URL, without public keys.
    ///
    /// # Errors
    ///
    /// As of [`Store::open`], and [`StoreError::ReadOnly`].
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::new(Store::open(url)?)
    }

    /// The same, with another signer; with none, files are not signed.
    #[must_use]
    pub fn with_signer(self, signer: Option<Arc<dyn Sign>>) -> Self {
        Self { signer, ..self }
    }

    /// Whether published files are signed.
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

    /// Writes a file, and its signature before it if there is a signer. For files that never
    /// change: their names must tell all their contents apart, as a generation's number or a digest
    /// does.
    ///
    /// With [`PutMode::Create`] the signature is written on that condition too: of two writers of
    /// one name, one has written both files and the other nothing. A writer that is killed may
    /// leave the signature without its file; the name is then taken until a gc removes the
    /// signature.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is there already, [`StoreError::Sign`], the store's own.
    pub(super) async fn put_signed(
        &self,
        audience: &AudienceName,
        path: &Path,
        bytes: Vec<u8>,
        mode: PutMode,
    ) -> Result<(), StoreError> {
        let trust = self.store.trust();
        match &self.signer {
            Some(signer) => {
                let signature = signature_of(&**signer, trust, path, &bytes)?;
                put_if(self.backend(), audience, &signature_path(path), signature, mode.clone())
                    .await?;
            }
            // A writer that requires signatures must not write a file that it would refuse.
            None if trust.is_required() => {
                let source = SignatureError::Missing;
                return Err(StoreError::Signature { path: path.to_string(), source });
            }
            None => {}
        }
        put_if(self.backend(), audience, path, bytes, mode).await.map(|_| ())
    }

    /// Writes a file's signature again as it is, if it has one, so that it is as young as the file
    /// is about to be.
    pub(super) async fn refresh_signature(
        &self,
        audience: &AudienceName,
        path: &Path,
    ) -> Result<(), StoreError> {
        let path = signature_path(path);
        let objects = self.store.objects(&path)?;
        match read_small(&*objects, &path, MAX_SIGNATURE_BYTES, "the signature").await {
            Ok((signature, _)) => {
                put(self.backend(), audience, &path, signature, PutMode::Overwrite)
                    .await
                    .map(|_| ())
            }
            Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
