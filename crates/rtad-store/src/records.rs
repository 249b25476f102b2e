//! Records: numbered objects that are created once. All state that processes share is kept so.
//!
//! ```text
//! {folder}/records/{number}.json   record n, for n = 1, 2, 3, …
//! {folder}/LATEST                  the number of a recent record
//! ```
//!
//! * Each record is the whole state, so the newest alone is enough.
//! * Record n + 1 is created by somebody who has read n, on the condition that it does not exist.
//!   One of two writers loses, and learns it at once. Nothing is ever replaced.
//! * A reader at n asks for n + 1 until there is none: one small request a poll.
//! * A reader without a number starts at `LATEST`, which is overwritten without a condition. It may
//!   be old or missing, and the reader goes on from there. Without it, the folder is listed.
//! * Old records are removed by a gc, never the newest. So a writer creates n + 1 only if n was the
//!   newest a short time ago: the record of that number may have been there, and be gone.
//!
//! Put-if-absent is all that a store must have: `link(2)` in a directory, a condition in a bucket.

use std::time::SystemTime;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutPayload};

use crate::backend::Created;
use crate::error::StoreError;
use crate::layout::{hint_path, probe_path, record_number, record_path, records_path};
use crate::read::{Store, read_small};
use crate::trust::MAX_SIGNATURE_BYTES;
use rtad_core::random;
use rtad_core::snapshot::MAX_RECORD_BYTES;

/// Size limit of a record's object: its content, the end of the line, and a signature.
pub const MAX_OBJECT_BYTES: u64 = MAX_RECORD_BYTES + 1 + MAX_SIGNATURE_BYTES;
/// Size limit of the hint: digits and the end of the line.
const MAX_HINT_BYTES: u64 = 21;

/// The records of one folder.
#[derive(Debug)]
pub struct Records<'s> {
    store: &'s Store,
    folder: Path,
}

/// A record as it is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbered {
    pub number: u64,
    pub bytes: Vec<u8>,
}

impl<'s> Records<'s> {
    /// The records of a folder. Sends no request.
    pub const fn new(store: &'s Store, folder: Path) -> Self {
        Self { store, folder }
    }

    /// The path of a record.
    pub fn path(&self, number: u64) -> Path {
        record_path(&self.folder, number)
    }

    /// A record; `None` if there is none of this number.
    ///
    /// # Errors
    ///
    /// A store error, or a record that is too large.
    pub async fn read(&self, number: u64) -> Result<Option<Numbered>, StoreError> {
        let path = self.path(number);
        let bytes = self.small(&path, MAX_OBJECT_BYTES, "the record").await?;
        Ok(bytes.map(|bytes| Numbered { number, bytes }))
    }

    /// The newest record; `None` if there is none. Costs three requests from a hint without later
    /// records; four without a hint, or five if its record is gone, one of them a listing.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::LostRecord`] if the hint names a record that is gone, and there
    /// is no later one: whoever went on from an older one would forget erasures.
    pub async fn newest(&self) -> Result<Option<Numbered>, StoreError> {
        let hint = self.hint().await?;
        let mut found = match hint {
            Some(number) => self.read(number).await?,
            None => None,
        };

        if found.is_none() {
            found = match (self.store.backend.check_listable(), hint) {
                (Ok(()), _) => self.last_listed().await?,
                (Err(_), None) => self.read(1).await?,
                (Err(_), Some(number)) => return Err(self.lost(&self.path(number))),
            };
        }

        let newest = match found {
            Some(found) => self.forward_from(found).await?,
            None => return Ok(None),
        };

        match hint {
            Some(hint) if hint > newest.number => Err(self.lost(&self.path(hint))),
            _ => Ok(Some(newest)),
        }
    }

    /// The error of a file that the hint names and that is gone.
    pub fn lost(&self, path: &Path) -> StoreError {
        StoreError::LostRecord {
            path: path.to_string(),
            hint: hint_path(&self.folder).to_string(),
        }
    }

