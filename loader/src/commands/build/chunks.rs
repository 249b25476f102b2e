//! Chunk pipeline: builds chunks from sorted keys on all cores.
//!
//! Builder threads take groups of shards off a queue. There are more of them than cores if keys are
//! read from disk: while some wait for it, the others build. Built chunks wait in a short channel.
//! A [`MemoryPool`] bounds the memory of all chunks that are built, queued or written.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};
use tokio::sync::mpsc;

use rtad_core::device::SHARDS;
use rtad_core::filter::FilterSpec;
use rtad_core::snapshot::{BuiltChunk, ChunkBuilder};

use crate::keys::{
    Builders, Distinct, SHARDS_PER_PARTITION, ShardKeys, SpillError, Worker, device_key, member,
    next,
};

/// Finished chunks that may wait to be written.
const WAITING_CHUNKS: usize = 2;
/// Allocations of this size get their own mapping: only touched pages take memory, and freeing
/// returns all of them. The allocator may keep smaller ones.
const OWN_MAPPING_BYTES: u64 = 33 << 20;

#[derive(Debug)]
pub struct MemoryPool {
    total: u64,
    free: Mutex<u64>,
    released: Condvar,
}

/// A part of the pool, released on drop.
#[derive(Debug)]
pub struct MemoryLease<'r> {
    pool: &'r MemoryPool,
    bytes: u64,
}

impl MemoryPool {
    pub const fn of(bytes: u64) -> Self {
        Self {
            total: bytes,
            free: Mutex::new(bytes),
            released: Condvar::new(),
        }
    }

    /// Waits until `bytes` are free. A request for more than the pool waits for the whole pool.
    fn take(&self, bytes: u64) -> MemoryLease<'_> {
        let bytes = bytes.min(self.total);
        let mut free = self.free.lock();
        self.released.wait_while(&mut free, |free| *free < bytes);
        *free -= bytes;
        MemoryLease { pool: self, bytes }
    }

    fn release(&self, bytes: u64) {
        *self.free.lock() += bytes;
        self.released.notify_all();
    }
}

impl MemoryLease<'_> {
    /// Releases all but `bytes`.
    fn shrink_to(&mut self, bytes: u64) {
        let surplus = self.bytes.saturating_sub(bytes);
        self.bytes -= surplus;
        self.pool.release(surplus);
    }
}

impl Drop for MemoryLease<'_> {
    fn drop(&mut self) {
        self.pool.release(self.bytes);
    }
}

/// Output of a group of shards: its chunks, then the number of its keys.
#[derive(Debug)]
pub enum PipelineItem<'r> {
    /// A chunk and its memory.
    Chunk(BuiltChunk, MemoryLease<'r>),
    Keys(Distinct),
}

type ItemSender<'r> = mpsc::Sender<Result<PipelineItem<'r>, SpillError>>;

pub struct ChunkPipeline<'a> {
    pub filter: &'a FilterSpec,
    pub shards_per_chunk: u32,
    pub builders: Builders,
    pub keys: &'a dyn ShardKeys,
    pub pool: &'a MemoryPool,
}

impl<'a> ChunkPipeline<'a> {
    /// Shards per unit of work: whole chunks and whole partitions.
    fn group_shards(&self) -> usize {
        (self.shards_per_chunk as usize).max(SHARDS_PER_PARTITION)
    }

