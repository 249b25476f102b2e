//! Deltas on top of the filters: what they say of a device goes before what the filters say.
//!
//! Asked from the newest to the oldest, the first that speaks of a key decides; the erased come
//! before all of them. Deltas that were held before are shared with the snapshot before. What else
//! `CURRENT` says of the audience stands here too: whether it may be served, and until when.

use std::sync::Arc;

use super::current::{Current, State};
use super::delta::{Delta, DeltaEntry};
use crate::device::DeviceKey;

/// Deltas over one generation, verified and in memory.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// In the order in which they are asked.
    layers: Vec<Arc<Delta>>,
    has_tombstones: bool,
    /// How many of them `CURRENT` names; those after it are of what was served before
    /// ([`Overlay::over`]).
    named: usize,
    /// Which generation `CURRENT` names, and which publish of it.
    published_sequence: u64,
    /// Of the `CURRENT` that named them.
    sequence: u64,
    appended_unix_seconds: Option<u64>,
    state: State,
    expires_unix_seconds: Option<u64>,
}

impl Overlay {
    /// What a `CURRENT` says, with its deltas, oldest first, and its tombstones.
    ///
    /// # Panics
    ///
    /// If the deltas are not those that it names: a mistake of the caller, not of a file.
    pub fn new(current: &Current, deltas: Vec<Arc<Delta>>, tombstones: Option<Arc<Delta>>) -> Self {
        assert!(
            deltas.iter().map(|delta| delta.entry()).eq(&current.deltas),
            "the deltas of CURRENT, in its order"
        );
        assert_eq!(
            tombstones.as_ref().map(|delta| delta.entry()),
            current.tombstones.as_ref(),
            "its tombstones"
        );
        Self {
            named: deltas.len() + usize::from(tombstones.is_some()),
            has_tombstones: tombstones.is_some(),
            layers: tombstones.into_iter().chain(deltas.into_iter().rev()).collect(),
            ..Self::default().under(current)
        }
    }

    /// The same deltas, with what else a `CURRENT` says.
    #[must_use]
    pub fn under(self, current: &Current) -> Self {
        Self {
            sequence: current.sequence,
            published_sequence: current.published_sequence(),
            appended_unix_seconds: current.appended_unix_seconds,
            state: current.state,
            expires_unix_seconds: current.expires_unix_seconds,
            ..self
        }
    }

    /// This over what applied to another generation, whose shards are being replaced one by one.
    /// The older deltas are in the new generation already, where to apply them again changes
    /// nothing; the shards of the old one need both. What another `CURRENT` of the same publish
    /// named is not kept: this one has it all, and a pod may see many before it has the generation.
    #[must_use]
    pub fn over(mut self, old: &Self) -> Self {
        let is_new = |delta: &&Arc<Delta>| self.held(delta.entry()).is_none();
        let is_same_publish = self.published_sequence == old.published_sequence;
        let first = if is_same_publish { old.named } else { usize::from(old.has_tombstones) };
        let older: Vec<_> = old.layers[first..].iter().filter(is_new).cloned().collect();
        self.layers.extend(older);
        self
    }

    /// Why the audience may not be served at `now`, in seconds since 1970 UTC; `None` if it may.
    pub fn not_served(&self, now_unix_seconds: u64) -> Option<&'static str> {
        if !self.state.is_live() {
            return Some(self.state.as_str());
        }
        self.expires_unix_seconds.is_some_and(|end| end <= now_unix_seconds).then_some("expired")
    }

    /// Whether nothing is to be asked.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// What the deltas say of a key: a member, no member, or nothing. For most that none names, one
    /// read of memory each.
    #[inline]
    pub fn says(&self, key: &DeviceKey) -> Option<bool> {
        self.layers.iter().find_map(|delta| delta.says(key))
    }

    /// Reads the first bytes that [`Overlay::says`] will read, as
    /// [`Place::touch`](crate::filter::Place::touch) does.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.layers.iter().fold(0, |sum, delta| sum ^ delta.touch(key))
    }

    /// The delta of this name, if it is held.
    pub fn held(&self, entry: &DeltaEntry) -> Option<&Arc<Delta>> {
        self.layers.iter().find(|delta| delta.entry() == entry)
    }

    /// The deltas, oldest first.
    pub fn deltas(&self) -> impl DoubleEndedIterator<Item = &Arc<Delta>> {
        self.layers[usize::from(self.has_tombstones)..].iter().rev()
    }

    /// Devices that stay removed whatever is built.
    pub fn tombstones(&self) -> Option<&Arc<Delta>> {
        self.layers.first().filter(|_| self.has_tombstones)
    }

    /// Of the `CURRENT` that says all this.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the audience may be served.
    pub const fn state(&self) -> State {
        self.state
    }

    /// From when on it may not.
    pub const fn expires_unix_seconds(&self) -> Option<u64> {
        self.expires_unix_seconds
    }

    /// When the newest delta was published, in seconds since 1970 UTC.
    pub const fn appended_unix_seconds(&self) -> Option<u64> {
        self.appended_unix_seconds
    }

    /// Keys added, removed, and of devices with tombstones; a key that several deltas name counts
    /// for each.
    pub fn keys(&self) -> [u64; 3] {
        let sum =
            |count: fn(&DeltaEntry) -> u64| self.deltas().map(|delta| count(delta.entry())).sum();
        let tombstones = self.tombstones().map_or(0, |tombstones| tombstones.entry().removed);
        [sum(|entry| entry.added), sum(|entry| entry.removed), tombstones]
    }

    /// Bytes of all keys.
    pub fn size_bytes(&self) -> u64 {
        self.layers.iter().map(|delta| delta.entry().size_bytes()).sum()
    }
}
