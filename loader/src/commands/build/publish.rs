//! From sorted keys to chunks, on all cores, and from there to the store, a few at a time.
//!
//! Builders take groups of partitions off a queue; what they build waits in a short channel, so that memory
//! holds a few chunks whatever the store is doing.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use rtad::device::SHARDS;
use rtad::filter::FilterSpec;
use rtad::snapshot::{
    AudienceName, BuildReport, BuiltChunk, Folded, Manifest, ManifestBuilder, chunk_runs, shards_per_chunk,
};
use rtad::store::{Base, Store, StoreError};

use super::super::CommandError;
use super::gate::Gate;
use crate::input::Counts;
use crate::partition::{PARTITIONS, Partition, Partitions, next};
use crate::progress::Progress;

/// Finished chunks that may wait to be written.
const WAITING_CHUNKS: usize = 2;
/// Chunks that are written at a time: each is 16 MiB in memory, and a request under way to a store that is far.
const PARALLEL_PUTS: usize = 4;
/// A dry run makes no generation; its manifest is never written.
const NO_GENERATION: u64 = 0;

/// What is to be built.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) filter: FilterSpec,
    pub(super) target_fpr: f64,
    /// Distinct keys.
    pub(super) keys: u64,
    /// Keys that came up again.
    pub(super) duplicates: u64,
    pub(super) counts: Counts,
    /// The deltas that are in them.
    pub(super) folded: Option<Folded>,
    pub(super) threads: usize,
    pub(super) gate: Gate,
    /// For how long it may be served.
    pub(super) expires: Option<Duration>,
}

/// What was built.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) manifest: Manifest,
    /// Chunks that the store did not hold already.
    pub(super) chunks_written: u64,
    pub(super) signed: bool,
}

impl Plan {
    /// Builds and publishes, if the gate lets what was built through.
    pub(super) fn publish(
        &self,
        keys: &mut Partitions,
        store: &Store,
        base: Base,
        runtime: &Runtime,
        progress: &Progress,
    ) -> Result<Done, CommandError> {
        let mut chunks_written = 0;
        let publication = runtime.block_on(store.publish(base))?;
        let chunks = self.chunks(keys, |mut receiver| {
            let mut manifest = self.manifest_builder();
            let added = |chunk: &BuiltChunk| {
                progress.add(1);
                manifest.add(chunk);
            };
            runtime.block_on(async {
                let built = stream::poll_fn(|context| receiver.poll_recv(context)).inspect(added);
                let puts = built.map(|chunk| publication.put_chunk(chunk));
                let mut puts = puts.buffer_unordered(PARALLEL_PUTS);
                while let Some(is_new) = puts.try_next().await? {
                    chunks_written += u64::from(is_new);
                }
                Ok::<_, StoreError>(())
            })?;
            Ok::<_, StoreError>(manifest)
        })?;
        let audience = publication.audience().clone();
        let manifest = self.manifest(chunks, audience, publication.generation());
        self.gate.check(&manifest)?;
        runtime.block_on(publication.commit(&manifest))?;
        Ok(Done { manifest, chunks_written, signed: store.signs() })
    }

    /// Builds only.
    pub(super) fn pretend(
        &self,
        keys: &mut Partitions,
        audience: &AudienceName,
        progress: &Progress,
    ) -> Done {
        let chunks = self.chunks(keys, |mut receiver| {
            let mut manifest = self.manifest_builder();
            while let Some(chunk) = receiver.blocking_recv() {
                progress.add(1);
                manifest.add(&chunk);
            }
            Ok::<_, std::convert::Infallible>(manifest)
        });
        let chunks = chunks.unwrap_or_else(|never| match never {});
        Done {
            manifest: self.manifest(chunks, audience.clone(), NO_GENERATION),
            chunks_written: 0,
            signed: false,
        }
    }

    fn manifest_builder(&self) -> ManifestBuilder {
        ManifestBuilder::new(self.filter, self.target_fpr)
    }

