//! Tests over all writable stores: a directory and memory (which answers like buckets). The
//! `stores` suite runs those that end in `_in_every_store` in buckets too: they have each kind of
//! request and answer, and the others change no more than their order.

mod appending;
mod clouds;
mod collecting;
mod concurrent_appends;
mod crashes;
mod deleting;
mod early_chunks;
mod faults;
mod lost_answers;
mod lost_mount;
mod mirroring;
mod publishing;
mod reading;
mod signing;
mod staging;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tempfile::TempDir;
use testkit::faulty_store::FaultyStore;

use super::backend::Backend;
use super::download::BLOCK_BYTES;
use super::layout::{audience_path, chunk_path, manifest_path, record_path};
use super::write::{Base, Publication, StoreWriter};
use super::*;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, ChunkEntry, Current, GenerationEntry, GenerationFacts, Manifest,
    ManifestBuilder, Overlay, Snapshot, chunk_runs,
};

fn faulty_fixture() -> (Arc<FaultyStore>, StoreFixture) {
    let faulty = Arc::new(FaultyStore::default());
    let backend = Backend::over(Arc::clone(&faulty) as Arc<dyn ObjectStore>, "memory");
    (faulty, StoreFixture::over(Store::new(backend)))
}

/// A store, with its folder if it is a directory.
struct StoreFixture {
    writer: StoreWriter,
    folder: Option<TempDir>,
}

impl StoreFixture {
    fn directory() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Self::open(folder.path().to_str().unwrap());
        Self {
            folder: Some(folder),
            ..fixture
        }
    }

    fn over(store: Store) -> Self {
        Self {
            writer: StoreWriter::new(store).unwrap().without_delete_time(),
            folder: None,
        }
    }

    fn open(url: &str) -> Self {
        Self::over(Store::open(url).unwrap())
    }

    fn memory() -> Self {
        Self::over(Store::in_memory())
    }

    /// An unused prefix of the test bucket.
    fn bucket() -> Option<Self> {
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let bucket = std::env::var("RTAD_TEST_BUCKET").ok()?;
        let prefix = PREFIXES.fetch_add(1, Ordering::Relaxed);
        let url = format!("{bucket}/unit-{}-{prefix}/with%20space", std::process::id());
        println!("on {url}");
        Some(Self::open(&url))
    }

    fn local() -> Vec<Self> {
        vec![Self::directory(), Self::memory()]
    }

    /// The bucket of the test server, or without one a directory and memory. For tests that end in
    /// `_in_every_store`.
    fn all() -> Vec<Self> {
        Self::bucket().map_or_else(Self::local, |one| vec![one])
    }

    fn store(&self) -> &Store {
        self.writer.store()
    }

    fn name(&self) -> String {
        self.store().backend.url()
    }

    /// The audience's folder.
    fn audience_folder(&self) -> PathBuf {
        self.folder
            .as_ref()
            .expect("a directory")
            .path()
            .join(audience().as_str())
    }

    /// Every object with its bytes.
    async fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let root = Path::default();
        let objects = self.store().objects(&root).await.unwrap();
        let listing: Vec<_> = objects.list(None).try_collect().await.unwrap();
        let mut files = BTreeMap::new();
        for object in &listing {
            let bytes = objects
                .get(&object.location)
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap();
            files.insert(object.location.to_string(), bytes.to_vec());
        }
        files
    }

    async fn write(&self, path: &str, bytes: Vec<u8>) {
        let path = Path::from(path);
        self.store()
            .objects(&path)
            .await
            .unwrap()
            .put(&path, PutPayload::from(bytes))
            .await
            .unwrap();
    }

    async fn delete(&self, path: &str) {
        let path = Path::from(path);
        self.store()
            .objects(&path)
            .await
            .unwrap()
            .delete(&path)
            .await
            .unwrap();
    }

    /// Publishes `keys`. Returns the generation and the number of chunks written.
    async fn publish(&self, keys: &[DeviceKey]) -> Result<(u64, usize), StoreError> {
        let base = self.writer.base(&audience()).await?;
        let publication = self.writer.publish(base).await?;
        let written = put_chunks(&publication, keys).await?;
        let published = publication.commit(build(1, keys).0).await?;
        Ok((published.manifest.generation(), written))
    }

    async fn roll_back(&self, generation: u64) -> Result<(), StoreError> {
        let base = self.writer.base(&audience()).await?;
        let publication = self.writer.publish(base).await?;
        publication.roll_back(generation).await.map(drop)
    }

    async fn current(&self) -> Current {
        self.store()
            .live(&audience())
            .await
            .unwrap()
            .expect("something is live")
            .current
    }

    /// The generations that the newest record names.
    async fn generations(&self) -> Vec<u64> {
        let named = self.current().await.generations();
        named.iter().map(|entry| entry.generation).collect()
    }

    /// The path of the manifest of a generation that the newest record names.
    async fn manifest_file(&self, generation: u64) -> String {
        let entry = self.current().await.entry(generation).unwrap();
        manifest_path(&audience(), &entry).to_string()
    }

    /// The live snapshot, read as the service reads it.
    async fn read(&self) -> Result<Snapshot, StoreError> {
        let live = self
            .store()
            .live(&audience())
            .await?
            .expect("something is live");
        let manifest = self
            .store()
            .manifest(&audience(), &live.current.live_entry())
            .await?;
        let mut chunks = BTreeMap::new();
        let arrived =
            |entry: &ChunkEntry, chunk| drop(chunks.insert(entry.first_shard, Arc::new(chunk)));
        self.store()
            .chunks(&manifest, manifest.chunks(), 3, arrived)
            .await?;
        let overlay = self
            .store()
            .overlay(&audience(), &live.current, &Overlay::default())
            .await?;
        Ok(Snapshot::assemble(manifest, chunks.into_values().collect()).with_overlay(overlay))
    }

    /// Asserts that readers see the whole `generation`, with these keys.
    #[track_caller]
    fn assert_serves(&self, generation: u64, keys: &[DeviceKey]) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let snapshot = self
                .read()
                .await
                .unwrap_or_else(|error| panic!("{caller}: {error:?}"));
            assert_eq!(
                snapshot.manifest().generation(),
                generation,
                "{}, {caller}",
                self.name()
            );
            assert_eq!(
                snapshot.manifest().keys(),
                keys.len() as u64,
                "{}, {caller}",
                self.name()
            );
            assert!(
                keys.iter().all(|key| snapshot.contains(key)),
                "{}, {caller}",
                self.name()
            );
        }
    }
}

