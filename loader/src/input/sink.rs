//! Key sinks, and the counts of rows, values, keys and rejects they receive.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use indicatif::HumanCount;
use rtad_core::device::{DeviceKey, IdKind, Look, is_macro, lookalike, trim};

use super::content::is_packed;
use super::kinds::Kinds;
use super::rejects::Reason;

/// Fewer values of a part of the input may be wrong by chance: they count only if they are most of
/// its values.
const LEAST_WRONG: u64 = 10;

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
    /// Those of them that look like something else.
    pub(crate) lookalikes: LookalikeCounts,
    /// Malformed values that have each of [`Look::ALL`].
    pub(crate) looks: [u64; Look::ALL.len()],
    /// Blank values that are texts in brackets.
    pub(crate) macros: u64,
    /// Rejected rows that begin compressed or packed data, or have a hole of zeros.
    pub(crate) packed: u64,
    /// By the index of the column; shorter if later columns have no value yet.
    pub(crate) columns: Vec<ColumnCounts>,
    /// NDJSON: whether any row has the member, by the index of the column, that of values last;
    /// empty without rows.
    pub(crate) seen: Vec<bool>,
}

/// Values of a column. Rows rejected as a whole, such as those of another length, are in no column.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ColumnCounts {
    pub(crate) usable: u64,
    /// Empty in reports if the column has one kind.
    #[serde(default, skip_serializing_if = "KindCounts::is_empty")]
    pub(crate) usable_by_kind: KindCounts,
    pub(crate) blank: u64,
    pub(crate) malformed: u64,
    /// Usable ids that look like something else; not in reports.
    #[serde(skip)]
    pub(crate) lookalikes: LookalikeCounts,
    /// Blank values that are texts in brackets; not in reports.
    #[serde(skip)]
    pub(crate) macros: u64,
}

/// Usable ids that look like something else, by kind and look: few pairs occur.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookalikeCounts(Vec<LookalikeCount>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LookalikeCount {
    kind: IdKind,
    look: Look,
    count: u64,
}

/// The ids of a kind that look like something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookalikes {
    pub kind: IdKind,
    /// Usable ids of the kind.
    pub usable: u64,
    /// Those that look like something else.
    pub count: u64,
    /// Their looks, with the number of each, the most frequent first.
    looks: Vec<(Look, u64)>,
}

impl LookalikeCounts {
    fn add(&mut self, kind: IdKind, look: Look, count: u64) {
        for known in &mut self.0 {
            if (known.kind, known.look) == (kind, look) {
                known.count += count;
                return;
            }
        }
        self.0.push(LookalikeCount { kind, look, count });
    }

    fn add_all(&mut self, other: &Self) {
        for LookalikeCount { kind, look, count } in &other.0 {
            self.add(*kind, *look, *count);
        }
    }

    fn of(&self, kind: IdKind, look: Look) -> u64 {
        for known in &self.0 {
            if (known.kind, known.look) == (kind, look) {
                return known.count;
            }
        }
        0
    }

    /// Those of each kind that has some, among so many usable ids.
    pub fn by_kind(&self, usable: &KindCounts) -> Vec<Lookalikes> {
        let mut found = Vec::new();
        for kind in IdKind::ALL {
            let mut looks = Vec::new();
            for look in Look::ALL {
                let count = self.of(kind, look);
                if count > 0 {
                    looks.push((look, count));
                }
            }

            looks.sort_by_key(|(_, count)| Reverse(*count));
            if !looks.is_empty() {
                found.push(Lookalikes {
                    kind,
                    usable: usable.of(kind),
                    count: looks.iter().map(|(_, count)| count).sum(),
                    looks,
                });
            }
        }
        found
    }
}

impl Lookalikes {
    /// Whether they are most ids of their kind, and too many of all usable ids for chance.
    pub fn are_most(&self, all_usable: u64) -> bool {
        // A small kind beside a large one may have junk alone.
        let is_small = self.count * 100 < all_usable;
        self.count * 2 > self.usable && !is_small && !may_be_chance(self.count, all_usable)
    }

    /// The kinds that they look like, as a flag takes them; empty for none.
    pub fn other_kinds(&self) -> String {
        let mut names = Vec::new();
        for (look, _) in &self.looks {
            if let Look::Id(kind) = look {
                names.push(kind.as_str());
            }
        }
        names.join(",")
    }
}

impl fmt::Display for Lookalikes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            usable,
            count,
            looks,
        } = self;
        write!(
            f,
            "{} of {} ids of kind {kind} look like ",
            HumanCount(*count),
            HumanCount(*usable)
        )?;

        if let [(look, _)] = looks[..] {
            return write!(f, "{look}");
        }
        for (index, (look, count)) in looks.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{look} ({})", HumanCount(*count))?;
        }
        Ok(())
    }
}

/// Ids by kind, as in [`IdKind::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KindCounts([u64; IdKind::ALL.len()]);

impl KindCounts {
    pub const fn of(&self, kind: IdKind) -> u64 {
        self.0[kind as usize]
    }

    pub fn add(&mut self, kind: IdKind, count: u64) {
        self.0[kind as usize] += count;
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
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
        for (sum, counts) in self.by_source.iter_mut().zip(&other.by_source) {
            sum.add(counts);
        }
    }

