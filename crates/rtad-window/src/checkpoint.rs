//! Checkpoint: image of a table, taken region by region beside traffic.
//!
//! ```text
//! magic "RTADWCKP", version u32, length of the head u32, head (JSON), crc of the head u32,
//! then for each region: tick u64, swept u64, bytes u32, crc u32, zstd frame
//! ```
//!
//! Checkpoint N is followed by segment N of the log.
//!
//! The image is not of one moment. The log from the segment that the head names onward holds every
//! change since its beginning; replayed, it completes the image. The file gets its name after all
//! changes that the image holds are durable in the log.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtad_core::files::{AtomicFile, sync_dir};
use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskFile};
use crate::position::Secret;
use crate::spec::WindowSpec;
use crate::table::RegionClock;
use crate::window::Window;

const MAGIC: [u8; 8] = *b"RTADWCKP";
const VERSION: u32 = 1;
const MAX_HEAD: u32 = 1 << 16;
const REGION_HEADER: usize = 24;
/// Fingerprints do not compress; empty slots and ticks do. Level 1 finds both.
const LEVEL: i32 = 1;

/// Identity and position of a checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) spec: WindowSpec,
    pub(crate) secret: Secret,
    /// Random number of the window's files.
    pub(crate) id: u64,
    /// First log segment to replay, and the number of its first group.
    pub(crate) segment: u64,
    pub(crate) next_group: u64,
    /// Meaning of the ticks; the caller's words.
    pub(crate) clock: String,
    /// Tick when the checkpoint began.
    pub(crate) tick: u64,
    /// Number of regions that follow; 0 for an empty window.
    pub(crate) regions: u64,
}

/// A checkpoint that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content is not a checkpoint, or is damaged.
    #[error("{path}: damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault: expected and found content.
        what: &'static str,
    },
}

pub fn checkpoint_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("checkpoint-{segment:016}"))
}

/// A checkpoint being written.
pub struct Writer {
    file: BufWriter<DiskFile>,
    aside: AtomicFile,
    path: PathBuf,
}

impl Writer {
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, head: &Head) -> io::Result<Self> {
        let (aside, file) = DiskFile::create(disk, dir.join("checkpoint.tmp"))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let json = serde_json::to_vec(head)?;
        file.write_all(&MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&(json.len() as u32).to_le_bytes())?;
        file.write_all(&json)?;
        file.write_all(&crc32fast::hash(&json).to_le_bytes())?;
        Ok(Self {
            file,
            aside,
            path: checkpoint_path(dir, head.segment),
        })
    }

    /// Appends the copy of the next region.
    pub fn add(&mut self, clock: RegionClock, copy: &[u8]) -> io::Result<()> {
        let packed = zstd::bulk::compress(copy, LEVEL)?;
        let mut header = [0; REGION_HEADER];
        header[..8].copy_from_slice(&clock.tick.to_le_bytes());
        header[8..16].copy_from_slice(&clock.swept.to_le_bytes());
        header[16..20].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        let crc = region_crc(&header[..20], &packed);
        header[20..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all(&header)?;
        self.file.write_all(&packed)
    }

    /// Writes what is left, and makes all of it durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync()
    }

    /// Makes it the current checkpoint, after `sync`. Returns its path.
    pub fn publish(self) -> io::Result<PathBuf> {
        self.aside.publish(&self.path)?;
        self.path.parent().map_or(Ok(()), sync_dir)?;
        Ok(self.path)
    }
}

/// Reads the head of a checkpoint.
///
/// # Errors
///
/// The file is unreadable or damaged.
pub fn read_head(path: &Path) -> Result<(Head, impl Read + use<>), CheckpointError> {
    let io = |source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |what| CheckpointError::Damaged {
        path: path.to_owned(),
        what,
    };
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let mut fixed = [0; 16];
    file.read_exact(&mut fixed).map_err(io)?;
    if fixed[..8] != MAGIC {
        return Err(damaged("not a checkpoint of a window"));
    }
    if u32_at(&fixed, 8) != VERSION {
        return Err(damaged(
            "a version of the format that this program does not know",
        ));
    }
    let length = u32_at(&fixed, 12);
    if length > MAX_HEAD {
        return Err(damaged("a head of more than 64 KiB"));
    }
    let mut json = vec![0; length as usize];
    file.read_exact(&mut json).map_err(io)?;
    let mut crc = [0; 4];
    file.read_exact(&mut crc).map_err(io)?;
    if u32::from_le_bytes(crc) != crc32fast::hash(&json) {
        return Err(damaged("a head with a wrong checksum"));
    }
    let head: Head =
        serde_json::from_slice(&json).map_err(|_| damaged("a head that is no JSON"))?;
    head.spec
        .validate()
        .map_err(|_| damaged("a spec out of range"))?;
    Ok((head, file))
}

/// Reads the regions of a checkpoint into a window of the same spec and secret.
///
/// # Errors
///
/// The file is unreadable or damaged; the window's content is then undefined.
pub fn read_regions(
    path: &Path,
    head: &Head,
    mut file: impl Read,
    window: &mut Window,
) -> Result<(), CheckpointError> {
    let io = |source| CheckpointError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |what| CheckpointError::Damaged {
        path: path.to_owned(),
        what,
    };
    window.set_tick(head.tick);
    if head.regions == 0 {
        return Ok(());
    }
    if head.regions != window.regions() as u64 {
        return Err(damaged("a number of regions that does not fit the spec"));
    }
    let bound = window.region_bytes();
    let mut packed = Vec::new();
    for region in 0..window.regions() {
        let mut header = [0; REGION_HEADER];
        file.read_exact(&mut header).map_err(io)?;
        let bytes = u32_at(&header, 16) as usize;
        if bytes > zstd::zstd_safe::compress_bound(bound) {
            return Err(damaged("a region of impossible size"));
        }
        packed.resize(bytes, 0);
        file.read_exact(&mut packed).map_err(io)?;
        if u32_at(&header, 20) != region_crc(&header[..20], &packed) {
            return Err(damaged("a region with a wrong checksum"));
        }
        let copy = zstd::bulk::decompress(&packed, bound);
        let copy = copy.map_err(|_| damaged("a region that does not unpack"))?;
        if copy.len() != bound {
            return Err(damaged("a region of wrong size"));
        }
        let (tick, swept) = (u64_at(&header, 0), u64_at(&header, 8));
        if swept > tick {
            return Err(damaged("a region swept in the future"));
        }
        window.load_region(region, RegionClock { tick, swept }, &copy);
        window.set_tick(tick);
    }
    Ok(())
}

fn region_crc(header: &[u8], packed: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(header);
    crc.update(packed);
    crc.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
