//! Gc plan: the files that no kept generation needs, from one listing of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;

use crate::error::StoreError;
use crate::layout::{
    audience_path, chunk_name, chunks_path, delta_name, delta_sequence, deltas_path, is_chunk_name,
    is_probe_name,
};
use crate::read::{ListedManifests, Store};
use rtad_core::snapshot::{AudienceName, Current, State};

/// Files that a gc keeps besides the live ones.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Number of generations that were live last, with the live one.
    pub keep: usize,
    /// All files younger than this.
    pub min_age: Duration,
}

/// Result of a gc, or of its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Collected {
    /// Generations that are kept, oldest first.
    pub kept_generations: Vec<u64>,
    /// Removed generations, oldest first.
    pub removed_generations: Vec<u64>,
    /// Removed chunks.
    pub removed_chunks: u64,
    /// Removed deltas.
    pub removed_deltas: u64,
    /// Bytes of the removed chunks and deltas.
    pub removed_bytes: u64,
    /// Removed probes of conditional puts, which writers without the permission to delete left.
    pub removed_probes: u64,
    /// Unneeded chunks that are too young to remove.
    pub young_chunks: u64,
}

/// Files to remove: generations, and the names and sizes of chunks and deltas.
#[derive(Debug, Default)]
pub struct GcPlan {
    kept: Vec<u64>,
    pub(super) generations: BTreeSet<u64>,
    /// Generations that have a signature.
    pub(super) signed: BTreeSet<u64>,
    /// Generations with a signature that will never get a manifest.
    pub(super) signatures_alone: BTreeSet<u64>,
    pub(super) chunks: BTreeMap<String, u64>,
    pub(super) deltas: BTreeMap<String, u64>,
    pub(super) probes: BTreeSet<String>,
    young_chunks: u64,
}

/// Later than any time of a file.
const NEVER: Duration = Duration::from_secs(1 << 33);

impl Retention {
    /// The time that ages are relative to, by this host's clock. No file is young if there is no
    /// minimum age: the store's clock may be ahead of this one.
    pub(super) fn now(self) -> SystemTime {
        let now = SystemTime::now();
        if self.min_age.is_zero() {
            now + NEVER
        } else {
            now
        }
    }
}

impl GcPlan {
    /// Plans from the store's content; ages are relative to `now`.
    pub async fn read(
        store: &Store,
        audience: &AudienceName,
        retention: Retention,
        now: SystemTime,
    ) -> Result<Self, StoreError> {
        let current = store.require_live(audience, None).await?.current;
        let survey = Survey {
            store,
            audience,
            current,
            retention,
            now,
        };
        let mut plan = Self::default();
        survey.add_generations(&mut plan).await?;
        let needed = survey.needed_by(&plan.kept).await?;
        survey.add_deltas(&mut plan, &needed.deltas).await?;
        survey.add_chunks(&mut plan, &needed.chunks).await?;
        survey.add_probes(&mut plan).await?;
        Ok(plan)
    }

    pub fn is_empty(&self) -> bool {
        self.generations.is_empty()
            && self.signatures_alone.is_empty()
            && self.chunks.is_empty()
            && self.deltas.is_empty()
            && self.probes.is_empty()
    }

    /// Retains only files that another plan names too.
    pub fn retain_those_of(&mut self, other: &Self) {
        self.generations
            .retain(|generation| other.generations.contains(generation));
        self.signatures_alone
            .retain(|generation| other.signatures_alone.contains(generation));
        self.chunks
            .retain(|name, _| other.chunks.contains_key(name));
        self.deltas
            .retain(|name, _| other.deltas.contains_key(name));
        self.probes.retain(|name| other.probes.contains(name));
    }

    pub fn collected(&self) -> Collected {
        Collected {
            kept_generations: self.kept.clone(),
            removed_generations: self.generations.iter().copied().collect(),
            removed_chunks: self.chunks.len() as u64,
            removed_deltas: self
                .deltas
                .keys()
                .filter(|name| name.ends_with(".delta"))
                .count() as u64,
            removed_bytes: self.chunks.values().chain(self.deltas.values()).sum(),
            removed_probes: self.probes.len() as u64,
            young_chunks: self.young_chunks,
        }
    }
}

/// Names of files that kept generations need.
#[derive(Default)]
struct Needed {
    chunks: BTreeSet<String>,
    deltas: BTreeSet<String>,
}

/// One pass over a store.
struct Survey<'a> {
    store: &'a Store,
    audience: &'a AudienceName,
    current: Current,
    retention: Retention,
    now: SystemTime,
}

