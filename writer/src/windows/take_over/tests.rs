//! A window that this process owns, over a store in memory.

use std::pin::pin;
use std::time::Duration;

use rtad_store::Store;
use rtad_store::write::{StoreWriter, WindowFolder};
use rtad_window::{Durability, Key, Shape};
use testkit::client::metric;
use tokio::time::timeout;

use super::super::super::telemetry::Telemetry;
use super::super::config::{AudienceConfig, Config};
use super::super::reports::Due;
use super::super::window::Window;
use super::*;

/// A window with an audience, of `durability = "store"`.
pub struct Owned {
    pub(in super::super) window: Arc<ServedWindow>,
    pub(in super::super) shown: Arc<Window>,
    pub(in super::super) reports: Arc<Reports>,
    pub(in super::super) audience: AudienceConfig,
    telemetry: Telemetry,
    _tasks: JoinSet<()>,
}

/// A process that follows the window of this store.
pub fn standby_of(store: &StoreWriter, telemetry: &Telemetry) -> (Standby, Config) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("writer.toml");
    let text = "[[window]]\nname = \"w\"\nlength = \"1h\"\ncapacity = 1000\n\
                durability = \"store\"\n[[audience]]\nname = \"a\"\nfrom_window = \"w\"\n";
    std::fs::write(&file, text).unwrap();
    let config = Config::read(&file).unwrap();
    let window = config.windows[0].clone();
    let shape = Shape {
        spec: window.spec,
        clock: window.length.clock(),
        answers: window.answers,
    };
    let folder = WindowFolder::new(store.clone(), window.name.clone());
    let shown = Arc::new(Window::new(window, telemetry));
    let standby = Standby::new(shown, folder, shape, Durability::Store);
    (standby, config)
}

impl Owned {
    pub async fn new() -> Self {
        Self::over(&StoreWriter::new(Store::in_memory()).unwrap()).await
    }

    /// Takes the window over from any owner.
    pub async fn over(store: &StoreWriter) -> Self {
        let telemetry = Telemetry::default();
        let (mut standby, mut config) = standby_of(store, &telemetry);
        while !standby.catch_up().await.unwrap() {}
        let take_over = standby.take_over().await.unwrap().unwrap();
        let reports = Arc::new(Reports::new(1));
        // Published at the start.
        assert_eq!(reports.take(), Some(Due::All));
        reports.done();
        let shown = Arc::clone(&standby.window);
        let mut tasks = JoinSet::new();
        let window = start(standby, take_over, &[Arc::clone(&reports)], &mut tasks).unwrap();
        Self {
            window,
            shown,
            reports,
            audience: config.audiences.remove(0),
            telemetry,
            _tasks: tasks,
        }
    }

    pub async fn observe(&self, keys: &[Key]) {
        self.window
            .observe(keys.to_vec(), None, None)
            .await
            .unwrap();
    }
}

/// As a disk whose sync hangs: the log does not fail, so that the window counts as writable.
#[tokio::test(flavor = "multi_thread")]
async fn window_without_an_answer_accepts_no_events() {
    let owner = Owned::new().await;
    let accepts = || {
        let metrics = owner.telemetry.exporter.render();
        metric(&metrics, "rtad_window_owner{window=\"w\"}")
    };
    let held = owner.reports.hold();
    let mut observed = pin!(owner.window.observe(vec![[1; 16]], None, None));
    assert!(timeout(Duration::ZERO, observed.as_mut()).await.is_err());
    assert_eq!(accepts(), 1.0);
    owner.shown.maintain_once(Duration::from_millis(1)).await;
    assert_eq!(accepts(), 0.0);
    drop(held);
    observed.await.unwrap();
    owner.shown.maintain_once(Duration::from_secs(60)).await;
    assert_eq!(accepts(), 1.0);
}
