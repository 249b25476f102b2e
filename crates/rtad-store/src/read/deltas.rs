//! Deltas: read, verified, and combined into the overlay of a record.

use std::sync::Arc;

use object_store::ObjectStoreExt as _;

use super::store::Store;
use crate::blocking::blocking;
use crate::download::ResumingReader;
use crate::error::StoreError;
use crate::layout::delta_path;
use rtad_core::snapshot::{AudienceName, Current, Delta, DeltaEntry, Overlay};

impl Store {
    /// Reads a delta, and verifies it. Takes its size in memory twice while reading.
    ///
    /// # Errors
    ///
    /// A store error, or a refused delta.
    pub async fn delta(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<Delta, StoreError> {
        Ok(self.delta_and_file(audience, entry).await?.0)
    }

    /// Reads a delta; returns the bytes of its file, too.
    ///
    /// # Errors
    ///
    /// A store error, or a refused delta.
    pub async fn delta_and_file(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<(Delta, Vec<u8>), StoreError> {
        let path = delta_path(audience, entry);
        let objects = self.objects(&path).await?;
        let mut reader = ResumingReader::new(
            objects,
            path.clone(),
            entry.size_bytes(),
            self.stall_timeout,
        );

        // Not allocated at once: without public keys, nobody vouches for the size.
        let mut bytes = Vec::new();
        while let Some(block) = reader.next_block().await? {
            bytes.extend_from_slice(&block);
        }
        let entry = entry.clone();
        blocking(move || Delta::parse(&bytes, &entry).map(|delta| (delta, bytes)))
            .await
            .map_err(|source| StoreError::Delta {
                path: path.to_string(),
                source,
            })
    }

    /// The object's size.
    ///
    /// # Errors
    ///
    /// A store error.
    pub(crate) async fn delta_size(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<u64, StoreError> {
        let path = delta_path(audience, entry);
        let found = self.objects(&path).await?.head(&path).await;
        let meta = found.map_err(|source| StoreError::backend("look up", &path, source))?;
        Ok(meta.size)
    }

    /// The overlay of a record over its generation: deltas of `held`, the rest from the store.
    ///
    /// # Errors
    ///
    /// A store error, or a refused delta.
    pub async fn overlay(
        &self,
        audience: &AudienceName,
        current: &Current,
        held: &Overlay,
    ) -> Result<Overlay, StoreError> {
        let mut files = Vec::new();
        for entry in current.delta_entries() {
            files.push(match held.find(entry) {
                Some(delta) => Arc::clone(delta),
                None => Arc::new(self.delta(audience, entry).await?),
            });
        }
        Ok(Overlay::new(current, files))
    }
}
