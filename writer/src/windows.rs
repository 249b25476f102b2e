//! Event windows of the writer, and the audiences that follow them.
//!
//! | module | job |
//! |---|---|
//! | `config` | the file of `--config` |
//! | `clock` | ticks of a window |
//! | `counters` | metrics |
//! | `reports` | keys whose membership may have changed |
//! | `log` | segments of a window in the store |
//! | `served` | a window that this process owns |
//! | `window` | a window of this process, for the handlers |
//! | `standby` | a window that another process owns, and its take-over |
//! | `shipper` | segments of an owner, on their way to the store |
//! | `tables` | tables of an owner, on their way to the store |
//! | `take_over` | start of a window that was taken over |
//! | `followed` | the writer of an audience that follows a window |
//! | `source` | the window of an audience's live generation |
//!
//! Of the processes with one configuration, one owns all windows, and the others are standbys. They
//! take the windows over in the order of their names: whoever wins the first waits until the owner
//! of the others is gone, too. That one ends as soon as it has lost the first. So a process owns
//! all of them or none, but for a moment.

mod clock;
pub mod config;
pub mod counters;
mod followed;
mod log;
mod reports;
mod served;
mod shipper;
mod source;
mod standby;
mod tables;
mod take_over;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytesize::ByteSize;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use rtad_core::headroom::Headroom;
use rtad_core::snapshot::AudienceName;
use rtad_store::write::{StoreWriter, WindowFolder};
use rtad_window::{Durability, OpenError, Shape, StateDir, TakeOver};

use super::audience::Writers;
use super::telemetry::Telemetry;
use config::{AudienceConfig, CallbackConfig, Config, Survival, WindowConfig};
use counters::lag_of;
use followed::{FollowTimes, Follower};
use log::FailureLog;
use reports::Reports;
use source::{SourceError, live_window, warn_of_dropped};
use standby::{Standby, StandbyError};
pub use window::{Window, WindowInfo};

/// Time between requests of a standby for the next segment.
const POLL: Duration = Duration::from_millis(500);
/// Time of a stop for the last changes of audiences. The next owner publishes what they lack, and
/// counts no event before the windows are given back.
const LAST_CHANGES: Duration = Duration::from_secs(5);

/// A window that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    #[error(transparent)]
    Directory(OpenError),
    #[error("window {window}")]
    Standby {
        window: AudienceName,
        #[source]
        source: Box<StandbyError>,
    },
    #[error(transparent)]
    Source(SourceError),
    #[error("window {window} ended, see the log; a start goes on with what is durable")]
    Ended { window: AudienceName },
    #[error("the windows ended by a panic, see the log; a start goes on with what is durable")]
    Panicked,
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
    fn standby(window: &AudienceName, source: StandbyError) -> Self {
        Self::Standby {
            window: window.clone(),
            source: Box::new(source),
        }
    }

    /// Whether the command line or the config must change: the windows do not fit, or would replace
    /// a built audience.
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Memory { .. } | Self::Source(SourceError::Built { .. })
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

/// An audience that follows a window of this process.
struct FollowedAudience {
    config: AudienceConfig,
    /// Reports that wait; set by the take-over of its window.
    reports: OnceLock<Arc<Reports>>,
}

/// Tasks of the windows of this process. Dropped, they end.
struct WindowTasks {
    writers: Arc<Writers>,
    telemetry: Arc<Telemetry>,
    /// Engines, shippers, tables and metrics: each ends with its window.
    of_windows: JoinSet<()>,
    /// Writers of audiences: a stop waits for them.
    followers: JoinSet<()>,
}

impl WindowTasks {
    fn new(writers: Arc<Writers>, telemetry: Arc<Telemetry>) -> Self {
        Self {
            writers,
            telemetry,
            of_windows: JoinSet::new(),
            followers: JoinSet::new(),
        }
    }
}

