//! Threads beside the workers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::StartError;

/// The lowest priority: a seventieth of a busy worker's share. A larger share would saturate a core
/// that is nearly busy. `SCHED_IDLE` would starve a load while all cores are busy.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 19;

/// Priority of the threads of one runtime: normal, until it is lowered for all of them.
#[derive(Debug, Default)]
pub struct Priority(Mutex<PriorityState>);

#[derive(Debug, Default)]
struct PriorityState {
    is_low: bool,
    #[cfg(target_os = "linux")]
    running: Vec<rustix::process::Pid>,
}

impl Priority {
    /// Gives present and future threads the lowest priority, so that hashing delays no request by a
    /// time slice. Has no effect on kernels without thread priorities.
    pub fn lower(&self) {
        let mut threads = self.0.lock();
        threads.is_low = true;
        #[cfg(target_os = "linux")]
        for thread in &threads.running {
            let _ = rustix::process::setpriority_process(Some(*thread), BACKGROUND_NICENESS);
        }
    }

    /// Called by each thread first.
    fn enter(&self) {
        let mut threads = self.0.lock();
        #[cfg(target_os = "linux")]
        {
            if threads.is_low {
                let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
            }
            threads.running.extend(this_thread());
        }
    }

    /// Called by each thread last: another thread may get its id.
    fn leave(&self) {
        let mut threads = self.0.lock();
        #[cfg(target_os = "linux")]
        threads
            .running
            .retain(|thread| Some(*thread) != this_thread());
    }
}

/// The kernel's id of this thread.
#[cfg(target_os = "linux")]
fn this_thread() -> Option<rustix::process::Pid> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    rustix::process::Pid::from_raw(link.file_name()?.to_str()?.parse().ok()?)
}

/// Threads with runtimes of their own. Ends them when it is dropped, without waiting for them.
#[derive(Debug)]
pub struct Threads(watch::Sender<()>);

impl Default for Threads {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Threads {
    /// Runs `work` on a thread with its own runtime, whose threads share a priority.
    pub fn spawn<F: Future<Output = ()>>(
        &self,
        name: &str,
        priority: Option<Arc<Priority>>,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), StartError> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all();
        if let Some(priority) = &priority {
            let starting = Arc::clone(priority);
            let ending = Arc::clone(priority);
            runtime
                .on_thread_start(move || starting.enter())
                .on_thread_stop(move || ending.leave());
        }
        let runtime = runtime.build().map_err(StartError::Threads)?;

        let thread = std::thread::Builder::new().name(name.to_owned());
        let mut owner = self.0.subscribe();

        let spawned = thread.spawn(move || {
            if let Some(priority) = &priority {
                priority.enter();
            }
            runtime.block_on(async {
                tokio::select! {
                    () = work() => {}
                    // Nothing is ever sent: this is the end of the owner.
                    _ = owner.changed() => {}
                }
            });
            if let Some(priority) = &priority {
                priority.leave();
            }
        });
        spawned.map_err(StartError::Threads)?;
        Ok(())
    }
}
