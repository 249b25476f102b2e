//! Chunk journal: the groups of chunks that an interrupted build already stored.
//!
//! One line per group of shards, written once all its chunks are durable in the store. A line cut
//! off by a crash is ignored. The journal is valid for one chunk layout and one set of deltas.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};

use rtad_core::snapshot::ChunkRecord;
use rtad_store::write::Base;

use super::super::error::CommandError;
use super::resume::CHUNKS;
use crate::keys::{Distinct, SpillDir, SpillError};

/// First line: the chunk layout and deltas that the other lines are valid for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    shards_per_chunk: u32,
    /// Sequence of `CURRENT` when the build began.
    sequence: u64,
}

/// All chunks of a group of neighboring shards.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) group: usize,
    pub(super) distinct: Distinct,
    pub(super) chunks: Vec<ChunkRecord>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct JournalLocation<'a> {
    dir: &'a SpillDir,
    sequence: u64,
}

impl<'a> JournalLocation<'a> {
    pub(super) fn new(dir: &'a SpillDir, base: &Base) -> Self {
        Self { dir, sequence: base.current().map_or(0, |current| current.sequence) }
    }

    /// Opens the journal for this chunk layout. Returns the groups that the store still `holds`;
    /// all other lines are removed.
    pub(super) fn open(
        &self,
        shards_per_chunk: u32,
        holds: impl Fn(&Group) -> Result<bool, CommandError>,
    ) -> Result<(Journal<'a>, Vec<Group>), CommandError> {
        let head = Head { shards_per_chunk, sequence: self.sequence };
        let bytes = self.dir.read_note(CHUNKS)?.unwrap_or_default();
        let mut lines =
            bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let is_ours = lines.next().is_some_and(|line| {
            serde_json::from_slice(line).is_ok_and(|found: Head| found == head)
        });
        // A group that was lost and rebuilt has two lines; the later one counts.
        let mut groups = BTreeMap::new();
        if is_ours {
            let read = lines.map_while(|line| serde_json::from_slice::<Group>(line).ok());
            groups.extend(read.map(|group| (group.group, group)));
        }
        let (mut good, mut held) = (line(&head), Vec::new());
        for group in groups.into_values() {
            if holds(&group)? {
                good.extend(line(&group));
                held.push(group);
            }
        }
        self.dir.write_note(CHUNKS, &good)?;
        Ok((Journal { dir: self.dir, file: self.dir.open_note(CHUNKS)? }, held))
    }
}

pub(super) struct Journal<'a> {
    dir: &'a SpillDir,
    file: std::fs::File,
}

impl Journal<'_> {
    pub(super) fn add(&mut self, group: &Group) -> Result<(), SpillError> {
        let written = self.file.write_all(&line(group)).and_then(|()| self.file.sync_data());
        written.map_err(|error| self.dir.failed(error, 0))
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain data");
    line.push(b'\n');
    line
}
