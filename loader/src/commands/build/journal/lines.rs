//! Lines of the chunk journal: a head, then one line for each group of chunks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use rtad_core::snapshot::ChunkRecord;

use crate::keys::Distinct;

/// First line: the chunk layout and deltas that the other lines are valid for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    pub(crate) shards_per_chunk: u32,
    /// Sequence of `CURRENT` when the build began.
    pub(crate) sequence: u64,
}

/// All chunks of a group of neighboring shards.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    pub(crate) group: usize,
    pub(crate) distinct: Distinct,
    pub(crate) chunks: Vec<ChunkRecord>,
}

/// The groups of a journal with this head, by number, up to the first damaged line; none of any
/// other journal.
pub fn parse(bytes: &[u8], head: &JournalHead) -> BTreeMap<usize, Group> {
    let mut lines = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| line.ends_with(b"\n"));
    let is_ours = lines.next().is_some_and(|line| {
        serde_json::from_slice(line).is_ok_and(|found: JournalHead| found == *head)
    });
    // A group that was lost and rebuilt has two lines; the later one counts.
    let mut groups = BTreeMap::new();
    if is_ours {
        let read = lines.map_while(|line| serde_json::from_slice::<Group>(line).ok());
        groups.extend(read.map(|group| (group.group, group)));
    }
    groups
}

/// One line of the journal.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain data");
    line.push(b'\n');
    line
}
