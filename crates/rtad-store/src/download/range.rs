//! Resumable reads: the bytes of an object, or of a range of it, in order and in blocks.
//!
//! Two layers resume an aborted body. object_store requests the rest itself:
//!
//! * after an error of the connection, not after a stall;
//! * if both answers have the same entity tag;
//! * if the server supports ranges;
//! * with the retries left to its request (`remote.rs`): two, within 10 s of the request.
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
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore, ObjectStoreExt as _};

use super::stall::StallTimer;
use crate::client::{self, Busy, RangeIgnored};
use crate::error::StoreError;
use rtad_core::snapshot::ChunkError;

/// Size of a block, and the default size of a request: large enough to amortize a request, small
/// enough for a cheap retry and little allocator overhead.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// Resumes of one reader.
const MAX_RESUMES: u32 = 4;
/// Delay before the first resume; doubled for each further one.
const RESUME_DELAY: Duration = Duration::from_millis(100);

/// A failed request or body.
struct Failure {
    error: StoreError,
    /// A retry may help.
    is_transient: bool,
}

impl Failure {
    const fn lasting(error: StoreError) -> Self {
        Self { error, is_transient: false }
    }

    const fn transient(error: StoreError) -> Self {
        Self { error, is_transient: true }
    }
}

/// The rest of an answer.
struct Body {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    /// Offset in the object of the next byte.
    offset: u64,
    /// Offset of the answer's end.
    end: u64,
}

/// A reader of one object that resumes after failures. All its bytes are of one version.
pub(crate) struct RangeReader {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    request_bytes: u64,
    /// Next byte to be read.
    offset: u64,
    end: u64,
    /// Of the first answer.
    e_tag: Option<String>,
    supports_ranges: bool,
    body: Option<Body>,
    resumes: u32,
    stall: StallTimer,
}

