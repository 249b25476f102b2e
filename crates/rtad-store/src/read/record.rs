//! Records of audiences: read, verified, and parsed.
//!
//! A record's object has its content in the first line, as JSON. With a signing key, the signature
//! of that line follows. Everything else is named in the content by SHA-256, so nothing else needs
//! a signature.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::path::Path;

use super::store::Store;
use crate::error::StoreError;
use crate::layout::{audience_path, record_path};
use crate::records::{Numbered, Records};
use crate::trust::Trust;
use rtad_core::clock;
use rtad_core::snapshot::{AudienceName, Current, ManifestError};

/// Time between checks that a record, once read, is still in the store.
const CHECK_INTERVAL: Duration = Duration::from_secs(300);
/// Time that a writer relies on a record that it has read. A gc keeps each record for a week.
const RECENT: Duration = Duration::from_secs(3600);

/// The newest record of an audience, as it was read.
#[derive(Debug, Clone)]
pub struct Live {
    /// Its content.
    pub current: Current,
    object: Arc<[u8]>,
    /// When it was last seen in the store. The clock that goes on while the host is suspended.
    seen: SystemTime,
}

impl Live {
    /// Parses the object of a record, after verifying its signature if there are public keys.
    ///
    /// # Errors
    ///
    /// [`StoreError::Signature`], or [`StoreError::Manifest`] for a content that is refused.
    pub fn parse(
        trust: &Trust,
        audience: &AudienceName,
        number: u64,
        object: &[u8],
    ) -> Result<Self, StoreError> {
        let path = record_path(&audience_path(audience), number);
        let content = verified(trust, &path, object)?;
        let refuse = |source| StoreError::Manifest {
            path: path.to_string(),
            source,
        };

        let current = Current::parse(content).map_err(refuse)?;
        if current.sequence != number {
            let field = "sequence".to_owned();
            let found = current.sequence.to_string();
            let expected = number.to_string();
            return Err(refuse(ManifestError::Field {
                field,
                found,
                expected,
            }));
        }

        Ok(Self {
            current,
            object: object.into(),
            seen: clock::now(),
        })
    }

    /// Whether a signature follows the content. It is verified only with public keys.
    pub fn is_signed(&self) -> bool {
        has_signature(&self.object)
    }

    /// Whether the next number was unused a short time ago. Later, a gc may have removed the record
    /// of that number, and all readers are further.
    pub fn is_recent(&self) -> bool {
        self.is_younger(RECENT)
    }

    fn is_younger(&self, limit: Duration) -> bool {
        // Not after the clock was set back.
        clock::now()
            .duration_since(self.seen)
            .is_ok_and(|age| age < limit)
    }

    /// Lets time pass since the record was read.
    #[cfg(test)]
    pub fn age(&mut self, by: Duration) {
        self.seen -= by;
    }

    /// The record's object, as in the store.
    pub fn object(&self) -> &[u8] {
        &self.object
    }
}

/// The content of a record's object: its first line.
fn verified<'o>(trust: &Trust, path: &Path, object: &'o [u8]) -> Result<&'o [u8], StoreError> {
    let end = object.iter().position(|byte| *byte == b'\n');
    let (content, signature) = match end {
        Some(end) => (&object[..end], &object[end + 1..]),
        None => (object, &[][..]),
    };
    let signature = Some(signature).filter(|signature| !signature.is_empty());
    trust
        .check(path, content, signature)
        .map_err(|source| StoreError::Signature {
            path: path.to_string(),
            source,
        })?;
    Ok(content)
}

/// Whether a signature follows the content of a record's object.
pub fn has_signature(object: &[u8]) -> bool {
    let end = object.iter().position(|byte| *byte == b'\n');
    end.is_some_and(|end| end + 1 < object.len())
}

/// The object of a record.
pub fn record_object(content: &[u8], signature: Option<&[u8]>) -> Vec<u8> {
    [content, b"\n", signature.unwrap_or_default()].concat()
}

impl Store {
    pub(crate) fn records(&self, audience: &AudienceName) -> Records<'_> {
        Records::new(self, audience_path(audience))
    }

    /// The newest record; `None` if nothing of this audience was ever published.
    ///
    /// # Errors
    ///
    /// A store error, or a refused record. A missing directory is [`StoreError::NoDirectory`], one
    /// that was emptied is [`StoreError::LostMount`].
    pub async fn live(&self, audience: &AudienceName) -> Result<Option<Live>, StoreError> {
        let newest = self.records(audience).newest().await?;
        self.parsed(audience, newest).await
    }

    /// The newest record; an error if this audience was never published.
    pub(crate) async fn require_live(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Live, StoreError> {
        let live = self.live_since(audience, last).await?;
        live.ok_or_else(|| StoreError::NotFound {
            path: record_path(&audience_path(audience), 1).to_string(),
        })
    }

    /// The newest record, like [`Store::live`], from the one that was read last: one request if
    /// there is no newer one. Every five minutes, in a directory each time, two more requests check
    /// that the store still has that one, and that the hint names no later one, as after a gap that
    /// a mirror or a gc left. If the record is gone, the store is another or older copy, and the
    /// newest record of this one is returned.
    ///
    /// # Errors
    ///
    /// The errors of [`Store::live`].
    pub async fn live_since(
        &self,
        audience: &AudienceName,
        last: Option<&Live>,
    ) -> Result<Option<Live>, StoreError> {
        let Some(last) = last else {
            return self.live(audience).await;
        };
        let records = self.records(audience);
        let number = last.current.sequence;
        if let Some(newer) = records.newer_than(number).await? {
            return self.parsed(audience, Some(newer)).await;
        }

        if self.is_remote() && last.is_younger(CHECK_INTERVAL) {
            return Ok(Some(last.clone()));
        }
        if records.hint().await?.is_some_and(|hint| hint > number) {
            return self.live(audience).await;
        }
        match records.read(number).await? {
            Some(found) if *found.bytes == *last.object => Ok(Some(Live {
                seen: clock::now(),
                ..last.clone()
            })),
            Some(other) => self.parsed(audience, Some(other)).await,
            None => self.live(audience).await,
        }
    }

    async fn parsed(
        &self,
        audience: &AudienceName,
        newest: Option<Numbered>,
    ) -> Result<Option<Live>, StoreError> {
        let Some(Numbered { number, bytes }) = newest else {
            self.refuse_lost_mount().await?;
            return Ok(None);
        };
        self.note_content();
        Live::parse(&self.trust, audience, number, &bytes).map(Some)
    }
}
