//! Keys on disk, read in units: runs of shards that together fit one thread's memory.
//!
//! The number of keys per shard is known, so each key of a unit is read directly to its shard's
//! range, and the ranges are sorted. A partition up to [`MAX_PASSES`] units long is read once per
//! unit; a longer one is first split into one file per unit. A shard that does not fit is read in
//! pieces, each sorted and deduplicated with the rest of the earlier ones. That handles any number
//! of duplicates.

use std::io::{self, Write};
use std::ops::Range;

use super::dir::SpillDir;
use super::distinct::{Distinct, KeyChecks, sort_and_dedup, sort_and_keep_one};
use super::error::SpillError;
use super::memory::KEY_BYTES;
use super::partition::{PARTITIONS, SHARDS_PER_PARTITION, local_shard, starts};
use super::shard_keys::{ShardKeys, Worker};
use super::spill::{ShardCounts, SpillFile};

/// Reads of one partition before splitting it, which costs two reads and one write.
const MAX_PASSES: usize = 3;

/// Keys on disk, unordered.
pub struct Spilled<'d> {
    dir: &'d SpillDir,
    files: Vec<SpillFile>,
}

/// Keys on disk, with the settings for reading them.
pub struct Units<'a> {
    spilled: &'a Spilled<'a>,
    /// Keys that fit a thread's memory.
    unit_keys: usize,
    checks: KeyChecks<'a>,
}

impl<'d> Spilled<'d> {
    pub const fn new(dir: &'d SpillDir, files: Vec<SpillFile>) -> Self {
        Self { dir, files }
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.keys() * KEY_BYTES as u64
    }

    /// Number of keys, duplicates included.
    pub fn keys(&self) -> u64 {
        self.files.iter().map(|file| file.keys).sum()
    }

    /// Bytes of the largest partition.
    pub fn largest_partition_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.keys).max().unwrap_or(0) * KEY_BYTES as u64
    }

    pub fn most_keys(&self, shard: usize) -> u64 {
        self.files[shard / SHARDS_PER_PARTITION].shards[shard % SHARDS_PER_PARTITION]
    }

    /// Prepares reading by threads with `unit_bytes` of memory each.
    pub const fn units<'a>(&'a self, unit_bytes: usize, checks: KeyChecks<'a>) -> Units<'a> {
        Units {
            spilled: self,
            unit_keys: unit_bytes / KEY_BYTES,
            checks,
        }
    }
}

