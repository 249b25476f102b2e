//! Filter of `dedup` that writes the first occurrence of each id.

use std::io::{self, BufWriter, Write};

use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;

use super::DedupError;
use crate::input::KeySink;
use crate::keys::hex;
use crate::seen::SeenKeys;

/// Writes the first occurrence of each id.
#[derive(Debug)]
pub struct FirstSeen {
    pub(super) seen: SeenKeys,
    /// `None` with `--count`.
    out: Option<BufWriter<io::Stdout>>,
    pub(super) first_seen: u64,
    /// First error, kept because a parser cannot return one.
    pub(super) failed: Option<CommandError>,
}

impl FirstSeen {
    /// Remembers ids in `seen`; writes to stdout if `is_written`.
    pub fn new(seen: SeenKeys, is_written: bool) -> Self {
        let out = is_written.then(|| BufWriter::with_capacity(1 << 20, io::stdout()));
        Self {
            seen,
            out,
            first_seen: 0,
            failed: None,
        }
    }

    pub fn is_new(&mut self, key: &DeviceKey) -> bool {
        match self.seen.is_new(key) {
            Ok(is_new) => is_new,
            Err(error) => {
                self.failed.get_or_insert(DedupError::Memory(error).into());
                false
            }
        }
    }

    /// Counts and writes a new id.
    pub fn pass(&mut self, text: &[u8]) {
        self.first_seen += 1;
        let Some(out) = self.out.as_mut().filter(|_| self.failed.is_none()) else {
            return;
        };
        let written = out.write_all(text).and_then(|()| out.write_all(b"\n"));
        self.failed = written.err().map(CommandError::data_output);
    }

    pub fn finish(&mut self) -> Result<(), CommandError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.out
            .as_mut()
            .map_or(Ok(()), Write::flush)
            .map_err(CommandError::data_output)
    }
}

impl KeySink for FirstSeen {
    fn take(&mut self, keys: &[DeviceKey], _values: &[u8]) {
        for key in keys {
            if self.is_new(key) {
                self.pass(&hex(key));
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.failed.is_some()
    }
}
