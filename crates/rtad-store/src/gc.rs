//! Removing what no generation that is kept needs.
//!
//! Kept are the live generation, every one above it (a publish under way, or what was rolled back from), the newest few, and
//! whatever is younger than a minimum age; of a deleted audience (`store/delete.rs`) only what is above and what is young. A
//! manifest goes before its signature and its chunks, so that a gc that is killed leaves chunks that nothing names, never a
//! manifest without them. A signature without a manifest goes once a higher generation is live: whoever was about to write that
//! manifest has lost.
//!
//! In a directory the audience's lock keeps loaders out. An object store has no lock and deletes without a condition, so a
//! publish could find an old chunk there, rely on it, and lose it. Both sides therefore write first and look after:
//!
//! | gc | publish |
//! |---|---|
//! | 1. finds what may go, writes it down in `{audience}/GC` | 1. writes its manifest |
//! | 2. *then* reads `CURRENT` and the manifests again, and spares what they name | 2. *then* reads `GC`: names it what the manifest needs, the publish has lost |
//! | 3. deletes, then removes `GC` | 3. *then* looks that every chunk is there; 4. puts `CURRENT` |
//!
//! Of two that write first and look after, at least one sees the other. If gc looked before the manifest was there, its `GC`
//! was there before as well: the publish sees it at 2, or it is gone, and so are the chunks, which the publish sees at 3. No
//! clock decides this. The minimum age only makes it rare that a publish loses; a rollback relies on it, as it writes no new
//! manifest but its old one anew.
//!
//! A `GC` that a killed gc left behind holds up whoever needs what it names, and nobody else, until the next gc takes it over.

mod mark;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::deltas::{delta_name, delta_sequence, deltas_path};
use super::{
    Listed, Publication, Store, StoreError, audience_path, current_path, manifest_path, trust::signature_path,
};
use rtad_core::snapshot::{AudienceName, DeltaEntry, Manifest, State};

/// Objects removed at a time.
const PARALLEL_DELETES: usize = 16;

/// What a gc leaves alone besides what is live.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The newest so many generations.
    pub keep: usize,
    /// Whatever was written since so long.
    pub min_age: Duration,
}

/// What a gc removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Generations that are kept, oldest first.
    pub kept_generations: Vec<u64>,
    /// Generations that went, oldest first.
    pub removed_generations: Vec<u64>,
    /// Chunks that went.
    pub removed_chunks: u64,
    /// Deltas that went: merged into others, or taken up by generations that are kept.
    pub removed_deltas: u64,
    /// The bytes of both.
    pub removed_bytes: u64,
    /// Chunks that nothing kept needs, but that are too young to go.
    pub young_chunks: u64,
}

/// What may go. Chunks by the names of their files, with their sizes.
#[derive(Debug, Default)]
struct Condemned {
    kept: Vec<u64>,
    generations: BTreeSet<u64>,
    /// Generations that have a signature.
    signed: BTreeSet<u64>,
    /// Those of them that have no manifest, and will not get one.
    left_over: BTreeSet<u64>,
    chunks: BTreeMap<String, u64>,
    deltas: BTreeMap<String, u64>,
    young_chunks: u64,
}

impl Condemned {
    fn is_empty(&self) -> bool {
        self.generations.is_empty()
            && self.left_over.is_empty()
            && self.chunks.is_empty()
            && self.deltas.is_empty()
    }

    fn collected(&self) -> Collected {
        Collected {
            kept_generations: self.kept.clone(),
            removed_generations: self.generations.iter().copied().collect(),
            removed_chunks: self.chunks.len() as u64,
            removed_deltas: self.deltas.keys().filter(|name| name.ends_with(".delta")).count() as u64,
            removed_bytes: self.chunks.values().chain(self.deltas.values()).sum(),
            young_chunks: self.young_chunks,
        }
    }
}

impl Store {
    /// Removes what nothing kept needs, or only says what that would be. Costs a listing and the kept manifests, twice.
    ///
    /// # Errors
    ///
    /// The store's own; [`StoreError::NotFound`] if nothing is live; [`StoreError::Manifest`] if a kept manifest is refused, as
    /// nobody can tell then what it needs; [`StoreError::Conflict`] if a loader or another gc is at work. After an error a gc
    /// may have removed a part.
    pub async fn collect(
        &self,
        audience: &AudienceName,
        retention: Retention,
        dry_run: bool,
    ) -> Result<Collected, StoreError> {
        self.writable()?;
        if dry_run {
            return Ok(self.condemned(audience, retention, SystemTime::now()).await?.collected());
        }
        // Not before it is known that there is something: the lock makes the folder.
        if self.live(audience).await?.is_none() {
            return Err(StoreError::NotFound { path: current_path(audience).to_string() });
        }
        let _locks = (self.lock(audience).await?, self.lock_current(audience).await?);
        self.collect_locked(audience, retention, retention.min_age).await
    }

