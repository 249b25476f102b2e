//! Downloads: the bytes of one object in blocks, resumed after failures, with stall detection.
//!
//! * An object is read with one request. Servers without ranges serve it as long as nothing fails.
//! * No time-out covers a whole object: each block of it must arrive within the stall time-out.
//! * All bytes are of one version: the entity tag of the first answer is the condition of the
//!   others.
//!
//! Two layers resume. object_store requests the missing bytes of an aborted body, at most twice
//! within 10 s of the request, if it has an entity tag. [`ResumingReader`] does so after all other
//! failures of a connection, and after stalls.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta, ObjectStore};

use crate::blocking::blocking;
use crate::error::StoreError;
use rtad_core::backoff::Backoff;
use rtad_core::snapshot::ChunkError;

/// Time for a block, or for the answer to a small request.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Least size of a block, but of the last: large enough to amortize a task of the blocking pool.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Room for the last piece of a block: those of hyper have up to 408 KiB.
const BLOCK_CAPACITY: usize = BLOCK_BYTES + BLOCK_BYTES / 2;

/// Backoff before the last retry of a block: after 1, 2, 4 and 8 units, there are no more.
const MAX_RETRY_UNITS: u32 = 8;
/// Unit of the backoff before a retry.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Waits for a part of a read, as long as the stall time-out.
///
/// # Errors
///
/// [`StoreError::Stalled`].
pub async fn within<T>(
    timeout: Duration,
    path: &Path,
    read: impl Future<Output = T>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(timeout, read).await {
        Ok(done) => Ok(done),
        Err(_) => Err(StoreError::Stalled {
            path: path.to_string(),
            timeout,
        }),
    }
}

/// Reader of one version of an object, or of a range of it, in order. Checks the number of bytes;
/// the caller verifies their content.
pub struct ResumingReader {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    stall_timeout: Duration,
    /// Next byte to be read.
    offset: u64,
    end: u64,
    /// Of the first answer, or of a list: see [`version_of`].
    version: Option<String>,
    /// Entity tag of the first answer. A weak one never matches.
    if_match: Option<String>,
    /// Unread part of the last answer, up to `end`.
    body: Option<BoxStream<'static, object_store::Result<Bytes>>>,
}

impl ResumingReader {
    /// A reader of an object from its first byte to its last.
    pub fn new(
        objects: Arc<dyn ObjectStore>,
        path: Path,
        size: u64,
        stall_timeout: Duration,
    ) -> Self {
        Self {
            objects,
            path,
            size,
            stall_timeout,
            offset: 0,
            end: size,
            version: None,
            if_match: None,
            body: None,
        }
    }

    /// Reads the version of the object that a list named by its entity tag, if it did.
    pub fn with_listed_tag(self, tag: Option<&str>) -> Self {
        Self {
            version: tag.map(without_quotes),
            ..self
        }
    }

