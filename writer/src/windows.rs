//! Event windows of the writer, and the audiences that follow them.
//!
//! | module | job |
//! |---|---|
//! | `config` | the file of `--config` |
//! | `clock` | ticks of a window |
//! | `counters` | metrics |
//! | `reports` | keys whose membership may have changed |
//! | `owner` | ownership of a window: claim, lease, and checkpoints in the store |
//! | `served` | a window with clock, files and metrics |
//! | `followed` | the writer of an audience that follows a window |
//! | `source` | the window of an audience's live generation |

mod clock;
pub mod config;
pub mod counters;
mod followed;
mod owner;
mod reports;
mod served;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytesize::ByteSize;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use rtad_core::headroom::Headroom;
use rtad_core::snapshot::AudienceName;
use rtad_store::write::StoreWriter;
use rtad_window::OpenError;

use super::audience::Writers;
use super::telemetry::Telemetry;
use config::{CallbackConfig, Config, WindowConfig};
use counters::lag_of;
use followed::{FollowTimes, Follower};
use owner::ClaimError;
use reports::Reports;
use served::ReadWindow;
pub use served::{ServedWindow, WindowInfo};
use source::{SourceError, live_window, warn_of_dropped};

/// A window that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error(transparent)]
    Files(OpenError),
    #[error(transparent)]
    Claim(ClaimError),
    #[error(transparent)]
    Source(SourceError),
    #[error(
        "the windows do not fit the memory limit of the container: expected at most {available}, \
         found {needed} ({windows}); lower a capacity or answers_memory, or raise the limit"
    )]
    Memory {
        needed: ByteSize,
        available: ByteSize,
        windows: String,
    },
}

/// The error of windows whose memory does not fit the limits of the process.
fn memory_shortage(config: &Config, headroom: &Headroom) -> Option<WindowError> {
    let available = headroom.available_bytes()?;
    let bytes_of =
        |window: &WindowConfig| window.memory_bytes(config.audiences_of(&window.name).count());
    let needed = config.windows.iter().map(bytes_of).sum();
    if needed <= available {
        return None;
    }
    let figures = config
        .windows
        .iter()
        .map(|window| format!("{} {}", window.name, ByteSize(bytes_of(window))));
    let windows = figures.collect::<Vec<_>>().join(", ");
    let (needed, available) = (ByteSize(needed), ByteSize(available));
    Some(WindowError::Memory {
        needed,
        available,
        windows,
    })
}

impl WindowError {
    /// Whether the command line or the config must change: the window does not fit, or was not
    /// given back by its owner.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Memory { .. }
                | Self::Claim(ClaimError::NotReleased { .. })
                | Self::Source(SourceError::Built { .. })
        )
    }
}

/// An audience that follows a window.
#[derive(Debug, Serialize)]
pub struct FollowedInfo<'a> {
    audience: &'a AudienceName,
    window: &'a AudienceName,
    min_count: u16,
    lag_seconds: f64,
}

/// All windows of the process.
#[derive(Default)]
pub struct Windows {
    windows: BTreeMap<AudienceName, Arc<ServedWindow>>,
    callbacks: BTreeMap<AudienceName, CallbackConfig>,
    /// Audiences that follow a window: its name, and the reports that wait.
    followed_audiences: BTreeMap<AudienceName, (AudienceName, Arc<Reports>)>,
    followers: Mutex<Vec<Follower>>,
    /// Windows of which [`Self::warn_of_text`] has warned.
    warned_of_text: Mutex<BTreeSet<AudienceName>>,
    tasks: Mutex<JoinSet<()>>,
    stop: watch::Sender<bool>,
    /// Whether the thread of a window has ended before `stop`.
    failed: watch::Sender<bool>,
}

