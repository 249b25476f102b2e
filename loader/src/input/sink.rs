//! Key sinks, and the counts of rows, values, keys and rejects they receive.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use indicatif::HumanCount;
use rtad_core::device::{DeviceKey, IdKind, LOOKALIKES, Look, Lookalike, lookalike, trim};

use super::content::is_packed;
use super::kinds::Kinds;
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
    /// Usable ids.
    pub(crate) usable: KindCounts,
    /// Those of them that look like another kind, by the pair of [`LOOKALIKES`].
    pub(crate) lookalikes: [u64; LOOKALIKES.len()],
    /// Malformed values that have each of [`Look::ALL`].
    pub(crate) looks: [u64; Look::ALL.len()],
    /// Rejected rows that begin compressed or packed data, or have a hole of zeros.
    pub(crate) packed: u64,
    /// By the index of the column; shorter if later columns have no value yet.
    pub(crate) columns: Vec<ColumnCounts>,
    /// NDJSON: whether any row has the member, by the index of the column, that of values last;
    /// empty without rows.
    pub(crate) seen: Vec<bool>,
}

/// Values of a column. Rows rejected as a whole, such as those of another length, are in no column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ColumnCounts {
    pub(crate) usable: u64,
    /// Empty in reports if the column has one kind.
    #[serde(default, skip_serializing_if = "KindCounts::is_empty")]
    pub(crate) usable_by_kind: KindCounts,
    pub(crate) blank: u64,
    pub(crate) malformed: u64,
}

/// Ids by kind, as in [`IdKind::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts([u64; IdKind::ALL.len()]);

impl KindCounts {
    pub const fn of(&self, kind: IdKind) -> u64 {
        self.0[kind as usize]
    }

    fn add(&mut self, kind: IdKind) {
        self.0[kind as usize] += 1;
    }

    pub fn add_all(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0 == Self::default().0
    }
}

/// An object of the kinds that occur.
impl Serialize for KindCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        for kind in IdKind::ALL {
            if self.of(kind) > 0 {
                object.serialize_entry(kind.as_str(), &self.of(kind))?;
            }
        }
        object.end()
    }
}

impl<'de> Deserialize<'de> for KindCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_name = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut counts = Self::default();
        for (name, count) in by_name {
            let kind: IdKind = name.parse().map_err(D::Error::custom)?;
            counts.0[kind as usize] = count;
        }
        Ok(counts)
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
    /// Values rejected for this reason.
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
        self.usable.add(kind);
        if let Some(column) = column {
            let column = self.column(column);
            column.usable += 1;
            column.usable_by_kind.add(kind);
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
            && let Some(found) = Look::of(value)
            && let Some(index) = Look::ALL.iter().position(|look| *look == found)
        {
            self.looks[index] += 1;
        }
    }

    #[inline]
    fn column(&mut self, index: usize) -> &mut ColumnCounts {
        if self.columns.len() <= index {
            self.columns.resize(index + 1, ColumnCounts::default());
        }
        &mut self.columns[index]
    }

    /// The look of most of the malformed values.
    pub fn look(&self) -> Option<Look> {
        let index = (0..Look::ALL.len()).max_by_key(|index| self.looks[*index])?;
        (self.looks[index] * 2 > self.malformed()).then_some(Look::ALL[index])
    }

    /// The kinds that occur, with the number of usable ids.
    pub fn usable_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        IdKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), self.usable.of(kind)))
            .filter(|(_, count)| *count > 0)
    }

    /// Why most of the answers about these ids may be wrong: texts for a warning. `flag` declares
    /// the kinds.
    pub fn doubts(&self, kinds: &Kinds, flag: &str) -> Vec<String> {
        let mut doubts = Vec::new();
        let remedy = |look: Look| match look {
            Look::Id(kind) => format!(": use {flag} {kind}"),
            _ => String::new(),
        };

        let malformed = self.malformed();
        let usable: u64 = IdKind::ALL.iter().map(|kind| self.usable.of(*kind)).sum();
        if malformed > usable {
            let hint = match self.look() {
                Some(look) => format!("; most look like {look}{}", remedy(look)),
                None => String::new(),
            };
            doubts.push(format!(
                "{} of {} ids are malformed: expected ids of kind {kinds}{hint}",
                HumanCount(malformed),
                HumanCount(usable + malformed)
            ));
        }

        for ((kind, look), count) in self.lookalikes() {
            let usable = self.usable.of(kind);
            if count * 2 > usable {
                doubts.push(format!(
                    "{} of {} ids of kind {kind} look like {look}; if they are, their answers are \
                     wrong{}",
                    HumanCount(count),
                    HumanCount(usable),
                    remedy(look)
                ));
            }
        }
        doubts
    }

    /// The pairs of kinds that occur, with the number of such ids.
    pub fn lookalikes(&self) -> impl Iterator<Item = (Lookalike, u64)> {
        LOOKALIKES
            .into_iter()
            .zip(self.lookalikes)
            .filter(|(_, count)| *count > 0)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        self.packed += other.packed;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
        self.usable.add_all(&other.usable);
        self.lookalikes
            .iter_mut()
            .zip(other.lookalikes)
            .for_each(|(sum, count)| *sum += count);
        self.looks
            .iter_mut()
            .zip(other.looks)
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
        self.usable_by_kind.add_all(&other.usable_by_kind);
        self.blank += other.blank;
        self.malformed += other.malformed;
    }
}
