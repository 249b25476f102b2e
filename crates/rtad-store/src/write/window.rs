//! Folder of an event window: the log of its changes, and images of its table.
//!
//! ```text
//! {store}/.windows/{window}/log/{number}      segment n, for n = 1, 2, 3, …
//! {store}/.windows/{window}/tables/{number}   the table; segments n, n + 1, … complete it
//! {store}/.windows/{window}/LATEST            the number of a recent segment
//! ```
//!
//! * A segment is created once, on the condition that it does not exist, and never changed.
//! * A table is whole or absent, and does not change either.
//! * `LATEST` is overwritten now and then. If it names a segment that is gone, segments are lost,
//!   and nobody goes on from an older one.
//! * Segments and tables before a complete table are removed if they are older than [`MIN_AGE`],
//!   never the newest segment.
//!
//! So one of two processes that create segment n loses, and learns it at once. A process that was
//! paused for longer than [`MIN_AGE`] could create a segment that was there and is removed: it looks
//! for later ones with [`WindowFolder::segments`] before it relies on the segment.
//!
//! The content is `rtad-window`'s, which verifies it. No audience can have the name `.windows`, so
//! listings and gc ignore the folder.

use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, Fuse};
use futures_util::{Stream, StreamExt as _};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectMeta, ObjectStoreExt as _, PutPayload};

use super::folder::{prepare_folder, sweep_unfinished};
use super::writer::StoreWriter;
use crate::download::ResumingReader;
use crate::error::StoreError;
use crate::layout::{
    log_path, log_probe_path, segment_number, segment_path, table_path, tables_path, window_path,
};
use crate::read::read_small;
use crate::records::Records;
use rtad_core::random;
use rtad_core::snapshot::AudienceName;

/// Least age of segments, tables and half-written files that are removed once a later table is
/// complete: a process that reads the window may need them.
pub const MIN_AGE: Duration = Duration::from_secs(30 * 60);
/// Size limit of a segment. Its writer closes it long before.
const MAX_SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of a table in memory during its upload. A bucket takes 10,000 parts: 160 GiB.
const PART_BYTES: usize = 16 << 20;

/// A window's folder in a store.
#[derive(Debug, Clone)]
pub struct WindowFolder {
    store: StoreWriter,
    window: AudienceName,
}

/// Reads a table from its first byte to its last.
pub struct TableReader {
    reader: ResumingReader,
}

impl TableReader {
    /// Size of the table in bytes.
    pub const fn size_bytes(&self) -> u64 {
        self.reader.size()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NotFound`] if the table was removed meanwhile.
    pub async fn next_block(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.reader.next_block().await
    }
}

impl WindowFolder {
    /// The folder of a window. Sends no request.
    pub const fn new(store: StoreWriter, window: AudienceName) -> Self {
        Self { store, window }
    }

    /// Creates a segment. False if another process has created it, with other bytes.
    ///
    /// # Errors
    ///
    /// A store error, after which the segment may still appear: a later call with the same bytes
    /// finds out. [`StoreError::Conditions`]; [`StoreError::LostMount`] or
    /// [`StoreError::LostRecord`] if the segment before is gone from a directory.
    pub async fn create(&self, number: u64, bytes: Bytes) -> Result<bool, StoreError> {
        let store = self.store.store();
        if number == 1 {
            let folder = window_path(&self.window);
            store.objects(&folder).await?;
            store.refuse_lost_mount().await?;
            prepare_folder(&self.store, &folder).await?;
        } else if !store.is_remote() && !self.has_predecessor(number).await? {
            return Ok(false);
        }

        let backend = self.store.backend();
        let probe = log_probe_path(&self.window, random::number());
        backend.check_creates(probe).await?;
        let is_created = backend.create(&self.path(number), bytes).await?;
        store.note_content();
        Ok(is_created)
    }

    /// Whether the segment before this one is in the directory; false if there are later ones. A
    /// mount that is lost leaves an empty directory, in which every segment could be created.
    async fn has_predecessor(&self, number: u64) -> Result<bool, StoreError> {
        if self.has(number - 1).await? {
            return Ok(true);
        }

        self.store.store().refuse_lost_mount().await?;
        let is_behind = self.segments().await?.last() > Some(&number);
        if is_behind {
            Ok(false)
        } else {
            Err(self.records().lost(&self.path(number - 1)))
        }
    }

    /// A segment; `None` if there is none of this number.
    ///
    /// # Errors
    ///
    /// A store error, or a segment that is too large.
    pub async fn read(&self, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path(number);
        let store = self.store.store();
        let objects = store.objects(&path).await?;
        let stall = store.stall_timeout();
        match read_small(&*objects, &path, MAX_SEGMENT_BYTES, "the segment", stall).await {
            Ok(bytes) => {
                store.note_content();
                Ok(Some(bytes))
            }
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.for_next_record()),
        }
    }

    /// Overwrites the hint with the number of a segment.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn point_to(&self, number: u64) -> Result<(), StoreError> {
        self.records().point_to(number).await
    }

    /// The numbers of all segments, ascending.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::LostRecord`] if the hint names a segment after the last one:
    /// whoever went on from there would forget events.
    pub async fn segments(&self) -> Result<Vec<u64>, StoreError> {
        // Before the list, to which segments are added meanwhile.
        let hint = self.records().hint().await?;
        let listed = self.list(&log_path(&self.window)).await?;
        let numbers: Vec<u64> = listed.iter().map(|object| object.number).collect();
        match hint {
            Some(hint) if numbers.last() < Some(&hint) => {
                Err(self.records().lost(&self.path(hint)))
            }
            _ => Ok(numbers),
        }
    }