impl Windows {
    /// Reads every window, and claims none: a window that cannot be read leaves every other one to
    /// its owner. Blocks meanwhile.
    pub async fn read(
        config: &Config,
        store: &StoreWriter,
    ) -> Result<Vec<ReadWindow>, WindowError> {
        if let Some(shortage) = memory_shortage(config, &Headroom::default()) {
            return Err(shortage);
        }
        warn_of_dropped(config, store.store()).await;
        for audience in &config.audiences {
            let live = store.store().live(&audience.name).await;
            let live = live.map_err(|error| WindowError::Source(error.into()))?;
            let current = live.as_ref().map(|live| &live.current);
            let source = live_window(store.store(), audience, current).await;
            source.map_err(WindowError::Source)?;
        }
        let mut read = Vec::new();
        for window in &config.windows {
            let window = window.clone();
            read.push(ReadWindow::read(window, &config.state_dir, config.lease, store).await?);
        }
        Ok(read)
    }

    /// Claims all windows that were read, which takes them from their owners; if that fails, gives
    /// back those that it has claimed.
    pub async fn claim(
        config: &Config,
        read: Vec<ReadWindow>,
        writers: &Arc<Writers>,
        telemetry: &Telemetry,
    ) -> Result<Self, WindowError> {
        let mut windows = Self {
            callbacks: config.callbacks.iter().cloned().collect(),
            ..Self::default()
        };
        let mut followers = Vec::new();
        for (window, read) in config.windows.iter().zip(read) {
            let audiences: Vec<_> = config
                .audiences_of(&window.name)
                .map(|audience| (audience.clone(), Arc::new(Reports::new(audience.min_count))))
                .collect();
            let reports = audiences
                .iter()
                .map(|(_, reports)| Arc::clone(reports))
                .collect();
            let served = match read.claim(reports, telemetry).await {
                Ok(served) => Arc::new(served),
                Err(error) => {
                    windows.undo_claims().await;
                    return Err(error);
                }
            };
            for (audience, reports) in audiences {
                let followed = (window.name.clone(), Arc::clone(&reports));
                windows
                    .followed_audiences
                    .insert(audience.name.clone(), followed);
                followers.push(Follower {
                    lag_seconds: lag_of(telemetry, &audience.name),
                    config: audience,
                    window: Arc::clone(&served),
                    reports,
                    writers: Arc::clone(writers),
                    times: FollowTimes::DEFAULT,
                });
            }
            windows.windows.insert(window.name.clone(), served);
        }
        windows.followers = Mutex::new(followers);
        Ok(windows)
    }

    /// Starts the tasks of windows and audiences.
    pub fn start(&self) {
        let mut tasks = self.tasks.lock();
        for window in self.windows.values() {
            tasks.spawn(Arc::clone(window).keep_owned(self.stop.subscribe()));

            let window = Arc::clone(window);
            let failed = self.failed.clone();
            tokio::spawn(async move {
                window.maintain().await;
                failed.send_replace(true);
            });
        }
        let mut followers = self.followers.lock();
        for follower in followers.drain(..) {
            tasks.spawn(follower.run(self.stop.subscribe()));
        }
    }

    pub fn get(&self, name: &AudienceName) -> Option<&Arc<ServedWindow>> {
        self.windows.get(name)
    }

    /// The click callbacks of a window, if it takes them.
    pub fn callback(&self, window: &AudienceName) -> Option<&CallbackConfig> {
        self.callbacks.get(window)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<ServedWindow>> {
        self.windows.values()
    }

    /// The audiences that follow a window.
    pub fn followed(&self) -> impl Iterator<Item = FollowedInfo<'_>> {
        self.followed_audiences
            .iter()
            .map(|(audience, (window, reports))| FollowedInfo {
                audience,
                window,
                min_count: reports.min_count,
                lag_seconds: reports.lag().as_secs_f64(),
            })
    }

    /// Whether other processes own all windows that this one has claimed: another pod has taken
    /// over. While one claimed window is left, requests for it must not go elsewhere; those for the
    /// others are refused one by one.
    pub fn are_fenced(&self) -> bool {
        let mut claimed = self.windows.values().filter(|window| window.is_claimed());
        claimed.next().is_some_and(|first| first.is_fenced())
            && claimed.all(|window| window.is_fenced())
    }

