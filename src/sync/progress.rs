//! Sync progress of an audience between polls: the accepted `CURRENT`, and the refused one.

use tokio::sync::oneshot;

use super::pace::Pace;
use rtad_core::snapshot::{Current, Digest};
use rtad_store::Live;

/// Most polls that skip a refused snapshot before it is read again.
const MAX_BACKOFF_POLLS: u32 = 32;

/// Sync progress of one audience.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Sequence of the newest accepted `CURRENT`.
    pub(super) sequence: u64,
    /// The highest generation that any accepted `CURRENT` named.
    pub(super) highest: u64,
    /// Digest of the accepted `CURRENT`'s manifest.
    manifest: Option<Digest>,
    /// The `CURRENT` that was read last, accepted or not: the condition of the next conditional
    /// read.
    pub(super) live: Option<Live>,
    refused: Option<Refused>,
    pub(super) pace: Pace,
    /// Receives a value when the audience is served, or was polled for the first time.
    pub(super) first: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Refused {
    /// Compared as a whole: a `CURRENT` restored by hand may repeat a sequence.
    current: Current,
    polls_to_skip: u32,
    next_skip: u32,
    result: &'static str,
}

impl Progress {
    /// Records that `current` is served.
    pub(super) fn accept(&mut self, current: &Current) {
        self.sequence = current.sequence;
        self.highest = self.highest.max(current.highest_generation());
        self.manifest = Some(current.manifest_sha256);
        self.refused = None;
    }

    /// Whether `current` names the accepted manifest: then only its deltas or its state changed.
    pub(super) fn has_accepted_manifest(&self, current: &Current) -> bool {
        self.manifest == Some(current.manifest_sha256)
    }

    /// Records that `current` was refused. Each refusal doubles the number of polls that skip it.
    pub(super) fn refuse(&mut self, current: Current, result: &'static str) {
        let again = self.refused.take().filter(|refused| refused.current == current);
        let polls_to_skip = again.map_or(0, |refused| refused.next_skip);
        let next_skip = (polls_to_skip * 2 + 1).min(MAX_BACKOFF_POLLS);
        self.refused = Some(Refused { current, polls_to_skip, next_skip, result });
    }

    /// The result that `current` was refused with, if this poll is to skip it.
    pub(super) fn skip(&mut self, current: &Current) -> Option<&'static str> {
        let refused = self.refused.as_mut().filter(|refused| refused.current == *current)?;
        refused.polls_to_skip = refused.polls_to_skip.checked_sub(1)?;
        Some(refused.result)
    }

    /// Reports that the audience is served, or was polled once.
    pub(super) fn report_first(&mut self) {
        if let Some(first) = self.first.take() {
            let _ = first.send(());
        }
    }

    /// Makes the next poll read a refused snapshot again.
    pub(super) fn clear_refusal(&mut self) {
        self.refused = None;
    }

    /// Whether `current` may replace the served generation.
    ///
    /// A later sequence may, if its generation is not lower or a rollback is recorded. A generation
    /// above the highest known one always may, as no stale copy names it: the next publish repairs
    /// a lost `CURRENT`.
    pub(super) const fn is_superseded_by(&self, current: &Current, served: u64) -> bool {
        if current.generation > self.highest {
            return true;
        }
        if current.sequence <= self.sequence {
            return false;
        }
        let went_back = match current.rolled_back_from {
            Some(from) => from >= served,
            None => false,
        };
        current.generation >= served || went_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(sequence: u64, generation: u64, rolled_back_from: Option<u64>) -> Current {
        Current::new(sequence, generation, b"", rolled_back_from)
    }

    #[test]
    fn only_a_later_current_replaces_what_is_served() {
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
            let progress = Progress { sequence, highest, ..Progress::default() };
            let found = progress.is_superseded_by(&current, served);
            assert_eq!(found, expected, "{current:?} after {progress:?}, serving {served}");
        }
    }

    #[test]
    fn a_refused_current_is_skipped_with_exponential_backoff() {
        let (refused, other) = (current(2, 2, None), current(3, 3, None));
        let mut progress = Progress::default();
        for expected in [0, 1, 3, 7, 15, 31, 32, 32] {
            progress.refuse(refused.clone(), "digest");
            assert_eq!(progress.skip(&other), None);
            let skipped = (0..).take_while(|_| progress.skip(&refused) == Some("digest")).count();
            assert_eq!(skipped, expected);
        }
        progress.refuse(refused.clone(), "digest");
        progress.clear_refusal();
        assert_eq!(progress.skip(&refused), None);
    }
}