impl Survey<'_> {
    fn is_young(&self, meta: &ObjectMeta) -> bool {
        let written = SystemTime::from(meta.last_modified);
        written > self.now
            || self
                .now
                .duration_since(written)
                .is_ok_and(|age| age < self.retention.min_age)
    }

    fn is_deleted(&self) -> bool {
        self.current.state == State::Deleted
    }

    /// The first of the generations that are kept because a publish may be writing them.
    fn kept_from(&self) -> u64 {
        match self.is_deleted() {
            // The audience's lock is held, so no publish is running.
            true if self.store.backend.is_directory() => u64::MAX,
            true => self.current.highest_generation().saturating_add(1),
            false => self.current.generation,
        }
    }

    /// The oldest of the generations that are kept for rollbacks: the live one, and those that were
    /// live before it.
    async fn oldest_kept(&self, listed: &[u64]) -> Result<u64, StoreError> {
        if self.is_deleted() {
            return Ok(u64::MAX);
        }
        let mut oldest = self.current.generation;
        for _ in 1..self.retention.keep {
            match self
                .store
                .live_before(self.audience, oldest, listed)
                .await?
            {
                Some(before) => oldest = before,
                None => break,
            }
        }
        Ok(oldest)
    }

    async fn add_generations(&self, plan: &mut GcPlan) -> Result<(), StoreError> {
        let (live, kept_from) = (self.current.generation, self.kept_from());
        let ListedManifests {
            manifests,
            signatures,
        } = self.store.listed_manifests(self.audience).await?;
        let listed: Vec<u64> = manifests
            .iter()
            .map(|(generation, _)| *generation)
            .collect();
        let kept_from = kept_from.min(self.oldest_kept(&listed).await?);
        for (generation, meta) in &manifests {
            if *generation >= kept_from || self.is_young(meta) {
                plan.kept.push(*generation);
            } else {
                plan.generations.insert(*generation);
            }
        }
        // Read even if it is not listed: without it, all live chunks would look unneeded.
        if !self.is_deleted() && !plan.kept.contains(&live) {
            plan.kept.push(live);
            plan.kept.sort_unstable();
        }
        // Generations between two kept ones are kept: a rollback to the older one needs the deltas
        // folded into them.
        if let Some(oldest) = plan.kept.first().copied() {
            plan.kept.extend(plan.generations.split_off(&oldest));
            plan.kept.sort_unstable();
        }
        let has_manifest: BTreeSet<u64> = manifests
            .iter()
            .map(|(generation, _)| *generation)
            .collect();
        for (generation, meta) in &signatures {
            plan.signed.insert(*generation);
            if *generation < live && !has_manifest.contains(generation) && !self.is_young(meta) {
                plan.signatures_alone.insert(*generation);
            }
        }
        Ok(())
    }

    async fn needed_by(&self, kept: &[u64]) -> Result<Needed, StoreError> {
        let live = self.current.generation;
        let named = self.current.deltas.iter().chain(&self.current.tombstones);
        let mut needed = Needed {
            deltas: named.map(delta_name).collect(),
            ..Needed::default()
        };
        for generation in kept {
            let manifest = match self.store.manifest_of(self.audience, *generation).await {
                // Removed after the listing, by a loader whose publish failed.
                Err(StoreError::NotFound { .. }) if *generation != live || self.is_deleted() => {
                    continue;
                }
                Err(StoreError::NotFound { path }) => {
                    return Err(self.live_manifest_missing(path).await?);
                }
                manifest => manifest?.0,
            };
            needed
                .chunks
                .extend(manifest.chunks().iter().map(chunk_name));
            needed
                .deltas
                .extend(manifest.folded_deltas().map(delta_name));
        }
        Ok(needed)
    }

    /// The reason that the live generation has no manifest.
    async fn live_manifest_missing(&self, path: String) -> Result<StoreError, StoreError> {
        let then = self.current.generation;
        let now = self
            .store
            .live(self.audience)
            .await?
            .map_or(0, |live| live.current.generation);
        if now == then {
            return Ok(StoreError::NotFound { path });
        }
        let reason =
            format!("generation {now} was published since this work began at generation {then}");
        Ok(StoreError::conflict(self.audience, reason, false))
    }

    async fn add_deltas(
        &self,
        plan: &mut GcPlan,
        needed: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for object in self.store.backend.list(&deltas_path(self.audience)).await? {
            let Some(name) = object.location.filename() else {
                continue;
            };
            // A delta that no `CURRENT` names yet has a higher sequence.
            let delta = name.strip_suffix(".minisig").unwrap_or(name);
            let is_old = delta_sequence(delta).is_some_and(|last| last <= self.current.sequence);
            if is_old && !needed.contains(delta) && !self.is_young(&object) {
                plan.deltas.insert(name.to_owned(), object.size);
            }
        }
        Ok(())
    }

    async fn add_chunks(
        &self,
        plan: &mut GcPlan,
        needed: &BTreeSet<String>,
    ) -> Result<(), StoreError> {
        for object in self.store.backend.list(&chunks_path(self.audience)).await? {
            let Some(name) = object
                .location
                .filename()
                .filter(|name| is_chunk_name(name))
            else {
                continue;
            };
            if needed.contains(name) {
                continue;
            }
            if self.is_young(&object) {
                plan.young_chunks += 1;
            } else {
                plan.chunks.insert(name.to_owned(), object.size);
            }
        }
        Ok(())
    }

    /// Probes are beside `CURRENT`, and directories need none.
    async fn add_probes(&self, plan: &mut GcPlan) -> Result<(), StoreError> {
        if self.store.backend.is_directory() {
            return Ok(());
        }
        let folder = audience_path(self.audience);
        let listing = self
            .store
            .objects(&folder)
            .await?
            .list_with_delimiter(Some(&folder))
            .await;
        let listing = listing.map_err(|source| StoreError::backend("list", &folder, source))?;
        let old = listing
            .objects
            .iter()
            .filter(|object| !self.is_young(object));
        let names = old.filter_map(|object| object.location.filename());
        plan.probes
            .extend(names.filter(|name| is_probe_name(name)).map(str::to_owned));
        Ok(())
    }
}
