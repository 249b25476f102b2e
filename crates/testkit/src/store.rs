//! Test stores: keys, signatures, snapshots, and a store to publish into and to damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minisign::{KeyPair, SecretKey};
use rtad_core::clock::now_unix_seconds;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, ChunkDecoder, ChunkEntry, ChunkReader, Current, Digest,
    GenerationEntry, GenerationFacts, Manifest, ManifestBuilder, Overlay, Snapshot, State,
    chunk_runs,
};
use rtad_store::layout::{manifest_name, record_name};
use rtad_store::write::{Appended, Base, Change, Sign, StoreWriter};
use rtad_store::{PublicKey, Store, StoreError};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::random::SplitMix64;

/// The key as an id of kind `md5`.
pub fn hex(key: &DeviceKey) -> String {
    const_hex::encode(key.as_bytes())
}

/// `count` distinct keys, sorted, deterministic per `seed`. `narrow` maps random shards to the
/// wanted ones.
pub fn keys(seed: u64, count: usize, narrow: impl Fn(u16) -> u16) -> Vec<DeviceKey> {
    // md5s of millions of keys would take longer than the test.
    let mut random = SplitMix64::new((seed + 1).wrapping_mul(0xd134_2543_de82_ef95));
    let mut key = || {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random.number().to_le_bytes());
        bytes[8..].copy_from_slice(&random.number().to_le_bytes());
        let shard = narrow(u16::from_be_bytes([bytes[0], bytes[1]]));
        bytes[..2].copy_from_slice(&shard.to_be_bytes());
        DeviceKey::from_bytes(bytes)
    };
    let mut keys: Vec<DeviceKey> = (0..count).map(|_| key()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "keys of 14 random bytes are distinct");
    keys
}

/// A unique URL in the bucket of `RTAD_TEST_BUCKET`; `None` without that variable. The `stores`
/// suite sets it and reads the printed lines. It runs tests that end in `_in_a_bucket` or
/// `_in_every_store`.
#[allow(
    clippy::print_stdout,
    reason = "the stores suite checks that no test was skipped"
)]
pub fn bucket_url(part: &str) -> Option<String> {
    let Ok(bucket) = std::env::var("RTAD_TEST_BUCKET") else {
        println!("skipped: RTAD_TEST_BUCKET is not set");
        return None;
    };
    let url = format!("{bucket}/{}-{part}", std::process::id());
    println!("on {url}");
    Some(url)
}

/// A key pair that signs records.
pub struct Key {
    /// The public half.
    pub public: PublicKey,
    secret: SecretKey,
}

impl Key {
    /// Generates a key pair.
    #[allow(clippy::new_ret_no_self, reason = "a store shares its signer")]
    pub fn new() -> Arc<Self> {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        Arc::new(Self {
            public: pair.pk.to_base64().parse().unwrap(),
            secret: pair.sk,
        })
    }

    /// The signature of bytes at this path in the store.
    pub fn signature(&self, bytes: &[u8], path: &str) -> Vec<u8> {
        self.sign(bytes, &format!("rtad {path}"))
            .unwrap()
            .into_bytes()
    }
}

impl Sign for Key {
    fn sign(
        &self,
        bytes: &[u8],
        trusted_comment: &str,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let signed = minisign::sign(
            None,
            &self.secret,
            bytes,
            Some(trusted_comment),
            Some("a test"),
        )?;
        Ok(signed.into_string())
    }

    fn public_key(&self) -> PublicKey {
        self.public.clone()
    }
}

/// File contents by relative path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// All files under a directory.
pub fn files(folder: &Path) -> Files {
    let mut found = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&current) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The file of a generation's manifest, in an audience's folder.
pub fn manifest_file(audience: &Path, generation: u64) -> PathBuf {
    let prefix = format!("{generation}-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(audience.join("manifests")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    assert_eq!(found.len(), 1, "manifests of generation {generation}");
    found.remove(0)
}

/// The file of the newest record, in the folder of an audience or of a window.
pub fn newest_record(folder: &Path) -> PathBuf {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(folder.join("records")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            records.push(path);
        }
    }
    records.into_iter().max().expect("a record")
}

/// Path of a record, below the folder of an audience or of a window.
pub fn record_path(number: u64) -> String {
    format!("records/{}", record_name(number))
}

/// Path of a manifest, below the folder of an audience.
pub fn manifest_path(entry: &GenerationEntry) -> String {
    format!("manifests/{}", manifest_name(entry))
}

/// Replaces the live manifest, with its name and its entry in an unsigned record.
pub fn replace_live_manifest(audience: &Path, text: &[u8]) {
    let record = newest_record(audience);
    let mut content: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let digest = Digest::of(text);
    let name = format!("{}-{digest}.json", content["generation"]);
    content["manifest_size_bytes"] = text.len().into();
    content["manifest_sha256"] = digest.to_string().into();

    std::fs::write(audience.join("manifests").join(name), text).unwrap();
    std::fs::write(record, format!("{content}\n")).unwrap();
}

