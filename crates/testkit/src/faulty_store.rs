//! A store in memory that loses answers to writes, fails reads of chunks, and shows aged files.
//! Each request yields once, so that tests can interleave tasks.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Apparent age of aged files.
const AGE: Duration = Duration::from_secs(2 * 3600);

/// The fate of the answer to a successful write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostAnswer {
    /// The client retried, and the retry was refused.
    Retried,
    /// The connection broke.
    Broken,
}

/// Writes whose answers are lost.
#[derive(Debug, Clone, Copy)]
struct Lost {
    suffix: &'static str,
    answer: LostAnswer,
    is_once: bool,
}

/// A condition of puts that the server ignores, or cannot fulfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionFault {
    /// `If-None-Match` is ignored.
    CreateIgnored,
    /// `If-Match` is ignored.
    UpdateIgnored,
    /// No ETag matches: all are weak.
    UpdateRefused,
}

/// A store in memory with injected faults.
#[derive(Debug, Default)]
pub struct FaultyStore {
    inner: InMemory,
    aged: Mutex<HashSet<Path>>,
    /// How far the store's clock is ahead of this host's.
    ahead: Mutex<Duration>,
    lost: Mutex<Option<Lost>>,
    /// A folder, and the number of its reads until they fail.
    reads: Mutex<Option<(&'static str, usize)>>,
    condition_fault: Mutex<Option<ConditionFault>>,
}

impl FaultyStore {
    /// Loses the answers to all writes of paths with this suffix.
    pub fn lose_answers(&self, suffix: &'static str, answer: LostAnswer) {
        *self.lost.lock().unwrap() = Some(Lost {
            suffix,
            answer,
            is_once: false,
        });
    }

    /// Loses the answer to the next write of `CURRENT`; `None` for no write.
    pub fn lose_next_answer(&self, answer: Option<LostAnswer>) {
        let lost = answer.map(|answer| Lost {
            suffix: "CURRENT",
            answer,
            is_once: true,
        });
        *self.lost.lock().unwrap() = lost;
    }

    /// Lets so many reads in a folder such as `/chunks/` succeed; `None` for all.
    pub fn limit_reads(&self, reads: Option<(&'static str, usize)>) {
        *self.reads.lock().unwrap() = reads;
    }

    /// Makes all files two hours old.
    pub async fn age(&self) {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.unwrap();
        self.aged
            .lock()
            .unwrap()
            .extend(all.into_iter().map(|object| object.location));
    }

    /// Sets how far the store's clock is ahead of this host's.
    pub fn set_clock_ahead(&self, ahead: Duration) {
        *self.ahead.lock().unwrap() = ahead;
    }

    /// Breaks conditional puts from now on.
    pub fn break_conditions(&self, fault: ConditionFault) {
        *self.condition_fault.lock().unwrap() = Some(fault);
    }

    fn seen(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified += *self.ahead.lock().unwrap();
        if self.aged.lock().unwrap().contains(&meta.location) {
            meta.last_modified -= AGE;
        }
        meta
    }

    /// The fate of the answer to this write.
    fn lost_answer(&self, path: &Path) -> Option<LostAnswer> {
        let mut lost = self.lost.lock().unwrap();
        let found = lost.filter(|lost| path.as_ref().ends_with(lost.suffix))?;
        if found.is_once {
            *lost = None;
        }
        Some(found.answer)
    }

    fn admits_read(&self, path: &Path) -> bool {
        let mut reads = self.reads.lock().unwrap();
        let Some((folder, left)) = reads.as_mut() else {
            return true;
        };
        if !path.as_ref().contains(*folder) {
            return true;
        }
        let admits = *left > 0;
        *left = left.saturating_sub(1);
        admits
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "FaultyStore",
        source: "injected".into(),
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
        mut options: PutOptions,
    ) -> Result<PutResult> {
        yield_once().await;
        let fault = *self.condition_fault.lock().unwrap();
        match (fault, &options.mode) {
            (Some(ConditionFault::CreateIgnored), PutMode::Create)
            | (Some(ConditionFault::UpdateIgnored), PutMode::Update(_)) => {
                options.mode = PutMode::Overwrite;
            }
            (Some(ConditionFault::UpdateRefused), PutMode::Update(_)) => {
                let (path, source) = (path.to_string(), "injected".into());
                return Err(object_store::Error::Precondition { path, source });
            }
            _ => {}
        }
        let put = self.inner.put_opts(path, payload, options).await?;
        self.aged.lock().unwrap().remove(path);
        match self.lost_answer(path) {
            None => Ok(put),
            Some(LostAnswer::Retried) => Err(object_store::Error::Precondition {
                path: path.to_string(),
                source: "injected".into(),
            }),
            Some(LostAnswer::Broken) => Err(broken()),
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
        if !self.admits_read(path) {
            return Err(broken());
        }
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
pub fn interleave(seed: u64, tasks: Vec<BoxFuture<'_, ()>>) {
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
