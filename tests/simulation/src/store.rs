//! A bucket of the world, and the client of a process.
//!
//! A request is sent, takes effect at the bucket, and is answered: two events. Between them the
//! process may die, and the request goes on. Faults are those that clouds and networks have: see
//! [`Fate`](crate::network::Fate). The bucket itself is what S3 and the others promise: a create
//! wins once, and a read that begins after a write sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::meter::Meter;
use crate::network::{Answer, Distance, Network};
use crate::process::EPOCH;

const STORE: &str = "simulated";

/// The present work of a process, for the watch of the bucket.
pub type Work = Arc<dyn std::any::Any + Send + Sync>;

/// Looks at each change of a bucket, when it takes effect.
pub trait Watch: Send + Sync {
    /// An object was written.
    fn written(&self, bucket: &Objects, path: &str, bytes: &Bytes, by: &str, work: Option<Work>);

    /// An object was removed.
    fn removed(&self, bucket: &Objects, path: &str, by: &str);
}

/// An object.
#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    modified: SystemTime,
    /// Its entity tag.
    version: u64,
}

/// The objects of a bucket.
#[derive(Debug)]
pub struct Objects {
    /// Name of the bucket.
    pub name: &'static str,
    objects: BTreeMap<String, Object>,
    versions: u64,
}

impl Objects {
    /// The bytes of an object.
    pub fn get(&self, path: &str) -> Option<&Bytes> {
        self.objects.get(path).map(|object| &object.bytes)
    }

    pub fn has(&self, path: &str) -> bool {
        self.objects.contains_key(path)
    }

    /// The names of all objects.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }

    fn meta(&self, path: &str) -> Option<ObjectMeta> {
        let object = self.objects.get(path)?;
        Some(ObjectMeta {
            location: Path::from(path),
            last_modified: object.modified.into(),
            size: object.bytes.len() as u64,
            e_tag: Some(object.version.to_string()),
            version: None,
        })
    }

    fn put(
        &mut self,
        path: &str,
        bytes: Bytes,
        mode: &PutMode,
        now: SystemTime,
    ) -> Result<PutResult> {
        if matches!(mode, PutMode::Create) && self.has(path) {
            return Err(exists(path));
        }
        assert!(!matches!(mode, PutMode::Update(_)), "no conditional change");
        self.versions += 1;
        let object = Object {
            bytes,
            modified: now,
            version: self.versions,
        };
        self.objects.insert(path.to_owned(), object);
        Ok(PutResult {
            e_tag: Some(self.versions.to_string()),
            version: None,
            extensions: Extensions::default(),
        })
    }
}

fn exists(path: &str) -> Error {
    Error::AlreadyExists {
        path: path.to_owned(),
        source: "simulated".into(),
    }
}

fn not_found(path: &str) -> Error {
    Error::NotFound {
        path: path.to_owned(),
        source: "simulated".into(),
    }
}

fn broken() -> Error {
    Error::Generic {
        store: STORE,
        source: "connection lost".into(),
    }
}

/// A bucket of the world.
pub struct Bucket {
    pub name: &'static str,
    objects: Mutex<Objects>,
    watch: Arc<dyn Watch>,
    /// How far its clock is ahead, in milliseconds.
    ahead: i64,
}

impl Bucket {
    pub fn new(name: &'static str, watch: Arc<dyn Watch>, ahead: i64) -> Arc<Self> {
        let objects = Objects {
            name,
            objects: BTreeMap::new(),
            versions: 0,
        };
        Arc::new(Self {
            name,
            objects: Mutex::new(objects),
            watch,
            ahead,
        })
    }

    fn time(&self, now: Duration) -> SystemTime {
        let time = SystemTime::UNIX_EPOCH + EPOCH + now;
        let ahead = Duration::from_millis(self.ahead.unsigned_abs());
        if self.ahead < 0 {
            time - ahead
        } else {
            time + ahead
        }
    }
}

/// A process at a bucket.
#[derive(Clone)]
pub struct Client {
    pub network: Arc<Network>,
    pub bucket: Arc<Bucket>,
    /// Name of the process.
    pub actor: Arc<str>,
    /// The present work of the process.
    work: Arc<Mutex<Option<Work>>>,
    distance: Distance,
    /// Counts what it asks for.
    meter: Option<Arc<Meter>>,
}

