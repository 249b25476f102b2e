//! The rows of a file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int32Array,
    ListArray, StringArray, StructArray, TimestampMicrosecondArray, UInt32Array, UInt64Array,
};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::{ParquetError, Result};

use crate::row::{
    ATTRIBUTES, AudienceFact, CapFact, DecisionFact, Device, ExperimentFact, LogRow, LoggedConfig,
    LoggedFacts, NUMBERS, Raw, RowEnd,
};
use crate::schema::{CONFIG_KEY, VERSION, VERSION_KEY};

/// Rows that are read at once. Their bodies may have 64 KiB each: 16 MiB.
const BATCH: usize = 256;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogReadError {
    /// The file cannot be opened.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// It is no file of a decision log that this program knows.
    #[error("{path}: {found}; accepted: a file of rtad's decision log, version {VERSION}",
        path = path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that was found.
        found: String,
    },
    /// Its content is broken.
    #[error("{path}: {source}", path = path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: ParquetError,
    },
}

/// A file of the log.
pub struct LogReader {
    path: PathBuf,
    rows: u64,
    file: ParquetRecordBatchReaderBuilder<File>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl LogReader {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    ///
    /// [`LogReadError`].
    pub fn open(path: &Path) -> Result<Self, LogReadError> {
        let path = path.to_owned();
        let file = match rtad_core::files::open_regular(&path) {
            Ok(file) => file,
            Err(source) => return Err(LogReadError::Open { path, source }),
        };

        // Types of columns are those of Parquet, whatever a program that wrote the file anew noted.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let opened =
            catch_panic(|| ParquetRecordBatchReaderBuilder::try_new_with_options(file, options));
        let file = match opened {
            Ok(file) => file.with_batch_size(BATCH),
            Err(source) => return Err(LogReadError::Broken { path, source }),
        };

        let metadata = file.metadata().file_metadata();
        let entries = metadata.key_value_metadata().into_iter().flatten();
        let mut versions = entries.filter(|entry| entry.key == VERSION_KEY);
        let version = versions.find_map(|entry| entry.value.as_deref());
        if version != Some(VERSION) {
            let found = match version {
                Some(version) => format!("version {version}"),
                None => "without a version".to_owned(),
            };
            return Err(LogReadError::Version { path, found });
        }

        let rows = metadata.num_rows().cast_unsigned();
        Ok(Self { path, rows, file })
    }

    /// Number of rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The configs that decided about its rows.
    pub fn configs(&self) -> Vec<LoggedConfig> {
        let metadata = self.file.metadata().file_metadata();
        let mut configs = Vec::new();
        for entry in metadata.key_value_metadata().into_iter().flatten() {
            if let (Some(id), Some(text)) = (entry.key.strip_prefix(CONFIG_KEY), &entry.value) {
                configs.push(LoggedConfig {
                    id: id.to_owned(),
                    text: text.clone(),
                });
            }
        }
        configs
    }

    /// Calls `each` with every row, in order. Memory for a few thousand rows.
    ///
    /// # Errors
    ///
    /// [`LogReadError::Broken`].
    pub fn each(self, each: impl FnMut(&LogRow<'_>)) -> Result<(), LogReadError> {
        read_rows(self.file, each).map_err(|source| LogReadError::Broken {
            path: self.path,
            source,
        })
    }
}

fn read_rows(
    file: ParquetRecordBatchReaderBuilder<File>,
    mut each: impl FnMut(&LogRow<'_>),
) -> Result<()> {
    let mut batches = catch_panic(|| file.build())?;
    while let Some(batch) = catch_panic(|| batches.next().transpose().map_err(Into::into))? {
        let columns = StructArray::from(batch);
        let rows = RowArrays::of(&columns)?;
        for index in 0..columns.len() {
            each(&rows.row(index)?);
        }
    }
    Ok(())
}

/// The columns of a batch.
struct RowArrays<'b> {
    time: &'b TimestampMicrosecondArray,
    latency: &'b Int32Array,
    platform: &'b StringArray,
    failure: &'b StringArray,
    probability: &'b Float64Array,
    sampled: &'b BooleanArray,
    config: &'b StringArray,
    request_id: &'b StringArray,
    device: &'b FixedSizeBinaryArray,
    secret: &'b StringArray,
    ids: &'b StringArray,
    attributes: [&'b StringArray; ATTRIBUTES],
    asked: &'b ListArray,
    asked_ids: &'b StringArray,
    audiences: AudienceArrays<'b>,
    experiments: ExperimentArrays<'b>,
    decisions: DecisionArrays<'b>,
    query: &'b StringArray,
    body: &'b BinaryArray,
}

struct AudienceArrays<'b> {
    lists: &'b ListArray,
    name: &'b StringArray,
    generation: &'b UInt64Array,
    member: &'b StringArray,
    value: &'b Int32Array,
}

struct ExperimentArrays<'b> {
    lists: &'b ListArray,
    name: &'b StringArray,
    rule: &'b UInt32Array,
    bucket: &'b StringArray,
    layer_slot: &'b Int32Array,
    bucket_slot: &'b Int32Array,
}

struct DecisionArrays<'b> {
    lists: &'b ListArray,
    strategy: &'b StringArray,
    bid: &'b BooleanArray,
    reason: &'b StringArray,
    condition: &'b StringArray,
    shadow: &'b BooleanArray,
    cap: &'b StringArray,
    cap_name: &'b StringArray,
    scheduled: &'b BooleanArray,
    numbers: [&'b Float64Array; NUMBERS],
}

impl<'b> RowArrays<'b> {
    fn of(columns: &'b StructArray) -> Result<Self> {
        let asked: &ListArray = column(columns, "asked")?;
        Ok(Self {
            time: required(columns, "time")?,
            latency: required(columns, "latency_us")?,
            platform: required(columns, "platform")?,
            failure: column(columns, "failure")?,
            probability: required(columns, "probability")?,
            sampled: required(columns, "sampled")?,
            config: required(columns, "config")?,
            request_id: column(columns, "request_id")?,
            device: column(columns, "device")?,
            secret: column(columns, "secret")?,
            ids: column(columns, "ids")?,
            attributes: [
                column(columns, "os")?,
                column(columns, "app")?,
                column(columns, "slot")?,
                column(columns, "region")?,
                column(columns, "request_type")?,
            ],
            asked,
            asked_ids: typed(asked.values(), "asked")?,
            audiences: AudienceArrays::of(column(columns, "audiences")?)?,
            experiments: ExperimentArrays::of(column(columns, "experiments")?)?,
            decisions: DecisionArrays::of(column(columns, "decisions")?)?,
            query: column(columns, "query")?,
            body: column(columns, "body")?,
        })
    }

