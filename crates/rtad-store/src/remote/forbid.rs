//! A bucket whose objects are created with a header that forbids to overwrite them.
//!
//! On a bucket with versions, also suspended ones, the clouds ignore the header: every put
//! succeeds. The first write of a process finds that out.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

/// A mark in the options of a create: all writers of the object put the same bytes, so that it does
/// not matter whose they are.
#[derive(Debug, Clone, Copy)]
pub struct Uncontested;

/// The bucket. It knows [`PutMode::Create`], not [`PutMode::Update`].
#[derive(Debug)]
pub struct ForbidOverwrite {
    pub objects: AmazonS3,
    /// A client of the same bucket, all of whose requests have the header.
    pub creator: AmazonS3,
    /// Time between creating an object and reading it back, for a cloud where several writers of
    /// one new object may succeed: the last one has it.
    pub settle_time: Option<Duration>,
}

impl ForbidOverwrite {
    async fn create(
        &self,
        path: &Path,
        payload: PutPayload,
        is_contested: bool,
    ) -> Result<PutResult> {
        let put = self.creator.put(path, payload.clone()).await;
        let settle_time = match self.settle_time {
            Some(settle_time) if is_contested => settle_time,
            _ => return put,
        };

        let ours = Bytes::from(payload);
        if put.is_err() && !self.read(path).await.is_ok_and(|held| held.bytes == ours) {
            return put;
        }

        tokio::time::sleep(settle_time).await;
        let held = self.read(path).await?;
        if held.bytes != ours {
            return Err(Error::AlreadyExists {
                path: path.to_string(),
                source: "another writer created it at the same time".into(),
            });
        }
        Ok(PutResult {
            e_tag: held.meta.e_tag,
            version: held.meta.version,
            extensions: Default::default(),
        })
    }

    async fn read(&self, path: &Path) -> Result<Held> {
        let object = self.objects.get(path).await?;
        let meta = object.meta.clone();
        let bytes = object.bytes().await?;
        Ok(Held { meta, bytes })
    }
}

/// An object as it was read.
struct Held {
    meta: ObjectMeta,
    bytes: Bytes,
}

impl std::fmt::Display for ForbidOverwrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.objects.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for ForbidOverwrite {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        match options.mode {
            PutMode::Create => {
                let is_contested = options.extensions.get::<Uncontested>().is_none();
                self.create(path, payload, is_contested).await
            }
            PutMode::Overwrite => self.objects.put_opts(path, payload, options).await,
            PutMode::Update(_) => Err(Error::NotImplemented {
                operation: "a put on the condition of an ETag".to_owned(),
                implementer: self.to_string(),
            }),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
