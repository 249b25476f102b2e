//! A store in memory that loses answers to writes and fails reads of chunks.

use std::fmt;
use std::sync::Mutex;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The fate of the answer to the next write of `CURRENT`, which takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostAnswer {
    /// The client repeated the write, and the repetition was refused.
    Repeated,
    /// The connection broke.
    Broken,
}

#[derive(Debug, Default)]
pub(crate) struct FaultyStore {
    inner: InMemory,
    lost: Mutex<Option<LostAnswer>>,
    /// Reads of chunks until they fail.
    chunk_reads: Mutex<Option<usize>>,
}

impl FaultyStore {
    pub(crate) fn lose_next_answer(&self, lost: Option<LostAnswer>) {
        *self.lost.lock().unwrap() = lost;
    }

    /// Lets `reads` reads of chunks succeed; `None` for all.
    pub(crate) fn limit_chunk_reads(&self, reads: Option<usize>) {
        *self.chunk_reads.lock().unwrap() = reads;
    }

    fn admits_read(&self, path: &Path) -> bool {
        let mut left = self.chunk_reads.lock().unwrap();
        let Some(left) = left.as_mut().filter(|_| path.as_ref().contains("/chunks/")) else {
            return true;
        };
        let admits = *left > 0;
        *left = left.saturating_sub(1);
        admits
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic { store: "FaultyStore", source: "injected".into() }
}

#[async_trait::async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = self.inner.put_opts(path, payload, options).await?;
        if !path.as_ref().ends_with("CURRENT") {
            return Ok(put);
        }
        match self.lost.lock().unwrap().take() {
            None => Ok(put),
            Some(LostAnswer::Broken) => Err(broken()),
            Some(LostAnswer::Repeated) => Err(object_store::Error::Precondition {
                path: path.to_string(),
                source: "injected".into(),
            }),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        match self.admits_read(path) {
            true => self.inner.get_opts(path, options).await,
            false => Err(broken()),
        }
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = self.inner.clone();
        paths
            .then(move |path| {
                let inner = inner.clone();
                async move {
                    let path = path?;
                    inner.delete(&path).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
