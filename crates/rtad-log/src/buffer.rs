//! Values of one column, with the levels of Parquet that say where values are missing and where
//! lists begin.

use std::iter;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use bytes::Bytes;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;

/// Levels that are written at a time: all values of a column at once would take megabytes.
const PART: usize = 1024;
/// Texts that a column compares a new one with.
const RECENT: usize = 4;

/// Numbers of a column of one row group.
pub struct Numbers<T: DataType> {
    values: Vec<T::T>,
    levels: Levels,
}

/// Texts or bytes of a column: one allocation for all of them, in which a repeated one is kept
/// once, unless many others are between.
pub struct Texts<T = ByteArrayType> {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    recent: [Span; RECENT],
    levels: Levels,
    /// The definition level of a text that exists.
    definition: i16,
    of: PhantomData<T>,
}

/// The place of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
}

/// Definition and repetition levels, as runs of equal ones.
#[derive(Debug, Default)]
struct Levels(Vec<Run>);

#[derive(Debug)]
struct Run {
    definition: i16,
    /// 1 in a list, but for its first element.
    repetition: i16,
    length: usize,
}

/// The levels of a value that exists.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// Its definition level. A missing value has the one below.
    pub(crate) definition: i16,
    /// Whether it is in a list, and not the first one of it.
    pub(crate) is_continuation: bool,
}

impl Level {
    /// Outside of lists.
    pub const ROW: Self = Self {
        definition: 1,
        is_continuation: false,
    };
}

/// A column that can be written.
pub trait WriteColumn {
    /// Adds a row whose value or list is missing, or whose list is empty.
    fn push_empty(&mut self);

    /// Writes all values and forgets them.
    fn write(&mut self, to: SerializedColumnWriter<'_>) -> Result<()>;
}

impl Levels {
    #[inline]
    fn push(&mut self, level: Level, exists: bool) {
        self.add(
            level.definition - i16::from(!exists),
            level.is_continuation.into(),
        );
    }

    fn push_empty(&mut self) {
        self.add(0, 0);
    }

    #[inline]
    fn add(&mut self, definition: i16, repetition: i16) {
        match self.0.last_mut() {
            Some(run) if (run.definition, run.repetition) == (definition, repetition) => {
                run.length += 1;
            }
            _ => self.0.push(Run {
                definition,
                repetition,
                length: 1,
            }),
        }
    }

    /// Whether it is of a column that every row has.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `write` with the levels of parts: definition levels, then repetition levels. A part
    /// ends at the end of a row.
    fn write(&self, mut write: impl FnMut(&[i16], &[i16]) -> Result<usize>) -> Result<()> {
        let (mut definition, mut repetition) = (Vec::with_capacity(PART), Vec::with_capacity(PART));
        for run in &self.0 {
            let mut left = run.length;
            while left > 0 {
                let begins_row = run.repetition == 0;
                if begins_row && definition.len() >= PART {
                    write(&definition, &repetition)?;
                    definition.clear();
                    repetition.clear();
                }
                let room = if begins_row {
                    PART - definition.len()
                } else {
                    left
                };
                let taken = left.min(room);
                definition.extend(iter::repeat_n(run.definition, taken));
                repetition.extend(iter::repeat_n(run.repetition, taken));
                left -= taken;
            }
        }
        if !definition.is_empty() {
            write(&definition, &repetition)?;
        }
        Ok(())
    }
}

impl<T: DataType> Default for Numbers<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Levels::default(),
        }
    }
}

impl<T: DataType> Numbers<T> {
    /// A value of a column outside of lists that every row has.
    pub fn push(&mut self, value: T::T) {
        self.values.push(value);
    }

    /// A value that may be missing, or is in a list.
    #[inline]
    pub fn push_at(&mut self, level: Level, value: Option<T::T>) {
        self.levels.push(level, value.is_some());
        self.values.extend(value);
    }
}