    /// The number of the newest table; `None` without one.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn newest_table(&self) -> Result<Option<u64>, StoreError> {
        let tables = self.list(&tables_path(&self.window)).await?;
        Ok(tables.last().map(|table| table.number))
    }

    /// A table; `None` if there is none of this number.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn table(&self, number: u64) -> Result<Option<TableReader>, StoreError> {
        let path = table_path(&self.window, number);
        let store = self.store.store();
        let objects = store.objects(&path).await?;
        let size = match objects.head(&path).await {
            Ok(found) => found.size,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(StoreError::backend("look up", &path, source)),
        };
        let reader = ResumingReader::new(objects, path, size, store.stall_timeout());
        Ok(Some(TableReader { reader }))
    }

    /// Writes a table from its blocks, and returns its size. It is absent until all of them are
    /// written, and stays absent after an error of `blocks`. One part of 16 MiB is in memory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Table`] for an error of `blocks`, or a store error.
    pub async fn put_table<S>(&self, number: u64, blocks: S) -> Result<u64, StoreError>
    where
        S: Stream<Item = io::Result<Vec<u8>>> + Unpin,
    {
        let path = table_path(&self.window, number);
        let objects = self.store.store().objects(&path).await?;
        let failed = |source| StoreError::backend("write", &path, source);
        let mut parts = Parts::new(blocks);
        let first = parts.next(&path).await?;
        if first.content_length() < PART_BYTES {
            objects.put(&path, first).await.map_err(failed)?;
            return Ok(parts.size_bytes);
        }

        let mut upload = objects.put_multipart(&path).await.map_err(failed)?;
        match put_parts(&mut *upload, &path, &mut parts, first).await {
            Ok(()) => Ok(parts.size_bytes),
            Err(error) => {
                // The first error is the one to report.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    /// Removes the segments and tables before a complete table, and half-written files, that are
    /// older than [`MIN_AGE`] by the store's clock.
    ///
    /// # Errors
    ///
    /// A store error; the next call removes the rest.
    pub async fn remove_before(&self, number: u64) -> Result<(), StoreError> {
        let mut segments = self.list(&log_path(&self.window)).await?;
        let tables = self.list(&tables_path(&self.window)).await?;
        // The newest segment says who the owner is, and when it is.
        let Some(newest) = segments.pop() else {
            return Ok(());
        };
        let now = newest.meta.last_modified;
        let since = SystemTime::from(now) - MIN_AGE;

        let mut paths = Vec::new();
        for object in segments.into_iter().chain(tables) {
            let is_old = SystemTime::from(object.meta.last_modified) < since;
            if object.number < number && is_old {
                paths.push(object.meta.location);
            }
        }
        self.remove(paths).await?;

        let folders = vec![
            window_path(&self.window),
            log_path(&self.window),
            tables_path(&self.window),
        ];
        sweep_unfinished(self.store.backend(), folders, since).await
    }

    async fn remove(&self, paths: Vec<Path>) -> Result<(), StoreError> {
        let folder = window_path(&self.window);
        let objects = self.store.store().objects(&folder).await?;
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = objects.delete_stream(paths);
        while let Some(removed) = removed.next().await {
            match removed {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => return Err(StoreError::backend("remove from", &folder, source)),
            }
        }
        Ok(())
    }

    /// The segments or tables of a folder, by number.
    async fn list(&self, folder: &Path) -> Result<Vec<NumberedObject>, StoreError> {
        let mut numbered = Vec::new();
        for meta in self.store.backend().list(folder).await? {
            if let Some(number) = meta.location.filename().and_then(segment_number) {
                numbered.push(NumberedObject { number, meta });
            }
        }
        numbered.sort_unstable_by_key(|object| object.number);
        Ok(numbered)
    }

    fn path(&self, number: u64) -> Path {
        segment_path(&self.window, number)
    }

    /// The path of a segment.
    pub fn segment(&self, number: u64) -> String {
        self.path(number).to_string()
    }

    /// Whether a segment is there. Costs a request without a body.
    ///
    /// # Errors
    ///
    /// A store error.
    pub async fn has(&self, number: u64) -> Result<bool, StoreError> {
        let path = self.path(number);
        match self.store.store().objects(&path).await?.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(StoreError::backend("look up", &path, source)),
        }
    }

    /// The hint is that of records.
    fn records(&self) -> Records<'_> {
        Records::new(self.store.store(), window_path(&self.window))
    }
}

