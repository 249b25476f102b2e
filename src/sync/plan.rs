//! Plan of a poll: the work that a record asks for, given what is served. It reads nothing.

use super::error::SyncError;
use super::progress::Progress;
use rtad_core::snapshot::{AudienceName, Current, Snapshot, State};

/// Work of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// No work: The record is served already.
    Nothing,
    /// No work but the restriction by the record: its files were refused for this cause, and are
    /// backed off.
    Refused(&'static str),
    /// The deltas and tombstones of a generation whose chunks were refused for this cause, and are
    /// backed off.
    RefusedChunks(&'static str),
    /// A deletion, which has no files to read.
    Delete,
    /// Other deltas, tombstones, state or expiry over the served filters.
    Deltas,
    /// All files of a generation.
    Generation,
}

/// The served snapshot, as far as a plan depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    pub(super) generation: u64,
    /// Whether a rolling swap to another generation is unfinished.
    pub(super) is_mixed: bool,
}

impl Served {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            generation: snapshot.manifest().generation(),
            is_mixed: snapshot.is_mixed(),
        }
    }
}

impl Plan {
    /// The work for `current`, over `served` if the audience is loaded.
    ///
    /// # Errors
    ///
    /// [`SyncError::Stale`] if `current` is older than one that was read before, and
    /// [`SyncError::Deleted`] if the audience is deleted and not loaded.
    pub(super) fn new(
        audience: &AudienceName,
        current: &Current,
        served: Option<Served>,
        progress: &Progress,
    ) -> Result<Self, SyncError> {
        if let Some(newest) = progress.newest()
            && progress.is_stale(current)
        {
            return Err(SyncError::Stale {
                found: current.generation,
                found_sequence: current.sequence,
                known: newest.generation,
                known_sequence: newest.sequence,
            });
        }
        // The same record over a mixed snapshot goes on with the unfinished roll.
        if let Some(served) = served
            && !served.is_mixed
            && progress.is_accepted(current)
            && current.generation == served.generation
        {
            return Ok(Self::Nothing);
        }
        if current.state == State::Deleted {
            let deleted = || SyncError::Deleted {
                audience: audience.clone(),
            };
            return served.map(|_| Self::Delete).ok_or_else(deleted);
        }
        if let Some(refused) = progress.refusal(current) {
            let has_new_files = served.is_some() && !refused.is_same(current);
            let plan = if has_new_files {
                Self::RefusedChunks
            } else {
                Self::Refused
            };
            return Ok(plan(refused.cause));
        }
        match served {
            Some(Served {
                generation,
                is_mixed: false,
            }) if current.generation == generation && progress.has_accepted_manifest(current) => {
                Ok(Self::Deltas)
            }
            _ => Ok(Self::Generation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::RefusedPart;
    use super::*;

    #[test]
    fn plan_depends_on_current_and_the_served_generation() {
        let current = |sequence, generation, manifest: &str| {
            Current::new(sequence, generation, manifest.as_bytes(), None)
        };
        let with_state = |sequence, generation, state| {
            let mut current = current(sequence, generation, "a");
            current.state = state;
            current
        };
        let deleted = |sequence, generation| with_state(sequence, generation, State::Deleted);
        let disabled = with_state(6, 5, State::Disabled);
        let served = |generation| {
            Some(Served {
                generation,
                is_mixed: false,
            })
        };
        let mixed = |generation| {
            Some(Served {
                generation,
                is_mixed: true,
            })
        };
        let mut progress = Progress::default();
        progress.see(&current(5, 5, "a"));
        progress.accept(&current(5, 5, "a"));
        let refused = current(9, 9, "refused");
        for _ in 0..2 {
            progress.refuse(refused.clone(), RefusedPart::Chunks, "digest");
        }
        for (current, served, expected) in [
            (current(5, 5, "a"), None, "Ok(Generation)"),
            (current(5, 5, "a"), served(5), "Ok(Nothing)"),
            // The roll to generation 5 is unfinished.
            (current(5, 5, "a"), mixed(5), "Ok(Generation)"),
            (current(6, 5, "a"), served(5), "Ok(Deltas)"),
            (disabled, served(5), "Ok(Deltas)"),
            (current(6, 5, "a"), mixed(5), "Ok(Generation)"),
            // A generation that was built again has another manifest.
            (current(6, 5, "b"), served(5), "Ok(Generation)"),
            (current(6, 6, "b"), served(5), "Ok(Generation)"),
            (current(4, 4, "a"), served(5), "Err(stale)"),
            (current(4, 5, "a"), mixed(5), "Err(stale)"),
            // Also if nothing can be served.
            (current(4, 4, "a"), None, "Err(stale)"),
            // A store restored from a backup repeats the number and the generation.
            (current(5, 5, "b"), served(5), "Err(stale)"),
            (current(5, 5, "b"), None, "Err(stale)"),
            (with_state(5, 5, State::Disabled), served(5), "Err(stale)"),
            (deleted(6, 5), served(5), "Ok(Delete)"),
            (deleted(6, 5), mixed(5), "Ok(Delete)"),
            (
                deleted(6, 5),
                None,
                "Err(Deleted { audience: AudienceName(\"a\") })",
            ),
            (refused.clone(), served(5), "Ok(Refused(\"digest\"))"),
            (refused.clone(), None, "Ok(Refused(\"digest\"))"),
            (refused.next(), served(5), "Ok(RefusedChunks(\"digest\"))"),
            (refused.next(), None, "Ok(Refused(\"digest\"))"),
            (refused.deleted(), served(5), "Ok(Delete)"),
            (current(10, 9, "mended"), served(5), "Ok(Generation)"),
        ] {
            assert_eq!(
                planned(&progress, &current, served),
                expected,
                "{current:?} over {served:?}"
            );
        }
        // The deltas of the refused one apply: those of an older one could undo erasures.
        progress.see(&refused);
        for (current, expected) in [
            (current(8, 9, "refused"), "Err(stale)"),
            (current(8, 5, "a"), "Err(stale)"),
            (current(5, 5, "a"), "Err(stale)"),
            (current(1, 10, "repaired"), "Ok(Generation)"),
        ] {
            assert_eq!(
                planned(&progress, &current, served(5)),
                expected,
                "{current:?}"
            );
        }
    }

    fn planned(progress: &Progress, current: &Current, served: Option<Served>) -> String {
        match Plan::new(&"a".parse().unwrap(), current, served, progress) {
            Err(SyncError::Stale { .. }) => "Err(stale)".to_owned(),
            plan => format!("{plan:?}"),
        }
    }
}
