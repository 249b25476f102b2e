//! Memory behind a network that misbehaves: answers get lost, time passes, and two who work on it at once take turns as a test
//! says.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, GetResult, ListResult, MultipartUpload, PutMultipartOptions, PutOptions,
    PutResult, Result,
};

use super::*;

/// How long ago it seems to be that what was aged was written.
const AGE: std::time::Duration = std::time::Duration::from_secs(2 * 3600);

/// What becomes of the answer to a write, which the store does as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The client asked again, and the second try was refused as the first had been done.
    Retried,
    /// The connection broke.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct Meddled {
    inner: InMemory,
    aged: Mutex<HashSet<Path>>,
    /// The answers to writes of paths that end so are lost.
    lose: Mutex<Option<(&'static str, Lost)>>,
}

impl Meddled {
    pub(super) fn fixture() -> (Arc<Self>, StoreFixture) {
        let meddled = Arc::new(Self::default());
        let backend = Backend::over(Arc::clone(&meddled) as Arc<dyn ObjectStore>, "memory");
        (meddled, StoreFixture::over(Store::new(backend)))
    }

    pub(super) fn lose(&self, suffix: &'static str, lost: Lost) {
        *self.lose.lock().unwrap() = Some((suffix, lost));
    }

    /// Two hours pass.
    pub(super) async fn age(&self) {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.unwrap();
        self.aged.lock().unwrap().extend(all.into_iter().map(|object| object.location));
    }

    fn seen(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if self.aged.lock().unwrap().contains(&meta.location) {
            meta.last_modified -= AGE;
        }
        meta
    }
}

impl fmt::Display for Meddled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meddled")
    }
}

/// Lets the others have their turn: every request is a step of its own.
async fn turn() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[async_trait::async_trait]
impl ObjectStore for Meddled {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        turn().await;
        let put = self.inner.put_opts(path, payload, options).await?;
        self.aged.lock().unwrap().remove(path);
        let lost = self.lose.lock().unwrap().filter(|(suffix, _)| path.as_ref().ends_with(suffix));
        let (path, source) = (path.to_string(), "as asked".into());
        match lost {
            None => Ok(put),
            Some((_, Lost::Retried)) => Err(object_store::Error::Precondition { path, source }),
            Some((_, Lost::Broken)) => {
                Err(object_store::Error::Generic { store: "Meddled", source })
            }
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
        turn().await;
        let mut got = self.inner.get_opts(path, options).await?;
        got.meta = self.seen(got.meta);
        Ok(got)
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let inner = self.inner.clone();
        paths
            .and_then(move |path| {
                let inner = inner.clone();
                async move {
                    turn().await;
                    inner.delete(&path).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let aged = self.aged.lock().unwrap().clone();
        let listed = async move {
            turn().await;
            inner.list(prefix.as_ref())
        };
        let aged = move |mut meta: ObjectMeta| {
            if aged.contains(&meta.location) {
                meta.last_modified -= AGE;
            }
            meta
        };
        stream::once(listed).flatten().map_ok(aged).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        turn().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Runs tasks to their ends, one request at a time, in an order that follows from `seed`.
pub(super) fn interleave(seed: u64, tasks: Vec<BoxFuture<'_, ()>>) {
    let mut state = seed.wrapping_mul(0xd134_2543_de82_ef95) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = tasks;
    let mut context = Context::from_waker(Waker::noop());
    while !tasks.is_empty() {
        // Runs of steps, not single ones: what goes wrong needs one to be far ahead of the other.
        let (task, longest) = (random(tasks.len()), 1 << random(6));
        let steps = 1 + random(longest);
        for _ in 0..steps {
            if tasks[task].as_mut().poll(&mut context).is_ready() {
                drop(tasks.swap_remove(task));
                break;
            }
        }
    }
}
