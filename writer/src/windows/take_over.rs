//! Start of a window that was taken over.

#[cfg(test)]
pub mod tests;

use std::sync::Arc;

use rtad_window::{ChangeListener, Changed, OpenError, Settings, StartedWindow, TakeOver};
use tokio::task::JoinSet;

use super::clock::Clock;
use super::reports::Reports;
use super::served::ServedWindow;
use super::shipper::Shipper;
use super::standby::{Standby, Started};
use super::tables::keep_tables;
use crate::blocking::apart;

/// Starts a window that was taken over: its engine, its shipper and its tables are tasks of the
/// caller.
///
/// # Errors
///
/// The directory of the window cannot be written.
pub fn start(
    standby: Standby,
    take_over: TakeOver,
    reports: &[Arc<Reports>],
    tasks: &mut JoinSet<()>,
) -> Result<Arc<ServedWindow>, OpenError> {
    let window = Arc::clone(&standby.window);
    let config = window.config.clone();
    let clock = Arc::new(Clock::start(&config.name, &config.length));
    let read = Arc::clone(&clock);
    let settings = Settings {
        clock: Box::new(move || read.now()),
        listener: listener(reports),
    };
    let Started {
        window: started,
        log,
    } = standby.start(take_over, settings)?;
    let StartedWindow {
        handle,
        engine,
        outbox,
    } = started;

    let folder = log.folder().clone();
    let shipper = Shipper {
        window: config.name.as_str().to_owned(),
        outbox,
        log,
    };
    tasks.spawn(apart(engine.run()));
    tasks.spawn(shipper.run());
    let served = Arc::new(ServedWindow {
        config,
        handle,
        clock,
        counters: Arc::clone(&window.counters),
    });
    served.update_gauges(true);
    tasks.spawn(keep_tables(Arc::clone(&served), folder));
    window.set_owned(Arc::clone(&served));
    Ok(served)
}

/// Reports changes of a window to the audiences that follow it.
fn listener(reports: &[Arc<Reports>]) -> Option<ChangeListener> {
    if reports.is_empty() {
        return None;
    }
    let mut thresholds: Vec<u16> = reports.iter().map(|reports| reports.min_count).collect();
    thresholds.sort_unstable();
    thresholds.dedup();
    let reports = reports.to_vec();
    let report = move |changed: Changed<'_>| match changed {
        Changed::Reached(count, keys) => {
            reports
                .iter()
                .filter(|r| r.min_count == count)
                .for_each(|r| r.add(keys.iter()));
        }
        Changed::Left(keys) => reports.iter().for_each(|reports| reports.add(keys.iter())),
        Changed::All => reports.iter().for_each(|reports| reports.renew()),
    };
    Some(ChangeListener {
        thresholds,
        report: Box::new(report),
    })
}
