//! A file of the log: written aside, closed with its footer, synced, renamed.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use rtad_core::device::DeviceKey;
use rtad_core::files::{AtomicFile, private, sync_dir};

use crate::columns::RowColumns;
use crate::row::{Device, LoggedConfig, decode};
use crate::schema::{CONFIG_KEY, VERSION, VERSION_KEY, columns_of, schema};

/// Most rows of a row group.
const GROUP_ROWS: usize = 1 << 16;
/// About how many bytes of records a row group has at most.
const GROUP_BYTES: usize = 16 << 20;
/// Most rows that wait to be encoded.
const BATCH_ROWS: usize = 1 << 12;
/// About how many bytes of records wait at most.
const BATCH_BYTES: usize = 1 << 20;
/// Compression: a higher level saves little and costs more than all else.
const ZSTD: i32 = 1;
/// Columns whose values do not repeat.
const UNIQUE: [&str; 5] = ["time", "latency_us", "request_id", "device", "body"];

/// A file that is being written. Dropped before it is closed, it is removed: without its footer it
/// cannot be read.
pub struct LogFile {
    aside: AtomicFile,
    path: PathBuf,
    writer: ArrowWriter<BufWriter<File>>,
    /// Rows that are not encoded yet.
    waiting: RowColumns,
    waiting_bytes: usize,
    /// Rows of the row group, and about how many bytes they take.
    group_rows: usize,
    group_bytes: usize,
    rows: u64,
    opened: Instant,
    /// Ids of the configs that decided about its rows.
    config_ids: Vec<String>,
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
        source: ParquetError,
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

        let (waiting, writer) = match start(file, pod) {
            Ok(started) => started,
            Err(source) => return Err(WriteError::Parquet { path, source }),
        };
        Ok(Self {
            aside,
            path,
            writer,
            waiting,
            waiting_bytes: 0,
            group_rows: 0,
            group_bytes: 0,
            rows: 0,
            opened: Instant::now(),
            config_ids: Vec::new(),
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
        let row = decode(record);
        let mut device = None;
        if let Some(facts) = &row.facts
            && let Some(unnamed) = facts.device
        {
            device = Some(name(&unnamed.key()));
        }
        self.waiting.push(&row, device.as_ref());
        let config_id = row.end.config;
        if !self.config_ids.iter().any(|known| known == config_id) {
            self.config_ids.push(config_id.to_owned());
        }

        self.rows += 1;
        self.group_rows += 1;
        self.group_bytes += record.len();
        self.waiting_bytes += record.len();
        let is_group_full = self.group_rows >= GROUP_ROWS || self.group_bytes >= GROUP_BYTES;
        let is_batch_full = self.waiting.rows() >= BATCH_ROWS || self.waiting_bytes >= BATCH_BYTES;
        if is_group_full || is_batch_full {
            self.encode_waiting().map_err(|source| self.fault(source))?;
        }
        if is_group_full {
            self.group_rows = 0;
            self.group_bytes = 0;
            self.writer.flush().map_err(|source| self.fault(source))?;
        }
        Ok(())
    }

    /// Encodes the rows that wait into the row group, which is in memory.
    fn encode_waiting(&mut self) -> Result<(), ParquetError> {
        self.waiting_bytes = 0;
        let batch = self.waiting.finish()?;
        self.writer.write(&batch)
    }

    fn fault(&self, source: ParquetError) -> WriteError {
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

    /// Bytes on the disk, without those of the row group in memory.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// When it was created.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// Writes the rest and the footer, syncs the file, and gives it its name: durably, if the file
    /// system syncs folders. The footer has those of the `configs` that decided about its rows.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. The file is removed.
    pub fn close(mut self, configs: &[LoggedConfig]) -> Result<Closed, WriteError> {
        if self.waiting.rows() > 0 {
            self.encode_waiting().map_err(|source| self.fault(source))?;
        }
        for config in configs {
            if self.config_ids.contains(&config.id) {
                let key = format!("{CONFIG_KEY}{}", config.id);
                let entry = KeyValue::new(key, config.text.clone());
                self.writer.append_key_value_metadata(entry);
            }
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

/// A writer into a file, and the columns of its rows.
fn start(
    file: File,
    pod: &str,
) -> Result<(RowColumns, ArrowWriter<BufWriter<File>>), ParquetError> {
    let schema = schema()?;
    let columns = columns_of(&schema)?;
    let options = ArrowWriterOptions::new()
        .with_properties(properties(pod)?)
        .with_parquet_schema(schema)
        // Readers know the types of Parquet.
        .with_skip_arrow_metadata(true);
    let file = BufWriter::new(file);
    let writer = ArrowWriter::try_new_with_options(file, columns.clone(), options)?;
    Ok((RowColumns::new(columns), writer))
}

fn properties(pod: &str) -> Result<WriterProperties, ParquetError> {
    let program = concat!("rtad ", env!("CARGO_PKG_VERSION"));
    let entries = vec![
        KeyValue::new(VERSION_KEY.to_owned(), VERSION.to_owned()),
        KeyValue::new("rtad.pod".to_owned(), pod.to_owned()),
    ];
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD)?))
        .set_created_by(program.to_owned())
        .set_key_value_metadata(Some(entries))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_column_statistics_enabled(ColumnPath::from("time"), EnabledStatistics::Chunk);
    for column in UNIQUE {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
    }
    Ok(properties.build())
}