async fn read_snapshot(store: &Store, audience: &AudienceName) -> Result<Snapshot, StoreError> {
    let live = store
        .live(audience)
        .await?
        .expect("the audience was published");
    let manifest = store.manifest(audience, &live.current.live_entry()).await?;
    let mut chunks = BTreeMap::new();
    let arrived =
        |entry: &ChunkEntry, chunk| drop(chunks.insert(entry.first_shard, Arc::new(chunk)));
    store
        .chunks(&manifest, manifest.chunks(), 2, arrived)
        .await?;
    let overlay = store
        .overlay(audience, &live.current, &Overlay::default())
        .await?;
    Ok(Snapshot::assemble(manifest, chunks.into_values().collect()).with_overlay(overlay))
}

/// Build options of a snapshot.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Filter spec.
    pub filter: FilterSpec,
    /// False-positive rate in the manifest.
    pub target_fpr: f64,
    /// Shards per chunk.
    pub shards_per_chunk: u32,
    /// Time of the build.
    pub created_unix_seconds: u64,
    /// End of validity.
    pub expires_unix_seconds: Option<u64>,
    /// The window of events that it follows.
    pub from_window: Option<&'static str>,
}

impl Spec {
    /// Default filters in chunks of 4,096 shards, built now.
    pub fn small() -> Self {
        Self {
            filter: FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap(),
            target_fpr: 0.0001,
            shards_per_chunk: 4096,
            created_unix_seconds: now_unix_seconds(),
            expires_unix_seconds: None,
            from_window: None,
        }
    }

    fn facts(&self) -> GenerationFacts {
        GenerationFacts {
            created_unix_seconds: self.created_unix_seconds,
            expires_unix_seconds: self.expires_unix_seconds,
            from_window: self.from_window.map(name),
            ..GenerationFacts::built_now_by("test")
        }
    }
}

/// The value of a key, 0 to 15, in filters that hold values.
pub fn value(key: &DeviceKey) -> u8 {
    key.as_bytes()[15] & 15
}

fn chunk(filter: &FilterSpec, keys: &[DeviceKey]) -> BuiltChunk {
    match filter.value_bits() {
        0 => BuiltChunk::build(filter, keys),
        _ => BuiltChunk::build_with_values(filter, keys, value),
    }
}

/// A snapshot of sorted keys, built in memory.
pub fn snapshot(audience: &str, generation: u64, keys: &[DeviceKey], spec: &Spec) -> Snapshot {
    let mut builder = ManifestBuilder::new(spec.filter, spec.target_fpr);
    let mut chunks = Vec::new();
    for run in chunk_runs(keys, spec.shards_per_chunk) {
        let built = chunk(&spec.filter, run);
        builder.add(&built);
        let mut decoder = ChunkDecoder::new(&spec.filter, &built.entry);
        decoder.feed(&built.bytes).unwrap();
        chunks.push(Arc::new(decoder.finish().unwrap()));
    }
    let manifest = builder.finish(name(audience), spec.facts()).unwrap();
    Snapshot::assemble(manifest.numbered(generation), chunks)
}

/// A store for tests, usually in its own directory.
pub struct Depot {
    /// The store, for reading.
    pub store: Store,
    /// Signer of publishes.
    pub signer: Option<Arc<dyn Sign>>,
    /// Its directory.
    pub root: PathBuf,
    runtime: Runtime,
    _folder: Option<TempDir>,
}