    /// The same, by whoever has the locks. A mark that is older than `mark_age` is that of a gc that was killed.
    pub(super) async fn collect_locked(
        &self,
        audience: &AudienceName,
        retention: Retention,
        mark_age: Duration,
    ) -> Result<Collected, StoreError> {
        let condemned = self.condemned(audience, retention, SystemTime::now()).await?;
        if self.is_directory() {
            self.remove(audience, &condemned, || true).await?;
            return Ok(condemned.collected());
        }
        if condemned.is_empty() && !self.is_marked(audience).await? {
            return Ok(condemned.collected());
        }
        let begun = Instant::now();
        let (mark, marked_at) = self.mark(audience, &condemned, mark_age).await?;
        // By the store's clock from here on, and what was there when nobody could have seen the mark.
        let mut still = match self.condemned(audience, retention, marked_at).await {
            Ok(still) => still,
            Err(error) => {
                // Nothing was removed; what matters is why.
                let _ = self.unmark(audience, &mark).await;
                return Err(error);
            }
        };
        still.generations.retain(|generation| condemned.generations.contains(generation));
        still.left_over.retain(|generation| condemned.left_over.contains(generation));
        still.chunks.retain(|name, _| condemned.chunks.contains_key(name));
        still.deltas.retain(|name, _| condemned.deltas.contains_key(name));
        // Past its minimum age another gc may take the mark over and end it. Without one nobody else is at work.
        let in_time = || mark_age.is_zero() || begun.elapsed() < mark_age / 2;
        // After a failure the mark stays: a delete whose answer was lost may yet be done.
        self.remove(audience, &still, in_time).await?;
        self.unmark(audience, &mark).await?;
        Ok(still.collected())
    }

    /// What may go by what the store holds now.
    async fn condemned(
        &self,
        audience: &AudienceName,
        retention: Retention,
        now: SystemTime,
    ) -> Result<Condemned, StoreError> {
        let live = self.live(audience).await?;
        let live = live.ok_or_else(|| StoreError::NotFound { path: current_path(audience).to_string() })?;
        let current = live.current;
        let live = current.generation;
        // Of a deleted audience nothing is live. What is above all that ever was is of a publish under way; in a directory there
        // is none, as its lock is held.
        let (is_deleted, kept_from) = match current.state {
            State::Deleted if self.is_directory() => (true, u64::MAX),
            State::Deleted => (true, current.highest_generation().saturating_add(1)),
            _ => (false, live),
        };
        let is_young = |meta: &ObjectMeta| {
            now.duration_since(meta.last_modified.into()).is_ok_and(|age| age < retention.min_age)
                || SystemTime::from(meta.last_modified) > now
        };
        let mut condemned = Condemned::default();
        let Listed { manifests, signatures } = self.manifests(audience).await?;
        let newest = manifests.len().saturating_sub(if is_deleted { 0 } else { retention.keep });
        for (index, (generation, meta)) in manifests.iter().enumerate() {
            if *generation >= kept_from || index >= newest || is_young(meta) {
                condemned.kept.push(*generation);
            } else {
                condemned.generations.insert(*generation);
            }
        }
        // None between two that are kept: what it took up, the older one would need if it were live again.
        if let Some(oldest) = condemned.kept.first().copied() {
            condemned.kept.extend(condemned.generations.split_off(&oldest));
            condemned.kept.sort_unstable();
        }
        let has_manifest: BTreeSet<u64> = manifests.iter().map(|(generation, _)| *generation).collect();
        for (generation, meta) in &signatures {
            condemned.signed.insert(*generation);
            if *generation < live && !has_manifest.contains(generation) && !is_young(meta) {
                condemned.left_over.insert(*generation);
            }
        }
        let mut needed = BTreeSet::new();
        let mut deltas: BTreeSet<String> =
            current.deltas.iter().chain(&current.tombstones).map(delta_name).collect();
        for generation in &condemned.kept {
            let manifest = match self.manifest_of(audience, *generation).await {
                // Gone since it was listed: a loader that lost has tidied up.
                Err(StoreError::NotFound { .. }) if *generation != live || is_deleted => continue,
                Err(StoreError::NotFound { path }) => return Err(self.gone(audience, live, path).await?),
                manifest => manifest?.0,
            };
            needed.extend(manifest.chunks().iter().map(|entry| format!("{}.chunk", entry.digest)));
            deltas.extend(manifest.folded_deltas().map(delta_name));
        }
        for object in self.list(&deltas_path(audience)).await? {
            let Some(name) = object.location.filename() else { continue };
            // What an append has written and not yet named is beyond every CURRENT that could be read.
            let delta = name.strip_suffix(".minisig").unwrap_or(name);
            let is_old = delta_sequence(delta).is_some_and(|last| last <= current.sequence);
            if is_old && !deltas.contains(delta) && !is_young(&object) {
                condemned.deltas.insert(name.to_owned(), object.size);
            }
        }
        for object in self.list(&chunks_path(audience)).await? {
            let Some(name) = object.location.filename().filter(|name| is_chunk(name)) else { continue };
            if needed.contains(name) {
                continue;
            }
            if is_young(&object) {
                condemned.young_chunks += 1;
            } else {
                condemned.chunks.insert(name.to_owned(), object.size);
            }
        }
        Ok(condemned)
    }

