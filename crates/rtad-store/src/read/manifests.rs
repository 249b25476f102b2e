//! Manifests, of the live generation or of any other.

use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use super::store::Store;
use crate::error::StoreError;
use crate::layout::{manifest_path, signature_path};
use crate::trust::Signed;
use rtad_core::snapshot::{AudienceName, Current, MAX_MANIFEST_BYTES, Manifest};

impl Store {
    /// Reads the manifest of a `CURRENT` and verifies its digest.
    ///
    /// # Errors
    ///
    /// A store error, or a refused manifest.
    pub async fn manifest(
        &self,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<Manifest, StoreError> {
        Ok(self.manifest_named(audience, current).await?.0)
    }

    /// Reads the manifest; returns its bytes and signature, too.
    ///
    /// # Errors
    ///
    /// A store error, or a refused manifest.
    pub async fn manifest_named(
        &self,
        audience: &AudienceName,
        current: &Current,
    ) -> Result<(Manifest, Signed), StoreError> {
        let path = manifest_path(audience, current.generation);
        let file = self
            .read_signed(&path, MAX_MANIFEST_BYTES, "the manifest")
            .await?;
        let manifest = Manifest::parse_named(&file.bytes, audience, current).map_err(|source| {
            StoreError::Manifest {
                path: path.to_string(),
                source,
            }
        })?;
        Ok((manifest, file))
    }

    /// The manifest of any generation, and its bytes. Its digest is unknown, so only its fields are
    /// checked, and its signature if there are public keys.
    ///
    /// # Errors
    ///
    /// A store error, or a refused manifest.
    pub async fn manifest_of(
        &self,
        audience: &AudienceName,
        generation: u64,
    ) -> Result<(Manifest, Vec<u8>), StoreError> {
        let path = manifest_path(audience, generation);
        let Signed { bytes, .. } = self
            .read_signed(&path, MAX_MANIFEST_BYTES, "the manifest")
            .await?;
        let manifest = Manifest::parse(&bytes, audience, generation).map_err(|source| {
            StoreError::Manifest {
                path: path.to_string(),
                source,
            }
        })?;
        Ok((manifest, bytes))
    }

    /// The generation that was live before another one, if it is among the `listed` ones, which
    /// ascend. Those in between were never live, as their publishes failed, or were rolled back
    /// from. If the manifest is damaged, refused or does not say, the next lower one.
    ///
    /// # Errors
    ///
    /// An outage of the store. A guess by number could remove the last generation that was live.
    pub(crate) async fn live_before(
        &self,
        audience: &AudienceName,
        generation: u64,
        listed: &[u64],
    ) -> Result<Option<u64>, StoreError> {
        let base = match self.manifest_of(audience, generation).await {
            Ok((manifest, _)) => manifest.base_generation(),
            Err(error) if error.is_outage() => return Err(error),
            Err(_) => None,
        };
        Ok(match base {
            Some(base) => listed.contains(&base).then_some(base),
            None => listed.iter().rfind(|listed| **listed < generation).copied(),
        })
    }

    /// The generation that was live before another one; `None` if there was none, or if it was
    /// removed.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn generation_before(
        &self,
        audience: &AudienceName,
        generation: u64,
    ) -> Result<Option<u64>, StoreError> {
        let listed = self.generations(audience).await?;
        self.live_before(audience, generation, &listed).await
    }

    /// Whether the manifest of a generation has a signature, which is not verified.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn has_signature(
        &self,
        audience: &AudienceName,
        generation: u64,
    ) -> Result<bool, StoreError> {
        self.is_signed(&manifest_path(audience, generation)).await
    }

    /// Whether a file has a signature, which is not verified.
    pub(crate) async fn is_signed(&self, path: &Path) -> Result<bool, StoreError> {
        let path = signature_path(path);
        match self.objects(&path).await?.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(StoreError::backend("look up", &path, source)),
        }
    }
}
