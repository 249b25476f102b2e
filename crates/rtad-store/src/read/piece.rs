//! The next bytes of an object, however its store gives them out: in ranges, as a whole, or as a local file.
//!
//! A [`Reading`] knows how far it has come, so after a failure it asks for what is missing still. How often is up to its caller,
//! as is what the bytes mean: here only their number is checked.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore};

use super::super::StoreError;
use super::super::client::{self, RangeIgnored};
use super::patience::Patience;
use rtad_core::snapshot::ChunkError;

/// How much of a chunk is asked for at a time: large enough that a request costs little beside it, small enough that a
/// failed one is soon made again and that the allocator keeps little of it for later.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// A failed piece.
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Whether asking again may help.
    pub(crate) passes: bool,
}

impl Failure {
    const fn lasting(error: StoreError) -> Self {
        Self { error, passes: false }
    }

    const fn passing(error: StoreError) -> Self {
        Self { error, passes: true }
    }
}

/// An object that is being read from its first byte to its last, or a part of it.
pub(crate) struct Reading {
    objects: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
    /// Where the part ends.
    end: u64,
    /// Asked for at once.
    request_bytes: u64,
    /// Bytes handed out.
    pub(crate) offset: u64,
    /// Of the first answer.
    pub(crate) e_tag: Option<String>,
    pub(crate) knows_ranges: bool,
    /// The rest of an answer, and the offset where it should end.
    body: Option<(BoxStream<'static, object_store::Result<Bytes>>, u64)>,
    patience: Patience,
}

impl Reading {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, path: Path, size: u64, stall_timeout: Duration) -> Self {
        Self {
            objects,
            path,
            size,
            end: size,
            request_bytes: PIECE_BYTES,
            offset: 0,
            e_tag: None,
            knows_ranges: true,
            body: None,
            patience: Patience::new(stall_timeout),
        }
    }

    /// The same, of these bytes only, and with so many asked for at once: pieces come as they are.
    pub(crate) fn part(self, part: Range<u64>, request_bytes: u64) -> Self {
        Self { offset: part.start, end: part.end, request_bytes, ..self }
    }

    /// The next bytes, at most about a piece of them; fewer, with the reason, if it fails before.
    pub(crate) async fn piece(&mut self) -> (Bytes, Option<Failure>) {
        let Some((mut body, end)) = self.body.take() else {
            return match self.ask().await {
                Ok(whole) => (whole.unwrap_or_default(), None),
                Err(failure) => (Bytes::new(), Some(failure)),
            };
        };
        let mut bytes = Vec::with_capacity((end - self.offset).min(PIECE_BYTES) as usize);
        loop {
            let next = match self.patience.wait(body.next()).await {
                Ok(next) => next,
                Err(stalled) => return (bytes.into(), Some(Failure::passing(stalled.error(&self.path)))),
            };
            match next {
                Some(Ok(more)) => {
                    self.patience.progress(more.len());
                    self.offset += more.len() as u64;
                    bytes.extend_from_slice(&more);
                    if self.offset > end {
                        let source = ChunkError::Length { found: self.offset, expected: end };
                        let error = StoreError::Chunk { path: self.path.to_string(), source };
                        return (Bytes::new(), Some(Failure::lasting(error)));
                    }
                }
                Some(Err(error)) => {
                    let error = StoreError::backend("read", &self.path, error);
                    return (bytes.into(), Some(Failure::passing(error)));
                }
                None if self.offset < end => {
                    let source = ChunkError::Length { found: self.offset, expected: end };
                    let error = StoreError::Chunk { path: self.path.to_string(), source };
                    return (bytes.into(), Some(Failure::passing(error)));
                }
                None => return (bytes.into(), None),
            }
            if bytes.len() as u64 >= PIECE_BYTES {
                self.body = (self.offset < end).then_some((body, end));
                return (bytes.into(), None);
            }
        }
    }

    /// Asks for the next piece. A local file's comes at once; of another answer the body is kept for [`Reading::piece`].
    async fn ask(&mut self) -> Result<Option<Bytes>, Failure> {
        let end = if self.knows_ranges { self.end.min(self.offset + self.request_bytes) } else { self.size };
        let range = self.knows_ranges.then_some(GetRange::Bounded(self.offset..end));
        // A weak tag matches nothing; it is compared below.
        let if_match = self.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions { range, if_match, ..GetOptions::default() };
        let answer = match self.patience.wait(self.objects.get_opts(&self.path, options)).await {
            Err(stalled) => return Err(Failure::passing(stalled.error(&self.path))),
            Ok(Err(error)) if client::find::<RangeIgnored>(&error).is_some() && self.knows_ranges => {
                self.knows_ranges = false;
                return Ok(None);
            }
            Ok(Err(object_store::Error::Precondition { .. })) => return Err(self.replaced()),
            Ok(Err(error)) => {
                let passes = passes(&error);
                return Err(Failure { error: StoreError::backend("read", &self.path, error), passes });
            }
            Ok(Ok(answer)) => answer,
        };
        if answer.meta.size != self.size {
            let source = ChunkError::Length { found: answer.meta.size, expected: self.size };
            return Err(Failure::lasting(StoreError::Chunk { path: self.path.to_string(), source }));
        }
        let tag = answer.meta.e_tag.clone();
        if self.offset > 0 && self.e_tag.is_some() && tag != self.e_tag {
            return Err(self.replaced());
        }
        self.e_tag = tag;
        if matches!(answer.payload, GetResultPayload::File(..)) {
            let bytes = self.patience.wait(answer.bytes()).await;
            let bytes = bytes.map_err(|stalled| Failure::passing(stalled.error(&self.path)))?;
            let bytes =
                bytes.map_err(|error| Failure::lasting(StoreError::backend("read", &self.path, error)))?;
            if bytes.is_empty() {
                let source = ChunkError::Length { found: self.offset, expected: self.size };
                return Err(Failure::lasting(StoreError::Chunk { path: self.path.to_string(), source }));
            }
            self.patience.progress(bytes.len());
            self.offset += bytes.len() as u64;
            return Ok(Some(bytes));
        }
        let mut body = answer.into_stream();
        if !self.knows_ranges && self.offset > 0 {
            body = skipping(body, self.offset);
        }
        self.body = Some((body, end));
        Ok(None)
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// That a part was asked for and the whole came.
    pub(crate) fn ranges_ignored(&self) -> StoreError {
        let source = Box::new(RangeIgnored);
        StoreError::Backend { action: "read a part of", path: self.path.to_string(), source }
    }

    fn replaced(&self) -> Failure {
        Failure::lasting(StoreError::Replaced { path: self.path.to_string() })
    }
}

/// The stream without its first bytes.
fn skipping(
    body: BoxStream<'static, object_store::Result<Bytes>>,
    bytes: u64,
) -> BoxStream<'static, object_store::Result<Bytes>> {
    body.scan(bytes, |left, next| {
        let next = next.map(|mut piece| {
            let skipped = (piece.len() as u64).min(*left);
            *left -= skipped;
            piece.split_off(skipped as usize)
        });
        std::future::ready(Some(next))
    })
    .boxed()
}

/// Whether a request that failed before its answer may go well if it is made again: nothing was understood, so nothing refused.
fn passes(error: &object_store::Error) -> bool {
    use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
    client::find(error)
        .is_some_and(|error: &HttpError| matches!(error.kind(), Connect | Request | Timeout | Interrupted))
}
