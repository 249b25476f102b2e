//! A store in a directory of the test's own, published into by [`StoreWriter`] and spoiled file by file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuildReport, BuiltChunk, Current, Manifest, ManifestBuilder, Snapshot, State, chunk_runs,
};
use rtad_store::StoreError;
use rtad_store::write::{Appended, Base, Change, Collected, Retention, StoreWriter};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::sign::Key;

/// Files of an audience by their path below its folder.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// How snapshots are built.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) filter: FilterSpec,
    pub(crate) shards_per_chunk: u32,
    pub(crate) created_unix_seconds: u64,
    pub(crate) expires_unix_seconds: Option<u64>,
    /// Kept in the manifest; a test may tell generations by it.
    pub(crate) rows: u64,
}

impl Spec {
    /// Ordinary filters in chunks of 4,096 shards, built just now.
    pub(crate) fn small() -> Self {
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        let created_unix_seconds = rtad::sync::now_unix_seconds();
        Self { filter, shards_per_chunk: 4096, created_unix_seconds, expires_unix_seconds: None, rows: 0 }
    }
}

/// A directory with a store in it.
pub(crate) struct Depot {
    pub(crate) writer: StoreWriter,
    pub(crate) root: PathBuf,
    runtime: Runtime,
    _folder: Option<TempDir>,
}

impl Depot {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut depot = Self::at(folder.path().join("store"));
        depot._folder = Some(folder);
        depot
    }

    /// Over a directory that is another's.
    pub(crate) fn at(root: PathBuf) -> Self {
        std::fs::create_dir_all(&root).unwrap();
        let writer = StoreWriter::open(root.to_str().unwrap()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { writer, root, runtime, _folder: None }
    }

    /// Over a store of any kind; there is no directory to look into or to spoil.
    pub(crate) fn over(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { writer: StoreWriter::open(url).unwrap(), root: url.into(), runtime, _folder: None }
    }

    /// The same, with what is published signed, and nothing else believed.
    pub(crate) fn trusting(self, key: &Arc<Key>) -> Self {
        let store = self.writer.store().clone().with_public_keys([key.public.clone()]);
        Self { writer: StoreWriter::new(store).unwrap(), ..self }.signed_by(key)
    }

    /// The same, with what is published signed.
    pub(crate) fn signed_by(self, key: &Arc<Key>) -> Self {
        Self { writer: self.writer.with_signer(Some(Arc::clone(key) as _)), ..self }
    }

    pub(crate) fn url(&self) -> &str {
        self.root.to_str().unwrap()
    }

    pub(crate) fn base(&self, audience: &str) -> Base {
        self.runtime.block_on(self.writer.base(&name(audience))).unwrap()
    }

    /// Publishes sorted keys; returns the generation.
    pub(crate) fn publish(&self, audience: &str, keys: &[DeviceKey], spec: &Spec) -> u64 {
        self.publish_over(self.base(audience), audience, keys, spec).unwrap()
    }

    /// Publishes what was built since `base`.
    pub(crate) fn publish_over(
        &self,
        base: Base,
        audience: &str,
        keys: &[DeviceKey],
        spec: &Spec,
    ) -> Result<u64, StoreError> {
        self.runtime.block_on(async {
            let publication = self.writer.publish(base).await?;
            let mut builder = ManifestBuilder::new(spec.filter, 0.0001);
            for run in chunk_runs(keys, spec.shards_per_chunk) {
                let chunk = BuiltChunk::build(&spec.filter, run);
                builder.add(&chunk);
                publication.put_chunk(chunk).await?;
            }
            let build = BuildReport { tool: "test".to_owned(), rows: spec.rows, ..BuildReport::default() };
            let generation = publication.generation();
            let manifest = builder.finish(name(audience), generation, spec.created_unix_seconds, build);
            let manifest = match spec.expires_unix_seconds {
                Some(expires) => manifest.expiring_at(expires),
                None => manifest,
            };
            publication.commit(&manifest).await
        })
    }

    /// Publishes changes over what is live.
    pub(crate) fn append(&self, audience: &str, change: Change) -> Appended {
        self.runtime.block_on(async {
            self.writer.ledger(&name(audience)).await.unwrap().append(change).await.unwrap()
        })
    }

    /// Says whether the audience may be served, and until when.
    pub(crate) fn set(&self, audience: &str, state: State, expires_unix_seconds: Option<u64>) {
        self.runtime.block_on(async {
            self.writer
                .ledger(&name(audience))
                .await
                .unwrap()
                .set(state, expires_unix_seconds)
                .await
                .unwrap();
        });
    }

    pub(crate) fn roll_back(&self, audience: &str, generation: u64) {
        let base = self.base(audience);
        self.runtime.block_on(async {
            self.writer.publish(base).await.unwrap().roll_back(generation).await.unwrap();
        });
    }

    /// Removes all generations but the newest `keep`, whatever their age.
    pub(crate) fn collect(&self, audience: &str, keep: usize) -> Result<Collected, StoreError> {
        let retention = Retention { keep, min_age: std::time::Duration::ZERO };
        self.runtime.block_on(self.writer.collect(&name(audience), retention, false))
    }

    /// Every chunk of a generation, verified.
    pub(crate) fn read_generation(&self, audience: &str, generation: u64) -> Result<(), StoreError> {
        let audience = name(audience);
        self.runtime.block_on(async {
            let (manifest, _) = self.writer.store().manifest_of(&audience, generation).await?;
            self.writer.store().chunks(&audience, &manifest, manifest.chunks(), 2, |_, _| {}).await
        })
    }

    /// `CURRENT`, if there is one.
    pub(crate) fn current(&self, audience: &str) -> Option<Current> {
        self.base(audience).current().cloned()
    }

    /// The live manifest.
    pub(crate) fn manifest(&self, audience: &str) -> Manifest {
        let current = self.current(audience).unwrap();
        self.runtime.block_on(self.writer.store().manifest(&name(audience), &current)).unwrap()
    }

    /// The live snapshot, read and verified as the service does it.
    pub(crate) fn read(&self, audience: &str) -> Result<Snapshot, StoreError> {
        let audience = name(audience);
        self.runtime.block_on(async {
            let live = self.writer.store().live(&audience).await?.expect("something is live");
            let manifest = self.writer.store().manifest(&audience, &live.current).await?;
            let mut chunks = BTreeMap::new();
            self.writer
                .store()
                .chunks(&audience, &manifest, manifest.chunks(), 2, |entry, chunk| {
                    chunks.insert(entry.first_shard, Arc::new(chunk));
                })
                .await?;
            Ok(Snapshot::assemble(manifest, chunks.into_values().collect()))
        })
    }

    /// Generations that have a manifest.
    pub(crate) fn generations(&self, audience: &str) -> Vec<u64> {
        self.runtime.block_on(self.writer.store().generations(&name(audience))).unwrap()
    }

    /// Where a file of the audience lies.
    pub(crate) fn path(&self, audience: &str, file: &str) -> PathBuf {
        self.root.join(audience).join(file)
    }

    /// All of the audience's files but the locks.
    pub(crate) fn files(&self, audience: &str) -> Files {
        let folder = self.root.join(audience);
        let mut files = Files::new();
        collect(&folder, &folder, &mut files);
        files.retain(|name, _| !name.ends_with("LOCK"));
        files
    }

    /// Replaces a file, or removes it, in one step: a reader sees either the old one or the new one.
    pub(crate) fn put(&self, audience: &str, file: &str, bytes: Option<&[u8]>) {
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

fn collect(root: &Path, folder: &Path, files: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
}

fn name(audience: &str) -> AudienceName {
    audience.parse().unwrap()
}
