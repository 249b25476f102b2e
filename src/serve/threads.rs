//! Threads beside the workers.

use super::error::StartError;

/// The lowest priority: a seventieth of a busy worker's share. A larger share would saturate a core
/// that is nearly busy. `SCHED_IDLE` would starve a load while all cores are busy.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 19;

/// Runs `work` on a thread with its own runtime. Each thread of the runtime calls `begin` first.
pub(super) fn spawn<F: Future<Output = ()>>(
    name: &str,
    begin: fn(),
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<(), StartError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().on_thread_start(begin).build();
    let runtime = runtime.map_err(StartError::Threads)?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    let run = move || {
        begin();
        runtime.block_on(work());
    };
    thread.spawn(run).map_err(StartError::Threads)?;
    Ok(())
}

/// Gives this thread the lowest priority, so that hashing delays no request by a time slice.
/// Without effect on kernels without thread priorities.
pub(super) fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
}
