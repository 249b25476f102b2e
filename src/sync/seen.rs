//! What is remembered of an audience between looks: which `CURRENT` is newer, and what was refused.

use rtad_core::snapshot::{Current, Digest};
use rtad_store::Live;

/// A snapshot that was refused is not read again before this many poll intervals, unless something new is published.
const MAX_BACKOFF_POLLS: u32 = 32;

/// What is remembered of an audience between looks.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of the newest `CURRENT` that was accepted.
    pub(super) sequence: u64,
    /// The highest generation that any accepted `CURRENT` spoke of.
    pub(super) highest: u64,
    /// Digest of the manifest that it names.
    manifest: Option<Digest>,
    /// The `CURRENT` that was read last, accepted or not: the next is asked for on the condition that it is another.
    pub(super) live: Option<Live>,
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Refused {
    /// All of it, not its sequence alone: a `CURRENT` that was restored by hand counts on from where it was.
    current: Current,
    polls_to_skip: u32,
    next_skip: u32,
    result: &'static str,
}

impl Seen {
    /// `current` is served now.
    pub(super) fn accept(&mut self, current: &Current) {
        self.sequence = current.sequence;
        self.highest = self.highest.max(current.highest_generation());
        self.manifest = Some(current.manifest_sha256);
        self.refused = None;
    }

    /// Whether `current` names the very generation that was accepted last: then only what is said over it may have changed.
    pub(super) fn is_of_accepted(&self, current: &Current) -> bool {
        self.manifest == Some(current.manifest_sha256)
    }

    /// `current` was read and refused: it is left alone for ever more polls.
    pub(super) fn refuse(&mut self, current: Current, result: &'static str) {
        let again = self.refused.take().filter(|refused| refused.current == current);
        let polls_to_skip = again.map_or(0, |refused| refused.next_skip);
        let next_skip = (polls_to_skip * 2 + 1).min(MAX_BACKOFF_POLLS);
        self.refused = Some(Refused { current, polls_to_skip, next_skip, result });
    }

    /// The cause for which `current` was refused, if it is not yet worth another try.
    pub(super) fn skips(&mut self, current: &Current) -> Option<&'static str> {
        let refused = self.refused.as_mut().filter(|refused| refused.current == *current)?;
        refused.polls_to_skip = refused.polls_to_skip.checked_sub(1)?;
        Some(refused.result)
    }

    /// What was refused is tried again at the next look.
    pub(super) fn forgive(&mut self) {
        self.refused = None;
    }

    /// Whether `current` may replace a generation that is served: it was written later, and it goes forward unless an operator
    /// went back on purpose. A generation above all that were ever spoken of is later whatever the sequence says, as no stale
    /// copy can name it: so a `CURRENT` that was lost, and with it the count, is made good by the next publish.
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
            // `CURRENT` was lost and with it the count; the next publish goes above all the same.
            (current(1, 6, None), (9, 5), 5, true),
            (current(1, 5, None), (9, 5), 3, false),
        ] {
            let seen = Seen { sequence, highest, ..Seen::default() };
            let found = seen.is_superseded_by(&current, served);
            assert_eq!(found, expected, "{current:?} after {seen:?}, serving {served}");
        }
    }

    #[test]
    fn what_is_refused_is_tried_after_ever_more_polls_and_anything_else_at_once() {
        let (refused, other) = (current(2, 2, None), current(3, 3, None));
        let mut seen = Seen::default();
        for expected in [0, 1, 3, 7, 15, 31, 32, 32] {
            seen.refuse(refused.clone(), "digest");
            assert_eq!(seen.skips(&other), None);
            let skipped = (0..).take_while(|_| seen.skips(&refused) == Some("digest")).count();
            assert_eq!(skipped, expected);
        }
        seen.refuse(refused.clone(), "digest");
        seen.forgive();
        assert_eq!(seen.skips(&refused), None);
    }
}
