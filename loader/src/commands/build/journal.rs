//! Chunk journal: the groups of chunks that an interrupted build already stored.
//!
//! One line per group of shards, written once all its chunks are durable in the store. A line cut
//! off by a crash is ignored. The journal is valid for one chunk layout and one set of deltas.

mod lines;

use std::io::Write;

use rtad_cli::command_error::CommandError;
use rtad_store::write::Base;

use super::resume::CHUNKS;
use crate::keys::{SpillDir, SpillError};
pub use lines::Group;
use lines::{JournalHead, line};

#[derive(Debug, Clone, Copy)]
pub struct JournalLocation<'a> {
    dir: &'a SpillDir,
    sequence: u64,
}

impl<'a> JournalLocation<'a> {
    pub fn new(dir: &'a SpillDir, base: &Base) -> Self {
        Self {
            dir,
            sequence: base.current().map_or(0, |current| current.sequence),
        }
    }

    /// Opens the journal for this chunk layout. Returns the groups that the store still `holds`;
    /// all other lines are removed.
    pub fn open(
        &self,
        shards_per_chunk: u32,
        holds: impl Fn(&Group) -> Result<bool, CommandError>,
    ) -> Result<(Journal<'a>, Vec<Group>), CommandError> {
        let head = JournalHead {
            shards_per_chunk,
            sequence: self.sequence,
        };
        let bytes = self.dir.read_note(CHUNKS)?.unwrap_or_default();
        let (mut good, mut held) = (line(&head), Vec::new());
        for group in lines::parse(&bytes, &head).into_values() {
            if holds(&group)? {
                good.extend(line(&group));
                held.push(group);
            }
        }
        self.dir.write_note(CHUNKS, &good)?;
        Ok((
            Journal {
                dir: self.dir,
                file: self.dir.open_note(CHUNKS)?,
            },
            held,
        ))
    }
}

pub struct Journal<'a> {
    dir: &'a SpillDir,
    file: std::fs::File,
}

impl Journal<'_> {
    pub fn add(&mut self, group: &Group) -> Result<(), SpillError> {
        let written = self
            .file
            .write_all(&line(group))
            .and_then(|()| self.file.sync_data());
        written.map_err(|error| self.dir.failed(error, 0))
    }
}
