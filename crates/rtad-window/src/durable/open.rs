//! Opening a window's directory: lock, last checkpoint, log after it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use super::{Durability, Durable, Files, Shared, StateDir, lock, writer};
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
    #[error(
        "{dir}: the files are of another window: expected {expected}, found {found}; give the \
         window another name, or remove the directory to start empty"
    )]
    Other {
        /// The directory.
        dir: PathBuf,
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

pub(super) fn open(
    StateDir { dir, lock: held }: StateDir,
    spec: WindowSpec,
    clock: &str,
    tick: u64,
    durability: Durability,
) -> Result<Durable, OpenError> {
    spec.validate()?;
    let dir = dir.as_path();
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let checkpoints = numbered(dir, "checkpoint-").map_err(io(dir))?;
    let segments = numbered(dir, "log-").map_err(io(dir))?;
    let (head, window) = match checkpoints.last() {
        Some(number) => load(dir, *number, &spec, clock)?,
        None if segments.is_empty() => create(dir, &spec, clock, tick).map_err(io(dir))?,
        None => return Err(OpenError::NoCheckpoint { dir: dir.to_owned() }),
    };
    let files = Files { dir: dir.to_owned(), id: head.id, clock: clock.to_owned() };
    let shared = Shared::new(window, durability, Some(files));
    let (last, group, bytes) = replay(&shared, &head, &segments)?;
    shared.window.set_tick(tick);
    shared.window.recount();
    shared.log_bytes.store(bytes, Ordering::Relaxed);
    let path = checkpoint::checkpoint_path(dir, head.segment);
    let modified = path.metadata().and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    shared.checkpoint_unix_seconds.store(modified.as_secs(), Ordering::Relaxed);
    let segment = Segment::create(dir, head.id, last + 1, group).map_err(io(dir))?;
    let shared = Arc::new(shared);
    let thread = std::thread::Builder::new().name("window-log".to_owned()).spawn({
        let shared = Arc::clone(&shared);
        move || writer::run(&shared, segment)
    });
    Ok(Durable {
        shared,
        writer: Mutex::new(Some(thread.map_err(io(dir))?)),
        checkpointing: Mutex::new(()),
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

/// Begins an empty window: its first checkpoint fixes the secret of the hash.
fn create(dir: &Path, spec: &WindowSpec, clock: &str, tick: u64) -> io::Result<(Head, Window)> {
    let window = Window::new(*spec, tick).map_err(io::Error::other)?;
    let head = Head {
        spec: *spec,
        secret: *window.secret(),
        id: getrandom::u64()?,
        segment: 1,
        next_group: 1,
        clock: clock.to_owned(),
        tick,
        regions: 0,
    };
    let written = checkpoint::write(dir, &head, &window)?;
    checkpoint::publish(dir, &written, &head)?;
    if let Some(parent) = dir.parent() {
        sync_dir(parent)?;
    }
    Ok((head, window))
}

fn load(
    dir: &Path,
    number: u64,
    spec: &WindowSpec,
    clock: &str,
) -> Result<(Head, Window), OpenError> {
    let path = checkpoint::checkpoint_path(dir, number);
    let (head, file) = checkpoint::read_head(&path)?;
    if head.segment != number {
        let what = "a checkpoint under the name of another";
        return Err(CheckpointError::Damaged { path, what }.into());
    }
    let is_same = head.spec.layout() == spec.layout()
        && head.spec.lifetime == spec.lifetime
        && head.clock == clock;
    if !is_same {
        return Err(OpenError::Other {
            dir: dir.to_owned(),
            expected: describe(spec, clock),
            found: describe(&head.spec, &head.clock),
        });
    }
    let window = Window::with_secret(*spec, head.tick, head.secret);
    checkpoint::read_regions(&path, &head, file, &window)?;
    Ok((head, window))
}

fn describe(spec: &WindowSpec, clock: &str) -> String {
    format!("{clock}, capacity {}, {:?} slots", spec.capacity, spec.format()).to_lowercase()
}

/// Replays the log from the checkpoint on. Returns the last segment, the next group, and the bytes.
fn replay(shared: &Shared, head: &Head, segments: &[u64]) -> Result<(u64, u64, u64), OpenError> {
    let Some(Files { dir, .. }) = &shared.files else { return Ok((0, 0, 0)) };
    let mut segments: Vec<u64> =
        segments.iter().copied().filter(|number| *number >= head.segment).collect();
    segments.sort_unstable();
    let (mut group, mut bytes) = (head.next_group, 0);
    for (index, number) in segments.iter().enumerate() {
        let path = segment_path(dir, *number);
        let next = segments.get(index + 1);
        let until = match next {
            Some(next) => log::first_group(&segment_path(dir, *next), head.id, *next)?,
            None => None,
        };
        let end = log::read_segment(&path, head.id, *number, group, until, |payload| {
            bytes += payload.len() as u64;
            apply(shared, payload)
        })?;
        group = end.next_group;
        if end.torn_bytes > 0 {
            cut(&path, end.torn_bytes)?;
        }
    }
    Ok((segments.last().copied().unwrap_or(head.segment - 1), group, bytes))
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
    tracing::warn!(path, torn_bytes, "torn end of a window's log cut; it was never acknowledged");
    Ok(())
}

fn apply(shared: &Shared, payload: &[u8]) -> Option<()> {
    let window = &shared.window;
    for frame in decode(payload, window.lanes())? {
        let (tick, changes, is_forget) = match frame {
            Frame::Changes { tick, changes } => (tick, changes, false),
            Frame::Forgotten { tick, changes } => (tick, changes, true),
            Frame::Answered { token, answer } => {
                lock(&shared.answers).insert(token, answer);
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
