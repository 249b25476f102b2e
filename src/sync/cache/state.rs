//! The file `served.json`: the cached generation, and the later deltas that are served over it.
//! Everything here blocks.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{read_at_most, write};
use rtad_core::snapshot::{Current, MAX_CURRENT_BYTES, Manifest, State};

const NAME: &str = "served.json";

/// The served state of an audience, for a start without the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedState {
    /// The `CURRENT` of the cached generation.
    pub(crate) current: Current,
    /// A later one: its deltas, tombstones, state and end of validity apply to the cached
    /// generation.
    pub(crate) later: Option<Current>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File<T> {
    current: T,
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    later: Option<T>,
}

impl CachedState {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let bytes = read_at_most(&folder.join(NAME), 2 * MAX_CURRENT_BYTES)?;
        let File::<Value> { current, later } = serde_json::from_slice(&bytes)?;
        let parse = |value: Value| {
            let parsed = Current::parse(&serde_json::to_vec(&value)?);
            parsed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
        };
        Ok(Self {
            current: parse(current)?,
            later: later.map(parse).transpose()?,
        })
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let Self { current, later } = self;
        write(
            folder,
            NAME,
            &serde_json::to_vec(&File {
                current,
                later: later.as_ref(),
            })?,
        )
    }

    /// The `CURRENT` whose state and deltas apply.
    pub(crate) const fn newest(&self) -> &Current {
        match &self.later {
            Some(later) => later,
            None => &self.current,
        }
    }

    /// Applies the state and the end of validity of `current` alone.
    pub(super) fn restricted_by(&self, current: &Current) -> Self {
        self.with_later(self.newest().clone().restricted_by(current))
    }

    /// Applies the deltas and tombstones of `current` if they are in the folder, or else the
    /// tombstones alone.
    pub(super) fn with_deltas_of(&self, current: &Current, folder: &Path) -> Self {
        let newest = self.newest();
        if has_deltas(folder, current) {
            let mut later = current.clone();
            // The chunks of a deleted audience must not answer again.
            if newest.state == State::Deleted {
                later.state = State::Deleted;
            }
            return self.with_later(later);
        }
        let erased = newest.clone().with_tombstones_of(current);
        if has_deltas(folder, &erased) {
            self.with_later(erased)
        } else {
            self.clone()
        }
    }

    fn with_later(&self, later: Current) -> Self {
        if later == *self.newest() {
            return self.clone();
        }
        Self {
            current: self.current.clone(),
            later: Some(later),
        }
    }
}

/// Whether all files of a generation are in the folder, by their sizes.
pub fn is_whole(folder: &Path, manifest: &Manifest, current: &Current) -> bool {
    folder
        .join(format!("{}.json", manifest.generation()))
        .exists()
        && manifest
            .chunks()
            .iter()
            .all(|entry| has(folder, &format!("{}.chunk", entry.digest), entry.size_bytes))
        && has_deltas(folder, current)
}

fn has_deltas(folder: &Path, current: &Current) -> bool {
    let mut entries = current.delta_entries();
    entries.all(|entry| {
        has(
            folder,
            &format!("{}.delta", entry.sha256),
            entry.size_bytes(),
        )
    })
}

fn has(folder: &Path, name: &str, size_bytes: u64) -> bool {
    std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() == size_bytes)
}
