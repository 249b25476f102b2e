//! Line reader of `dedup`: keys and text of each line. The parsers of `input` give keys only.

use rtad_cli::command_error::CommandError;
use rtad_core::device::{Case, DeviceKey, Unusable};

use super::first_seen::FirstSeen;
use crate::input::{
    Counts, Ends, Input, InputCounts, Kinds, Layout, Reason, Source, each_line, expect,
};
use crate::progress::Progress;

/// Longest line; longer ones are malformed.
const MAX_LINE_BYTES: usize = 64 << 10;
/// Rows between two updates of the progress.
const ROWS_PER_UPDATE: u64 = 1 << 16;

pub struct LineKeys<'a> {
    input: &'a Input,
    /// `None` for any text.
    kinds: Option<&'a Kinds>,
}

impl<'a> LineKeys<'a> {
    pub fn of(input: &'a Input, text: bool) -> Self {
        let kinds = match &input.layout {
            Layout::Lines { kinds } if !text => Some(kinds),
            _ => None,
        };
        Self { input, kinds }
    }

    pub fn read(
        &self,
        sources: &[Source],
        first: &mut FirstSeen,
        progress: &Progress,
    ) -> Result<InputCounts, CommandError> {
        let mut counts = InputCounts::new(sources.len());
        expect(progress, sources);
        for (index, source) in sources.iter().enumerate() {
            // Every byte counts with --text.
            let ends = if self.kinds.is_some() {
                Ends::Converted
            } else {
                Ends::Kept
            };
            counts.add_to(index, &self.read_one((source, ends), first, progress)?);
        }
        Ok(counts)
    }

    fn read_one(
        &self,
        (source, ends): (&Source, Ends),
        first: &mut FirstSeen,
        progress: &Progress,
    ) -> Result<Counts, CommandError> {
        let (mut counts, mut keys) = (Counts::default(), Vec::new());
        each_line(source, ends, progress.bytes(), |text| {
            keys.clear();
            match self.keys(text, &mut keys) {
                Ok(()) => {
                    self.kinds
                        .inspect(|kinds| counts.accept(kinds.of(text), None, text));
                    // An id with several spellings is new if any spelling is; all of them become
                    // seen.
                    let new = keys.iter().filter(|key| first.is_new(key)).count();
                    if new > 0 {
                        first.pass(text);
                    }
                }
                Err(reason) => counts.reject(reason, None, text),
            }
            counts.rows += 1;
            counts.values += 1;
            counts.keys += keys.len() as u64;
            if counts.rows.is_multiple_of(ROWS_PER_UPDATE) {
                progress.add(ROWS_PER_UPDATE);
            }
            first.failed.is_none()
        })?;
        first.failed.take().map_or(Ok(counts), Err)
    }

    fn keys(&self, text: &[u8], keys: &mut Vec<DeviceKey>) -> Result<(), Reason> {
        if text.len() > MAX_LINE_BYTES {
            return Err(Reason::TooLong);
        }
        let Some(kinds) = self.kinds else {
            keys.push(DeviceKey::of_canonical(text));
            return Ok(());
        };
        let kind = kinds.of(text);
        let case: Case = self.input.case.unwrap_or(kind.canonical_case());
        self.input
            .keys
            .keys(kind, case, text, keys)
            .map_err(|unusable| match unusable {
                Unusable::Blank => Reason::Blank,
                Unusable::Malformed => Reason::Malformed,
            })
    }
}
