use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    BuiltChunk, BuiltDelta, Current, GenerationFacts, ManifestBuilder, chunk_runs,
};
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
            None,
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
        self.shared_by(None)
    }

    /// A cache of the pod of this name in the same folder.
    fn shared_by(&self, pod: Option<String>) -> Cache {
        Cache::new(
            self.cache.root.clone(),
            Trust::default(),
            pod,
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

    /// Paths below the audience's folder, sorted.
    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for part in ["records", "manifests", "chunks", "deltas"] {
            for entry in std::fs::read_dir(self.folder().join(part))
                .into_iter()
                .flatten()
            {
                let name = entry.unwrap().file_name().into_string().unwrap();
                names.push(format!("{part}/{name}"));
            }
        }
        names.sort_unstable();
        names
    }

    fn count(&self, part: &str) -> usize {
        let files = self.files();
        files.iter().filter(|name| name.starts_with(part)).count()
    }
}

/// A record, and the generation that it names, with its chunks' bytes.
struct Built {
    manifest: Manifest,
    live: Live,
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
        let mut chunks = Vec::new();
        for run in chunk_runs(&keys, 16_384) {
            let chunk = BuiltChunk::build(&spec, run);
            builder.add(&chunk);
            chunks.push(chunk.bytes.to_vec());
        }
        let manifest = builder.finish(audience(), GenerationFacts::default());
        let manifest = manifest.unwrap().numbered(generation);
        let current = Current::new(sequence, generation, &manifest.to_bytes(), None);
        Self {
            manifest,
            live: live(&current),
            chunks,
        }
    }

    /// As a pod does: the record, the manifest, the chunks in pieces.
    async fn begin(&self, cache: &Cache) {
        cache.put_record(&audience(), &self.live).await;
        cache
            .put_manifest(&self.manifest, self.manifest.to_bytes())
            .await;
    }

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
        cache.prune(&audience()).await;
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

/// The record with this content.
fn live(current: &Current) -> Live {
    let object = [&current.to_bytes()[..], b"\n"].concat();
    Live::parse(&Trust::default(), &audience(), current.sequence, &object).unwrap()
}

/// A pod that takes the stages of a tenth of the pods.
fn early_pod() -> String {
    let numbers = 0..1000;
    let mut names = numbers.map(|number| format!("pod-{number}"));
    let entry = GenerationEntry::of(2, b"");
    let staging = Current::new(1, 1, b"", None).staging(entry, 100_000);
    let takes_it = |name: &String| {
        let place = StagePlace::of(name, &audience());
        staging.clone().seen_from(place).generation == 2
    };
    names.find(takes_it).expect("one of a thousand")
}

/// The next record of an audience, with a delta of one key.
fn appended(to: &Current, key: &str) -> (Live, BuiltDelta) {
    let mut next = to.next();
    let key = DeviceKey::of_canonical(key.as_bytes());
    let added = vec![(key, None)];
    let delta = BuiltDelta::with_values(next.sequence, next.sequence, &added, Vec::new()).unwrap();
    next.deltas = vec![delta.delta.entry().clone()];
    (live(&next), delta)
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

/// The generation that a start without the store serves.
async fn last_generation(cache: &Cache) -> Option<u64> {
    let state = cache.last(&audience()).await?;
    Some(state.base.generation)
}

#[tokio::test]
async fn whole_generation_is_found_by_the_next_process() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    assert_eq!(last_generation(&fixture.cache).await, None);
    assert_eq!(built.found(&fixture.cache).await, 0);
    built.put(&fixture.cache).await;

    let next = fixture.shared();
    assert_eq!(last_generation(&next).await, Some(1));
    assert_eq!(built.found(&next).await, 4);
    assert_eq!((fixture.files().len(), fixture.errors()), (6, 0));
}

#[tokio::test]
async fn unverified_copy_leaves_no_file() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    let entry = &built.manifest.chunks()[0];
    let mut copy = fixture.cache.copy(&built.manifest, entry);
    copy.take(b"half of a chunk");
    assert_eq!(fixture.count("chunks"), 1);
    drop(copy);
    assert_eq!(fixture.count("chunks"), 0);
}

#[tokio::test]
async fn damaged_file_is_deleted_and_counted() {
    let (fixture, built) = (CacheFixture::new(), Built::new(1, 1, "a"));
    built.put(&fixture.cache).await;
    let path = |index: usize| {
        let digest = built.manifest.chunks()[index].digest;
        fixture.folder().join(format!("chunks/{digest}.chunk"))
    };
    let mut flipped = built.chunks[0].clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(path(0), &flipped).unwrap();
    std::fs::write(path(1), &built.chunks[1][..100]).unwrap();
    std::fs::write(path(2), b"").unwrap();
    assert_eq!(built.found(&fixture.cache).await, 1);
    assert_eq!((fixture.errors(), fixture.count("chunks")), (3, 1));

    // No start with a manifest that the record does not name, or without a record.
    let manifest = fixture
        .files()
        .into_iter()
        .find(|name| name.starts_with("manifests"));
    std::fs::write(fixture.folder().join(manifest.unwrap()), b"{}").unwrap();
    assert_eq!(last_generation(&fixture.cache).await, None);
    assert_eq!(fixture.errors(), 4);
    built.put(&fixture.cache).await;
    assert_eq!(last_generation(&fixture.cache).await, Some(1));
    let record = fixture.folder().join("records/00000000000000000001.json");
    std::fs::write(record, b"<html>").unwrap();
    assert_eq!(last_generation(&fixture.cache).await, None);
    assert_eq!((fixture.errors(), fixture.count("records")), (5, 0));
}

