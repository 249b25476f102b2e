//! Model of builds, appends, rollbacks and gcs: after any steps, the store must have its members.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::super::*;
use crate::write::{Appended, Change, Retention};
use rtad_core::snapshot::{BuiltDelta, Folded};

/// Number of devices: few, so that most changes overlap.
const DEVICES: usize = 24;

#[derive(Debug, Clone)]
enum Step {
    /// Devices, and whether each is added or removed.
    Append(Vec<(usize, bool)>),
    /// Devices, and whether each gets a tombstone or loses it.
    Bury(Vec<(usize, bool)>),
    /// A full build of these devices.
    Build(Vec<usize>),
    /// Adds the appended devices to the live filters.
    Compact,
    /// A rollback to the generation this many back.
    RollBack(usize),
    Collect(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || prop::collection::vec((0..DEVICES, any::<bool>()), 0..6);
    let step = prop_oneof![
        6 => some().prop_map(Step::Append),
        2 => some().prop_map(Step::Bury),
        3 => prop::collection::vec(0..DEVICES, 0..DEVICES).prop_map(Step::Build),
        1 => Just(Step::Compact),
        1 => (0_usize..4).prop_map(Step::RollBack),
        1 => (1_usize..4).prop_map(Step::Collect),
    ];
    prop::collection::vec(step, 1..40)
}

pub(super) fn device(number: usize) -> DeviceKey {
    DeviceKey::of_canonical(&[number as u8])
}

/// A build as by the loader: the input, changed by the deltas of the base.
pub(super) async fn build_over(
    fixture: &StoreFixture,
    input: &[DeviceKey],
) -> Result<u64, StoreError> {
    let base = fixture.writer.base(&audience()).await?;
    let mut members: BTreeSet<DeviceKey> = input.iter().copied().collect();
    if let Some(current) = base.current() {
        let overlay = fixture.store().overlay(&audience(), current, &Overlay::default()).await?;
        for delta in overlay.deltas().chain(overlay.tombstones()) {
            members.extend(delta.added().iter());
            members.retain(|key| !delta.removed().contains(key));
        }
    }
    let members: Vec<_> = members.into_iter().collect();
    let folded = base.folded();
    let publication = fixture.writer.publish(base).await?;
    put_chunks(&publication, &members).await?;
    let manifest = build(publication.generation(), &members).0;
    publication
        .commit(&match folded {
            Some(folded) => manifest.with_folded(folded),
            None => manifest,
        })
        .await
}

/// A compaction as by the loader; `None` if there are no deltas.
pub(super) async fn compact(fixture: &StoreFixture) -> Option<u64> {
    let base = fixture.writer.base(&audience()).await.unwrap();
    let (current, folded) = (base.current().unwrap().clone(), base.folded().unwrap());
    let old = fixture.store().manifest(&audience(), &current).await.unwrap();
    let overlay =
        fixture.store().overlay(&audience(), &current, &Overlay::default()).await.unwrap();
    let last = overlay.deltas().last().map_or(0, |newest| newest.entry().last);
    let changes = BuiltDelta::merged(last, overlay.deltas().map(|delta| &**delta))?.delta;
    let is_erased =
        |key: &DeviceKey| overlay.tombstones().is_some_and(|gone| gone.removed().contains(key));
    let added: Vec<_> = changes.added().iter().filter(|key| !is_erased(key)).copied().collect();
    let publication = fixture.writer.publish(base).await.unwrap();
    let mut chunks = ManifestBuilder::new(*old.filter(), 0.0001);
    let mut begin = 0;
    for (index, entry) in old.chunks().iter().enumerate() {
        let next = old.chunks().get(index + 1).map_or(65_536, |next| next.first_shard);
        let end = added.partition_point(|key| u32::from(key.shard()) < next);
        let file = fixture.store().chunk_file(&old, entry).await.unwrap();
        let chunk = BuiltChunk::grown(old.filter(), Some((entry, &file)), &added[begin..end]).0;
        chunks.add(&chunk);
        publication.put_chunk(chunk).await.unwrap();
        begin = end;
    }
    for run in chunk_runs(&added[begin..], 4096) {
        let chunk = BuiltChunk::grown(old.filter(), None, run).0;
        chunks.add(&chunk);
        publication.put_chunk(chunk).await.unwrap();
    }
    let removed = changes.removed().to_vec();
    let residual = BuiltDelta::new(changes.entry().first, last, Vec::new(), removed);
    if let Some(residual) = &residual {
        publication.put_delta(residual).await.unwrap();
    }
    let residual = residual.map(|residual| residual.delta.entry().clone());
    let manifest =
        chunks.finish(audience(), publication.generation(), 1_763_722_800, BuildReport::default());
    let manifest = manifest.with_folded(Folded { residual, ..folded });
    Some(publication.commit(&manifest).await.unwrap())
}

/// Appends, with retries after conflicts.
pub(super) async fn append(
    fixture: &StoreFixture,
    change: &Change,
) -> Result<Appended, StoreError> {
    let mut ledger = fixture.writer.ledger(&audience()).await?;
    loop {
        match ledger.append(change.clone()).await {
            Err(StoreError::Conflict { .. }) => drop(ledger.refresh().await?),
            // A gc has removed deltas that another append merged.
            Err(StoreError::NotFound { .. }) if ledger.refresh().await? => {}
            done => return done,
        }
    }
}

pub(super) fn adding(keys: impl IntoIterator<Item = DeviceKey>) -> Change {
    let mut change = Change::default();
    keys.into_iter().for_each(|key| change.add(key));
    change
}

/// The expected state, by the rules alone.
#[derive(Debug, Default)]
struct Model {
    /// The input of each generation, and the number of changes folded into it.
    generations: BTreeMap<u64, (BTreeSet<usize>, usize)>,
    /// The removed devices that are still a delta of each compacted generation.
    residuals: BTreeMap<u64, BTreeSet<usize>>,
    changes: Vec<(usize, bool)>,
    buried: BTreeSet<usize>,
    live: u64,
}

impl Model {
    /// The live generation's input, with all later changes.
    fn members(&self) -> BTreeSet<usize> {
        let (input, since) = &self.generations[&self.live];
        let mut members = input.clone();
        for (device, is_member) in &self.changes[*since..] {
            if *is_member {
                members.insert(*device)
            } else {
                members.remove(device)
            };
        }
        &members - &self.buried
    }

