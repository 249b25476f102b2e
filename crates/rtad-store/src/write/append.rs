//! Appends: exact changes, made live by one record.
//!
//! ```text
//! read the newest record ─▶ change ─▶ delta, merged with younger ones ─▶ put its file ─▶ next record
//! ```
//!
//! One of two concurrent writers loses, reads again and appends to the other's. All readers
//! therefore see changes in one order, and none is lost. A build folds in the deltas of its base
//! and leaves later ones in the record (`write/live.rs`).
//!
//! A new delta is merged with earlier ones of less than four times its size. This keeps the list
//! short, and each key is rewritten only a few times per tenfold growth.
//!
//! | killed | visible to readers | left behind |
//! |---|---|---|
//! | before the record | the old state | a delta that no record names; gc removes it |
//! | after | the changes | nothing |

use std::collections::HashMap;
use std::sync::Arc;

use super::change::{Change, MemberChanges};
use super::update::RecordUpdate;
use super::writer::StoreWriter;
use crate::blocking::blocking;
use crate::error::StoreError;
use crate::layout::MAX_TOMBSTONES;
use crate::read::Live;
use rtad_core::clock;
use rtad_core::device::DeviceKey;
use rtad_core::snapshot::{
    AudienceName, BuiltDelta, Current, Delta, DeltaEntry, Digest, MAX_DELTA_KEYS, MAX_DELTAS,
    SortedKeys, State,
};

/// Deltas of less than this many times a new delta's size are merged with it.
const GROWTH: u64 = 4;

/// Result of an append.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Appended {
    /// Number of the new record; of the old one, if nothing changed.
    pub sequence: u64,
    /// The generation that it applies to.
    pub generation: u64,
    /// Distinct keys added.
    pub added: u64,
    /// Distinct keys removed.
    pub removed: u64,
    /// Keys not added because they have a tombstone.
    pub entombed: u64,
    /// Tombstones after the append.
    pub tombstones: u64,
    /// Deltas after the append.
    pub deltas: u64,
    /// Keys in all deltas after the append.
    pub delta_keys: u64,
    /// Bytes of files written.
    pub written_bytes: u64,
}

/// A writer's state of an audience: the record to follow, and the deltas read or written so far.
#[derive(Debug)]
pub struct Ledger {
    writer: StoreWriter,
    audience: AudienceName,
    live: Live,
    held: HashMap<Digest, Arc<Delta>>,
}

impl StoreWriter {
    /// Opens an audience for any number of appends.
    ///
    /// # Errors
    ///
    /// A store error, or [`StoreError::NotFound`] if nothing of the audience was ever published.
    pub async fn ledger(&self, audience: &AudienceName) -> Result<Ledger, StoreError> {
        let live = self.store().require_live(audience, None).await?;
        let writer = self.clone();
        let audience = audience.clone();
        Ok(Ledger {
            writer,
            audience,
            live,
            held: HashMap::new(),
        })
    }
}

impl Ledger {
    /// The state that the next append changes.
    pub const fn current(&self) -> &Current {
        &self.live.current
    }

    /// Lets time pass since the record was read.
    #[cfg(test)]
    pub fn age(&mut self, by: std::time::Duration) {
        self.live.age(by);
    }

    /// Reads the newest record. Returns whether another writer has created it.
    ///
    /// # Errors
    ///
    /// Those of [`StoreWriter::ledger`].
    pub async fn refresh(&mut self) -> Result<bool, StoreError> {
        let store = self.writer.store();
        let live = store.require_live(&self.audience, Some(&self.live)).await?;
        // By content: records that were removed by hand may be followed by others of their numbers.
        let is_new = live.object() != self.live.object();
        self.live = live;
        self.drop_unnamed();
        Ok(is_new)
    }

