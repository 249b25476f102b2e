//! Opening a window's directory: lock, last checkpoint, log after it.
//!
//! It has two steps, so that a caller can take over the window between them: `load` finds every
//! error of the files, `start` begins to write.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use super::shared::{Files, Shared};
use super::{Durability, Durable, writer};
use crate::answers::Answers;
use crate::checkpoint::{self, CheckpointError, Head};
use crate::log::{self, Frame, LogError, Segment, decode, private, segment_path, sync_dir};
use crate::window::Window;
use crate::{SpecError, WindowSpec};

/// A window's directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A value of the spec is out of range.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The directory could not be created, read or locked.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process has the window open.
    #[error("{dir}: the directory is locked: another process has this window open")]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The files belong to a window of another shape.
    #[error("{path}: a window of another shape: expected {expected}, found {found}")]
    Other {
        /// The checkpoint.
        path: PathBuf,
        /// The window of the config.
        expected: String,
        /// The window of the files.
        found: String,
    },
    /// Damaged checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Damaged log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Log files without the checkpoint that they continue.
    #[error(
        "{dir}: log files without a checkpoint; restore the checkpoint, or remove the directory"
    )]
    NoCheckpoint {
        /// The directory.
        dir: PathBuf,
    },
}

/// Content of a window's files, or an empty window if there are none.
pub struct Loaded {
    head: Head,
    window: Window,
    answers: Answers,
    /// Whether the first checkpoint is still to be written.
    is_new: bool,
    /// Number of the last segment.
    last: u64,
    next_group: u64,
    log_bytes: u64,
}

impl Loaded {
    /// Moves to the current tick after everything is read.
    fn at(self, tick: impl FnOnce(i64) -> u64) -> Self {
        self.window.set_tick(tick(self.head.wall_offset_millis));
        self.window.recount();
        self.window.discard_evicted();
        self
    }
}

/// Reads a directory. Changes nothing but a torn end of the log.
pub(super) fn load(
    dir: &Path,
    spec: WindowSpec,
    clock: &str,
    tick: impl FnOnce(i64) -> u64,
) -> Result<Loaded, OpenError> {
    spec.validate()?;
    let io = |source| OpenError::Io { path: dir.to_owned(), source };
    let checkpoints = numbered(dir, "checkpoint-").map_err(io)?;
    let segments = numbered(dir, "log-").map_err(io)?;
    let Some(number) = checkpoints.last() else {
        if !segments.is_empty() {
            return Err(OpenError::NoCheckpoint { dir: dir.to_owned() });
        }
        return new(spec, clock, tick(0)).map_err(io);
    };
    let path = checkpoint::checkpoint_path(dir, *number);
    let mut loaded = load_checkpoint(&path, *number, spec, clock)?;
    replay(&mut loaded, dir, &segments)?;
    Ok(loaded.at(tick))
}

/// Reads a checkpoint that no log follows.
pub(super) fn load_download(
    path: &Path,
    number: u64,
    spec: WindowSpec,
    clock: &str,
    tick: impl FnOnce(i64) -> u64,
) -> Result<Loaded, OpenError> {
    spec.validate()?;
    Ok(load_checkpoint(path, number, spec, clock)?.at(tick))
}

/// Begins to write: the first checkpoint of a new window, and a segment of the log.
pub(super) fn start(
    dir: &Path,
    held: File,
    loaded: Loaded,
    durability: Durability,
) -> Result<Durable, OpenError> {
    let io = |source| OpenError::Io { path: dir.to_owned(), source };
    let Loaded { head, window, answers, is_new, last, next_group, log_bytes } = loaded;
    if is_new {
        // It fixes the secret of the hash.
        let written = checkpoint::write(dir, &head, &window).map_err(io)?;
        checkpoint::publish(dir, written, &head).map_err(io)?;
        dir.parent().map_or(Ok(()), sync_dir).map_err(io)?;
    }
    let path = checkpoint::checkpoint_path(dir, head.segment);
    let modified = path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let files = Files { dir: dir.to_owned(), id: head.id, clock: head.clock };
    let mut shared = Shared::new(window, durability, Some(files));
    shared.answers = Mutex::new(answers);
    shared.wall_offset_millis = AtomicI64::new(head.wall_offset_millis);
    shared.log_bytes = AtomicU64::new(log_bytes);
    shared.checkpoint_unix_seconds = AtomicU64::new(modified.as_secs());
    let segment = Segment::create(dir, head.id, last + 1, next_group).map_err(io)?;
    let shared = Arc::new(shared);
    let thread = std::thread::Builder::new().name("window-log".to_owned()).spawn({
        let shared = Arc::clone(&shared);
        move || writer::run(&shared, segment)
    });
    Ok(Durable {
        shared,
        writer: Mutex::new(Some(thread.map_err(io)?)),
        checkpointing: Mutex::default(),
        _lock: Some(held),
    })
}

