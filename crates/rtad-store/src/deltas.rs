//! Reading deltas, and finding those that an older generation needs.
//!
//! ```text
//! {store}/{audience}/deltas/{last}-{digest}.delta    immutable; `last` is the sequence of the CURRENT that first named it
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutMode};

use super::read::range::RangeReader;
use super::trust::signature_path;
use super::{Signed, Store, StoreError, audience_path, blocking};
use rtad_core::snapshot::{
    AudienceName, BuiltDelta, Current, Delta, DeltaEntry, Digest, MAX_DELTA_KEYS, MAX_DELTAS, Manifest,
    Overlay,
};

/// What came after an older generation was built.
pub(super) struct Since {
    /// Deltas, by the generation that has taken them up, oldest first.
    pub(super) groups: Vec<Vec<DeltaEntry>>,
    /// What those generations carry on of older deltas, which may be in the older generation itself.
    pub(super) residuals: HashSet<DeltaEntry>,
    /// The sequence up to which any has taken up.
    pub(super) through: u64,
}

impl Store {
    /// Reads a delta, and verifies it. Takes its size in memory twice, for a moment.
    ///
    /// # Errors
    ///
    /// The store's own, or a delta that is refused.
    pub async fn delta(&self, audience: &AudienceName, entry: &DeltaEntry) -> Result<Delta, StoreError> {
        Ok(self.delta_and_file(audience, entry).await?.0)
    }

