//! Line reader of `dedup`: keys and text of each line. The parsers of `input` give keys only.

use std::io::{BufRead, BufReader};

use rtad_cli::command_error::CommandError;
use rtad_core::device::{Case, DeviceKey, Unusable};

use super::first_seen::FirstSeen;
use crate::input::{
    Counts, Ends, Input, InputCounts, InputError, Kinds, Layout, Opened, Reason, Source, expect,
};
use crate::progress::Progress;

/// Longest line; longer ones are malformed.
const MAX_LINE_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 1 << 20;
/// Rows between two updates of the progress and checks for errors.
const ROWS_PER_UPDATE: u64 = 1 << 16;

pub(super) struct LineKeys<'a> {
    input: &'a Input,
    /// `None` for any text.
    kinds: Option<&'a Kinds>,
}

impl<'a> LineKeys<'a> {
    pub(super) fn of(input: &'a Input, text: bool) -> Self {
        let kinds = match &input.layout {
            Layout::Lines { kinds } if !text => Some(kinds),
            _ => None,
        };
        Self { input, kinds }
    }

    pub(super) fn read(
        &self,
        sources: &[Source],
        first: &mut FirstSeen,
        progress: &Progress,
    ) -> Result<InputCounts, CommandError> {
        let mut counts = InputCounts::new(sources.len());
        expect(progress, sources);
        for (index, source) in sources.iter().enumerate() {
            // Every byte counts with --text.
            let ends = if self.kinds.is_some() { Ends::Converted } else { Ends::Kept };
            let opened = Opened::open(source, ends, progress.bytes())?;
            let mut reader = BufReader::with_capacity(BUFFER_BYTES, opened);
            counts.add_to(index, &self.read_one(&mut reader, first, progress)?);
        }
        Ok(counts)
    }

    fn read_one(
        &self,
        reader: &mut BufReader<Opened>,
        first: &mut FirstSeen,
        progress: &Progress,
    ) -> Result<Counts, CommandError> {
        let mut counts = Counts::default();
        let (mut line, mut keys) = (Vec::new(), Vec::new());
        while let Some(is_whole) = next_line(reader, &mut line)? {
            let text = line.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.kinds.is_some());
            let text = text.unwrap_or(&line);
            keys.clear();
            match self.keys(text, is_whole, &mut keys) {
                Ok(()) => {
                    self.kinds.inspect(|kinds| counts.accept(kinds.of(text), None, text));
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
                if let Some(error) = first.failed.take() {
                    return Err(error);
                }
            }
        }
        Ok(counts)
    }

    fn keys(&self, text: &[u8], is_whole: bool, keys: &mut Vec<DeviceKey>) -> Result<(), Reason> {
        if !is_whole {
            return Err(Reason::TooLong);
        }
        let Some(kinds) = self.kinds else {
            keys.push(DeviceKey::of_canonical(text));
            return Ok(());
        };
        let kind = kinds.of(text);
        let case: Case = self.input.case.unwrap_or(kind.canonical_case());
        self.input.keys.keys(kind, case, text, keys).map_err(|unusable| match unusable {
            Unusable::Blank => Reason::Blank,
            Unusable::Malformed => Reason::Malformed,
        })
    }
}

/// Reads a line, without its line end, into `line`. `Some(false)`: the line is too long and `line`
/// holds its start. `None`: end of input.
fn next_line(
    reader: &mut BufReader<Opened>,
    line: &mut Vec<u8>,
) -> Result<Option<bool>, InputError> {
    line.clear();
    let (mut is_whole, mut is_any) = (true, false);
    loop {
        let buffer = match reader.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) => return Err(reader.get_ref().failed(error)),
        };
        if buffer.is_empty() {
            return Ok(is_any.then_some(is_whole));
        }
        is_any = true;
        let end = memchr::memchr(b'\n', buffer);
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = MAX_LINE_BYTES + 1 - line.len();
        line.extend_from_slice(&part[..part.len().min(room)]);
        is_whole &= line.len() <= MAX_LINE_BYTES;
        let used = end.map_or(part.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(is_whole));
        }
    }
}
