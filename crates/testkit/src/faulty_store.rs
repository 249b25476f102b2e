//! A store in memory that loses or delays writes, fails reads of chunks, and shows aged files.
//! Each request yields once, so that tests can interleave tasks.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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
    part: &'static str,
    answer: LostAnswer,
    is_once: bool,
}

/// A write that arrives after its error was reported.
#[derive(Debug)]
struct LatePut {
    path: Path,
    payload: PutPayload,
    options: PutOptions,
}

/// A store in memory with injected faults.
#[derive(Debug, Default)]
pub struct FaultyStore {
    inner: InMemory,
    ages: Mutex<HashMap<Path, Duration>>,
    /// How far the store's clock is ahead of this host's.
    ahead: Mutex<Duration>,
    lost: Mutex<Option<Lost>>,
    /// A folder, and the number of its reads until they fail.
    reads: Mutex<Option<(&'static str, usize)>>,
    /// Whether a create overwrites.
    ignores_conditions: AtomicBool,
    /// Part of the path of the next write that is delayed.
    delays: Mutex<Option<&'static str>>,
    late: Mutex<Option<LatePut>>,
    /// Duration of each request.
    latency: Mutex<Duration>,
}

impl FaultyStore {
    /// Loses the answers to all writes of paths with this part.
    pub fn lose_answers(&self, part: &'static str, answer: LostAnswer) {
        *self.lost.lock().unwrap() = Some(Lost {
            part,
            answer,
            is_once: false,
        });
    }

    /// Loses the answer to the next write of a record; `None` for no write.
    pub fn lose_next_answer(&self, answer: Option<LostAnswer>) {
        let lost = answer.map(|answer| Lost {
            part: "/records/0",
            answer,
            is_once: true,
        });
        *self.lost.lock().unwrap() = lost;
    }

    /// Lets so many reads in a folder such as `/chunks/` succeed; `None` for all.
    pub fn limit_reads(&self, reads: Option<(&'static str, usize)>) {
        *self.reads.lock().unwrap() = reads;
    }

    /// Makes all files older.
    pub async fn age(&self, by: Duration) {
        let all: Vec<ObjectMeta> = self.inner.list(None).try_collect().await.unwrap();
        let mut ages = self.ages.lock().unwrap();
        for object in all {
            *ages.entry(object.location).or_default() += by;
        }
    }

    /// Sets how far the store's clock is ahead of this host's.
    pub fn set_clock_ahead(&self, ahead: Duration) {
        *self.ahead.lock().unwrap() = ahead;
    }

    /// Ignores the condition of a create from now on.
    pub fn ignore_conditions(&self) {
        self.ignores_conditions.store(true, Ordering::Relaxed);
    }

    /// Delays the next write of a path with this part: it fails, and arrives with
    /// [`FaultyStore::land_late_put`].
    pub fn delay_next_put(&self, part: &'static str) {
        *self.delays.lock().unwrap() = Some(part);
    }

    /// Lets the delayed write arrive. Returns whether its condition held.
    pub async fn land_late_put(&self) -> bool {
        let late = self.late.lock().unwrap().take().expect("a delayed write");
        let put = self.inner.put_opts(&late.path, late.payload, late.options);
        put.await.is_ok()
    }

    /// Lets the delayed write arrive, if there is one.
    pub async fn try_land_late_put(&self) {
        if self.late.lock().unwrap().is_some() {
            self.land_late_put().await;
        }
    }

    /// Sets the duration of each read and write.
    pub fn set_latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    async fn wait(&self) {
        yield_once().await;
        let latency = *self.latency.lock().unwrap();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }

    /// Keeps a write that is to be delayed.
    fn delays_put(&self, path: &Path, payload: &PutPayload, options: &PutOptions) -> bool {
        let mut delays = self.delays.lock().unwrap();
        if !delays.is_some_and(|part| path.as_ref().contains(part)) {
            return false;
        }
        *delays = None;
        *self.late.lock().unwrap() = Some(LatePut {
            path: path.clone(),
            payload: payload.clone(),
            options: options.clone(),
        });
        true
    }

    fn seen(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified += *self.ahead.lock().unwrap();
        let ages = self.ages.lock().unwrap();
        meta.last_modified -= ages.get(&meta.location).copied().unwrap_or_default();
        meta
    }

    /// The fate of the answer to this write.
    fn lost_answer(&self, path: &Path) -> Option<LostAnswer> {
        let mut lost = self.lost.lock().unwrap();
        let found = lost.filter(|lost| path.as_ref().contains(lost.part))?;
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
        self.wait().await;
        if self.delays_put(path, &payload, &options) {
            return Err(broken());
        }
        if self.ignores_conditions.load(Ordering::Relaxed) {
            options.mode = PutMode::Overwrite;
        }
        let put = self.inner.put_opts(path, payload, options).await?;
        self.ages.lock().unwrap().remove(path);
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
        self.wait().await;
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
        // Without a step of its own: a gc deletes right after a look at the file, and writers wait
        // for deletes that are on their way.
        paths
            .and_then(move |path| {
                let inner = inner.clone();
                async move { inner.delete(&path).await.map(|()| path) }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let ages = self.ages.lock().unwrap().clone();
        let ahead = *self.ahead.lock().unwrap();
        let listed = async move {
            yield_once().await;
            inner.list(prefix.as_ref())
        };
        let aged = move |mut meta: ObjectMeta| {
            meta.last_modified += ahead;
            meta.last_modified -= ages.get(&meta.location).copied().unwrap_or_default();
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
