//! Meters of this process: CPU time and memory.

use rustix::time::{ClockId, clock_gettime};

use crate::engine::{Engine, Outcome};

/// CPU time of an engine in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTime {
    /// User and system time of this process.
    pub(crate) client: f64,
    /// The same of the engine's server.
    pub(crate) server: f64,
}

/// User and system time so far of all threads of this process, in seconds.
pub(crate) fn own_cpu_seconds() -> f64 {
    // The sum of getrusage, without its rounding to microseconds.
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// CPU time so far of the server, if there is one.
pub(crate) fn server_cpu_seconds(engine: &dyn Engine) -> Outcome<f64> {
    engine.server().map_or(Ok(0.0), |server| server.cpu_seconds())
}

/// Resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("statm: no resident size")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