/// All windows of the process.
#[derive(Default)]
pub struct Windows {
    windows: BTreeMap<AudienceName, Arc<Window>>,
    callbacks: BTreeMap<AudienceName, CallbackConfig>,
    followed_audiences: BTreeMap<AudienceName, FollowedAudience>,
    /// Windows of which [`Self::warn_of_text`] has warned.
    warned_of_text: Mutex<BTreeSet<AudienceName>>,
    /// Whether no window is taken over any more.
    is_draining: AtomicBool,
    stop: watch::Sender<bool>,
    /// The first window that failed.
    failure: watch::Sender<Option<Arc<WindowError>>>,
}

impl Windows {
    /// Opens the windows' directories, and checks what needs no content of a window.
    ///
    /// # Errors
    ///
    /// The windows do not fit the memory, a directory is in use, or an audience is not a window's.
    pub async fn open(
        config: &Config,
        store: &StoreWriter,
        telemetry: &Telemetry,
    ) -> Result<(Self, Vec<Standby>), WindowError> {
        if let Some(shortage) = memory_shortage(config, &Headroom::default()) {
            return Err(shortage);
        }
        for audience in &config.audiences {
            let live = store.store().live(&audience.name).await;
            let live = live.map_err(|error| WindowError::Source(error.into()))?;
            let current = live.as_ref().map(|live| &live.current);
            let source = live_window(store.store(), audience, current).await;
            source.map_err(WindowError::Source)?;
        }

        let mut windows = Self {
            callbacks: config.callbacks.iter().cloned().collect(),
            ..Self::default()
        };
        let mut standbys = BTreeMap::new();
        for window in &config.windows {
            let shape = Shape {
                spec: window.spec,
                clock: window.length.clock(),
                answers: window.answers,
            };
            let durability = match window.durability {
                Survival::Store => Durability::Store,
                Survival::Disk => {
                    let dir = config.state_dir.join(window.name.as_str());
                    Durability::Disk(StateDir::open(&dir).map_err(WindowError::Directory)?)
                }
            };
            let folder = WindowFolder::new(store.clone(), window.name.clone());
            let shown = Arc::new(Window::new(window.clone(), telemetry));
            let standby = Standby::new(Arc::clone(&shown), folder, shape, durability);
            windows.windows.insert(window.name.clone(), shown);
            standbys.insert(window.name.clone(), standby);
        }
        for audience in &config.audiences {
            let followed = FollowedAudience {
                config: audience.clone(),
                reports: OnceLock::new(),
            };
            windows
                .followed_audiences
                .insert(audience.name.clone(), followed);
        }
        warn_of_dropped(config, store.store()).await;
        Ok((windows, standbys.into_values().collect()))
    }

    /// Follows the windows, takes them over, and serves them until [`Self::stop`]. Then it writes
    /// the audiences a last time, and gives the windows back. Dropped, it ends as a killed process.
    pub async fn run(
        self: Arc<Self>,
        standbys: Vec<Standby>,
        writers: Arc<Writers>,
        telemetry: Arc<Telemetry>,
    ) {
        let mut tasks = WindowTasks::new(writers, telemetry);
        for window in self.windows.values() {
            let maintain = Arc::clone(&self).maintain(Arc::clone(window));
            tasks.of_windows.spawn(maintain);
        }
        self.serve(standbys, &mut tasks).await;
        self.give_back().await;
    }

    /// Keeps the metrics of a window up to date. Its end is that of the process.
    async fn maintain(self: Arc<Self>, window: Arc<Window>) {
        window.maintain().await;
        let window = window.config.name.clone();
        self.fail(WindowError::Ended { window });
    }

    /// Serves the windows until the stop, and until the last changes of audiences.
    async fn serve(&self, standbys: Vec<Standby>, tasks: &mut WindowTasks) {
        let last_changes = async {
            if let Err(error) = self.follow(standbys, tasks).await {
                self.fail(error);
            }
            self.stopped().await;
            wait_for(&mut tasks.followers).await;
        };
        let deadline = async {
            self.stopped().await;
            tokio::time::sleep(LAST_CHANGES).await;
        };
        let is_complete = tokio::select! {
            biased;
            () = last_changes => true,
            () = deadline => false,
        };
        if !is_complete {
            tracing::warn!("the last changes of audiences are left to the next owner");
            tasks.followers.abort_all();
        }
    }

