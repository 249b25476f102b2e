//! Resumable reads of an object, or of a range of it, in order and in blocks.
//!
//! Two layers resume an aborted body. object_store requests the missing bytes:
//!
//! * after a connection error, not after a stall;
//! * if both answers have the same entity tag;
//! * if the server supports ranges;
//! * at most twice per request, within 10 s of its start (`remote.rs`).
//!
//! [`RangeReader`] resumes in all other cases, from the first missing byte. Only the number of
//! bytes is checked here; the caller verifies their content.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectMeta};
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::stall::StallTimer;
use crate::client::{self, RangeIgnored};
use crate::error::StoreError;
use rtad_core::backoff::Backoff;
use rtad_core::snapshot::ChunkError;

/// Size of a block, and the default size of a request: large enough to amortize a request, small
/// enough for a cheap retry and little allocator overhead.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Backoff before the last resume: after 1, 2, 4 and 8 units, there are no more.
const MAX_RESUME_UNITS: u32 = 8;
/// Unit of the backoff before a resume.
const RESUME_DELAY: Duration = Duration::from_millis(100);

/// A failed request or body.
struct ReadFailure {
    error: StoreError,
    /// A retry may help.
    is_transient: bool,
}

impl ReadFailure {
    const fn permanent(error: StoreError) -> Self {
        Self {
            error,
            is_transient: false,
        }
    }

    const fn transient(error: StoreError) -> Self {
        Self {
            error,
            is_transient: true,
        }
    }
}

/// Version of an object: its entity tag, or else its time of modification.
#[derive(Clone, PartialEq)]
enum ObjectVersion {
    Tag(String),
    /// Seconds and nanoseconds; those of 1970 if the server names no time either.
    Modified(i64, u32),
}

impl ObjectVersion {
    fn of(found: &ObjectMeta) -> Self {
        let modified = found.last_modified;
        let without_tag = Self::Modified(modified.timestamp(), modified.timestamp_subsec_nanos());
        found.e_tag.clone().map_or(without_tag, Self::Tag)
    }
}

/// Unread part of a response body.
struct UnreadBody {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// Offset of the next byte in the object.
    offset: u64,
    /// Offset of the response's end in the object.
    end: u64,
}

/// Reader of one version of an object. Resumes after failures.
pub struct RangeReader {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    request_bytes: u64,
    /// Next byte to be read.
    offset: u64,
    end: u64,
    /// Of the first response.
    version: Option<ObjectVersion>,
    /// Entity tag of a list, without quotes: not every store quotes it there.
    listed_tag: Option<String>,
    supports_ranges: bool,
    body: Option<UnreadBody>,
    backoff: Backoff,
    stall: StallTimer,
}

