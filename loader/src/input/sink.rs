//! Key sinks, and the counts of rows, values, keys and rejects they receive.

use serde::{Deserialize, Serialize};

use rtad_core::device::{DeviceKey, IdKind};

use super::rejects::Reason;

/// Receiver of one parser's keys. Each parser has its own, so no lock is needed.
pub(crate) trait KeySink: Send {
    fn take(&mut self, keys: &[DeviceKey]);

    /// Called after all keys of a block were taken, with the block's counts.
    fn parsed(&mut self, _source: usize, _counts: &Counts) {}

    /// Called at the end of a source of `blocks` blocks. Other sinks may still be parsing some.
    fn ended(&mut self, _source: usize, _blocks: u64) {}

    /// Whether reading may end early.
    fn is_closed(&self) -> bool {
        false
    }
}

/// Counts of an input. A value is one row in one column, so one column has as many values as rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    /// Keys passed to the sinks, duplicates included.
    pub(crate) keys: u64,
    pub(crate) rejected: [u64; Reason::ALL.len()],
    /// Usable raw ids of each of [`RAW_KINDS`], and those of them that look like an md5.
    pub(crate) raw: [u64; RAW_KINDS.len()],
    pub(crate) digests: [u64; RAW_KINDS.len()],
    /// Malformed values that have the shape of each of [`SHAPES`].
    pub(crate) shapes: [u64; SHAPES.len()],
}

/// Kinds whose ids are told apart by their shape, the narrowest first.
pub(crate) const SHAPES: [IdKind; 5] =
    [IdKind::Md5, IdKind::Idfa, IdKind::Imei, IdKind::AndroidId, IdKind::Mac];

/// Counts of each input.
#[derive(Debug, Clone)]
pub(crate) struct InputCounts {
    /// By the index of the source.
    by_source: Vec<Counts>,
}

impl InputCounts {
    pub(crate) fn new(sources: usize) -> Self {
        Self { by_source: vec![Counts::default(); sources] }
    }

    pub(crate) fn add_to(&mut self, source: usize, counts: &Counts) {
        self.by_source[source].add(counts);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.by_source.iter_mut().zip(&other.by_source).for_each(|(sum, counts)| sum.add(counts));
    }

    /// Counts by the index of the source.
    pub(crate) fn of_sources(&self) -> &[Counts] {
        &self.by_source
    }

    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.by_source.iter().for_each(|counts| total.add(counts));
        total
    }
}

/// Raw kinds that accept an md5 too, and rarely look like one. CAIDs always do.
pub(crate) const RAW_KINDS: [IdKind; 2] = [IdKind::Oaid, IdKind::Openid];

impl Counts {
    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.rejected[reason as usize]
    }

    /// Rejected values except blank ones, which are valid and mean "no id".
    pub(crate) fn malformed(&self) -> u64 {
        self.rejected.iter().sum::<u64>() - self.of(Reason::Blank)
    }

    /// Counts a usable id, if it is of a raw kind.
    #[inline]
    pub(super) fn count_raw(&mut self, kind: IdKind, id: &[u8]) {
        if let Some(index) = RAW_KINDS.iter().position(|raw| *raw == kind) {
            let id = id.trim_ascii();
            self.raw[index] += 1;
            self.digests[index] +=
                u64::from(id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit));
        }
    }

    /// Counts a rejected value, a malformed one also by the kind that it looks like.
    pub(crate) fn reject(&mut self, reason: Reason, value: &[u8]) {
        self.rejected[reason as usize] += 1;
        let value = value.trim_ascii();
        if reason == Reason::Malformed
            && let Some(index) = SHAPES.iter().position(|kind| kind.has_shape(value))
        {
            self.shapes[index] += 1;
        }
    }

    /// The kind that most of the malformed values look like.
    pub(crate) fn shape(&self) -> Option<IdKind> {
        let index = (0..SHAPES.len()).max_by_key(|index| self.shapes[*index])?;
        (self.shapes[index] * 2 > self.malformed()).then_some(SHAPES[index])
    }

    /// The raw kinds most of whose ids look like md5s.
    pub(crate) fn kinds_of_digests(&self) -> impl Iterator<Item = (IdKind, u64, u64)> {
        let counted = RAW_KINDS.into_iter().zip(self.raw.into_iter().zip(self.digests));
        let counted = counted.map(|(kind, (raw, digests))| (kind, raw, digests));
        counted.filter(|(_, raw, digests)| digests * 2 > *raw)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.keys += other.keys;
        for (sum, count) in self.rejected.iter_mut().zip(other.rejected) {
            *sum += count;
        }
        for index in 0..RAW_KINDS.len() {
            self.raw[index] += other.raw[index];
            self.digests[index] += other.digests[index];
        }
        self.shapes.iter_mut().zip(other.shapes).for_each(|(sum, count)| *sum += count);
    }
}
