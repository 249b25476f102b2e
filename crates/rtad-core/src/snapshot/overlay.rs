//! Overlay: the deltas and tombstones of an audience, which take precedence over its filters.
//!
//! A lookup goes from the newest delta to the oldest; the first that names the key decides.
//! Tombstones come before all deltas. Successive snapshots share deltas. The overlay also has the
//! other fields of `CURRENT`: the state and the end of validity.

use std::sync::Arc;

use super::current::{Current, State, stricter};
use super::delta::{Delta, DeltaEntry};
use crate::device::DeviceKey;

/// Verified deltas of one generation, in memory.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// The layers in the order of lookups.
    layers: Vec<Arc<Delta>>,
    has_tombstones: bool,
    /// Number of layers that `CURRENT` names; the rest belong to the generation before
    /// ([`Overlay::layered_over`]).
    current_layers: usize,
    /// Whether `CURRENT` names a generation of which no filters are loaded yet.
    is_ahead: bool,
    /// Identifies the publish of the generation.
    published_sequence: u64,
    sequence: u64,
    appended_unix_seconds: Option<u64>,
    state: State,
    expires_unix_seconds: Option<u64>,
}

impl Overlay {
    /// The overlay of a `CURRENT`, with its deltas, oldest first, and its tombstones.
    ///
    /// # Panics
    ///
    /// If they do not match the entries of `CURRENT`: an error of the caller, not of a file.
    pub fn new(current: &Current, deltas: Vec<Arc<Delta>>, tombstones: Option<Arc<Delta>>) -> Self {
        assert!(
            deltas.iter().map(|delta| delta.entry()).eq(&current.deltas),
            "deltas match CURRENT, in its order"
        );
        assert_eq!(
            tombstones.as_ref().map(|delta| delta.entry()),
            current.tombstones.as_ref(),
            "tombstones match CURRENT"
        );
        Self {
            current_layers: deltas.len() + usize::from(tombstones.is_some()),
            has_tombstones: tombstones.is_some(),
            layers: tombstones.into_iter().chain(deltas.into_iter().rev()).collect(),
            ..Self::default().with_current(current)
        }
    }

    /// The same deltas with the other fields of `current`.
    #[must_use]
    pub fn with_current(self, current: &Current) -> Self {
        Self {
            sequence: current.sequence,
            published_sequence: current.published_sequence(),
            appended_unix_seconds: current.appended_unix_seconds,
            state: current.state,
            expires_unix_seconds: current.expires_unix_seconds,
            ..self
        }
    }

    /// The same deltas with the stricter state and end of validity of both: `current` is known
    /// before its deltas are.
    #[must_use]
    pub fn restricted_by(self, current: &Current) -> Self {
        let (state, expires_unix_seconds) = stricter(
            (self.state, self.expires_unix_seconds),
            (current.state, current.expires_unix_seconds),
        );
        Self { state, expires_unix_seconds, ..self }
    }

    /// Adds the deltas of the loaded generation below this one's, while its shards are replaced.
    /// The old shards need both; for the new ones the older deltas are merged already and change
    /// nothing. Deltas of another `CURRENT` are dropped if no loaded shard needs them: otherwise
    /// the layers would grow with every append, and with every generation that is refused. Over a
    /// deletion the result stays deleted: the old shards must not answer again.
    #[must_use]
    pub fn layered_over(mut self, old: &Self) -> Self {
        let is_same_publish = self.published_sequence == old.published_sequence;
        let first = if is_same_publish || old.is_ahead {
            old.current_layers
        } else {
            usize::from(old.has_tombstones)
        };
        self.is_ahead = !is_same_publish || old.is_ahead;
        // The next CURRENT may drop this one's deltas, but not those of the loaded generation.
        let is_kept = |delta: &&Arc<Delta>| self.is_ahead || self.find(delta.entry()).is_none();
        let older: Vec<_> = old.layers[first..].iter().filter(is_kept).cloned().collect();
        self.layers.extend(older);
        if old.state == State::Deleted {
            self.state = State::Deleted;
        }
        self
    }

    /// The same layers, once the first shards of the generation that `CURRENT` names are loaded.
    #[must_use]
    pub fn joined(self) -> Self {
        Self { is_ahead: false, ..self }
    }

    /// The same deltas with other tombstones: erasures apply to a loaded generation although the
    /// next one is refused.
    #[must_use]
    pub fn with_tombstones(mut self, tombstones: Option<Arc<Delta>>) -> Self {
        if self.has_tombstones {
            self.layers.remove(0);
            self.current_layers -= 1;
        }
        self.has_tombstones = tombstones.is_some();
        self.current_layers += usize::from(self.has_tombstones);
        self.layers.splice(0..0, tombstones);
        self
    }

    /// Number of deltas, tombstones included.
    pub const fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Reason why the audience may not be served at `now`, in seconds since 1970 UTC.
    pub fn not_served(&self, now_unix_seconds: u64) -> Option<&'static str> {
        if !self.state.is_live() {
            return Some(self.state.as_str());
        }
        self.expires_unix_seconds.is_some_and(|end| end <= now_unix_seconds).then_some("expired")
    }

    /// Whether there are no deltas and no tombstones.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Whether the key is a member: `None` if no layer names it. Most such keys cost one memory
    /// read per layer.
    #[inline]
    pub fn membership(&self, key: &DeviceKey) -> Option<bool> {
        self.layers.iter().find_map(|delta| delta.membership(key))
    }

    /// Reads the first bytes that [`Overlay::membership`] will read, as
    /// [`ProbeTarget::touch`](crate::filter::ProbeTarget::touch) does.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.layers.iter().fold(0, |sum, delta| sum ^ delta.touch(key))
    }

    /// The delta with this entry, if it is in memory.
    pub fn find(&self, entry: &DeltaEntry) -> Option<&Arc<Delta>> {
        self.layers.iter().find(|delta| delta.entry() == entry)
    }

    /// The deltas, oldest first.
    pub fn deltas(&self) -> impl DoubleEndedIterator<Item = &Arc<Delta>> {
        self.layers[usize::from(self.has_tombstones)..].iter().rev()
    }

    /// Devices that stay removed in every generation.
    pub fn tombstones(&self) -> Option<&Arc<Delta>> {
        self.layers.first().filter(|_| self.has_tombstones)
    }

    /// Sequence of `CURRENT`.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the audience may be served.
    pub const fn state(&self) -> State {
        self.state
    }

    /// End of validity, in seconds since 1970 UTC; not served from then on.
    pub const fn expires_unix_seconds(&self) -> Option<u64> {
        self.expires_unix_seconds
    }

    /// When the newest delta was published, in seconds since 1970 UTC.
    pub const fn appended_unix_seconds(&self) -> Option<u64> {
        self.appended_unix_seconds
    }

    /// Numbers of keys added, removed, and with tombstones. A key counts once per delta.
    pub fn keys(&self) -> [u64; 3] {
        let sum =
            |count: fn(&DeltaEntry) -> u64| self.deltas().map(|delta| count(delta.entry())).sum();
        let tombstones = self.tombstones().map_or(0, |tombstones| tombstones.entry().removed);
        [sum(|entry| entry.added), sum(|entry| entry.removed), tombstones]
    }

    /// Size of all layers' files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.layers.iter().map(|delta| delta.entry().size_bytes()).sum()
    }
}
