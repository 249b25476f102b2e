//! Manifests, of the live generation or of another that the record names.

use super::small::read_small;
use super::store::Store;
use crate::error::StoreError;
use crate::layout::manifest_path;
use rtad_core::snapshot::{AudienceName, Current, GenerationEntry, MAX_MANIFEST_BYTES, Manifest};

impl Store {
    /// Reads the manifest of a generation that a record names, and verifies its digest.
    ///
    /// # Errors
    ///
    /// A store error, or a refused manifest.
    pub async fn manifest(
        &self,
        audience: &AudienceName,
        entry: &GenerationEntry,
    ) -> Result<Manifest, StoreError> {
        Ok(self.manifest_and_file(audience, entry).await?.0)
    }

    /// Reads the manifest; returns its bytes, too.
    ///
    /// # Errors
    ///
    /// A store error, or a refused manifest.
    pub async fn manifest_and_file(
        &self,
        audience: &AudienceName,
        entry: &GenerationEntry,
    ) -> Result<(Manifest, Vec<u8>), StoreError> {
        let path = manifest_path(audience, entry);
        let objects = self.objects(&path).await?;
        let limit = MAX_MANIFEST_BYTES;
        let bytes = read_small(&*objects, &path, limit, "the manifest", self.stall_timeout).await?;
        let manifest = Manifest::parse_named(&bytes, audience, entry).map_err(|source| {
            StoreError::Manifest {
                path: path.to_string(),
                source,
            }
        })?;
        Ok((manifest, bytes))
    }

    /// The generation that was live before another one, if the record names it. Those in between
    /// were rolled back from. If the manifest is damaged or does not say, the next lower one.
    ///
    /// # Errors
    ///
    /// An outage of the store. A guess by number could remove the last generation that was live.
    pub async fn generation_before(
        &self,
        audience: &AudienceName,
        current: &Current,
        generation: u64,
    ) -> Result<Option<GenerationEntry>, StoreError> {
        let base = match current.entry(generation) {
            Some(entry) => match self.manifest(audience, &entry).await {
                Ok(manifest) => manifest.base_generation(),
                Err(error) if error.is_outage() => return Err(error),
                Err(_) => None,
            },
            None => None,
        };

        if let Some(base) = base {
            return Ok(current.entry(base));
        }
        let named = current.generations();
        let lower = named.iter().rfind(|entry| entry.generation < generation);
        Ok(lower.copied())
    }
}
