//! Local log of an owner: file n has the bytes of segment n until the store has it.
//!
//! Each group is written and synced before the next one. So only the last group of the last file
//! can be torn; other damage is an error. A start after a crash takes the groups over under its own
//! owner: file by file, so that a crash meanwhile finds each group in one of both.

use std::io;
use std::path::Path;

use crate::disk::DiskFile;
use crate::error::OpenError;
use crate::log::{Frame, has_later_group, take_frame};
use crate::replica::Newest;
use crate::segment::{Segment, SegmentHead};
use crate::state_dir::StateDir;

/// Groups of a local log that no segment has.
pub struct TailLog {
    /// Number of the first group, or of the next one if there is none.
    pub first_group: u64,
    /// Whole groups.
    pub groups: Vec<u8>,
}

/// Whole groups that no segment has, of the segments after the newest one.
pub fn read_tail(dir: &StateDir, newest: &Newest) -> Result<Vec<TailLog>, OpenError> {
    let io = |source| OpenError::Io {
        path: dir.path().to_owned(),
        source,
    };
    let owners = dir.owners().map_err(io)?;
    let logs = dir.logs().map_err(io)?;
    let last = logs.last().copied();
    let mut tail = Vec::new();
    let mut next_group = newest.next_group;
    for number in logs {
        if number <= newest.number {
            // The store has it, and the crash came before its removal.
            continue;
        }
        let path = dir.log_path(number);
        let object = path.display().to_string();
        let bytes = read(&path)?;
        let log = Segment::read(&object, &bytes)?;

        let expected = newest.number + 1 + tail.len() as u64;
        if number != expected || log.head.number != number {
            return Err(OpenError::damaged(&object, "the log before it is missing"));
        }
        if !owners.contains(&log.head.owner) {
            return Err(OpenError::damaged(&object, "a log of another owner"));
        }
        if log.head.first_group != next_group {
            return Err(OpenError::damaged(
                &object,
                "the log does not continue the one before",
            ));
        }

        next_group = log.next_group();
        check_end(&object, &log, Some(number) == last)?;
        tail.push(TailLog {
            first_group: log.head.first_group,
            groups: log.group_bytes.to_vec(),
        });
    }
    Ok(tail)
}

/// Accepts a torn end, which no answer waited for; refuses other damage.
fn check_end(object: &str, log: &Segment<'_>, is_last: bool) -> Result<(), OpenError> {
    if log.rest.is_empty() {
        return Ok(());
    }
    if !is_last || has_later_group(log.rest, log.next_group()) {
        return Err(OpenError::damaged(
            object,
            "a broken group is followed by a valid one",
        ));
    }
    let torn_bytes = log.rest.len();
    tracing::warn!(path = object, torn_bytes, "torn end of a window's log cut");
    Ok(())
}

/// Removes the logs of another history: another owner has continued the window without them.
pub fn drop_tail(dir: &StateDir) -> Result<(), OpenError> {
    let io = |source| OpenError::Io {
        path: dir.path().to_owned(),
        source,
    };
    let (mut groups, mut events) = (0, 0);
    let logs = dir.logs().map_err(io)?;
    for number in &logs {
        let path = dir.log_path(*number);
        let bytes = read(&path)?;
        // An unreadable rest is not counted.
        if let Ok(log) = Segment::read("", &bytes) {
            groups += log.groups.len();
            events += count_changes(&log);
        }
    }
    for number in &logs {
        std::fs::remove_file(dir.log_path(*number)).map_err(io)?;
    }
    if groups > 0 {
        let dir = dir.path().display().to_string();
        tracing::warn!(
            dir,
            groups,
            events,
            "local events dropped: another owner has continued the window without them"
        );
    }
    Ok(())
}

fn count_changes(log: &Segment<'_>) -> usize {
    let lanes = log.head.window.spec.format().lanes();
    let mut count = 0;
    for group in &log.groups {
        let mut payload = group.payload;
        while let Some(frame) = take_frame(&mut payload, lanes) {
            if let Frame::Changes { changes, .. } = frame {
                count += changes.len();
            }
        }
    }
    count
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|source| OpenError::Io {
        path: path.to_owned(),
        source,
    })
}

/// The local logs of an owner while they are written.
pub struct LocalLog {
    dir: StateDir,
    /// The log of the open segment.
    file: DiskFile,
    /// Number of the first log that is there.
    first: u64,
}

impl LocalLog {
    /// Begins the log of the first open segment, after a take-over. `taken_over` are the segments
    /// after that of the take-over, whose groups the directory has under an earlier owner.
    pub fn begin(
        dir: StateDir,
        taken_over: &[(u64, &[u8])],
        open: &SegmentHead,
        open_bytes: &[u8],
    ) -> io::Result<Self> {
        for (number, bytes) in taken_over {
            dir.create(&dir.log_path(*number), bytes)?;
        }
        let file = dir.create(&dir.log_path(open.number), open_bytes)?;
        // Later starts need no earlier owner: no log is of one.
        let first = open.number - taken_over.len() as u64;
        for number in dir.logs()? {
            if number < first {
                std::fs::remove_file(dir.log_path(number))?;
            }
        }
        dir.set_owners(&[open.owner])?;
        Ok(Self { dir, file, first })
    }

    pub const fn dir(&self) -> &StateDir {
        &self.dir
    }

    /// Appends a group, durably.
    pub fn append(&mut self, group: &[u8]) -> io::Result<()> {
        self.file.write(group)?;
        self.file.sync()
    }

    /// Begins the log of the next segment.
    pub fn begin_next(&mut self, number: u64, head: &[u8]) -> io::Result<()> {
        self.file = self.dir.create(&self.dir.log_path(number), head)?;
        Ok(())
    }

    /// Removes the logs of segments that the store has. The next start removes what is left after a
    /// failure.
    pub fn remove_through(&mut self, number: u64) {
        for created in self.first..=number {
            let _ = std::fs::remove_file(self.dir.log_path(created));
        }
        self.first = self.first.max(number + 1);
    }
}
