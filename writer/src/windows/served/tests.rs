use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use rtad_core::clock::now_unix_seconds;
use rtad_store::Store;
use rtad_store::write::StoreWriter;
use rtad_window::Durability;
use tempfile::TempDir;
use testkit::client::metric;
use testkit::wait_until;
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::super::telemetry::Telemetry;
use super::super::config::{AudienceConfig, Config};
use super::super::reports::Due;
use super::*;

/// A window with an audience, on a directory and a store in memory.
pub struct Owned {
    pub(in super::super) window: Arc<ServedWindow>,
    pub(in super::super) reports: Arc<Reports>,
    pub(in super::super) audience: AudienceConfig,
    telemetry: Telemetry,
    dir: TempDir,
}

impl Owned {
    pub async fn start(window: &str) -> Self {
        Self::over(StoreWriter::new(Store::in_memory()).unwrap(), window).await
    }

    pub async fn over(store: StoreWriter, window: &str) -> Self {
        Self::with(store, window, |_| {}).await
    }

    /// Without a claim: an owner that does not know of a later one yet.
    pub async fn unclaimed(store: StoreWriter) -> Self {
        Self::with(store, "length = \"1h\"", |config| {
            config.durability = Durability::None
        })
        .await
    }

    async fn with(
        store: StoreWriter,
        window: &str,
        change: impl FnOnce(&mut WindowConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let text = format!(
            "state_dir = {state:?}\n[[window]]\nname = \"w\"\ncapacity = 1000\n{window}\n\
             [[audience]]\nname = \"a\"\nfrom_window = \"w\"\n"
        );
        let file = dir.path().join("writer.toml");
        std::fs::write(&file, text).unwrap();
        let mut config = Config::read(&file).unwrap();
        let audience = config.audiences.remove(0);
        config.windows[0].take_over = true;
        change(&mut config.windows[0]);
        let read = ReadWindow::read(config.windows.remove(0), &state, config.lease, &store).await;
        let reports = Arc::new(Reports::new(1));
        // Published at the start.
        assert_eq!(reports.take(), Some(Due::All));
        reports.done();
        let telemetry = Telemetry::default();
        let claimed = read
            .unwrap()
            .claim(vec![Arc::clone(&reports)], &telemetry)
            .await;
        let mut window = claimed.unwrap();
        window.config.checkpoint_interval = Duration::ZERO;
        Self {
            window: Arc::new(window),
            reports,
            audience,
            telemetry,
            dir,
        }
    }

    pub async fn observe(&self, keys: &[Key]) {
        self.window
            .observe(keys.to_vec(), None, None)
            .await
            .unwrap();
    }

    fn files(&self) -> impl AsRef<Path> {
        self.dir.path().join("state/w")
    }

    /// Does not wait for the interval between checkpoints.
    async fn store(&self) {
        let kept = self.window.owner.as_ref().unwrap();
        self.window.store_once(kept, Instant::now()).await;
    }

    /// Asks the store for the owner.
    pub async fn confirm(&self) {
        self.window.owner.as_ref().unwrap().confirm().await;
    }

    /// Stands for an upload in progress.
    pub async fn hold_upload(&self) -> impl Sized {
        self.window.owner.as_ref().unwrap().hold().await
    }

    /// As a panic of the window's thread.
    pub async fn end_thread(&self) {
        self.window.handle.close(0).await.unwrap();
    }

    fn stored_unix_seconds(&self) -> u64 {
        self.window
            .owner
            .as_ref()
            .unwrap()
            .stored()
            .map_or(0, |stored| stored.unix_seconds)
    }
}

impl ServedWindow {
    pub fn has_stored_all(&self) -> bool {
        let stored = self.owner.as_ref().and_then(Owner::stored);
        stored.is_some_and(|stored| stored.changes == self.checkpoint_mark().changes)
    }
}

const FSYNC: &str = "length = \"1h\"\ndurability = \"fsync\"";

#[tokio::test(flavor = "multi_thread")]
async fn stored_checkpoint_keeps_its_age_while_no_checkpoint_can_be_written() {
    let owner = Owned::start(FSYNC).await;
    owner.observe(&[[1; 16]]).await;
    owner.store().await;
    assert!(owner.window.has_stored_all());
    let in_the_way = owner.files().as_ref().join("checkpoint.tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    owner.observe(&[[2; 16]]).await;
    let before = owner.stored_unix_seconds();
    wait_until("another second", || now_unix_seconds() > before);
    let segments = || std::fs::read_dir(owner.files()).unwrap().count();
    owner.store().await;
    let after_one = segments();
    for _ in 0..3 {
        owner.store().await;
        assert_eq!(owner.stored_unix_seconds(), before);
    }
    assert_eq!(segments(), after_one, "no attempt within a minute");
    std::fs::remove_dir(&in_the_way).unwrap();
    owner.window.checkpoint().await;
    owner.store().await;
    assert!(owner.window.has_stored_all() && owner.stored_unix_seconds() > before);
    // Nothing has changed: the age is that of the check.
    let before = owner.stored_unix_seconds();
    wait_until("another second", || now_unix_seconds() > before);
    owner.store().await;
    assert!(owner.stored_unix_seconds() > before);
}

/// The step of the guide for a restored store.
#[tokio::test(flavor = "multi_thread")]
async fn start_without_records_leaves_no_earlier_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("s")).unwrap();
    let store = || {
        let store = Store::open(folder.path().join("s").to_str().unwrap()).unwrap();
        StoreWriter::new(store).unwrap()
    };
    let stored = folder.path().join("s/.windows/w");
    let checkpoints = || {
        std::fs::read_dir(stored.join("checkpoints"))
            .unwrap()
            .count()
    };
    for _ in 0..3 {
        let owner = Owned::over(store(), FSYNC).await;
        owner.store().await;
        assert_eq!(checkpoints(), 1);
    }
    std::fs::remove_dir_all(stored.join("records")).unwrap();
    let owner = Owned::over(store(), FSYNC).await;
    owner.store().await;
    assert_eq!(checkpoints(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_is_due_one_interval_after_it_was_begun() {
    let owner = Owned::start(FSYNC).await;
    let before = owner.window.checkpoint_mark().at;
    owner.window.checkpoint().await;
    let after = Instant::now();
    wait_until("time for an upload", || {
        after.elapsed() > Duration::from_millis(10)
    });
    owner.store().await;
    let stored = owner.window.owner.as_ref().unwrap().stored().unwrap();
    assert!((before..=after).contains(&stored.at));
}

/// An owner on an empty directory would not miss the events that the store lacks.
#[tokio::test(flavor = "multi_thread")]
async fn lease_is_given_back_only_with_the_last_checkpoint() {
    for is_broken in [false, true] {
        let owner = Owned::start(FSYNC).await;
        owner.observe(&[[1; 16]]).await;
        owner.window.checkpoint().await;
        owner.observe(&[[2; 16]]).await;
        if is_broken {
            std::fs::create_dir(owner.files().as_ref().join("checkpoint.tmp")).unwrap();
        }
        owner.window.finish().await;
        let kept = owner.window.owner.as_ref().unwrap();
        // The earlier checkpoint is uploaded in either case.
        assert!(kept.stored().is_some());
        assert_eq!(owner.window.has_stored_all(), !is_broken);
        assert_eq!(kept.hold().await.lease_seconds > 0, is_broken);
    }
}

/// A stop gives the lease back by this answer.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoint_whose_file_cannot_be_opened_is_not_kept_for_an_upload() {
    let owner = Owned::start(FSYNC).await;
    let saved = owner
        .window
        .handle
        .checkpoint(now_unix_seconds())
        .await
        .unwrap()
        .unwrap();
    assert!(
        owner
            .window
            .add_upload(&saved, owner.window.checkpoint_mark())
    );
    owner.store().await;
    std::fs::remove_file(&saved.path).unwrap();
    assert!(
        !owner
            .window
            .add_upload(&saved, owner.window.checkpoint_mark())
    );
    assert!(!owner.window.owner.as_ref().unwrap().has_pending());
}

/// Two that end at the same time, as at a stop.
#[tokio::test(flavor = "multi_thread")]
async fn older_checkpoint_does_not_replace_a_newer_one() {
    let owner = Owned::start(FSYNC).await;
    let kept = owner.window.owner.as_ref().unwrap();
    let checkpoint = async || {
        owner
            .window
            .handle
            .checkpoint(now_unix_seconds())
            .await
            .unwrap()
            .unwrap()
    };
    let mut older = checkpoint().await;
    // The next one removes its file.
    let copy = owner.dir.path().join("older");
    std::fs::copy(&older.path, &copy).unwrap();
    older.path = copy;
    let newer = checkpoint().await;
    kept.add(&newer, owner.window.checkpoint_mark()).unwrap();
    kept.add(&older, owner.window.checkpoint_mark()).unwrap();
    kept.upload().await;
    assert!(!kept.has_pending());
    let stored = kept.hold().await.checkpoint.clone().unwrap();
    assert_eq!(stored.number, newer.number);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_owner_is_found_during_an_upload() {
    let store = StoreWriter::new(Store::in_memory()).unwrap();
    let owner = Owned::over(store.clone(), FSYNC).await;
    let stop = watch::Sender::new(false);
    let uploading = owner.window.owner.as_ref().unwrap().hold().await;
    tokio::spawn(Arc::clone(&owner.window).keep_owned(stop.subscribe()));
    let _later = Owned::over(store, FSYNC).await;
    wait_until("the earlier owner is fenced", || owner.window.is_fenced());
    drop(uploading);
    owner
        .window
        .observe(vec![[1; 16]], None, None)
        .await
        .unwrap_err();
    owner.window.check(vec![[1; 16]]).await.unwrap_err();
}

/// As a disk whose sync hangs: the log does not fail, so that the window counts as writable.
#[tokio::test]
async fn window_without_an_answer_is_not_writable() {
    let owner = Owned::start(FSYNC).await;
    let writable = || {
        metric(
            &owner.telemetry.exporter.render(),
            "rtad_window_writable{window=\"w\"}",
        )
    };
    let held = owner.reports.hold();
    let mut observed = pin!(owner.window.observe(vec![[1; 16]], None, None));
    assert!(timeout(Duration::ZERO, observed.as_mut()).await.is_err());
    assert_eq!(writable(), 1.0);
    tokio::time::pause();
    owner.window.maintain_once().await;
    assert_eq!(writable(), 0.0);
    assert!(owner.window.handle.state().is_writable);
    drop(held);
    tokio::time::resume();
    observed.await.unwrap();
    owner.window.maintain_once().await;
    assert_eq!(writable(), 1.0);
}
