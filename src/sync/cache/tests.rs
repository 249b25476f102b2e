use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{BuildReport, BuiltChunk, ManifestBuilder, chunk_runs};
use rtad_store::ByteSink;

/// A cache in a folder of its own, and how often it failed.
struct Place {
    folder: TempDir,
    cache: Cache,
    telemetry: Arc<Telemetry>,
}

impl Place {
    fn new() -> Self {
        let (folder, telemetry) = (tempfile::tempdir().unwrap(), Arc::<Telemetry>::default());
        let cache = Cache::new(
            folder.path().join("made/when/needed"),
            Trust::default(),
            Arc::clone(&telemetry),
        );
        Self { folder, cache, telemetry }
    }

    /// What another process makes of the same folder.
    fn shared(&self) -> Cache {
        Cache::new(self.cache.root.clone(), Trust::default(), Arc::clone(&self.telemetry))
    }

    fn errors(&self) -> u64 {
        let text = self.telemetry.render();
        let line = text.lines().find(|line| line.starts_with("rtad_cache_errors_total "));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn folder(&self) -> std::path::PathBuf {
        self.cache.folder(&audience())
    }

    fn files(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder()) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    fn chunk_files(&self) -> usize {
        self.files().iter().filter(|name| name.ends_with(".chunk")).count()
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
        let built: Vec<_> =
            chunk_runs(&keys, 16_384).map(|run| BuiltChunk::build(&spec, run)).collect();
        built.iter().for_each(|chunk| builder.add(chunk));
        let manifest = builder.finish(audience(), generation, 1, BuildReport::default());
        let current = Current::new(sequence, generation, &manifest.to_bytes(), None);
        Self {
            manifest,
            current,
            chunks: built.into_iter().map(|chunk| chunk.bytes.to_vec()).collect(),
        }
    }

    async fn begin(&self, cache: &Cache) {
        cache
            .begin(&self.manifest, Signed { bytes: self.manifest.to_bytes(), signature: None })
            .await;
    }

    /// Writes the chunks as they come from a store, in pieces.
    fn copy(&self, cache: &Cache) {
        for (entry, bytes) in self.manifest.chunks().iter().zip(&self.chunks) {
            let mut copy = cache.copy(&self.manifest, entry);
            bytes.chunks(1000).for_each(|piece| copy.take(piece));
            // Some tests have a folder that cannot be written.
            let _ = copy.keep();
        }
    }

    async fn put(&self, cache: &Cache) {
        self.begin(cache).await;
        self.copy(cache);
        cache.commit(&self.manifest, &self.current).await;
    }

    /// How many of its chunks the cache gives back.
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
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

async fn last_generation(cache: &Cache) -> Option<u64> {
    cache.last(&audience()).await.map(|(current, _)| current.generation)
}

#[tokio::test]
async fn what_is_kept_is_found_by_the_next_process() {
    let (place, built) = (Place::new(), Built::new(1, 1, "a"));
    assert_eq!((last_generation(&place.cache).await, built.found(&place.cache).await), (None, 0));
    built.put(&place.cache).await;
    let next = place.shared();
    assert_eq!((last_generation(&next).await, built.found(&next).await), (Some(1), 4));
    assert_eq!((place.files().len(), place.errors()), (6, 0));
}

#[tokio::test]
async fn a_copy_that_was_not_verified_leaves_nothing() {
    let (place, built) = (Place::new(), Built::new(1, 1, "a"));
    built.begin(&place.cache).await;
    let mut copy = place.cache.copy(&built.manifest, &built.manifest.chunks()[0]);
    copy.take(b"half of a chunk");
    assert_eq!(place.files().len(), 2);
    drop(copy);
    assert_eq!(place.files(), ["1.json"]);
}

#[tokio::test]
async fn a_damaged_file_is_deleted_and_counted() {
    let (place, built) = (Place::new(), Built::new(1, 1, "a"));
    built.put(&place.cache).await;
    let path = |index: usize| {
        place.folder().join(format!("{}.chunk", built.manifest.chunks()[index].digest))
    };
    let mut flipped = built.chunks[0].clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(path(0), &flipped).unwrap();
    std::fs::write(path(1), &built.chunks[1][..100]).unwrap();
    std::fs::write(path(2), b"").unwrap();
    assert_eq!((built.found(&place.cache).await, place.errors(), place.chunk_files()), (1, 3, 1));

    // Without `CURRENT` or with another manifest than it names there is nothing to start with, and nothing wrong is.
    std::fs::write(place.folder().join("1.json"), b"{}").unwrap();
    assert_eq!((last_generation(&place.cache).await, place.errors()), (None, 4));
    built.put(&place.cache).await;
    std::fs::write(place.folder().join("CURRENT"), b"<html>").unwrap();
    assert_eq!(last_generation(&place.cache).await, None);
}

#[tokio::test]
async fn no_more_than_what_is_served_and_what_is_being_loaded_is_kept() {
    let place = Place::new();
    let [first, second, third] =
        [(1, "a"), (2, "b"), (3, "c")].map(|(n, seed)| Built::new(n, n, seed));
    first.put(&place.cache).await;
    second.put(&place.cache).await;
    assert_eq!((first.found(&place.cache).await, second.found(&place.cache).await), (0, 4));

    // Another process has begun with the third when this one comes to serve the second, again.
    let other = place.shared();
    third.begin(&other).await;
    third.copy(&other);
    second.put(&place.cache).await;
    assert_eq!((second.found(&place.cache).await, third.found(&other).await), (4, 4));

    // It never came to an end.
    age(&place.folder().join("3.json"));
    let staged = place.folder().join("0123456789abcdef.tmp");
    for is_old in [false, true] {
        std::fs::write(&staged, b"x").unwrap();
        if is_old {
            age(&staged);
        }
        second.put(&place.cache).await;
        assert_eq!(staged.exists(), !is_old);
    }
    assert_eq!((third.found(&other).await, place.chunk_files(), place.errors()), (0, 4, 0));
}

#[tokio::test]
async fn a_process_that_lags_behind_does_not_turn_another_s_cache_back() {
    let (ahead, behind) = (Place::new(), Built::new(1, 1, "a"));
    let lagging = ahead.shared();
    lagging.note(&audience()).await;
    behind.begin(&lagging).await;
    behind.copy(&lagging);
    Built::new(2, 2, "b").put(&ahead.cache).await;
    lagging.commit(&behind.manifest, &behind.current).await;
    assert_eq!(last_generation(&ahead.shared()).await, Some(2));

    // A store that was made anew counts from 1: what was there before it was asked does not matter.
    let anew = ahead.shared();
    anew.note(&audience()).await;
    Built::new(1, 1, "c").put(&anew).await;
    assert_eq!(last_generation(&ahead.shared()).await, Some(1));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_costs_the_cache_alone() {
    let place = Place::new();
    // A file where a folder should be: neither permissions nor root's powers matter to it.
    std::fs::write(place.folder.path().join("made"), b"a file").unwrap();
    let built = Built::new(1, 1, "a");
    built.put(&place.cache).await;
    assert_eq!((built.found(&place.cache).await, last_generation(&place.cache).await), (0, None));
    assert!(place.errors() >= 5, "{}", place.errors());
}
