use std::path::Path;

use tempfile::TempDir;

use super::*;
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{ChunkDecoder, GenerationFacts};
use rtad_store::write::StoreWriter;

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

fn open(folder: &Path) -> StoreWriter {
    StoreWriter::open(folder.to_str().unwrap())
        .unwrap()
        .creating_store()
}

async fn publish(folder: &Path, seed: &str) {
    let writer = open(folder);
    let base = writer.base(&audience()).await.unwrap();
    let publication = writer.publish(base).await.unwrap();
    let key = |index: usize| DeviceKey::of_canonical(format!("{seed}-{index}").as_bytes());
    let spec = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
    let facts = GenerationFacts::default();
    let keys = (0..100).map(key).collect();
    publication
        .commit_keys(keys, spec, 0.0001, facts)
        .await
        .unwrap();
}

/// Two stores, the second a mirror of the first, as a pod reads them.
struct Pair {
    _folder: TempDir,
    near: std::path::PathBuf,
    far: std::path::PathBuf,
    stores: Stores,
}

impl Pair {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (near, far) = (folder.path().join("near"), folder.path().join("far"));
        publish(&near, "a").await;
        let pair = Self {
            stores: Stores::new(vec![
                Store::open(near.to_str().unwrap()).unwrap(),
                Store::open(far.to_str().unwrap()).unwrap(),
            ]),
            _folder: folder,
            near,
            far,
        };
        pair.mirror().await;
        pair
    }

    async fn mirror(&self) {
        let source = Store::open(self.near.to_str().unwrap()).unwrap();
        let mirrored = open(&self.far).mirror_from(&source, &audience()).await;
        mirrored.unwrap();
    }

    async fn live(&self, last: Option<&Live>) -> Live {
        let live = {
            let known = last.map(|last| last.current.position());
            self.stores.live_since(&audience(), last, known).await
        };
        live.unwrap().expect("it was published")
    }

    /// Makes all reads begin with the first store again.
    fn forget(&self) {
        let mut preferred = self.stores.preferred.lock();
        preferred.since = Instant::now() - RETRY_FIRST;
    }
}

#[tokio::test]
async fn second_store_is_read_while_the_first_is_away() {
    let pair = Pair::new().await;
    let first = pair.live(None).await;
    let away = pair.near.with_extension("away");
    std::fs::rename(&pair.near, &away).unwrap();
    let live = pair.live(Some(&first)).await;
    assert_eq!(live.current, first.current);
    assert_eq!(pair.stores.first(), 1);

    let (manifest, _) = pair
        .stores
        .manifest_and_file(&audience(), &live.current)
        .await
        .unwrap();
    for entry in manifest.chunks() {
        let begin = || (ChunkDecoder::new(manifest.filter(), entry), ());
        pair.stores
            .chunk_copied(&audience(), entry, begin)
            .await
            .unwrap();
    }

    std::fs::rename(&away, &pair.near).unwrap();
    publish(&pair.near, "b").await;
    assert_eq!(pair.live(Some(&live)).await.current.sequence, 1);
    pair.forget();
    assert_eq!(pair.live(Some(&live)).await.current.sequence, 2);
    assert_eq!(pair.stores.first(), 0);
}

#[tokio::test]
async fn mirror_that_lags_takes_nothing_back() {
    let pair = Pair::new().await;
    publish(&pair.near, "b").await;
    let newest = pair.live(None).await;
    assert_eq!(newest.current.sequence, 2);

    // The first store is away, and the second has only the record before.
    let away = pair.near.with_extension("away");
    std::fs::rename(&pair.near, &away).unwrap();
    let found = pair.live(Some(&newest)).await;
    assert_eq!(found.current.sequence, 1, "the caller reports it as stale");
    pair.forget();
    std::fs::rename(&away, &pair.near).unwrap();
    assert_eq!(pair.live(Some(&found)).await.current.sequence, 2);
}

#[tokio::test]
async fn damaged_file_is_read_from_the_mirror() {
    let pair = Pair::new().await;
    let live = pair.live(None).await;
    let manifests = pair.near.join("old_users/manifests");
    for manifest in std::fs::read_dir(manifests).unwrap() {
        std::fs::write(manifest.unwrap().path(), "{}").unwrap();
    }
    pair.stores
        .manifest_and_file(&audience(), &live.current)
        .await
        .unwrap();
}

#[tokio::test]
async fn foreign_record_in_the_first_store_leaves_the_second() {
    let pair = Pair::new().await;
    let keys: Vec<_> = [rtad_store::PublicKey::all_of(
        "untrusted comment: k\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3",
    )]
    .into_iter()
    .flatten()
    .flatten()
    .collect();
    assert_eq!(keys.len(), 1);
    let trusting = |path: &Path| {
        let store = Store::open(path.to_str().unwrap()).unwrap();
        store.with_public_keys(keys.clone())
    };
    let plain = Store::open(pair.far.to_str().unwrap()).unwrap();
    let stores = Stores::new(vec![trusting(&pair.near), plain]);
    let live = stores.live_since(&audience(), None, None).await.unwrap();
    assert_eq!(live.unwrap().current.sequence, 1);
}

#[tokio::test]
async fn known_position_sends_a_reader_past_a_store_that_lags() {
    let pair = Pair::new().await;
    publish(&pair.near, "b").await;
    let newest = pair.live(None).await.current.position();
    let swapped = Stores::new(vec![
        Store::open(pair.far.to_str().unwrap()).unwrap(),
        Store::open(pair.near.to_str().unwrap()).unwrap(),
    ]);
    let found = swapped.live_since(&audience(), None, Some(newest)).await;
    assert_eq!(found.unwrap().unwrap().current.sequence, 2);
}

#[tokio::test]
async fn error_is_that_of_the_first_store() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| Store::open(folder.path().join(name).to_str().unwrap()).unwrap();
    let stores = Stores::new(vec![open("near"), open("far")]);
    let error = stores
        .live_since(&audience(), None, None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("near"), "{error}");
}
