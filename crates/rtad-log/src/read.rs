//! The rows of a file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::data_type::{
    BoolType, ByteArrayType, DoubleType, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};

use crate::cursor::Cursor;
use crate::row::{
    ATTRIBUTES, AudienceFact, CapState, DecisionFact, Device, ExperimentFact, InAudience, LogRow,
    LoggedFacts, LookedUpIds, NUMBERS, Raw, RowEnd,
};
use crate::schema::{VERSION, VERSION_KEY};

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
    reader: SerializedFileReader<File>,
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
        let at = || path.to_owned();
        let file = rtad_core::files::open_regular(path)
            .map_err(|source| LogReadError::Open { path: at(), source })?;
        let reader = catch_panic(|| SerializedFileReader::new(file))
            .map_err(|source| LogReadError::Broken { path: at(), source })?;
        let metadata = reader.metadata().file_metadata();
        let entries = metadata.key_value_metadata().into_iter().flatten();
        let version = entries
            .filter(|entry| entry.key == VERSION_KEY)
            .find_map(|entry| entry.value.clone());
        match version {
            Some(version) if version == VERSION => Ok(Self { path: at(), reader }),
            Some(version) => Err(LogReadError::Version {
                path: at(),
                found: format!("version {version}"),
            }),
            None => Err(LogReadError::Version {
                path: at(),
                found: "without a version".to_owned(),
            }),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.reader
            .metadata()
            .file_metadata()
            .num_rows()
            .cast_unsigned()
    }

    /// Calls `each` with every row, in order. Memory for a few thousand rows.
    ///
    /// # Errors
    ///
    /// [`LogReadError::Broken`].
    pub fn each(&self, mut each: impl FnMut(&LogRow<'_>)) -> Result<(), LogReadError> {
        let read = (0..self.reader.num_row_groups()).try_for_each(|index| {
            let mut columns = catch_panic(|| {
                let group = self.reader.get_row_group(index)?;
                ReadColumns::open(&*group)
            })?;
            loop {
                let rows = catch_panic(|| columns.fill())?;
                if rows == 0 {
                    return Ok(());
                }
                for _ in 0..rows {
                    each(&columns.row()?);
                }
            }
        });
        read.map_err(|source| LogReadError::Broken {
            path: self.path.clone(),
            source,
        })
    }
}

type Texts = Cursor<ByteArrayType>;

/// The columns of a row group, in the order of the schema.
struct ReadColumns {
    time: Cursor<Int64Type>,
    latency: Cursor<Int32Type>,
    platform: Texts,
    failure: Texts,
    probability: Cursor<DoubleType>,
    sampled: Cursor<BoolType>,
    config: Texts,
    request_id: Texts,
    device: Cursor<FixedLenByteArrayType>,
    secret: Texts,
    ids: Texts,
    attributes: [Texts; ATTRIBUTES],
    asked: Texts,
    audience: Texts,
    generation: Cursor<Int64Type>,
    member: Texts,
    value: Cursor<Int32Type>,
    experiment: Texts,
    rule: Cursor<Int32Type>,
    bucket: Texts,
    layer_slot: Cursor<Int32Type>,
    bucket_slot: Cursor<Int32Type>,
    strategy: Texts,
    bid: Cursor<BoolType>,
    reason: Texts,
    shadow: Cursor<BoolType>,
    cap: Texts,
    scheduled: Cursor<BoolType>,
    numbers: [Cursor<DoubleType>; NUMBERS],
    query: Texts,
    body: Texts,
}

impl ReadColumns {
    fn open(group: &dyn RowGroupReader) -> Result<Self> {
        let text = |path| Texts::open(group, path);
        let slot = |path| Cursor::open(group, path);
        let number = |name| Cursor::open(group, &format!("decisions.list.element.{name}"));
        Ok(Self {
            time: Cursor::open(group, "time")?,
            latency: Cursor::open(group, "latency_us")?,
            platform: text("platform")?,
            failure: text("failure")?,
            probability: Cursor::open(group, "probability")?,
            sampled: Cursor::open(group, "sampled")?,
            config: text("config")?,
            request_id: text("request_id")?,
            device: Cursor::open(group, "device")?,
            secret: text("secret")?,
            ids: text("ids")?,
            attributes: [
                text("os")?,
                text("app")?,
                text("slot")?,
                text("region")?,
                text("request_type")?,
            ],
            asked: text("asked.list.element")?,
            audience: text("audiences.list.element.name")?,
            generation: Cursor::open(group, "audiences.list.element.generation")?,
            member: text("audiences.list.element.member")?,
            value: slot("audiences.list.element.value")?,
            experiment: text("experiments.list.element.name")?,
            rule: slot("experiments.list.element.rule")?,
            bucket: text("experiments.list.element.bucket")?,
            layer_slot: slot("experiments.list.element.layer_slot")?,
            bucket_slot: slot("experiments.list.element.bucket_slot")?,
            strategy: text("decisions.list.element.strategy")?,
            bid: Cursor::open(group, "decisions.list.element.bid")?,
            reason: text("decisions.list.element.reason")?,
            shadow: Cursor::open(group, "decisions.list.element.shadow")?,
            cap: text("decisions.list.element.cap")?,
            scheduled: Cursor::open(group, "decisions.list.element.scheduled")?,
            numbers: [
                number("weight")?,
                number("cpa_price")?,
                number("cpc_price")?,
                number("cpc_factor")?,
                number("quality")?,
            ],
            query: text("query")?,
            body: text("body")?,
        })
    }

