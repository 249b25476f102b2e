//! Sync state of an audience between polls: the last accepted `CURRENT` and the last refused one.

use tokio::sync::oneshot;

use super::pace::Pace;
use rtad_core::backoff::Backoff;
use rtad_core::snapshot::Current;
use rtad_store::Live;

/// Upper limit of the backoff of a refused `CURRENT`: 32 polls skip it, the next one reads it.
const MAX_BACKOFF_POLLS: u32 = 33;

/// Sync state of one audience.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Sequence of the newest accepted `CURRENT`.
    pub(super) sequence: u64,
    /// Highest generation in any accepted `CURRENT`.
    pub(super) highest: u64,
    /// Highest sequence and generation of the accepted `CURRENT` and of later ones that were
    /// applied in part.
    applied: (u64, u64),
    /// The accepted `CURRENT`, whole: the sequence is not unique, as a restored backup may repeat
    /// it.
    accepted: Option<Current>,
    /// The `CURRENT` of the last read, accepted or not. The next read is conditional on it.
    pub(super) live: Option<Live>,
    refused: Option<Refused>,
    /// Whether the store failed at the start, and the cache could not be served either: the next
    /// polls wait for a slow store.
    pub(super) is_cache_unusable: bool,
    pub(super) pace: Pace,
    /// Signaled once the audience is served or was polled once.
    pub(super) first: Option<oneshot::Sender<()>>,
}

/// A refused `CURRENT`, and its backoff.
#[derive(Debug)]
pub(super) struct Refused {
    /// The whole `CURRENT`, as in `accepted`. Later ones with the same refused generation take its
    /// place.
    current: Current,
    part: RefusedPart,
    polls_to_skip: u32,
    backoff: Backoff,
    pub(super) cause: &'static str,
}

/// The part of a `CURRENT` that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusedPart {
    /// The manifest or the deltas, which cost little to read: any other `CURRENT` is read at once.
    Files,
    /// The chunks: a `CURRENT` that adds deltas to the same generation is refused too.
    Chunks,
}

impl Refused {
    /// Returns true if `current` is refused, as the same one or for its chunks.
    fn covers(&self, current: &Current) -> bool {
        let has_same_chunks = self.current.manifest_sha256 == current.manifest_sha256;
        self.is_same(current) || self.part == RefusedPart::Chunks && has_same_chunks
    }

    /// Returns true if `current` has no files that were not read.
    pub(super) fn is_same(&self, current: &Current) -> bool {
        self.current == *current
    }
}

impl Progress {
    /// Records that the deltas of `current` apply to what is served.
    pub(super) fn apply(&mut self, current: &Current) {
        let (sequence, highest) = self.applied;
        self.applied = (
            sequence.max(current.sequence),
            highest.max(current.highest_generation()),
        );
    }

    /// Whether a later `CURRENT` was applied. One with a generation above all known ones is new,
    /// whatever its sequence.
    pub(super) fn is_older_than_applied(&self, current: &Current) -> bool {
        let (sequence, highest) = self.applied;
        current.sequence < sequence && current.generation <= highest
    }

    /// The highest sequence of any `CURRENT` that was accepted, or applied in part.
    pub(super) fn known_sequence(&self) -> u64 {
        self.sequence.max(self.applied.0)
    }

    /// Records that `current` is served.
    pub(super) fn accept(&mut self, current: &Current) {
        self.sequence = current.sequence;
        self.highest = self.highest.max(current.highest_generation());
        self.applied = (current.sequence, self.highest);
        self.accepted = Some(current.clone());
        self.refused = None;
    }

    /// Returns true if `current` is the accepted one.
    pub(super) fn is_accepted(&self, current: &Current) -> bool {
        self.accepted.as_ref() == Some(current)
    }

    /// Returns true if `current` refers to the accepted manifest: only its deltas or state changed.
    pub(super) fn has_accepted_manifest(&self, current: &Current) -> bool {
        let accepted = self.accepted.as_ref();
        accepted.is_some_and(|accepted| accepted.manifest_sha256 == current.manifest_sha256)
    }

