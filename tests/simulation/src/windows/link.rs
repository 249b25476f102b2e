//! Connection of one machine to the store: latency, lost answers, late puts, partitions.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::time::sleep;

use super::model::Ownership;
use crate::random::Random;

/// Time between looks at a connection that hangs.
const HANGS: Duration = Duration::from_millis(500);

/// Puts that arrive after their error was reported.
pub type LatePuts = Arc<Mutex<VecDeque<LatePut>>>;

pub struct LatePut {
    pub path: Path,
    payload: PutPayload,
    options: PutOptions,
    by: Option<Ownership>,
}

/// The store, and who has created segments in it.
#[derive(Clone, Default)]
pub struct SharedStore {
    pub objects: Arc<InMemory>,
    creators: Arc<Mutex<VecDeque<Ownership>>>,
}

impl SharedStore {
    /// Applies a put, and notes the creator of a segment.
    async fn put(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
        by: Option<Ownership>,
    ) -> Result<PutResult> {
        let is_create = options.mode == PutMode::Create;
        let put = self.objects.put_opts(path, payload, options).await?;
        let name = path.filename().unwrap_or_default();
        let is_segment = is_create && name.bytes().all(|byte| byte.is_ascii_digit());
        if is_segment && let Some(by) = by {
            self.creators.lock().expect("no panic").push_back(by);
        }
        Ok(put)
    }

    /// Applies a put that was reported as failed.
    pub async fn put_late(&self, late: LatePut) -> Result<PutResult> {
        self.put(&late.path, late.payload, late.options, late.by)
            .await
    }

    /// The creator of the first segment that was not asked for yet.
    pub fn next_creator(&self) -> Option<Ownership> {
        self.creators.lock().expect("no panic").pop_front()
    }
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Open,
    /// Requests fail.
    Refused,
    /// Requests wait until it is open again.
    Hanging,
}

struct LinkState {
    random: Random,
    line: Line,
    /// One of so many puts has a fault; none with zero.
    faults: u64,
    slowest_millis: u64,
    /// The process that runs.
    process: Option<Ownership>,
}

/// The store, as one machine reaches it.
#[derive(Clone)]
pub struct Link {
    store: SharedStore,
    late: LatePuts,
    state: Arc<Mutex<LinkState>>,
}

/// Fate of a put.
enum Fate {
    Applied,
    /// It is not applied.
    Failed,
    /// It is applied, and the answer is lost.
    AnswerLost,
    /// It is applied, and the client's own retry was refused.
    Retried,
    /// It is applied some time after the error.
    Late,
}

impl Link {
    pub fn new(store: SharedStore, late: LatePuts, random: Random) -> Self {
        let state = LinkState {
            random,
            line: Line::Open,
            faults: 0,
            slowest_millis: 30,
            process: None,
        };
        Self {
            store,
            late,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Another process sends requests from now on.
    pub fn set_process(&self, process: Ownership) {
        self.state.lock().expect("no panic").process = Some(process);
    }

    pub fn set_line(&self, line: Line) {
        self.state.lock().expect("no panic").line = line;
    }

    pub fn line(&self) -> Line {
        self.state.lock().expect("no panic").line
    }

    /// Faults of one of so many puts, and the longest time of half a request.
    pub fn set_faults(&self, faults: u64, slowest_millis: u64) {
        let mut state = self.state.lock().expect("no panic");
        state.faults = faults;
        state.slowest_millis = slowest_millis;
    }

    /// Half of the time of a request.
    async fn travel(&self) -> Result<()> {
        let latency = {
            let mut state = self.state.lock().expect("no panic");
            let slowest = state.slowest_millis;
            Duration::from_millis(1 + state.random.below(slowest))
        };
        sleep(latency).await;
        loop {
            match self.line() {
                Line::Open => return Ok(()),
                Line::Refused => return Err(broken()),
                Line::Hanging => sleep(HANGS).await,
            }
        }
    }

    fn fate(&self) -> Fate {
        let mut state = self.state.lock().expect("no panic");
        if state.faults == 0 {
            return Fate::Applied;
        }
        let faults = state.faults;
        if !state.random.is_one_of(faults) {
            return Fate::Applied;
        }
        match state.random.below(4) {
            0 => Fate::Failed,
            1 => Fate::AnswerLost,
            2 => Fate::Retried,
            _ => Fate::Late,
        }
    }
}

fn broken() -> Error {
    Error::Generic {
        store: "simulated",
        source: "the connection broke".into(),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("link")
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("link")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Link {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let by = self.state.lock().expect("no panic").process;
        self.travel().await?;
        let put = match self.fate() {
            Fate::Applied => self.store.put(path, payload, options, by).await,
            Fate::Failed => return Err(broken()),
            Fate::AnswerLost => {
                let _ = self.store.put(path, payload, options, by).await;
                return Err(broken());
            }
            Fate::Retried => {
                let is_create = options.mode == PutMode::Create;
                let put = self.store.put(path, payload, options, by).await;
                if is_create && put.is_ok() {
                    Err(Error::AlreadyExists {
                        path: path.to_string(),
                        source: "the first attempt".into(),
                    })
                } else {
                    put
                }
            }
            Fate::Late => {
                self.late.lock().expect("no panic").push_back(LatePut {
                    path: path.clone(),
                    payload,
                    options,
                    by,
                });
                return Err(broken());
            }
        };
        self.travel().await?;
        put
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.travel().await?;
        self.store.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.travel().await?;
        let got = self.store.objects.get_opts(path, options).await;
        self.travel().await?;
        got
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        use futures_util::{StreamExt as _, TryStreamExt as _, stream};
        let (link, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            link.travel().await?;
            let listed: Vec<ObjectMeta> = link
                .store
                .objects
                .list(prefix.as_ref())
                .try_collect()
                .await?;
            link.travel().await?;
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok)))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.travel().await?;
        self.store.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.objects.copy_opts(from, to, options).await
    }
}
