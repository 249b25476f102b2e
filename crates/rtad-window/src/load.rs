//! Reading a window's directory: last checkpoint, and the log after it.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use rtad_core::random;

use crate::answers::{AnswerLimits, Answers};
use crate::checkpoint::{self, CheckpointError, Head};
use crate::log::{self, Frame, LogError, decode, segment_path};
use crate::window::Window;
use crate::{SpecError, WindowSpec};

/// Identity of a window's files, and the bounds of what is kept beside its table.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Size and precision.
    pub spec: WindowSpec,
    /// Meaning of the ticks, in the caller's words; files of another clock are refused.
    pub clock: String,
    /// Bounds of the kept answers.
    pub answers: AnswerLimits,
}

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
    pub(crate) shape: Shape,
    pub(crate) head: Head,
    pub(crate) window: Window,
    pub(crate) answers: Answers,
    /// Whether the first checkpoint is still to be written.
    pub(crate) is_new: bool,
    pub(crate) last_segment: u64,
    pub(crate) next_group: u64,
    pub(crate) log: LogBytes,
}

/// Size of the log since the last checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogBytes {
    /// Changes of the table.
    pub(crate) changes: u64,
    /// Kept answers.
    pub(crate) answers: u64,
}

impl Loaded {
    /// An empty window.
    ///
    /// # Errors
    ///
    /// A value of the spec is out of range.
    pub(crate) fn empty(shape: Shape, tick: u64) -> Result<Self, SpecError> {
        let window = Window::new(shape.spec, tick)?;
        let head = Head {
            spec: shape.spec,
            secret: *window.secret(),
            id: 0,
            segment: 1,
            next_group: 1,
            clock: shape.clock.clone(),
            tick,
            regions: 0,
        };
        Ok(Self {
            is_new: true,
            ..Self::of_checkpoint(shape, head, window)
        })
    }

    fn of_checkpoint(shape: Shape, head: Head, window: Window) -> Self {
        Self {
            window,
            answers: Answers::new(shape.answers),
            shape,
            is_new: false,
            last_segment: head.segment.saturating_sub(1),
            next_group: head.next_group,
            log: LogBytes::default(),
            head,
        }
    }

    /// Moves to the current tick after everything is read.
    fn at(mut self, tick: u64) -> Self {
        self.window.set_tick(tick);
        self.window.recount();
        // The caller lists all keys at its start.
        let _ = self.window.take_evicted(|_, _| {});
        self.answers.restore_order();
        self
    }
}

/// Reads a directory. Changes nothing but a torn end of the log.
pub fn load(dir: &Path, shape: &Shape, tick: u64) -> Result<Loaded, OpenError> {
    shape.spec.validate()?;
    let io = |source| OpenError::Io {
        path: dir.to_owned(),
        source,
    };
    let checkpoints = numbered(dir, "checkpoint-").map_err(io)?;
    let segments = numbered(dir, "log-").map_err(io)?;
    let Some(number) = checkpoints.last() else {
        if !segments.is_empty() {
            return Err(OpenError::NoCheckpoint {
                dir: dir.to_owned(),
            });
        }
        let mut loaded = Loaded::empty(shape.clone(), tick)?;
        loaded.head.id = random::number();
        return Ok(loaded);
    };
    let path = checkpoint::checkpoint_path(dir, *number);
    let mut loaded = load_checkpoint(&path, *number, shape)?;
    replay(&mut loaded, dir, &segments)?;
    Ok(loaded.at(tick))
}

/// Reads a checkpoint that no log follows.
pub fn load_download(
    path: &Path,
    number: u64,
    shape: &Shape,
    tick: u64,
) -> Result<Loaded, OpenError> {
    shape.spec.validate()?;
    Ok(load_checkpoint(path, number, shape)?.at(tick))
}

/// Numbers of the files with a prefix, ascending.
pub fn numbered(dir: &Path, prefix: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| number_of(name, prefix)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The number in a file's name; `None` for a name that is not made of the prefix and a number.
pub fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix(prefix)?.parse().ok()?;
    (format!("{prefix}{number:016}") == name).then_some(number)
}

/// Removes checkpoints and log segments before a number. Failures leave files that the next
/// checkpoint removes.
pub fn remove_before(dir: &Path, number: u64) {
    for (prefix, path) in [
        (
            "checkpoint-",
            checkpoint::checkpoint_path as fn(&Path, u64) -> PathBuf,
        ),
        ("log-", segment_path),
    ] {
        for old in numbered(dir, prefix).unwrap_or_default() {
            if old < number {
                let _ = std::fs::remove_file(path(dir, old));
            }
        }
    }
}

fn load_checkpoint(path: &Path, number: u64, shape: &Shape) -> Result<Loaded, OpenError> {
    let (head, file) = checkpoint::read_head(path)?;
    if head.segment != number {
        let what = "a checkpoint under the name of another";
        return Err(CheckpointError::Damaged {
            path: path.to_owned(),
            what,
        }
        .into());
    }
    let Shape { spec, clock, .. } = shape;
    // Small capacities have the same layout.
    let is_same = head.spec.layout() == spec.layout()
        && head.spec.capacity == spec.capacity
        && head.spec.lifetime == spec.lifetime
        && head.clock == *clock;
    if !is_same {
        return Err(OpenError::Other {
            path: path.to_owned(),
            expected: describe(spec, clock),
            found: describe(&head.spec, &head.clock),
        });
    }
    let mut window = Window::with_secret(*spec, head.tick, head.secret)?;
    checkpoint::read_regions(path, &head, file, &mut window)?;
    Ok(Loaded::of_checkpoint(shape.clone(), head, window))
}

fn describe(spec: &WindowSpec, clock: &str) -> String {
    format!(
        "{clock}, capacity {}, {:?} slots",
        spec.capacity,
        spec.format()
    )
    .to_lowercase()
}

/// Replays the log from the checkpoint on.
fn replay(loaded: &mut Loaded, dir: &Path, segments: &[u64]) -> Result<(), OpenError> {
    let id = loaded.head.id;
    let mut segments: Vec<u64> = segments
        .iter()
        .copied()
        .filter(|number| *number >= loaded.head.segment)
        .collect();
    segments.sort_unstable();
    for number in segments {
        let path = segment_path(dir, number);
        let group = loaded.next_group;
        let end = log::read_segment(&path, id, number, group, |payload| apply(loaded, payload))?;
        loaded.next_group = end.next_group;
        loaded.last_segment = number;
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
    cut().map_err(|source| LogError::Io {
        path: path.to_owned(),
        source,
    })?;
    let path = path.display().to_string();
    tracing::warn!(path, torn_bytes, "torn end of a window's log cut");
    Ok(())
}

fn apply(loaded: &mut Loaded, mut payload: &[u8]) -> Option<()> {
    let Loaded {
        window,
        answers,
        log,
        ..
    } = loaded;
    while !payload.is_empty() {
        let before = payload.len();
        let frame = decode(&mut payload, window.lanes())?;
        let bytes = (before - payload.len()) as u64;
        match &frame {
            Frame::Answered { .. } => log.answers += bytes,
            _ => log.changes += bytes,
        }
        let (tick, changes, is_forget) = match frame {
            Frame::Changes { tick, changes } => (tick, changes, false),
            Frame::Forgotten { tick, changes } => (tick, changes, true),
            Frame::Answered {
                request_key,
                answer,
            } => {
                answers.replay(request_key, answer);
                continue;
            }
            Frame::Synced(_) => continue,
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
