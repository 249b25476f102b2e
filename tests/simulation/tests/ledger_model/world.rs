//! The world of a schedule: a store, writers, a pod, and the model of what they must answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::sample::Index;
use rtad::serve::Assembly;
use rtad::sync::{Shared, SwapMode, Syncer};
use rtad_core::device::DeviceKey;
use rtad_core::filter::{FilterKind, FilterSpec};
use rtad_core::snapshot::{
    AudienceName, BuiltChunk, ChunkEntry, Current, GenerationFacts, ManifestBuilder, Overlay,
    Snapshot, State, chunk_runs,
};
use rtad_store::write::{Appended, Base, Change, Ledger, Retention, StoreWriter};
use rtad_store::{Store, StoreError};
use tempfile::TempDir;
use testkit::faulty_store::FaultyStore;

use crate::model::{KEYS, Keys, Kind, Model, bit};
use crate::{Step, WRITERS};

const CONFIG: &str = "store.url = \"/unused\"\n[[audience]]\nname = \"old_users\"\n\
                      [[strategy]]\nname = \"s\"\nexclude = [\"old_users\"]\n";
/// Sizes of the deltas of a ladder: each is too small to be merged with the one before.
const LADDER: [u32; 5] = [1024, 256, 64, 16, 4];
/// Attempts of a writer against lost answers and stale ledgers.
const ATTEMPTS: usize = 5;
/// Chunks of a snapshot.
const CHUNKS: u32 = 4;

fn audience() -> AudienceName {
    "old_users".parse().unwrap()
}

/// Key `number` of the model. The shards are spread over all chunks.
fn key(number: u8) -> DeviceKey {
    let mut bytes = [number; 16];
    bytes[..2].copy_from_slice(&(u16::from(number) * 5_400).to_be_bytes());
    DeviceKey::from_bytes(bytes)
}

/// The generations that a record names.
fn kept_generations(current: &Current) -> Vec<u64> {
    let entries = current.generations();
    entries.iter().map(|entry| entry.generation).collect()
}

/// The pod: its sync and its cache.
struct Pod {
    sync: Syncer,
    _cache: TempDir,
}

struct PendingBuild {
    base: Base,
    keys: Keys,
    fillers: BTreeSet<DeviceKey>,
    through: u64,
}

pub struct World {
    faults: Arc<FaultyStore>,
    writer: StoreWriter,
    ledgers: [Option<Ledger>; WRITERS],
    model: Model,
    build: Option<PendingBuild>,
    pod: Pod,
    fillers: u64,
}

impl World {
    pub fn new() -> Self {
        let faults = Arc::new(FaultyStore::default());
        let store = Store::over(Arc::clone(&faults) as _, "memory");
        let assembly = Assembly::read(Some(("model", CONFIG)), |_| None, &Vec::new()).unwrap();
        let mut plan = assembly.plan();
        plan.swap = SwapMode::Rolling;
        let cache = tempfile::tempdir().unwrap();
        let sync = Syncer::new(store.clone(), plan, Shared::default())
            .with_cache(Some(cache.path().to_owned()));
        Self {
            faults,
            writer: StoreWriter::new(store).unwrap(),
            ledgers: [const { None }; WRITERS],
            model: Model::default(),
            build: None,
            pod: Pod {
                sync,
                _cache: cache,
            },
            fillers: 0,
        }
    }

