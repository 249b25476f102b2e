//! Writes of a window's files, apart from the file system: a disk may be full, or fail.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rtad_core::files::{AtomicFile, private};

/// Writes and syncs of open files.
pub(crate) trait Disk: Send + Sync {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Makes the content of a file durable.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The file system.
pub struct LocalDisk;

impl Disk for LocalDisk {}

/// An open file of a disk, readable by its owner only: it may hold keys.
pub struct DiskFile {
    pub(crate) file: File,
    pub(crate) disk: Arc<dyn Disk>,
}

impl DiskFile {
    /// Creates a file with a temporary name.
    pub fn create(disk: &Arc<dyn Disk>, aside: PathBuf) -> io::Result<(AtomicFile, Self)> {
        let (aside, file) = AtomicFile::create(aside, &private())?;
        Ok((
            aside,
            Self {
                file,
                disk: Arc::clone(disk),
            },
        ))
    }

    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync(&self.file)
    }

    /// A second handle of the file, which another thread may sync.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            disk: Arc::clone(&self.disk),
        })
    }
}

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write(&mut self.file, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A disk that fails when a test says so.
    #[derive(Default)]
    pub struct FaultyDisk {
        /// Writes that find it full.
        full: AtomicU32,
        /// Syncs that fail.
        broken: AtomicU32,
        /// Whether syncs hang.
        hangs: Mutex<bool>,
        resumed: Condvar,
        /// Syncs that have not returned.
        running: AtomicU32,
        /// Bytes of each file, by inode, at its last sync.
        synced: Mutex<BTreeMap<u64, u64>>,
    }

    impl FaultyDisk {
        pub fn fill(&self, writes: u32) {
            self.full.store(writes, Ordering::Release);
        }

        pub fn fail_syncs(&self, syncs: u32) {
            self.broken.store(syncs, Ordering::Release);
        }

        pub fn has_failed_syncs(&self) -> bool {
            self.broken.load(Ordering::Acquire) == 0
        }

        pub fn hang_syncs(&self, hang: bool) {
            *self.hangs.lock().unwrap() = hang;
            self.resumed.notify_all();
        }

        pub fn is_syncing(&self) -> bool {
            self.running.load(Ordering::Acquire) > 0
        }

        /// Bytes of a file that were there when it was synced last.
        pub fn synced_bytes(&self, path: &Path) -> u64 {
            let inode = path.metadata().unwrap().ino();
            self.synced
                .lock()
                .unwrap()
                .get(&inode)
                .copied()
                .unwrap_or(0)
        }
    }

    fn fails(faults: &AtomicU32) -> bool {
        let less = |left: u32| left.checked_sub(1);
        faults
            .try_update(Ordering::AcqRel, Ordering::Acquire, less)
            .is_ok()
    }

    impl Disk for FaultyDisk {
        /// A full disk takes half of a write.
        fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
            if fails(&self.full) {
                file.write_all(&bytes[..bytes.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.write_all(bytes)
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            self.running.fetch_add(1, Ordering::AcqRel);
            drop(
                self.resumed
                    .wait_while(self.hangs.lock().unwrap(), |hang| *hang)
                    .unwrap(),
            );
            self.running.fetch_sub(1, Ordering::AcqRel);
            if fails(&self.broken) {
                return Err(io::Error::other("the disk is broken"));
            }
            let file = file.metadata()?;
            self.synced.lock().unwrap().insert(file.ino(), file.len());
            Ok(())
        }
    }
}