    /// Why the manifest of what was live is not there.
    async fn gone(&self, audience: &AudienceName, was: u64, path: String) -> Result<StoreError, StoreError> {
        let now = self.live(audience).await?.map_or(0, |live| live.current.generation);
        if now == was {
            return Ok(StoreError::NotFound { path });
        }
        let reason = format!("generation {now} was published since this work began at generation {was}");
        Ok(StoreError::Conflict { audience: audience.clone(), reason, passes: false })
    }

    async fn remove(
        &self,
        audience: &AudienceName,
        condemned: &Condemned,
        in_time: impl Fn() -> bool,
    ) -> Result<(), StoreError> {
        let remove = async |path: Path| {
            if !in_time() {
                let reason = "gc took longer than half of --min-age; run it again".to_owned();
                return Err(StoreError::Conflict { audience: audience.clone(), reason, passes: true });
            }
            match self.objects(&path)?.delete(&path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(source) => Err(StoreError::backend("remove", &path, source)),
            }
        };
        for generation in &condemned.generations {
            remove(manifest_path(audience, *generation)).await?;
        }
        let signed = condemned.generations.intersection(&condemned.signed);
        for generation in signed.chain(&condemned.left_over) {
            remove(signature_path(&manifest_path(audience, *generation))).await?;
        }
        let paths = |folder: Path, files: &BTreeMap<String, u64>| -> Vec<Path> {
            files.keys().map(|name| folder.clone().join(name.as_str())).collect()
        };
        let mut files = paths(chunks_path(audience), &condemned.chunks);
        files.extend(paths(deltas_path(audience), &condemned.deltas));
        stream::iter(files).map(remove).buffer_unordered(PARALLEL_DELETES).try_collect().await
    }
}

impl Publication<'_> {
    /// That no gc has removed, or is about to remove, what the manifest needs. To be asked once the manifest is in the store.
    pub(super) async fn survives_gc(&self, manifest: &Manifest) -> Result<(), StoreError> {
        if self.store().is_directory() {
            return Ok(());
        }
        self.is_not_condemned(manifest).await?;
        self.deltas_survive_gc(manifest.folded_deltas().cloned().collect()).await?;
        let listed = self.store().list(&chunks_path(self.audience())).await?;
        let held: HashMap<&str, u64> =
            listed.iter().filter_map(|object| Some((object.location.filename()?, object.size))).collect();
        let is_held = |name: &str, size| held.get(name) == Some(&size);
        match manifest
            .chunks()
            .iter()
            .all(|entry| is_held(&format!("{}.chunk", entry.digest), entry.size_bytes))
        {
            true => Ok(()),
            false => {
                Err(self.conflict("a gc removed a chunk that this generation needs; run this again".into()))
            }
        }
    }

    /// That no gc has removed, or is about to remove, one of these deltas. To be asked once a manifest that names them, or that
    /// is older than one that does, is in the store.
    pub(super) async fn deltas_survive_gc(&self, deltas: Vec<DeltaEntry>) -> Result<(), StoreError> {
        let names: BTreeSet<String> = deltas.iter().map(delta_name).collect();
        if self.store().is_directory() || names.is_empty() {
            return Ok(());
        }
        let mark = self.store().read_mark(self.audience()).await?;
        let listed = self.store().list(&deltas_path(self.audience())).await?;
        let held: BTreeSet<&str> = listed.iter().filter_map(|object| object.location.filename()).collect();
        let is_safe = |name: &String| {
            held.contains(&**name) && !mark.as_ref().is_some_and(|mark| mark.deltas.contains(name))
        };
        match names.iter().all(is_safe) {
            true => Ok(()),
            false => {
                Err(self.conflict("a gc removed a delta that this generation needs; run this again".into()))
            }
        }
    }

    /// That no gc is about to remove the generation, or a chunk of it.
    pub(super) async fn is_not_condemned(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let Some(mark) = self.store().read_mark(self.audience()).await? else { return Ok(()) };
        let names = manifest.chunks().iter().map(|entry| format!("{}.chunk", entry.digest));
        match mark.generations.contains(&manifest.generation())
            || names.into_iter().any(|name| mark.chunks.contains(&name))
        {
            true => Err(self.conflict(
                "a gc is removing what this generation needs, or was killed at it; run gc again, then this"
                    .into(),
            )),
            false => Ok(()),
        }
    }
}

pub(super) fn chunks_path(audience: &AudienceName) -> Path {
    audience_path(audience).join("chunks")
}

/// Whether it is a name that a chunk may have. Nothing else is ever removed.
fn is_chunk(name: &str) -> bool {
    let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_suffix(".chunk").is_some_and(|digest| digest.len() == 64 && digest.bytes().all(hex))
}