    /// Takes a step, then compares the store with the model.
    pub async fn take(&mut self, step: Step) {
        match step {
            Step::Append {
                writer,
                changes,
                lost,
            } => {
                self.faults.lose_next_answer(lost);
                self.append(writer, &changes, &[]).await;
                self.faults.lose_next_answer(None);
            }
            Step::Ladder { writer, key, kind } => {
                for size in LADDER {
                    let fillers: Vec<DeviceKey> = (0..size).map(|_| self.filler()).collect();
                    self.append(writer, &[], &fillers).await;
                }
                self.append(writer, &[(key, kind)], &[]).await;
            }
            Step::StartBuild { input } => self.build = self.start_build(input).await,
            Step::FinishBuild => drop(self.finish_build().await),
            Step::Build { input } => {
                self.build = self.start_build(input).await;
                self.finish_build().await.unwrap();
            }
            Step::RollBack { to } => self.roll_back(to).await,
            Step::VisitOlder { to, writer, key } => self.visit_older(to, writer, key).await,
            Step::Disable(is_disabled) => self.disable(is_disabled).await,
            Step::Delete => match self.writer.delete(&audience()).await {
                Ok(_) => self.model.delete(),
                Err(error) => assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}"),
            },
            Step::Collect { keep } => self.collect(keep).await,
            Step::Poll { chunk_reads } => self.poll(chunk_reads).await,
        }
        self.compare_store().await;
    }

    /// A key outside the model.
    fn filler(&mut self) -> DeviceKey {
        self.fillers += 1;
        DeviceKey::of_canonical(self.fillers.to_string().as_bytes())
    }

    async fn current(&self) -> Option<Current> {
        self.writer
            .base(&audience())
            .await
            .unwrap()
            .current()
            .cloned()
    }

    /// Appends as the writer does: over its ledger, again after a conflict or a lost answer.
    async fn append(&mut self, writer: usize, changes: &[(u8, Kind)], fillers: &[DeviceKey]) {
        if self.current().await.is_none() {
            return;
        }
        if self.ledgers[writer].is_none() {
            self.ledgers[writer] = Some(self.writer.ledger(&audience()).await.unwrap());
        }
        let ledger = self.ledgers[writer].as_mut().unwrap();
        for attempt in 0.. {
            let mut change = Change::default();
            fillers.iter().for_each(|filler| change.add(*filler));
            for (number, kind) in changes {
                match kind {
                    Kind::Add => change.add(key(*number)),
                    Kind::Remove => change.remove(key(*number)),
                    Kind::Entomb => change.entomb(key(*number)),
                    Kind::Lift => change.lift(key(*number)),
                }
            }
            match ledger.append(change).await {
                Ok(Appended { sequence, .. }) => {
                    assert!(!self.model.is_disabled(), "acknowledged while disabled");
                    return self.model.append(sequence, changes);
                }
                // A stale ledger may say so wrongly: the writer refreshes once.
                Err(StoreError::NotLive { .. }) if attempt > 0 => return,
                Err(StoreError::TooManyDeltas { .. }) => return,
                Err(error) => assert!(attempt < ATTEMPTS, "{error:?}"),
            }
            ledger.refresh().await.unwrap();
        }
    }

    /// Reads the base and its deltas, as a build does.
    async fn start_build(&mut self, input: Keys) -> Option<PendingBuild> {
        let base = self.writer.base(&audience()).await.unwrap();
        let through = base.current().map_or(0, |current| current.sequence);
        let (mut keys, mut fillers) = (input & (bit(KEYS) - 1), BTreeSet::new());
        if let Some(current) = base
            .current()
            .filter(|current| current.state != State::Deleted)
        {
            let mut ledger = self.writer.ledger(&audience()).await.unwrap();
            for entry in &current.deltas {
                let delta = ledger.delta(entry).await.unwrap();
                for number in 0..KEYS {
                    match delta.membership(&key(number)) {
                        Some(true) => keys |= bit(number),
                        Some(false) => keys &= !bit(number),
                        None => {}
                    }
                }
                fillers.extend(delta.added().iter().copied());
            }
            self.compare_carried(current, &mut ledger).await;
            // Merged deltas may repeat older changes, so the rest may differ from the input.
            let decided = self.model.decided(through);
            let expected = self.model.built(input, through);
            assert_eq!(
                keys & decided,
                expected & decided & (bit(KEYS) - 1),
                "the build's keys"
            );
        }
        fillers.retain(|filler| (0..KEYS).all(|number| key(number) != *filler));
        Some(PendingBuild {
            base,
            keys,
            fillers,
            through,
        })
    }

    /// The live manifest names the changes that its build saw: the next build reports those that
    /// its input undoes.
    async fn compare_carried(&self, current: &Current, ledger: &mut Ledger) {
        let manifest = self
            .writer
            .store()
            .manifest(&audience(), &current.live_entry())
            .await
            .unwrap();
        let mut carried = [None; KEYS as usize];
        for entry in manifest.folded().iter().flat_map(|folded| &folded.deltas) {
            let delta = ledger.delta(entry).await.unwrap();
            for number in 0..KEYS {
                let change = delta.membership(&key(number));
                carried[usize::from(number)] = change.or(carried[usize::from(number)]);
            }
        }
        for number in 0..KEYS {
            if let Some(expected) = self.model.carried(number) {
                assert_eq!(
                    carried[usize::from(number)],
                    Some(expected),
                    "carried key {number}"
                );
            }
        }
    }

    /// A build conflicts with a generation that was published since it started.
    async fn finish_build(&mut self) -> Result<(), StoreError> {
        let Some(PendingBuild {
            base,
            keys,
            fillers,
            through,
        }) = self.build.take()
        else {
            return Ok(());
        };
        let mut all: Vec<DeviceKey> = fillers.into_iter().collect();
        all.extend((0..KEYS).filter(|number| keys & bit(*number) != 0).map(key));
        all.sort_unstable();
        let facts = GenerationFacts {
            created_unix_seconds: 1,
            folded: base.folded(),
            ..GenerationFacts::default()
        };
        let published = async {
            let publication = self.writer.publish(base).await?;
            let spec = FilterSpec::for_fpr(FilterKind::Block512, 1e-6).unwrap();
            let mut builder = ManifestBuilder::new(spec, 1e-6);
            for run in chunk_runs(&all, (1 << 16) / CHUNKS) {
                let chunk = BuiltChunk::build(&spec, run);
                builder.add(&chunk);
                publication.put_chunk(chunk).await?;
            }
            let manifest = builder.finish(audience(), facts).unwrap();
            publication.commit(manifest).await
        };
        let published = published.await;
        match &published {
            Ok(published) => self
                .model
                .publish(published.current.generation, keys, through),
            Err(error) => assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}"),
        }
        published.map(drop)
    }

    async fn roll_back(&mut self, to: Index) {
        let Some(current) = self.current().await else {
            return;
        };
        let mut others = kept_generations(&current);
        others.retain(|number| *number != current.generation);
        if !others.is_empty() {
            self.roll_back_to(*to.get(&others)).await;
        }
    }

    async fn visit_older(&mut self, to: Index, writer: usize, key: u8) {
        let Some(current) = self.current().await else {
            return;
        };
        let mut older = kept_generations(&current);
        older.retain(|number| *number < current.generation);
        if older.is_empty() || !self.roll_back_to(*to.get(&older)).await {
            return;
        }
        self.append(writer, &[(key, Kind::Add)], &[]).await;
        self.roll_back_to(current.generation).await;
    }

    async fn roll_back_to(&mut self, generation: u64) -> bool {
        let rolled = async {
            let base = self.writer.base(&audience()).await?;
            self.writer.publish(base).await?.roll_back(generation).await
        };
        match rolled.await {
            Ok(_) => {
                self.model.roll_back(generation);
                true
            }
            Err(StoreError::NotLive { .. }) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    async fn disable(&mut self, is_disabled: bool) {
        let state = if is_disabled {
            State::Disabled
        } else {
            State::Live
        };
        if self.model.is_live() {
            let mut ledger = self.writer.ledger(&audience()).await.unwrap();
            ledger.set(state, None).await.unwrap();
            self.model.disable(is_disabled);
        }
    }

    async fn collect(&mut self, keep: usize) {
        if self.current().await.is_none() {
            return;
        }
        let retention = Retention {
            keep,
            min_age: std::time::Duration::ZERO,
        };
        let collected = self.writer.collect(&audience(), retention, false).await;
        collected.unwrap_or_else(|error| panic!("{error:?}"));
        if let Some(current) = self.current().await {
            self.model.keep(&kept_generations(&current));
        }
    }

    /// The pod answers from the model's present state after a whole poll. After a failed one, each
    /// chunk may still answer from a state since the last whole one, but not from before a
    /// deletion, and not at all while the audience is disabled.
    async fn poll(&mut self, chunk_reads: Option<usize>) {
        let members = self.model.members();
        self.faults
            .limit_reads(chunk_reads.map(|reads| ("/chunks/", reads)));
        self.pod.sync.poll_all().await;
        self.faults.limit_reads(None);
        self.model.polled(false);
        let catalog = self.pod.sync.serving().load_full();
        let audience = &catalog.audiences()[0];
        let snapshot = audience.available();
        assert!(
            snapshot.is_none() || members.is_some(),
            "disabled or deleted, but served"
        );
        if let Some(snapshot) = snapshot {
            for number in 0..KEYS {
                let answer = snapshot.contains(&key(number));
                assert!(
                    self.model.may_answer(number, answer),
                    "key {number} is {answer}: {:?}",
                    self.model
                );
            }
        }
        if chunk_reads.is_none() {
            assert_eq!(
                snapshot.is_some(),
                members.is_some(),
                "after a poll without faults"
            );
            assert!(snapshot.is_none_or(|snapshot| !snapshot.is_mixed()));
            self.model.polled(true);
        }
    }

    /// A fresh reader of the store sees the model's members.
    async fn compare_store(&self) {
        let Some(current) = self.current().await else {
            return;
        };
        let members = (current.state == State::Live).then_some(());
        let Some(expected) = self.model.members() else {
            assert_eq!(members, None, "nothing is served");
            return;
        };
        let snapshot = self.read(&current).await;
        let found: Keys = (0..KEYS)
            .filter(|number| snapshot.contains(&key(*number)))
            .fold(0, |keys, number| keys | bit(number));
        assert_eq!(
            found, expected,
            "members: found {found:012b}, expected {expected:012b}"
        );
    }

    async fn read(&self, current: &Current) -> Snapshot {
        let store = self.writer.store();
        let manifest = store.manifest(&audience(), &current.live_entry()).await;
        let manifest = manifest.unwrap();
        let mut chunks = std::collections::BTreeMap::new();
        let arrived =
            |entry: &ChunkEntry, chunk| drop(chunks.insert(entry.first_shard, Arc::new(chunk)));
        store
            .chunks(&manifest, manifest.chunks(), 2, arrived)
            .await
            .unwrap();
        let overlay = store
            .overlay(&audience(), current, &Overlay::default())
            .await
            .unwrap();
        Snapshot::assemble(manifest, chunks.into_values().collect()).with_overlay(overlay)
    }
}
