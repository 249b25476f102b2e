//! Garbage collection (gc): removal of files that the newest record does not need.
//!
//! Kept files:
//!
//! * those of the generations that the record names, and its deltas;
//! * all files younger than a least age, a day by default;
//! * records younger than a week, and the newest: readers go forward from theirs.
//!
//! A rollback builds on a record, so it cannot return to a generation that the newest one does not
//! name. That record is therefore created before files are removed, a manifest before its chunks.
//! It names the live generation, the few that were live before it, and those in between.
//!
//! No lock and no mark keeps a publish and a gc apart, but age:
//!
//! | step | of a gc | of a publish |
//! |---|---|---|
//! | 1 | lists the files | writes again what is older than half of the least age |
//! | 2 | reads the newest record, and creates the next one if it names fewer generations | checks that all files are there, and none is nearly as old |
//! | 3 | removes old files that this record does not need | creates the record |
//!
//! The steps of the two may come in any order. If the publish creates its record before step 2 of
//! the gc, the gc keeps its files; if it does so during step 2, the gc begins that step again. If it
//! does so later, they are too young in step 3: the gc looks at each file again right before it
//! removes it, and a publish that renewed a file waits for deletes that are on their way. A publish
//! that takes longer than half of the least age fails in step 2.
//!
//! Ages are by the store's clock: of this host's and another's, one may be wrong by days. Only step
//! 1 of a publish is by its host's: a slow clock keeps a chunk that is too old, and step 2 fails.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::folder::sweep_unfinished;
use super::update::RecordUpdate;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::layout::{
    audience_path, chunk_name, chunks_path, delta_name, delta_sequence, deltas_path, is_chunk_name,
    is_manifest_name, is_probe_name, manifest_name, manifests_path, record_number, records_path,
};
use crate::read::{Live, Store, has_signature};
use rtad_core::clock;
use rtad_core::snapshot::{AudienceName, Current, GenerationEntry, MAX_KEPT_GENERATIONS};

/// Default of a gc's least age of files. Publishes rely on it: see `write/chunks.rs`.
pub const MIN_AGE: Duration = Duration::from_secs(24 * 3600);
/// Records are kept this long.
const RECORD_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Objects removed at a time.
const PARALLEL_DELETES: usize = 16;
/// Removals that are begun together: there may be hundreds of thousands of records.
const REMOVED_AT_ONCE: usize = 1000;
/// Tries against concurrent appends.
const MAX_TRIES: u32 = 100;

/// Files that a gc keeps besides the live ones.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Number of generations that were live last, with the live one. Above
    /// [`MAX_KEPT_GENERATIONS`], all that the record names: the gc creates no record.
    pub keep: usize,
    /// All files younger than this. Less than [`MIN_AGE`] is for stores that nobody else writes to.
    pub min_age: Duration,
}

/// Result of a gc, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Collected {
    /// Generations that are kept, oldest first.
    pub kept_generations: Vec<u64>,
    /// Generations that the record no longer names, oldest first.
    pub removed_generations: Vec<u64>,
    /// Removed manifests, also those of publishes that failed.
    pub removed_manifests: u64,
    /// Removed chunks.
    pub removed_chunks: u64,
    /// Removed deltas.
    pub removed_deltas: u64,
    /// Removed records.
    pub removed_records: u64,
    /// Bytes of the removed chunks and deltas.
    pub removed_bytes: u64,
    /// Unneeded chunks that are too young to remove.
    pub young_chunks: u64,
}

impl StoreWriter {
    /// Removes the files that no kept generation needs, or only reports them. Costs a listing and
    /// the kept manifests.
    ///
    /// # Errors
    ///
    /// A store error; [`StoreError::NotFound`] if nothing is live; [`StoreError::Manifest`] if a
    /// kept manifest is refused, as its needs are then unknown; [`StoreError::Unsigned`]. A failed
    /// gc may have removed a part.
    pub async fn collect(
        &self,
        audience: &AudienceName,
        retention: Retention,
        dry_run: bool,
    ) -> Result<Collected, StoreError> {
        let store = self.store();
        let live = store.require_live(audience, None).await?;
        if !dry_run {
            self.check_trusts(audience, &live).await?;
        }
        let newest = live.current.sequence;
        let now = if dry_run {
            clock::now()
        } else {
            store.records(audience).store_time(newest).await?
        };
        // Without a least age nothing is young.
        let since = if retention.min_age.is_zero() {
            now + RECORD_AGE
        } else {
            now - retention.min_age
        };
        // The files before the record: see above.
        let files = Files::list(store, audience, now, since).await?;

        for tries in 0..=MAX_TRIES {
            let live = store.require_live(audience, None).await?;
            let before = live.current.clone();
            let kept = files.kept(store, &before, retention.keep).await?;
            let is_changed = kept.len() < before.kept.len();
            let mut next = before.clone();
            if is_changed {
                next = before.next();
                next.kept = kept;
            }
            let plan = match files.plan(store, &next).await {
                // After a publish, another gc has removed what was live.
                Err(StoreError::NotFound { .. })
                    if tries < MAX_TRIES && is_overtaken(store, audience, &live).await? =>
                {
                    continue;
                }
                plan => plan?,
            };
            if dry_run {
                return Ok(plan.collected(&before, &next));
            }

            if is_changed {
                let update = RecordUpdate {
                    writer: self,
                    audience,
                    live: Some(live),
                };
                match update.write(next.clone()).await {
                    Err(StoreError::Conflict { .. }) if tries < MAX_TRIES => continue,
                    written => written?,
                };
            }
            self.remove(&files, &plan, &next).await?;
            return Ok(plan.collected(&before, &next));
        }
        unreachable!("the last try is returned")
    }

