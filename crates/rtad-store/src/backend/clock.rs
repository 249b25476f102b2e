//! The store's clock: a gc compares the times of files with it, and a host's may differ by hours.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use object_store::path::Path;
use rtad_core::{clock, random};
use tokio::time::Instant;

use super::{Backend, Directory};
use crate::blocking::blocking;
use crate::error::StoreError;

/// A time of the store, as one of its objects showed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreClock {
    time: SystemTime,
    read_at: Instant,
}

impl StoreClock {
    /// The clock of a store that has just written an object at this time.
    pub(crate) fn new(time: SystemTime) -> Self {
        Self {
            time,
            read_at: Instant::now(),
        }
    }

    fn now(&self) -> SystemTime {
        self.time + self.read_at.elapsed()
    }
}

impl Backend {
    /// The store's time. A directory, which may be that of another host, shows it by an unfinished
    /// file beside `path`, in a folder that exists; a bucket by the probe of
    /// [`Backend::check_creates`]. Before that, and in a store without writes, it is the host's.
    ///
    /// # Errors
    ///
    /// The directory cannot be written to.
    pub(crate) async fn now(&self, path: &Path) -> Result<SystemTime, StoreError> {
        match self {
            Self::Objects { conditions, .. } => {
                let store_clock = conditions.get();
                Ok(store_clock.map_or_else(clock::now, StoreClock::now))
            }
            Self::Directory(Directory { root, .. }) => {
                let unfinished = root.join(format!("{path}#{}", random::number()));
                let read = blocking(move || time_of_new(unfinished)).await;
                read.map_err(|source| StoreError::Backend {
                    action: "read the clock beside",
                    path: path.to_string(),
                    source: source.into(),
                })
            }
        }
    }
}

fn time_of_new(path: PathBuf) -> io::Result<SystemTime> {
    let modified = File::create_new(&path)?.metadata()?.modified();
    // One that stays is removed by a gc.
    let _ = std::fs::remove_file(&path);
    modified
}
