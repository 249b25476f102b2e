//! Files of caps, which let a restarted pod go on counting.
//!
//! ```text
//! {cache_dir}/_caps/{name}.cap
//!
//! "rtadcap1"                     8 bytes
//! length of the header, u32 LE   4 bytes
//! header, JSON
//! buckets of the table, from the last to the first, 64 bytes each
//! SHA-256 of all bytes before
//! ```
//!
//! A file holds fingerprints of device ids and the seed of their hash: it is readable by its owner
//! alone. It appears whole, by a rename after a sync.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rtad_core::cap::{BUCKET_BYTES, CapSeed, CapTable, MAX_DEVICES};
use rtad_core::clock::unix_seconds;
use rtad_core::files::{AtomicFile, open_regular, private, sync_dir};
use rtad_core::period::{Calendar, PeriodUnit};
use rtad_core::snapshot::AudienceName;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Cap, MAX_SET_BACK, PeriodTable};
use crate::config::CapConfig;

const MAGIC: &[u8; 8] = b"rtadcap1";
const MAX_HEADER: usize = 4096;
/// Extensions of files: whole ones, and those being written.
const SAVED: &str = "cap";
const STAGED: &str = "tmp";

/// A file of the folder, by its name.
pub enum FileName<'a> {
    /// That of a cap.
    Saved(&'a str),
    /// One that is being written.
    Staged,
}

/// The file of this name; `None` for every name that this module does not give.
pub fn name_of(name: &str) -> Option<FileName<'_>> {
    let staged = name
        .strip_suffix(STAGED)
        .and_then(|name| name.strip_suffix('.'));
    let saved = staged.unwrap_or(name);
    let cap = saved.strip_suffix(SAVED)?.strip_suffix('.')?;
    cap.parse::<AudienceName>().ok()?;
    Some(match staged {
        Some(_) => FileName::Staged,
        None => FileName::Saved(cap),
    })
}

/// Whether a file fits a cap, and its table.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    per: PeriodUnit,
    time_zone: String,
    sized_for: u64,
    carried: u64,
    number: u64,
    start_unix_seconds: u64,
    seed: [u64; 2],
    /// Devices that were leased.
    leased: u64,
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("another process uses the folder: this one leaves its files alone until it ends")]
    InUse,
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
}

/// The file of a cap.
pub fn path(folder: &Path, cap: &str) -> PathBuf {
    folder.join(format!("{cap}.{SAVED}"))
}

/// Whether a file is of a period that is over. A damaged one is; one that begins with other bytes
/// is not a cap's. Blocks.
pub fn has_ended(path: &Path, now: SystemTime) -> bool {
    let Ok(mut file) = open_regular(path) else {
        return false;
    };
    let mut magic = [0; MAGIC.len()];
    if file.read_exact(&mut magic).is_err() || magic != *MAGIC || file.rewind().is_err() {
        return false;
    }

    let header = read_header(file);
    let end = header.ok().and_then(|(header, _)| {
        let calendar = Calendar::new(header.per, Some(&header.time_zone)).ok()?;
        let start = UNIX_EPOCH.checked_add(Duration::from_secs(header.start_unix_seconds))?;
        Some(calendar.at(start).end)
    });
    end.is_none_or(|end| end <= now)
}

/// The header at the beginning of a file, and the bytes up to its end.
fn read_header(mut file: impl Read) -> Result<(Header, usize), FileError> {
    let mut start = [0; 12];
    file.read_exact(&mut start)?;
    let (magic, length) = start.split_at(MAGIC.len());
    let length = length
        .try_into()
        .map(u32::from_le_bytes)
        .unwrap_or(u32::MAX) as usize;
    if magic != MAGIC || length > MAX_HEADER {
        return Err(FileError::Damaged("it begins with other bytes"));
    }

    let mut header = vec![0; length];
    file.read_exact(&mut header)?;
    let header = serde_json::from_slice(&header)
        .map_err(|_| FileError::Damaged("its header does not parse"))?;
    Ok((header, start.len() + length))
}

impl Cap {
    /// Writes the cap's file, if devices were counted since the last time. Blocks.
    pub(super) fn save(&self, folder: &Path) -> io::Result<()> {
        let state = self.state.load_full();
        let period_table = &*state.at(Instant::now()).period_table;
        let PeriodTable { period, table, .. } = period_table;
        let content = [period.number, table.count(), period_table.leased()];
        let mut saved = self.saved.lock();

        if *saved == Some(content) {
            return Ok(());
        }
        let header = Header {
            per: self.config.per,
            time_zone: self.config.zone().to_owned(),
            sized_for: table.sized_for(),
            carried: table.carried(),
            number: period.number,
            start_unix_seconds: unix_seconds(period.start),
            seed: table.seed().words(),
            leased: period_table.leased(),
        };

        write(folder, self.name(), &header, table)?;
        *saved = Some(content);
        Ok(())
    }

