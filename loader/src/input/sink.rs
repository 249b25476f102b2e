//! Key sinks, and the counts of rows, values, keys and rejects they receive.

use serde::{Deserialize, Serialize};

use rtad_core::device::{DeviceKey, IdKind, trim};

use super::content::is_packed;
use super::lookalike::{LOOKALIKES, Lookalike, lookalike};
use super::rejects::Reason;

/// Receiver of one parser's keys. Each parser has its own, so no lock is needed.
pub trait KeySink: Send {
    /// Takes the keys of some rows, with the value of each if the input has them, else without
    /// any.
    fn take(&mut self, keys: &[DeviceKey], values: &[u8]);

    /// Whether reading may end early.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Counts of an input. A value is one row in one column, so one column has as many values as rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    /// Keys passed to the sinks, duplicates included.
    pub(crate) keys: u64,
    pub(crate) rejected: [u64; Reason::ALL.len()],
    /// Usable ids by kind, as in [`IdKind::ALL`].
    pub(crate) usable: [u64; IdKind::ALL.len()],
    /// Those of them that look like another kind, by the pair of [`LOOKALIKES`].
    pub(crate) lookalikes: [u64; LOOKALIKES.len()],
    /// Malformed values that have the shape of each of [`SHAPES`].
    pub(crate) shapes: [u64; SHAPES.len()],
    /// Rejected rows that begin compressed or packed data, or have a hole of zeros.
    pub(crate) packed: u64,
    /// By the index of the column; shorter if later columns have no value yet.
    pub(crate) columns: Vec<ColumnCounts>,
    /// NDJSON: whether any row has the member, by the index of the column, that of values last;
    /// empty without rows.
    pub(crate) seen: Vec<bool>,
}

/// Values of a column. Rows rejected as a whole, such as those of another length, are in no column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnCounts {
    pub(crate) usable: u64,
    pub(crate) blank: u64,
    pub(crate) malformed: u64,
}

/// Kinds whose ids are told apart by their shape, the narrowest first. A GAID stands for an OAID
/// too.
pub const SHAPES: [IdKind; 6] = [
    IdKind::Md5,
    IdKind::Gaid,
    IdKind::Idfa,
    IdKind::Imei,
    IdKind::AndroidId,
    IdKind::Mac,
];

/// Whether an id has the shape of one of [`SHAPES`]. UUIDs in lower case are GAIDs or OAIDs, those
/// in upper case are IDFAs.
fn looks_like(kind: IdKind, id: &[u8]) -> bool {
    match kind {
        IdKind::Gaid => IdKind::Idfa.has_shape(id) && id.iter().any(u8::is_ascii_lowercase),
        kind => kind.has_shape(id),
    }
}

/// Counts of each input.
#[derive(Debug, Clone)]
pub struct InputCounts {
    /// By the index of the source.
    by_source: Vec<Counts>,
}

impl InputCounts {
    pub fn new(sources: usize) -> Self {
        Self {
            by_source: vec![Counts::default(); sources],
        }
    }

    pub fn add_to(&mut self, source: usize, counts: &Counts) {
        self.by_source[source].add(counts);
    }

    pub fn add(&mut self, other: &Self) {
        self.by_source
            .iter_mut()
            .zip(&other.by_source)
            .for_each(|(sum, counts)| sum.add(counts));
    }

    /// Counts by the index of the source.
    pub fn of_sources(&self) -> &[Counts] {
        &self.by_source
    }

    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.by_source.iter().for_each(|counts| total.add(counts));
        total
    }
}

impl Counts {
    pub const fn of(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize]
    }

    /// Rejected values except blank ones, which are valid and mean "no id".
    pub fn malformed(&self) -> u64 {
        self.rejected.iter().sum::<u64>() - self.of(Reason::Blank)
    }

    /// Counts a usable id by its kind, its column if it has one, and the kind that it looks like.
    #[inline]
    pub fn accept(&mut self, kind: IdKind, column: Option<usize>, id: &[u8]) {
        self.accept_as(kind, column);
        if let Some(other) = lookalike(kind, id) {
            let index = LOOKALIKES.iter().position(|pair| *pair == (kind, other));
            self.lookalikes[index.expect("every pair is listed")] += 1;
        }
    }

    /// Counts a usable id that looks like its kind alone.
    #[inline]
    pub fn accept_as(&mut self, kind: IdKind, column: Option<usize>) {
        self.usable[kind as usize] += 1;
        if let Some(column) = column {
            self.column(column).usable += 1;
        }
    }

    /// Counts a rejected value, a malformed one also by the kind that it looks like.
    pub fn reject(&mut self, reason: Reason, column: Option<usize>, value: &[u8]) {
        self.rejected[reason as usize] += 1;
        if let Some(column) = column {
            let column = self.column(column);
            match reason {
                Reason::Blank => column.blank += 1,
                _ => column.malformed += 1,
            }
        }
        // A blank line may be a hole of zeros; a blank cell is one that was padded.
        let may_be_packed = reason != Reason::Blank || column.is_none();
        self.packed += u64::from(may_be_packed && is_packed(value));
        let value = trim(value);
        if reason == Reason::Malformed
            && let Some(index) = SHAPES.iter().position(|kind| looks_like(*kind, value))
        {
            self.shapes[index] += 1;
        }
    }

    #[inline]
    fn column(&mut self, index: usize) -> &mut ColumnCounts {
        if self.columns.len() <= index {
            self.columns.resize(index + 1, ColumnCounts::default());
        }
        &mut self.columns[index]
    }

    /// The kind that most of the malformed values look like.
    pub fn shape(&self) -> Option<IdKind> {
        let index = (0..SHAPES.len()).max_by_key(|index| self.shapes[*index])?;
        (self.shapes[index] * 2 > self.malformed()).then_some(SHAPES[index])
    }

    /// The pairs of kinds that occur, with the number of such ids.
    pub fn lookalikes(&self) -> impl Iterator<Item = (Lookalike, u64)> {
        LOOKALIKES
            .into_iter()
            .zip(self.lookalikes)
            .filter(|(_, count)| *count > 0)
    }

    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        self.packed += other.packed;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
        self.usable
            .iter_mut()
            .zip(other.usable)
            .for_each(|(sum, count)| *sum += count);
        self.lookalikes
            .iter_mut()
            .zip(other.lookalikes)
            .for_each(|(sum, count)| *sum += count);
        self.shapes
            .iter_mut()
            .zip(other.shapes)
            .for_each(|(sum, count)| *sum += count);
        for (index, counts) in other.columns.iter().enumerate() {
            self.column(index).add(counts);
        }
        self.seen
            .resize(self.seen.len().max(other.seen.len()), false);
        self.seen
            .iter_mut()
            .zip(&other.seen)
            .for_each(|(seen, found)| *seen |= *found);
    }
}

impl ColumnCounts {
    pub fn add(&mut self, other: &Self) {
        self.usable += other.usable;
        self.blank += other.blank;
        self.malformed += other.malformed;
    }
}
