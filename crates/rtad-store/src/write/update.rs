//! Updates: the next record of an audience, the last step of every change.
//!
//! An update begins with the newest record, and ends by creating the next one. Another writer may
//! create it first; the update then fails without effect, and its caller begins again.

use super::sign::signature_of;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{audience_path, delta_path, record_path};
use crate::read::{Live, record_object};
use rtad_core::random;
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry};

/// A begun update. Dropping it changes nothing for readers.
#[derive(Debug)]
pub struct RecordUpdate<'w> {
    pub(super) writer: &'w StoreWriter,
    pub(super) audience: &'w AudienceName,
    /// The record to follow; `None` for the first one.
    pub(super) live: Option<Live>,
}

impl StoreWriter {
    /// Checks that this writer may follow a record: whoever changes a signed audience signs.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unsigned`].
    pub fn check_signs(&self, audience: &AudienceName, live: &Live) -> Result<(), StoreError> {
        if live.is_signed() && !self.signs() {
            return Err(StoreError::Unsigned {
                audience: audience.clone(),
            });
        }
        Ok(())
    }
}

impl<'w> RecordUpdate<'w> {
    /// Begins an update of the state that is live now.
    pub async fn begin(
        writer: &'w StoreWriter,
        audience: &'w AudienceName,
    ) -> Result<Self, StoreError> {
        let live = writer.store().live(audience).await?;
        Ok(Self {
            writer,
            audience,
            live,
        })
    }

    /// Refuses to follow a record that was read long ago, or is in a directory and gone: its mount
    /// may be lost. The next number would be free, but no reader would look there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster, or a store error.
    pub async fn check_is_newest(&self) -> Result<(), StoreError> {
        let Some(live) = &self.live else {
            return Ok(());
        };
        let store = self.writer.store();
        if store.is_remote() && live.is_recent() {
            return Ok(());
        }
        let newest = store.require_live(self.audience, None).await?;
        if newest.object() != live.object() {
            return Err(overtaken(self.audience));
        }
        Ok(())
    }

    /// Writes a delta's file, durably. Readers find it once a record names it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conditions`], as no record could name it, or a store error.
    pub async fn put_delta(&self, entry: &DeltaEntry, bytes: Vec<u8>) -> Result<(), StoreError> {
        let records = self.writer.store().records(self.audience);
        records.check_creates().await?;
        let path = delta_path(self.audience, entry);
        self.writer.put(&path, bytes).await
    }

    /// Creates the next record.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster, [`StoreError::Unsigned`],
    /// [`StoreError::Sign`], or a store error: the record may have been created.
    pub async fn write(self, mut next: Current) -> Result<Live, StoreError> {
        let Self {
            writer,
            audience,
            live,
        } = self;
        if let Some(live) = &live {
            writer.check_signs(audience, live)?;
        }
        let store = writer.store();
        let path = record_path(&audience_path(audience), next.sequence);
        // A number below 2⁵³, which every JSON reader can represent.
        next.writer = random::number() >> 11;

        let content = next.to_bytes();
        let signature = match writer.signer() {
            Some(signer) => Some(signature_of(signer, store.trust(), &path, &content)?),
            None => None,
        };
        let object = record_object(&content, signature.as_deref());
        // An unreadable record would block every later write.
        let written = Live::parse(store.trust(), audience, next.sequence, &object)?;

        if !store
            .records(audience)
            .create(next.sequence, object)
            .await?
        {
            return Err(overtaken(audience));
        }
        store.note_content();
        Ok(written)
    }
}

fn overtaken(audience: &AudienceName) -> StoreError {
    StoreError::conflict(audience, "another process wrote meanwhile", false)
}