    /// Builds all chunks. `drain` receives them on this thread; the builders stop when it returns.
    pub fn run<T, E>(
        &self,
        drain: impl FnOnce(mpsc::Receiver<Result<PipelineItem<'a>, SpillError>>) -> Result<T, E>,
    ) -> Result<T, E> {
        let queue = Mutex::new(0..SHARDS / self.group_shards());
        let (sender, receiver) = mpsc::channel(WAITING_CHUNKS);
        std::thread::scope(|scope| {
            let queue = &queue;
            for _ in 0..self.builders.threads {
                let sender = sender.clone();
                scope.spawn(move || self.build_groups(queue, &sender));
            }
            drop(sender);
            drain(receiver)
        })
    }

    /// Builds groups until the queue is empty, or one has failed.
    fn build_groups(&self, queue: &Mutex<Range<usize>>, sender: &ItemSender<'a>) {
        let mut worker = Worker::new(self.builders.unit_bytes);
        while let Some(group) = next(queue) {
            match self.group(group, &mut worker, sender) {
                Ok(true) => {}
                // The receiver is gone: a chunk could not be written.
                Ok(false) => return,
                Err(error) => {
                    let _ = sender.blocking_send(Err(error));
                    return;
                }
            }
        }
    }

    /// Builds one group. Returns whether the receiver still exists.
    fn group(
        &self,
        group: usize,
        worker: &mut Worker,
        sender: &ItemSender<'a>,
    ) -> Result<bool, SpillError> {
        let first_shard = group * self.group_shards();
        let mut chunks = GroupChunks {
            pipeline: self,
            sender,
            open: None,
            stopped: None,
        };

        let distinct = self.keys.shards(
            first_shard..first_shard + self.group_shards(),
            worker,
            &mut |shard, keys| {
                chunks.add(shard, keys);
                chunks.stopped.is_none()
            },
        )?;
        chunks.close();

        match chunks.stopped {
            None => Ok(sender
                .blocking_send(Ok(PipelineItem::Keys(distinct)))
                .is_ok()),
            Some(Stopped::NoReceiver) => Ok(false),
            Some(Stopped::TooLarge { first_shard }) => Err(SpillError::ChunkTooLarge {
                first_shard,
                most: self.pool.total,
            }),
        }
    }

    fn open(&self, run: usize) -> OpenChunk<'a> {
        let per_chunk = self.shards_per_chunk as usize;
        let lease = self
            .pool
            .take(self.max_bytes(run * per_chunk..(run + 1) * per_chunk));
        let body_bytes = lease.bytes.max(OWN_MAPPING_BYTES);
        OpenChunk {
            run,
            chunk: ChunkBuilder::new(self.filter, body_bytes),
            lease,
        }
    }

    /// Upper bound of the filter size of these shards, with the memory of their construction.
    pub fn max_bytes(&self, shards: Range<usize>) -> u64 {
        let mut filter_bytes = 0;
        let mut most_keys = 0;
        for shard in shards {
            let keys = u32::try_from(self.keys.most_keys(shard)).unwrap_or(u32::MAX);
            filter_bytes += self.filter.filter_bytes(keys);
            most_keys = most_keys.max(keys);
        }
        // One shard is built at a time.
        filter_bytes + self.filter.construction_bytes(most_keys)
    }
}

struct OpenChunk<'a> {
    run: usize,
    chunk: ChunkBuilder<'a>,
    lease: MemoryLease<'a>,
}

/// The chunks of one group, one open at a time.
struct GroupChunks<'p, 'a> {
    pipeline: &'p ChunkPipeline<'a>,
    sender: &'p ItemSender<'a>,
    open: Option<OpenChunk<'a>>,
    /// Why no more shards are taken.
    stopped: Option<Stopped>,
}

enum Stopped {
    /// A chunk could not be written.
    NoReceiver,
    /// A chunk does not fit the pool.
    TooLarge { first_shard: u32 },
}

impl GroupChunks<'_, '_> {
    /// Adds a shard to its chunk, and sends the chunk before it.
    fn add(&mut self, shard: u16, keys: &[u128]) {
        let per_chunk = self.pipeline.shards_per_chunk as usize;
        let run = usize::from(shard) / per_chunk;
        if self.open.as_ref().is_some_and(|open| open.run != run) {
            self.close();
            if self.stopped.is_some() {
                return;
            }
        }

        let open = self.open.get_or_insert_with(|| self.pipeline.open(run));
        if self.pipeline.filter.value_bits() > 0 {
            let members = keys.iter().map(|record| member(shard, *record));
            open.chunk.add_shard_with_values(shard, members);
        } else {
            open.chunk.add_shard(shard, keys.iter().map(device_key));
        }

        if open.chunk.body_bytes() > self.pipeline.pool.total {
            let first_shard = (run * per_chunk) as u32;
            self.stopped = Some(Stopped::TooLarge { first_shard });
        }
    }

    /// Sends the open chunk, unless it is empty or was stopped.
    fn close(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        let Some(mut open) = self.open.take() else {
            return;
        };
        let Some(chunk) = open.chunk.finish() else {
            return;
        };

        open.lease.shrink_to(chunk.entry.size_bytes);
        let item = PipelineItem::Chunk(chunk, open.lease);
        if self.sender.blocking_send(Ok(item)).is_err() {
            self.stopped = Some(Stopped::NoReceiver);
        }
    }
}