    /// Counts by the index of the source.
    pub fn of_sources(&self) -> &[Counts] {
        &self.by_source
    }

    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in &self.by_source {
            total.add(counts);
        }
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
        if let Some(look) = lookalike(kind, id) {
            self.lookalikes.add(kind, look, 1);
            if let Some(column) = column {
                self.column(column).lookalikes.add(kind, look, 1);
            }
        }
    }

    /// Counts a usable id that looks like its kind alone.
    #[inline]
    pub fn accept_as(&mut self, kind: IdKind, column: Option<usize>) {
        self.usable.add(kind, 1);
        if let Some(column) = column {
            let column = self.column(column);
            column.usable += 1;
            column.usable_by_kind.add(kind, 1);
        }
    }

    /// Counts a rejected value, a malformed one also by what it looks like.
    pub fn reject(&mut self, reason: Reason, column: Option<usize>, value: &[u8]) {
        self.count_rejected(reason, column, value);
        if reason == Reason::Malformed
            && let Some(look) = Look::of(trim(value))
        {
            self.add_look(look);
        }
    }

    /// Counts a malformed number with a fraction, in a row of JSON.
    pub fn reject_fraction(&mut self, column: usize, row: &[u8]) {
        self.count_rejected(Reason::Malformed, Some(column), row);
        self.add_look(Look::Float);
    }

    fn count_rejected(&mut self, reason: Reason, column: Option<usize>, value: &[u8]) {
        let macros = u64::from(reason == Reason::Blank && is_macro(trim(value)));
        self.rejected[reason as usize] += 1;
        self.macros += macros;
        if let Some(column) = column {
            let column = self.column(column);
            column.macros += macros;
            match reason {
                Reason::Blank => column.blank += 1,
                _ => column.malformed += 1,
            }
        }

        // A blank line may be a hole of zeros; a blank cell is one that was padded.
        let may_be_packed = reason != Reason::Blank || column.is_none();
        self.packed += u64::from(may_be_packed && is_packed(value));
    }

    fn add_look(&mut self, found: Look) {
        for (look, count) in Look::ALL.iter().zip(&mut self.looks) {
            *count += u64::from(*look == found);
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
        if self.looks[index] * 2 > self.malformed() {
            Some(Look::ALL[index])
        } else {
            None
        }
    }

    /// The kinds that occur, with the number of usable ids.
    pub fn usable_by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        IdKind::ALL
            .into_iter()
            .map(|kind| (kind.as_str(), self.usable.of(kind)))
            .filter(|(_, count)| *count > 0)
    }

    /// Why most of the answers about these ids may be wrong: texts for a warning.
    pub fn doubts(&self, kinds: &Kinds) -> Vec<String> {
        let mut doubts = Vec::new();
        let malformed = self.malformed();
        let usable = self.usable.total();
        if malformed > usable {
            let mut hint = String::new();
            if let Some(look) = self.look() {
                hint = format!("; most look like {look}");
                if let Look::Id(kind) = look {
                    hint += &format!(": use --id-kind {kind}");
                }
            }
            doubts.push(format!(
                "{} of {} ids are malformed: expected ids of kind {kinds}{hint}",
                HumanCount(malformed),
                HumanCount(usable + malformed)
            ));
        }

        for lookalikes in self.lookalikes.by_kind(&self.usable) {
            if lookalikes.are_most(usable) {
                let others = lookalikes.other_kinds();
                let remedy = match &others[..] {
                    "" => String::new(),
                    others => format!(": use --id-kind {others}"),
                };
                doubts.push(format!(
                    "{lookalikes}; if they are, their answers are wrong{remedy}"
                ));
            }
        }
        doubts.extend(blank_doubt(self.macros, usable + malformed));
        doubts
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        self.packed += other.packed;
        self.macros += other.macros;

        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
        self.usable.add_all(&other.usable);
        self.lookalikes.add_all(&other.lookalikes);
        for (sum, count) in self.looks.iter_mut().zip(other.looks) {
            *sum += count;
        }
        for (index, counts) in other.columns.iter().enumerate() {
            self.column(index).add(counts);
        }

        let members = self.seen.len().max(other.seen.len());
        self.seen.resize(members, false);
        for (seen, found) in self.seen.iter_mut().zip(&other.seen) {
            *seen |= *found;
        }
    }
}

impl ColumnCounts {
    pub fn add(&mut self, other: &Self) {
        self.usable += other.usable;
        self.usable_by_kind.add_all(&other.usable_by_kind);
        self.blank += other.blank;
        self.malformed += other.malformed;
        self.lookalikes.add_all(&other.lookalikes);
        self.macros += other.macros;
    }
}

/// Whether so few of these values may be wrong by chance.
pub const fn may_be_chance(wrong: u64, values: u64) -> bool {
    wrong < LEAST_WRONG && wrong * 2 <= values
}

/// Whether so few rows may all be blank by chance.
pub const fn may_be_blank_by_chance(rows: u64) -> bool {
    rows < LEAST_WRONG
}

/// A warning if most values with a text are macros: perhaps ids in brackets.
pub fn blank_doubt(macros: u64, others: u64) -> Option<String> {
    if macros <= others || macros < LEAST_WRONG {
        return None;
    }
    Some(format!(
        "{} of {} values are texts in brackets, and count as blank",
        HumanCount(macros),
        HumanCount(macros + others)
    ))
}
