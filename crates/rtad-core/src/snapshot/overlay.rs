//! Overlay: the deltas and tombstones of an audience, which take precedence over its filters.
//!
//! A lookup goes from the newest delta to the oldest; the first that names the key decides.
//! Tombstones come before all deltas. Successive snapshots share deltas. The overlay also has the
//! other fields of the record: the state and the end of validity.
//!
//! A pod learns about a newer record step by step. [`Overlay::over`] is the one way from the
//! served overlay to the next:
//!
//! | step ([`Newer`]) | state and expiry | tombstones | deltas |
//! |---|---|---|---|
//! | `Current`: only the record is read | the stricter of both | served | served |
//! | `Tombstones`: only they are read | served | newer | served |
//! | `Deltas`: all but the filters is read | newer, but a deletion stays | newer | newer, then those that the served filters need |
//! | `Filters`: the first ones are served | served | served | served |

use std::sync::Arc;

use super::current::{Current, State, Validity};
use super::delta::{BuiltDelta, Delta, DeltaEntry};
use crate::device::DeviceKey;

/// Verified deltas of one generation, in memory.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// The layers in the order of lookups: tombstones, the deltas of the record, and while the
    /// served filters are of the generation before, its deltas.
    layers: Vec<Arc<Delta>>,
    has_tombstones: bool,
    /// Number of layers that the record names, the first ones: see [`Overlay::needed_below`].
    current_layers: usize,
    /// Whether the record names a generation of which no filters are served yet.
    is_ahead: bool,
    /// Identifies the publish of the generation.
    published_sequence: u64,
    sequence: u64,
    appended_unix_seconds: Option<u64>,
    /// The generation that the record stages.
    staged_generation: Option<u64>,
    validity: Validity,
}

/// A part of a newer record that is known, in the order in which a poll reads them.
#[derive(Debug, Clone)]
pub enum Newer<'a> {
    /// The record alone. It restricts: making an audience available takes its deltas. A
    /// deletion has none, and is complete.
    Current(&'a Current),
    /// Its tombstones, while its other files cannot be read or are refused: erasures apply to every
    /// generation.
    Tombstones(Option<Arc<Delta>>),
    /// Its deltas and tombstones. The served filters are those of the record, or of an earlier
    /// generation.
    Deltas(Overlay),
    /// The first filters of the generation that it names. Its deltas are served already.
    Filters,
}

impl Overlay {
    /// The overlay of a record, with the files of [`Current::delta_entries`].
    ///
    /// # Panics
    ///
    /// If they do not match the entries: an error of the caller, not of a file.
    pub fn new(current: &Current, mut files: Vec<Arc<Delta>>) -> Self {
        assert!(
            files
                .iter()
                .map(|file| file.entry())
                .eq(current.delta_entries()),
            "files match the record, in its order"
        );

        let has_tombstones = current.tombstones.is_some();
        files[usize::from(has_tombstones)..].reverse();
        Self {
            current_layers: files.len(),
            has_tombstones,
            layers: files,
            is_ahead: false,
            published_sequence: current.published_sequence(),
            sequence: current.sequence,
            appended_unix_seconds: current.appended_unix_seconds,
            staged_generation: current.staged.map(|staged| staged.entry.generation),
            validity: current.validity(),
        }
    }

    /// The overlay to serve after `served`, once a part of a newer record is known. The table of
    /// the module shows its content.
    #[must_use]
    pub fn over(served: &Self, newer: Newer<'_>) -> Self {
        match newer {
            Newer::Current(current) if current.state == State::Deleted => Self {
                published_sequence: current.published_sequence(),
                sequence: current.sequence,
                appended_unix_seconds: current.appended_unix_seconds,
                validity: current.validity(),
                ..served.clone()
            },
            Newer::Current(current) => Self {
                validity: served.validity.stricter(current.validity()),
                ..served.clone()
            },
            Newer::Tombstones(tombstones) => {
                let deltas = &served.layers[usize::from(served.has_tombstones)..];
                let current_deltas = served.current_layers - usize::from(served.has_tombstones);
                Self {
                    current_layers: current_deltas + usize::from(tombstones.is_some()),
                    has_tombstones: tombstones.is_some(),
                    layers: tombstones
                        .into_iter()
                        .chain(deltas.iter().cloned())
                        .collect(),
                    ..served.clone()
                }
            }
            Newer::Deltas(mut next) => {
                next.is_ahead =
                    served.is_ahead || next.published_sequence != served.published_sequence;
                next.layers.extend(served.needed_below(&next));
                // The filters of a deleted audience must not answer again.
                if served.state() == State::Deleted {
                    next.validity.state = State::Deleted;
                }
                next
            }
            Newer::Filters => Self {
                is_ahead: false,
                ..served.clone()
            },
        }
    }