    fn row(&self, index: usize) -> Result<LogRow<'b>> {
        let mut raw = None;
        if self.body.is_valid(index) {
            raw = Some(Raw {
                query: text(self.query, index),
                body: self.body.value(index),
            });
        }

        let end = RowEnd {
            time: self.time.value(index),
            latency: self.latency.value(index).cast_unsigned(),
            platform: self.platform.value(index),
            failure: text(self.failure, index),
            probability: self.probability.value(index),
            sampled: self.sampled.value(index),
            config: self.config.value(index),
            raw,
        };

        let facts = match text(self.ids, index) {
            Some(ids) => Some(self.facts(index, ids)?),
            None => None,
        };

        Ok(LogRow { facts, end })
    }

    fn facts(&self, index: usize, ids: &str) -> Result<LoggedFacts<'b>> {
        let mut device = None;
        if self.device.is_valid(index)
            && let Some(secret) = text(self.secret, index)
        {
            let name = self.device.value(index).try_into();
            let hmac = name.map_err(|_| damaged("a device has another length"))?;
            device = Some(Device { hmac, secret });
        }

        let mut asked = None;
        if self.asked.is_valid(index) {
            asked = Some(
                elements(self.asked, index)
                    .map(|at| self.asked_ids.value(at))
                    .collect(),
            );
        }

        Ok(LoggedFacts {
            request_id: text(self.request_id, index),
            device,
            ids: known_word(ids)?,
            attributes: self.attributes.map(|column| text(column, index)),
            asked,
            audiences: elements(self.audiences.lists, index)
                .map(|at| self.audiences.fact(at))
                .collect::<Result<_>>()?,
            experiments: elements(self.experiments.lists, index)
                .map(|at| self.experiments.fact(at))
                .collect(),
            decisions: elements(self.decisions.lists, index)
                .map(|at| self.decisions.fact(at))
                .collect::<Result<_>>()?,
        })
    }
}

impl<'b> AudienceArrays<'b> {
    fn of(lists: &'b ListArray) -> Result<Self> {
        let columns = typed(lists.values(), "audiences")?;
        Ok(Self {
            lists,
            name: required(columns, "name")?,
            generation: column(columns, "generation")?,
            member: required(columns, "member")?,
            value: column(columns, "value")?,
        })
    }