    /// The cap from its file; `None` if there is none, or it is of another period. Blocks.
    pub(super) fn restore(folder: &Path, config: &CapConfig) -> Result<Option<Self>, FileError> {
        let file = match open_regular(&path(folder, &config.name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };

        let size = file.metadata()?.len();
        let mut file = Hashed {
            inner: BufReader::with_capacity(1 << 20, file),
            hash: Sha256::new(),
        };
        let (header, header_bytes) = read_header(&mut file)?;
        let wall = SystemTime::now();
        let now = Instant::now();
        let Some(period) = header.period(config, wall) else {
            return Ok(None);
        };

        if !(1..=MAX_DEVICES).contains(&header.sized_for) || header.carried > MAX_DEVICES {
            return Err(FileError::Damaged("its header has other numbers"));
        }
        let table_bytes = CapTable::bytes_for(header.sized_for);
        if size != (header_bytes + Sha256::output_size()) as u64 + table_bytes {
            return Err(FileError::Damaged("its size does not fit its header"));
        }
        let seed = CapSeed::from_words(header.seed);
        let mut table = CapTable::new(header.sized_for, seed).with_carried(header.carried);

        let mut failed = None;
        let buckets = (0..table.buckets()).map_while(|_| {
            let mut bucket = [0; BUCKET_BYTES];
            file.read_exact(&mut bucket)
                .map_err(|error| failed = Some(error))
                .ok()?;
            Some(bucket)
        });
        table.import(buckets);
        if let Some(error) = failed {
            return Err(error.into());
        }

        let expected = file.hash.finalize();
        let mut found = [0; 32];
        file.inner.read_exact(&mut found)?;
        if expected[..] != found {
            return Err(FileError::Damaged("its digest does not match"));
        }

        // The rest of the lease was given back, or stays unused.
        let leased = header.leased.min(table.count());
        let restored = Arc::new(PeriodTable::with_leased(period, table, leased));
        let table = PeriodTable::reconfigured(&restored, config);
        Ok(Some(Self::with_table(config, table, wall, now)))
    }
}

impl Header {
    /// The period of the file, if it goes on: the clock may have been set back.
    fn period(&self, config: &CapConfig, wall: SystemTime) -> Option<rtad_core::period::Period> {
        let fits = (self.per, self.time_zone.as_str()) == (config.per, config.zone());
        let start = UNIX_EPOCH.checked_add(Duration::from_secs(self.start_unix_seconds))?;
        if !fits || start > wall + MAX_SET_BACK {
            return None;
        }
        let calendar = config.calendar();
        let period = calendar.at(start);
        (period.number == self.number && period.number >= calendar.at(wall).number)
            .then_some(period)
    }
}

fn write(folder: &Path, cap: &str, header: &Header, table: &CapTable) -> io::Result<()> {
    replace(folder, &format!("{cap}.{SAVED}"), |file| {
        let mut file = Hashed {
            inner: BufWriter::with_capacity(1 << 20, file),
            hash: Sha256::new(),
        };
        let header = serde_json::to_vec(header)?;
        file.write_all(MAGIC)?;
        file.write_all(&(header.len() as u32).to_le_bytes())?;
        file.write_all(&header)?;

        for bucket in table.export() {
            file.write_all(&bucket)?;
        }

        let Hashed { mut inner, hash } = file;
        inner.write_all(&hash.finalize())?;
        inner.into_inner().map_err(io::IntoInnerError::into_error)
    })
}

/// Replaces a file of the folder. Blocks.
pub fn replace(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(File) -> io::Result<File>,
) -> io::Result<()> {
    // One writer at a time: the locks of the folder and of `Caps`.
    let aside = folder.join(format!("{name}.{STAGED}"));
    let (aside, file) = AtomicFile::create(aside, &private())?;
    fill(file)?.sync_all()?;
    aside.publish(&folder.join(name))?;
    // The sync makes the rename durable, except where folders cannot be synced.
    let _ = sync_dir(folder);
    Ok(())
}

/// A reader or writer that hashes what passes.
struct Hashed<T> {
    inner: T,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
