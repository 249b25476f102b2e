//! Updates: the next record of an audience, the last step of every change.
//!
//! An update begins with the newest record, and ends by creating the next one. Another writer may
//! create it first; the update then fails without effect, and its caller begins again.
//!
//! The answer of the store may be lost, and the put may arrive late. Whoever began a publish again
//! would then publish twice. So a publish repeats the create, with the same bytes, until it is
//! answered.

use std::time::Duration;

use rtad_core::backoff::Backoff;
use tokio::time::Instant;

use super::sign::signature_of;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{audience_path, delta_path, record_path};
use crate::read::{Live, record_object};
use rtad_core::random;
use rtad_core::snapshot::{AudienceName, Current, DeltaEntry};

/// Time for which a create without an answer is repeated.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Unit of the time between two of them.
const REPEAT: Duration = Duration::from_millis(500);
/// Longest time between two of them, in units.
const MAX_REPEAT_UNITS: u32 = 8;

/// A record that may be created.
struct NewRecord {
    live: Live,
    object: Vec<u8>,
}

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
    pub async fn write(self, next: Current) -> Result<Live, StoreError> {
        let record = self.sign(next)?;
        self.create(&record).await?;
        Ok(record.live)
    }

    /// Creates the next record, and repeats that for half a minute if the store gives no answer.
    ///
    /// # Errors
    ///
    /// Those of [`Self::write`], of which a store error says that nothing was changed;
    /// [`StoreError::Unanswered`].
    pub async fn write_answered(self, next: Current) -> Result<Live, StoreError> {
        let record = self.sign(next)?;
        let begun = Instant::now();
        let mut backoff = Backoff::new(MAX_REPEAT_UNITS);
        loop {
            let error = match self.create(&record).await {
                Ok(()) => return Ok(record.live),
                Err(error) => error,
            };
            if !self.writer.store().is_remote() || !error.is_unanswered() {
                return Err(error);
            }
            if begun.elapsed() >= ANSWER_TIME {
                return Err(StoreError::Unanswered {
                    audience: self.audience.clone(),
                    source: Box::new(error),
                });
            }
            tokio::time::sleep(REPEAT * backoff.fail()).await;
        }
    }

    fn sign(&self, mut next: Current) -> Result<NewRecord, StoreError> {
        let Self {
            writer,
            audience,
            live,
        } = self;
        if let Some(live) = live {
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
        let live = Live::parse(store.trust(), audience, next.sequence, &object)?;
        Ok(NewRecord { live, object })
    }

    async fn create(&self, record: &NewRecord) -> Result<(), StoreError> {
        let store = self.writer.store();
        let records = store.records(self.audience);
        let number = record.live.current.sequence;
        if !records.create(number, record.object.clone()).await? {
            return Err(overtaken(self.audience));
        }
        store.note_content();
        Ok(())
    }
}

fn overtaken(audience: &AudienceName) -> StoreError {
    StoreError::conflict(audience, "another process wrote meanwhile", false)
}
