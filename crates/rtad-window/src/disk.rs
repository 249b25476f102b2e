//! Writes of a window's files, apart from the file system: a disk may be full, or fail.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use rtad_core::files;

/// Writes and syncs of open files.
pub(crate) trait Disk: Send + Sync {
    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Makes the content of a file durable.
    fn sync(&self, file: &File) -> io::Result<()> {
        files::sync_data(file)
    }

    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        files::sync_dir(dir)
    }
}

/// The file system.
pub struct LocalDisk;

impl Disk for LocalDisk {}

/// An open file of a disk.
pub struct DiskFile {
    file: File,
    disk: Arc<dyn Disk>,
}

impl DiskFile {
    pub const fn new(file: File, disk: Arc<dyn Disk>) -> Self {
        Self { file, disk }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(&mut self.file, bytes)
    }

    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync(&self.file)
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::btree_map::Entry;
    use std::collections::{BTreeMap, BTreeSet};
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A disk that fails when a test says so, and loses what was not synced in a crash.
    #[derive(Default)]
    pub struct FaultyDisk {
        /// Writes that find it full.
        full: AtomicU32,
        /// Syncs that fail.
        broken: AtomicU32,
        /// Called by the next sync: the process is stopped meanwhile.
        pause: Mutex<Option<Box<dyn FnOnce() + Send>>>,
        /// Bytes of each file, by inode, at its last sync.
        synced: Mutex<BTreeMap<u64, u64>>,
        /// Inodes whose names were not synced.
        unnamed: Mutex<BTreeSet<u64>>,
    }

    impl FaultyDisk {
        pub fn fill(&self, writes: u32) {
            self.full.store(writes, Ordering::Release);
        }

        pub fn fail_syncs(&self, syncs: u32) {
            self.broken.store(syncs, Ordering::Release);
        }

        pub fn pause_in_sync(&self, pause: Box<dyn FnOnce() + Send>) {
            *self.pause.lock().unwrap() = Some(pause);
        }

        /// Copies a directory as the machine's crash leaves it. `choose` says how many of so many
        /// bytes or names survive that were not synced.
        pub fn crash(&self, from: &Path, to: &Path, mut choose: impl FnMut(u64) -> u64) {
            for entry in std::fs::read_dir(from).unwrap() {
                let entry = entry.unwrap();
                let file = entry.metadata().unwrap();
                let (inode, length) = (file.ino(), file.len());
                let is_unnamed = self.unnamed.lock().unwrap().contains(&inode);
                if is_unnamed && choose(1) == 0 {
                    continue;
                }
                let synced = self.synced.lock().unwrap().get(&inode).copied();
                let synced = synced.unwrap_or(length);
                let kept = synced + choose(length - synced);
                let mut bytes = std::fs::read(entry.path()).unwrap();
                bytes.truncate(kept as usize);
                // A page that was not written.
                let zeros = choose(kept - synced) as usize;
                let end = bytes.len();
                bytes[end - zeros..].fill(0);
                std::fs::write(to.join(entry.file_name()), bytes).unwrap();
            }
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
            let inode = file.metadata()?.ino();
            if let Entry::Vacant(new) = self.synced.lock().unwrap().entry(inode) {
                new.insert(0);
                self.unnamed.lock().unwrap().insert(inode);
            }
            if fails(&self.full) {
                file.write_all(&bytes[..bytes.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.write_all(bytes)
        }

        fn sync(&self, file: &File) -> io::Result<()> {
            if let Some(pause) = self.pause.lock().unwrap().take() {
                pause();
            }
            if fails(&self.broken) {
                return Err(io::Error::other("the disk is broken"));
            }
            let file = file.metadata()?;
            self.synced.lock().unwrap().insert(file.ino(), file.len());
            Ok(())
        }

        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            let mut unnamed = self.unnamed.lock().unwrap();
            for entry in std::fs::read_dir(dir)? {
                unnamed.remove(&entry?.metadata()?.ino());
            }
            Ok(())
        }
    }
}
