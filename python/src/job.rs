//! Work of the loader on a thread of its own, while the thread of Python passes on rows, progress
//! and signals.

use std::ffi::CString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel};
use std::thread;
use std::time::Duration;

use arrow_array::StructArray;
use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;

use rtad_cli::command_error::CommandError;
use rtad_cli::exit::CommandFailure;
use rtad_core::error_chain::error_chain;
use rtad_loader::host::{Done, Watch, in_arguments};

/// Interval of progress and signals.
const TICK: Duration = Duration::from_millis(100);
/// Interval of attempts to hand over a batch.
const SEND_INTERVAL: Duration = Duration::from_millis(2);

/// Batches, and the sender of their rows.
pub type Feed<'f> = (
    &'f mut dyn FnMut() -> PyResult<Option<StructArray>>,
    SyncSender<StructArray>,
);

/// Runs `work`, feeds it, and calls `progress` with the phase, the count and the total. An
/// exception, such as that of Ctrl-C, stops the work before it publishes anything.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    feed: Option<Feed<'_>>,
    work: impl FnOnce(&Watch) -> Result<T, CommandError> + Send + 'static,
) -> PyResult<T> {
    let (watch, (sender, results)) = (Watch::default(), channel());
    let watched = watch.clone();
    thread::spawn(move || sender.send(work(&watched)));
    let job = RunningJob {
        py,
        progress,
        watch,
        results: Mutex::new(results),
    };
    let fed = feed.map_or(Ok(None), |(next, rows)| job.feed(next, rows));
    let result = match fed {
        Ok(Some(result)) => Ok(result),
        Ok(None) => job.wait(),
        Err(error) => Err(error),
    };
    let result = result.inspect_err(|_| job.stop())?;
    result.map_err(|error| failure(py, &*error))
}

struct RunningJob<'j, 'py, T> {
    py: Python<'py>,
    progress: Option<&'j Py<PyAny>>,
    watch: Watch,
    results: Mutex<Receiver<Result<T, CommandError>>>,
}

impl<T: Send> RunningJob<'_, '_, T> {
    /// Hands over all batches; returns the result if the work ended before.
    fn feed(
        &self,
        next: &mut dyn FnMut() -> PyResult<Option<StructArray>>,
        sender: SyncSender<StructArray>,
    ) -> PyResult<Option<Result<T, CommandError>>> {
        let fed = self.feed_all(next, &sender);
        if fed.is_err() {
            // Before the sender is dropped: its end would look like that of the rows.
            self.watch.stop();
        }
        fed
    }

    fn feed_all(
        &self,
        next: &mut dyn FnMut() -> PyResult<Option<StructArray>>,
        sender: &SyncSender<StructArray>,
    ) -> PyResult<Option<Result<T, CommandError>>> {
        let mut ticks = 0;
        while let Some(mut rows) = next()? {
            self.tick()?;
            loop {
                match sender.try_send(rows) {
                    Ok(()) => break,
                    Err(TrySendError::Disconnected(_)) => return self.wait().map(Some),
                    Err(TrySendError::Full(back)) => rows = back,
                }
                self.py.detach(|| thread::sleep(SEND_INTERVAL));
                ticks += 1;
                if ticks % 16 == 0 {
                    self.tick()?;
                }
            }
        }
        Ok(None)
    }

    /// Waits for the result.
    fn wait(&self) -> PyResult<Result<T, CommandError>> {
        let results = &self.results;
        loop {
            match self.py.detach(|| results.lock().recv_timeout(TICK)) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => self.tick()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err(
                        "internal error; its location is on stderr",
                    ));
                }
            }
        }
    }

    fn tick(&self) -> PyResult<()> {
        self.py.check_signals()?;
        let Some(progress) = self.progress else {
            return Ok(());
        };
        let watch = &self.watch;
        progress.call1(self.py, (watch.phase(), watch.done(), watch.total()))?;
        Ok(())
    }

    /// Stops the work, and waits for its end.
    fn stop(&self) {
        self.watch.stop();
        let results = &self.results;
        let _ = self.py.detach(|| results.lock().recv());
    }
}

/// The report of a command, as JSON. Its warnings are Python's. One that a filter turns into an
/// exception goes to `sys.unraisablehook`: the command has published, and its report is returned.
pub fn report(py: Python<'_>, done: Done) -> String {
    for warning in done.warnings {
        if let Err(error) = warn_at(py, warning, 3) {
            error.write_unraisable(py, None);
        }
    }
    done.report
}

/// Warns the caller of a function of the package.
pub fn warn(py: Python<'_>, warnings: Vec<String>) -> PyResult<()> {
    for warning in warnings {
        warn_at(py, warning, 2)?;
    }
    Ok(())
}

fn warn_at(py: Python<'_>, warning: String, stack_level: i32) -> PyResult<()> {
    let category = py.get_type::<PyUserWarning>();
    let text = in_arguments(&warning).replace('\0', " ");
    let message = CString::new(text).expect("NUL was replaced");
    PyErr::warn(py, &category, &message, stack_level)
}

/// The exception of a failed command, a `rtad.Error`: the text that follows `error: ` on the
/// command line, with arguments in place of flags.
pub fn failure(py: Python<'_>, error: &dyn CommandFailure) -> PyErr {
    let message = match error.mistakes() {
        [] => error_chain(error).replace(['\n', '\r'], " "),
        mistakes => mistakes.join("\n"),
    };
    let exit_code = error.exit() as u8;
    let class = py
        .import("rtad._error")
        .and_then(|module| module.getattr("Error"));
    match class.and_then(|class| class.call1((in_arguments(&message), exit_code))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
