use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuiltChunk, GenerationFacts, ManifestBuilder, chunk_runs};
use rtad_store::ByteSink;

/// A cache in a folder of its own, with the metrics that count its errors.
struct CacheFixture {
    _folder: TempDir,
    cache: Cache,
    telemetry: Arc<Telemetry>,
}

impl CacheFixture {
    fn new() -> Self {
        let (folder, telemetry) = (tempfile::tempdir().unwrap(), Arc::<Telemetry>::default());
        let cache = Cache::new(
            folder.path().join("made/when/needed"),
            Trust::default(),
            Arc::clone(&telemetry),
        );
        Self {
            _folder: folder,
            cache,
            telemetry,
        }
    }

    /// A cache of another process in the same folder.
    fn shared(&self) -> Cache {
        Cache::new(
            self.cache.root.clone(),
            Trust::default(),
            Arc::clone(&self.telemetry),
        )
    }

    fn errors(&self) -> u64 {
        let text = self.telemetry.render();
        let line = text
            .lines()
            .find(|line| line.starts_with("rtad_cache_errors_total "));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn folder(&self) -> std::path::PathBuf {
        self.cache.folder(&audience())
    }

    fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder()) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    fn chunk_files(&self) -> usize {
        self.files()
            .iter()
            .filter(|name| name.ends_with(".chunk"))
            .count()
    }
}

/// A generation with its chunks' bytes.
struct Built {
    manifest: Manifest,
    current: Current,
    chunks: Vec<Vec<u8>>,
}

impl Built {
    /// Generations with the same seed have the same chunks.
    fn new(sequence: u64, generation: u64, seed: &str) -> Self {
        let key = |index: usize| DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes());
        let mut keys: Vec<_> = (0..200).map(key).collect();
        keys.sort_unstable();
        let spec = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        let mut builder = ManifestBuilder::new(spec, 0.0001);
        let built: Vec<_> = chunk_runs(&keys, 16_384)
            .map(|run| BuiltChunk::build(&spec, run))
            .collect();
        built.iter().for_each(|chunk| builder.add(chunk));
        let manifest = builder.finish(audience(), GenerationFacts::default());
        let manifest = manifest.unwrap().numbered(generation);
        let current = Current::new(sequence, generation, &manifest.to_bytes(), None);
        Self {
            manifest,
            current,
            chunks: built
                .into_iter()
                .map(|chunk| chunk.bytes.to_vec())
                .collect(),
        }
    }

    async fn begin(&self, cache: &Cache) {
        cache
            .begin(
                &self.manifest,
                Signed {
                    bytes: self.manifest.to_bytes(),
                    signature: None,
                },
            )
            .await;
    }

    /// Writes the chunks in pieces, as the store delivers them.
    fn copy(&self, cache: &Cache) {
        for (entry, bytes) in self.manifest.chunks().iter().zip(&self.chunks) {
            let mut copy = cache.copy(&self.manifest, entry);
            bytes.chunks(1000).for_each(|piece| copy.take(piece));
            copy.keep().unwrap();
        }
    }

    async fn put(&self, cache: &Cache) {
        self.begin(cache).await;
        self.copy(cache);
        cache.commit(&self.manifest, &self.current).await;
    }

    /// Number of its chunks that the cache returns.
    async fn found(&self, cache: &Cache) -> usize {
        let mut found = 0;
        for entry in self.manifest.chunks() {
            found += usize::from(cache.chunk(&self.manifest, entry).await.is_some());
        }
        found
    }
}

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

fn age(path: &Path) {
    let time = SystemTime::now() - Duration::from_secs(2 * 3600);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

async fn last_generation(cache: &Cache) -> Option<u64> {
    cache
        .last(&audience())
        .await
        .map(|(state, _)| state.current.generation)
}

#[tokio::test]
async fn committed_generation_is_found_by_the_next_process() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    assert_eq!(
        (
            last_generation(&fixture.cache).await,
            built.found(&fixture.cache).await
        ),
        (None, 0)
    );
    built.put(&fixture.cache).await;
    let next = fixture.shared();
    assert_eq!(
        (last_generation(&next).await, built.found(&next).await),
        (Some(1), 4)
    );
    assert_eq!((fixture.files().len(), fixture.errors()), (6, 0));
}

