//! Store writer: a writable store, and an optional signer.

use std::sync::Arc;

use object_store::PutMode;
use object_store::path::Path;

use super::lock::Creates;
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
    /// Whether unsigned files over a signed generation are refused.
    refuses_unsigned: bool,
    /// Whether a first publish creates the directory of the store.
    creates_store: bool,
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
            refuses_unsigned: false,
            creates_store: false,
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

    /// Sets the signer. A writer without a signer signs no files.
    #[must_use]
    pub fn with_signer(self, signer: Option<Arc<dyn Sign>>) -> Self {
        Self { signer, ..self }
    }

    /// Sets whether a writer without a signer refuses to write over a signed generation. Readers
    /// with public keys would refuse the unsigned file, and with it all later changes.
    #[must_use]
    pub fn refusing_unsigned(self, refuses_unsigned: bool) -> Self {
        Self {
            refuses_unsigned,
            ..self
        }
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

    pub(super) const fn creates(&self) -> Creates {
        if self.creates_store {
            Creates::Store
        } else {
            Creates::Folder
        }
    }

    /// Checks that this writer may write over the live generation: see
    /// [`Self::refusing_unsigned`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsigned`], or a store error.
    pub async fn check_unsigned_write(&self, audience: &AudienceName) -> Result<(), StoreError> {
        if !self.refuses_unsigned() {
            return Ok(());
        }
        let live = match self.store.live(audience).await {
            Err(StoreError::NoDirectory { .. }) if self.creates_store => None,
            live => live?,
        };
        let Some(live) = live else {
            return Ok(());
        };
        let generation = live.current.generation;
        if !self.store.has_signature(audience, generation).await? {
            return Ok(());
        }
        Err(StoreError::Unsigned {
            audience: audience.clone(),
            generation,
        })
    }

    /// Whether an unsigned write is refused that readers with public keys would refuse.
    pub(super) const fn refuses_unsigned(&self) -> bool {
        self.refuses_unsigned && !self.signs()
    }

    pub(super) fn signer(&self) -> Option<&dyn Sign> {
        self.signer.as_deref()
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

    /// Writes an immutable file, and before it the signature if there is a signer. Its name must
    /// determine its content, by a generation or a digest.
    ///
    /// [`PutMode::Create`] applies to the signature too: of two writers of one name, one writes
    /// both files and the other none. A killed writer may leave a signature alone, which reserves
    /// the name until a gc removes it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it exists, [`StoreError::Sign`], or a store error.
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
                put_if(
                    self.backend(),
                    audience,
                    &signature_path(path),
                    signature,
                    mode.clone(),
                )
                .await?;
            }
            // Readers with public keys would refuse the unsigned file.
            None if trust.is_required() => {
                let source = SignatureError::Missing;
                return Err(StoreError::Signature {
                    path: path.to_string(),
                    source,
                });
            }
            None => {}
        }
        put_if(self.backend(), audience, path, bytes, mode)
            .await
            .map(|_| ())
    }

    /// Writes a file's signature again, unchanged, so that a gc sees it as young.
    pub(super) async fn refresh_signature(
        &self,
        audience: &AudienceName,
        path: &Path,
    ) -> Result<(), StoreError> {
        let path = signature_path(path);
        let objects = self.store.objects(&path).await?;
        match read_small(&*objects, &path, MAX_SIGNATURE_BYTES, "the signature").await {
            Ok((signature, _)) => put(
                self.backend(),
                audience,
                &path,
                signature,
                PutMode::Overwrite,
            )
            .await
            .map(|_| ()),
            Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