impl Units<'_> {
    /// Estimates the number of distinct keys from a partition of median size.
    pub fn estimate(&self, worker: &mut Worker) -> Result<u64, SpillError> {
        let mut order: Vec<usize> = (0..PARTITIONS).collect();
        let files = &self.spilled.files;
        order.retain(|partition| files[*partition].keys > 0);
        order.sort_unstable_by_key(|partition| files[*partition].keys);
        let Some(sample) = order.get(order.len() / 2) else {
            return Ok(0);
        };
        let first = sample * SHARDS_PER_PARTITION;
        let distinct = self.shards(first..first + SHARDS_PER_PARTITION, worker, &mut |_, _| {
            true
        })?;
        let ratio = distinct.left as f64 / files[*sample].keys as f64;
        Ok((self.spilled.keys() as f64 * ratio) as u64)
    }

    /// Divides shards of one partition into runs that fit memory. A larger shard is a run alone.
    fn cut(&self, counts: &ShardCounts, shards: Range<usize>) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut room = 0;
        for shard in shards {
            match runs.last_mut() {
                Some(run) if counts[shard] <= room => run.end = shard + 1,
                _ => {
                    runs.push(shard..shard + 1);
                    room = self.unit_keys as u64;
                }
            }
            room = room.saturating_sub(counts[shard]);
        }
        runs
    }

    fn partition(
        &self,
        partition: usize,
        shards: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Option<Distinct>, SpillError> {
        let file = &self.spilled.files[partition];
        let runs = self.cut(&file.shards, shards);
        let mut distinct = Distinct::default();
        let mut files = match runs.len() {
            ..=MAX_PASSES => Vec::new(),
            _ => self.split(file, &runs, worker)?,
        };

        let mut files = files.drain(..);
        for run in runs {
            let part = files.next();
            let source = part.as_ref().unwrap_or(file);
            // The other shards of its run have no keys.
            let too_large = run
                .clone()
                .find(|shard| file.shards[*shard] > self.unit_keys as u64);
            let sorted = match too_large {
                Some(shard) => self.piecewise(partition, source, shard, worker, each)?,
                None => self.unit(partition, source, run, worker, each)?,
            };
            match sorted {
                Some(sorted) => distinct = distinct.and(sorted),
                None => return Ok(None),
            }
        }
        Ok(Some(distinct))
    }

    /// Reads a run that fits.
    fn unit(
        &self,
        partition: usize,
        file: &SpillFile,
        run: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Option<Distinct>, SpillError> {
        let mut counts = [0; SHARDS_PER_PARTITION];
        for shard in run.clone() {
            counts[shard] = file.shards[shard] as usize;
        }
        let starts = starts(counts.into_iter());
        if starts[SHARDS_PER_PARTITION] == 0 {
            return Ok(Some(Distinct::default()));
        }

        let Worker { unit, block } = worker;
        let mut offsets = starts;
        let mut has_changed = false;
        let read = file.read(block, |keys| {
            for key in keys {
                let shard = usize::from(key[1]);
                if run.contains(&shard) {
                    let offset = &mut offsets[shard];
                    match unit.get_mut(*offset) {
                        Some(slot) if *offset < starts[shard + 1] => {
                            *slot = u128::from_be_bytes(*key);
                        }
                        _ => has_changed = true,
                    }
                    *offset += 1;
                }
            }
        });
        self.check(read)?;
        if has_changed || offsets[..SHARDS_PER_PARTITION] != starts[1..] {
            return Err(SpillError::Changed {
                dir: self.spilled.dir.shown(),
            });
        }

        let mut distinct = Distinct::default();
        for shard in run {
            let keys = &mut unit[starts[shard]..starts[shard + 1]];
            let sorted = sort_and_dedup(keys, partition, self.checks);
            distinct = distinct.and(sorted);
            let keys = &unit[starts[shard]..starts[shard] + sorted.left as usize];
            if !keys.is_empty() && !each((partition * SHARDS_PER_PARTITION + shard) as u16, keys) {
                return Ok(None);
            }
        }
        Ok(Some(distinct))
    }

    /// Reads a shard that fits only if it has many duplicates.
    fn piecewise(
        &self,
        partition: usize,
        file: &SpillFile,
        local_shard: usize,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Option<Distinct>, SpillError> {
        let shard = partition * SHARDS_PER_PARTITION + local_shard;
        let Worker { unit, block } = worker;
        let unit = &mut unit[..self.unit_keys];
        // Sorts would dominate if each left less than a quarter free.
        let most = self.unit_keys / 4 * 3;
        let mut len = 0;
        let mut too_large = false;

        let read = file.read(block, |keys| {
            if too_large {
                return;
            }
            for key in keys.iter().filter(|key| usize::from(key[1]) == local_shard) {
                if len == unit.len() {
                    len = sort_and_keep_one(unit, self.checks.has_values);
                    too_large = len > most;
                    if too_large {
                        return;
                    }
                }
                unit[len] = u128::from_be_bytes(*key);
                len += 1;
            }
        });

        self.check(read)?;
        if too_large {
            let needed = file.shards[local_shard] * KEY_BYTES as u64;
            return Err(SpillError::ShardTooLarge {
                shard: shard as u32,
                found: len,
                needed: needed >> 20,
            });
        }

        let sorted = sort_and_dedup(&mut unit[..len], partition, self.checks);
        let keys = &unit[..sorted.left as usize];
        if keys.is_empty() || each(shard as u16, keys) {
            Ok(Some(sorted))
        } else {
            Ok(None)
        }
    }

    /// Copies the keys to one unnamed file per run.
    fn split(
        &self,
        from: &SpillFile,
        runs: &[Range<usize>],
        worker: &mut Worker,
    ) -> Result<Vec<SpillFile>, SpillError> {
        let mut run_of = [None; SHARDS_PER_PARTITION];
        for (index, run) in runs.iter().enumerate() {
            run_of[run.clone()].fill(Some(index));
        }

        let dir = self.spilled.dir;
        let mut files = Vec::with_capacity(runs.len());
        for _ in runs {
            files.push(SpillFile::empty(dir.create_file()?));
        }

        // Every --memory leaves each buffer many keys.
        let Worker { unit, block } = worker;
        let mut buffers: Vec<(&mut [u128], usize)> = unit
            .chunks_mut(self.unit_keys / runs.len())
            .map(|buffer| (buffer, 0))
            .collect();

        let mut bytes = Vec::with_capacity(block.len());
        let mut failed = None;
        let read = from.read(block, |keys| {
            for key in keys {
                let Some(run) = run_of[usize::from(key[1])] else {
                    continue;
                };
                let (buffer, len) = &mut buffers[run];
                buffer[*len] = u128::from_be_bytes(*key);
                *len += 1;
                if *len == buffer.len() && failed.is_none() {
                    failed = write(&mut files[run], buffer, &mut bytes).err();
                }
                if *len == buffer.len() {
                    *len = 0;
                }
            }
        });
        self.check(read)?;

        for (file, (buffer, len)) in files.iter_mut().zip(buffers) {
            failed = failed.or_else(|| write(file, &buffer[..len], &mut bytes).err());
        }
        match failed {
            Some(error) => Err(dir.failed(error, self.spilled.keys() * KEY_BYTES as u64)),
            None => Ok(files),
        }
    }

    fn check(&self, read: io::Result<()>) -> Result<(), SpillError> {
        read.map_err(|source| SpillError::Read {
            dir: self.spilled.dir.shown(),
            source,
        })
    }
}

/// Appends keys to a file through `bytes`.
fn write(file: &mut SpillFile, keys: &[u128], bytes: &mut Vec<u8>) -> io::Result<()> {
    for keys in keys.chunks(bytes.capacity() / KEY_BYTES) {
        bytes.clear();
        bytes.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
        file.file.write_all(bytes)?;
    }
    for key in keys {
        file.shards[local_shard(*key)] += 1;
    }
    file.keys += keys.len() as u64;
    Ok(())
}

impl ShardKeys for Units<'_> {
    fn shards(
        &self,
        shards: Range<usize>,
        worker: &mut Worker,
        each: &mut dyn FnMut(u16, &[u128]) -> bool,
    ) -> Result<Distinct, SpillError> {
        let mut distinct = Distinct::default();
        let mut start = shards.start;
        while start < shards.end {
            let partition = start / SHARDS_PER_PARTITION;
            let first = partition * SHARDS_PER_PARTITION;
            let end = shards.end.min(first + SHARDS_PER_PARTITION);
            match self.partition(partition, start - first..end - first, worker, each)? {
                Some(keys) => distinct = distinct.and(keys),
                None => break,
            }
            start = end;
        }
        Ok(distinct)
    }

    fn most_keys(&self, shard: usize) -> u64 {
        self.spilled.most_keys(shard)
    }
}