#[tokio::test]
async fn unverified_copy_leaves_no_file() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    built.begin(&fixture.cache).await;
    let mut copy = fixture
        .cache
        .copy(&built.manifest, &built.manifest.chunks()[0]);
    copy.take(b"half of a chunk");
    assert_eq!(fixture.files().len(), 2);
    drop(copy);
    assert_eq!(fixture.files(), ["1.json"]);
}

#[tokio::test]
async fn damaged_file_is_deleted_and_counted() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    built.put(&fixture.cache).await;
    let path = |index: usize| {
        fixture
            .folder()
            .join(format!("{}.chunk", built.manifest.chunks()[index].digest))
    };
    let mut flipped = built.chunks[0].clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(path(0), &flipped).unwrap();
    std::fs::write(path(1), &built.chunks[1][..100]).unwrap();
    std::fs::write(path(2), b"").unwrap();
    assert_eq!(
        (
            built.found(&fixture.cache).await,
            fixture.errors(),
            fixture.chunk_files()
        ),
        (1, 3, 1)
    );

    // No start without a state, or with a manifest that it does not name.
    std::fs::write(fixture.folder().join("1.json"), b"{}").unwrap();
    assert_eq!(
        (last_generation(&fixture.cache).await, fixture.errors()),
        (None, 4)
    );
    built.put(&fixture.cache).await;
    std::fs::write(fixture.folder().join("served.json"), b"<html>").unwrap();
    assert_eq!(last_generation(&fixture.cache).await, None);
}

#[tokio::test]
async fn only_served_and_loading_generations_are_kept() {
    let fixture = CacheFixture::new();
    let [first, second, third] =
        [(1, "a"), (2, "b"), (3, "c")].map(|(n, seed)| Built::new(n, n, seed));
    first.put(&fixture.cache).await;
    second.put(&fixture.cache).await;
    assert_eq!(
        (
            first.found(&fixture.cache).await,
            second.found(&fixture.cache).await
        ),
        (0, 4)
    );

    // Another process is loading the third generation while this one commits the second again.
    let other = fixture.shared();
    third.begin(&other).await;
    third.copy(&other);
    second.put(&fixture.cache).await;
    assert_eq!(
        (
            second.found(&fixture.cache).await,
            third.found(&other).await
        ),
        (4, 4)
    );

    // The load was abandoned.
    age(&fixture.folder().join("3.json"));
    let date = fixture.folder().join("20260101.json");
    std::fs::write(&date, "{}").unwrap();
    age(&date);
    let staged = fixture.folder().join("0123456789abcdef.tmp");
    for is_old in [false, true] {
        std::fs::write(&staged, b"x").unwrap();
        if is_old {
            age(&staged);
        }
        second.put(&fixture.cache).await;
        assert_eq!(staged.exists(), !is_old);
    }
    assert_eq!(
        (
            third.found(&other).await,
            fixture.chunk_files(),
            fixture.errors()
        ),
        (0, 4, 0)
    );
    assert!(date.exists());
}

#[tokio::test]
async fn lagging_process_does_not_revert_a_shared_cache() {
    let (ahead, behind) = (CacheFixture::new(), Built::new(1, 1, "a"));
    let lagging = ahead.shared();
    lagging.remember_state(&audience()).await;
    behind.begin(&lagging).await;
    behind.copy(&lagging);
    Built::new(2, 2, "b").put(&ahead.cache).await;
    for _ in 0..2 {
        lagging.commit(&behind.manifest, &behind.current).await;
        lagging.record_deltas(&audience(), &behind.current).await;
        assert_eq!(last_generation(&ahead.shared()).await, Some(2));
    }

    // A recreated store counts from 1: a `CURRENT` from before the first poll is replaced.
    let anew = ahead.shared();
    anew.remember_state(&audience()).await;
    Built::new(1, 1, "c").put(&anew).await;
    assert_eq!(last_generation(&ahead.shared()).await, Some(1));
}
