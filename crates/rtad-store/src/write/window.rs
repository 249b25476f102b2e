//! Folders of event windows: checkpoints, and records of the owner and its last checkpoint.
//!
//! ```text
//! {store}/.windows/{window}/records/{number}.json              owner, and its last checkpoint
//! {store}/.windows/{window}/checkpoints/{id}-{epoch}-{number}  immutable; in the window's format
//! ```
//!
//! No audience can have the name `.windows`, so listings and gc ignore the folder. The epoch rises
//! with each claim and is a part of the names: two owners write no common file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::time::{Duration, SystemTime};

use object_store::PutPayload;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::folder::{prepare_folder, sweep_unfinished};
use super::writer::StoreWriter;
use crate::blocking::blocking;
use crate::download::ResumingReader;
use crate::error::StoreError;
use crate::layout::{
    checkpoint_epoch, record_path, records_path, window_checkpoint_path, window_checkpoints_path,
    window_path,
};
use crate::records::Records;
use rtad_core::random;
use rtad_core::snapshot::{AudienceName, Digest};

/// Bytes in memory during an upload. A bucket takes 10,000 parts: 160 GiB.
const PART_BYTES: usize = 16 << 20;
/// Time that records and half-written checkpoints stay. An owner that was stopped in the middle of
/// a claim fails as long as the record of its number is there.
const RECORD_AGE: Duration = Duration::from_secs(24 * 3600);

/// Owner and last checkpoint of a window in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCurrent {
    /// Version of the record: [`WindowCurrent::FORMAT`].
    pub format: u32,
    /// Number of claims so far.
    pub epoch: u64,
    /// Random text that its owner chose for the claim.
    pub owner: String,
    /// Random id of the boot that the owner runs under; empty if its system has none.
    pub boot: String,
    /// Time of the claim.
    pub claimed_unix_seconds: u64,
    /// Time that the owner acknowledges events without word from the store; 0 after a clean stop.
    pub lease_seconds: u64,
    /// Time from the claim that the owner waits before its first event, for the lease of the owner
    /// before; 0 once it is over.
    pub wait_seconds: u64,
    /// The last checkpoint; none before the first upload.
    pub checkpoint: Option<StoredCheckpoint>,
}

/// The newest record of a window.
struct Held {
    number: u64,
    current: WindowCurrent,
}

/// The content of a record: of two owners that create the same number, each knows its own.
#[derive(Serialize)]
struct Record<'a> {
    writer: u64,
    #[serde(flatten)]
    current: &'a WindowCurrent,
}

/// A checkpoint in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// Random number of the window's files.
    pub window_id: u64,
    /// Claim of the owner that wrote it.
    pub epoch: u64,
    /// Its number in the owner's directory.
    pub number: u64,
    /// Size of the file.
    pub size_bytes: u64,
    /// Digest of the file.
    pub sha256: Digest,
    /// Time of the checkpoint.
    pub created_unix_seconds: u64,
}

impl WindowCurrent {
    /// The version that this program reads and writes.
    pub const FORMAT: u32 = 1;
}

/// The state that a replacement expects.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Exactly this one, or none: for a claim.
    Found(Option<&'a WindowCurrent>),
    /// Any one of the same owner.
    Own,
}

impl StoredCheckpoint {
    fn name(&self) -> String {
        format!("{:016x}-{}-{}", self.window_id, self.epoch, self.number)
    }
}

/// A checkpoint to upload.
#[derive(Debug)]
pub struct LocalCheckpoint {
    /// The file, readable.
    pub file: File,
    /// Random number of the window's files.
    pub window_id: u64,
    /// Its number in the owner's directory.
    pub number: u64,
    /// Time of the checkpoint.
    pub created_unix_seconds: u64,
}

/// A window's folder in a store.
#[derive(Debug, Clone)]
pub struct WindowFolder {
    store: StoreWriter,
    window: AudienceName,
}

impl WindowFolder {
    /// The folder of a window. Sends no request.
    pub const fn new(store: StoreWriter, window: AudienceName) -> Self {
        Self { store, window }
    }

    /// Owner and last checkpoint; `None` if the window was never claimed.
    ///
    /// # Errors
    ///
    /// A store error, or [`StoreError::Checkpoint`] for a record that is not understood.
    pub async fn current(&self) -> Result<Option<WindowCurrent>, StoreError> {
        Ok(self.read().await?.map(|held| held.current))
    }

