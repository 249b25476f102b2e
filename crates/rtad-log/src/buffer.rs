//! Values of one column, with the levels of Parquet that say where values are missing and where
//! lists begin.

use std::ops::Range;

use bytes::Bytes;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;

/// Values of a column of one row group.
pub(crate) struct Buffer<T: DataType> {
    values: Vec<T::T>,
    levels: Levels,
}

/// Texts or bytes of a column: one allocation for all of them.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    levels: Levels,
}

/// Definition levels, and repetition levels of lists.
#[derive(Debug, Default)]
struct Levels {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

/// The place of a value: its definition level if it is there, and whether it continues a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    /// The level of a value that is there.
    pub(crate) defined: i16,
    /// Whether the value is in a list, and not the first one of it.
    pub(crate) repeated: bool,
}

impl At {
    /// Outside of lists.
    pub(crate) const ROW: Self = Self { defined: 1, repeated: false };
}

/// A column that can be written.
pub(crate) trait WriteColumn {
    /// Writes all values and forgets them.
    fn write(&mut self, to: SerializedColumnWriter<'_>) -> Result<()>;
}

impl Levels {
    fn push(&mut self, defined: i16, repeated: bool) {
        self.definition.push(defined);
        self.repetition.push(repeated.into());
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

impl<T: DataType> Default for Buffer<T> {
    fn default() -> Self {
        Self { values: Vec::new(), levels: Levels::default() }
    }
}

impl<T: DataType> Buffer<T> {
    /// A value of a column outside of lists that every row has.
    pub(crate) fn push(&mut self, value: T::T) {
        self.values.push(value);
    }

    /// A value that may be missing, or is in a list.
    pub(crate) fn push_at(&mut self, at: At, value: Option<T::T>) {
        self.levels.push(at.defined - i16::from(value.is_none()), at.repeated);
        self.values.extend(value);
    }

    /// An empty list.
    pub(crate) fn push_empty(&mut self) {
        self.levels.push(0, false);
    }
}

impl<T: DataType> WriteColumn for Buffer<T> {
    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let (definition, repetition) = self.levels.of_column();
        to.typed::<T>().write_batch(&self.values, definition, repetition)?;
        to.close()?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

impl Texts {
    /// A text of a column outside of lists that every row has.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// A text that may be missing, or is in a list.
    pub(crate) fn push_at(&mut self, at: At, text: Option<&[u8]>) {
        self.levels.push(at.defined - i16::from(text.is_none()), at.repeated);
        if let Some(text) = text {
            self.push(text);
        }
    }

    /// A list without elements, at level 0, or one level deeper in a column of optional lists.
    pub(crate) fn push_empty(&mut self, level: i16) {
        self.levels.push(level, false);
    }
}

impl WriteColumn for Texts {
    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let room = self.bytes.len();
        let bytes = Bytes::from(std::mem::replace(&mut self.bytes, Vec::with_capacity(room)));
        let mut start = 0;
        let range = |end: &usize| -> Range<usize> { std::mem::replace(&mut start, *end)..*end };
        let values: Vec<_> =
            self.ends.iter().map(range).map(|range| ByteArray::from(bytes.slice(range))).collect();
        let (definition, repetition) = self.levels.of_column();
        to.typed::<ByteArrayType>().write_batch(&values, definition, repetition)?;
        to.close()?;
        self.ends.clear();
        self.levels.clear();
        Ok(())
    }
}
