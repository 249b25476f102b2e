//! Sync state of an audience between polls: the last accepted record and the last refused one.

use tokio::sync::oneshot;

use super::pace::Pace;
use rtad_core::backoff::Backoff;
use rtad_core::snapshot::Current;
use rtad_store::Live;

/// Upper limit of the backoff of a refused record: 32 polls skip it, the next one reads it.
const MAX_BACKOFF_POLLS: u32 = 33;

/// Sync state of one audience.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The newest record that was read, from the store or the cache, served or not. Whole, as a
    /// copy of the store may have another record with its number.
    newest: Option<Current>,
    /// The record that is served.
    accepted: Option<Current>,
    /// The record of the last read, accepted or not. The next read begins at it.
    pub(super) live: Option<Live>,
    refused: Option<Refused>,
    /// Whether the store failed at the start, and the cache could not be served either: the next
    /// polls wait for a slow store.
    pub(super) is_cache_unusable: bool,
    pub(super) pace: Pace,
    /// Signaled once the audience is served or was polled once.
    pub(super) first: Option<oneshot::Sender<()>>,
}

/// A refused record, and its backoff.
#[derive(Debug)]
pub(super) struct Refused {
    /// The whole record, as in `accepted`. Later ones with the same refused generation take its
    /// place.
    current: Current,
    part: RefusedPart,
    polls_to_skip: u32,
    backoff: Backoff,
    pub(super) cause: &'static str,
}

/// The part of a record that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusedPart {
    /// The manifest or the deltas, which cost little to read: any other record is read at once.
    Files,
    /// The chunks: a record that adds deltas to the same generation is refused too.
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
    /// Records that `current` was read. From now on, no record before it may be served: it may have
    /// erasures that an older one lacks.
    pub(super) fn see(&mut self, current: &Current) {
        if !self.is_stale(current) {
            self.newest = Some(current.clone());
        }
    }

    /// The newest record that was read.
    pub(super) const fn newest(&self) -> Option<&Current> {
        self.newest.as_ref()
    }

    /// Whether a record is from an old copy of the store: it is older than the newest one that was
    /// read, or another one in its place.
    pub(super) fn is_stale(&self, current: &Current) -> bool {
        let newest = self.newest.as_ref();
        newest.is_some_and(|newest| newest != current && current.position() <= newest.position())
    }

    /// Records that `current` is served.
    pub(super) fn accept(&mut self, current: &Current) {
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

    /// Records that a poll skipped the refused record.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn current(sequence: u64, generation: u64, rolled_back_from: Option<u64>) -> Current {
        Current::new(sequence, generation, b"", rolled_back_from)
    }

    #[test]
    fn only_a_later_record_replaces_the_served_one() {
        let rolled_back = current(6, 3, Some(5));
        for (newest, next, is_stale) in [
            (current(5, 5, None), current(6, 6, None), false),
            (current(5, 5, None), current(5, 5, None), false),
            (current(5, 5, None), current(4, 4, None), true),
            // A lower generation without a recorded rollback.
            (current(5, 5, None), current(6, 3, None), true),
            (current(5, 5, None), current(6, 3, Some(4)), true),
            (current(5, 5, None), rolled_back.clone(), false),
            (rolled_back.clone(), current(7, 5, None), false),
            (rolled_back.clone(), current(5, 5, None), true),
            // Another record in its place.
            (rolled_back.clone(), current(6, 5, None), true),
            // Numbers begin anew after a loss of all records; the next publish has a higher
            // generation.
            (current(9, 5, None), current(1, 6, None), false),
            (current(1, 6, None), current(10, 5, None), true),
        ] {
            let mut progress = Progress::default();
            assert!(!progress.is_stale(&next));
            progress.see(&newest);
            assert_eq!(
                progress.is_stale(&next),
                is_stale,
                "{next:?} after {newest:?}"
            );
            progress.see(&next);
            let expected = if is_stale { &newest } else { &next };
            assert_eq!(progress.newest(), Some(expected));
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