    /// Devices with a tombstone keep their state in the filters.
    fn compact(&mut self, generation: u64) {
        let (input, since) = &self.generations[&self.live];
        let mut members = input.clone();
        for (device, is_member) in &self.changes[*since..] {
            match is_member {
                true => drop(members.insert(*device)),
                false => drop(members.remove(device)),
            }
        }
        let mut residual = self.residuals.get(&self.live).cloned().unwrap_or_default();
        for (device, is_member) in &self.changes[*since..] {
            if *is_member {
                residual.remove(device)
            } else {
                residual.insert(*device)
            };
        }
        self.residuals.insert(generation, residual);
        for buried in &self.buried {
            let last = self.changes[*since..].iter().rfind(|(device, _)| device == buried);
            match last {
                Some((_, true)) if !input.contains(buried) => drop(members.remove(buried)),
                _ => {}
            }
        }
        self.generations.insert(generation, (members, self.changes.len()));
        self.live = generation;
    }

    fn build(&mut self, generation: u64, input: &[usize]) {
        // The live deltas apply over the input.
        let applied = self.generations.get(&self.live).map_or(0, |(_, since)| *since);
        let mut members: BTreeSet<usize> = input.iter().copied().collect();
        if let Some(residual) = self.residuals.get(&self.live) {
            members = &members - residual;
        }
        for (device, is_member) in &self.changes[applied..] {
            if *is_member {
                members.insert(*device)
            } else {
                members.remove(device)
            };
        }
        let members = &members - &self.buried;
        self.generations.insert(generation, (members, self.changes.len()));
        self.live = generation;
    }
}

async fn take(fixture: &StoreFixture, model: &mut Model, step: &Step) {
    match step {
        Step::Append(changes) => {
            let mut change = Change::default();
            for (number, is_member) in changes {
                if *is_member {
                    change.add(device(*number))
                } else {
                    change.remove(device(*number))
                };
            }
            append(fixture, &change).await.unwrap();
            // Devices with a tombstone are not added, so removing the tombstone does not add them.
            let applied =
                changes.iter().filter(|(number, is)| !is || !model.buried.contains(number));
            // The last entry of a device wins, even if it is not applied.
            let last = |number: &usize| changes.iter().rfind(|(other, _)| other == number).copied();
            model
                .changes
                .extend(applied.filter(|(number, is)| last(number) == Some((*number, *is))));
        }
        Step::Bury(changes) => {
            let mut change = Change::default();
            for (number, is_buried) in changes {
                if *is_buried {
                    change.entomb(device(*number))
                } else {
                    change.lift(device(*number))
                };
                if *is_buried {
                    model.buried.insert(*number)
                } else {
                    model.buried.remove(number)
                };
            }
            let appended = append(fixture, &change).await.unwrap();
            assert_eq!(appended.tombstones, model.buried.len() as u64);
        }
        Step::Build(input) => {
            let keys: Vec<_> = input.iter().map(|number| device(*number)).collect();
            let generation = build_over(fixture, &keys).await.unwrap();
            model.build(generation, input);
        }
        Step::Compact => {
            if let Some(generation) = compact(fixture).await {
                model.compact(generation);
            }
        }
        Step::RollBack(back) => {
            let generations = fixture.store().generations(&audience()).await.unwrap();
            let Some(to) = generations.iter().rev().nth(*back) else { return };
            fixture.roll_back(*to).await.unwrap();
            model.live = *to;
        }
        Step::Collect(keep) => {
            let retention = Retention { keep: *keep, min_age: Duration::ZERO };
            fixture.writer.collect(&audience(), retention, false).await.unwrap();
        }
    }
}

/// Asserts that the store's members are the model's after each step. So few keys have no false
/// positives.
async fn matches_the_model(fixture: StoreFixture, steps: &[Step]) {
    let mut model = Model::default();
    take(&fixture, &mut model, &Step::Build(vec![1, 2, 3])).await;
    for (index, step) in steps.iter().enumerate() {
        take(&fixture, &mut model, step).await;
        let snapshot = fixture.read().await.unwrap();
        let found: BTreeSet<usize> =
            (0..DEVICES).filter(|number| snapshot.contains(&device(*number))).collect();
        assert_eq!(found, model.members(), "after step {index}, {step:?}");
    }
}

#[test]
fn store_matches_the_model_after_any_steps() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for fixture in [StoreFixture::directory, StoreFixture::memory] {
        let mut runner =
            TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
        let tried = runner.run(&steps(), |steps| {
            runtime.block_on(matches_the_model(fixture(), &steps));
            Ok(())
        });
        tried.unwrap();
    }
}

/// Regression: a residual merged with a later delta was applied to the older generation again.
#[tokio::test]
async fn residual_of_a_compaction_does_not_apply_after_a_rollback() {
    for fixture in [StoreFixture::directory, StoreFixture::memory] {
        let merged_with_a_later_delta = [
            Step::Append(vec![(15, false)]),
            Step::Build(vec![]),
            Step::RollBack(1),
            Step::Compact,
            Step::Append(vec![(0, false)]),
            Step::Build(vec![]),
            Step::RollBack(2),
            Step::Build(vec![15]),
        ];
        matches_the_model(fixture(), &merged_with_a_later_delta).await;
        let over_a_later_delta = [
            Step::Append(vec![(15, false)]),
            Step::Build(vec![]),
            Step::RollBack(1),
            Step::Append(vec![(0, false)]),
            Step::Compact,
            Step::RollBack(1),
            Step::Build(vec![15]),
        ];
        matches_the_model(fixture(), &over_a_later_delta).await;
    }
}