    fn fact(&self, at: usize) -> Result<AudienceFact<'b>> {
        let value = self.value.is_valid(at).then(|| self.value.value(at));
        Ok(AudienceFact {
            name: self.name.value(at),
            generation: self
                .generation
                .is_valid(at)
                .then(|| self.generation.value(at)),
            member: known_word(self.member.value(at))?,
            value: value.map(|value| value as u8),
        })
    }
}

impl<'b> ExperimentArrays<'b> {
    fn of(lists: &'b ListArray) -> Result<Self> {
        let columns = typed(lists.values(), "experiments")?;
        Ok(Self {
            lists,
            name: required(columns, "name")?,
            rule: required(columns, "rule")?,
            bucket: required(columns, "bucket")?,
            layer_slot: column(columns, "layer_slot")?,
            bucket_slot: column(columns, "bucket_slot")?,
        })
    }

    fn fact(&self, at: usize) -> ExperimentFact<'b> {
        let mut slots = None;
        if self.layer_slot.is_valid(at) && self.bucket_slot.is_valid(at) {
            let both = [self.layer_slot.value(at), self.bucket_slot.value(at)];
            slots = Some(both.map(i32::cast_unsigned));
        }
        ExperimentFact {
            name: self.name.value(at),
            rule: self.rule.value(at),
            bucket: self.bucket.value(at),
            slots,
        }
    }
}

impl<'b> DecisionArrays<'b> {
    fn of(lists: &'b ListArray) -> Result<Self> {
        let columns = typed(lists.values(), "decisions")?;
        Ok(Self {
            lists,
            strategy: required(columns, "strategy")?,
            bid: required(columns, "bid")?,
            reason: required(columns, "reason")?,
            condition: column(columns, "condition")?,
            shadow: required(columns, "shadow")?,
            cap: column(columns, "cap")?,
            cap_name: column(columns, "cap_name")?,
            scheduled: column(columns, "scheduled")?,
            numbers: [
                column(columns, "weight")?,
                column(columns, "cpa_price")?,
                column(columns, "cpc_price")?,
                column(columns, "cpc_factor")?,
                column(columns, "quality")?,
            ],
        })
    }

    fn fact(&self, at: usize) -> Result<DecisionFact<'b>> {
        let mut cap = None;
        if let (Some(word), Some(name)) = (text(self.cap, at), text(self.cap_name, at)) {
            let state = known_word(word)?;
            cap = Some(CapFact { name, state });
        }

        Ok(DecisionFact {
            strategy: self.strategy.value(at),
            bid: self.bid.value(at),
            reason: self.reason.value(at),
            condition: text(self.condition, at),
            shadow: self.shadow.value(at),
            cap,
            scheduled: self
                .scheduled
                .is_valid(at)
                .then(|| self.scheduled.value(at)),
            numbers: self
                .numbers
                .map(|column| column.is_valid(at).then(|| column.value(at))),
        })
    }
}

/// A column by its name. Others may have been added.
fn column<'b, A: Array + 'static>(columns: &'b StructArray, name: &str) -> Result<&'b A> {
    match columns.column_by_name(name) {
        Some(column) => typed(column, name),
        None => Err(damaged(&format!("has no column {name}"))),
    }
}

/// As [`column`], of one that every row or element has.
fn required<'b, A: Array + 'static>(columns: &'b StructArray, name: &str) -> Result<&'b A> {
    let column: &A = column(columns, name)?;
    if column.null_count() > 0 {
        return Err(damaged(&format!("column {name} lacks values")));
    }
    Ok(column)
}

fn typed<'b, A: Array + 'static>(column: &'b ArrayRef, name: &str) -> Result<&'b A> {
    let typed = column.as_any().downcast_ref();
    typed.ok_or_else(|| damaged(&format!("column {name} has another type")))
}

/// The indexes of a row's elements.
fn elements(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let ends = lists.value_offsets();
    ends[row] as usize..ends[row + 1] as usize
}

fn text(column: &StringArray, index: usize) -> Option<&str> {
    column.is_valid(index).then(|| column.value(index))
}

fn known_word<T: FromStr>(word: &str) -> Result<T> {
    word.parse()
        .map_err(|_| damaged(&format!("{word:?} is no known word")))
}

fn damaged(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

/// The result of `work`: the format's library panics at some damaged files.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(damaged("the file is damaged")))
}