    /// Reads the next rows of all columns, and returns how many.
    fn fill(&mut self) -> Result<usize> {
        let rows = self.time.fill()?;
        let texts = [
            &mut self.platform,
            &mut self.failure,
            &mut self.config,
            &mut self.request_id,
            &mut self.secret,
            &mut self.ids,
            &mut self.asked,
            &mut self.audience,
            &mut self.member,
            &mut self.experiment,
            &mut self.bucket,
            &mut self.strategy,
            &mut self.reason,
            &mut self.cap,
            &mut self.query,
            &mut self.body,
        ];
        let texts = texts.into_iter().chain(&mut self.attributes);
        let doubles = self.numbers.iter_mut().chain([&mut self.probability]);
        let ints = [
            &mut self.latency,
            &mut self.value,
            &mut self.rule,
            &mut self.layer_slot,
            &mut self.bucket_slot,
        ];
        let bools = [
            &mut self.sampled,
            &mut self.bid,
            &mut self.shadow,
            &mut self.scheduled,
        ];
        let filled = texts
            .map(Cursor::fill)
            .chain(doubles.map(Cursor::fill))
            .chain(ints.into_iter().map(Cursor::fill))
            .chain(bools.into_iter().map(Cursor::fill))
            .chain([self.generation.fill(), self.device.fill()]);
        for filled in filled {
            if filled? != rows {
                return Err(ParquetError::General(
                    "columns have different lengths".to_owned(),
                ));
            }
        }
        Ok(rows)
    }

    /// The next row.
    fn row(&self) -> Result<LogRow<'_>> {
        let (query, body) = (self.query.text()?, self.body.next());
        let end = RowEnd {
            time: *self.time.required()?,
            latency: self.latency.required()?.cast_unsigned(),
            platform: self.platform.required_text()?,
            failure: self.failure.text()?,
            probability: *self.probability.required()?,
            sampled: *self.sampled.required()?,
            config: self.config.required_text()?,
            raw: body.map(|body| Raw {
                query,
                body: body.data(),
            }),
        };
        Ok(LogRow {
            facts: self.facts()?,
            end,
        })
    }

    fn facts(&self) -> Result<Option<LoggedFacts<'_>>> {
        let (hmac, secret) = (self.device.next(), self.secret.text()?);
        let device = hmac.zip(secret).and_then(|(hmac, secret)| {
            Some(Device {
                hmac: hmac.data().try_into().ok()?,
                secret,
            })
        });
        let mut attributes = [None; ATTRIBUTES];
        for (attribute, column) in attributes.iter_mut().zip(&self.attributes) {
            *attribute = column.text()?;
        }
        let mut facts: LoggedFacts<'_> = LoggedFacts {
            request_id: self.request_id.text()?,
            device,
            ids: LookedUpIds::None,
            attributes,
            asked: self
                .asked
                .level()
                .filter(|level| *level > 0)
                .map(|_| <_>::default()),
            audiences: <_>::default(),
            experiments: <_>::default(),
            decisions: <_>::default(),
        };
        each_element(&self.asked, || {
            let id = self.asked.text()?;
            if let (Some(asked), Some(id)) = (&mut facts.asked, id) {
                asked.push(id);
            }
            Ok(())
        })?;
        each_element(&self.audience, || {
            let (name, member) = (self.audience.text()?, self.member.text()?);
            let (generation, value) = (self.generation.next(), self.value.next());
            if let (Some(name), Some(member)) = (name, member) {
                facts.audiences.push(AudienceFact {
                    name,
                    generation: generation.copied().map(i64::cast_unsigned),
                    member: word(member, InAudience::of)?,
                    value: value.map(|value| *value as u8),
                });
            }
            Ok(())
        })?;
        each_element(&self.experiment, || {
            let (name, bucket) = (self.experiment.text()?, self.bucket.text()?);
            let rule = self.rule.next();
            let slots = (self.layer_slot.next(), self.bucket_slot.next());
            if let (Some(name), Some(rule), Some(bucket)) = (name, rule, bucket) {
                let rule = rule.cast_unsigned();
                let slots = slots.0.zip(slots.1);
                let slots = slots.map(|(layer, slot)| [*layer, *slot].map(i32::cast_unsigned));
                facts.experiments.push(ExperimentFact {
                    name,
                    rule,
                    bucket,
                    slots,
                });
            }
            Ok(())
        })?;
        each_element(&self.strategy, || {
            let (strategy, reason) = (self.strategy.text()?, self.reason.text()?);
            let (bid, shadow) = (self.bid.next(), self.shadow.next());
            let (cap, scheduled) = (self.cap.text()?, self.scheduled.next());
            let numbers = self.numbers.each_ref().map(|column| column.next().copied());
            if let (Some(strategy), Some(reason), Some(&bid), Some(&shadow)) =
                (strategy, reason, bid, shadow)
            {
                let cap = cap.map(|cap| word(cap, CapState::of)).transpose()?;
                let scheduled = scheduled.copied();
                facts.decisions.push(DecisionFact {
                    strategy,
                    bid,
                    reason,
                    shadow,
                    cap,
                    scheduled,
                    numbers,
                });
            }
            Ok(())
        })?;
        let Some(ids) = self.ids.text()? else {
            return Ok(None);
        };
        facts.ids = word(ids, LookedUpIds::of)?;
        Ok(Some(facts))
    }
}

/// Calls `next`, which takes a value of each column of a list, for each element; once for an empty
/// list.
fn each_element(first: &Texts, mut next: impl FnMut() -> Result<()>) -> Result<()> {
    next()?;
    while first.continues() {
        next()?;
    }
    Ok(())
}

/// The result of `work`: the format's library panics at some damaged files.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(ParquetError::General("the file is damaged".to_owned())))
}

fn word<T>(word: &str, of: impl Fn(&str) -> Option<T>) -> Result<T> {
    of(word).ok_or_else(|| ParquetError::General(format!("{word:?} is no known word")))
}