impl RangeReader {
    /// A reader of an object from its first byte to its last.
    pub(crate) fn new(
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
            e_tag: None,
            supports_ranges: true,
            body: None,
            resumes: 0,
            stall: StallTimer::new(stall_timeout),
        }
    }

    /// The same reader with requests of this size.
    pub(crate) fn with_request_bytes(self, request_bytes: u64) -> Self {
        Self { request_bytes, ..self }
    }

    /// Moves to a range of the same version of the object.
    pub(crate) fn seek(&mut self, range: Range<u64>) {
        (self.offset, self.end, self.body) = (range.start, range.end, None);
    }

    /// Forgets the resumes so far, for an object too large for a bound on all of it.
    pub(crate) const fn reset_resumes(&mut self) {
        self.resumes = 0;
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// The next block, of about [`BLOCK_BYTES`]; `None` at the end.
    ///
    /// # Errors
    ///
    /// The store's own, if resuming does not help; [`StoreError::Replaced`]; a wrong length.
    pub(crate) async fn next_block(&mut self) -> Result<Option<Bytes>, StoreError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let (start, block_end) = (self.offset, self.end.min(self.offset + BLOCK_BYTES));
        let mut block = Vec::new();
        while self.offset < block_end {
            if let Err(failure) = self.read_into(&mut block).await {
                self.body = None;
                if let Err(error) = self.back_off(failure).await {
                    // No byte of this block was returned.
                    self.offset = start;
                    return Err(error);
                }
            }
        }
        Ok(Some(block.into()))
    }

    /// Waits before a resume, or returns the error if there is none left.
    async fn back_off(&mut self, failure: Failure) -> Result<(), StoreError> {
        if failure.is_transient && self.resumes < MAX_RESUMES {
            tokio::time::sleep(RESUME_DELAY * 2_u32.pow(self.resumes)).await;
            self.resumes += 1;
            return Ok(());
        }
        match failure.error {
            // Stores report a range beyond the object's end in different ways; the size is certain.
            error @ StoreError::Backend { .. } => Err(self.wrong_size().await.unwrap_or(error)),
            error => Err(error),
        }
    }

    /// The error of an object with another size, if its size differs.
    async fn wrong_size(&mut self) -> Option<StoreError> {
        let found = self.stall.wait(&self.path, self.objects.head(&self.path)).await.ok()?.ok()?;
        (found.size != self.size).then(|| self.wrong_length(found.size, self.size))
    }

    /// Appends the next bytes of the current answer to `block`, or requests the next answer.
    async fn read_into(&mut self, block: &mut Vec<u8>) -> Result<(), Failure> {
        let Some(body) = &mut self.body else { return self.request(block).await };
        let next =
            self.stall.wait(&self.path, body.stream.next()).await.map_err(Failure::transient)?;
        let Some(next) = next else {
            let (found, expected) = (body.offset, body.end);
            return Err(Failure::transient(self.wrong_length(found, expected)));
        };
        let bytes = next.map_err(|error| Failure {
            // `Retry-After` is the caller's to honor.
            is_transient: client::find::<Busy>(&error).is_none(),
            error: StoreError::backend("read", &self.path, error),
        })?;
        self.stall.progress(bytes.len());
        // Without ranges a body begins with bytes that were read before.
        let skipped = (bytes.len() as u64).min(self.offset - body.offset);
        body.offset += bytes.len() as u64;
        if body.offset > body.end {
            let (found, expected) = (body.offset, body.end);
            return Err(Failure::lasting(self.wrong_length(found, expected)));
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

    /// Requests the next bytes. A local file's come at once, other answers become the body.
    async fn request(&mut self, block: &mut Vec<u8>) -> Result<(), Failure> {
        let (start, end) = match self.supports_ranges {
            true => (self.offset, self.end.min(self.offset + self.request_bytes)),
            false => (0, self.size),
        };
        let range = self.supports_ranges.then_some(GetRange::Bounded(start..end));
        // A weak tag matches nothing; it is compared below.
        let if_match = self.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let answer = self.stall.wait(&self.path, self.objects.get_opts(&self.path, options)).await;
        let answer = match answer.map_err(Failure::transient)? {
            Ok(answer) => answer,
            Err(error)
                if self.supports_ranges && client::find::<RangeIgnored>(&error).is_some() =>
            {
                return self.without_ranges().map_err(Failure::lasting);
            }
            Err(object_store::Error::Precondition { .. }) => return Err(self.replaced()),
            Err(error) => {
                let is_transient = is_transient(&error);
                return Err(Failure {
                    error: StoreError::backend("read", &self.path, error),
                    is_transient,
                });
            }
        };
        if answer.meta.size != self.size {
            return Err(Failure::lasting(self.wrong_length(answer.meta.size, self.size)));
        }
        if self.e_tag.is_some() && self.e_tag != answer.meta.e_tag {
            return Err(self.replaced());
        }
        self.e_tag.clone_from(&answer.meta.e_tag);
        if !matches!(answer.payload, GetResultPayload::File(..)) {
            self.body = Some(Body { stream: answer.into_stream(), offset: start, end });
            return Ok(());
        }
        let bytes =
            self.stall.wait(&self.path, answer.bytes()).await.map_err(Failure::transient)?;
        let bytes = bytes
            .map_err(|error| Failure::lasting(StoreError::backend("read", &self.path, error)))?;
        if bytes.is_empty() {
            return Err(Failure::lasting(self.wrong_length(self.offset, self.size)));
        }
        self.stall.progress(bytes.len());
        self.offset += bytes.len() as u64;
        // Not copied: a local block is one answer.
        match block.is_empty() {
            true => *block = bytes.into(),
            false => block.extend_from_slice(&bytes),
        }
        Ok(())
    }

    /// Switches to requests for the whole object. An error for a part: each part would cost the
    /// whole.
    fn without_ranges(&mut self) -> Result<(), StoreError> {
        if self.end < self.size {
            let (path, source) = (self.path.to_string(), Box::new(RangeIgnored));
            return Err(StoreError::Backend { action: "read a part of", path, source });
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

    fn replaced(&self) -> Failure {
        Failure::lasting(StoreError::Replaced { path: self.path.to_string() })
    }
}

/// Whether a request failed before the server answered, so that a retry may succeed.
fn is_transient(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    client::find(error).is_some_and(|error: &HttpError| {
        matches!(error.kind(), Connect | Request | Timeout | Interrupted)
    })
}