    /// Waits for the stop.
    async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // The sender is this one.
        let _ = stop.wait_for(|is_stopping| *is_stopping).await;
    }

    /// A failure that ends the process, unless it stops already.
    fn fail(&self, error: WindowError) {
        if *self.stop.borrow() {
            return;
        }
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert_with(|| Arc::new(error));
            is_first
        });
    }

    /// Follows the windows until all are taken over, or until the stop.
    async fn follow(
        &self,
        mut standbys: Vec<Standby>,
        tasks: &mut WindowTasks,
    ) -> Result<(), WindowError> {
        let mut stop = self.stop.subscribe();
        let mut failures: Vec<FailureLog> = Vec::new();
        failures.resize_with(standbys.len(), FailureLog::default);
        while !standbys.is_empty() && !self.is_draining.load(Ordering::Relaxed) {
            let caught_up = tokio::select! {
                biased;
                caught_up = join_all(standbys.iter_mut().map(Standby::catch_up)) => caught_up,
                // A large window may take minutes.
                _ = stop.changed() => return Ok(()),
            };
            let mut is_first_complete = false;
            for (index, caught_up) in caught_up.into_iter().enumerate() {
                let name = &standbys[index].window.config.name;
                let is_complete = settle(name, &mut failures[index], caught_up)?;
                is_first_complete |= index == 0 && is_complete == Some(true);
            }

            if is_first_complete && self.take_first_over(&mut standbys, tasks).await? {
                self.take_others_over(standbys, tasks).await?;
                tracing::info!("all windows are owned by this process");
                return Ok(());
            }
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        Ok(())
    }

    /// Takes the first window over if its owner is gone; whether this process owns it.
    async fn take_first_over(
        &self,
        standbys: &mut Vec<Standby>,
        tasks: &mut WindowTasks,
    ) -> Result<bool, WindowError> {
        let first = &mut standbys[0];
        let name = first.window.config.name.clone();
        let failed = |source| WindowError::standby(&name, source);
        if !first.may_take_over().map_err(failed)? {
            return Ok(false);
        }
        let taken = settle(&name, &mut FailureLog::default(), first.take_over().await)?;
        let Some(Some(take_over)) = taken else {
            return Ok(false);
        };
        let taken_first = standbys.remove(0);
        let owned = self.own(taken_first, take_over, tasks);
        owned.map_err(failed)?;
        Ok(true)
    }

    /// Takes the other windows over once their owner is gone: it may have acknowledged events of
    /// them that are not in the store yet, although it has lost the first.
    async fn take_others_over(
        &self,
        standbys: Vec<Standby>,
        tasks: &mut WindowTasks,
    ) -> Result<(), WindowError> {
        for mut standby in standbys {
            let name = standby.window.config.name.clone();
            let mut failures = FailureLog::default();
            let take_over = loop {
                let caught_up = settle(&name, &mut failures, standby.catch_up().await)?;
                let failed = |source| WindowError::standby(&name, source);
                if caught_up == Some(true) && standby.may_take_over().map_err(failed)? {
                    let taken = settle(&name, &mut failures, standby.take_over().await)?;
                    if let Some(Some(take_over)) = taken {
                        break take_over;
                    }
                }
                if self.is_draining.load(Ordering::Relaxed) {
                    return Ok(());
                }
                tokio::time::sleep(POLL).await;
            };
            let owned = self.own(standby, take_over, tasks);
            owned.map_err(|source| WindowError::standby(&name, source))?;
        }
        Ok(())
    }

    /// Starts a window that was taken over, and the writers of its audiences.
    fn own(
        &self,
        standby: Standby,
        taken: TakeOver,
        tasks: &mut WindowTasks,
    ) -> Result<(), StandbyError> {
        let window = standby.window.config.name.clone();
        let mut followed = Vec::new();
        for audience in self.followed_audiences.values() {
            if audience.config.from_window == window {
                let reports = Arc::new(Reports::new(audience.config.min_count));
                followed.push((audience, reports));
            }
        }
        let reports: Vec<_> = followed.iter().map(|(_, it)| Arc::clone(it)).collect();
        let segment = taken.number;
        let served = take_over::start(standby, taken, &reports, &mut tasks.of_windows)?;
        tracing::info!(window = window.as_str(), segment, "window taken over");

        for (audience, reports) in followed {
            let _ = audience.reports.set(Arc::clone(&reports));
            let follower = Follower {
                lag_seconds: lag_of(&tasks.telemetry, &audience.config.name),
                config: audience.config.clone(),
                window: Arc::clone(&served),
                reports,
                writers: Arc::clone(&tasks.writers),
                times: FollowTimes::DEFAULT,
            };
            let stop = self.stop.subscribe();
            tasks.followers.spawn(follower.run(stop));
        }
        Ok(())
    }

    /// A window of this process.
    pub fn get(&self, name: &AudienceName) -> Option<&Arc<Window>> {
        self.windows.get(name)
    }

    /// The click callbacks of a window, if it takes them.
    pub fn callback(&self, window: &AudienceName) -> Option<&CallbackConfig> {
        self.callbacks.get(window)
    }

    /// All windows, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Window>> {
        self.windows.values()
    }

    /// The audiences that follow a window.
    pub fn followed(&self) -> impl Iterator<Item = FollowedInfo<'_>> {
        self.followed_audiences.values().map(|followed| {
            let lag = followed.reports.get().map(|reports| reports.lag());
            FollowedInfo {
                audience: &followed.config.name,
                window: &followed.config.from_window,
                min_count: followed.config.min_count,
                lag_seconds: lag.unwrap_or_default().as_secs_f64(),
            }
        })
    }

    /// Whether this process owns all windows, and they accept events: the engine of a window whose
    /// disk hangs does not learn that another process owns it. A process without windows is never a
    /// standby.
    pub fn are_owned(&self) -> bool {
        let mut windows = self.windows.values();
        windows.all(|window| window.is_writable()) && self.failure.borrow().is_none()
    }

    /// Whether an audience follows a window, so that only tombstones of it may be written.
    pub fn is_followed(&self, audience: &AudienceName) -> bool {
        self.followed_audiences.contains_key(audience)
    }

    /// Warns, once per window, of ids of kind `text` in a window that an audience follows.
    pub fn warn_of_text(&self, window: &Window) {
        let window = &window.config.name;
        let mut followed = self
            .followed_audiences
            .values()
            .filter(|followed| followed.config.from_window == *window);
        if let Some(followed) = followed.next()
            && self.warned_of_text.lock().insert(window.clone())
        {
            tracing::warn!(
                window = window.as_str(),
                audience = followed.config.name.as_str(),
                "ids of kind text match no device in an audience; send device ids with their kind"
            );
        }
    }

    /// Takes no window over any more.
    pub fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Ends [`Self::run`].
    pub fn stop(&self) {
        self.begin_drain();
        self.stop.send_replace(true);
    }

    async fn give_back(&self) {
        let mut owned: Vec<_> = self.windows.values().filter_map(|it| it.owned()).collect();
        // Its release lets a standby begin, which must find the others released.
        let first = (!owned.is_empty()).then(|| owned.remove(0));
        // Beside each other: a slow store must not take the time of the other windows.
        join_all(owned.into_iter().map(|served| served.finish())).await;
        if let Some(first) = first {
            first.finish().await;
        }
    }

    /// Says of each window that it is not given back.
    pub fn give_up(&self) {
        for (name, window) in &self.windows {
            let is_kept = window.owned().is_some_and(|it| !it.handle.is_released());
            if is_kept {
                tracing::warn!(window = name.as_str(), "window not given back");
            }
        }
    }

    /// Waits for a failure that ends the process: another process owns a window, a log cannot be
    /// written, or the content of a window is refused.
    pub async fn failed(&self) -> Arc<WindowError> {
        let mut failures = self.failure.subscribe();
        let failure = failures.wait_for(Option::is_some).await;
        failure
            .ok()
            .and_then(|failure| failure.clone())
            .expect("the sender is this one, and sends an error")
    }
}

