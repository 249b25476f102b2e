//! In-memory store with lost answers, aged files, and interleaved requests.

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

/// Apparent age of aged files.
const AGE: std::time::Duration = std::time::Duration::from_secs(2 * 3600);

/// The fate of the answer to a successful write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LostAnswer {
    /// The client retried, and the retry was refused.
    Retried,
    /// The connection broke.
    Broken,
}

#[derive(Debug, Default)]
pub(super) struct FaultyStore {
    inner: InMemory,
    aged: Mutex<HashSet<Path>>,
    /// How far the store's clock is ahead of this host's.
    ahead: Mutex<std::time::Duration>,
    /// The answers to writes of paths with this suffix are lost.
    lose_answer: Mutex<Option<(&'static str, LostAnswer)>>,
}

impl FaultyStore {
    pub(super) fn fixture() -> (Arc<Self>, StoreFixture) {
        let faulty = Arc::new(Self::default());
        let backend = Backend::over(Arc::clone(&faulty) as Arc<dyn ObjectStore>, "memory");
        (faulty, StoreFixture::over(Store::new(backend)))
    }

    pub(super) fn lose_answer(&self, suffix: &'static str, lost: LostAnswer) {
        *self.lose_answer.lock().unwrap() = Some((suffix, lost));
    }

    /// Makes all files two hours old.
    pub(super) async fn age(&self) {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.unwrap();
        self.aged.lock().unwrap().extend(all.into_iter().map(|object| object.location));
    }

    pub(super) fn set_clock_ahead(&self, ahead: std::time::Duration) {
        *self.ahead.lock().unwrap() = ahead;
    }

    fn seen(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified += *self.ahead.lock().unwrap();
        if self.aged.lock().unwrap().contains(&meta.location) {
            meta.last_modified -= AGE;
        }
        meta
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

/// Yields once: every request is a step of its own.
async fn yield_once() {
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
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        yield_once().await;
        let put = self.inner.put_opts(path, payload, options).await?;
        self.aged.lock().unwrap().remove(path);
        let lost =
            self.lose_answer.lock().unwrap().filter(|(suffix, _)| path.as_ref().ends_with(suffix));
        let (path, source) = (path.to_string(), "injected".into());
        match lost {
            None => Ok(put),
            Some((_, LostAnswer::Retried)) => {
                Err(object_store::Error::Precondition { path, source })
            }
            Some((_, LostAnswer::Broken)) => {
                Err(object_store::Error::Generic { store: "FaultyStore", source })
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
        yield_once().await;
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
                    yield_once().await;
                    inner.delete(&path).await.map(|()| path)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let aged = self.aged.lock().unwrap().clone();
        let ahead = *self.ahead.lock().unwrap();
        let listed = async move {
            yield_once().await;
            inner.list(prefix.as_ref())
        };
        let aged = move |mut meta: ObjectMeta| {
            meta.last_modified += ahead;
            if aged.contains(&meta.location) {
                meta.last_modified -= AGE;
            }
            meta
        };
        stream::once(listed).flatten().map_ok(aged).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        yield_once().await;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Runs tasks to completion, one request at a time, in an order determined by `seed`.
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
        // Runs of steps, not single ones: races need one task far ahead of another.
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