    /// A delta, held or from the store.
    ///
    /// # Errors
    ///
    /// A store error, or a refused delta.
    pub async fn delta(&mut self, entry: &DeltaEntry) -> Result<Arc<Delta>, StoreError> {
        if let Some(delta) = self
            .held
            .get(&entry.sha256)
            .filter(|delta| delta.entry() == entry)
        {
            return Ok(Arc::clone(delta));
        }
        let delta = Arc::new(self.writer.store().delta(&self.audience, entry).await?);
        self.held.insert(entry.sha256, Arc::clone(&delta));
        Ok(delta)
    }

    /// Publishes a change over the state of this ledger. Nothing is written if nothing changes, but
    /// the store is read again: a tombstone in this ledger may have been lifted since.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`] if another writer was faster: call [`Ledger::refresh`] and retry.
    /// [`StoreError::TooManyDeltas`] if a build must come first, [`StoreError::TooManyTombstones`],
    /// [`StoreError::NotLive`] if the audience is disabled or deleted, [`StoreError::Unsigned`].
    pub async fn append(&mut self, change: Change) -> Result<Appended, StoreError> {
        let current = self.live.current.clone();
        if current.state != State::Live {
            return Err(StoreError::NotLive {
                audience: self.audience.clone(),
                state: current.state,
            });
        }

        let ((mut add, remove), (entomb, lift)) = change.split();
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
            let mut all: Vec<DeviceKey> = kept.chain(entomb).collect();
            all.sort_unstable();
            all.dedup();
            let first = current
                .tombstones
                .as_ref()
                .map_or(next.sequence, |entry| entry.first);
            let keys = all.len() as u64;
            if keys > MAX_TOMBSTONES {
                let audience = self.audience.clone();
                return Err(StoreError::TooManyTombstones { audience, keys });
            }
            let tombstones = BuiltDelta::new(first, next.sequence, Vec::new(), all);
            let is_same = match &tombstones {
                Some(built) => built.delta.removed()[..] == *old,
                None => false,
            };
            if !is_same {
                next.tombstones = tombstones.as_ref().map(|built| built.delta.entry().clone());
                files.extend(tombstones);
            }
        }

        let requested = add.len();
        if !add.is_empty()
            && let Some(entry) = &next.tombstones
        {
            let tombstones = match files.first() {
                Some(built) => &built.delta,
                None => &*self.delta(entry).await?,
            };
            add.retain(|(key, _)| !tombstones.removed().contains(key));
        }

        let mut appended = Appended {
            added: add.len() as u64,
            removed: remove.len() as u64,
            entombed: (requested - add.len()) as u64,
            ..Appended::default()
        };

        let has_new_tombstones = next.tombstones != current.tombstones;
        let built = self
            .merged(next.sequence, (add, remove), &mut next.deltas)
            .await?;
        if !built.is_empty() {
            files.extend(built);
        } else if !has_new_tombstones {
            return self.acknowledge_unchanged(appended).await;
        }