    /// Whether an audience follows a window, so that only tombstones of it may be written.
    pub fn is_followed(&self, audience: &AudienceName) -> bool {
        self.followed_audiences.contains_key(audience)
    }

    /// Warns, once per window, of ids of kind `text` in a window that an audience follows.
    pub fn warn_of_text(&self, window: &ServedWindow) {
        let window = &window.config.name;
        let mut followed = self
            .followed_audiences
            .iter()
            .filter(|(_, (followed, _))| followed == window);
        if let Some((audience, _)) = followed.next()
            && self.warned_of_text.lock().insert(window.clone())
        {
            tracing::warn!(
                window = window.as_str(),
                audience = audience.as_str(),
                "ids of kind text match no device in an audience; send device ids with their kind"
            );
        }
    }

    /// Writes the audiences a last time, and checkpoints, also to the store.
    pub async fn finish(&self) {
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        join_all(tasks).await;
        let mut tasks = JoinSet::new();
        // Beside each other: the upload of one must not take the time of another one.
        for window in self.windows.values() {
            let window = Arc::clone(window);
            tasks.spawn(async move { window.finish().await });
        }
        join_all(tasks).await;
    }

    /// Gives back the windows that were claimed, after a start that failed.
    async fn undo_claims(&self) {
        for window in self.windows.values() {
            window.undo_claim().await;
        }
    }

    /// Says of each window that its last checkpoint and lease are given up.
    pub fn give_up(&self) {
        for window in self.windows.values() {
            window.give_up();
        }
    }

    /// Waits for the end of a window's thread: its log could not be written, or it has panicked. A
    /// start goes on with the files.
    pub async fn failed(&self) {
        // The sender is this one.
        let _ = self
            .failed
            .subscribe()
            .wait_for(|has_failed| *has_failed)
            .await;
    }
}