    /// The newest record after the one of this number; `None` if there is none. Costs one request
    /// without news.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn newer_than(&self, number: u64) -> Result<Option<Numbered>, StoreError> {
        let Some(next) = self.next_of(number).await? else {
            return Ok(None);
        };
        // After a long absence there may be thousands.
        let hinted = match self.hint().await? {
            Some(hint) if hint > next.number => self.read(hint).await?,
            _ => None,
        };
        self.forward_from(hinted.unwrap_or(next)).await.map(Some)
    }

    /// Creates a record. False if another writer was faster.
    ///
    /// # Errors
    ///
    /// A store error, after which the record may still appear; [`StoreError::Conditions`].
    pub async fn create(&self, number: u64, bytes: Vec<u8>) -> Result<bool, StoreError> {
        if self.create_or_read(number, bytes).await? != Created::Ours {
            return Ok(false);
        }

        // The record is there and will be found: an old hint only costs readers requests.
        let _ = self.point_to(number).await;
        Ok(true)
    }

    /// Creates a copy of another store's record that is not the newest, and leaves the hint as it
    /// is. False if there is another one.
    ///
    /// # Errors
    ///
    /// Those of [`Records::create`].
    pub async fn create_copy(&self, number: u64, bytes: Vec<u8>) -> Result<bool, StoreError> {
        let backend = &self.store.backend;
        backend.create_copy(&self.path(number), bytes.into()).await
    }

    /// Creates a record, or reads the one of another writer: a loser goes on from it at once.
    /// Leaves the hint as it is.
    ///
    /// # Errors
    ///
    /// Those of [`Records::create`].
    pub async fn create_or_read(&self, number: u64, bytes: Vec<u8>) -> Result<Created, StoreError> {
        self.check_creates().await?;
        let backend = &self.store.backend;
        let path = self.path(number);
        backend.create_or_read(&path, Bytes::from(bytes)).await
    }

    /// Overwrites the hint.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn point_to(&self, number: u64) -> Result<(), StoreError> {
        let path = hint_path(&self.folder);
        let hint = PutPayload::from(format!("{number}\n"));
        let put = self.store.objects(&path).await?.put(&path, hint).await;
        put.map(drop)
            .map_err(|source| StoreError::backend("write", &path, source))
    }

    /// When a record was written, by the store's clock.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn written_at(&self, number: u64) -> Result<SystemTime, StoreError> {
        self.store.written_at(&self.path(number)).await
    }

    /// The store's time, which may differ from this host's. Overwrites the hint with this number.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn store_time(&self, number: u64) -> Result<SystemTime, StoreError> {
        self.point_to(number).await?;
        self.store.written_at(&hint_path(&self.folder)).await
    }

    /// Refuses a store that ignores the condition of a create, which `backend/create.rs` finds out.
    ///
    /// # Errors
    ///
    /// Those of the backend's check.
    pub async fn check_creates(&self) -> Result<(), StoreError> {
        let probe = probe_path(&self.folder, random::number());
        self.store.backend.check_creates(probe).await
    }

    /// All records, by number.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NoListing`] over plain HTTP.
    pub async fn list(&self) -> Result<Vec<(u64, ObjectMeta)>, StoreError> {
        let mut records = Vec::new();
        for object in self.store.backend.list(&records_path(&self.folder)).await? {
            if let Some(number) = object.location.filename().and_then(record_number) {
                records.push((number, object));
            }
        }
        records.sort_unstable_by_key(|(number, _)| *number);
        Ok(records)
    }

    async fn last_listed(&self) -> Result<Option<Numbered>, StoreError> {
        match self.list().await?.last() {
            Some((number, _)) => self.read(*number).await,
            None => Ok(None),
        }
    }

    async fn forward_from(&self, mut newest: Numbered) -> Result<Numbered, StoreError> {
        while let Some(next) = self.next_of(newest.number).await? {
            // No record is like another, but a server may answer all paths with one page. Whoever
            // parses it refuses it.
            if next.bytes == newest.bytes {
                return Ok(next);
            }
            newest = next;
        }
        Ok(newest)
    }

    /// The record after the one of this number; none after the highest number.
    async fn next_of(&self, number: u64) -> Result<Option<Numbered>, StoreError> {
        match number.checked_add(1) {
            Some(next) => self.read(next).await.map_err(StoreError::for_next_record),
            None => Ok(None),
        }
    }

    /// The number in the hint; `None` if it is missing, or no number.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn hint(&self) -> Result<Option<u64>, StoreError> {
        let path = hint_path(&self.folder);
        let bytes = match self.small(&path, MAX_HINT_BYTES, "the hint").await {
            Err(StoreError::Manifest { .. }) => return Ok(None),
            bytes => bytes?,
        };
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(text.and_then(|text| text.trim_end().parse().ok()))
    }

    async fn small(
        &self,
        path: &Path,
        limit: u64,
        what: &'static str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let objects = self.store.objects(path).await?;
        match read_small(&*objects, path, limit, what, self.store.stall_timeout()).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