    /// Builds all chunks, for `drain` to take, on this thread. Stops when it has failed.
    fn chunks<T, E>(
        &self,
        keys: &mut Partitions,
        drain: impl FnOnce(mpsc::Receiver<BuiltChunk>) -> Result<T, E>,
    ) -> Result<T, E> {
        // Of the distinct keys: duplicates must not change where chunks are cut.
        let per_chunk = shards_per_chunk(&self.filter, self.keys);
        let group = (per_chunk as usize / (SHARDS / PARTITIONS)).max(1);
        let queue = Mutex::new(keys.groups(group));
        let (sender, receiver) = mpsc::channel(WAITING_CHUNKS);
        let build = |sender: mpsc::Sender<BuiltChunk>| {
            let mut sorted = Vec::new();
            while let Some(group) = next(&queue) {
                sorted.clear();
                sorted.reserve_exact(group.iter().map(Partition::len).sum());
                group.iter_mut().for_each(|partition| partition.drain_into(&mut sorted));
                for run in chunk_runs(&sorted, per_chunk) {
                    // Nobody listens any more once a chunk could not be written.
                    if sender.blocking_send(BuiltChunk::build(&self.filter, run)).is_err() {
                        return;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                let sender = sender.clone();
                scope.spawn(|| build(sender));
            }
            drop(sender);
            drain(receiver)
        })
    }

    fn manifest(&self, chunks: ManifestBuilder, audience: AudienceName, generation: u64) -> Manifest {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let build = BuildReport {
            tool: concat!("rtad-loader ", env!("CARGO_PKG_VERSION")).to_owned(),
            rows: self.counts.rows,
            duplicates: self.duplicates,
            rejected: self.counts.rejected.iter().sum(),
        };
        let manifest = chunks.finish(audience, generation, now, build);
        let manifest = match &self.folded {
            Some(folded) => manifest.with_folded(folded.clone()),
            None => manifest,
        };
        match self.expires {
            Some(lifetime) => manifest.expiring_at(now + lifetime.as_secs()),
            None => manifest,
        }
    }
}

#[cfg(test)]
mod tests {
    use rtad::device::DeviceKey;
    use rtad::filter::FilterKind;

    use super::*;
    use crate::input::KeySink;

    /// From chunks that span sixteen partitions to sixteen chunks in one partition.
    #[test]
    fn chunks_are_those_of_all_keys_cut_at_once() {
        let mut keys: Vec<_> = (0..5000_u32).map(|n| DeviceKey::of_canonical(&n.to_le_bytes())).collect();
        let filter = FilterSpec::for_fpr(FilterKind::Block512, 0.0001).unwrap();
        let mut cuts = Vec::new();
        // The number of keys is all that decides where chunks are cut.
        for claimed in [5000, 100_000_000, 200_000_000, 400_000_000, 1_500_000_000, 20_000_000_000] {
            let mut partitions = Partitions::default();
            partitions.take(&keys);
            partitions.sort_and_dedup(2, |_| true, |_| {});
            let counts = Counts { keys: claimed, ..Counts::default() };
            let plan = Plan {
                filter,
                target_fpr: 0.0001,
                keys: claimed,
                duplicates: 0,
                counts,
                folded: None,
                threads: 3,
                gate: Gate::open_to_all(),
                expires: None,
            };
            let audience: AudienceName = "a".parse().unwrap();
            let done = plan.pretend(&mut partitions, &audience, &Progress::new(false));

            keys.sort();
            let per_chunk = shards_per_chunk(&filter, claimed);
            let expected: Vec<_> =
                chunk_runs(&keys, per_chunk).map(|run| BuiltChunk::build(&filter, run).entry).collect();
            assert_eq!(done.manifest.chunks(), expected, "{per_chunk} shards per chunk");
            cuts.push(per_chunk);
        }
        assert_eq!((cuts[0], cuts[5]), (4096, 16));
        assert!(cuts.contains(&512) && cuts.contains(&256), "{cuts:?}");
    }
}