    /// Moves to a range of the same version of the object.
    pub fn seek(&mut self, range: Range<u64>) {
        self.offset = range.start;
        self.end = range.end;
        self.body = None;
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The next block, of at least [`BLOCK_BYTES`] except at the end; `None` at the end.
    ///
    /// # Errors
    ///
    /// A store error after the last retry, [`StoreError::Replaced`], or a wrong length.
    pub async fn next_block(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.offset == self.end {
            return Ok(None);
        }

        let start = self.offset;
        let path = self.path.clone();
        let mut block = Vec::new();
        let mut backoff = Backoff::new(MAX_RETRY_UNITS);
        loop {
            let filled = within(self.stall_timeout, &path, self.fill(&mut block)).await;
            let Err(error) = filled.flatten() else {
                return Ok(Some(block.into()));
            };

            // Bytes that have arrived stay in the block.
            let was_answered = self.body.take().is_some();
            if !(was_answered || is_transient(&error)) || backoff.units() == MAX_RETRY_UNITS {
                self.offset = start;
                return Err(error);
            }
            tokio::time::sleep(RETRY_DELAY * backoff.fail()).await;
        }
    }

    /// Appends the next bytes to `block` until it is full, or at the end.
    async fn fill(&mut self, block: &mut Vec<u8>) -> Result<(), StoreError> {
        while block.len() < BLOCK_BYTES && self.offset < self.end {
            let Some(body) = &mut self.body else {
                self.request().await?;
                continue;
            };
            let bytes = match body.next().await {
                Some(Ok(bytes)) => bytes,
                Some(Err(source)) => return Err(StoreError::backend("read", &self.path, source)),
                None => return Err(self.wrong_length(self.offset)),
            };
            let left = (self.end - self.offset) as usize;
            if bytes.len() > left {
                return Err(self.wrong_length(self.offset + bytes.len() as u64));
            }

            self.offset += bytes.len() as u64;
            if block.is_empty() && bytes.len() >= BLOCK_BYTES {
                // Of a local file: a block without a copy.
                *block = bytes.into();
                continue;
            }
            if block.is_empty() {
                block.reserve_exact(left.min(BLOCK_CAPACITY));
            }
            block.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Requests all bytes from the next one on.
    async fn request(&mut self) -> Result<(), StoreError> {
        let range = self.offset..self.end;
        let is_whole = range == (0..self.size);
        let options = GetOptions {
            range: (!is_whole).then_some(GetRange::Bounded(range.clone())),
            if_match: self.if_match.clone(),
            ..GetOptions::default()
        };
        let answer = match self.objects.get_opts(&self.path, options).await {
            Ok(answer) => answer,
            Err(object_store::Error::Precondition { .. }) => return Err(self.replaced()),
            Err(source) => return Err(StoreError::backend("read", &self.path, source)),
        };

        let version = version_of(&answer.meta);
        if self.version.as_ref().is_some_and(|known| *known != version) {
            return Err(self.replaced());
        }
        if answer.meta.size != self.size {
            return Err(self.wrong_length(answer.meta.size));
        }
        self.version = Some(version);
        self.if_match = answer.meta.e_tag.filter(|tag| !tag.starts_with("W/"));
        self.body = Some(match answer.payload {
            GetResultPayload::File(file, _) => blocks_of(file, range),
            GetResultPayload::Stream(body) => body,
        });
        Ok(())
    }

    fn replaced(&self) -> StoreError {
        StoreError::Replaced {
            path: self.path.to_string(),
        }
    }

    fn wrong_length(&self, found: u64) -> StoreError {
        StoreError::Chunk {
            path: self.path.to_string(),
            source: ChunkError::Length {
                found,
                expected: self.size,
            },
        }
    }
}

/// The version of an object: its entity tag without quotes, which not every store's list has, or
/// else its time of modification, which is that of 1970 if the server names none.
fn version_of(found: &ObjectMeta) -> String {
    match &found.e_tag {
        Some(tag) => without_quotes(tag),
        None => found.last_modified.to_rfc3339(),
    }
}

fn without_quotes(tag: &str) -> String {
    tag.trim_matches('"').to_owned()
}

/// A range of a local file in blocks: object_store's own stream reads 8 KiB at a time.
fn blocks_of(file: File, range: Range<u64>) -> BoxStream<'static, object_store::Result<Bytes>> {
    let file = Arc::new(file);
    let blocks = stream::iter(range.clone().step_by(BLOCK_BYTES)).then(move |start| {
        let file = Arc::clone(&file);
        let length = (range.end - start).min(BLOCK_BYTES as u64);
        blocking(move || {
            let mut block = vec![0; length as usize];
            file.read_exact_at(&mut block, start)?;
            Ok(Bytes::from(block))
        })
    });
    blocks
        .map_err(|source: io::Error| object_store::Error::Generic {
            store: "directory",
            source: source.into(),
        })
        .boxed()
}

/// Returns true if a request failed before the server answered: a retry may succeed.
fn is_transient(error: &StoreError) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};

    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<HttpError>() {
            return matches!(error.kind(), Connect | Request | Timeout | Interrupted);
        }
        next = cause.source();
    }
    matches!(error, StoreError::Stalled { .. })
}
