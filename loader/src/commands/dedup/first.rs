//! Filter of first occurrences: writes each id once.

use std::io::{self, BufWriter, Write};

use rtad_core::device::DeviceKey;

use super::super::error::CommandError;
use crate::input::KeySink;
use crate::seen::Seen;

/// Filter of first occurrences.
#[derive(Debug)]
pub(super) struct First {
    pub(super) seen: Seen,
    /// `None` without output.
    out: Option<BufWriter<io::Stdout>>,
    pub(super) first_seen: u64,
    /// First write error, returned at the end, or after the current line.
    pub(super) failed: Option<CommandError>,
}

impl First {
    /// Without `writes`, first occurrences are only counted.
    pub(super) fn new(seen: Seen, writes: bool) -> Self {
        let out = writes.then(|| BufWriter::with_capacity(1 << 20, io::stdout()));
        Self { seen, out, first_seen: 0, failed: None }
    }

    /// Whether the key is new.
    pub(super) fn is_new(&mut self, key: &DeviceKey) -> bool {
        match self.seen.is_new(key) {
            Ok(is_new) => is_new,
            Err(error) => {
                self.failed.get_or_insert(CommandError::Memory(error));
                false
            }
        }
    }

    /// Counts and writes a first occurrence.
    pub(super) fn pass(&mut self, text: &[u8]) {
        self.first_seen += 1;
        let Some(out) = self.out.as_mut().filter(|_| self.failed.is_none()) else { return };
        let written = out.write_all(text).and_then(|()| out.write_all(b"\n"));
        self.failed = written.err().map(CommandError::Output);
    }

    pub(super) fn finish(&mut self) -> Result<(), CommandError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.out.as_mut().map_or(Ok(()), Write::flush).map_err(CommandError::Output)
    }
}

impl KeySink for First {
    fn take(&mut self, keys: &[DeviceKey]) {
        for key in keys {
            if self.is_new(key) {
                self.pass(const_hex::encode(key.as_bytes()).as_bytes());
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.failed.is_some()
    }
}