pub(super) fn lock_dir(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join("LOCK");
    let file = private(OpenOptions::new().create(true).truncate(false).write(true)).open(&path);
    let file = file.map_err(|source| OpenError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

/// Removes what a killed process did not finish: the log may need the space.
pub(super) fn remove_temporary(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Numbers of the files with a prefix, ascending.
pub(super) fn numbered(dir: &Path, prefix: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes checkpoints and log segments before a number. Failures leave files that the next
/// checkpoint removes.
pub(super) fn remove_before(dir: &Path, number: u64) {
    for (prefix, path) in [
        ("checkpoint-", checkpoint::checkpoint_path as fn(&Path, u64) -> PathBuf),
        ("log-", segment_path),
    ] {
        for old in numbered(dir, prefix).unwrap_or_default() {
            if old < number {
                let _ = std::fs::remove_file(path(dir, old));
            }
        }
    }
}

/// An empty window.
fn new(spec: WindowSpec, clock: &str, tick: u64) -> io::Result<Loaded> {
    let window = Window::new(spec, tick).map_err(io::Error::other)?;
    let head = Head {
        spec,
        secret: *window.secret(),
        id: getrandom::u64()?,
        segment: 1,
        next_group: 1,
        clock: clock.to_owned(),
        tick,
        wall_offset_millis: 0,
        regions: 0,
    };
    Ok(Loaded { is_new: true, ..of_checkpoint(head, window) })
}

fn of_checkpoint(head: Head, window: Window) -> Loaded {
    Loaded {
        window,
        answers: Answers::default(),
        is_new: false,
        last: head.segment.saturating_sub(1),
        next_group: head.next_group,
        log_bytes: 0,
        head,
    }
}

fn load_checkpoint(
    path: &Path,
    number: u64,
    spec: WindowSpec,
    clock: &str,
) -> Result<Loaded, OpenError> {
    let (head, file) = checkpoint::read_head(path)?;
    if head.segment != number {
        let what = "a checkpoint under the name of another";
        return Err(CheckpointError::Damaged { path: path.to_owned(), what }.into());
    }
    let is_same = head.spec.layout() == spec.layout()
        && head.spec.lifetime == spec.lifetime
        && head.clock == clock;
    if !is_same {
        return Err(OpenError::Other {
            path: path.to_owned(),
            expected: describe(&spec, clock),
            found: describe(&head.spec, &head.clock),
        });
    }
    let window = Window::with_secret(spec, head.tick, head.secret);
    checkpoint::read_regions(path, &head, file, &window)?;
    Ok(of_checkpoint(head, window))
}

fn describe(spec: &WindowSpec, clock: &str) -> String {
    format!("{clock}, capacity {}, {:?} slots", spec.capacity, spec.format()).to_lowercase()
}

/// Replays the log from the checkpoint on.
fn replay(loaded: &mut Loaded, dir: &Path, segments: &[u64]) -> Result<(), OpenError> {
    let id = loaded.head.id;
    let mut segments: Vec<u64> =
        segments.iter().copied().filter(|number| *number >= loaded.head.segment).collect();
    segments.sort_unstable();
    for (index, number) in segments.iter().enumerate() {
        let path = segment_path(dir, *number);
        let next = segments.get(index + 1);
        let until = match next {
            Some(next) => log::first_group(&segment_path(dir, *next), id, *next)?,
            None => None,
        };
        let group = loaded.next_group;
        let end = log::read_segment(&path, id, *number, group, until, |payload| {
            loaded.log_bytes += payload.len() as u64;
            apply(loaded, payload)
        })?;
        loaded.next_group = end.next_group;
        loaded.last = *number;
        if end.torn_bytes > 0 {
            cut(&path, end.torn_bytes)?;
        }
    }
    Ok(())
}

/// Cuts a torn tail, so that a later start finds whole groups only.
fn cut(path: &Path, torn_bytes: u64) -> Result<(), LogError> {
    let cut = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(file.metadata()?.len() - torn_bytes)?;
        file.sync_all()
    };
    cut().map_err(|source| LogError::Io { path: path.to_owned(), source })?;
    let path = path.display().to_string();
    tracing::warn!(path, torn_bytes, "torn end of a window's log cut");
    Ok(())
}

fn apply(loaded: &mut Loaded, mut payload: &[u8]) -> Option<()> {
    let window = &loaded.window;
    while !payload.is_empty() {
        let (tick, changes, is_forget) = match decode(&mut payload, window.lanes())? {
            Frame::Changes { tick, changes } => (tick, changes, false),
            Frame::Forgotten { tick, changes } => (tick, changes, true),
            Frame::Answered { token, answer } => {
                loaded.answers.insert(token, answer);
                continue;
            }
            Frame::WallOffset(millis) => {
                loaded.head.wall_offset_millis = millis;
                continue;
            }
        };
        window.set_tick(tick);
        for change in &changes {
            if change.slot >= window.slots() {
                return None;
            }
            window.redo(change, tick, is_forget);
        }
    }
    Some(())
}