    /// The same, and its file.
    ///
    /// # Errors
    ///
    /// The store's own, or a delta that is refused.
    pub async fn delta_and_file(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<(Delta, Signed), StoreError> {
        let path = delta_path(audience, entry);
        let objects = self.objects(&path)?;
        let mut reader = RangeReader::new(objects, path.clone(), entry.size_bytes(), self.stall_timeout);
        // Not allocated at once: only `CURRENT` vouches for the size.
        let mut bytes = Vec::new();
        while let Some(block) = reader.next_block().await? {
            bytes.extend_from_slice(&block);
        }
        let (file, entry) = (self.with_signature(&path, bytes).await?, entry.clone());
        blocking(move || Delta::parse(&file.bytes, &entry).map(|delta| (delta, file)))
            .await
            .map_err(|source| StoreError::Delta { path: path.to_string(), source })
    }

    /// What a `CURRENT` lays over its generation: of `held` what it has, the rest from the store.
    ///
    /// # Errors
    ///
    /// The store's own, or a delta that is refused.
    pub async fn overlay(
        &self,
        audience: &AudienceName,
        current: &Current,
        held: &Overlay,
    ) -> Result<Overlay, StoreError> {
        let mut deltas = Vec::with_capacity(current.deltas.len());
        for entry in &current.deltas {
            deltas.push(self.delta_or_held(audience, entry, held).await?);
        }
        let tombstones = match &current.tombstones {
            Some(entry) => Some(self.delta_or_held(audience, entry, held).await?),
            None => None,
        };
        Ok(Overlay::new(current, deltas, tombstones))
    }

    async fn delta_or_held(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        held: &Overlay,
    ) -> Result<Arc<Delta>, StoreError> {
        match held.held(entry) {
            Some(delta) => Ok(Arc::clone(delta)),
            None => self.delta(audience, entry).await.map(Arc::new),
        }
    }

    /// The deltas that were published after `target` was built and that later generations have taken up. `live` is what is live
    /// now.
    pub(super) async fn deltas_since(
        &self,
        target: &Manifest,
        live: Option<&Current>,
    ) -> Result<Since, StoreError> {
        let audience = target.audience();
        let built_through = target.folded().map_or(0, |folded| folded.through);
        let mut since = Since { groups: Vec::new(), residuals: HashSet::new(), through: built_through };
        let later = self.generations(audience).await?;
        let mut later: Vec<u64> = later.into_iter().filter(|later| *later > target.generation()).collect();
        // It was there once: who deleted it must know what he does.
        let live = live.map(|current| current.generation).filter(|live| *live > target.generation());
        later.extend(live.filter(|live| !later.contains(live)));
        for generation in later {
            let manifest = match self.manifest_of(audience, generation).await {
                // A loader that lost has tidied up since it was listed: nothing of it was ever live.
                Err(StoreError::NotFound { .. }) if live != Some(generation) => continue,
                manifest => manifest?.0,
            };
            let Some(folded) = manifest.folded() else { continue };
            let newer = folded.deltas.iter().filter(|delta| delta.last > built_through);
            // Only of generations before it: one delta of removals alone is its own residual, to the last byte.
            let newer = newer.filter(|delta| !since.residuals.contains(delta)).cloned().collect();
            since.groups.push(newer);
            since.residuals.extend(folded.residual.clone());
            since.through = since.through.max(folded.through);
        }
        Ok(since)
    }

    /// Groups of deltas as `CURRENT` number `sequence` may name them. If they are too many, each group becomes one, whose file is
    /// written; if they are still too many, all of them do.
    ///
    /// Each delta has all changes of its time, so in the order of their ends the newest change of a key comes last,
    /// however their times overlap.
    pub(super) async fn joined(
        &self,
        audience: &AudienceName,
        sequence: u64,
        groups: &[Vec<DeltaEntry>],
    ) -> Result<Vec<DeltaEntry>, StoreError> {
        let all = in_order(groups.iter().flatten().cloned());
        if all.len() <= MAX_DELTAS {
            return Ok(all);
        }
        let mut joined = Vec::new();
        for group in groups.iter().filter(|group| !group.is_empty()) {
            let group = in_order(group.iter().cloned());
            let last = group.last().map_or(0, |delta| delta.last);
            joined.push(self.merged(audience, last, group).await?);
        }
        let joined = in_order(joined);
        match joined.len() <= MAX_DELTAS {
            true => Ok(joined),
            false => Ok(vec![self.merged(audience, sequence, joined).await?]),
        }
    }

    /// Several deltas as one, written.
    async fn merged(
        &self,
        audience: &AudienceName,
        last: u64,
        entries: Vec<DeltaEntry>,
    ) -> Result<DeltaEntry, StoreError> {
        if let [entry] = &entries[..] {
            return Ok(entry.clone());
        }
        let mut deltas = Vec::with_capacity(entries.len());
        for entry in &entries {
            deltas.push(self.delta(audience, entry).await?);
        }
        let merged = blocking(move || BuiltDelta::merged(last, &deltas)).await.expect("deltas have keys");
        let entry = merged.delta.entry().clone();
        if entry.keys() > MAX_DELTA_KEYS {
            return Err(StoreError::TooManyDeltas { audience: audience.clone(), keys: entry.keys() });
        }
        self.put_delta(audience, &merged).await?;
        Ok(entry)
    }

    /// The highest sequence that any manifest or delta speaks of: where `CURRENT`, if it was lost, must go on.
    pub(super) async fn highest_sequence(&self, audience: &AudienceName) -> Result<u64, StoreError> {
        let listed = self.list(&deltas_path(audience)).await?;
        let names = listed.iter().filter_map(|object| object.location.filename());
        let mut highest = names.filter_map(delta_sequence).max().unwrap_or(0);
        for generation in self.generations(audience).await? {
            // One that cannot be read has nothing to say.
            if let Ok((manifest, _)) = self.manifest_of(audience, generation).await {
                highest = highest.max(manifest.folded().map_or(0, |folded| folded.through));
            }
        }
        Ok(highest)
    }

    /// Whether a delta has a signature, right or wrong.
    pub(super) async fn has_signature(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
    ) -> Result<bool, StoreError> {
        let path = signature_path(&delta_path(audience, entry));
        match self.objects(&path)?.head(&path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(StoreError::backend("look up", &path, source)),
        }
    }

    /// Writes a delta's file, durably. Nobody reads it before a `CURRENT` names it.
    pub(super) async fn put_delta(
        &self,
        audience: &AudienceName,
        built: &BuiltDelta,
    ) -> Result<(), StoreError> {
        self.put_delta_file(audience, built.delta.entry(), built.bytes.clone()).await
    }

    /// The same, of its bytes.
    pub(super) async fn put_delta_file(
        &self,
        audience: &AudienceName,
        entry: &DeltaEntry,
        bytes: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.put_signed(audience, &delta_path(audience, entry), bytes, PutMode::Overwrite).await
    }
}

pub(super) fn deltas_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("deltas")
}

pub(super) fn delta_path(audience: &AudienceName, entry: &DeltaEntry) -> Path {
    deltas_path(audience).join(delta_name(entry))
}

/// Of a delta's name, the sequence of the `CURRENT` that first named it; `None` of any other name.
pub(super) fn delta_sequence(name: &str) -> Option<u64> {
    let (last, digest) = name.strip_suffix(".delta")?.split_once('-')?;
    Digest::try_from(digest.to_owned()).ok()?;
    last.parse().ok()
}

pub(super) fn delta_name(entry: &DeltaEntry) -> String {
    format!("{}-{}.delta", entry.last, entry.sha256)
}

/// By their ends. Of those that end at the same time the one with the most keys has all that is in the others.
fn in_order(deltas: impl IntoIterator<Item = DeltaEntry>) -> Vec<DeltaEntry> {
    let mut deltas: Vec<DeltaEntry> = deltas.into_iter().collect();
    deltas.sort_by_key(|delta| (delta.last, std::cmp::Reverse(delta.keys())));
    deltas.dedup_by_key(|delta| delta.last);
    deltas
}