async fn join_all(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        // The panic is logged already. The other tasks finish, and the files are complete.
        if let Err(error) = ended {
            tracing::error!(error = error.to_string(), "task of a window failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rtad_store::Store;
    use rtad_store::write::WindowFolder;
    use testkit::cgroup::Cgroup;
    use testkit::wait_until;

    use super::super::audience::WriteLimits;
    use super::served::tests::Owned;
    use super::*;

    #[test]
    fn windows_beyond_the_memory_limit_are_refused_with_the_figures() {
        let folder = tempfile::tempdir().unwrap();
        let group = Cgroup::with_limit(4 << 30);
        let check = |capacity: &str, audiences: &[&str]| {
            let window = format!(
                "state_dir = \"s\"\n[[window]]\nname = \"clicks\"\nlength = \"1h\"\ncapacity = \
                 {capacity}\n"
            );
            let audience =
                |name| format!("[[audience]]\nname = {name:?}\nfrom_window = \"clicks\"\n");
            let text: String = std::iter::once(window)
                .chain(audiences.iter().map(audience))
                .collect();
            let file = folder.path().join("writer.toml");
            std::fs::write(&file, text).unwrap();
            memory_shortage(&Config::read(&file).unwrap(), &group.headroom())
        };
        assert!(check("80_000_000", &["a"]).is_none());
        // Each audience has a list of keys.
        assert!(check("80_000_000", &["a", "b"]).is_some());
        let error = check("100_000_000", &["a"]).unwrap().to_string();
        let expected = "expected at most 4.0 GiB, found 4.7 GiB (clicks 4.7 GiB)";
        assert!(error.contains(expected), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_of_one_task_leaves_the_last_checkpoint_to_the_windows() {
        let owner = Owned::start("length = \"1h\"").await;
        let windows = Windows::default();
        let window = Arc::clone(&owner.window);
        let finished = Arc::clone(&window);
        let windows = Windows {
            windows: BTreeMap::from([(window.config.name.clone(), window)]),
            ..windows
        };
        let mut stop = windows.stop.subscribe();
        windows.tasks.lock().spawn(async move {
            let _ = stop.changed().await;
            panic!("a task that fails");
        });
        owner.observe(&[[1; 16]]).await;
        windows.finish().await;
        assert!(finished.has_stored_all());
    }

    fn windows_of<const N: usize>(owners: [(&str, &Owned); N]) -> Windows {
        let window =
            |(name, owner): (&str, &Owned)| (name.parse().unwrap(), Arc::clone(&owner.window));
        Windows {
            windows: owners.map(window).into(),
            ..Windows::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_upload_of_one_window_takes_no_time_of_another_one_at_a_stop() {
        let slow = Owned::start("length = \"1h\"").await;
        let other = Owned::start("length = \"1h\"").await;
        other.observe(&[[1; 16]]).await;
        let windows = windows_of([("a", &slow), ("b", &other)]);
        let uploading = slow.hold_upload().await;
        let finishing = tokio::spawn(async move { windows.finish().await });
        wait_until("the other one is stored", || other.window.has_stored_all());
        assert!(!finishing.is_finished());
        drop(uploading);
        finishing.await.unwrap();
        assert!(slow.window.has_stored_all());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn windows_are_fenced_once_all_claimed_ones_are() {
        let (length, store) = ("length = \"1h\"", || {
            StoreWriter::new(Store::in_memory()).unwrap()
        });
        let stores = [store(), store()];
        let a = Owned::over(stores[0].clone(), length).await;
        let b = Owned::over(stores[1].clone(), length).await;
        let unclaimed = Owned::unclaimed(store()).await;
        let windows = windows_of([("a", &a), ("b", &b), ("c", &unclaimed)]);
        let _later = Owned::over(stores[0].clone(), length).await;
        a.confirm().await;
        assert!(a.window.is_fenced() && !windows.are_fenced());
        let _later = Owned::over(stores[1].clone(), length).await;
        b.confirm().await;
        assert!(windows.are_fenced());
        assert!(!windows_of([("c", &unclaimed)]).are_fenced());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_claim_gives_back_the_windows_claimed_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        let config = |process: &str, windows: &[&str]| {
            let state = folder.path().join(process);
            let window =
                |name| format!("[[window]]\nname = {name:?}\nlength = \"1h\"\ncapacity = 1000\n");
            let windows: String = windows.iter().map(window).collect();
            let file = folder.path().join("writer.toml");
            std::fs::write(&file, format!("state_dir = {state:?}\n{windows}")).unwrap();
            Config::read(&file).unwrap()
        };
        let telemetry = Arc::new(Telemetry::default());
        let limits = WriteLimits {
            every: Duration::ZERO,
            max_batch: 1000,
        };
        let writers = Writers::new(store.clone(), limits, Arc::clone(&telemetry));
        let writers = Arc::new(writers);
        let claim =
            async |config: &Config, read| Windows::claim(config, read, &writers, &telemetry).await;
        let both = config("one", &["a", "b"]);
        let read = Windows::read(&both, &store).await.unwrap();
        // Another process claims the second window after this one has read it.
        let later = config("two", &["b"]);
        let _later = claim(&later, Windows::read(&later, &store).await.unwrap())
            .await
            .unwrap();
        assert!(claim(&both, read).await.is_err());
        let lease = async |name: &str| {
            let folder = WindowFolder::new(store.clone(), name.parse().unwrap());
            folder.current().await.unwrap().unwrap().lease_seconds
        };
        assert_eq!(lease("a").await, 0);
        assert!(lease("b").await > 0);

        // A start that fails after its claim, as on a full disk.
        let [first, second] = ["three", "four"].map(|process| config(process, &["c"]));
        let read = Windows::read(&first, &store).await.unwrap();
        claim(&first, read).await.unwrap().finish().await;
        let read = Windows::read(&second, &store).await.unwrap();
        std::fs::remove_file(folder.path().join("four/c/download.tmp")).unwrap();
        assert!(claim(&second, read).await.is_err());
        assert_eq!(lease("c").await, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn end_of_a_windows_thread_is_a_failure_of_the_process() {
        let owner = Owned::start("length = \"1h\"").await;
        let windows = windows_of([("a", &owner)]);
        windows.start();
        owner.end_thread().await;
        windows.failed().await;
    }
}
