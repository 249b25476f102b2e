//! Appending: exact changes, live with one write of `CURRENT`.
//!
//! ```text
//! read CURRENT ─▶ change ─▶ delta, merged with younger ones ─▶ put its file ─▶ replace CURRENT
//! ```
//!
//! `CURRENT` is replaced on the condition that it is the one that was read: of two writers one
//! loses, reads it again and appends to the other's. So changes are applied in one order, the same
//! for all readers, and none is lost; also not to a build, which takes up the deltas of its base
//! and leaves later ones in `CURRENT` (`write/live.rs`).
//!
//! A new delta is merged with the earlier ones that are smaller than four times itself: then there
//! are always few of them, and each key is written, and fetched by pods, a few times for each
//! tenfold growth of them all.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before `CURRENT` is replaced | the old state | a delta without a `CURRENT`; gc removes it |
//! | after | the changes | nothing |

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::deltas::put_delta;
use super::lock::lock_current;
use super::put::replace_current;
use super::writer::StoreWriter;
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::current_path;
use crate::read::Live;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{
    AudienceName, BuiltDelta, Current, Delta, DeltaEntry, Digest, MAX_DELTA_KEYS, MAX_DELTAS,
    SortedKeys, State,
};

/// A delta is merged into a new one that is larger than its fourth part.
const GROWTH: u64 = 4;

/// Changes to append. Of several entries for a key the last counts.
#[derive(Debug, Clone, Default)]
pub struct Change {
    members: Vec<(DeviceKey, bool)>,
    tombstones: Vec<(DeviceKey, bool)>,
}

impl Change {
    /// The device is a member from now on; but not one that has a tombstone.
    pub fn add(&mut self, key: DeviceKey) {
        self.members.push((key, true));
    }

    /// The device is a member no longer, until it is added again, or a build after the next has it.
    pub fn remove(&mut self, key: DeviceKey) {
        self.members.push((key, false));
    }

    /// The device is a member no longer, whatever is added or built, until [`Change::lift`].
    pub fn entomb(&mut self, key: DeviceKey) {
        self.tombstones.push((key, true));
    }

    /// The device's tombstone is taken away: it is what filters and deltas make of it.
    pub fn lift(&mut self, key: DeviceKey) {
        self.tombstones.push((key, false));
    }

    /// Keys named, those named twice included.
    pub fn len(&self) -> usize {
        self.members.len() + self.tombstones.len()
    }

    /// Whether nothing is to change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sorts by key and keeps the last entry of each. Returns the keys of either kind.
fn last_by_key(mut entries: Vec<(DeviceKey, bool)>) -> (Vec<DeviceKey>, Vec<DeviceKey>) {
    entries.reverse();
    entries.sort_by_key(|(key, _)| *key);
    entries.dedup_by_key(|(key, _)| *key);
    let (yes, no): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(_, is)| *is);
    let keys = |entries: Vec<(DeviceKey, bool)>| entries.into_iter().map(|(key, _)| key).collect();
    (keys(yes), keys(no))
}

/// Result of an append.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Of the `CURRENT` that names the change; of the one that was there, if nothing changed.
    pub sequence: u64,
    /// The generation that it applies to.
    pub generation: u64,
    /// Distinct keys added.
    pub added: u64,
    /// Distinct keys removed.
    pub removed: u64,
    /// Keys that were to be added and have a tombstone: left out.
    pub entombed: u64,
    /// Tombstones there are now.
    pub tombstones: u64,
    /// Deltas there are now, and the keys in them.
    pub deltas: u64,
    /// Keys in them all.
    pub delta_keys: u64,
    /// Bytes of files written.
    pub written_bytes: u64,
}

/// A writer's view of an audience: the `CURRENT` that it would replace, and the deltas that it has
/// read or written.
#[derive(Debug)]
pub struct Ledger {
    writer: StoreWriter,
    audience: AudienceName,
    live: Live,
    held: HashMap<Digest, Arc<Delta>>,
}

impl StoreWriter {
    /// Opens an audience for appending. One may be kept for any number of appends.
    ///
    /// # Errors
    ///
    /// The store's own, or [`StoreError::NotFound`] if nothing of the audience was ever published.
    pub async fn ledger(&self, audience: &AudienceName) -> Result<Ledger, StoreError> {
        let live = self.store().live(audience).await?.ok_or_else(|| not_published(audience))?;
        Ok(Ledger { writer: self.clone(), audience: audience.clone(), live, held: HashMap::new() })
    }
}

fn not_published(audience: &AudienceName) -> StoreError {
    StoreError::NotFound { path: current_path(audience).to_string() }
}

