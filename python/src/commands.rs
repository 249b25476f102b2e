//! Commands of the loader, and explanations of the service.

use std::path::PathBuf;
use std::time::SystemTime;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use rtad::offline::{OfflineError, OfflineRequest, explain_request, read_config};
use rtad_core::schedule::Moment;
use rtad_loader::host::{self, Batches};

use super::job;
use super::table::Tables;

/// Runs a command of `rtad-loader`, whose input is `objects` if given: tables, or ids. Returns the
/// report as JSON.
#[pyfunction]
pub fn run(
    py: Python<'_>,
    arguments: Vec<String>,
    objects: Option<Bound<'_, PyAny>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let progress = progress.as_ref();
    let Some(objects) = objects else {
        let work = move |watch: &_| host::run(&arguments, None, watch);
        return Ok(job::report(py, job::run(py, progress, None, work)?));
    };

    let mut tables = Tables::open(&objects)?;
    let (sender, batches) = Batches::new(tables.columns().clone());
    let mut next = || tables.next_batch(py);
    let work = move |watch: &_| host::run(&arguments, Some(batches), watch);
    let done = job::run(py, progress, Some((&mut next, sender)), work)?;
    Ok(job::report(py, done))
}

/// Explains the answer to a captured request. Returns the explanation as JSON.
#[pyfunction]
pub fn explain(
    py: Python<'_>,
    config: PathBuf,
    platform: String,
    body: Vec<u8>,
    headers: Vec<String>,
    query: Option<String>,
    at: Option<String>,
) -> PyResult<String> {
    let explained = py.detach(|| {
        let request = OfflineRequest {
            platform,
            body,
            headers,
            query,
            at: at.map(time_of).transpose()?,
        };
        let assembly = read_config(&config, &Vec::new())?;
        explain_request(assembly, request)
    });
    let explained = explained.map_err(|error| job::failure(py, &error))?;
    serde_json::to_string(&explained).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn time_of(text: String) -> Result<SystemTime, OfflineError> {
    let found = format!("at={text:?}");
    let time = Moment::try_from(text);
    let time = time.map_err(|error| OfflineError::Usage(format!("{found}: {error}")))?;
    Ok(time.into())
}