        next.appended_unix_seconds = Some(clock::now_unix_seconds());
        appended.written_bytes = files.iter().map(|built| built.bytes.len() as u64).sum();
        self.replace(next, files).await?;
        Ok(with_totals(appended, &self.live.current))
    }

    /// The result of a change without effect, if this ledger is not stale.
    async fn acknowledge_unchanged(&mut self, appended: Appended) -> Result<Appended, StoreError> {
        if self.refresh().await? {
            let reason = "another process wrote meanwhile";
            return Err(StoreError::conflict(&self.audience, reason, false));
        }
        Ok(with_totals(appended, &self.live.current))
    }

    /// Sets the audience's state and its expiry.
    ///
    /// # Errors
    ///
    /// The errors of [`Ledger::append`], but for the state.
    pub async fn set(
        &mut self,
        state: State,
        expires_unix_seconds: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut next = self.live.current.next();
        (next.state, next.expires_unix_seconds) = (state, expires_unix_seconds);
        self.replace(next, Vec::new()).await
    }

    /// Adds the new delta to `deltas`, merged with the younger ones there, and returns the new
    /// files; none if there are no keys.
    async fn merged(
        &mut self,
        sequence: u64,
        (add, remove): MemberChanges,
        deltas: &mut Vec<DeltaEntry>,
    ) -> Result<Vec<BuiltDelta>, StoreError> {
        let Some(mut built) =
            blocking(move || BuiltDelta::with_values(sequence, sequence, &add, remove)).await
        else {
            return Ok(Vec::new());
        };
        let keys = built.delta.entry().keys();
        // A rollback may omit these, so they are not merged with later ones.
        let through = self.live.current.no_merge_through.unwrap_or(0);
        let unmerged = deltas.partition_point(|delta| delta.last <= through);
        let kept = unmerged + kept_deltas(&deltas[unmerged..], keys, MAX_DELTAS - unmerged);
        if kept >= MAX_DELTAS || keys > MAX_DELTA_KEYS {
            return Err(StoreError::TooManyDeltas {
                audience: self.audience.clone(),
                keys,
            });
        }

        let younger = deltas.split_off(kept);
        if !younger.is_empty() {
            built = self.joined(&younger, built).await?;
        }
        deltas.push(built.delta.entry().clone());
        Ok(vec![built])
    }

    /// Merges deltas, and a new one after them.
    async fn joined(
        &mut self,
        entries: &[DeltaEntry],
        newest: BuiltDelta,
    ) -> Result<BuiltDelta, StoreError> {
        let mut parts = Vec::with_capacity(entries.len());
        for entry in entries {
            parts.push(self.delta(entry).await?);
        }
        let last = newest.delta.entry().last;
        let joined = blocking(move || {
            let parts = parts.iter().map(|part| &**part);
            BuiltDelta::merged(last, parts.chain([&newest.delta]))
        });

        let joined = joined.await.expect("a delta has keys");
        match joined.delta.entry().keys() {
            keys if keys > MAX_DELTA_KEYS => Err(StoreError::TooManyDeltas {
                audience: self.audience.clone(),
                keys,
            }),
            _ => Ok(joined),
        }
    }

    /// Writes the files, then the next record.
    pub(super) async fn replace(
        &mut self,
        next: Current,
        files: Vec<BuiltDelta>,
    ) -> Result<(), StoreError> {
        self.writer.check_signs(&self.audience, &self.live)?;
        let update = RecordUpdate {
            writer: &self.writer,
            audience: &self.audience,
            live: Some(self.live.clone()),
        };
        update.check_is_newest().await?;
        for built in &files {
            // Its name has the next number, so no gc removes it.
            let bytes = built.bytes.clone();
            update.put_delta(built.delta.entry(), bytes).await?;
        }
        self.live = update.write(next).await?;

        for BuiltDelta { delta, .. } in files {
            self.held.insert(delta.entry().sha256, Arc::new(delta));
        }
        self.drop_unnamed();
        Ok(())
    }

    /// Drops deltas that the record no longer names: a ledger may be kept for months.
    fn drop_unnamed(&mut self) {
        let current = &self.live.current;
        self.held.retain(|_, delta| {
            let mut named = current.delta_entries();
            named.any(|entry| entry == delta.entry())
        });
    }
}

/// The number of deltas that a new one of `keys` keys is not merged with; at most `most`.
fn kept_deltas(deltas: &[DeltaEntry], keys: u64, most: usize) -> usize {
    let mut kept = deltas.len();
    let mut total = keys;
    while let Some(before) = kept.checked_sub(1).map(|index| deltas[index].keys()) {
        let is_due = before < GROWTH.saturating_mul(total) || kept >= most;
        if !is_due || before.saturating_add(total) > MAX_DELTA_KEYS {
            break;
        }
        (kept, total) = (kept - 1, total + before);
    }
    kept
}

fn with_totals(appended: Appended, current: &Current) -> Appended {
    Appended {
        sequence: current.sequence,
        generation: current.generation,
        tombstones: current.tombstones.as_ref().map_or(0, DeltaEntry::keys),
        deltas: current.deltas.len() as u64,
        delta_keys: current.deltas.iter().map(DeltaEntry::keys).sum(),
        ..appended
    }
}