    /// The deltas that the served filters need below those of `next`. The filters of `next` have
    /// them merged, so that they change nothing there.
    ///
    /// Layers over the filters of generation 5; the record names those before the bar:
    ///
    /// ```text
    /// record of generation 5              tombstones, d5
    /// record of generation 6, is_ahead    tombstones, d6 | d5
    /// after an append, is_ahead           tombstones, d7, d6 | d5
    /// record of generation 7, is_ahead    tombstones, d8 | d7 + d6 + d5, merged
    /// ```
    ///
    /// The number of layers does not grow: an append drops the deltas of the record before, and
    /// those over a generation of which no filters were served are merged into one. That takes time
    /// in proportion to their keys, at the publish after a refused one.
    fn needed_below(&self, next: &Self) -> Vec<Arc<Delta>> {
        // A `next` of the same publish names those of the current deltas that still apply.
        let is_same_publish = self.published_sequence == next.published_sequence;
        let first = if is_same_publish {
            self.current_layers
        } else {
            usize::from(self.has_tombstones)
        };

        // The next record may drop a delta of `next`, but not one that served filters need.
        let mut needed = Vec::new();
        for delta in &self.layers[first..] {
            if next.is_ahead || next.find(delta.entry()).is_none() {
                needed.push(Arc::clone(delta));
            }
        }
        if is_same_publish || !self.is_ahead || needed.len() < 2 {
            return needed;
        }

        let mut last = 0;
        for delta in &needed {
            last = last.max(delta.entry().last);
        }
        let oldest_first = needed.iter().rev().map(|delta| &**delta);
        match BuiltDelta::merged(last, oldest_first) {
            Some(built) => vec![Arc::new(built.delta)],
            None => Vec::new(),
        }
    }

    /// The generation that a share of the pods serves; `None` if none is staged.
    pub const fn staged_generation(&self) -> Option<u64> {
        self.staged_generation
    }

    /// Number of deltas, tombstones included.
    pub const fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Reason why the audience may not be served at `now`, in seconds since 1970 UTC.
    pub fn not_served(&self, now_unix_seconds: u64) -> Option<&'static str> {
        if !self.state().is_live() {
            return Some(self.state().as_str());
        }
        self.expires_unix_seconds()
            .is_some_and(|end| end <= now_unix_seconds)
            .then_some("expired")
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

    /// The value of a key that a layer names, and has as a member; `None` if no layer names it. As
    /// for the membership, the newest layer decides.
    pub fn value(&self, key: &DeviceKey) -> Option<Option<u8>> {
        for delta in &self.layers {
            match delta.membership(key) {
                Some(true) => return Some(delta.value(key)),
                Some(false) => return Some(None),
                None => {}
            }
        }
        None
    }

    /// Reads the first bytes that [`Overlay::membership`] will read, as
    /// [`ProbeTarget::touch`](crate::filter::ProbeTarget::touch) does.
    #[inline]
    pub fn touch(&self, key: &DeviceKey) -> u64 {
        self.layers
            .iter()
            .fold(0, |sum, delta| sum ^ delta.touch(key))
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

    /// Sequence of the record.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the audience may be served.
    pub const fn state(&self) -> State {
        self.validity.state
    }

    /// The state and the end of validity.
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// End of validity, in seconds since 1970 UTC; not served from then on.
    pub const fn expires_unix_seconds(&self) -> Option<u64> {
        self.validity.expires_unix_seconds
    }

    /// When the newest delta was published, in seconds since 1970 UTC.
    pub const fn appended_unix_seconds(&self) -> Option<u64> {
        self.appended_unix_seconds
    }

    /// Numbers of keys added, removed, and with tombstones. A key counts once per delta.
    pub fn keys(&self) -> [u64; 3] {
        let sum =
            |count: fn(&DeltaEntry) -> u64| self.deltas().map(|delta| count(delta.entry())).sum();
        let tombstones = self
            .tombstones()
            .map_or(0, |tombstones| tombstones.entry().removed);
        [
            sum(|entry| entry.added),
            sum(|entry| entry.removed),
            tombstones,
        ]
    }

    /// Size of all layers' files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.layers
            .iter()
            .map(|delta| delta.entry().size_bytes())
            .sum()
    }
}