    /// Whether the store has no file of the window.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn is_empty(&self) -> Result<bool, StoreError> {
        let files = self
            .store
            .backend()
            .list(&window_path(&self.window))
            .await?;
        Ok(files.is_empty())
    }

    /// The highest claim that has left a checkpoint; 0 without one. A first claim follows it:
    /// records may have been removed by hand.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn last_epoch(&self) -> Result<u64, StoreError> {
        let files = self
            .store
            .backend()
            .list(&window_checkpoints_path(&self.window))
            .await?;
        let epochs = files
            .iter()
            .filter_map(|file| checkpoint_epoch(file.location.filename()?));
        Ok(epochs.max().unwrap_or(0))
    }

    fn records(&self) -> Records<'_> {
        Records::new(self.store.store(), window_path(&self.window))
    }

    async fn read(&self) -> Result<Option<Held>, StoreError> {
        let records = self.records();
        let Some(newest) = records.newest().await? else {
            return Ok(None);
        };
        self.store.store().note_content();
        let expected = WindowCurrent::FORMAT;
        let current: Option<WindowCurrent> = serde_json::from_slice(&newest.bytes).ok();
        match current.filter(|current| current.format == expected) {
            Some(current) => Ok(Some(Held {
                number: newest.number,
                current,
            })),
            None => Err(refused(
                &records.path(newest.number),
                format!("expected JSON of format {expected}, found other"),
            )),
        }
    }

    /// Whether nobody else claimed the window since. Costs three requests.
    ///
    /// # Errors
    ///
    /// A store error: the owner is unknown. [`StoreError::NotFound`] without a record, as of a
    /// lost mount: the claim of another owner may be elsewhere.
    pub async fn is_owned_by(&self, owner: &str) -> Result<bool, StoreError> {
        match self.read().await? {
            Some(held) => Ok(held.current.owner == owner),
            None => Err(self.missing()),
        }
    }

    /// Uploads a checkpoint of the claim with this epoch, in parts of 16 MiB, one in memory at a
    /// time. It is the window's last once a record names it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a store error.
    pub async fn upload(
        &self,
        epoch: u64,
        checkpoint: &LocalCheckpoint,
    ) -> Result<StoredCheckpoint, StoreError> {
        let mut stored = StoredCheckpoint {
            window_id: checkpoint.window_id,
            epoch,
            number: checkpoint.number,
            size_bytes: 0,
            sha256: Digest::of(b""),
            created_unix_seconds: checkpoint.created_unix_seconds,
        };
        let path = window_checkpoint_path(&self.window, &stored.name());
        let objects = self.store.store().objects(&path).await?;
        let local = |source| StoreError::Local {
            action: "read",
            source,
        };
        let mut file = checkpoint.file.try_clone().map_err(local)?;
        file.rewind().map_err(local)?;
        (stored.size_bytes, stored.sha256) = put_file(&*objects, &path, file).await?;
        Ok(stored)
    }

    /// Replaces the state, if the one in the store is as expected.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if it is not, [`StoreError::NotFound`] if there is none, or a store
    /// error: the state may or may not be replaced.
    pub async fn replace(
        &self,
        current: &WindowCurrent,
        expected: Expected<'_>,
    ) -> Result<(), StoreError> {
        if matches!(expected, Expected::Found(_)) {
            prepare_folder(&self.store, &window_path(&self.window)).await?;
        }
        let held = self.read().await?;
        let is_expected = match (expected, held.as_ref().map(|held| &held.current)) {
            (Expected::Found(found), held) => held == found,
            (Expected::Own, Some(held)) => held.owner == current.owner,
            (Expected::Own, None) => return Err(self.missing()),
        };
        if !is_expected {
            return Err(self.conflict());
        }

        let number = held.map_or(0, |held| held.number).saturating_add(1);
        let records = self.records();
        let record = Record {
            writer: random::number() >> 11,
            current,
        };
        let bytes =
            serde_json::to_vec(&record).map_err(|error| refused(&records.path(number), error))?;
        if records.create(number, bytes).await? {
            Ok(())
        } else {
            Err(self.conflict())
        }
    }

    /// Removes all files of this owner and of earlier ones but the last checkpoint. The caller has
    /// just written `current`.
    ///
    /// # Errors
    ///
    /// A store error; the next call removes the rest.
    pub async fn remove_older(&self, current: &WindowCurrent) -> Result<(), StoreError> {
        let mut records = self.records().list().await?;
        let Some((_, newest)) = records.pop() else {
            return Ok(());
        };
        let since = SystemTime::from(newest.last_modified) - RECORD_AGE;
        for (_, record) in records {
            if SystemTime::from(record.last_modified) >= since {
                break;
            }
            self.remove(&record.location).await?;
        }
        let folders = vec![
            window_path(&self.window),
            records_path(&window_path(&self.window)),
            window_checkpoints_path(&self.window),
        ];
        sweep_unfinished(self.store.backend(), folders, since).await?;

        let last = current.checkpoint.as_ref().map(StoredCheckpoint::name);
        for object in self
            .store
            .backend()
            .list(&window_checkpoints_path(&self.window))
            .await?
        {
            let Some(name) = object.location.filename() else {
                continue;
            };
            // A later owner may have begun.
            let is_ours = checkpoint_epoch(name).is_some_and(|epoch| epoch <= current.epoch);
            if !is_ours || last.as_deref() == Some(name) {
                continue;
            }
            self.remove(&object.location).await?;
        }
        Ok(())
    }

    async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.store.store().objects(path).await?.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend("remove", path, source)),
        }
    }

    /// Downloads a checkpoint into an empty file, verifies it, and syncs the file.
    ///
    /// # Errors
    ///
    /// [`StoreError::Checkpoint`] if the content is not that of the record,
    /// [`StoreError::NotFound`] if a later upload has replaced it, or a store error.
    pub async fn download(
        &self,
        checkpoint: &StoredCheckpoint,
        mut to: File,
    ) -> Result<(), StoreError> {
        let path = window_checkpoint_path(&self.window, &checkpoint.name());
        let objects = self.store.store().objects(&path).await?;
        let stall = self.store.store().stall_timeout();
        let mut reader = ResumingReader::new(objects, path.clone(), checkpoint.size_bytes, stall);
        let mut hasher = Sha256::new();
        let local = |source| StoreError::Local {
            action: "write",
            source,
        };
        while let Some(block) = reader.next_block().await? {
            let written = blocking(move || {
                hasher.update(&block);
                to.write_all(&block).map(|()| (to, hasher))
            });
            (to, hasher) = written.await.map_err(local)?;
        }
        let found = digest_of(hasher);
        if found != checkpoint.sha256 {
            let expected = checkpoint.sha256;
            let what = format!("damaged: expected sha256 {expected}, found {found}");
            return Err(refused(&path, what));
        }
        blocking(move || to.sync_all()).await.map_err(local)
    }

    fn missing(&self) -> StoreError {
        StoreError::NotFound {
            path: record_path(&window_path(&self.window), 1).to_string(),
        }
    }

    fn conflict(&self) -> StoreError {
        let path = window_path(&self.window);
        StoreError::conflict(
            &self.window,
            format!("another owner has claimed {path}"),
            false,
        )
    }
}