    /// Refuses to remove what a record does not need that nobody vouches for: of a signed audience,
    /// somebody without the key may have created the newest one.
    async fn check_trusts(&self, audience: &AudienceName, live: &Live) -> Result<(), StoreError> {
        let store = self.store();
        if self.signs() || store.trust().is_required() {
            return Ok(());
        }
        let before = live.current.sequence.saturating_sub(1);
        let before = store.records(audience).read(before).await?;
        let was_signed = before.is_some_and(|before| has_signature(&before.bytes));
        if live.is_signed() || was_signed {
            return Err(StoreError::Unsigned {
                audience: audience.clone(),
            });
        }
        Ok(())
    }

    /// Removes the files of a deleted audience that were written before its record.
    pub(super) async fn collect_deleted(
        &self,
        audience: &AudienceName,
        deleted: &Current,
    ) -> Result<Collected, StoreError> {
        let store = self.store();
        let written = store.records(audience).written_at(deleted.sequence).await?;
        let files = Files::list(store, audience, written, written).await?;
        let newest = store.require_live(audience, None).await?.current;
        let plan = files.plan(store, &newest).await?;
        self.remove(&files, &plan, &newest).await?;
        Ok(plan.collected(&newest, &newest))
    }

    async fn remove(
        &self,
        files: &Files<'_>,
        plan: &Plan,
        newest: &Current,
    ) -> Result<(), StoreError> {
        let (store, audience) = (self.store(), files.audience);
        if plan.removes_records() {
            // An old hint may name one of them.
            store.records(audience).point_to(newest.sequence).await?;
        }
        for (kind, path) in &plan.removed {
            if *kind == Kind::Manifest {
                files.remove(store, *kind, path).await?;
            }
        }
        for batch in plan.removed.chunks(REMOVED_AT_ONCE) {
            let mut removals = Vec::with_capacity(batch.len());
            for (kind, path) in batch {
                if *kind != Kind::Manifest {
                    removals.push(files.remove(store, *kind, path));
                }
            }
            stream::iter(removals)
                .buffer_unordered(PARALLEL_DELETES)
                .try_collect::<()>()
                .await?;
        }

        let folders = vec![
            audience_path(audience),
            records_path(&audience_path(audience)),
            manifests_path(audience),
            chunks_path(audience),
            deltas_path(audience),
        ];
        sweep_unfinished(self.backend(), folders, files.since).await
    }
}

async fn is_overtaken(
    store: &Store,
    audience: &AudienceName,
    live: &Live,
) -> Result<bool, StoreError> {
    let newest = store.require_live(audience, None).await?;
    Ok(newest.object() != live.object())
}

/// A kind of file that a gc may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Manifest,
    Chunk,
    Delta,
    Record,
    Probe,
}

impl Kind {
    /// The kind of a file, by its folder and its name; `None` if it is not of a store.
    fn of(path: &Path) -> Option<Self> {
        let parts: Vec<_> = path.parts().collect();
        let [_, folder, name] = &parts[..] else {
            return None;
        };
        let name = name.as_ref();
        match folder.as_ref() {
            "manifests" if is_manifest_name(name) => Some(Self::Manifest),
            "chunks" if is_chunk_name(name) => Some(Self::Chunk),
            "deltas" if delta_sequence(name).is_some() => Some(Self::Delta),
            "records" if record_number(name).is_some() => Some(Self::Record),
            "records" if is_probe_name(name) => Some(Self::Probe),
            _ => None,
        }
    }
}

/// The files of an audience, as listed before the record was read.
struct Files<'a> {
    audience: &'a AudienceName,
    all: Vec<ObjectMeta>,
    /// Files up to this time may be removed.
    since: SystemTime,
    /// Records up to this time may be removed.
    records_since: SystemTime,
}

/// Files to remove.
#[derive(Default)]
struct Plan {
    removed: Vec<(Kind, Path)>,
    /// Bytes of chunks and deltas among them.
    removed_bytes: u64,
    young_chunks: u64,
}