impl Client {
    pub fn new(network: &Arc<Network>, bucket: &Arc<Bucket>, actor: &str) -> Self {
        Self {
            network: Arc::clone(network),
            bucket: Arc::clone(bucket),
            actor: actor.into(),
            work: Arc::default(),
            distance: Distance::default(),
            meter: None,
        }
    }

    /// The client at a distance, whose requests are counted.
    pub fn with_meter(self, distance: Distance, meter: &Arc<Meter>) -> Self {
        Self {
            distance,
            meter: Some(Arc::clone(meter)),
            ..self
        }
    }

    /// Says what the process does from now on.
    pub fn set_work(&self, work: Option<Work>) {
        *self.work.lock() = work;
    }

    /// Sends a request, which takes effect once, late, or not at all.
    async fn request<T: Send + 'static>(
        &self,
        method: &'static str,
        path: &str,
        apply: impl FnOnce(&mut Objects, &Arrival<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let name = format!("{} {method} {}/{path}", self.actor, self.bucket.name);
        let sent = self
            .network
            .send(&self.actor, self.bucket.name, method, name, self.distance);
        let Some(arrives_after) = sent.fate.arrives_after else {
            let now = self.network.schedule.now();
            let what = format!("{method} {}/{path}: lost", self.bucket.name);
            self.network.trace.add(now, &self.actor, &what);
            tokio::time::sleep(sent.fate.answered_after).await;
            return Err(broken());
        };

        if let Some(meter) = &self.meter {
            meter.count_request(self.network.schedule.now(), method, path);
        }
        let (sender, answer) = oneshot::channel();
        let (network, bucket) = (Arc::clone(&self.network), Arc::clone(&self.bucket));
        let (actor, work) = (Arc::clone(&self.actor), self.work.lock().clone());
        let path = path.to_owned();
        let lost = match sent.fate.answer {
            Answer::True => "",
            Answer::Broken => ", but the answer is lost",
            Answer::Refused => ", but the answer is that of a second attempt",
        };
        let arrive = move || {
            let now = network.schedule.now();
            let arrival = Arrival {
                time: bucket.time(now),
                watch: &*bucket.watch,
                by: &actor,
                work: work.as_ref(),
            };
            let result = apply(&mut bucket.objects.lock(), &arrival);
            let outcome = match &result {
                Ok(_) => "ok",
                Err(Error::AlreadyExists { .. }) => "exists",
                Err(Error::NotFound { .. }) => "not found",
                Err(_) => "refused",
            };
            let what = format!("{method} {}/{path}: {outcome}{lost}", bucket.name);
            network.trace.add(now, &actor, &what);
            let _ = sender.send(result);
        };
        self.network.schedule.add(arrives_after, sent.name, arrive);

        match sent.fate.answer {
            Answer::Broken => {
                tokio::time::sleep(sent.fate.answered_after).await;
                return Err(broken());
            }
            Answer::True | Answer::Refused => {}
        }
        let result = answer.await.unwrap_or_else(|_| Err(broken()));
        tokio::time::sleep(sent.fate.answered_after).await;
        if sent.fate.answer == Answer::Refused && result.is_ok() {
            return Err(exists("a create that was sent twice"));
        }
        result
    }

    /// Whether the body of this answer is to be cut. Drawn apart, as only reads have bodies.
    async fn read(&self, path: &str, options: GetOptions) -> Result<GetResult> {
        let asked = path.to_owned();
        let find = move |objects: &mut Objects, _: &Arrival<'_>| {
            let meta = objects.meta(&asked).ok_or_else(|| not_found(&asked))?;
            options.check_preconditions(&meta)?;
            let bytes = objects.get(&asked).expect("it has metadata").clone();
            let range = match &options.range {
                None => 0..meta.size,
                Some(range) => range.as_range(meta.size).map_err(|source| Error::Generic {
                    store: STORE,
                    source: Box::new(source),
                })?,
            };
            let is_head = options.head;
            Ok(Found {
                meta,
                bytes,
                range,
                is_head,
            })
        };
        let found = self.request("GET", path, find).await?;
        if let Some(meter) = &self.meter
            && !found.is_head
        {
            let bytes = found.range.end - found.range.start;
            meter.count_bytes(self.network.schedule.now(), path, bytes);
        }
        let cut = self.network.cuts_body(&self.actor, self.bucket.name, path);
        Ok(found.into_result(cut))
    }
}