impl Ledger {
    /// The `CURRENT` that the next append is to replace.
    pub const fn current(&self) -> &Current {
        &self.live.current
    }

    /// Reads `CURRENT` again. Returns whether another writer has replaced it.
    ///
    /// # Errors
    ///
    /// As of [`StoreWriter::ledger`].
    pub async fn refresh(&mut self) -> Result<bool, StoreError> {
        let live = self.writer.store().live_since(&self.audience, Some(&self.live)).await?;
        let live = live.ok_or_else(|| not_published(&self.audience))?;
        let is_new = live.current.sequence != self.live.current.sequence;
        self.live = live;
        self.drop_unnamed();
        Ok(is_new)
    }

    /// A delta, from what is held or from the store.
    ///
    /// # Errors
    ///
    /// The store's own, or a delta that is refused.
    pub async fn delta(&mut self, entry: &DeltaEntry) -> Result<Arc<Delta>, StoreError> {
        if let Some(delta) = self.held.get(&entry.sha256).filter(|delta| delta.entry() == entry) {
            return Ok(Arc::clone(delta));
        }
        let delta = Arc::new(self.writer.store().delta(&self.audience, entry).await?);
        self.held.insert(entry.sha256, Arc::clone(&delta));
        Ok(delta)
    }

    /// Publishes a change over the `CURRENT` of this ledger. Nothing is written if nothing changes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster: [`Ledger::refresh`], and decide
    /// again. [`StoreError::TooManyDeltas`] if a build is due first, [`StoreError::NotLive`] if the
    /// audience was disabled or deleted.
    pub async fn append(&mut self, change: Change) -> Result<Appended, StoreError> {
        let current = self.live.current.clone();
        if current.state != State::Live {
            return Err(StoreError::NotLive {
                audience: self.audience.clone(),
                state: current.state,
            });
        }
        let (entomb, lift) = last_by_key(change.tombstones);
        let (mut add, remove) = last_by_key(change.members);
        let mut next = current.next();
        let mut files = Vec::new();
        if !entomb.is_empty() || !lift.is_empty() {
            let old = match &current.tombstones {
                Some(entry) => Some(self.delta(entry).await?),
                None => None,
            };
            let old = old.as_ref().map_or(&[][..], |old| old.removed());
            let lifted = SortedKeys::sort(lift);
            let kept = old.iter().filter(|key| !lifted.contains(key)).copied();
            let all: Vec<DeviceKey> = kept.chain(entomb).collect();
            let first = current.tombstones.as_ref().map_or(next.sequence, |entry| entry.first);
            let keys = all.len() as u64;
            if keys > MAX_DELTA_KEYS {
                return Err(StoreError::TooManyDeltas { audience: self.audience.clone(), keys });
            }
            let tombstones = BuiltDelta::new(first, next.sequence, Vec::new(), all);
            let is_same = |built: &&BuiltDelta| built.delta.removed()[..] == *old;
            if tombstones.as_ref().filter(is_same).is_none() {
                next.tombstones = tombstones.as_ref().map(|built| built.delta.entry().clone());
                files.extend(tombstones);
            }
        }
        let asked = add.len();
        if !add.is_empty()
            && let Some(entry) = &next.tombstones
        {
            let tombstones = match files.first() {
                Some(built) => &built.delta,
                None => &*self.delta(entry).await?,
            };
            add.retain(|key| !tombstones.removed().contains(key));
        }
        let mut appended = Appended {
            added: add.len() as u64,
            removed: remove.len() as u64,
            entombed: (asked - add.len()) as u64,
            ..Appended::default()
        };
        let has_new_tombstones = next.tombstones != current.tombstones;
        if let Some(built) = self.merged(next.sequence, add, remove, &mut next.deltas).await? {
            files.push(built);
        } else if !has_new_tombstones {
            return Ok(described(appended, &current));
        }
        next.appended_unix_seconds =
            SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs());
        appended.written_bytes = files.iter().map(|built| built.bytes.len() as u64).sum();
        self.publish(&next, files).await?;
        Ok(described(appended, &next))
    }

    /// The same audience in another state, or with another time at which it ends.
    ///
    /// # Errors
    ///
    /// As of [`Ledger::append`], but for the state.
    pub async fn set(
        &mut self,
        state: State,
        expires_unix_seconds: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut next = self.live.current.next();
        (next.state, next.expires_unix_seconds) = (state, expires_unix_seconds);
        self.publish(&next, Vec::new()).await
    }

    /// The new delta, merged with the younger ones of `deltas`, in `deltas` and as a file; `None`
    /// if nothing is new.
    async fn merged(
        &mut self,
        sequence: u64,
        add: Vec<DeviceKey>,
        remove: Vec<DeviceKey>,
        deltas: &mut Vec<DeltaEntry>,
    ) -> Result<Option<BuiltDelta>, StoreError> {
        let Some(mut built) =
            blocking(move || BuiltDelta::new(sequence, sequence, add, remove)).await
        else {
            return Ok(None);
        };
        let keys = built.delta.entry().keys();
        // A rollback may leave these out, so they are not merged with later ones; but a full list
        // is merged all the same, as an append would fail otherwise.
        let through = self.live.current.no_merge_through.unwrap_or(0);
        let apart = deltas.partition_point(|delta| delta.last <= through);
        let apart = if apart < MAX_DELTAS { apart } else { 0 };
        let kept = apart + kept_beside(&deltas[apart..], keys, MAX_DELTAS - apart);
        if kept >= MAX_DELTAS || keys > MAX_DELTA_KEYS {
            return Err(StoreError::TooManyDeltas { audience: self.audience.clone(), keys });
        }
        let younger = deltas.split_off(kept);
        if !younger.is_empty() {
            let mut parts = Vec::with_capacity(younger.len());
            for entry in &younger {
                parts.push(self.delta(entry).await?);
                // Merged, it is needed no longer.
                self.held.remove(&entry.sha256);
            }
            built = blocking(move || {
                let parts = parts.iter().map(|part| &**part).chain([&built.delta]);
                BuiltDelta::merged(sequence, parts).expect("the new one has keys")
            })
            .await;
        }
        deltas.push(built.delta.entry().clone());
        Ok(Some(built))
    }

    /// Files first, then `CURRENT`.
    async fn publish(&mut self, next: &Current, files: Vec<BuiltDelta>) -> Result<(), StoreError> {
        let _lock = lock_current(self.writer.backend(), &self.audience).await?;
        if self.writer.backend().is_directory() {
            // Under the lock, as a rename asks for nothing.
            let live = self.writer.store().live(&self.audience).await?;
            if live.as_ref().map(|live| live.current.sequence) != Some(self.live.current.sequence) {
                let reason = "another loader wrote meanwhile".to_owned();
                return Err(StoreError::Conflict {
                    audience: self.audience.clone(),
                    reason,
                    passes: false,
                });
            }
        }
        for built in &files {
            // Its name has the sequence that only this writer is about to write: no gc removes it.
            put_delta(&self.writer, &self.audience, built).await?;
        }
        // After a conflict the content of `CURRENT` decides: another writer's must not equal ours.
        let mut next = next.clone();
        next.owner = Some(random_owner());
        self.live =
            replace_current(self.writer.backend(), &self.audience, Some(&self.live), &next).await?;
        for BuiltDelta { delta, .. } in files {
            self.held.insert(delta.entry().sha256, Arc::new(delta));
        }
        self.drop_unnamed();
        Ok(())
    }

    /// Drops deltas that `CURRENT` no longer names: a ledger may be kept for months, and other
    /// writers merge too.
    fn drop_unnamed(&mut self) {
        let current = &self.live.current;
        let is_named = |delta: &Delta| {
            current.deltas.iter().chain(&current.tombstones).any(|entry| entry == delta.entry())
        };
        self.held.retain(|_, delta| is_named(delta));
    }
}

/// The number of deltas that stay as they are when one of `keys` keys comes. The others are merged
/// with it, so that there are at most `most`.
fn kept_beside(deltas: &[DeltaEntry], keys: u64, most: usize) -> usize {
    let (mut kept, mut total) = (deltas.len(), keys);
    while let Some(before) = kept.checked_sub(1).map(|index| deltas[index].keys()) {
        let is_due = before < GROWTH.saturating_mul(total) || kept >= most;
        if !is_due || before.saturating_add(total) > MAX_DELTA_KEYS {
            break;
        }
        (kept, total) = (kept - 1, total + before);
    }
    kept
}

/// A random number that every JSON reader can hold.
fn random_owner() -> u64 {
    RandomState::new().build_hasher().finish() >> 11
}

fn described(appended: Appended, current: &Current) -> Appended {
    Appended {
        sequence: current.sequence,
        generation: current.generation,
        tombstones: current.tombstones.as_ref().map_or(0, DeltaEntry::keys),
        deltas: current.deltas.len() as u64,
        delta_keys: current.deltas.iter().map(DeltaEntry::keys).sum(),
        ..appended
    }
}