impl<T: DataType> WriteColumn for Numbers<T> {
    fn push_empty(&mut self) {
        self.levels.push_empty();
    }

    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let writer = to.typed::<T>();
        if self.levels.is_empty() {
            writer.write_batch(&self.values, None, None)?;
        }
        let mut values = &self.values[..];
        self.levels.write(|definition, repetition| {
            let written = writer.write_batch(values, Some(definition), Some(repetition))?;
            values = &values[written..];
            Ok(written)
        })?;
        to.close()?;
        self.values.clear();
        self.levels.0.clear();
        Ok(())
    }
}

impl<T> Default for Texts<T> {
    fn default() -> Self {
        let (bytes, spans, recent, levels, definition) = <_>::default();
        Self {
            bytes,
            spans,
            recent,
            levels,
            definition,
            of: PhantomData,
        }
    }
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl<T> Texts<T> {
    /// A text of a column outside of lists that every row has.
    pub fn push(&mut self, text: &[u8]) {
        let known = self
            .recent
            .iter()
            .find(|known| self.bytes[known.range()] == *text);
        let span = known.copied().unwrap_or_else(|| {
            let at = |end: usize| u32::try_from(end).expect("a row group is smaller");
            let start = at(self.bytes.len());
            self.bytes.extend_from_slice(text);
            let span = Span {
                start,
                end: at(self.bytes.len()),
            };
            self.recent.rotate_right(1);
            self.recent[0] = span;
            span
        });
        self.spans.push(span);
    }

    /// A text that may be missing, or is in a list.
    #[inline]
    pub fn push_at(&mut self, level: Level, text: Option<&[u8]>) {
        self.levels.push(level, text.is_some());
        self.definition = level.definition;
        if let Some(text) = text {
            self.push(text);
        }
    }
}

/// The texts of one part after another.
struct Parts<'t, T> {
    bytes: Bytes,
    spans: slice::Iter<'t, Span>,
    /// The texts of the last part, and their places. One that is the same in the next part is kept,
    /// as each new one costs a counted reference.
    part: Vec<T>,
    places: Vec<Span>,
}

impl<T: From<ByteArray>> Parts<'_, T> {
    fn next(&mut self, count: usize) -> &[T] {
        let count = count.min(self.spans.len());
        for (index, span) in self.spans.by_ref().take(count).enumerate() {
            if self.places.get(index) == Some(span) {
                continue;
            }
            let text = ByteArray::from(self.bytes.slice(span.range())).into();
            match self.part.get_mut(index) {
                Some(kept) => (*kept, self.places[index]) = (text, *span),
                None => {
                    self.part.push(text);
                    self.places.push(*span);
                }
            }
        }
        &self.part[..count]
    }
}

impl<T: DataType<T: From<ByteArray>>> WriteColumn for Texts<T> {
    fn push_empty(&mut self) {
        self.levels.push_empty();
    }

    fn write(&mut self, mut to: SerializedColumnWriter<'_>) -> Result<()> {
        let mut parts = Parts {
            bytes: std::mem::take(&mut self.bytes).into(),
            spans: self.spans.iter(),
            part: Vec::with_capacity(PART),
            places: Vec::with_capacity(PART),
        };
        let writer = to.typed::<T>();
        while self.levels.is_empty() && parts.spans.len() > 0 {
            writer.write_batch(parts.next(PART), None, None)?;
        }
        self.levels.write(|definition, repetition| {
            let count = definition
                .iter()
                .filter(|level| **level == self.definition)
                .count();
            writer.write_batch(parts.next(count), Some(definition), Some(repetition))
        })?;
        to.close()?;
        // Its allocation is used again.
        let Parts { bytes, part, .. } = parts;
        drop(part);
        self.bytes = Vec::from(bytes);
        self.bytes.clear();
        self.spans.clear();
        self.recent = <_>::default();
        self.levels.0.clear();
        Ok(())
    }
}
