//! Spill files: one per partition, 16 bytes per key, unordered.
//!
//! Direct I/O bypasses the page cache where the file system supports it. Each key is written once
//! and read once or twice much later, so caching would only cost memory and kernel time. Writes are
//! whole pages; the last page is padded with a key already in it.
//!
//! Each file has its own lock, held for one write of many segments. Writes count the keys per
//! shard, which later decides which shards fit memory together.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
#[cfg(target_os = "linux")]
use rustix::fs::OFlags;

use super::dir::SpillDir;
use super::error::SpillError;
use super::memory::{KEY_BYTES, Segment};
use super::partition::{PARTITIONS, SHARDS_PER_PARTITION};

/// Number of keys per shard of a partition.
pub type ShardCounts = [u64; SHARDS_PER_PARTITION];

/// One partition's file.
pub struct SpillFile {
    pub file: File,
    pub keys: u64,
    pub shards: Box<ShardCounts>,
}

impl SpillFile {
    pub fn empty(file: File) -> Self {
        Self {
            file,
            keys: 0,
            shards: Box::new([0; SHARDS_PER_PARTITION]),
        }
    }

    /// Appends the segments' keys in as few writes as possible.
    fn append(&mut self, segments: &mut [Segment<'_>]) -> io::Result<()> {
        for segment in segments.iter_mut() {
            segment.fill_page();
        }
        let mut slices: Vec<_> = segments
            .iter()
            .map(|segment| IoSlice::new(segment.keys().as_flattened()))
            .collect();
        if slices.is_empty() {
            return Ok(());
        }
        write_all(&mut self.file, &mut slices)?;

        for key in segments.iter().flat_map(|segment| segment.keys()) {
            self.shards[usize::from(key[1])] += 1;
        }
        self.keys += segments
            .iter()
            .map(|segment| segment.keys().len() as u64)
            .sum::<u64>();
        Ok(())
    }

    /// Reads all keys through `block` and passes them to `each`.
    pub fn read(
        &self,
        block: &mut [u8],
        mut each: impl FnMut(&[[u8; KEY_BYTES]]),
    ) -> io::Result<()> {
        let end = self.keys * KEY_BYTES as u64;
        let mut offset = 0;
        let mut retried = false;

        while offset < end {
            let len = block.len().min((end - offset) as usize);
            match self.file.read_exact_at(&mut block[..len], offset) {
                // Another thread that reads this file may have cleared the flag already.
                Err(error) if is_not_direct(&error) && !retried => {
                    direct(&self.file, false);
                    retried = true;
                    continue;
                }
                read => read?,
            }

            retried = false;
            each(block[..len].as_chunks().0);
            offset += len as u64;
        }
        Ok(())
    }
}

fn write_all(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_not_direct(&error) && direct(file, false) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the file system rejected direct I/O.
fn is_not_direct(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error())
}

/// Turns direct I/O on or off. Returns whether the setting changed.
pub fn direct(file: &File, is_direct: bool) -> bool {
    // Other systems have no such flag.
    #[cfg(target_os = "linux")]
    if let Ok(flags) = rustix::fs::fcntl_getfl(file)
        && flags.contains(OFlags::DIRECT) != is_direct
    {
        return rustix::fs::fcntl_setfl(file, flags ^ OFlags::DIRECT).is_ok();
    }
    false
}

/// The files of all partitions, created at the first write.
pub struct Spill<'d> {
    pub dir: &'d SpillDir,
    files: OnceLock<Vec<Mutex<SpillFile>>>,
    creating: Mutex<()>,
    bytes: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<SpillError>>,
}

impl<'d> Spill<'d> {
    pub const fn new(dir: &'d SpillDir) -> Self {
        Self {
            dir,
            files: OnceLock::new(),
            creating: Mutex::new(()),
            bytes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Writes the segments of one partition that `take` returns, and returns them. `take` runs
    /// under the file's lock, so no write to that file is in flight. A file that has failed is not
    /// written again.
    pub fn write<'m>(
        &self,
        partition: usize,
        take: impl FnOnce() -> Vec<Segment<'m>>,
    ) -> Vec<Segment<'m>> {
        let mut segments = Vec::new();
        if self.has_failed() {
            return take();
        }

        let written = self.files().map(|files| {
            let mut file = files[partition].lock();
            // The previous holder of the lock may have written partially.
            if self.has_failed() {
                return;
            }
            segments = take();
            let before = file.keys;
            match file.append(&mut segments) {
                Ok(()) => {
                    self.bytes
                        .fetch_add((file.keys - before) * KEY_BYTES as u64, Ordering::Relaxed);
                }
                Err(error) => self.fail(self.dir.failed(error, self.bytes())),
            }
        });

        if let Err(error) = written {
            self.fail(error);
        }
        segments
    }

    /// Records the first failure and stops all writes.
    fn fail(&self, error: SpillError) {
        self.failure.lock().get_or_insert(error);
        self.has_failed.store(true, Ordering::Relaxed);
    }

    fn files(&self) -> Result<&[Mutex<SpillFile>], SpillError> {
        let _guard = self.creating.lock();
        if let Some(files) = self.files.get() {
            return Ok(files);
        }

        let mut files = Vec::with_capacity(PARTITIONS);
        for _ in 0..PARTITIONS {
            let file = self.dir.create_file()?;
            direct(&file, true);
            files.push(Mutex::new(SpillFile::empty(file)));
        }
        Ok(self.files.get_or_init(|| files))
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// The first failure.
    pub fn take_failure(&self) -> Option<SpillError> {
        self.failure.lock().take()
    }

    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn is_used(&self) -> bool {
        self.files.get().is_some()
    }

    /// The files, or the first failure.
    pub fn finish(self) -> Result<Vec<SpillFile>, SpillError> {
        if let Some(error) = self.take_failure() {
            return Err(error);
        }
        self.files()?;
        let files = self.files.into_inner().expect("`files` creates them");
        Ok(files.into_iter().map(Mutex::into_inner).collect())
    }
}