    /// Records that a part of `current` was refused. Each refusal doubles the number of polls that
    /// skip it.
    pub(super) fn refuse(&mut self, current: Current, part: RefusedPart, cause: &'static str) {
        let again = self
            .refused
            .take()
            .filter(|refused| refused.covers(&current));
        let mut backoff = again.map_or(Backoff::new(MAX_BACKOFF_POLLS), |refused| refused.backoff);
        // The next attempt is one of the polls.
        let polls_to_skip = backoff.fail() - 1;
        self.refused = Some(Refused {
            current,
            part,
            polls_to_skip,
            backoff,
            cause,
        });
    }

    /// The refusal of `current`, if this poll must skip it.
    pub(super) fn refusal(&self, current: &Current) -> Option<&Refused> {
        let refused = self
            .refused
            .as_ref()
            .filter(|refused| refused.covers(current))?;
        (refused.polls_to_skip > 0).then_some(refused)
    }

    /// Records that the deltas of `current` were read, and its refused chunks were skipped.
    pub(super) fn record_deltas(&mut self, current: &Current) {
        if let Some(refused) = &mut self.refused {
            refused.current = current.clone();
        }
    }

    /// Records that a poll skipped the refused `CURRENT`.
    pub(super) fn count_skipped(&mut self) {
        if let Some(refused) = &mut self.refused {
            refused.polls_to_skip = refused.polls_to_skip.saturating_sub(1);
        }
    }

    /// Signals that the audience is served or was polled once.
    pub(super) fn report_first(&mut self) {
        if let Some(first) = self.first.take() {
            let _ = first.send(());
        }
    }

    /// Makes the next poll read a refused snapshot again.
    pub(super) fn clear_refusal(&mut self) {
        self.refused = None;
    }
}

/// Returns true if `current` may replace the generation `served`, after accepted ones up to this
/// sequence and this highest generation:
///
/// * with a later sequence, if its generation is not lower or a rollback is recorded;
/// * with a generation above all known ones, whatever its sequence. A stale copy cannot have such a
///   generation. So the next publish repairs a lost `CURRENT`.
pub const fn may_replace(current: &Current, served: u64, sequence: u64, highest: u64) -> bool {
    if current.generation > highest {
        return true;
    }
    if current.sequence <= sequence {
        return false;
    }
    let is_rollback = match current.rolled_back_from {
        Some(from) => from >= served,
        None => false,
    };
    current.generation >= served || is_rollback
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(sequence: u64, generation: u64, rolled_back_from: Option<u64>) -> Current {
        Current::new(sequence, generation, b"", rolled_back_from)
    }

    #[test]
    fn only_a_later_current_replaces_the_served_one() {
        for (current, (sequence, highest), served, expected) in [
            (current(6, 6, None), (5, 5), 5, true),
            (current(5, 5, None), (5, 5), 5, false),
            (current(4, 4, None), (5, 5), 5, false),
            (current(6, 3, None), (5, 5), 5, false),
            (current(6, 3, Some(5)), (5, 5), 5, true),
            (current(6, 3, Some(4)), (5, 5), 5, false),
            (current(7, 5, None), (6, 5), 3, true),
            (current(5, 5, None), (6, 5), 3, false),
            // A lost `CURRENT` restarts the sequence; the next publish has a higher generation.
            (current(1, 6, None), (9, 5), 5, true),
            (current(1, 5, None), (9, 5), 3, false),
        ] {
            let found = may_replace(&current, served, sequence, highest);
            assert_eq!(
                found, expected,
                "{current:?} after {sequence}, {highest}; {served} served"
            );
        }
    }

    #[test]
    fn refused_current_is_skipped_with_exponential_backoff() {
        let refused = current(2, 2, None);
        let (appended, other) = (refused.next(), Current::new(3, 3, b"another", None));
        for part in [RefusedPart::Files, RefusedPart::Chunks] {
            let mut progress = Progress::default();
            for expected in [0, 1, 3, 7, 15, 31, 32, 32] {
                progress.refuse(refused.clone(), part, "digest");
                assert!(progress.refusal(&other).is_none());
                let mut skipped = 0;
                while let Some(Refused {
                    cause: "digest", ..
                }) = progress.refusal(&refused)
                {
                    let is_appended_refused = progress.refusal(&appended).is_some();
                    assert_eq!(is_appended_refused, part == RefusedPart::Chunks);
                    progress.count_skipped();
                    skipped += 1;
                }
                assert_eq!(skipped, expected);
            }
            progress.refuse(refused.clone(), part, "digest");
            progress.clear_refusal();
            assert!(progress.refusal(&refused).is_none());
        }
    }
}
