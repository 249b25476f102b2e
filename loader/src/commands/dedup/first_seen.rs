//! The keys seen so far, and the output of new ids.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};

use rtad_cli::command_error::CommandError;
use rtad_core::device::DeviceKey;

use super::DedupError;
use crate::input::KeySink;
use crate::keys::hex;

/// Writes the first occurrence of each id.
#[derive(Debug)]
pub struct FirstSeen {
    seen: HashSet<u128>,
    /// `None` with `--json`.
    out: Option<BufWriter<io::Stdout>>,
    first_seen: u64,
    /// First error, kept because a parser cannot return one.
    failed: Option<CommandError>,
}

impl FirstSeen {
    /// Writes to stdout if `is_written`.
    pub fn new(is_written: bool) -> Self {
        let out = is_written.then(|| BufWriter::with_capacity(1 << 20, io::stdout()));
        Self {
            seen: HashSet::new(),
            out,
            first_seen: 0,
            failed: None,
        }
    }

    pub const fn first_seen(&self) -> u64 {
        self.first_seen
    }

    pub const fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Takes a line with the key of each of its spellings. It is new if any spelling is; all of
    /// them become seen.
    pub fn take_line(&mut self, text: &[u8], keys: &[DeviceKey]) {
        let mut is_new = false;
        for key in keys {
            is_new |= self.insert(key);
        }
        if is_new {
            self.pass(text);
        }
    }

    pub fn finish(&mut self) -> Result<(), CommandError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match &mut self.out {
            Some(out) => out.flush().map_err(CommandError::data_output),
            None => Ok(()),
        }
    }

    /// Adds a key. Returns whether it is new.
    fn insert(&mut self, key: &DeviceKey) -> bool {
        if let Err(source) = self.seen.try_reserve(1) {
            let ids = self.seen.len();
            self.failed
                .get_or_insert_with(|| DedupError::Memory { ids, source }.into());
            return false;
        }
        self.seen.insert(u128::from_ne_bytes(*key.as_bytes()))
    }

    /// Counts and writes a new id.
    fn pass(&mut self, text: &[u8]) {
        self.first_seen += 1;
        let Some(out) = &mut self.out else {
            return;
        };
        if self.failed.is_none() {
            let written = out.write_all(text).and_then(|()| out.write_all(b"\n"));
            self.failed = written.err().map(CommandError::data_output);
        }
    }
}

impl KeySink for FirstSeen {
    fn take(&mut self, keys: &[DeviceKey], _values: &[u8]) {
        for key in keys {
            if self.insert(key) {
                self.pass(&hex(key));
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.has_failed()
    }
}