fn refused(path: &Path, what: impl ToString) -> StoreError {
    StoreError::Checkpoint {
        path: path.to_string(),
        what: what.to_string(),
    }
}

/// Writes a file as an object: in one request if it is small. Returns its size and digest.
async fn put_file(
    objects: &dyn ObjectStore,
    path: &Path,
    file: File,
) -> Result<(u64, Digest), StoreError> {
    let failed = |source| StoreError::backend("write", path, source);
    let mut parts = Parts {
        file,
        hasher: Sha256::new(),
        size_bytes: 0,
    };
    let first;
    (parts, first) = parts.next().await?;
    if first.len() < PART_BYTES {
        objects
            .put(path, PutPayload::from(first))
            .await
            .map_err(failed)?;
        return Ok((parts.size_bytes, digest_of(parts.hasher)));
    }
    let mut upload = objects.put_multipart(path).await.map_err(failed)?;
    match put_parts(&mut *upload, path, parts, first).await {
        Ok(parts) => {
            upload.complete().await.map_err(failed)?;
            Ok((parts.size_bytes, digest_of(parts.hasher)))
        }
        Err(error) => {
            // The first error is the one to report.
            let _ = upload.abort().await;
            Err(error)
        }
    }
}

async fn put_parts(
    upload: &mut dyn MultipartUpload,
    path: &Path,
    mut parts: Parts,
    mut part: Vec<u8>,
) -> Result<Parts, StoreError> {
    while !part.is_empty() {
        let put = upload.put_part(PutPayload::from(part)).await;
        put.map_err(|source| StoreError::backend("write", path, source))?;
        (parts, part) = parts.next().await?;
    }
    Ok(parts)
}

/// A file that is read part by part.
struct Parts {
    file: File,
    hasher: Sha256,
    size_bytes: u64,
}

impl Parts {
    /// The next part; shorter than [`PART_BYTES`] only at the end.
    async fn next(mut self) -> Result<(Self, Vec<u8>), StoreError> {
        let read = blocking(move || -> io::Result<_> {
            let mut part = Vec::with_capacity(PART_BYTES);
            (&self.file)
                .take(PART_BYTES as u64)
                .read_to_end(&mut part)?;
            self.hasher.update(&part);
            self.size_bytes += part.len() as u64;
            Ok((self, part))
        });
        read.await.map_err(|source| StoreError::Local {
            action: "read",
            source,
        })
    }
}

fn digest_of(hasher: Sha256) -> Digest {
    let hex: String = hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Digest::try_from(hex).expect("a digest has 64 digits")
}

#[cfg(test)]
mod tests;