impl<'a> Files<'a> {
    async fn list(
        store: &Store,
        audience: &'a AudienceName,
        now: SystemTime,
        since: SystemTime,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            audience,
            all: store.backend.list(&audience_path(audience)).await?,
            since,
            records_since: since.min(now - RECORD_AGE),
        })
    }

    /// Removes a file, unless it was renewed since it was listed.
    async fn remove(&self, store: &Store, kind: Kind, path: &Path) -> Result<(), StoreError> {
        let is_renewed = match kind {
            // Never written again. There may be many.
            Kind::Record | Kind::Probe => false,
            Kind::Manifest | Kind::Chunk | Kind::Delta => match store.written_at(path).await {
                Ok(written) => written > self.since,
                Err(StoreError::NotFound { .. }) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        if is_renewed {
            return Ok(());
        }
        match store.objects(path).await?.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError::backend("remove", path, source)),
        }
    }

    /// The generations besides the live one that a gc keeps: the last `keep` that were live, young
    /// ones, and all after the oldest of these. A rollback to it needs the deltas that are folded
    /// into them.
    async fn kept(
        &self,
        store: &Store,
        current: &Current,
        keep: usize,
    ) -> Result<Vec<GenerationEntry>, StoreError> {
        // The chain below ends at a generation that an earlier gc has dropped.
        if keep > MAX_KEPT_GENERATIONS {
            return Ok(current.kept.clone());
        }

        let mut oldest = current.generation;
        for _ in 1..keep {
            match store
                .generation_before(self.audience, current, oldest)
                .await?
            {
                Some(before) => oldest = before.generation,
                None => break,
            }
        }

        let mut young = HashSet::new();
        for file in &self.all {
            if SystemTime::from(file.last_modified) > self.since {
                young.extend(file.location.filename());
            }
        }
        for entry in &current.kept {
            if young.contains(manifest_name(entry).as_str()) {
                oldest = oldest.min(entry.generation);
            }
        }
        let mut kept = current.kept.clone();
        kept.retain(|entry| entry.generation >= oldest);
        Ok(kept)
    }

    /// The files that a record does not need, and that are old.
    async fn plan(&self, store: &Store, record: &Current) -> Result<Plan, StoreError> {
        let needed = needed_by(store, self.audience, record).await?;
        let first_record = self.first_kept_record(record);
        let mut plan = Plan::default();
        for file in &self.all {
            let name = file.location.filename().unwrap_or_default();
            let Some(kind) = Kind::of(&file.location) else {
                continue;
            };
            let is_young = SystemTime::from(file.last_modified) > self.since;
            let is_needed = match kind {
                Kind::Record => record_number(name).is_some_and(|it| it >= first_record),
                // A delta that no record names yet has a higher number.
                Kind::Delta if delta_sequence(name).is_some_and(|it| it > record.sequence) => true,
                Kind::Probe => false,
                _ => needed.contains(name),
            };
            if is_needed {
                continue;
            }
            if is_young && kind != Kind::Record {
                plan.young_chunks += u64::from(kind == Kind::Chunk);
                continue;
            }
            if matches!(kind, Kind::Chunk | Kind::Delta) {
                plan.removed_bytes += file.size;
            }
            plan.removed.push((kind, file.location.clone()));
        }

        // Records from the first one: a reader at n that finds neither n nor n + 1 looks further.
        plan.removed.sort_by(|one, other| one.1.cmp(&other.1));
        Ok(plan)
    }

    /// The first record that stays: it is young, or the newest. Readers go forward from it, so
    /// later ones stay, too: copies of a store may have other times.
    fn first_kept_record(&self, newest: &Current) -> u64 {
        let mut first = newest.sequence;
        for file in &self.all {
            let number = file.location.filename().and_then(record_number);
            let is_young = SystemTime::from(file.last_modified) > self.records_since;
            if let Some(number) = number.filter(|_| is_young) {
                first = first.min(number);
            }
        }
        first
    }
}

impl Plan {
    fn count(&self, counted: Kind) -> u64 {
        let removed = self.removed.iter();
        removed.filter(|(kind, _)| *kind == counted).count() as u64
    }

    fn removes_records(&self) -> bool {
        self.count(Kind::Record) > 0
    }

    fn collected(&self, before: &Current, record: &Current) -> Collected {
        let mut collected = Collected {
            removed_manifests: self.count(Kind::Manifest),
            removed_chunks: self.count(Kind::Chunk),
            removed_deltas: self.count(Kind::Delta),
            removed_records: self.count(Kind::Record),
            removed_bytes: self.removed_bytes,
            young_chunks: self.young_chunks,
            ..Collected::default()
        };
        for entry in before.generations() {
            if record.entry(entry.generation).is_some() {
                collected.kept_generations.push(entry.generation);
            } else {
                collected.removed_generations.push(entry.generation);
            }
        }
        collected
    }
}

/// The names of the manifests, chunks and deltas that a record needs.
async fn needed_by(
    store: &Store,
    audience: &AudienceName,
    record: &Current,
) -> Result<HashSet<String>, StoreError> {
    let mut needed: HashSet<String> = record.delta_entries().map(delta_name).collect();
    for entry in record.generations() {
        needed.insert(manifest_name(&entry));
        let manifest = match store.manifest(audience, &entry).await {
            // Lost: a rollback to it fails, and says so.
            Err(StoreError::NotFound { .. }) if entry.generation != record.generation => continue,
            manifest => manifest?,
        };
        needed.extend(manifest.chunks().iter().map(chunk_name));
        needed.extend(manifest.folded_deltas().map(delta_name));
    }
    Ok(needed)
}