#[tokio::test]
async fn only_served_and_loading_generations_are_kept() {
    let fixture = CacheFixture::new();
    let [first, second, third] =
        [(1, "a"), (2, "b"), (3, "c")].map(|(n, seed)| Built::new(n, n, seed));
    first.put(&fixture.cache).await;
    second.put(&fixture.cache).await;
    assert_eq!(first.found(&fixture.cache).await, 0);
    assert_eq!(second.found(&fixture.cache).await, 4);

    // Another process is loading the third generation while this one prunes.
    let other = fixture.shared();
    third.begin(&other).await;
    third.copy(&other);
    std::fs::remove_file(fixture.folder().join(format!(
        "chunks/{}.chunk",
        third.manifest.chunks()[0].digest
    )))
    .unwrap();
    let foreign = fixture.folder().join("manifests/20260101.json");
    std::fs::write(&foreign, "{}").unwrap();
    let staged = fixture.folder().join("chunks/0123456789abcdef.tmp");
    for is_old in [false, true] {
        std::fs::write(&staged, b"x").unwrap();
        if is_old {
            age(&staged);
        }
        fixture.cache.prune(&audience()).await;
        assert_eq!(staged.exists(), !is_old);
    }
    assert_eq!(second.found(&fixture.cache).await, 4);
    assert_eq!(third.found(&other).await, 3);
    assert_eq!(last_generation(&other).await, Some(2));
    assert!(foreign.exists());

    third.put(&other).await;
    assert_eq!(last_generation(&fixture.cache).await, Some(3));
    assert_eq!((fixture.count("chunks"), fixture.errors()), (4, 0));
}

/// Records of a generation that is not whole: the newest with its deltas, and later ones.
#[tokio::test]
async fn later_records_stay_and_do_not_grow() {
    let fixture = CacheFixture::new();
    let cache = &fixture.cache;
    let whole = Built::new(1, 1, "a");
    whole.put(cache).await;
    let mut newest = Built::new(2, 2, "b").live.current;
    cache.put_record(&audience(), &live(&newest)).await;
    for number in 3..20 {
        let (next, delta) = appended(&newest, &format!("key-{number}"));
        cache.put_record(&audience(), &next).await;
        newest = next.current;
        if number < 19 {
            let entry = delta.delta.entry();
            cache.put_delta(&audience(), entry, delta.bytes).await;
        }
        cache.prune(&audience()).await;
    }

    let state = cache.last(&audience()).await.unwrap();
    assert_eq!(state.base.sequence, 1);
    let later: Vec<u64> = state.later.iter().map(|later| later.sequence).collect();
    assert_eq!(later, [18, 19], "the last with its delta, and the newest");
    assert_eq!((fixture.count("records"), fixture.count("deltas")), (3, 1));
    assert_eq!(state.newest().sequence, 19);
}

#[tokio::test]
async fn process_behind_takes_nothing_from_a_shared_cache() {
    let (ahead, behind) = (CacheFixture::new(), Built::new(1, 1, "a"));
    let lagging = ahead.shared();
    behind.begin(&lagging).await;
    behind.copy(&lagging);
    Built::new(2, 2, "b").put(&ahead.cache).await;
    for _ in 0..2 {
        behind.put(&lagging).await;
        assert_eq!(last_generation(&ahead.shared()).await, Some(2));
    }
}

/// Pods of two names share a cache: one serves the staged generation, the other the live one.
#[tokio::test]
async fn both_generations_of_a_stage_stay() {
    let fixture = CacheFixture::new();
    let (early, other) = (fixture.shared_by(Some(early_pod())), fixture.shared());
    let live_one = Built::new(1, 1, "live");
    live_one.put(&other).await;
    let mut record = live_one.live.current.clone();
    let stages = [(2, "first"), (3, "second")].map(|(n, seed)| Built::new(n, n, seed));

    for (index, mut staged) in stages.into_iter().enumerate() {
        let entry = staged.live.current.live_entry();
        record = record.staging(entry, 100_000);
        staged.live = live(&record);
        staged.begin(&early).await;
        for cache in [&early, &other, &early] {
            cache.prune(&audience()).await;
        }
        // While another stage is loaded, a third generation has no room.
        if index == 0 {
            assert_eq!(last_generation(&early).await, Some(1));
            assert_eq!(last_generation(&other).await, Some(1));
        }

        live_one.put(&other).await;
        staged.copy(&early);
        for _ in 0..2 {
            other.prune(&audience()).await;
            early.prune(&audience()).await;
        }
        assert_eq!(last_generation(&early).await, Some(entry.generation));
        assert_eq!(last_generation(&other).await, Some(1));
        assert_eq!(
            (fixture.count("manifests"), fixture.count("chunks")),
            (2, 8)
        );
    }
}

#[tokio::test]
async fn higher_generation_is_newer_whatever_its_number() {
    let fixture = CacheFixture::new();
    Built::new(9, 5, "a").put(&fixture.cache).await;
    Built::new(1, 6, "b").put(&fixture.cache).await;
    assert_eq!(last_generation(&fixture.cache).await, Some(6));
}