/// The path of a record.
fn record(number: u64) -> String {
    record_path(&audience_path(&audience()), number).to_string()
}

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

/// Sorted keys in all 16 runs of 4,096 shards.
fn keys(seed: &str, count: usize) -> Vec<DeviceKey> {
    let mut keys: Vec<_> = (0..count)
        .map(|index| DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes()))
        .collect();
    keys.sort_unstable();
    keys
}

fn build(generation: u64, keys: &[DeviceKey]) -> (Manifest, Vec<BuiltChunk>) {
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let mut builder = ManifestBuilder::new(spec, 0.0001);
    let chunks: Vec<_> = chunk_runs(keys, 4096)
        .map(|run| BuiltChunk::build(&spec, run))
        .collect();
    chunks.iter().for_each(|chunk| builder.add(chunk));
    let facts = GenerationFacts {
        created_unix_seconds: 1_763_722_800,
        ..GenerationFacts::default()
    };
    let manifest = builder.finish(audience(), facts).unwrap();
    (manifest.numbered(generation), chunks)
}

async fn put_chunks(
    publication: &Publication<'_>,
    keys: &[DeviceKey],
) -> Result<usize, StoreError> {
    let mut written = 0;
    for chunk in build(1, keys).1 {
        written += usize::from(publication.put_chunk(chunk).await?);
    }
    Ok(written)
}

/// The message with its causes, as the commands print it.
fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

/// Moves the time of a file back.
fn make_older(path: &FilePath, by: Duration) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - by).unwrap();
}

/// Number of orders in which a race runs: `make test-all` sets more.
fn races() -> u64 {
    std::env::var("RACES").map_or(100, |count| count.parse().unwrap())
}

#[tokio::test]
async fn missing_store_directory_is_an_outage_for_readers_until_the_first_publish() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/yet");
    let mut fixture = StoreFixture::open(&format!("file://{}", path.display()));
    for _ in 0..2 {
        assert!(fixture.store().audiences().await.unwrap_err().is_outage());
        assert!(
            fixture
                .store()
                .live_since(&audience(), None)
                .await
                .unwrap_err()
                .is_outage()
        );
        let live = fixture.store().live(&audience()).await.unwrap_err();
        assert!(matches!(live, StoreError::NoDirectory { .. }), "{live:?}");
        assert!(!path.exists(), "reading creates nothing");
    }
    let entry = GenerationEntry::of(1, b"manifest");
    let error = fixture.store().manifest(&audience(), &entry).await;
    assert_eq!(error.unwrap_err().cause(), "store");

    // The same store reads a later publish, of the build that creates the store.
    fixture.writer = fixture.writer.creating_store();
    let members = keys("member", 50);
    assert_eq!(fixture.publish(&members).await.unwrap().0, 1);
    fixture.assert_serves(1, &members).await;
    assert_eq!(fixture.store().audiences().await.unwrap(), [audience()]);
}

#[tokio::test]
async fn only_folders_with_valid_names_are_audiences_in_every_store() {
    for fixture in StoreFixture::all() {
        for path in [
            "b/LATEST",
            "a-1/LATEST",
            "Upper/LATEST",
            "_x/LATEST",
            "file",
            "lost+found/x",
        ] {
            fixture.write(path, b"x".to_vec()).await;
        }
        let names = fixture.store().audiences().await.unwrap();
        assert_eq!(
            names.iter().map(AudienceName::as_str).collect::<Vec<_>>(),
            ["a-1", "b"]
        );
    }
}

#[tokio::test]
async fn lists_of_several_pages_are_complete_in_every_store() {
    for fixture in StoreFixture::all() {
        // A page of Azure has 5,000 objects, of S3 and Google 1,000.
        let count = if fixture.name().starts_with("az://") {
            5_001
        } else {
            1_001
        };
        let fixture = &fixture;
        stream::iter(1..=count)
            .for_each_concurrent(32, |number| async move {
                fixture.write(&record(number), Vec::new()).await;
            })
            .await;
        let records = fixture.store().records(&audience()).list().await.unwrap();
        let listed = records.into_iter().map(|(number, _)| number);
        assert!(listed.eq(1..=count), "{}", fixture.name());
    }
}