/// The result of work of a standby; `None` after a failure that may pass, which is logged.
fn settle<T>(
    window: &AudienceName,
    failures: &mut FailureLog,
    result: Result<T, StandbyError>,
) -> Result<Option<T>, WindowError> {
    match result {
        Ok(value) => {
            failures.succeed();
            Ok(Some(value))
        }
        Err(StandbyError::Store(error)) if !shipper::is_permanent(&error) => {
            failures.fail(window.as_str(), "window of the store not read", &error);
            Ok(None)
        }
        Err(source) => Err(WindowError::standby(window, source)),
    }
}

async fn wait_for(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        // The panic is logged already. The other tasks finish, and the log is complete.
        if let Err(error) = ended {
            tracing::error!(error = error.to_string(), "task of a window failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use rtad_store::Store;
    use testkit::cgroup::Cgroup;
    use testkit::wait_until;

    use super::super::audience::WriteLimits;
    use super::take_over::tests::{Owned, standby_of};
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
        assert!(check("70_000_000", &["a"]).is_none());
        // Each audience has a list of keys.
        assert!(check("70_000_000", &["a", "b"]).is_some());
        let error = check("100_000_000", &["a"]).unwrap().to_string();
        let expected = "expected at most 4.0 GiB, found 5.0 GiB (clicks 5.0 GiB)";
        assert!(error.contains(expected), "{error}");
    }

    fn windows_of<const N: usize>(owners: [(&str, &Owned); N]) -> Windows {
        let window =
            |(name, owner): (&str, &Owned)| (name.parse().unwrap(), Arc::clone(&owner.shown));
        Windows {
            windows: owners.map(window).into(),
            ..Windows::default()
        }
    }

    fn writers_of(store: &StoreWriter) -> (Arc<Writers>, Arc<Telemetry>) {
        let telemetry = Arc::new(Telemetry::default());
        let limits = WriteLimits {
            every: Duration::ZERO,
            max_batch: 1000,
        };
        let writers = Writers::new(store.clone(), limits, Arc::clone(&telemetry));
        (Arc::new(writers), telemetry)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_of_one_task_leaves_the_windows_to_be_given_back() {
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        let owner = Owned::over(&store).await;
        let windows = windows_of([("w", &owner)]);
        assert!(windows.are_owned());
        owner.observe(&[[1; 16]]).await;
        let (writers, telemetry) = writers_of(&store);
        let mut tasks = WindowTasks::new(writers, telemetry);
        tasks.followers.spawn(async { panic!("a task that fails") });
        windows.stop();
        windows.serve(Vec::new(), &mut tasks).await;
        windows.give_back().await;

        let (mut next, _) = standby_of(&store, &Telemetry::default());
        while !next.catch_up().await.unwrap() {}
        assert!(next.may_take_over().unwrap(), "it was given back");
    }

    /// Two processes with two windows: one owns both, and the other one none.
    #[tokio::test(flavor = "multi_thread")]
    async fn one_process_owns_all_windows() {
        let store = StoreWriter::new(Store::in_memory()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let window = |name| {
            format!(
                "[[window]]\nname = {name:?}\nlength = \"1h\"\ncapacity = 1000\n\
                 durability = \"store\"\n"
            )
        };
        let file = folder.path().join("writer.toml");
        std::fs::write(&file, window("b") + &window("a")).unwrap();
        let config = Config::read(&file).unwrap();
        let start = async || {
            let (writers, telemetry) = writers_of(&store);
            let (windows, standbys) = Windows::open(&config, &store, &telemetry).await.unwrap();
            let windows = Arc::new(windows);
            let running = Arc::clone(&windows).run(standbys, writers, telemetry);
            (windows, tokio::spawn(running))
        };
        let (one, running) = start().await;
        wait_until("the first owns both", || one.are_owned());
        let (other, _running) = start().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!other.are_owned());
        one.stop();
        running.await.unwrap();
        wait_until("the second owns both", || other.are_owned());

        // Another process takes the second window alone.
        let folder = WindowFolder::new(store.clone(), "b".parse().unwrap());
        let last = *folder.segments().await.unwrap().last().unwrap();
        let created = folder.create(last + 1, "another".into()).await.unwrap();
        if created {
            let failure = other.failed().await;
            assert!(failure.to_string().contains("window b ended"), "{failure}");
            assert!(!other.are_owned());
        }
    }

    #[test]
    fn process_without_windows_is_no_standby() {
        assert!(Windows::default().are_owned());
    }
}