impl RangeReader {
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
            request_bytes: BLOCK_BYTES,
            offset: 0,
            end: size,
            version: None,
            listed_tag: None,
            supports_ranges: true,
            body: None,
            backoff: Backoff::new(MAX_RESUME_UNITS),
            stall: StallTimer::new(stall_timeout),
        }
    }

    /// Sets the size of a request.
    pub fn with_request_bytes(self, request_bytes: u64) -> Self {
        Self {
            request_bytes,
            ..self
        }
    }

    /// Reads the version of the object that a list named by its entity tag.
    pub fn with_listed_tag(self, tag: &str) -> Self {
        Self {
            listed_tag: Some(tag.trim_matches('"').to_owned()),
            ..self
        }
    }

    /// Moves to a range of the same version of the object.
    pub fn seek(&mut self, range: Range<u64>) {
        (self.offset, self.end, self.body) = (range.start, range.end, None);
    }

    /// Allows all resumes again: a large object has a limit per block, not for the whole read.
    pub const fn reset_resumes(&mut self) {
        self.backoff.reset();
    }

    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The next block, of about [`BLOCK_BYTES`]; `None` at the end.
    ///
    /// # Errors
    ///
    /// A store error after the last resume, [`StoreError::Replaced`], or a wrong length.
    pub async fn next_block(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let (start, block_end) = (self.offset, self.end.min(self.offset + BLOCK_BYTES));
        let mut block = Vec::new();
        while self.offset < block_end {
            if let Err(failure) = self.read_into(&mut block).await {
                self.body = None;
                if let Err(error) = self.back_off(failure).await {
                    // Nothing of this block was returned, so the next call reads it again.
                    self.offset = start;
                    return Err(error);
                }
            }
        }
        Ok(Some(block.into()))
    }

    /// Waits before the next resume. Returns the error if it is permanent or no resume is left.
    async fn back_off(&mut self, failure: ReadFailure) -> Result<(), StoreError> {
        if failure.is_transient && self.backoff.units() < MAX_RESUME_UNITS {
            tokio::time::sleep(RESUME_DELAY * self.backoff.fail()).await;
            return Ok(());
        }
        match failure.error {
            // Stores report a range past the object's end in different ways: compare the size.
            error @ StoreError::Backend { .. } => Err(self.wrong_size().await.unwrap_or(error)),
            error => Err(error),
        }
    }

    /// The length error, if the object's size in the store differs.
    async fn wrong_size(&mut self) -> Option<StoreError> {
        let found = self
            .stall
            .wait(&self.path, self.objects.head(&self.path))
            .await
            .ok()?
            .ok()?;
        (found.size != self.size).then(|| self.wrong_length(found.size, self.size))
    }

    /// Appends the next bytes of the current response to `block`, or sends the next request.
    async fn read_into(&mut self, block: &mut Vec<u8>) -> Result<(), ReadFailure> {
        let Some(body) = &mut self.body else {
            return self.request(block).await;
        };
        let next = self
            .stall
            .wait(&self.path, body.stream.next())
            .await
            .map_err(ReadFailure::transient)?;
        let Some(next) = next else {
            let (found, expected) = (body.offset, body.end);
            return Err(ReadFailure::transient(self.wrong_length(found, expected)));
        };
        let bytes = next.map_err(|error| {
            ReadFailure::transient(StoreError::backend("read", &self.path, error))
        })?;
        self.stall.progress(bytes.len());
        // A body of a server without ranges starts at byte 0: skip the bytes already read.
        let skipped = (bytes.len() as u64).min(self.offset - body.offset);
        body.offset += bytes.len() as u64;
        if body.offset > body.end {
            let (found, expected) = (body.offset, body.end);
            return Err(ReadFailure::permanent(self.wrong_length(found, expected)));
        }
        if body.offset == body.end {
            self.body = None;
        }
        if block.is_empty() {
            block.reserve_exact((self.end - self.offset).min(BLOCK_BYTES) as usize);
        }
        let bytes = &bytes[skipped as usize..];
        self.offset += bytes.len() as u64;
        block.extend_from_slice(bytes);
        Ok(())
    }

    /// Requests the next bytes. Those of a local file are appended to `block`; any other response
    /// becomes `self.body`.
    async fn request(&mut self, block: &mut Vec<u8>) -> Result<(), ReadFailure> {
        let (start, end) = match self.supports_ranges {
            true => (self.offset, self.end.min(self.offset + self.request_bytes)),
            false => (0, self.size),
        };
        let range = self
            .supports_ranges
            .then_some(GetRange::Bounded(start..end));
        // `If-Match` never matches a weak tag; weak tags are compared below.
        let if_match = match &self.version {
            Some(ObjectVersion::Tag(tag)) if !tag.starts_with("W/") => Some(tag.clone()),
            _ => None,
        };
        let options = GetOptions {
            range,
            if_match,
            ..GetOptions::default()
        };
        let answer = self
            .stall
            .wait(&self.path, self.objects.get_opts(&self.path, options))
            .await;
        let answer = match answer.map_err(ReadFailure::transient)? {
            Ok(answer) => answer,
            Err(error)
                if self.supports_ranges && client::find::<RangeIgnored>(&error).is_some() =>
            {
                return self.disable_ranges().map_err(ReadFailure::permanent);
            }
            Err(object_store::Error::Precondition { .. }) => return Err(self.replaced()),
            Err(error) => {
                let is_transient = is_transient(&error);
                return Err(ReadFailure {
                    error: StoreError::backend("read", &self.path, error),
                    is_transient,
                });
            }
        };
        let tag = answer.meta.e_tag.as_ref().map(|tag| tag.trim_matches('"'));
        if let (Some(listed), Some(tag)) = (&self.listed_tag, tag)
            && listed != tag
        {
            return Err(self.replaced());
        }
        if answer.meta.size != self.size {
            return Err(ReadFailure::permanent(
                self.wrong_length(answer.meta.size, self.size),
            ));
        }
        let version = ObjectVersion::of(&answer.meta);
        if *self.version.get_or_insert_with(|| version.clone()) != version {
            return Err(self.replaced());
        }
        if !matches!(answer.payload, GetResultPayload::File(..)) {
            self.body = Some(UnreadBody {
                stream: answer.into_stream(),
                offset: start,
                end,
            });
            return Ok(());
        }
        let bytes = self
            .stall
            .wait(&self.path, answer.bytes())
            .await
            .map_err(ReadFailure::transient)?;
        let bytes = bytes.map_err(|error| {
            ReadFailure::permanent(StoreError::backend("read", &self.path, error))
        })?;
        if bytes.is_empty() {
            return Err(ReadFailure::permanent(
                self.wrong_length(self.offset, self.size),
            ));
        }
        self.stall.progress(bytes.len());
        self.offset += bytes.len() as u64;
        // Usually a local block is a single response: take it without a copy.
        match block.is_empty() {
            true => *block = bytes.into(),
            false => block.extend_from_slice(&bytes),
        }
        Ok(())
    }

    /// Switches to requests for the whole object. Fails for a part of an object, as each part would
    /// download the whole object.
    fn disable_ranges(&mut self) -> Result<(), StoreError> {
        if self.end < self.size {
            let (path, source) = (self.path.to_string(), Box::new(RangeIgnored));
            return Err(StoreError::Backend {
                action: "read a part of",
                path,
                source,
            });
        }
        self.supports_ranges = false;
        Ok(())
    }

    fn wrong_length(&self, found: u64, expected: u64) -> StoreError {
        StoreError::Chunk {
            path: self.path.to_string(),
            source: ChunkError::Length { found, expected },
        }
    }

    fn replaced(&self) -> ReadFailure {
        ReadFailure::permanent(StoreError::Replaced {
            path: self.path.to_string(),
        })
    }
}

/// Returns true if the request failed before the server answered: a retry may succeed.
fn is_transient(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    client::find(error).is_some_and(|error: &HttpError| {
        matches!(error.kind(), Connect | Request | Timeout | Interrupted)
    })
}