/// A request at its bucket.
struct Arrival<'a> {
    time: SystemTime,
    watch: &'a dyn Watch,
    by: &'a str,
    work: Option<&'a Work>,
}

struct Found {
    meta: ObjectMeta,
    bytes: Bytes,
    range: Range<u64>,
    is_head: bool,
}

impl Found {
    /// The answer, whose connection breaks in the middle of the body if it is cut.
    fn into_result(self, is_cut: bool) -> GetResult {
        let body = self
            .bytes
            .slice(self.range.start as usize..self.range.end as usize);
        let parts = match (self.is_head, is_cut) {
            (true, _) => Vec::new(),
            (false, false) => vec![Ok(body)],
            (false, true) => vec![Ok(body.slice(..body.len() / 2)), Err(broken())],
        };
        GetResult {
            payload: GetResultPayload::Stream(stream::iter(parts).boxed()),
            meta: self.meta,
            range: self.range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.actor, self.bucket.name)
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Client {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (bytes, written) = (Bytes::from(payload), path.to_string());
        let method = match options.mode {
            PutMode::Create => "CREATE",
            _ => "PUT",
        };
        if let Some(meter) = &self.meter {
            let now = self.network.schedule.now();
            meter.count_bytes(now, path.as_ref(), bytes.len() as u64);
        }
        let put = move |objects: &mut Objects, arrival: &Arrival<'_>| {
            let result = objects.put(&written, bytes.clone(), &options.mode, arrival.time)?;
            let work = arrival.work.cloned();
            arrival
                .watch
                .written(objects, &written, &bytes, arrival.by, work);
            Ok(result)
        };
        self.request(method, path.as_ref(), put).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(Parts {
            client: self.clone(),
            path: path.clone(),
            parts: Arc::default(),
        }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.read(path.as_ref(), options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let client = self.clone();
        let delete = move |path: Path| {
            let client = client.clone();
            async move {
                let removed = path.to_string();
                let remove = move |objects: &mut Objects, arrival: &Arrival<'_>| {
                    if objects.objects.remove(&removed).is_some() {
                        arrival.watch.removed(objects, &removed, arrival.by);
                    }
                    Ok(())
                };
                client.request("DELETE", path.as_ref(), remove).await?;
                Ok(path)
            }
        };
        paths.and_then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let client = self.clone();
        let folder = prefix
            .map(|prefix| format!("{prefix}/"))
            .unwrap_or_default();
        let listed = async move {
            let path = folder.clone();
            let list = move |objects: &mut Objects, _: &Arrival<'_>| {
                let paths = objects.objects.range(folder.clone()..);
                let within = paths.take_while(|(path, _)| path.starts_with(&folder));
                Ok(within
                    .filter_map(|(path, _)| objects.meta(path))
                    .collect::<Vec<_>>())
            };
            let listed = client.request("LIST", &path, list).await;
            stream::iter(match listed {
                Ok(found) => found.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            })
        };
        stream::once(listed).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let all: Vec<ObjectMeta> = self.list(prefix).try_collect().await?;
        let depth = prefix.map_or(0, |prefix| prefix.parts().count());
        let mut result = ListResult {
            common_prefixes: Vec::new(),
            objects: Vec::new(),
            extensions: Extensions::default(),
        };
        for meta in all {
            let parts: Vec<_> = meta.location.parts().collect();
            if parts.len() == depth + 1 {
                result.objects.push(meta);
                continue;
            }
            let folder = Path::from_iter(parts.into_iter().take(depth + 1));
            if result.common_prefixes.last() != Some(&folder) {
                result.common_prefixes.push(folder);
            }
        }
        Ok(result)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented {
            operation: "copy".to_owned(),
            implementer: STORE.to_owned(),
        })
    }
}

/// An upload in parts.
#[derive(Debug)]
struct Parts {
    client: Client,
    path: Path,
    parts: Arc<Mutex<BTreeMap<usize, Bytes>>>,
}

#[async_trait::async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut parts = self.parts.lock();
        let number = parts.len();
        parts.insert(number, Bytes::from(data));
        Box::pin(std::future::ready(Ok(())))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let all: Vec<u8> = self.parts.lock().values().flatten().copied().collect();
        let options = PutOptions::default();
        self.client.put_opts(&self.path, all.into(), options).await
    }

    async fn abort(&mut self) -> Result<()> {
        Ok(())
    }
}