impl Depot {
    /// A store in a new temporary directory.
    #[allow(clippy::new_without_default, reason = "it creates a directory")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut depot = Self::at(folder.path().join("store"));
        depot._folder = Some(folder);
        depot
    }

    /// A store in this directory, created if missing.
    pub fn at(root: PathBuf) -> Self {
        std::fs::create_dir_all(&root).unwrap();
        Self::over(root.to_str().unwrap())
    }

    /// A store at any URL; file access works only for directories.
    pub fn over(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let store = Store::open(url).unwrap();
        Self {
            store,
            signer: None,
            root: url.into(),
            runtime,
            _folder: None,
        }
    }

    /// The store, for writing.
    pub fn writer(&self) -> StoreWriter {
        StoreWriter::new(self.store.clone())
            .unwrap()
            .with_signer(self.signer.clone())
    }

    /// The same store, with signed publishes.
    pub fn signed_by(self, key: &Arc<Key>) -> Self {
        Self {
            signer: Some(Arc::clone(key) as _),
            ..self
        }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        self.root.to_str().unwrap()
    }

    /// Base of the next publish.
    pub fn base(&self, audience: &str) -> Base {
        self.runtime
            .block_on(self.writer().base(&name(audience)))
            .unwrap()
    }

    /// Publishes sorted keys; returns the generation. The live deltas stay.
    pub fn publish(&self, audience: &str, keys: &[DeviceKey], spec: &Spec) -> u64 {
        self.publish_over(self.base(audience), keys, spec, spec.facts())
    }

    /// Publishes sorted keys into which the live deltas are merged, as the loader does.
    pub fn publish_merged(&self, audience: &str, keys: &[DeviceKey], spec: &Spec) -> u64 {
        let base = self.base(audience);
        let facts = GenerationFacts {
            folded: base.folded(),
            ..spec.facts()
        };
        self.publish_over(base, keys, spec, facts)
    }

    fn publish_over(
        &self,
        base: Base,
        keys: &[DeviceKey],
        spec: &Spec,
        facts: GenerationFacts,
    ) -> u64 {
        self.runtime.block_on(async {
            let writer = self.writer();
            let publication = writer.publish(base).await.unwrap();
            let mut builder = ManifestBuilder::new(spec.filter, spec.target_fpr);
            for run in chunk_runs(keys, spec.shards_per_chunk) {
                let chunk = chunk(&spec.filter, run);
                builder.add(&chunk);
                publication.put_chunk(chunk).await.unwrap();
            }
            let audience = publication.audience().clone();
            let manifest = builder.finish(audience, facts).unwrap();
            let published = publication.commit(manifest).await.unwrap();
            published.manifest.generation()
        })
    }

    /// Publishes changes over the live generation.
    pub fn append(&self, audience: &str, change: Change) -> Appended {
        self.runtime.block_on(async {
            self.writer()
                .ledger(&name(audience))
                .await
                .unwrap()
                .append(change)
                .await
                .unwrap()
        })
    }

    /// Sets the audience's state and end of validity.
    pub fn set(&self, audience: &str, state: State, expires_unix_seconds: Option<u64>) {
        self.runtime.block_on(async {
            let mut ledger = self.writer().ledger(&name(audience)).await.unwrap();
            ledger.set(state, expires_unix_seconds).await.unwrap();
        });
    }

    /// Deletes the audience.
    pub fn delete(&self, audience: &str) {
        self.runtime
            .block_on(self.writer().delete(&name(audience)))
            .unwrap();
    }

    /// Rolls back to a generation.
    pub fn roll_back(&self, audience: &str, generation: u64) {
        let base = self.base(audience);
        self.runtime.block_on(async {
            self.writer()
                .publish(base)
                .await
                .unwrap()
                .roll_back(generation)
                .await
                .unwrap();
        });
    }

    /// The newest record, if there is one.
    pub fn current(&self, audience: &str) -> Option<Current> {
        self.base(audience).current().cloned()
    }

    /// The live manifest.
    pub fn manifest(&self, audience: &str) -> Manifest {
        let current = self.current(audience).unwrap();
        self.runtime
            .block_on(self.store.manifest(&name(audience), &current.live_entry()))
            .unwrap()
    }

    /// Reads and verifies the live snapshot with its deltas, as a pod does.
    pub fn read(&self, audience: &str) -> Result<Snapshot, StoreError> {
        self.runtime
            .block_on(read_snapshot(&self.store, &name(audience)))
    }

    /// Path of the newest record, below the audience's folder.
    pub fn newest_record(&self, audience: &str) -> String {
        let record = newest_record(&self.root.join(audience));
        let name = record.file_name().unwrap().to_str().unwrap();
        format!("records/{name}")
    }

    /// Path of the live manifest, below the audience's folder.
    pub fn live_manifest(&self, audience: &str) -> String {
        manifest_path(&self.current(audience).unwrap().live_entry())
    }

    /// Removes all records of the audience; the hint stays.
    pub fn lose_records(&self, audience: &str) {
        std::fs::remove_dir_all(self.path(audience, "records")).unwrap();
    }

    /// Copies the store to another folder, as a mirror or a backup does.
    pub fn copy_to(&self, folder: &Path) {
        for (name, bytes) in files(&self.root) {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    /// Path of a file of the audience.
    pub fn path(&self, audience: &str, file: &str) -> PathBuf {
        self.root.join(audience).join(file)
    }

    /// All of the audience's files.
    pub fn files(&self, audience: &str) -> Files {
        files(&self.root.join(audience))
    }

    /// Replaces or removes a file atomically.
    pub fn put(&self, audience: &str, file: &str, bytes: Option<&[u8]>) {
        let path = self.path(audience, file);
        match bytes {
            Some(bytes) => {
                let staged = self.root.join("staged#");
                std::fs::write(&staged, bytes).unwrap();
                std::fs::rename(&staged, path).unwrap();
            }
            None => std::fs::remove_file(path).unwrap(),
        }
    }
}

fn name(audience: &str) -> AudienceName {
    audience.parse().unwrap()
}