/// A segment or a table in a list.
struct NumberedObject {
    number: u64,
    meta: ObjectMeta,
}

async fn put_parts<S>(
    upload: &mut dyn MultipartUpload,
    path: &Path,
    parts: &mut Parts<S>,
    mut part: PutPayload,
) -> Result<(), StoreError>
where
    S: Stream<Item = io::Result<Vec<u8>>> + Unpin,
{
    let failed = |source| StoreError::backend("write", path, source);
    while part.content_length() > 0 {
        upload.put_part(part).await.map_err(failed)?;
        part = parts.next(path).await?;
    }
    upload.complete().await.map(drop).map_err(failed)
}

/// Blocks, cut into parts of an upload.
struct Parts<S> {
    /// Asked once more after a last part that is short.
    blocks: Fuse<S>,
    /// The rest of the block whose beginning is in the part before.
    rest: Bytes,
    size_bytes: u64,
}

impl<S: Stream<Item = io::Result<Vec<u8>>> + Unpin> Parts<S> {
    fn new(blocks: S) -> Self {
        Self {
            blocks: blocks.fuse(),
            rest: Bytes::new(),
            size_bytes: 0,
        }
    }

    /// The next part; shorter than [`PART_BYTES`] only at the end.
    async fn next(&mut self, path: &Path) -> Result<PutPayload, StoreError> {
        let mut part = Vec::new();
        let mut missing = PART_BYTES;
        while missing > 0 {
            if self.rest.is_empty() {
                let Some(block) = self.blocks.next().await else {
                    break;
                };
                self.rest = Bytes::from(block.map_err(|source| StoreError::Table {
                    path: path.to_string(),
                    source,
                })?);
            }
            let taken = self.rest.split_to(missing.min(self.rest.len()));
            missing -= taken.len();
            part.push(taken);
        }
        self.size_bytes += (PART_BYTES - missing) as u64;
        Ok(PutPayload::from_iter(part))
    }
}

#[cfg(test)]
mod tests;
