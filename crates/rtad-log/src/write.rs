//! A file of the log: written aside, closed with its footer, synced, renamed.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rtad_core::device::DeviceKey;
use rtad_core::files::{AtomicFile, private, sync_dir};

use crate::columns::GroupColumns;
use crate::row::Device;
use crate::schema::{VERSION, VERSION_KEY, schema};

/// Most rows that wait for their row group.
const GROUP_ROWS: usize = 1 << 16;
/// About how many bytes of rows wait.
const GROUP_BYTES: usize = 16 << 20;
/// Compression: a higher level saves little and costs more than all else.
const ZSTD: i32 = 1;
/// Columns whose values do not repeat.
const UNIQUE: [&str; 5] = ["time", "latency_us", "request_id", "device", "body"];

/// A file that is being written. Dropped before it is closed, it is removed: without its footer it
/// cannot be read.
pub struct LogFile {
    aside: AtomicFile,
    path: PathBuf,
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: GroupColumns,
    rows: u64,
    opened: Instant,
}

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A file that has been closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Its path.
    pub path: PathBuf,
    /// Its rows.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
}

/// A failed write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Of the file system.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// Of the format's library, which passes errors of the file system on.
    #[error("{path}: {source}", path = path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: parquet::errors::ParquetError,
    },
}

impl LogFile {
    /// Creates `path` under the name of an open file. Its folder must exist. `pod` is written into
    /// the file's metadata.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub fn create(path: PathBuf, pod: &str) -> Result<Self, WriteError> {
        let io = |source| WriteError::Io {
            path: path.clone(),
            source,
        };
        let (aside, file) =
            AtomicFile::create(open_name(&path), private().create_new(true)).map_err(io)?;
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema(), properties(pod))
            .map_err(|source| WriteError::Parquet {
                path: path.clone(),
                source,
            })?;
        let (columns, opened) = (GroupColumns::default(), Instant::now());
        Ok(Self {
            aside,
            path,
            writer,
            columns,
            rows: 0,
            opened,
        })
    }

    /// Adds a row by its record: facts, then a [`crate::RowEnd`]. `name` gives its device a name.
    ///
    /// # Errors
    ///
    /// [`WriteError`]: the file cannot be used any more.
    pub fn push<'n>(
        &mut self,
        record: &[u8],
        name: impl Fn(&DeviceKey) -> Device<'n>,
    ) -> Result<(), WriteError> {
        self.columns.push(record, name);
        self.rows += 1;
        if self.columns.rows() >= GROUP_ROWS || self.columns.bytes() >= GROUP_BYTES {
            self.write_group().map_err(|source| self.fault(source))?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> parquet::errors::Result<()> {
        self.columns.write(self.writer.next_row_group()?)
    }

    fn fault(&self, source: parquet::errors::ParquetError) -> WriteError {
        WriteError::Parquet {
            path: self.path.clone(),
            source,
        }
    }

    /// Its path once it is closed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes on the disk, without those of the rows that wait.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// When it was created.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// Writes the rest and the footer, syncs the file, and gives it its name: durably, if the file
    /// system syncs folders.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. The file is removed.
    pub fn close(mut self) -> Result<Closed, WriteError> {
        if self.columns.rows() > 0 {
            self.write_group().map_err(|source| self.fault(source))?;
        }
        let Self {
            aside,
            path,
            writer,
            rows,
            ..
        } = self;
        let parquet = |source| WriteError::Parquet {
            path: path.clone(),
            source,
        };
        let io = |source| WriteError::Io {
            path: path.clone(),
            source,
        };
        let file = writer.into_inner().map_err(parquet)?;
        let file = file.into_inner().map_err(|error| io(error.into_error()))?;
        file.sync_all().map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        aside.publish(&path).map_err(io)?;
        // The file has its name, and is read from now on. Some file systems sync no folders.
        let _ = path.parent().map(sync_dir);
        Ok(Closed { path, rows, bytes })
    }
}

/// The name of a file while it is written: hidden, as programs that read a folder would read it.
pub(crate) fn open_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{OPEN}"))
}

/// The extension of files that are written.
pub(crate) const OPEN: &str = "open";

fn properties(pod: &str) -> WriterPropertiesPtr {
    let entry = |key: &str, value: &str| KeyValue::new(key.to_owned(), value.to_owned());
    let program = concat!("rtad ", env!("CARGO_PKG_VERSION"));
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(
            ZstdLevel::try_new(ZSTD).expect("a level of zstd"),
        ))
        .set_created_by(program.to_owned())
        .set_key_value_metadata(Some(vec![
            entry(VERSION_KEY, VERSION),
            entry("rtad.pod", pod),
        ]))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(ColumnPath::from("time"), EnabledStatistics::Chunk);
    for column in UNIQUE {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    Arc::new(properties.build())
}
