//! Values of one column, with the levels of Parquet that say where values are missing and where
//! lists begin.

use std::marker::PhantomData;
use std::ops::Range;

use bytes::Bytes;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;

/// Levels that are written at a time.
const PART: usize = 1024;

/// Numbers of a column of one row group.
pub(crate) struct Numbers<T: DataType> {
    values: Vec<T::T>,
    levels: Levels,
}

/// Texts or bytes of a column: one allocation for all of them.
pub(crate) struct Texts<T = ByteArrayType> {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    levels: Levels,
    /// The definition level of a text that exists.
    definition: i16,
    of: PhantomData<T>,
}

/// Definition levels, and repetition levels of lists.
#[derive(Debug, Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// The levels of a value that exists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    /// Its definition level. A missing value has the one below.
    pub(crate) definition: i16,
    /// Whether it is in a list, and not the first one of it.
    pub(crate) is_continuation: bool,
}

impl Level {
    /// Outside of lists.
    pub(crate) const ROW: Self = Self { definition: 1, is_continuation: false };
}

/// A column that can be written.
pub(crate) trait WriteColumn {
    /// Adds a row whose value or list is missing, or whose list is empty.
    fn push_empty(&mut self);

    /// Writes all values and forgets them.
    fn write(&mut self, to: SerializedColumnWriter<'_>) -> Result<()>;
}

impl Levels {
    fn push(&mut self, level: Level, exists: bool) {
        self.definition.push(level.definition - i16::from(!exists));
        self.repetition.push(level.is_continuation.into());
    }

    fn push_empty(&mut self) {
        self.definition.push(0);
        self.repetition.push(0);
    }

    /// The levels; `None` for a column that every row has.
    fn of_column(&self) -> (Option<&[i16]>, Option<&[i16]>) {
        if self.definition.is_empty() {
            (None, None)
        } else {
            (Some(&self.definition), Some(&self.repetition))
        }
    }

    fn clear(&mut self) {
        self.definition.clear();
        self.repetition.clear();
    }
}

impl<T: DataType> Default for Numbers<T> {
    fn default() -> Self {
        Self { values: Vec::new(), levels: Levels::default() }
    }
}

impl<T: DataType> Numbers<T> {
    /// A value of a column outside of lists that every row has.
    pub(crate) fn push(&mut self, value: T::T) {
        self.values.push(value);
    }

    /// A value that may be missing, or is in a list.
    pub(crate) fn push_at(&mut self, level: Level, value: Option<T::T>) {
        self.levels.push(level, value.is_some());
        self.values.extend(value);
    }
}

impl<T: DataType> WriteColumn for Numbers<T> {
    fn push_empty(&mut self) {
        self.levels.push_empty();
    }

    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let (definition, repetition) = self.levels.of_column();
        to.typed::<T>().write_batch(&self.values, definition, repetition)?;
        to.close()?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

impl<T> Default for Texts<T> {
    fn default() -> Self {
        let (bytes, ends, levels, definition) = <_>::default();
        Self { bytes, ends, levels, definition, of: PhantomData }
    }
}

impl<T> Texts<T> {
    /// A text of a column outside of lists that every row has.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// A text that may be missing, or is in a list.
    pub(crate) fn push_at(&mut self, level: Level, text: Option<&[u8]>) {
        self.levels.push(level, text.is_some());
        self.definition = level.definition;
        if let Some(text) = text {
            self.push(text);
        }
    }
}

impl Levels {
    /// The end of a part of at least [`PART`] levels from `start`, at the end of a row.
    fn end_of_part(&self, start: usize) -> usize {
        let least = (start + PART).min(self.repetition.len());
        let more = self.repetition[least..].iter().take_while(|level| **level > 0).count();
        least + more
    }
}

impl<T: DataType<T: From<ByteArray>>> WriteColumn for Texts<T> {
    fn push_empty(&mut self) {
        self.levels.push_empty();
    }

    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let mut start = 0;
        let range = |end: &usize| -> Range<usize> { std::mem::replace(&mut start, *end)..*end };
        let value = |range| T::T::from(ByteArray::from(bytes.slice(range)));
        let mut values = self.ends.iter().map(range).map(value);
        // In parts, as all values of a column at once would take megabytes.
        let mut part = Vec::with_capacity(PART);
        let (definition, repetition) = (&self.levels.definition, &self.levels.repetition);
        let writer = to.typed::<T>();
        let mut from = 0;
        loop {
            let of_part = from..self.levels.end_of_part(from);
            let (count, levels) = match definition.is_empty() {
                true => (PART, None),
                false => {
                    let levels = (&definition[of_part.clone()], &repetition[of_part.clone()]);
                    (
                        levels.0.iter().filter(|level| **level == self.definition).count(),
                        Some(levels),
                    )
                }
            };
            part.extend(values.by_ref().take(count));
            if part.is_empty() && of_part.is_empty() {
                break;
            }
            writer.write_batch(&part, levels.map(|it| it.0), levels.map(|it| it.1))?;
            part.clear();
            from = of_part.end;
        }
        to.close()?;
        drop((values, part));
        // Its allocation is used again.
        self.bytes = Vec::from(bytes);
        self.bytes.clear();
        self.ends.clear();
        self.levels.clear();
        Ok(())
    }
}
